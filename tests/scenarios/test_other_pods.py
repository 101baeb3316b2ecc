"""Pods of other schedulers that wait for a node, told as stories: nodes are requested for them, and
room that is meant for them is not given away."""

from __future__ import annotations

import pytest
from tests.cluster_world import CLUSTER, STREAM
from tests.pool_world import BIG, PoolPlane, a_pool, wants, words

from wharfinger.domain.node import WaitingPod
from wharfinger.domain.workload import Requirements
from wharfinger.events.cluster_state import WAITING_BUCKETS, PodsObserved, WaitingPodsObserved
from wharfinger.events.decisions import NodeClaimEnded, NodeClaimRequested
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster.other_pods import RETRY_US


def waits(
    uid: str, cpu: int = 1500, requirements: Requirements | None = None, **said: object
) -> WaitingPod:
    needs = requirements or wants(cpu, scheduler="theirs")
    return WaitingPod(uid, uid, needs, **said)  # type: ignore[arg-type]


def waiting(*pods: WaitingPod, bucket: int = 0) -> WaitingPodsObserved:
    return WaitingPodsObserved(CLUSTER, "shop", bucket, WAITING_BUCKETS, pods)


def bound(plane: PoolPlane, node: str, *pods: WaitingPod) -> list[Decision]:
    """Their scheduler has bound them, and none waits any more."""
    return plane.feed(PodsObserved(CLUSTER, node, tuple([pod.on(node) for pod in pods])), waiting())


@pytest.fixture
def plane() -> PoolPlane:
    return PoolPlane().pools(a_pool())


def test_a_node_is_requested_for_a_pod_that_fits_nowhere(plane: PoolPlane) -> None:
    (asked,) = plane.feed(waiting(waits("a")))
    assert isinstance(asked.data, NodeClaimRequested)
    assert asked.data.replicas == {}
    assert sum(asked.data.others.values()) == 1
    assert asked.data.instance_types[0] == "small"
    assert "for 1 pod of other schedulers" in asked.data.sentence()
    assert "1 waiting pod of other schedulers" in asked.data.explanation.note
    assert plane.feed(waiting(waits("a"))) == []
    assert plane.feed(seconds=120) == []


def test_pods_and_replicas_share_what_is_bought(plane: PoolPlane) -> None:
    decided = plane.feed(waiting(waits("a", 3500)), plane.assigned(("shop/web", 1, wants(3500), 0)))
    claims = [d.data for d in decided if isinstance(d.data, NodeClaimRequested)]
    assert [claim.instance_types[0] for claim in claims] == [BIG.name]
    assert claims[0].replicas == {"shop/web": 1}
    assert sum(claims[0].others.values()) == 1


def test_the_new_node_is_kept_for_the_pod(plane: PoolPlane) -> None:
    """A replica of no higher priority does not take the room while their scheduler binds."""
    pod = waits("a")
    plane.feed(waiting(pod))
    node = plane.node_for(plane.claims[0])
    assert words(plane.deliver()) == ["registered"]
    (asked,) = plane.assign("shop/web", 1, wants(1500))
    assert asked.outcome == "claimed", "the room on the first node is kept"
    assert bound(plane, node.name, pod) == []
    assert [d.outcome for d in plane.deliver()] == ["registered", "placed"]


def test_a_replica_of_higher_priority_takes_the_room(plane: PoolPlane) -> None:
    plane.feed(waiting(waits("a", priority=5)))
    plane.deliver()
    assert words(plane.assign("shop/web", 1, wants(1500), 6)) == ["placed"]


def test_room_that_is_not_used_is_free_again(plane: PoolPlane) -> None:
    plane.feed(waiting(waits("a")))
    plane.deliver()
    plane.feed(seconds=21)
    assert plane.state.expected == {}
    assert words(plane.assign("shop/web", 1, wants(1500)))[:1] == ["placed"]


def test_a_claim_ends_with_the_pod_that_it_was_for(plane: PoolPlane) -> None:
    plane.feed(waiting(waits("a", 700), waits("b", 700)))
    assert [sum(claim.others.values()) for claim in plane.claims] == [2]
    assert plane.feed(waiting(waits("b", 700))) == [], "one of the two still waits"
    (ended,) = plane.feed(waiting())
    assert isinstance(ended.data, NodeClaimEnded)
    assert ended.outcome == "cancelled"


