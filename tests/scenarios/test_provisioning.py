"""Nodes that are made for what fits nowhere, as those who wait for them see it."""

from __future__ import annotations

import msgspec
import pytest
from tests.cluster_world import CLUSTER, STREAM, a_node
from tests.pool_world import (
    BIG,
    SMALL,
    PoolPlane,
    a_pool,
    a_type,
    catalogue_policy,
    no_pool,
    pool_policy,
    wants,
    words,
)

from wharfinger.domain.cluster_objects import NodeClaimStatus
from wharfinger.domain.instance_types import Catalogue
from wharfinger.domain.pod_traits import WeightedNodeTerm
from wharfinger.domain.policy import Policy
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.events.decisions import (
    NodeClaimEnded,
    NodeClaimRequested,
    ReplicasNominated,
    ReplicasPlaced,
    ReplicasRefused,
)
from wharfinger.events.policies import PolicyApplied
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import recover
from wharfinger.stages.cluster.decider import ClusterDecider
from wharfinger.stages.cluster.profile import ClusterProfile, Window

MINUTE = 60
SECOND = 1_000_000
"""Of the plane, in microseconds."""
ANY = (Toleration(operator="Exists"),)


@pytest.fixture
def plane() -> PoolPlane:
    return PoolPlane().pools(a_pool())


def claimed(decision: Decision) -> NodeClaimRequested:
    assert isinstance(decision.data, NodeClaimRequested)
    return decision.data


def ended(decision: Decision) -> NodeClaimEnded:
    assert isinstance(decision.data, NodeClaimEnded)
    return decision.data


def refused(decision: Decision) -> ReplicasRefused:
    assert isinstance(decision.data, ReplicasRefused)
    return decision.data


def test_what_fits_nowhere_waits_for_a_node_that_is_made_for_it(plane: PoolPlane) -> None:
    (asked,) = plane.assign("web", 1, wants(1500))
    claim = claimed(asked)
    assert (claim.pool, claim.instance_types[0], claim.replicas) == ("default", "small", {"web": 1})
    assert claim.price == 100_000_000
    assert claim.until_us == plane.at + 15 * MINUTE * 1_000_000
    assert claim.labels == {"karpenter.sh/nodepool": "default"}
    assert claim.annotations == {"karpenter.sh/nodepool-hash": "default-1"}
    assert "small at 0.1 $/h" in claim.explanation.note
    assert plane.feed() == []  # it waits, and says no more of it

    registered, placed = plane.deliver()
    assert (ended(registered).outcome, ended(registered).instance_type) == ("registered", "small")
    assert ended(registered).price == 100_000_000
    assert isinstance(placed.data, ReplicasPlaced)
    assert set(plane.where("web").values()) == {claim.claim}
    assert plane.state.pools.claims == {}


def test_what_fits_is_placed_and_only_the_rest_waits(plane: PoolPlane) -> None:
    plane.add(a_node("old", cpu=2000))
    placed, asked = plane.assign("web", 2, wants(1500))
    assert words([placed, asked]) == ["placed", "claimed"]
    assert claimed(asked).replicas == {"web": 1}


def test_one_node_is_made_for_all_who_fit_on_it(plane: PoolPlane) -> None:
    both = plane.feed(plane.assigned(("web", 1, wants(900), 0), ("api", 1, wants(900), 0)))
    (claim,) = [claimed(d) for d in both]
    assert claim.replicas == {"api": 1, "web": 1}


def test_who_comes_later_joins_a_node_on_its_way(plane: PoolPlane) -> None:
    (first,) = plane.assign("web", 1, wants(900))
    (joined,) = plane.assign("api", 1, wants(900))
    assert isinstance(joined.data, ReplicasNominated)
    assert joined.data.node == claimed(first).claim
    assert plane.state.pools.claims[claimed(first).claim].replicas == {"api": 1, "web": 1}
    assert words(plane.deliver()) == ["registered", "placed", "placed"]


