"""One heartbeat for many clusters: it renews their leases, and says nothing else of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.scenarios.fleet_plane import FleetPlane, a_binding, a_cluster, forgotten, room

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.value import Value
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved, FleetHeard
from wharfinger.events.codec import made
from wharfinger.events.decisions import ClusterRecovered, ClusterSilenced
from wharfinger.events.envelope import Event, FactVersion, derived_id
from wharfinger.kernel.decider import Decision

LEASE_S = 40


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane()
    yield plane
    plane.check()


def heard(*names: str, collector: str = "collector-0") -> FleetHeard:
    return FleetHeard(collector, 10, names)


def versioned(data: Value, version: FactVersion) -> Event[Value]:
    id = derived_id("heard", *version)
    return made(data, id=id, source="/test", subject="test", version=version)


def silences(plane: FleetPlane, seconds: float) -> list[str]:
    """The clusters that fall silent within this time."""
    plane.wait(seconds)
    return [d.cluster for d in plane.decided if isinstance(d, ClusterSilenced)]


def test_a_hundred_clusters_stay_alive_by_six_inputs_a_minute(plane: FleetPlane) -> None:
    names = [f"c{i:03d}" for i in range(100)]
    plane.given(*[a_cluster(name, lease_s=LEASE_S) for name in names])
    before = len(plane.rounds)
    for _ in range(6):
        assert silences(plane, 9.99) == []
        plane.when(heard(*names))
    minute = plane.rounds[before:]
    assert sum(len(recorded.events) for recorded in minute) == 6
    assert not any(recorded.round.decisions for recorded in minute)


def test_a_cluster_that_is_not_named_falls_silent_and_returns(plane: FleetPlane) -> None:
    plane.given(*[a_cluster(name, lease_s=LEASE_S) for name in ("bergen", "narvik", "oslo")])
    plane.when(heard("bergen", "narvik"), after_s=30)
    assert silences(plane, 15) == ["oslo"]
    beat = plane.event(heard("bergen", "narvik", "oslo"))
    plane.when(beat)
    assert plane.decided == [ClusterRecovered("oslo")]
    assert plane.last[0].cause == beat.id


def test_a_cluster_without_facts_stays_unknown(plane: FleetPlane) -> None:
    """Also one that was removed, whose heartbeat comes late."""
    plane.given(a_cluster("oslo", lease_s=LEASE_S), a_binding("web", 1), room("oslo", 3))
    plane.given(forgotten("oslo"))
    plane.when(heard("bergen", "oslo"))
    plane.then_nothing()
    assert not {"bergen", "oslo"} & set(plane.state.tainting.told)
    assert plane.state.cluster_index.leases.next() is None


def test_a_heartbeat_of_a_replaced_collector_renews_nothing(plane: FleetPlane) -> None:
    plane.given(*[a_cluster(name, lease_s=LEASE_S) for name in ("bergen", "narvik", "oslo")])
    plane.when(versioned(heard("bergen", "narvik", "oslo"), (2, 1)), after_s=30)
    plane.when(versioned(heard("bergen", "narvik", "oslo"), (1, 9)), after_s=30)
    assert plane.decider.outdated(plane.state) == 1
    assert silences(plane, 20) == ["bergen", "narvik", "oslo"]


# --- the law

NAMES = ("bergen", "narvik", "oslo", "turku")
names = st.sampled_from(NAMES)
facts = st.one_of(
    st.builds(
        lambda name, lease_s, region: ClusterObserved(
            Cluster(name, lease_s=lease_s, region=region)
        ),
        names,
        st.sampled_from((None, 15, 40)),
        st.sampled_from(("", "north")),
    ),
    st.builds(ClusterForgotten, names),
    st.builds(lambda name, replicas: room(name, replicas), names, st.integers(0, 4)),
    st.builds(lambda replicas: a_binding("web", replicas), st.integers(0, 6)),
)
Step = tuple[int, list[Value], frozenset[str]]
steps = st.lists(
    st.tuples(st.sampled_from((1, 10, 30)), st.lists(facts, max_size=2), st.frozensets(names)),
    min_size=1,
    max_size=14,
)


def decided(history: list[Step], one_message: bool) -> list[tuple[int, str, str, Value]]:
    """What is decided, and when. Each step: seconds, facts, and the clusters that are heard: in one
    message, or each by its own unchanged facts."""
    plane, found = FleetPlane(), list[tuple[int, str, str, Value]]()
    told: dict[str, Cluster] = {}

    def keep(decisions: tuple[Decision, ...]) -> None:
        found.extend((plane.at, d.subject, d.outcome, d.data) for d in decisions)

    for seconds, new, beats in history:
        before = len(plane.rounds)
        plane.wait(seconds)
        plane.when(*new)
        for fact in new:
            match fact:
                case ClusterObserved(cluster=cluster):
                    told[cluster.name] = cluster
                case ClusterForgotten(name=name):
                    told.pop(name, None)
                case _:
                    pass
        alive = sorted(beats)
        if one_message:
            plane.when(heard(*alive))
        else:
            plane.when(*[ClusterObserved(told[name]) for name in alive if name in told])
        for recorded in plane.rounds[before:]:
            keep(recorded.round.decisions)
    plane.check()
    return found


@settings(max_examples=examples(60), deadline=None)
@given(steps)
def test_a_heartbeat_does_what_unchanged_facts_of_each_cluster_do(history: list[Step]) -> None:
    assert decided(history, one_message=True) == decided(history, one_message=False)
