"""Laws of what the collector sends: after any history of observations, whoever folds the facts in
order knows what the cluster holds, and never less in between."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.cluster_objects import NodeClaimStatus
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.taints import Taint
from wharfinger.domain.time import SECOND
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.node_images import NodeImages
from wharfinger.events.accepted import Fact
from wharfinger.events.cluster_state import (
    NODES_BYTES_MAX,
    WAITING_BUCKETS,
    FinishedPodsObserved,
    ImageOnNodes,
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    WaitingPodsObserved,
    waiting_bucket,
)
from wharfinger.events.clusters import ClusterObserved
from wharfinger.stages.collector import ObservedCluster, Sighted
from wharfinger.stages.collector.state import (
    BUCKETS_MIN,
    CLAIMS_US,
    COMPLETE,
    FINISHED_US,
    IMAGES_A_BUCKET,
    IMAGES_US,
    NODES_US,
    NOT_READ,
    OBJECTS_US,
    PODS_US,
    SETTLED_US,
    WAITING_US,
)

OSLO = Cluster("oslo", lease_s=40)


def node(name: str, cpu: int = 4000, **fields: object) -> Node:
    return Node(name, {"cpu": cpu, "memory": 1 << 30}, **fields)  # type: ignore[arg-type]


def pod(uid: str, on: str, cpu: int = 100) -> Pod:
    return Pod(uid, f"pod-{uid}", Requirements({"cpu": cpu}), on)


def unbound(uid: str, cpu: int = 100) -> WaitingPod:
    """Two namespaces, so that a uid stays in one."""
    traits = PodTraits(namespace="shop" if uid < "u3" else "bank")
    return WaitingPod(uid, f"pod-{uid}", Requirements({"cpu": cpu}, pod=traits))


def sighted_pod(uid: str, on: str) -> Pod | WaitingPod:
    return pod(uid, on) if on else unbound(uid)


def node_of(found: Pod | WaitingPod) -> str:
    return found.node if isinstance(found, Pod) else ""


class Reader:
    """Folds facts as the stages do."""

    def __init__(self) -> None:
        self.buckets: dict[tuple[int, int], tuple[Node, ...]] = {}
        self.pods: dict[str, tuple[Pod, ...]] = {}
        self.waiting: dict[tuple[str, int], tuple[WaitingPod, ...]] = {}
        self.finished: dict[str, tuple[Pod, ...]] = {}
        self.images = NodeImages()
        self.count = 0
        self.version = 0

    def fold(self, sighted: Sighted) -> None:
        assert sighted.version > self.version, "of two facts the later one has the greater version"
        self.version = sighted.version
        match sighted.fact.data:
            case NodesObserved(bucket=bucket, buckets=buckets, nodes=nodes):
                self.count = buckets
                self.buckets[buckets, bucket] = nodes
            case NodeImagesObserved() as images:
                self.images.observe(images)
            case PodsObserved(node=name, pods=pods):
                self.pods[name] = pods
            case WaitingPodsObserved(
                namespace=namespace, bucket=bucket, buckets=buckets, pods=left
            ):
                assert buckets == WAITING_BUCKETS
                for found in left:
                    assert (found.requirements.traits.home, waiting_bucket(found.uid)) == (
                        namespace,
                        bucket,
                    )
                self.waiting[namespace, bucket] = left
            case FinishedPodsObserved(node=name, pods=pods):
                self.finished[name] = pods
                both = {p.uid for p in pods} & {p.uid for p in self.pods.get(name, ())}
                assert not both, "a pod that has finished is off its node before"

    def nodes(self) -> dict[str, Node]:
        found = [n for (count, _), ns in self.buckets.items() if count == self.count for n in ns]
        return {n.name: n for n in found}

    def uids(self) -> list[str]:
        there = [p.uid for pods in self.pods.values() for p in pods]
        return sorted(there + [p.uid for pods in self.waiting.values() for p in pods])

    def ended(self) -> dict[str, str]:
        return {p.uid: p.node for pods in self.finished.values() for p in pods}

    def on(self) -> dict[str, str]:
        waiting = {p.uid: "" for pods in self.waiting.values() for p in pods}
        return {**waiting, **{p.uid: p.node for pods in self.pods.values() for p in pods}}


def listed(
    nodes: list[Node] = [],  # noqa: B006
    pods: Sequence[Pod | WaitingPod] = (),
) -> ObservedCluster:
    facts = ObservedCluster(OSLO)
    facts.list_nodes(nodes, 0)
    facts.list_pods(pods, 0)
    return facts


def placed_here() -> ObservedCluster:
    """A cluster whose waiting pods, all of them, are placed by us."""
    facts = ObservedCluster(msgspec.structs.replace(OSLO, places="pods"))
    facts.list_nodes([], 0)
    facts.list_pods([], 0)
    return facts


UIDS = [f"u{i}" for i in range(6)]
NODES = [f"n{i}" for i in range(4)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("see-pod"), st.sampled_from(UIDS), st.sampled_from(["", *NODES])),
        st.tuples(st.just("lose-pod"), st.sampled_from(UIDS), st.just("")),
        st.tuples(st.just("finish-pod"), st.sampled_from(UIDS), st.sampled_from(["", *NODES])),
        st.tuples(st.just("see-node"), st.sampled_from(NODES), st.sampled_from(["1", "2"])),
        st.tuples(st.just("lose-node"), st.sampled_from(NODES), st.just("")),
        st.tuples(
            st.just("send"), st.sampled_from(["0", "60000", "400000", "30000000"]), st.just("")
        ),
        st.tuples(st.just("refused"), st.just("400000"), st.just("")),
        st.tuples(st.just("list"), st.just(""), st.just("")),
        st.tuples(st.just("relist"), st.just(""), st.sampled_from(["0", "2", "5"])),
    ),
    max_size=40,
)


@settings(max_examples=examples(200))
@given(STEPS)
def test_after_all_facts_the_reader_knows_what_is_there(steps: list[tuple[str, str, str]]) -> None:
    facts, reader, at = listed(), Reader(), 0
    nodes: dict[str, Node] = {}
    pods: dict[str, Pod | WaitingPod] = {}
    ended: dict[str, Pod] = {}
    for what, name, said in steps:
        match what:
            case "see-pod":
                ended.pop(name, None)
                pods[name] = sighted_pod(name, said)
                facts.see_pod(pods[name], at)
            case "finish-pod":
                node_name = node_of(pods[name]) if name in pods else said
                pods.pop(name, None)
                ended[name] = pod(name, node_name)
                facts.see_finished(ended[name], at)
            case "lose-pod":
                pods.pop(name, None)
                ended.pop(name, None)
                facts.lose_pod(name, at)
            case "see-node":
                nodes[name] = node(name, int(said))
                facts.see_node(nodes[name], at)
            case "lose-node":
                nodes.pop(name, None)
                facts.lose_node(name, at)
            case "list":  # what a watch had said already changes nothing
                facts.list_nodes(list(nodes.values()), at)
                facts.list_pods(list(pods.values()), at, list(ended.values()))
            case "relist":  # without a watch in between
                pods = {uid: pod(uid, "n1") for uid in UIDS[: int(said)]}
                ended = {uid: pod(uid, "n1") for uid in UIDS[int(said) :]}
                facts.list_pods(list(pods.values()), at, list(ended.values()))
            case "refused":
                at += int(name)
                facts.unsent(facts.due(at), at)
            case _:
                at += int(name)
                for sighted in facts.due(at):
                    reader.fold(sighted)
    for sighted in facts.due(at + FINISHED_US):
        reader.fold(sighted)
    assert reader.nodes() == nodes
    assert reader.on() == {uid: node_of(found) for uid, found in pods.items()}
    assert reader.ended() == {uid: found.node for uid, found in ended.items()}
    assert facts.due(at + 2 * FINISHED_US) == [], "what was sent is not sent again"


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(UIDS), unique=True, min_size=1), st.integers(0, 500_000))
def test_a_pod_that_is_bound_is_never_left_out(uids: list[str], later: int) -> None:
    facts, reader = listed([node("n1")], [unbound(uid) for uid in UIDS]), Reader()
    for sighted in facts.due(SECOND):
        reader.fold(sighted)
    for uid in uids:
        facts.see_pod(pod(uid, "n1"), 2 * SECOND)
    for sighted in facts.due(2 * SECOND + later):
        reader.fold(sighted)
        assert set(reader.uids()) == set(UIDS)


CROWDED = [uid for i in range(200) if waiting_bucket(uid := f"a{i}") < 2][:6]
"""Pods of one namespace in two buckets."""


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["bind", "change", "send", "refused"]),
            st.sampled_from(CROWDED),
            st.sampled_from(NODES),
            st.sampled_from([0, WAITING_US, PODS_US, SETTLED_US]),
        ),
        max_size=30,
    ),
    st.booleans(),
)
def test_at_no_time_is_a_bound_pod_left_out(
    steps: list[tuple[str, str, str, int]], ours: bool
) -> None:
    """Pods of several buckets are bound to several nodes, while others that wait change, and facts
    are sent, or not accepted, in between."""
    facts, reader, at = placed_here() if ours else listed(), Reader(), 2 * SECOND
    for uid in CROWDED:
        facts.see_pod(unbound(uid), SECOND)
    for sighted in facts.due(at):
        reader.fold(sighted)
    on: dict[str, str] = {}
    for place, (what, uid, to, wait) in enumerate(steps):
        match what:
            case "bind":
                on.setdefault(uid, to)
                facts.see_pod(pod(uid, on[uid]), at)
            case "change" if uid not in on:
                facts.see_pod(unbound(uid, 100 + place), at)
            case "send":
                at += wait
                for sighted in facts.due(at):
                    reader.fold(sighted)
                    assert set(reader.uids()) == set(CROWDED)
            case "refused":
                at += wait
                facts.unsent(facts.due(at), at)
            case _:
                pass
    for sighted in facts.due(at + SETTLED_US):
        reader.fold(sighted)
        assert set(reader.uids()) == set(CROWDED)
    assert reader.on() == {uid: on.get(uid, "") for uid in CROWDED}


def test_what_was_decided_here_waits_for_the_next_second_and_is_sent_together() -> None:
    facts, begun = placed_here(), 5 * SECOND + 300_000
    for uid in UIDS:
        facts.see_pod(unbound(uid), SECOND)
    facts.due(2 * SECOND)
    facts.see_pod(pod("u0", "n0"), begun)
    facts.see_pod(pod("u1", "n1"), begun + 300_000)
    started = msgspec.structs.replace(pod("u0", "n0"), started_us=begun)
    facts.see_pod(started, begun + 400_000)
    assert facts.next_at() == 6 * SECOND
    assert facts.due(6 * SECOND - 1) == []
    sent = [s.fact.data for s in facts.due(6 * SECOND)]
    assert [f.pods for f in sent if isinstance(f, PodsObserved)] == [(started,), (pod("u1", "n1"),)]
    assert facts.next_at() is None, "both wait no more"


@pytest.mark.parametrize("ours", [False, True])
def test_what_was_not_decided_here_does_not_wait_for_the_next_second(ours: bool) -> None:
    """A pod that others have bound, or that is new on its node, uses more or less of it, or ends:
    its room is not charged yet, or still is."""
    facts, begun = placed_here() if ours else listed(), 5 * SECOND
    facts.see_pod(unbound("u0"), SECOND)
    facts.see_pod(pod("u1", "n1"), SECOND)
    facts.due(2 * SECOND)
    seen: list[Pod] = [
        pod("u9", "n1"),
        pod("u1", "n1", 500),
        msgspec.structs.replace(pod("u1", "n1", 500), terminating=True),
    ]
    if not ours:
        seen.append(pod("u0", "n0"))
    for found in seen:
        facts.see_pod(found, begun)
        assert facts.next_at() == begun + PODS_US
        facts.due(begun + PODS_US)
    facts.lose_pod("u1", begun)
    assert facts.next_at() == begun + PODS_US


def test_a_new_pod_that_waits_brings_no_other_fact_forward() -> None:
    """Only those of nodes that took pods of the same bucket."""
    facts, begun = placed_here(), 5 * SECOND
    for uid in UIDS:
        facts.see_pod(unbound(uid), SECOND)
    facts.due(2 * SECOND)
    beside = next(uid for uid in UIDS if waiting_bucket(uid) != waiting_bucket("u0"))
    facts.see_pod(pod("u0", "n0"), begun)
    facts.see_pod(unbound(beside, 200), begun)
    sent = [s.fact.data for s in facts.due(begun + WAITING_US)]
    assert [type(data) for data in sent] == [WaitingPodsObserved]
    facts.see_pod(unbound("u0-twin"), begun)
    facts.see_pod(pod("u0-twin", "n1"), begun)
    assert facts.next_at() == begun + WAITING_US, "as long as a new pod waits"


@settings(max_examples=examples(60))
@given(st.integers(0, 2 * PODS_US))
def test_a_pod_that_finishes_is_off_its_node_before_it_is_known_as_finished(before: int) -> None:
    """Another pod of the node finished earlier, and its fact is due just then."""
    facts, reader = listed([node("n1")], [pod("u1", "n1"), pod("u2", "n1")]), Reader()
    for sighted in facts.due(SECOND):
        reader.fold(sighted)
    begin = 2 * SECOND
    facts.see_finished(pod("u1", "n1"), begin)
    for sighted in facts.due(begin + PODS_US):
        reader.fold(sighted)
    facts.see_finished(pod("u2", "n1"), begin + FINISHED_US - before)
    for sighted in facts.due(begin + FINISHED_US):
        reader.fold(sighted)
    assert (reader.on(), reader.ended()) == ({}, {"u1": "n1", "u2": "n1"})


def test_what_an_earlier_collector_saw_as_finished_and_is_gone_is_taken_back() -> None:
    known: list[Fact] = [FinishedPodsObserved("oslo", "n1", (pod("u9", "n1"),))]
    facts = ObservedCluster(OSLO, known)
    facts.list_nodes([node("n1")], 0)
    facts.list_pods([], 0)
    assert FinishedPodsObserved("oslo", "n1", ()) in [s.fact.data for s in facts.due(SECOND)]


def test_nothing_is_sent_before_both_lists_are_complete() -> None:
    facts = ObservedCluster(OSLO)
    facts.list_pods([pod("u", "n1")], 0)
    facts.see_node(node("n1"), 0)
    assert facts.due(10 * SECOND) == []
    assert facts.next_at() is None
    facts.list_nodes([node("n1")], 0)
    assert len(facts.due(10 * SECOND)) == BUCKETS_MIN + 1


def test_a_cluster_that_refuses_to_be_listed_is_known_and_takes_nothing_until_it_is() -> None:
    facts = ObservedCluster(OSLO)
    assert facts.unlisted(0) == [], "no right is missing"
    facts.condition("MayReadNode", False, 0)
    (sighted,) = facts.unlisted(0)
    refused = msgspec.structs.replace(
        OSLO, taints=(NOT_READ,), conditions={**OSLO.conditions, "MayReadNode": "False"}
    )
    assert sighted.fact.data == ClusterObserved(refused)
    assert facts.unlisted(0) == [], "it has not changed"
    facts.unsent([sighted], 0)
    assert [s.fact for s in facts.unlisted(0)] == [sighted.fact], "it was not accepted"
    assert facts.due(SECOND) == []
    facts.condition("MayReadNode", True, 0)
    facts.list_nodes([node("n1")], 0)
    facts.list_pods([], 0)
    assert ClusterObserved(OSLO) in [s.fact.data for s in facts.due(SECOND)]
    assert facts.unlisted(0) == []


def test_a_cluster_that_was_listed_before_stays_as_it_is_while_it_refuses() -> None:
    before = msgspec.structs.replace(OSLO, zones=("z1", "z2"))
    facts = ObservedCluster(OSLO, [ClusterObserved(before), NodesObserved("oslo", 0, 8, ())])
    facts.condition("MayReadNode", False, 0)
    (sighted,) = facts.unlisted(0)
    conditions = {**OSLO.conditions, "MayReadNode": "False"}
    assert sighted.fact.data == ClusterObserved(
        msgspec.structs.replace(before, conditions=conditions)
    )


def test_what_an_earlier_collector_saw_and_is_gone_is_taken_back() -> None:
    known: list[Fact] = [
        NodesObserved("oslo", 0, 32, ()),
        PodsObserved("oslo", "gone", (pod("u9", "gone"),)),
        ClusterObserved(OSLO),
    ]
    facts = ObservedCluster(OSLO, known)
    facts.list_nodes([node("n1")], 0)
    facts.list_pods([pod("u", "n1")], 0)
    sent = [s.fact.data for s in facts.due(SECOND)]
    assert PodsObserved("oslo", "gone", ()) in sent
    assert {n.buckets for n in sent if isinstance(n, NodesObserved)} == {32}, "never fewer"


def test_waiting_pods_that_an_earlier_collector_saw_are_taken_back() -> None:
    """Also those that it reported as pods of no node."""
    known: list[Fact] = [
        WaitingPodsObserved("oslo", "old", 3, WAITING_BUCKETS, (unbound("u9"),)),
        PodsObserved("oslo", "", (pod("u8", ""),)),
    ]
    facts = ObservedCluster(OSLO, known)
    facts.list_nodes([node("n1")], 0)
    facts.list_pods([unbound("u1")], 0)
    sent = [s.fact.data for s in facts.due(SECOND)]
    assert WaitingPodsObserved("oslo", "old", 3, WAITING_BUCKETS, ()) in sent
    assert PodsObserved("oslo", "", ()) in sent
    assert facts.counts == {"nodes": 1, "pods": 1, "waiting": 1}


def test_what_the_value_does_not_hold_is_no_fact() -> None:
    """A node's heartbeat comes as the same domain value."""
    facts = listed([node("n1")], [pod("u", "n1")])
    facts.due(SECOND)
    facts.see_node(node("n1"), 2 * SECOND)
    facts.see_pod(pod("u", "n1"), 2 * SECOND)
    assert facts.next_at() is None