def test_a_node_that_is_not_ready_is_waited_for(plane: PoolPlane) -> None:
    starting = Taint("example.com/agent", "NoSchedule")
    plane.feed(pool_policy(a_pool(startup_taints=(starting,))))
    (asked,) = plane.assign("web", 1, wants(1500))
    assert claimed(asked).startup_taints == (starting,)
    node = plane.node_for(claimed(asked))
    bare = {key: value for key, value in node.labels.items() if key != "karpenter.sh/initialized"}
    not_yet = msgspec.structs.replace(node, labels=bare, taints=(starting,))
    assert words(plane.add(not_yet)) == ["registered"]
    assert plane.feed(seconds=MINUTE) == []  # promised, neither placed nor refused
    assert words(plane.add(node)) == ["placed"]


def test_the_room_on_a_new_node_is_kept_for_whom_it_was_made_for(plane: PoolPlane) -> None:
    (asked,) = plane.assign("web", 1, wants(1500))
    node = plane.node_for(claimed(asked))
    unready = msgspec.structs.replace(
        node, ready=False, taints=(Taint("node.kubernetes.io/not-ready", "NoSchedule"),)
    )
    plane.add(unready)
    tolerant = msgspec.structs.replace(wants(1500), tolerations=ANY)
    # not on the node that was made for another
    assert words(plane.assign("greedy", 1, tolerant)) == ["claimed"]
    assert plane.where("greedy") == {}
    assert words(plane.add(node)) == ["placed"]
    assert plane.where("web") == {0: node.name}


def test_a_node_that_does_not_come_is_given_up_and_its_pool_rests(plane: PoolPlane) -> None:
    plane.assign("web", 1, wants(1500))
    assert plane.decider.next_due(plane.state) == plane.at + 15 * MINUTE * 1_000_000
    gone, no = plane.feed(seconds=15 * MINUTE)
    assert (ended(gone).outcome, ended(gone).reason) == (
        "timed-out",
        "no node has come within 900 s",
    )
    assert (
        "pool default: no node could be had, not asked again for 60 s"
        in refused(no).explanation.note
    )
    assert words(plane.assign("web", 1, wants(1500))) == ["refused"]
    plane.feed(seconds=MINUTE)
    assert words(plane.assign("web", 1, wants(1500))) == ["claimed"]


