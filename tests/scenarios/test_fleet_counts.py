"""A decision waits for the counts of clusters rather than ask one for what it may have no room
for."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    SMALL,
    STREAM,
    FleetPlane,
    a_binding,
    a_cluster,
    room,
)

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling, StaticWeight
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import into_buckets
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.decisions import (
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.registry import type_of
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.world import World
from wharfinger_cli.generate import FleetPlan, generate

LARGE = Requirements({"cpu": 4000})


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane(FleetDecider(patience_s=30))
    yield plane
    plane.check()


def counted(cluster: str, small: int, large: int, nodes: int, fleet: int = 0) -> CapacityEstimated:
    """So many of each fit, alone."""
    base = room(cluster, small, fleet=fleet)
    classes = {**base.classes, LARGE.class_key: large}
    return msgspec.structs.replace(base, classes=classes, nodes=nodes)


def test_a_request_waits_for_the_count_that_says_where_others_went(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), counted("oslo", small=16, large=3, nodes=3))
    plane.when(a_binding("web", 2), a_binding("db", 3, requirements=LARGE))
    plane.then_scheduled("web", oslo=2)
    assert [d.subject for d in plane.last] == ["web"]  # each of web may have spoilt a place
    plane.when(counted("oslo", small=14, large=2, nodes=3, fleet=1))
    plane.then_refused("db", "Unschedulable")


def test_it_is_decided_when_the_count_shows_its_room(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), counted("oslo", small=16, large=4, nodes=3))
    plane.when(a_binding("web", 2), a_binding("db", 3, requirements=LARGE))
    assert [d.subject for d in plane.last] == ["web"]
    plane.when(counted("oslo", small=14, large=3, nodes=3, fleet=1))
    plane.then_scheduled("db", oslo=3)


def test_what_fits_elsewhere_for_sure_goes_there(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), a_cluster("bergen"))
    plane.given(counted("oslo", small=16, large=4, nodes=3))
    plane.given(counted("bergen", small=12, large=3, nodes=3))
    plane.when(a_binding("web", 3, AGGREGATED), a_binding("db", 3, AGGREGATED, requirements=LARGE))
    plane.then_scheduled("web", oslo=3)
    plane.then_scheduled("db", bergen=3)


def test_nobody_waits_for_counts_for_ever(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), counted("oslo", small=16, large=4, nodes=3))
    plane.when(a_binding("web", 2), a_binding("db", 3, requirements=LARGE))
    plane.wait(31)
    plane.then_scheduled("db", oslo=3)


def test_nothing_goes_to_a_lower_priority_while_a_higher_one_waits(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), counted("oslo", small=16, large=4, nodes=3))
    plane.when(
        a_binding("first", 2, priority=9),
        a_binding("urgent", 3, requirements=LARGE, priority=5),
        a_binding("late", 1),
    )
    assert [d.subject for d in plane.last] == ["first"]
    plane.when(counted("oslo", small=14, large=3, nodes=3, fleet=1))
    assert plane.last[0].subject == "urgent"


def test_a_request_that_comes_before_clusters_and_counts_is_not_refused(plane: FleetPlane) -> None:
    plane.when(a_binding("web", 2))
    plane.then_nothing()
    plane.when(a_cluster("oslo"))
    plane.then_nothing()
    plane.when(room("oslo", 5))
    plane.then_scheduled("web", oslo=2)


def test_without_clusters_it_is_refused_after_some_seconds(plane: FleetPlane) -> None:
    plane.when(a_binding("web", 2))
    plane.then_nothing()
    plane.wait(4)
    plane.then_refused("web", "NoClusterFit")


def test_replicas_that_a_cluster_has_not_placed_may_be_on_any_node(plane: FleetPlane) -> None:
    late = msgspec.structs.replace(room("oslo", 5), unplaced={SMALL.class_key: 3})
    plane.given(a_cluster("oslo"), late)
    plane.when(a_binding("web", 3))
    plane.then_nothing()
    plane.when(room("oslo", 3))
    plane.then_scheduled("web", oslo=3)


def test_who_waits_for_room_is_asked_again_by_the_next_count(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), counted("oslo", small=4, large=0, nodes=3))
    plane.given(a_binding("db", 3, requirements=LARGE), a_binding("web", 9))
    first = plane.head.seq
    plane.when(counted("oslo", small=16, large=4, nodes=3, fleet=first))
    assert [d.subject for d in plane.last] == ["db"]
    plane.when(counted("oslo", small=9, large=1, nodes=3, fleet=first + 1))
    plane.then_scheduled("web", oslo=9)


def test_a_new_request_waits_for_the_first_count_of_every_cluster(plane: FleetPlane) -> None:
    """Otherwise a new fleet's replicas all go to the cluster that is counted first."""
    plane.given(a_cluster("bergen"), a_cluster("oslo"))
    plane.given(counted("bergen", small=8, large=2, nodes=2))
    plane.when(a_binding("web", 8))
    plane.then_nothing()
    plane.when(counted("oslo", small=8, large=2, nodes=2))
    plane.then_scheduled("web", bergen=4, oslo=4)