def test_there_and_back_within_the_wait_is_no_fact() -> None:
    facts = listed([node("n1")], [pod("u", "n1")])
    facts.due(SECOND)
    facts.see_pod(pod("u", "n1", 500), 2 * SECOND)
    facts.see_pod(pod("u", "n1", 100), 2 * SECOND + 1)
    assert facts.due(3 * SECOND) == []


def test_another_mode_reports_all_nodes_again() -> None:
    facts = listed([node("n1"), node("n2")], [])
    assert {nodes.places for nodes in _nodes(facts.due(SECOND))} == {""}
    changed = msgspec.structs.replace(facts.cluster, places="none", scheduler="wharfinger")
    facts.observe_cluster(changed, 2 * SECOND)
    again = _nodes(facts.due(2 * SECOND))
    assert {(nodes.places, nodes.scheduler) for nodes in again} == {("none", "wharfinger")}
    changed = msgspec.structs.replace(facts.cluster, evicts=True)
    facts.observe_cluster(changed, 3 * SECOND)
    assert {nodes.evicts for nodes in _nodes(facts.due(4 * SECOND))} == {True}
    assert [nodes.bucket for nodes in again] == list(range(again[0].buckets))
    facts.observe_cluster(changed, 3 * SECOND)
    assert _nodes(facts.due(4 * SECOND)) == []


