"""Laws of adopting what runs: pods as an API server shows them are read, kept and sent as the
collector does, while the cluster is taken over, pods are bound by us and by others, and the fleet
assigns their workload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node
from tests.hunting import examples
from tests.scenarios.test_pod_placing import OURS, wants

from wharfinger.domain.cluster import Cluster, Places
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.events.cluster_state import NodesObserved, PodsObserved, WaitingPodsObserved
from wharfinger.events.decisions import (
    PodsUnplaced,
    ReplicasAdopted,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.events.fanout import assignment_items
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster.adoption import ASSIGNED
from wharfinger.stages.collector import ObservedCluster
from wharfinger_collector.sighting import LiveDecoder, PodSink

WEB = "shop/web-deployment"
NODES, CPU = ("a", "b", "c"), 4000
CPUS = (300, 700, 1100)

# name of the workload, kind and name of the controller, labels, scheduler
MADE_BY: dict[str, tuple[str, str, dict[str, str], str]] = {
    WEB: ("ReplicaSet", "web-6b7", {"pod-template-hash": "6b7"}, OURS),
    "shop/db-statefulset": ("StatefulSet", "db", {}, OURS),
    "shop/{name}-pod": ("", "", {}, OURS),
    "": ("DaemonSet", "agent", {}, OURS),
    "shop/other-deployment": ("ReplicaSet", "other-5c4", {"pod-template-hash": "5c4"}, "default"),
}
WORKLOADS = tuple(MADE_BY)

steps = st.lists(
    st.tuples(
        st.sampled_from(("make", "make", "bind", "by-hand", "deliver", "deliver", "assign"))
        | st.sampled_from(("runs", "delete", "finish", "terminate", "assign", "mode", "restart")),
        st.integers(0, 9),
        st.integers(0, 2),
    ),
    min_size=12,
    max_size=40,
)

modes: st.SearchStrategy[Places] = st.sampled_from(("pods", "pods", "none"))


@dataclass
class Member:
    """A cluster, its collector and the stage. `pods`: uid -> what the API server shows of it.
    `where`: uid -> node, of the replicas by the decisions that hold."""

    plane: Harness = field(default_factory=Harness)
    facts: ObservedCluster = field(default_factory=lambda: ObservedCluster(Cluster(CLUSTER)))
    decoder: LiveDecoder = field(default_factory=LiveDecoder)
    mirror: Occupancy = field(default_factory=Occupancy)
    """What the estimator makes of the same facts, and of what it is sent of the decisions."""
    mode: Places = "none"
    pods: dict[str, dict[str, dict[str, object]]] = field(default_factory=dict)
    workload: dict[str, str] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    replicas: dict[tuple[str, int], str] = field(default_factory=dict)
    at: int = 0
    assigned: int = 0

    def __post_init__(self) -> None:
        self.sink = PodSink(self.facts, lambda: self.at, lambda: None)
        self.say_mode()
        self.facts.list_nodes([a_node(name, CPU) for name in NODES], 0)
        self.sink.replace([], "1")

    def say_mode(self) -> None:
        self.facts.observe_cluster(Cluster(CLUSTER, places=self.mode, scheduler=OURS), self.at)

    # --- what happens in the cluster

    def step(self, what: str, number: int, more: int) -> None:
        self.at += 1
        waiting = [uid for uid in sorted(self.pods) if not self.node(uid)]
        match what:
            case "make" | "runs":
                uid = f"u{len(self.workload):03}"
                name = uid if number % 2 else f"db-{number}"
                workload = WORKLOADS[max(0, number - 5)]
                self.workload[uid] = workload.format(name=name)
                kind, owner, labels, scheduler = MADE_BY[workload]
                node = NODES[more] if what == "runs" else ""
                made = {"kind": kind, "name": owner, "uid": owner, "controller": True}
                self.pods[uid] = {
                    "metadata": {
                        "name": name,
                        "namespace": "shop",
                        "uid": uid,
                        "labels": labels,
                        "ownerReferences": [made] if kind else [],
                    },
                    "spec": {
                        "schedulerName": scheduler,
                        "nodeName": node,
                        "containers": [
                            {"name": "m", "resources": {"requests": {"cpu": f"{CPUS[more]}m"}}}
                        ],
                    },
                    "status": {"phase": "Running" if node else "Pending", "qosClass": "Burstable"},
                }
                self.show(uid)
            case "bind" if todo := [u for u in waiting if u in self.where]:
                uid = todo[number % len(todo)]
                self.bind(uid, self.where[uid])
            case "by-hand" if waiting:
                self.bind(waiting[number % len(waiting)], NODES[more])
            case "terminate" if self.pods:
                uid = sorted(self.pods)[number % len(self.pods)]
                self.pods[uid]["metadata"]["deletionTimestamp"] = "2026-11-26T08:00:00Z"
                self.show(uid)
            case "delete" if self.pods:
                uid = sorted(self.pods)[number % len(self.pods)]
                shown = self.decoder.pod(msgspec.Raw(json.dumps(self.pods.pop(uid)).encode()))
                self.sink.remove(shown, str(self.at))
            case "finish" if self.pods:
                uid = sorted(self.pods)[number % len(self.pods)]
                if self.node(uid):
                    self.pods[uid]["status"]["phase"] = "Failed"
                    self.show(uid)
                    del self.pods[uid]
            case "assign":
                self.assign(number % 6)
            case "mode":
                self.mode = "pods" if self.mode == "none" or number < 8 else "none"
                self.say_mode()
            case "deliver":
                self.deliver((10_000, 300_000, 40_000_000)[more])
            case "restart":
                decider = self.plane.decider
                sections = decider.dump(self.plane.state)
                self.plane.state = decider.load(STREAM, sections)
                assert decider.dump(self.plane.state) == sections
                assert self.plane.state.book.strangers == self.mirror.strangers
            case _:
                pass

    def node(self, uid: str) -> str:
        return str(self.pods[uid]["spec"]["nodeName"])

    def terminating(self, uid: str) -> bool:
        return "deletionTimestamp" in self.pods[uid]["metadata"]

    def bind(self, uid: str, node: str) -> None:
        self.pods[uid]["spec"]["nodeName"] = node
        self.pods[uid]["status"]["phase"] = "Running"
        self.show(uid)

    def show(self, uid: str) -> None:
        raw = msgspec.Raw(json.dumps(self.pods[uid]).encode())
        self.sink.upsert(self.decoder.pod(raw), str(self.at))

    # --- what is sent, and decided

    def assign(self, replicas: int) -> None:
        wanted = self.plane.assigned((WEB, replicas, wants(500), 0))
        self.mirror.take(wanted.items[0], 0)
        self.assigned = replicas
        self.follow(self.plane.feed(wanted))

    def deliver(self, us: int) -> None:
        self.at += us
        for sighted in self.facts.due(self.at):
            match sighted.fact.data:
                case NodesObserved() as nodes:
                    self.mirror.observe_nodes(nodes, 0)
                case PodsObserved() as pods:
                    self.mirror.observe_pods(pods)
                case WaitingPodsObserved() as waiting:
                    self.mirror.observe_waiting(waiting)
                case _:
                    pass
            self.follow(self.plane.feed(sighted.fact.data))

    def follow(self, decisions: Sequence[Decision]) -> None:
        given: dict[str, str] = {}
        for decision in decisions:
            for _, item in assignment_items(decision.seq, str(decision.id), decision.data):
                self.mirror.take(item, 0)
            match decision.data:
                case ReplicasAdopted() as adopted:
                    for share in adopted.placed:
                        for ordinal, uid in zip(share.ordinals, share.pods, strict=True):
                            if adopted.why == "reassigned":
                                assert given.pop(uid) == share.node, "it keeps its node"
                            else:
                                on = self.plane.state.book.node_of
                                assert on[uid] == share.node, "it runs there"
                            self.take(adopted.binding, ordinal, uid, share.node)
                case ReplicasPlaced() as placed:
                    for share in placed.placed:
                        for ordinal, uid in zip(share.ordinals, share.pods, strict=True):
                            assert uid not in self.plane.state.book.node_of, "it runs already"
                            self.take(placed.binding, ordinal, uid, share.node)
                case ReplicasReleased() as released:
                    for share in released.released:
                        assert share.pods == (), "no pod is to be evicted"
                        for ordinal in share.ordinals:
                            uid = self.replicas.pop((released.binding, ordinal))
                            assert self.where.pop(uid) == share.node
                            if released.reason == ASSIGNED:
                                given[uid] = share.node
                case ReplicasRefused() as back:
                    self.assigned -= back.count
                case PodsUnplaced():
                    pass
                case other:
                    raise AssertionError(f"{other} moves what runs")
        assert given == {}

    def take(self, binding: str, ordinal: int, uid: str, node: str) -> None:
        assert uid not in self.where, "one replica only"
        assert (binding, ordinal) not in self.replicas
        self.where[uid] = node
        self.replicas[binding, ordinal] = uid

    # --- what holds when all is known

    def is_ours(self, uid: str) -> bool:
        workload = self.workload[uid]
        held = workload in self.plane.state.book.held
        return bool(workload) and (held or self.pods[uid]["spec"]["schedulerName"] == OURS)

    def free(self, node: str) -> int:
        def cpu(uid: str) -> int:
            shown = json.loads(json.dumps(self.pods[uid]))
            text = shown["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            return int(text.removesuffix("m"))

        used = [uid for uid in self.pods if self.node(uid) == node]
        used += [u for u, at in self.where.items() if at == node and not self.node(u)]
        return CPU - sum(cpu(uid) for uid in used)


def run(history: list[Step], mode: Places) -> Member:
    """`mode`: in which the cluster begins. It ends with its pods being placed, and WEB assigned."""
    member = Member(mode=mode)
    for step in history:
        member.step(*step)
    member.mode = "pods"
    member.say_mode()
    member.deliver(1_000_000)
    member.assign(len(history) % 4)
    member.deliver(60_000_000)
    return member


Step = tuple[str, int, int]


@given(steps, modes)
@settings(max_examples=examples(50), deadline=None)
def test_what_runs_is_a_replica_once(history: list[Step], mode: Places) -> None:
    member = run(history, mode)
    book = member.plane.state.book
    running = {
        uid: member.node(uid)
        for uid in member.pods
        if member.node(uid) and member.is_ours(uid) and not member.terminating(uid)
    }
    on_nodes = {u: n for u, n in member.where.items() if u in member.pods and member.node(u)}
    assert {u: on_nodes.get(u) for u in running} == running
    assert set(member.where) <= set(member.pods), "released with its pod"
    for uid, node in member.where.items():
        assert member.node(uid) in ("", node)
        if not member.workload[uid]:
            continue  # a pod of a DaemonSet that we placed
        of, _ = next(key for key, pod in member.replicas.items() if pod == uid)
        assert of.removesuffix(f"@{CLUSTER}") == member.workload[uid]
    for books in (book, member.mirror):
        table = books.table
        for name in NODES:
            free = table.rows[name].free[table.resource_codes["cpu"]]
            assert free == member.free(name), name
    assert {u: book.replica_of[u] for u in member.where} == member.mirror.replica_of
    assert book.unbound == member.mirror.unbound
    # the assignment is satisfied by what is there
    there = sum(member.workload[uid] == WEB for uid in member.where)
    assert sum(book.unbound.values()) == max(0, member.assigned - there)


@given(steps, modes)
@settings(max_examples=examples(20), deadline=None)
def test_histories_of_adoption_replay_and_leave_nothing_behind(
    history: list[Step], mode: Places
) -> None:
    member = run(history, mode)
    member.assign(0)
    for uid in sorted(member.pods):
        raw = msgspec.Raw(json.dumps(member.pods.pop(uid)).encode())
        member.sink.remove(member.decoder.pod(raw), str(member.at))
    member.deliver(60_000_000)
    book = member.plane.state.book
    assert (member.where, book.held, book.on_node, book.replica_of) == ({}, {}, {}, {})
    assert (book.strangers, book.astray, book.unbound) == ({}, {}, {})
    decider = member.plane.decider
    replayed = audit(decider, decider.initial(STREAM), empty_head(STREAM), member.plane.rounds)
    assert replayed.divergences == []