def test_the_pause_of_a_pool_is_doubled_and_a_node_that_comes_ends_it(plane: PoolPlane) -> None:
    pauses = []
    for _ in range(4):
        plane.assign("web", 1, wants(1500))
        plane.feed(seconds=15 * MINUTE)
        pauses.append((plane.state.pools.backing_off(plane.at)["default"] - plane.at) // 1_000_000)
        plane.feed(seconds=pauses[-1])
    assert pauses == [60, 120, 240, 480]
    plane.assign("web", 1, wants(1500))
    plane.deliver()
    assert plane.state.pools.sold_out == {}


def test_another_pool_is_asked_while_one_rests() -> None:
    plane = PoolPlane().pools(a_pool("first", weight=10), a_pool("second"))
    (asked,) = plane.assign("web", 1, wants(1500))
    assert claimed(asked).pool == "first"
    gone, again = plane.feed(seconds=15 * MINUTE)
    assert (ended(gone).outcome, claimed(again).pool) == ("timed-out", "second")


def test_what_is_sold_out_is_not_asked_for_again(plane: PoolPlane) -> None:
    (asked,) = plane.assign("web", 1, wants(1500))
    status = NodeClaimStatus(
        claimed(asked).claim,
        "default",
        "small",
        "a",
        "on-demand",
        launched=False,
        failure="InsufficientCapacityError",
    )
    gone, again = plane.claim_status(status)
    assert (ended(gone).outcome, ended(gone).reason) == ("failed", "InsufficientCapacityError")
    assert (ended(gone).instance_type, ended(gone).zone) == ("small", "a")
    assert plane.state.pools.unavailable(plane.state.policies.types, plane.at) == {
        ("small", "a", "on-demand")
    }
    assert claimed(again).instance_types[0] == "small"  # there is still zone b
    more = msgspec.structs.replace(status, name=claimed(again).claim, zone="b")
    _, third = plane.claim_status(status, more)
    assert claimed(third).instance_types == ("big",)


def test_a_claim_that_its_cluster_says_is_not_launched_is_given_up_sooner(plane: PoolPlane) -> None:
    (asked,) = plane.assign("web", 1, wants(1500))
    assert (
        plane.claim_status(NodeClaimStatus(claimed(asked).claim, "default", launched=False)) == []
    )
    gone, _ = plane.feed(seconds=5 * MINUTE)
    assert ended(gone).reason == "nothing was launched within 300 s"


def test_a_claim_that_its_cluster_has_deleted_is_given_up_at_once(plane: PoolPlane) -> None:
    (asked,) = plane.assign("web", 1, wants(1500))
    assert plane.claim_status() == [], "it is not made yet"
    assert plane.claim_status(NodeClaimStatus(claimed(asked).claim, "default")) == []
    gone, no = plane.claim_status()
    assert (ended(gone).outcome, ended(gone).reason) == ("failed", "its cluster has deleted it")
    assert "pool default: no node could be had" in refused(no).explanation.note


def test_one_that_is_launched_has_its_time(plane: PoolPlane) -> None:
    (asked,) = plane.assign("web", 1, wants(1500))
    plane.claim_status(NodeClaimStatus(claimed(asked).claim, "default", launched=True))
    assert plane.feed(seconds=5 * MINUTE) == []
    assert words(plane.feed(seconds=10 * MINUTE)) == ["timed-out", "refused"]


def test_karpenters_claim_tells_its_node(plane: PoolPlane) -> None:
    (asked,) = plane.assign("web", 1, wants(1500))
    plane.add(msgspec.structs.replace(plane.bought(SMALL), name="ip-10-0-0-7"))
    # A node like any other would do as well: it is placed there, and the claim is needed no more.
    assert plane.where("web") == {0: "ip-10-0-0-7"}
    assert claimed(asked).claim not in plane.state.pools.claims


def test_a_claim_that_nobody_needs_any_more_is_taken_back(plane: PoolPlane) -> None:
    plane.assign("web", 1, wants(1500))
    (gone,) = plane.assign("web", 0, wants(1500))
    assert (ended(gone).outcome, ended(gone).reason) == (
        "cancelled",
        "nothing waits for it any more",
    )
    assert plane.state.pools.sold_out == {}


def test_room_that_comes_free_is_taken_before_the_node_comes(plane: PoolPlane) -> None:
    plane.add(a_node("old", cpu=2000))
    plane.assign("first", 1, wants(1500))
    plane.assign("web", 1, wants(1500))
    freed = plane.assign("first", 0, wants(1500))
    assert words(freed) == ["released", "placed", "cancelled"]
    assert plane.where("web") == {0: "old"}


def test_a_limit_of_the_pool_is_told_in_the_refusal() -> None:
    plane = PoolPlane(types=(SMALL,)).pools(a_pool(limits={"nodes": 1}))
    asked, no = plane.assign("web", 2, wants(1500))
    assert claimed(asked).replicas == {"web": 1}
    assert (refused(no).count, "default" in refused(no).explanation.note) == (1, True)


def test_a_pool_may_say_that_preferences_are_not_worth_a_dearer_node() -> None:
    zone_a = NodeTerm((Requirement("topology.kubernetes.io/zone", "In", ("a",)),))
    asked = wants(1500, preferences=(WeightedNodeTerm(10, zone_a),))
    types = (a_type("near", 2, 200, ("a",)), a_type("far", 2, 100, ("b",)))
    kept = PoolPlane(types=types).pools(a_pool())
    (claim,) = kept.assign("web", 1, asked)
    assert claimed(claim).instance_types == ("near",)
    ignored = PoolPlane(types=types).pools(a_pool(preferences="Ignore"))
    (claim,) = ignored.assign("web", 1, asked)
    assert claimed(claim).instance_types[0] == "far"


def test_without_a_pool_or_with_half_a_catalogue_it_is_refused_as_ever() -> None:
    plane = PoolPlane()
    plane.tell_nodes()
    assert words(plane.assign("web", 1, wants(1500))) == ["refused"]
    half = Catalogue("default", (SMALL,), 0, 2)
    plane.feed(
        pool_policy(a_pool()),
        PolicyApplied(Policy("InstanceTypes", "0", "default", catalogue=half)),
    )
    assert words(plane.assign("web", 1, wants(1500))) == ["refused"]
    other = Catalogue("default", (BIG,), 1, 2)
    plane.feed(PolicyApplied(Policy("InstanceTypes", "1", "default", catalogue=other)))
    assert words(plane.assign("web", 1, wants(1500))) == ["claimed"]


def test_a_pool_of_other_clusters_makes_no_nodes_here() -> None:
    plane = PoolPlane().pools(a_pool(clusters=("bergen",)))
    assert words(plane.assign("web", 1, wants(1500))) == ["refused"]
    plane.feed(pool_policy(a_pool(clusters=("bergen", CLUSTER))))
    assert words(plane.assign("web", 1, wants(1500))) == ["claimed"]


def test_a_pool_that_is_gone_makes_no_more_nodes(plane: PoolPlane) -> None:
    plane.feed(no_pool("default"))
    assert words(plane.assign("web", 1, wants(1500))) == ["refused"]


def test_what_no_machine_could_hold_is_refused_with_what_the_pool_says(plane: PoolPlane) -> None:
    (no,) = plane.assign("huge", 1, wants(64_000))
    assert "default" in refused(no).explanation.note
    assert refused(no).reason  # as ever, by what speaks against the nodes


def test_a_pool_of_a_fixed_size_is_filled_up_and_not_beyond() -> None:
    plane = PoolPlane()
    plane.feed(pool_policy(a_pool(replicas=3)), catalogue_policy(plane.types))
    asked = plane.tell_nodes()
    assert words(asked) == ["claimed", "claimed", "claimed"]
    assert [claimed(d).replicas for d in asked] == [{}, {}, {}]
    assert plane.feed() == []
    assert words(plane.deliver()) == ["registered", "registered", "registered"]
    plane.drop(sorted(plane.there)[0])
    assert len(plane.claims) == 1
    assert words(plane.feed(pool_policy(a_pool(replicas=2)))) == ["cancelled"]
    assert plane.feed() == []


def test_a_pool_of_a_fixed_size_that_cannot_be_filled_is_tried_again_after_its_pause() -> None:
    plane = PoolPlane()
    plane.feed(pool_policy(a_pool(replicas=1)), catalogue_policy(plane.types))
    plane.tell_nodes()
    assert words(plane.feed(seconds=15 * MINUTE)) == ["timed-out"]
    assert plane.decider.next_due(plane.state) == plane.at + MINUTE * 1_000_000
    assert words(plane.feed(seconds=MINUTE)) == ["claimed"]


def test_a_group_has_nodes_made_for_all_of_it_or_none() -> None:
    plane = PoolPlane().pools(a_pool(limits={"cpu": 8000}))
    three = wants(1500, group="train", min_count=3)
    asked = plane.assign("train", 3, three)
    assert set(words(asked)) == {"claimed"}
    assert sum(sum(claimed(d).replicas.values()) for d in asked) == 3
    plane.deliver()
    assert len(plane.where("train")) == 3
    many = wants(1500, group="many", min_count=9)
    decided = plane.assign("many", 9, many)
    assert set(words(decided)) == {"refused"}
    assert refused(decided[0]).reason == "GangDoesNotFit"
    assert plane.claims == []


def test_who_takes_the_stream_up_again_waits_for_the_same_nodes(plane: PoolPlane) -> None:
    plane.assign("web", 2, wants(1500))
    claims = plane.claims
    dumped = plane.decider.dump(plane.state)
    recovered = recover(plane.decider, plane.decider.initial(plane.state.stream), plane.rounds)
    assert plane.decider.dump(recovered) == dumped
    plane.state = plane.decider.load(plane.state.stream, dumped)
    assert plane.claims == claims
    plane.deliver()
    assert len(plane.where("web")) == 2


def test_the_important_make_room_before_nodes_are_made(plane: PoolPlane) -> None:
    plane.add(a_node("old", cpu=2000))
    plane.assign("low", 1, wants(1500))
    decided = plane.assign("high", 1, wants(1500), priority=10)
    assert words(decided) == ["released", "placed", "claimed"]
    assert plane.where("high") == {0: "old"}
    assert plane.claims[0].replicas == {"low": 1}


def test_a_dearer_zone_is_taken_where_the_workload_asks_for_it() -> None:
    plane = PoolPlane(types=(a_type("near", 2, 200, ("a",)), a_type("far", 2, 100, ("b",)))).pools(
        a_pool()
    )
    asked = msgspec.structs.replace(wants(1500), node_selector={"topology.kubernetes.io/zone": "a"})
    (claim,) = plane.assign("web", 1, asked)
    assert claimed(claim).instance_types == ("near",)


# --- the batch window


def gathering(idle_s: int = 1, longest_s: int = 10) -> PoolPlane:
    plane = PoolPlane()
    window = Window(idle_s * SECOND, longest_s * SECOND)
    plane.decider = ClusterDecider(ClusterProfile(buying=window))
    plane.state = plane.decider.initial(STREAM)
    return plane.pools(a_pool())


def test_nodes_are_made_together_for_what_arrives_within_the_window() -> None:
    plane = gathering()
    assert plane.assign("web", 1, wants(900)) == []
    assert plane.decider.next_due(plane.state) == plane.at + SECOND
    assert plane.assign("api", 1, wants(900)) == []
    (asked,) = plane.feed(seconds=1)
    assert claimed(asked).replicas == {"api": 1, "web": 1}
    assert plane.decider.next_due(plane.state) == claimed(asked).until_us


def test_what_fits_on_a_node_does_not_wait_for_the_window() -> None:
    plane = gathering()
    plane.add(a_node("old", cpu=2000))
    assert words(plane.assign("web", 2, wants(1500))) == ["placed"]
    assert words(plane.feed(seconds=1)) == ["claimed"]


def test_the_window_closes_though_more_arrives_all_the_time() -> None:
    plane = gathering(idle_s=2, longest_s=3)
    made = [
        d
        for i in range(8)
        for d in plane.feed(plane.assigned((f"b{i}", 1, wants(900), 0)), seconds=1)
    ]
    assert "claimed" in words(made)


def test_what_no_machine_could_hold_is_refused_when_the_window_closes() -> None:
    plane = gathering()
    assert plane.assign("huge", 1, wants(90_000)) == []
    (no,) = plane.feed(seconds=1)
    assert refused(no).reason == "InsufficientResources"


def test_a_stored_window_for_nodes_stays_open() -> None:
    plane = gathering()
    plane.assign("web", 1, wants(900))
    plane.state = plane.decider.load(STREAM, plane.decider.dump(plane.state))
    assert plane.feed() == []
    assert words(plane.feed(seconds=1)) == ["claimed"]


def test_a_profile_recorded_without_a_window_makes_nodes_at_once() -> None:
    without = "cluster(strategy=least-allocated work=7)"
    assert ClusterProfile.of(without) == ClusterProfile(work=7)
    both = ClusterProfile(window=Window(1, 2), buying=Window(3, 4), work=5)
    assert ClusterProfile.of(both.text) == both