def _nodes(sighted: list[Sighted]) -> list[NodesObserved]:
    return [said.fact.data for said in sighted if isinstance(said.fact.data, NodesObserved)]


def test_taints_are_sent_at_once_and_labels_wait() -> None:
    facts = listed([node("n1"), node("n2")])
    facts.due(SECOND)
    facts.see_node(node("n1", labels={"a": "b"}), 2 * SECOND)
    assert facts.next_at() == 2 * SECOND + NODES_US
    facts.see_node(node("n2", taints=(Taint("k", "NoSchedule"),)), 2 * SECOND)
    assert facts.next_at() == 2 * SECOND


def test_a_claim_that_comes_or_goes_is_sent_earlier_than_one_that_changes() -> None:
    """One that is made and deleted within the wait of other objects would not be known."""
    facts = listed([node("n1")])
    facts.list_objects("NodeClaim", (), 0)
    facts.due(SECOND)
    made = NodeClaimStatus("web-1", "web")
    launched = msgspec.structs.replace(made, launched=True)
    deleted = msgspec.structs.replace(launched, deleting=True)
    at = 10 * SECOND
    for seen, wait_us in ((made, CLAIMS_US), (launched, OBJECTS_US), (deleted, CLAIMS_US)):
        facts.see_object("NodeClaim", seen, at)
        assert facts.next_at() == at + wait_us
        at += wait_us
        (sent,) = facts.due(at)
        assert sent.fact.data == ObjectsObserved("oslo", "NodeClaim", "", (seen,))
    facts.lose_object("NodeClaim", "", "web-1", at)
    (sent,) = facts.due(at + CLAIMS_US)
    assert sent.fact.data == ObjectsObserved("oslo", "NodeClaim", "", ())