def test_a_cluster_that_is_never_counted_is_waited_for_three_seconds(plane: FleetPlane) -> None:
    plane.given(a_cluster("bergen"), a_cluster("oslo"))
    plane.given(counted("bergen", small=8, large=2, nodes=2))
    plane.when(a_binding("web", 8))
    plane.then_nothing()
    plane.wait(4)
    plane.then_scheduled("web", bergen=8)


# The whole plane


def told(plan: FleetPlan) -> list[Event[Value]]:
    return [
        Event(
            derived_id("counts", str(i)),
            type_of(one.data),
            "/test",
            one.subject,
            one.data,
            b"",
            b"",
        )
        for i, one in enumerate(generate(plan))
    ]


def decisions_of(world: World, *batches: list[Event[Value]]) -> list[Value]:
    at = 0
    found: list[Value] = []
    for batch in batches:
        at += 1_000_000
        found += [d.data for r in world.tell(batch, at) for d in r.round.decisions]
    found += [d.data for r in world.wait(at + 60_000_000) for d in r.round.decisions]
    return found


def placed_cpu(world: World) -> int:
    return sum(
        len(held.placed) * held.cls.requirements.requests.get("cpu", 0)
        for state in world.cluster_states()
        for held in state.book.held.values()
    )


def test_a_burst_beyond_the_fleets_room_is_refused_by_no_cluster() -> None:
    """In one batch, in whatever order: what a cluster is asked for it places. No less is placed
    than of the same bindings one at a time, each count awaited."""
    events = told(FleetPlan(5, 40, 300, 2))
    requests = [e for e in events if isinstance(e.data, BindingRequested)]
    facts = [e for e in events if not isinstance(e.data, BindingRequested)]
    burst = World(repeat_after_s=None, fleet=FleetDecider(patience_s=30))
    answers = decisions_of(burst, [*requests, *facts])
    assert not [d for d in answers if isinstance(d, ReplicasRefused)]
    assert [d for d in answers if isinstance(d, ReplicasPlaced)]
    refused = [d.binding for d in answers if isinstance(d, ScheduleRefused)]
    assert len(refused) == len(set(refused)), "refused twice"
    names = {e.data.binding.name for e in requests if isinstance(e.data, BindingRequested)}
    assert names == {d.binding for d in answers if isinstance(d, ScheduleDecided | ScheduleRefused)}
    single = World(repeat_after_s=None, fleet=FleetDecider(patience_s=30))
    decisions_of(single, facts, *[[e] for e in requests])
    assert placed_cpu(burst) >= 0.97 * placed_cpu(single)


