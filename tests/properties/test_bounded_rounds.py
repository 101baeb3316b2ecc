"""A round that ends at its bound of work leaves the rest to the next, which is due at once: nothing
is lost, nothing happens twice, and a history recorded under one bound is replayed under it,
whatever bound holds today.

Histories are generated; each is run under several bounds, and rounds that are due at once are taken
before the next input comes or after it, as a stage's turns may fall.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import STREAM as CLUSTER_STREAM
from tests.cluster_world import Harness, a_node, needs
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DUPLICATED,
    DYNAMIC,
    FleetPlane,
    a_binding,
    a_cluster,
    eviction,
    forgotten,
    fresh,
    room,
    withdrawn,
)

from wharfinger.domain.value import Value
from wharfinger.events.decisions import ReplicasPlaced, ReplicasRefused
from wharfinger.events.proposals import EvictionProposed, RescheduleProposed
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head, tick
from wharfinger.stages.cluster import ClusterDecider, ClusterProfile
from wharfinger.stages.fleet import FleetDecider

BOUNDS = (1, 3, 20, 0)
"""Replicas of a cluster round; of a fleet round so many hundred clusters. 0: none."""

# --- the cluster stage


@dataclass(frozen=True)
class Assigned:
    """`at_once`: rounds that are due at once are taken before the next assignment comes."""

    binding: str
    replicas: int
    cpu: int
    priority: int
    at_once: bool


assignments = st.lists(
    st.builds(
        Assigned,
        st.sampled_from("abcdef"),
        st.integers(0, 12),
        st.sampled_from((100, 1000, 3000)),
        st.integers(0, 1),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def ticks(plane: Harness) -> int:
    """Rounds that are due at once, until none is. How many there were."""
    taken = 0
    while (due := plane.decider.next_due(plane.state)) is not None and due <= plane.at:
        plane.feed_events([tick(CLUSTER_STREAM, due, plane.head.round)])
        taken += 1
        assert taken < 10_000, "the stream does not come to rest"
    return taken


def cluster_history(bound: int, story: Sequence[Assigned]) -> Harness:
    plane = Harness()
    plane.decider = ClusterDecider(ClusterProfile(work=bound))
    plane.state = plane.decider.initial(CLUSTER_STREAM)
    plane.nodes(*[a_node(f"node-{i}", cpu=4000, pods=8) for i in range(4)])
    for one in story:
        plane.feed(plane.assigned((one.binding, one.replicas, needs(cpu=one.cpu), one.priority)))
        if one.at_once:
            ticks(plane)
    ticks(plane)
    return plane


@settings(deadline=None)
@given(assignments)
def test_whatever_the_bound_a_cluster_places_refuses_or_releases_all_that_is_open(
    story: Sequence[Assigned],
) -> None:
    for bound in BOUNDS:
        plane = cluster_history(bound, story)
        assert not plane.state.book.unsettled
        assert not plane.state.unfinished
        wanted = {one.binding: one for one in story}
        for name, last in wanted.items():
            held = plane.state.book.held.get(name)
            here = len(held.placed) if held is not None else 0
            assignment = held.assignment if held is not None else ""
            refused = sum(
                d.data.count
                for r in plane.rounds
                for d in r.round.decisions
                if isinstance(d.data, ReplicasRefused)
                and (d.data.binding, d.data.assignment) == (name, assignment)
            )
            assert here == (held.desired if held is not None else 0)
            assert here + refused >= last.replicas or held is None
        used: Counter[str] = Counter()
        pods: Counter[str] = Counter()
        for held in plane.state.book.held.values():
            for replica in held.placed.values():
                used[replica.node] += replica.cls.requirements.requests["cpu"]
                pods[replica.node] += 1
        assert all(cpu <= 4000 for cpu in used.values())
        assert all(n <= 8 for n in pods.values())


@settings(deadline=None)
@given(assignments)
def test_a_bounded_cluster_round_does_no_more_than_its_bound(story: Sequence[Assigned]) -> None:
    plane = cluster_history(3, story)
    for recorded in plane.rounds:
        placed = [d.data for d in recorded.round.decisions if isinstance(d.data, ReplicasPlaced)]
        assert sum(len(share.ordinals) for data in placed for share in data.placed) <= 3


@settings(deadline=None)
@given(assignments, st.sampled_from(BOUNDS), st.sampled_from(BOUNDS))
def test_a_clusters_history_is_the_same_under_the_bound_it_was_recorded_with(
    story: Sequence[Assigned], bound: int, today: int
) -> None:
    plane = cluster_history(bound, story)
    now = ClusterDecider(ClusterProfile(work=today))
    found = audit(
        now,
        now.initial(CLUSTER_STREAM),
        empty_head(CLUSTER_STREAM),
        plane.rounds,
        ClusterDecider.of_profile,
    )
    assert found.divergences == []
    for cut in range(len(plane.rounds) + 1):
        state = recover(now, now.initial(CLUSTER_STREAM), plane.rounds[:cut])
        assert now.dump(now.load(CLUSTER_STREAM, now.dump(state))) == now.dump(state)
    assert now.dump(state) == plane.decider.dump(plane.state)


# --- the fleet stage

NAMES = tuple(f"a/{letter}" for letter in "abcdef")

facts = st.one_of(
    st.builds(
        lambda name, n, how, priority: a_binding(name, n, how, priority=priority),
        st.sampled_from(NAMES),
        st.integers(1, 9),
        st.sampled_from((DYNAMIC, AGGREGATED, DUPLICATED)),
        st.integers(0, 1),
    ),
    st.builds(withdrawn, st.sampled_from(NAMES)),
    st.builds(lambda i, n: room(f"c{i}", n), st.integers(0, 3), st.integers(0, 20)),
    st.builds(lambda i: forgotten(f"c{i}"), st.integers(0, 3)),
    st.builds(lambda i: a_cluster(f"c{i}"), st.integers(0, 3)),
    st.builds(fresh, st.sampled_from(NAMES)),
    st.builds(lambda name, i: eviction(name, f"c{i}"), st.sampled_from(NAMES), st.integers(0, 3)),
)

turns = st.lists(
    st.tuples(st.lists(facts, min_size=1, max_size=8), st.booleans()), min_size=1, max_size=6
)


def fleet_ticks(plane: FleetPlane) -> None:
    taken = 0
    while (due := plane.decider.next_due(plane.state)) is not None and due <= plane.at:
        plane.round([tick("fleet/0", due, plane.head.round)])
        taken += 1
        assert taken < 10_000, "the stream does not come to rest"


def fleet_history(bound: int, story: Sequence[tuple[Sequence[Value], bool]]) -> FleetPlane:
    plane = FleetPlane(FleetDecider(work=100 * bound))
    plane.given(*[a_cluster(f"c{i}") for i in range(4)], *[room(f"c{i}", 10) for i in range(4)])
    for inputs, at_once in story:
        plane.when(*inputs)
        if at_once:
            fleet_ticks(plane)
    fleet_ticks(plane)
    return plane


@settings(deadline=None)
@given(turns)
def test_whatever_the_bound_every_request_and_every_proposal_is_answered_once(
    story: Sequence[tuple[Sequence[Value], bool]],
) -> None:
    for bound in BOUNDS:
        plane = fleet_history(bound, story)
        assert not plane.state.waiting.asked
        assert not plane.state.proposals.open
        asked = [
            e
            for r in plane.rounds
            for e in r.events
            if isinstance(e.data, EvictionProposed | RescheduleProposed)
        ]
        answers = Counter(
            str(d.cause) for r in plane.rounds for d in r.round.decisions if d.outcome != "released"
        )
        for proposal in asked:
            assert answers[str(proposal.id)] == 1
        plane.check()


@settings(deadline=None)
@given(turns, st.sampled_from(BOUNDS), st.sampled_from(BOUNDS))
def test_a_fleets_history_is_the_same_under_the_bound_it_was_recorded_with(
    story: Sequence[tuple[Sequence[Value], bool]], bound: int, today: int
) -> None:
    plane = fleet_history(bound, story)
    now = FleetDecider(work=100 * today)
    found = audit(
        now, now.initial("fleet/0"), empty_head("fleet/0"), plane.rounds, FleetDecider.of_profile
    )
    assert found.divergences == []
    state = recover(now, now.initial("fleet/0"), plane.rounds)
    assert now.dump(state) == plane.decider.dump(plane.state)


def test_profiles_that_were_recorded_without_a_bound_have_none() -> None:
    assert (
        ClusterDecider.of_profile("cluster(strategy=least-allocated)").profile
        == "cluster(strategy=least-allocated)"
    )
    assert ClusterProfile.of("cluster(strategy=least-allocated)").work == 0
    assert ClusterProfile.of(ClusterProfile(work=7).text) == ClusterProfile(work=7)
    assert FleetDecider.of_profile("fleet round-limit=500").work == 0
    assert (
        FleetDecider.of_profile(FleetDecider(9, 2, 70).profile).profile
        == "fleet round-limit=9 shards=2 work=70"
    )