def test_a_pod_that_was_bound_elsewhere_needs_no_node(plane: PoolPlane) -> None:
    """It is reported on its node first, and for a moment still as waiting."""
    pod = waits("a", 3500)
    plane.feed(waiting(pod))
    assert len(plane.claims) == 1
    (ended,) = plane.feed(PodsObserved(CLUSTER, "new", (pod.on("new"),)))
    assert ended.outcome == "cancelled"


@pytest.mark.parametrize(
    "pod",
    [
        waits("gated", requirements=wants(1500, gates=("quota",))),
        waits("daemon", requirements=wants(1500, owner="DaemonSet")),
        waits("ours", binding="shop/web"),
    ],
    ids=lambda pod: pod.uid,
)
def test_no_node_is_requested_for(plane: PoolPlane, pod: WaitingPod) -> None:
    """`ours`: a replica that is assigned here is counted once, as a replica."""
    plane.add(plane.bought(BIG))
    plane.assign("shop/web", 1, wants(1500))
    assert plane.feed(waiting(pod)) == []
    assert not plane.claims


def test_a_pod_that_fits_waits_for_its_own_scheduler(plane: PoolPlane) -> None:
    plane.add(plane.bought(BIG))
    assert plane.feed(waiting(waits("a"))) == []
    assert plane.state.book.held == {}


def test_what_no_pool_helps_is_looked_at_again_after_a_minute(plane: PoolPlane) -> None:
    assert plane.feed(waiting(waits("huge", 64_000))) == []
    due = plane.decider.next_due(plane.state)
    assert due == plane.at + RETRY_US
    assert plane.feed(seconds=60) == []
    assert plane.decider.next_due(plane.state) is not None
    plane.feed(waiting())
    assert plane.feed(seconds=60) == []
    assert plane.decider.next_due(plane.state) is None


def test_a_cluster_without_pools_never_wakes_for_them() -> None:
    plane = PoolPlane()
    plane.add(plane.bought(BIG))
    assert plane.feed(waiting(waits("huge", 64_000))) == []
    assert plane.decider.next_due(plane.state) is None


def test_pools_that_come_later_help_those_that_wait_already() -> None:
    plane = PoolPlane()
    plane.feed(waiting(waits("a")))
    plane.pools(a_pool())
    assert len(plane.claims) == 1


def test_room_that_their_scheduler_keeps_is_not_given_away() -> None:
    """As kube-scheduler counts pods with a nominated node: for pods of no higher priority."""
    plane = PoolPlane()
    plane.add(plane.bought(BIG))
    (name,) = plane.there
    plane.feed(waiting(waits("a", 7000, priority=10, nominated=name)))
    (no,) = plane.assign("shop/web", 1, wants(4000))
    assert no.outcome == "refused"
    assert words(plane.assign("shop/db", 1, wants(4000), 11)) == ["placed"]


def test_room_that_their_scheduler_keeps_is_counted_in_preemption() -> None:
    """To evict a replica is in vain where the room is meant for a pod of higher priority."""
    plane = PoolPlane()
    plane.add(plane.bought(BIG))
    (name,) = plane.there
    plane.assign("shop/low", 1, wants(4000))
    plane.feed(waiting(waits("a", 3900, priority=100, nominated=name)))
    decided = plane.assign("shop/high", 1, wants(7000), 50)
    assert words(decided) == ["refused"], "no victim makes room for it"


def test_a_plane_without_the_fact_decides_the_same_bytes(plane: PoolPlane) -> None:
    """A snapshot of a state without waiting pods has no field more than before."""
    sections = plane.decider.dump(plane.state)
    assert b"waiting" not in sections["pods"]
    assert b"others" not in sections.get("upkeep", b"")


def test_the_history_replays(plane: PoolPlane) -> None:
    plane.feed(
        waiting(waits("a"), waits("b", 3000)), plane.assigned(("shop/web", 2, wants(1500), 0))
    )
    plane.deliver()
    plane.feed(waiting(waits("b", 3000)), seconds=30)
    plane.feed(waiting())
    decider = plane.decider
    replayed = audit(decider, decider.initial(STREAM), empty_head(STREAM), plane.rounds)
    assert replayed.divergences == []
    assert replayed.decisions >= 3