def test_a_burst_on_a_node_is_one_fact() -> None:
    facts = listed([node("n1")])
    facts.due(SECOND)
    for i in range(50):
        facts.see_pod(pod(f"p{i}", "n1"), 2 * SECOND + i)
    assert facts.due(2 * SECOND + PODS_US - 1) == []
    (only,) = facts.due(2 * SECOND + PODS_US)
    assert isinstance(only.fact.data, PodsObserved)
    assert len(only.fact.data.pods) == 50


def test_buckets_grow_with_the_nodes_and_are_bounded_in_bytes() -> None:
    labels = {f"label-{i}": "x" * 60 for i in range(40)}
    nodes = [node(f"n{i}", labels=labels) for i in range(2000)]
    facts, reader = listed(nodes), Reader()
    sent = facts.due(SECOND)
    for sighted in sent:
        reader.fold(sighted)
    assert reader.nodes() == {n.name: n for n in nodes}
    assert reader.count == 64
    assert all(len(msgspec.json.encode(s.fact.data)) <= NODES_BYTES_MAX for s in sent)


def test_what_cannot_be_read_is_said_by_the_cluster_until_it_can() -> None:
    facts = listed([node("n1")], [pod("u", "n1")])
    facts.due(SECOND)
    facts.unreadable("pod", "u", "spec: no", SECOND)
    facts.unreadable("node", "n1", "status: no", SECOND)
    facts.readable("pod", "u", SECOND)
    assert facts.cluster.conditions == {COMPLETE: "False"}
    assert facts.pod("u") is not None
    facts.readable("node", "n1", SECOND)
    assert facts.cluster.conditions == {}


