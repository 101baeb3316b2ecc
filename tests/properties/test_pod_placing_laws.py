"""Laws of placing the pods that wait in a joined cluster, over what happens there: pods are made,
bound, bound elsewhere, deleted; nodes come and go, are cordoned, and become smaller. The facts come
as a collector sends them: the latest of each key, in any batches, delayed, repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node
from tests.hunting import examples
from tests.scenarios.test_barred_nodes import answer
from tests.scenarios.test_pod_placing import OURS, WEB, joined, on, waiting, waits, wants

from wharfinger.domain.actuation import Verb
from wharfinger.domain.node import Node, WaitingPod
from wharfinger.domain.value import Value
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved, PodsObserved, WaitingPodsObserved
from wharfinger.events.decisions import (
    NodeBarred,
    PodsUnplaced,
    ReplicasAdopted,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.events.effects import AnswerOutcome, EffectsObserved
from wharfinger.events.fanout import assignment_items
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.step import empty_head
from wharfinger.stages.actuator import open_effects
from wharfinger.stages.actuator.node_room import short_nodes
from wharfinger.stages.actuator.state import ClusterWork
from wharfinger.stages.cluster.adoption import ASSIGNED
from wharfinger.stages.cluster.barred_nodes import barred_now
from wharfinger.stages.cluster.pod_placing import binding_of, waits_for_us


def decision_at(plane: Harness) -> int:
    return plane.state.at


def workload(binding: str) -> str:
    """The pods of a workload of the cluster are those of a binding that is assigned later."""
    return binding.removesuffix(f"@{CLUSTER}")


NODES, CPU = ("a", "b", "c"), 2000
SIZES = (2000, 1500, 600)
BIND: tuple[Verb, ...] = ("bind",)
CPUS = (300, 700, 1100)

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(("make", "make", "bind", "bind", "delete", "deliver", "deliver"))
        | st.sampled_from(("elsewhere", "lose", "again", "assign", "gate", "restart", "time"))
        | st.sampled_from(("refuse", "reject", "cordon", "resize")),
        st.integers(0, 7),
        st.integers(0, 2),
    ),
    min_size=10,
    max_size=40,
)


@dataclass
class Cluster:
    """What is true in the cluster, and which facts about it the stage has not been told yet.
    `bound`: uid -> (node, pod). `chosen`: uid -> node, by the decisions that hold."""

    plane: Harness = field(default_factory=Harness)
    nodes: list[str] = field(default_factory=lambda: list(NODES))
    cordoned: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, CPU))
    waiting: dict[str, WaitingPod] = field(default_factory=dict)
    bound: dict[str, tuple[str, WaitingPod]] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    replicas: dict[tuple[str, int], str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    """uid -> node, of replicas that the fleet's binding is about to get."""
    untold: dict[str, None] = field(default_factory=dict)
    sent: list[Value] = field(default_factory=list)
    mirror: Occupancy = field(default_factory=Occupancy)
    """What the estimator makes of the same facts, and of the decisions as they are sent to it."""
    work: ClusterWork = field(default_factory=lambda: ClusterWork(CLUSTER))
    """What the actuator makes of both."""
    barred: dict[tuple[str, str], int] = field(default_factory=dict)
    """(workload, node) -> until when nothing is placed there."""
    made: int = 0
    wanted: int = 0
    overbooked: bool = False
    """Room was taken that the stage could not know of."""

    def __post_init__(self) -> None:
        self.tell(["nodes"])

    def step(self, what: str, number: int, more: int) -> None:
        waiting, bound = sorted(self.waiting), sorted(self.bound)
        match what:
            case "make":
                self.made += 1
                uid = f"u{self.made:03}"
                theirs = "" if number else "default-scheduler"
                self.waiting[uid] = waits(
                    uid,
                    CPUS[more],
                    theirs or OURS,
                    binding=(WEB, "shop/job-job", "")[number % 3],
                    priority=number % 2,
                    created_us=self.made,
                )
                self.changed("waiting")
            case "gate" if waiting:
                uid = waiting[number % len(waiting)]
                pod = self.waiting[uid]
                gates = () if pod.requirements.traits.gates else ("quota",)
                cpu = pod.requirements.requests["cpu"]
                scheduler = pod.requirements.traits.scheduler
                self.waiting[uid] = msgspec.structs.replace(
                    pod, requirements=wants(cpu, scheduler, gates=gates)
                )
                self.changed("waiting")
            case "bind" if self.chosen:
                uid = sorted(self.chosen)[number % len(self.chosen)]
                if uid in self.waiting and self.chosen[uid] in self.nodes:
                    self.bind(uid, self.chosen[uid])
            case "elsewhere" if waiting and self.nodes:
                self.overbooked = True
                self.bind(waiting[number % len(waiting)], self.nodes[more % len(self.nodes)])
            case "delete" if waiting or bound:
                uid = (*waiting, *bound)[number % (len(waiting) + len(bound))]
                self.waiting.pop(uid, None)
                node, _ = self.bound.pop(uid, ("", None))
                self.changed(f"on {node}" if node else "waiting")
            case "lose":
                name = NODES[more]
                if name in self.nodes:
                    self.nodes.remove(name)
                    self.bound = {u: at for u, at in self.bound.items() if at[0] != name}
                    self.changed(f"on {name}")
                else:
                    self.nodes.append(name)
                self.changed("nodes")
            case "cordon":
                self.cordoned ^= {NODES[more]}
                self.changed("nodes")
            case "resize":
                self.overbooked = True
                self.sizes[NODES[more]] = SIZES[number % 3]
                self.changed("nodes")
            case "deliver":
                keys = list(self.untold)
                self.tell(keys[: 1 + more] if number % 2 else keys[-1 - more :])
            case "again" if self.sent:
                latest = {self.key(fact): fact for fact in self.sent}
                self.follow(self.plane.feed(*list(latest.values())[-1 - number :]))
            case "refuse" if self.chosen:
                uid = sorted(self.chosen)[number % len(self.chosen)]
                # An answer that contradicts the cluster: the stage gives away room that is taken.
                self.overbooked |= uid in self.bound
                self.answered(uid, "refused")
            case "reject" if self.chosen:
                uid = sorted(self.chosen)[number % len(self.chosen)]
                if uid in self.waiting and self.chosen[uid] in self.nodes:
                    node = self.chosen[uid]
                    del self.waiting[uid]  # bound, and failed at once: it is in neither fact
                    self.changed("waiting")
                    self.answered(uid, "rejected", node)
            case "assign":
                self.assign(number % 5, CPUS[more])
            case "time":
                self.follow(self.plane.feed(seconds=(5, 25, 90)[more]))
            case "restart":
                decider = self.plane.decider
                sections = decider.dump(self.plane.state)
                self.plane.state = decider.load(STREAM, sections)
                assert decider.dump(self.plane.state) == sections
            case _:
                pass

    def answered(self, uid: str, outcome: AnswerOutcome, node: str = "") -> None:
        """What an actuator reports of the pod, which was to be bound."""
        node = node or self.chosen[uid]
        binding = next(b for (b, _), pod in self.replicas.items() if pod == uid)
        fact = EffectsObserved(CLUSTER, (answer(uid, node, binding, outcome),))
        self.sent.append(fact)
        self.follow(self.plane.feed(fact))
        if outcome == "refused" and uid in self.waiting:
            assert self.chosen.get(uid) != node or node not in self.nodes, "placed elsewhere"

    def assign(self, replicas: int, cpu: int) -> None:
        wanted = self.plane.assigned((WEB, replicas, wants(cpu), 0))
        self.mirror.take(wanted.items[0], 0)
        self.wanted = replicas
        self.follow(self.plane.feed(wanted))

    def bind(self, uid: str, node: str) -> None:
        self.bound[uid] = node, self.waiting.pop(uid)
        self.changed(f"on {node}")
        self.changed("waiting")

    def changed(self, key: str) -> None:
        self.untold.setdefault(key)

    def fact(self, key: str) -> list[Value]:
        if key == "nodes":
            return [*joined(*[self.node(name) for name in sorted(self.nodes)])]
        if key == "waiting":
            return [waiting(*[pod for _, pod in sorted(self.waiting.items())])]
        name = key.removeprefix("on ")
        return [on(name, *[pod for _, (node, pod) in sorted(self.bound.items()) if node == name])]

    def node(self, name: str) -> Node:
        return a_node(name, self.sizes[name], unschedulable=name in self.cordoned)

    @staticmethod
    def key(fact: Value) -> str:
        match fact:
            case PodsObserved(node=node):
                return f"on {node}"
            case WaitingPodsObserved():
                return "waiting"
            case EffectsObserved():
                return "answers"
            case _:
                return f"nodes {getattr(fact, 'bucket', '')}"

    def tell(self, keys: Sequence[str]) -> None:
        if "waiting" in keys:
            # the collector never says that a pod does not wait before it says where it is
            on_nodes = [key for key in self.untold if key.startswith("on ")]
            keys = [*on_nodes, *(key for key in keys if key not in on_nodes)]
        facts = [fact for key in keys for fact in self.fact(key)]
        for key in keys:
            self.untold.pop(key, None)
        if facts:
            self.sent += facts
            for fact in facts:
                match fact:
                    case NodesObserved():
                        self.mirror.observe_nodes(fact, 0)
                        self.work.observe_nodes(fact)
                    case PodsObserved():
                        self.mirror.observe_pods(fact)
                        self.work.observe_pods(fact)
                    case WaitingPodsObserved():
                        self.mirror.observe_waiting(fact)
                        self.work.observe_waiting(fact)
                    case _:
                        raise AssertionError(fact)
            self.follow(self.plane.feed(*facts))
        if "nodes" in keys:  # a node that is seen to be gone comes back without its bars
            self.barred = {key: at for key, at in self.barred.items() if key[1] in self.nodes}

    def follow(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            for _, item in assignment_items(decision.seq, str(decision.id), decision.data):
                self.mirror.take(item, 0)
                relayed = AssignmentsDecided(CLUSTER, STREAM, decision.seq, (item,))
                self.work.take(relayed, self.plane.at)
            match decision.data:
                case ReplicasPlaced() as placed:
                    for share in placed.placed:
                        for ordinal, uid in zip(share.ordinals, share.pods, strict=True):
                            assert uid not in self.chosen, "placed once"
                            bar = self.barred.get((workload(placed.binding), share.node), 0)
                            assert bar <= decision_at(self.plane), "placed on a barred node"
                            self.chosen[uid] = share.node
                            self.replicas[placed.binding, ordinal] = uid
                case ReplicasAdopted() as adopted:
                    for share in adopted.placed:
                        for ordinal, uid in zip(share.ordinals, share.pods, strict=True):
                            assert uid not in self.chosen, "a replica once"
                            assert (adopted.binding, ordinal) not in self.replicas
                            if adopted.why == "reassigned":
                                assert adopted.binding == WEB
                                assert uid in self.moved, "it keeps its node"
                                assert self.moved.pop(uid) == share.node
                            self.chosen[uid] = share.node
                            self.replicas[adopted.binding, ordinal] = uid
                case ReplicasReleased() as released:
                    for share in released.released:
                        assert share.pods == (), "no pod is to be evicted"
                        for ordinal in share.ordinals:
                            uid = self.replicas.pop((released.binding, ordinal))
                            assert self.chosen.pop(uid) == share.node
                            if released.reason == ASSIGNED:
                                self.moved[uid] = share.node
                case ReplicasRefused() as back:
                    assert back.binding == WEB
                    self.wanted -= back.count
                    placed_here = sum(binding == WEB for binding, _ in self.replicas)
                    assert self.wanted >= placed_here, "given back although it has a place"
                case NodeBarred() as bar:
                    key = workload(bar.binding), bar.node
                    assert self.barred.get(key, 0) <= decision_at(self.plane), "barred already"
                    self.barred[key] = bar.until_us
                case PodsUnplaced() as said:
                    assert not self.chosen.keys() & set(said.pods), "it has a place"
                case other:
                    raise AssertionError(f"{other} is no decision about waiting pods")

    def settle(self) -> None:
        """All facts arrive, the collector's order: pods of nodes before waiting pods."""
        self.tell([key for key in sorted(self.untold, reverse=True) if key != "waiting"])
        self.tell(["waiting"])

    def free(self, node: str) -> int:
        """What is free by the truth: the pods that are there, and those that were promised room."""
        used = [pod for where, pod in self.bound.values() if where == node]
        used += [self.waiting[u] for u, n in self.chosen.items() if n == node and u in self.waiting]
        return self.sizes[node] - sum(pod.requirements.requests["cpu"] for pod in used)


@given(steps)
@settings(max_examples=examples(120), deadline=None)
def test_what_is_placed_is_what_waits_or_runs(history: list[Step]) -> None:
    cluster = Cluster()
    for step in history:
        cluster.step(*step)
    cluster.settle()
    book = cluster.plane.state.book
    table = book.table
    for name in cluster.nodes:
        free = table.rows[name].free[table.resource_codes["cpu"]]
        assert free == cluster.free(name), name
        assert free >= 0 or cluster.overbooked
        if any(node == name and uid in cluster.waiting for uid, node in cluster.chosen.items()):
            assert free >= 0, "a pod waits for a node that has no room for it"
            assert name not in cluster.cordoned, "a pod waits for a cordoned node"
    for uid, node in cluster.chosen.items():
        assert uid in cluster.waiting or cluster.bound[uid][0] == node
    assert set(book.replica_of) == set(cluster.chosen)
    assert cluster.moved == {}
    for uid, (node, pod) in cluster.bound.items():
        workload_held = pod.binding in book.held
        ours = pod.requirements.traits.scheduler == OURS
        if node in cluster.nodes and (workload_held or ours):
            assert cluster.chosen[uid] == node, "it runs, and is no replica"
    for uid, pod in cluster.waiting.items():
        if uid not in cluster.chosen and waits_for_us(cluster.plane.state, pod):
            barred = barred_now(cluster.plane.state, binding_of(cluster.plane.state, pod))
            shut = {*barred, *cluster.cordoned}
            rooms = [cluster.free(name) for name in cluster.nodes if name not in shut]
            most = max(rooms, default=0)
            assert pod.requirements.requests["cpu"] > most, "it fits, and waits"
            assert uid in cluster.plane.state.said, "it waits, and is not told why"
    facts = [fact for key in ("nodes", "waiting") for fact in cluster.fact(key)]
    assert cluster.plane.feed(*facts) == []
    for name in cluster.nodes:
        mirrored = cluster.mirror.table
        assert mirrored.rows[name].free[mirrored.resource_codes["cpu"]] == cluster.free(name)
    assert cluster.mirror.unbound == book.unbound
    binds = open_effects(cluster.work, BIND, cluster.plane.at)
    bound_next = {one.object.uid: one.target for one in binds if one.action == "bind-pod"}
    assert bound_next == {
        uid: node for uid, node in cluster.chosen.items() if uid in cluster.waiting
    }
    assert short_nodes(cluster.work, binds) == {}, "a binding is kept back for good"


@given(steps)
@settings(max_examples=examples(60), deadline=None)
def test_histories_replay_and_leave_nothing_behind(history: list[Step]) -> None:
    """Every pod is deleted and every binding withdrawn: nothing is left in the book."""
    cluster = Cluster()
    for step in history:
        cluster.step(*step)
    for node, _ in list(cluster.bound.values()):
        cluster.changed(f"on {node}")
    cluster.waiting.clear()
    cluster.bound.clear()
    cluster.settle()
    cluster.assign(0, 0)
    book = cluster.plane.state.book
    assert cluster.chosen == {}
    assert not book.held
    assert not book.on_node
    assert not book.replica_of
    assert not book.astray
    assert book.unbound == {}
    decider = cluster.plane.decider
    replayed = audit(decider, decider.initial(STREAM), empty_head(STREAM), cluster.plane.rounds)
    assert replayed.divergences == []
