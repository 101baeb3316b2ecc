"""Which bindings are kept back for lack of room on their node."""

from __future__ import annotations

from tests.cluster_world import a_node

from wharfinger.domain.actuation import Verb
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import AssignmentsDecided, Placed, Released
from wharfinger.events.cluster_state import NodesObserved, PodsObserved, WaitingPodsObserved
from wharfinger.events.node_share import NodeShare
from wharfinger.stages.actuator import open_effects
from wharfinger.stages.actuator.node_room import lacks, short_nodes, with_room
from wharfinger.stages.actuator.state import ClusterWork

STREAM, WEB = "cluster/oslo", "shop/web"
BIND: tuple[Verb, ...] = ("bind",)


def wants(**amounts: int) -> Requirements:
    return Requirements(amounts, pod=PodTraits(namespace="shop"))


def other(uid: str, node: str, **amounts: int) -> PodsObserved:
    return PodsObserved("oslo", node, (Pod(uid, uid, wants(**amounts), node),))


def placing(*nodes: Node, **pods: tuple[str, Requirements]) -> ClusterWork:
    """Pods that wait, each with the node that was decided for it."""
    work = ClusterWork("oslo")
    work.observe_nodes(NodesObserved("oslo", 0, 1, nodes))
    waiting = tuple(WaitingPod(uid, uid, said, WEB) for uid, (_, said) in pods.items())
    work.observe_waiting(WaitingPodsObserved("oslo", "shop", 0, 32, waiting))
    for number, (uid, (node, said)) in enumerate(pods.items()):
        share = NodeShare(node, (number,), pods=(uid,))
        decide(work, Placed(number + 1, f"d{number}", WEB, (share,), said))
    return work


def decide(work: ClusterWork, item: Placed | Released) -> None:
    work.take(AssignmentsDecided("oslo", STREAM, item.seq, (item,)), 0)


def sent(work: ClusterWork) -> list[str]:
    effects = open_effects(work, BIND, 0)
    return [effect.object.uid for effect in with_room(work, effects, effects)]


def test_what_fits_is_sent() -> None:
    work = placing(a_node("n1", 1000), u1=("n1", wants(cpu=600)), u2=("n1", wants(cpu=400)))
    assert sent(work) == ["u1", "u2"]


def test_nothing_is_bound_to_a_node_until_it_is_decided_which_pod_goes() -> None:
    work = placing(
        a_node("n1", 1000),
        a_node("n2", 1000),
        u1=("n1", wants(cpu=600)),
        u2=("n1", wants(cpu=400)),
        u3=("n2", wants(cpu=400)),
    )
    work.observe_pods(other("t1", "n1", cpu=300))
    assert sent(work) == ["u3"]
    assert len(open_effects(work, BIND, 0)) == 3, "they are open all the same"
    decide(work, Released(4, "d4", WEB, (NodeShare("n1", (1,)),), reason="InsufficientResources"))
    assert sent(work) == ["u1", "u3"]


def test_the_pod_that_took_the_room_goes() -> None:
    work = placing(a_node("n1", 1000), u1=("n1", wants(cpu=800)))
    work.observe_pods(other("t1", "n1", cpu=300))
    assert sent(work) == []
    work.observe_pods(PodsObserved("oslo", "n1", ()))
    assert sent(work) == ["u1"]


def test_a_node_that_became_smaller() -> None:
    work = placing(a_node("n1", 1000), u1=("n1", wants(cpu=800)))
    work.observe_nodes(NodesObserved("oslo", 0, 1, (a_node("n1", 700),)))
    assert sent(work) == []


def test_only_what_a_pod_requests_keeps_it_back() -> None:
    work = placing(
        a_node("n1", 1000), u1=("n1", wants(memory=2**20)), u2=("n1", wants(cpu=100, memory=2**20))
    )
    work.observe_pods(other("t1", "n1", cpu=950))
    assert sent(work) == ["u1"]
    effects = open_effects(work, BIND, 0)
    said = {one.object.uid: lacks(work, one, short_nodes(work, effects)) for one in effects}
    assert said == {"u1": (), "u2": ("cpu",)}


def test_the_number_of_pods_counts_where_the_node_limits_it() -> None:
    said = wants(cpu=1)
    work = placing(a_node("n1", pods=2), a_node("n2"), u1=("n1", said), u2=("n2", said))
    work.observe_pods(other("t1", "n1", cpu=1))
    assert sent(work) == ["u1", "u2"]
    there = tuple(Pod(uid, uid, wants(), "n1") for uid in ("t1", "t2"))
    work.observe_pods(PodsObserved("oslo", "n1", there))
    assert sent(work) == ["u2"]


def test_a_pod_that_was_bound_is_not_counted_twice() -> None:
    """It is seen on the node before it is seen to wait no more."""
    said = wants(cpu=500)
    work = placing(a_node("n1", 1000), u1=("n1", said), u2=("n1", said))
    assert sent(work) == ["u1", "u2"]
    work.observe_pods(PodsObserved("oslo", "n1", (Pod("u1", "u1", said, "n1"),)))
    assert sent(work) == ["u2"]


def test_a_pod_that_was_placed_counts_as_it_was_decided() -> None:
    """So does the stage. Another amount here would keep back what the stage does not release."""
    work = placing(a_node("n1", 1000), u1=("n1", wants(cpu=500)), u2=("n1", wants(cpu=500)))
    grown = Pod("u1", "u1", wants(cpu=800), "n1")
    work.observe_pods(PodsObserved("oslo", "n1", (grown,)))
    assert sent(work) == ["u2"]