image_sets = st.dictionaries(st.sampled_from(("a:1", "b:1", "c:2")), st.integers(1, 3), max_size=3)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(("n1", "n2", "n3")), st.none() | image_sets, st.booleans()),
        max_size=20,
    )
)
def test_images_are_apart_from_nodes_and_come_at_most_every_five_minutes(
    history: list[tuple[str, dict[str, int] | None, bool]],
) -> None:
    """`None`: the node is deleted. A list as well as single changes."""
    facts, reader, at = ObservedCluster(OSLO), Reader(), SECOND
    there: dict[str, Node] = {}
    facts.list_nodes([], at)
    facts.list_pods([], at)
    times: list[int] = []
    for name, images, listed in history:
        at += 20 * SECOND
        if images is None:
            there.pop(name, None)
            facts.lose_node(name, at)
        else:
            there[name] = node(name, images=images)
            if listed:
                facts.list_nodes(list(there.values()), at)
            else:
                facts.see_node(there[name], at)
        due = facts.due(at)
        times += [at for fact in due if isinstance(fact.fact.data, NodeImagesObserved)][:1]
        for fact in due:
            reader.fold(fact)
        assert {n: facts.node(n) for n in there} == there
    assert all(later - earlier >= IMAGES_US for earlier, later in itertools.pairwise(times))
    for fact in facts.due(at + IMAGES_US + 5 * SECOND):
        reader.fold(fact)
    assert reader.nodes() == {n: msgspec.structs.replace(v, images={}) for n, v in there.items()}
    assert {n: reader.images.on(n) for n in there} == {
        n: dict(sorted(v.images.items())) for n, v in there.items()
    }


