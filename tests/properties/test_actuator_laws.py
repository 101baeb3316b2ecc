"""Laws of the actuator's core: which effects are open follows from decisions and facts alone.

A history is a list of decisions of one stream and of facts under several keys. However the two are
interleaved, repeated, or read again from the beginning after a restart, the same effects are open;
and an effect whose object is observed as decided never is.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cluster_world import event
from tests.hunting import examples

from wharfinger.domain.actuation import CLOSED_BY, VERBS
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import (
    AssignmentItem,
    AssignmentsDecided,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    PodsRemoved,
    Released,
    UnplacedPods,
)
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    NodesObserved,
    PodsObserved,
    WaitingPodsObserved,
)
from wharfinger.events.node_share import NodeShare
from wharfinger.stages.actuator import ActuatorObserver, open_effects
from wharfinger.stages.actuator.effects import Effect
from wharfinger.stages.actuator.plan import WAITING_FOR_NODE
from wharfinger.stages.cluster.placing import SCALED_DOWN

CLUSTER, STREAM = "oslo", "cluster/oslo"
NODES = ("n1", "n2", "n3", "n4")
PODS = ("u1", "u2", "u3")
DECIDED = ("close", "disrupt", "end", "remove", "place", "release", "unplaced")
UNSCHEDULED = WAITING_FOR_NODE  # all verbs are in force
NOW, LATER = 1_000, 2_000


def told(*messages: Value) -> list[Effect]:
    observer = ActuatorObserver(frozenset({CLUSTER}))
    state = observer.initial()
    for message in messages:
        observer.fold(state, event(message), NOW)
    return open_effects(state[CLUSTER], VERBS, NOW)


def decisions(items: Sequence[AssignmentItem]) -> list[AssignmentsDecided]:
    return [AssignmentsDecided(CLUSTER, STREAM, item.seq, (item,)) for item in items]


def node(name: str, unschedulable: bool, ours: bool) -> Node:
    annotations = {CLOSED_BY: f"{STREAM}:1"} if ours else {}
    return Node(name, {"cpu": 1000}, unschedulable=unschedulable, annotations=annotations)


SHOP = Requirements({"cpu": 100}, pod=PodTraits(namespace="shop"))


def a_pod(uid: str, on: str) -> Pod:
    return Pod(uid, f"pod-{uid}", SHOP, on)


def waiting(uid: str) -> WaitingPod:
    return WaitingPod(uid, f"pod-{uid}", SHOP, "shop/web")


@st.composite
def some_decisions(draw: st.DrawFn) -> list[AssignmentItem]:
    items: list[AssignmentItem] = []
    for seq in range(1, draw(st.integers(0, 8)) + 1):
        which = draw(
            st.sampled_from(("close", "disrupt", "end", "remove", "place", "release", "unplaced"))
        )
        nodes = tuple(draw(st.lists(st.sampled_from(NODES), max_size=2, unique=True)))
        if which == "close":
            items.append(NodeClosed(seq, f"d{seq}", draw(st.sampled_from(NODES))))
        elif which == "disrupt":
            items.append(Disrupting(seq, f"d{seq}", "c", "Empty", nodes))
        elif which == "end":
            items.append(Disrupted(seq, f"d{seq}", "c", "Empty", "rolled-back", nodes, ""))
        elif which == "place":
            uid, on = draw(st.sampled_from(PODS)), draw(st.sampled_from(NODES))
            share = NodeShare(on, (PODS.index(uid),), pods=(uid,))
            items.append(Placed(seq, f"d{seq}", "shop/web", (share,)))
        elif which == "unplaced":
            uids = tuple(draw(st.lists(st.sampled_from(PODS), max_size=2, unique=True)))
            why = draw(st.sampled_from(("0/4 nodes fit", "0/5 nodes fit")))
            items.append(UnplacedPods(seq, f"d{seq}", "shop/web", uids, "NodeAffinity", why))
        elif which == "release":
            uid, on = draw(st.sampled_from(PODS)), draw(st.sampled_from(NODES))
            share = NodeShare(on, (PODS.index(uid),), pods=(uid,))
            reason = draw(st.sampled_from(("Preempted", SCALED_DOWN, "")))
            items.append(Released(seq, f"d{seq}", "shop/web", (share,), reason=reason))
        else:
            uids = tuple(
                f"f-{u}" for u in draw(st.lists(st.sampled_from(PODS), max_size=2, unique=True))
            )
            items.append(PodsRemoved(seq, f"d{seq}", uids, draw(st.sampled_from((NOW, LATER)))))
    return items


@st.composite
def some_facts(draw: st.DrawFn) -> list[Value]:
    """Two buckets of nodes and the finished pods of two nodes, each told one to three times."""
    facts: list[Value] = []
    for _ in range(draw(st.integers(1, 3))):
        for bucket, names in enumerate((NODES[:2], NODES[2:])):
            # A node that goes ends the decisions about it, so all are there all the time.
            nodes = tuple([node(n, draw(st.booleans()), draw(st.booleans())) for n in names])
            facts.append(NodesObserved(CLUSTER, bucket, 2, nodes))
        for on in NODES[:2]:
            uids = draw(st.lists(st.sampled_from(PODS), max_size=2, unique=True))
            traits = PodTraits(namespace="shop")
            pods = [
                Pod(f"f-{u}", f"pod-{u}", Requirements({}, pod=traits), on) for u in sorted(uids)
            ]
            facts.append(FinishedPodsObserved(CLUSTER, on, tuple(pods)))
        # Each pod waits, or is on one node: in the facts of this turn together.
        where = {uid: draw(st.sampled_from(("", *NODES))) for uid in PODS}
        for on in NODES:
            there = [a_pod(uid, on) for uid in PODS if where[uid] == on]
            facts.append(PodsObserved(CLUSTER, on, tuple(there)))
        waits = [waiting(uid) for uid in PODS if not where[uid]]
        facts.append(WaitingPodsObserved(CLUSTER, "shop", 0, 32, tuple(waits)))
    return facts


@settings(max_examples=examples(100))
@given(some_decisions(), some_facts(), st.data())
def test_any_interleaving_of_decisions_and_facts_opens_the_same_effects(
    items: list[AssignmentItem], facts: list[Value], data: st.DataObject
) -> None:
    ours = decisions(items)
    expected = told(*ours, *facts)
    mixed: list[Value] = []
    rest, left = list(ours), list(facts)
    while rest or left:
        first = data.draw(st.booleans()) if rest and left else bool(rest)
        mixed.append(rest.pop(0) if first else left.pop(0))
    assert told(*mixed) == expected


@settings(max_examples=examples(100))
@given(some_decisions(), some_facts(), st.integers(0, 40), st.integers(0, 40))
def test_what_is_read_twice_changes_nothing(
    items: list[AssignmentItem], facts: list[Value], begin: int, end: int
) -> None:
    """Also where a run of decisions comes again, as one message, behind later ones."""
    ours = decisions(items)
    again = [item for item in items if begin <= item.seq <= end]
    repeated = [AssignmentsDecided(CLUSTER, STREAM, again[-1].seq, tuple(again))] if again else []
    assert told(*ours, *repeated, *facts, *facts) == told(*ours, *facts)


@settings(max_examples=examples(100))
@given(some_decisions(), some_facts())
def test_done_is_what_is_observed(items: list[AssignmentItem], facts: list[Value]) -> None:
    """Once the cluster is as the open effects make it, none is open."""
    ours = decisions(items)
    effects = told(*ours, *facts)
    touched = {effect.object.name: effect.action for effect in effects if effect.verb == "nodes"}
    removed = {effect.object.uid for effect in effects if effect.verb == "evict"}
    bound = {effect.object.uid: effect.target for effect in effects if effect.action == "bind-pod"}
    marked = {effect.object.uid for effect in effects if effect.action == "mark-pod"}
    done: list[Value] = []
    for fact in facts:
        match fact:
            case NodesObserved(nodes=nodes):
                after = tuple(
                    node(n.name, touched[n.name] == "close-node", touched[n.name] == "close-node")
                    if n.name in touched
                    else n
                    for n in nodes
                )
                done.append(NodesObserved(CLUSTER, fact.bucket, 2, after))
            case FinishedPodsObserved(pods=pods):
                left = tuple(pod for pod in pods if pod.uid not in removed)
                done.append(FinishedPodsObserved(CLUSTER, fact.node, left))
            case PodsObserved(node=on, pods=pods):
                there = [pod for pod in pods if pod.uid not in removed and pod.uid not in bound]
                there += [a_pod(uid, on) for uid, target in sorted(bound.items()) if target == on]
                done.append(PodsObserved(CLUSTER, on, tuple(there)))
            case WaitingPodsObserved(pods=waits):
                still = tuple(
                    replace(pod, condition=UNSCHEDULED) if pod.uid in marked else pod
                    for pod in waits
                    if pod.uid not in bound
                )
                done.append(WaitingPodsObserved(CLUSTER, "shop", 0, 32, still))
    assert told(*ours, *done) == []


@settings(max_examples=examples(100))
@given(some_decisions(), some_facts())
def test_no_effect_without_a_decision(items: list[AssignmentItem], facts: list[Value]) -> None:
    """Nodes are closed and pods removed only by a decision that names them; and reopened only where
    the annotation says that we closed them, and no decision does any more."""
    closed_ever = {
        name
        for item in items
        if isinstance(item, NodeClosed | Disrupting)
        for name in ((item.node,) if isinstance(item, NodeClosed) else item.nodes)
    }
    for effect in told(*decisions(items), *facts):
        if effect.action == "reopen-node":
            assert effect.cause is None
            assert effect.object.name in closed_ever, "another ledger has closed it"
            continue
        assert effect.cause is not None
        item = items[effect.cause.seq - 1]
        match item:
            case NodeClosed(node=name):
                assert effect.object.name == name
            case Disrupting(nodes=names):
                assert effect.object.name in names
            case Placed(placed=(share,)):
                assert (effect.object.uid, effect.target) == (share.pods[0], share.node)
            case UnplacedPods(pods=uids, message=message):
                assert effect.object.uid in uids
                assert effect.message == message
            case Released(released=(share,), reason=reason):
                assert effect.object.uid == share.pods[0]
                assert reason == "Preempted"
            case PodsRemoved(pods=uids, until_us=until):
                assert effect.object.uid in uids
                assert until > NOW
            case _:
                raise AssertionError(item)