def test_one_at_a_time_clusters_return_what_was_preempted_and_refuse_next_to_nothing() -> None:
    """A return names for whom its replicas were preempted. No request is refused twice in a cluster
    in which nothing changed between."""
    events = told(FleetPlan(5, 40, 300, 2))
    requests = [[e] for e in events if isinstance(e.data, BindingRequested)]
    facts = [e for e in events if not isinstance(e.data, BindingRequested)]
    world = World(repeat_after_s=None, fleet=FleetDecider(patience_s=30))
    answers = decisions_of(world, facts, *requests)
    given_back = [d for d in answers if isinstance(d, ReplicasRefused)]
    returns = [d for d in given_back if d.is_return]
    assert returns, "the fleet is asked for more than it has"
    names = {e.data.binding.name for (e,) in requests if isinstance(e.data, BindingRequested)}
    for one in returns:
        assert {entry.reason for entry in one.displaced} == {"Preempted"}
        assert {entry.preemptor for entry in one.displaced} <= names - {one.binding}
    placed = sum(isinstance(d, ReplicasPlaced) for d in answers)
    assert len(given_back) - len(returns) <= 0.02 * (placed + len(given_back))
    unchanged: dict[tuple[str, str], str] = {}
    for d in answers:
        if isinstance(d, ReplicasPlaced | ReplicasReleased):
            unchanged = {key: why for key, why in unchanged.items() if key[0] != d.cluster}
        elif isinstance(d, ReplicasRefused) and not d.is_return:
            assert unchanged.get((d.cluster, d.binding)) != d.reason
            unchanged[d.cluster, d.binding] = d.reason


@pytest.mark.parametrize("free", [6, 3])
def test_no_cluster_preempts_where_another_of_the_policy_has_room(free: int) -> None:
    """Static weights would give each cluster two of four replicas, and oslo is full."""
    world = World(repeat_after_s=None, fleet=FleetDecider(patience_s=30))
    facts = [*a_member("oslo", 4), *a_member("bergen", free)]
    low = the_binding("low", 4, only="oslo")
    high = the_binding("high", 4, priority=9)
    answers = decisions_of(world, facts, [low], [high])
    preempted = [d for d in answers if isinstance(d, ReplicasReleased)]
    decided = [d for d in answers if isinstance(d, ScheduleDecided) and d.binding == "high"]
    targets = {t.cluster: t.replicas for t in decided[0].targets}
    if free < 4:
        assert targets == {"oslo": 2, "bergen": 2}
        assert {d.preemptor for d in preempted} == {"high"}
    else:
        assert targets == {"bergen": 4}
        assert not preempted


def a_member(name: str, cpu: int) -> list[Event[Value]]:
    nodes = into_buckets(name, [Node(f"{name}-1", {"cpu": 1000 * cpu, "memory": 2**40})], 1)
    return [events_of(fact) for fact in (ClusterObserved(Cluster(name)), *nodes)]


def the_binding(name: str, replicas: int, *, only: str = "", priority: int = 0) -> Event[Value]:
    names = (only,) if only else ("bergen", "oslo")
    weights = tuple([StaticWeight(ClusterAffinity(cluster_names=(n,)), 1) for n in names])
    placement = Placement(
        affinities=(ClusterAffinity(cluster_names=names),),
        replicas=ReplicaScheduling("Divided", "Weighted", static=weights),
    )
    need = Requirements({"cpu": 1000})
    return events_of(
        a_binding(name, replicas, placement=placement, requirements=need, priority=priority)
    )


def events_of(fact: Value) -> Event[Value]:
    return Event(derived_id("fact", repr(fact)), type_of(fact), "/t", "t", fact, b"", b"")


def test_streams_that_never_waited_go_on_as_recorded() -> None:
    assert FleetDecider.of_profile("fleet round-limit=500 work=150000").patience_s == 0
    decider = FleetDecider(patience_s=30, work=7)
    assert FleetDecider.of_profile(decider.profile).patience_s == 30
    assert decider.initial(STREAM).patience_us == 0