def test_many_images_are_cut_into_more_facts_each_of_them_small() -> None:
    facts, reader = ObservedCluster(OSLO), Reader()
    images = {f"registry.example/team/image-{i}:1": 50_000_000 + i for i in range(50)}
    nodes = [node(f"n{i:04d}", images=images) for i in range(400)]
    facts.list_nodes(nodes, SECOND)
    facts.list_pods([], SECOND)
    due = facts.due(SECOND)
    sizes = [
        len(canonical(f.fact.data)) for f in due if isinstance(f.fact.data, NodeImagesObserved)
    ]
    assert len(sizes) == 4
    assert IMAGES_A_BUCKET * len(sizes) >= 400 * 50
    assert max(sizes) < NODES_BYTES_MAX
    for fact in due:
        reader.fold(fact)
    assert reader.images.on("n0399") == images
    assert (
        sum(len(canonical(f.fact.data)) for f in due if isinstance(f.fact.data, NodesObserved))
        < 100_000
    )


def test_images_that_an_earlier_collector_reported_and_that_are_gone_are_taken_back() -> None:
    known: list[Fact] = [NodeImagesObserved("oslo", 1, 2, (ImageOnNodes("a:1", 5, ("n1",)),))]
    facts = ObservedCluster(OSLO, known)
    facts.list_nodes([node("n1")], SECOND)
    facts.list_pods([], SECOND)
    sent = [s.fact.data for s in facts.due(SECOND)]
    assert NodeImagesObserved("oslo", 1, 2, ()) in sent
