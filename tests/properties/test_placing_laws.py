"""Whatever mixture of overflow, limits, sets of components, groups and takeovers a stream sees, its
history can be gone through again, nothing is promised twice, and what has to be together or apart
is."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DUPLICATED,
    DYNAMIC,
    SMALL,
    STREAM,
    FleetPlane,
    a_binding,
    a_cluster,
    forgotten,
    static,
    withdrawn,
)

from wharfinger.domain.binding import Component, TargetCluster, set_key
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaLimit, ReplicaScheduling
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import recover
from wharfinger.stages.fleet.solve import question_of
from wharfinger.stages.fleet.trace import trace

TOWNS = ("bergen", "bodo", "narvik", "oslo", "tromso")
SETS = (
    (
        Component("jm", 1, Requirements({"cpu": 1000})),
        Component("tm", 2, Requirements({"cpu": 500})),
    ),
    (Component("jm", 1, Requirements({"cpu": 1000})),),
)
SPILLING = ClusterAffinity(
    "home",
    TOWNS[:1],
    overflow=(ClusterAffinity("next", TOWNS[1:3]), ClusterAffinity("far", TOWNS[3:])),
)


def a_scheduling(random: Random) -> ReplicaScheduling:
    how = random.choice((DYNAMIC, AGGREGATED, DUPLICATED, static(oslo=2, bergen=1)))
    if how.type == "Duplicated":
        return how
    within = not how.dynamic and how.preference == "Weighted" and random.random() < 0.5
    limits = (
        (ReplicaLimit("oslo", random.choice((0, 2)), random.choice((None, 3))),)
        if random.random() < 0.3
        else ()
    )
    remainder = random.choice(("webster", "in-order"))
    return msgspec.structs.replace(how, within_capacity=within, limits=limits, remainder=remainder)


def a_placement(random: Random) -> Placement:
    how = a_scheduling(random)
    by_room = how.type == "Divided" and (how.dynamic or how.preference == "Aggregated")
    terms = (SPILLING,) if by_room and random.random() < 0.4 else ()
    return Placement(terms, replicas=how, strict=random.random() < 0.2)


def a_request(random: Random) -> BindingRequested:
    told = a_binding(
        f"shop/{random.choice('abcdefgh')}", random.randrange(7), placement=a_placement(random)
    )
    fields: dict[str, object] = {}
    if random.random() < 0.3:
        fields = {"components": random.choice(SETS), "replicas": 0, "requirements": Requirements()}
    if random.random() < 0.5:
        fields[random.choice(("affinity_group", "anti_affinity_group"))] = random.choice("xy")
    if random.random() < 0.2:
        fields["clusters"] = tuple(
            TargetCluster(name, random.randrange(3)) for name in random.sample(TOWNS, 2)
        )
    return BindingRequested(msgspec.structs.replace(told.binding, **fields))


def a_count(random: Random, plane: FleetPlane) -> CapacityEstimated:
    cluster, n = random.choice(TOWNS), random.randrange(9)
    through = {STREAM: plane.head.seq if random.random() < 0.5 else 0}
    classes = {SMALL.class_key: n, **{set_key(c): n // 2 for c in SETS}}
    return CapacityEstimated(
        cluster, 1, {"cpu": 1000 * n}, classes if random.random() < 0.7 else {}, through
    )


def something(random: Random, plane: FleetPlane) -> Value:
    match random.randrange(10):
        case 0:
            return withdrawn(f"shop/{random.choice('abcdefgh')}")
        case 1:
            return forgotten(random.choice(TOWNS))
        case 2 | 3:
            return a_cluster(random.choice(TOWNS), deleting=random.random() < 0.1)
        case 4 | 5 | 6:
            return a_count(random, plane)
        case _:
            return a_request(random)


def a_history(seed: int) -> FleetPlane:
    random, plane = Random(seed), FleetPlane()
    plane.given(*(a_cluster(name) for name in TOWNS))
    for _ in range(25):
        plane.when(
            *(something(random, plane) for _ in range(random.randrange(1, 4))),
            after_s=random.choice((0.01, 20)),
        )
    return plane


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_taken_up_anywhere_goes_on_alike(seed: int) -> None:
    plane = a_history(seed)
    plane.check()
    for cut in (5, 12, 20):
        before, after = plane.rounds[:cut], plane.rounds[cut:]
        state = recover(plane.decider, plane.decider.initial(STREAM), before)
        loaded = plane.decider.load(STREAM, plane.decider.dump(state))
        assert audit(plane.decider, loaded, before[-1].round.head(), after).divergences == []


@pytest.mark.parametrize("seed", range(20))
def test_who_must_not_meet_does_not_and_a_set_is_whole(seed: int) -> None:
    """Newcomers keep to their groups; who was there before a label changed, or a group was joined,
    may stay."""
    state = a_history(seed).state
    for name, record in state.bindings.items():
        assert name in state.by_cluster.get(next(iter(record.targets), ""), {name: None})
        if (
            record.sets
            and not record.asked
            and record.applied_class == record.class_key
            and not record.refused
        ):
            assert set(record.targets.values()) <= {0}
            assert set(record.announced_components) == {c.name for c in record.spec.components}


@pytest.mark.parametrize("seed", range(8))
def test_every_binding_can_be_explained_as_it_would_be_decided(seed: int) -> None:
    state = a_history(seed).state
    for record in state.bindings.values():
        if record.withdrawn:
            continue
        told = trace(state, record, question_of(state, record, record.targets))
        if told is not None:
            for term in told.terms:
                assert term.reason or set(term.clusters) or not state.order
                for cluster in term.clusters:
                    assert not (cluster.used and cluster.refused)
