"""Taints that follow from a cluster's condition, told as stories, in the stage that decides and the
descheduler that proposes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.scenarios.fleet_plane import FleetPlane, a_binding, eviction, forgotten, room

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster, ResourceSummary
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.domain.policy import ConditionMatch, ConditionTaints, Policy
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.engine.fleet.taints import Tainting, all_hold, with_taints
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import ScheduleDecided
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import EvictionProposed
from wharfinger.stages.fleet.decider import FleetDecider
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.world import World

KIND = "ClusterTaintPolicy"
SUMMARY = ResourceSummary({"cpu": 8000, "pods": 100})
GONE = Taint("not-ready", "NoExecute")
SHUT = Taint("not-ready", "NoSchedule")
READY = ConditionMatch("Ready", "In", ("True",))
LOST = ConditionMatch("Ready", "In", ("False",))


def a_policy(
    *taints: Taint, name: str = "health", target: ClusterAffinity | None = None
) -> PolicyApplied:
    """Comes with Ready=False and goes with Ready=True; with Unknown it stays as it is."""
    rule = ConditionTaints(target or ClusterAffinity(), taints or (GONE,), (LOST,), (READY,))
    return PolicyApplied(Policy(KIND, name, taints=rule))


def a_cluster(name: str, ready: str = "", *own: Taint) -> ClusterObserved:
    return ClusterObserved(Cluster(name, taints=own, conditions={"Ready": ready} if ready else {}))


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane()
    yield plane
    plane.check()


def taints(plane: FleetPlane, name: str) -> tuple[Taint, ...]:
    facts = plane.state.clusters[name].facts
    assert facts is not None
    return facts.taints


def test_a_cluster_is_tainted_when_it_is_lost_and_until_it_is_ready_again(
    plane: FleetPlane,
) -> None:
    plane.given(a_policy(GONE))
    for ready, tainted in (
        ("True", 0),
        ("Unknown", 0),
        ("False", 1),
        ("Unknown", 1),
        ("True", 0),
        ("", 0),
    ):
        plane.when(a_cluster("oslo", ready))
        assert taints(plane, "oslo") == (GONE,) * tainted, ready


def test_a_policy_that_comes_later_sees_what_the_clusters_have_said(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo", "False"), a_cluster("bergen", "True"))
    plane.when(a_policy(SHUT, GONE))
    assert (taints(plane, "oslo"), taints(plane, "bergen")) == ((SHUT, GONE), ())
    plane.when(PolicyRemoved(KIND, "health"))
    assert taints(plane, "oslo") == ()


def test_a_policy_means_the_clusters_of_its_target_only(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo", "False"), a_cluster("bergen", "False"))
    plane.when(a_policy(target=ClusterAffinity(cluster_names=("bergen",))))
    assert (taints(plane, "oslo"), taints(plane, "bergen")) == ((), (GONE,))


def test_what_a_cluster_says_of_itself_is_not_doubled(plane: FleetPlane) -> None:
    own = Taint("not-ready", "NoExecute", "by-hand")
    plane.given(a_policy(GONE, SHUT), a_cluster("oslo", "False", own))
    assert taints(plane, "oslo") == (own, SHUT)


def test_nothing_new_goes_there_and_what_does_not_bear_it_may_be_evicted(plane: FleetPlane) -> None:
    plane.given(
        a_policy(GONE),
        a_cluster("oslo", "True"),
        room("oslo", 4),
        a_cluster("bergen", "True"),
        room("bergen", 2),
    )
    plane.given(a_binding("web", 6))
    plane.then_scheduled("web", oslo=4, bergen=2)
    plane.when(a_cluster("oslo", "False"), room("bergen", 9, fleet=1))
    plane.then_nothing()
    plane.when(eviction("web", "oslo"))
    plane.then_scheduled("web", bergen=6)
    plane.when(a_cluster("oslo", "True"))
    plane.when(eviction("web", "bergen"))
    plane.then_declined("TargetRecovered")


def test_a_cluster_that_is_forgotten_and_joins_again_begins_without(plane: FleetPlane) -> None:
    plane.given(a_policy(GONE), a_cluster("oslo", "False"))
    plane.when(forgotten("oslo"))
    plane.when(a_cluster("oslo", "Unknown"))
    assert taints(plane, "oslo") == ()


def test_the_same_facts_again_change_nothing(plane: FleetPlane) -> None:
    plane.given(a_policy(GONE), a_cluster("oslo", "False"))
    for fact in (a_policy(GONE), a_cluster("oslo", "False")):
        before = plane.decider.dump(plane.state)
        plane.when(fact)
        assert plane.decider.dump(plane.state) == before
    for fact in (a_policy(SHUT), a_cluster("oslo", "Unknown")):
        before = plane.decider.dump(plane.state)
        plane.when(fact)
        assert plane.decider.dump(plane.state) != before


def test_a_condition_that_nobody_speaks_of_holds_for_nothing() -> None:
    cluster = Cluster("oslo", conditions={"Ready": "True"})
    assert not all_hold((), cluster.conditions)
    assert not all_hold((ConditionMatch("Disk", "NotIn", ("Full",)),), cluster.conditions)
    assert all_hold((ConditionMatch("Ready", "NotIn", ("False", "Unknown")),), cluster.conditions)
    assert with_taints(cluster, ()) is cluster


# Through the whole plane


def event(data: Value, number: int) -> Event[Value]:
    return made(data, id=derived_id("taints", number), source="/test", subject="test")


def small(name: str, placement: Placement) -> Binding:
    workload = ObjectRef("apps/v1", "Deployment", name)
    return Binding(name, f"uid-{name}", workload, 2, Requirements({"cpu": 500}), placement)


@pytest.mark.parametrize("shards", [1, 2])
def test_the_descheduler_proposes_what_the_stages_then_carry_out(shards: int) -> None:
    world = World(shards=shards, shard_of=lambda name: len(name) % shards, at=1_700_000_000_000_000)
    borne = Toleration("not-ready", "Exists", seconds=30)
    bears = Placement(tolerations=(borne,), replicas=ReplicaScheduling("Divided", "Aggregated"))
    told: list[Value] = [a_policy(GONE)]
    told += [
        ClusterObserved(Cluster(n, conditions={"Ready": "True"}, summary=SUMMARY))
        for n in ("oslo", "bergen")
    ]
    told += [BindingRequested(small(name, bears)) for name in ("a", "bb", "ccc")]
    numbers = iter(range(1000))
    world.tell([event(fact, next(numbers)) for fact in told])
    held = {
        name: record.targets
        for state in world.fleet_states()
        for name, record in state.bindings.items()
    }
    lost = next(iter(held["a"]))
    world.tell(
        [
            event(
                ClusterObserved(Cluster(lost, conditions={"Ready": "False"}, summary=SUMMARY)),
                next(numbers),
            )
        ]
    )
    rounds = world.wait(world.at + 60_000_000)
    proposals = [e.data for r in rounds for e in r.events if isinstance(e.data, EvictionProposed)]
    moved = [
        d.data for r in rounds for d in r.round.decisions if isinstance(d.data, ScheduleDecided)
    ]
    there = sorted(name for name, targets in held.items() if lost in targets)
    assert sorted(p.binding for p in proposals) == there
    assert sorted(d.binding for d in moved if lost not in {t.cluster for t in d.targets}) == there
    for state in world.fleet_states():
        assert all(lost not in record.targets for record in state.bindings.values())


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(("oslo", "bergen")),
                st.sampled_from(("", "True", "False", "Unknown")),
            ),
            st.sampled_from(((GONE,), (SHUT,), ())),
        ),
        max_size=20,
    )
)
def test_everybody_who_folds_the_same_facts_sees_the_same_taints(
    story: list[tuple[object, ...]],
) -> None:
    plane, other = FleetPlane(), Tainting()
    for told in story:
        if len(told) == 2 and isinstance(told[0], str):
            name, ready = str(told[0]), str(told[1])
            fact = a_cluster(name, ready)
            plane.when(fact)
            other.tell(fact.cluster)
        elif told:
            (taint,) = told
            assert isinstance(taint, Taint)
            plane.when(a_policy(taint))
            if other.set(f"{KIND}//health", a_policy(taint).policy.taints):
                for name in other.told:
                    other.judge(name)
        else:
            plane.when(PolicyRemoved(KIND, "health"))
            if other.set(f"{KIND}//health", None):
                for name in other.told:
                    other.judge(name)
    for name in other.told:
        assert taints(plane, name) == other.effective(name).taints
    loaded = FleetDecider().load("fleet/0", plane.decider.dump(plane.state))
    assert isinstance(loaded, FleetState)
    assert {n: c.facts for n, c in loaded.clusters.items()} == {
        n: c.facts for n, c in plane.state.clusters.items()
    }
    plane.check()
