"""A node becomes smaller under its replicas: which of them are released, why, and where they go."""

from __future__ import annotations

import msgspec
import pytest
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node, needs, observed

from wharfinger.domain.node import Node, Pod
from wharfinger.events.cluster_state import PodsObserved, into_buckets
from wharfinger.events.decisions import ReplicasPlaced, ReplicasRefused, ReplicasReleased
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head

CPU = needs(cpu=1000)


@pytest.fixture
def plane() -> Harness:
    return Harness()


def releases(decisions: list[Decision]) -> list[ReplicasReleased]:
    return [d.data for d in decisions if isinstance(d.data, ReplicasReleased)]


def gone(decisions: list[Decision]) -> dict[str, int]:
    return {
        r.binding: sum(len(share.ordinals) for share in r.released) for r in releases(decisions)
    }


def test_the_least_important_leave_with_a_reason_and_are_placed_elsewhere(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    plane.feed(plane.assigned(("high", 2, CPU, 9), ("low", 2, CPU, 1)))
    decided = plane.nodes(a_node("a", cpu=3000), a_node("b"))
    out, again = decided
    assert isinstance(out.data, ReplicasReleased)
    assert isinstance(again.data, ReplicasPlaced)
    assert (out.subject, out.outcome, out.data.reason) == ("low", "released", "NodeShrank")
    assert out.data.short == {"cpu": 1000}
    assert out.data.sentence() == "from a: NodeShrank, its pods request 1 cpu more than it has"
    assert out.cause in {e.id for e in plane.rounds[-1].events}
    assert set(plane.where("high").values()) == {"a"}
    assert sorted(plane.where("low").values()) == ["a", "b"]


def test_only_what_has_to_leave_does(plane: Harness) -> None:
    plane.nodes(a_node("a", cpu=8000))
    plane.feed(
        plane.assigned(
            ("first", 1, needs(cpu=4000), 9), ("large", 1, needs(cpu=3000), 5), ("small", 1, CPU, 1)
        )
    )
    decided = plane.nodes(a_node("a", cpu=5000), a_node("b"))
    assert gone(decided) == {"large": 1}
    assert plane.where("small") == {0: "a"}
    assert plane.where("large") == {0: "b"}


def test_what_fits_on_no_other_node_goes_back_to_the_fleet(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    plane.assign("web", 4, CPU)
    out, back = plane.nodes(a_node("a", cpu=1500))
    assert gone([out]) == {"web": 3}
    assert isinstance(back.data, ReplicasRefused)
    assert back.data.count == 3
    assert plane.feed() == []


def test_a_node_that_grows_back_in_the_same_round_keeps_its_replicas(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    plane.assign("web", 4, CPU)
    smaller, larger = observed([a_node("a", cpu=1000)]), observed([a_node("a", cpu=4000)])
    assert plane.feed(*smaller, *larger) == []
    assert plane.state.shrunk == {}


def test_pods_of_others_stay_and_count(plane: Harness) -> None:
    plane.nodes(a_node("a"), a_node("b", cpu=1000))
    plane.assign("web", 2, CPU)
    on_a = [o for o, node in plane.where("web").items() if node == "a"]
    other = Pod("u1", "other", needs(cpu=2000), "a")
    plane.pods("a", other)
    decided = plane.nodes(a_node("a", cpu=2000), a_node("b", cpu=1000))
    assert gone(decided) == {"web": len(on_a)}
    assert "a" not in plane.where("web").values()


def test_a_pod_that_is_leaving_does_not_count(plane: Harness) -> None:
    plane.nodes(a_node("a"))
    plane.assign("web", 2, CPU)
    plane.pods("a", Pod("u1", "other", needs(cpu=2000), "a", terminating=True))
    assert plane.nodes(a_node("a", cpu=2000)) == []


def test_too_many_pods_of_others_alone_release_nothing(plane: Harness) -> None:
    """Overcommitted by another scheduler, and smaller in another resource: both still fit."""
    plane.nodes(a_node("a"))
    plane.assign("web", 2, CPU)
    assert plane.pods("a", Pod("u1", "other", needs(cpu=4000), "a")) == []
    node = a_node("a")
    less = msgspec.structs.replace(
        node, allocatable={**node.allocatable, "memory": node.allocatable["memory"] // 2}
    )
    assert plane.nodes(less) == []


def test_a_device_that_is_gone_takes_its_replica_with_it(plane: Harness) -> None:
    plane.nodes(a_node("a", gpus=2))
    plane.assign("train", 2, needs(gpus=1))
    decided = plane.nodes(a_node("a", gpus=1), a_node("b", gpus=1))
    (out,) = releases(decided)
    assert (gone(decided), out.short) == ({"train": 1}, {"nvidia.com/gpu": 1})
    assert sorted(plane.where("train").values()) == ["a", "b"]


def test_a_lower_limit_of_pods(plane: Harness) -> None:
    plane.nodes(a_node("a", pods=4))
    plane.assign("web", 3, CPU)
    decided = plane.nodes(a_node("a", pods=1), a_node("b", pods=1))
    assert gone(decided) == {"web": 2}
    assert releases(decided)[0].short == {"pods": 2}


def test_more_buckets_at_once(plane: Harness) -> None:
    plane.nodes(a_node("a"), buckets=1)
    plane.assign("web", 4, CPU)
    decided = plane.feed(*into_buckets(CLUSTER, [a_node("a", cpu=2000), a_node("b")], 3))
    assert gone(decided) == {"web": 2}
    assert sorted(plane.where("web").values()) == ["a", "a", "b", "b"]


def test_it_is_recovered_and_replayed(plane: Harness) -> None:
    nodes: list[Node] = [a_node("a"), a_node("b")]
    plane.nodes(*nodes)
    plane.feed(plane.assigned(("high", 4, CPU, 9), ("low", 4, CPU, 1)))
    plane.feed(
        PodsObserved(CLUSTER, "a", (Pod("u1", "w", CPU, "a", "low", 0),)),
        *observed([a_node("a", cpu=1000), a_node("b", cpu=3000)]),
    )
    decider = plane.decider
    recovered = recover(decider, decider.initial(STREAM), plane.rounds)
    assert decider.dump(recovered) == decider.dump(plane.state)
    assert (
        audit(decider, decider.initial(STREAM), empty_head(STREAM), plane.rounds).divergences == []
    )
