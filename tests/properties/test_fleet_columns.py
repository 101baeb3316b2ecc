"""What is kept in columns is what would be counted afresh: estimates, feasible clusters and
decisions, in lists or in arrays."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import fleets
from tests.fleets import CLASSES, START, a_fleet
from tests.hunting import examples

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
    StaticWeight,
)
from wharfinger.domain.reasons import FleetReason
from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.engine.fleet import webster
from wharfinger.engine.fleet.displacement import Displaced
from wharfinger.engine.fleet.estimate import Demand, demand_of
from wharfinger.engine.fleet.feasible import Feasible, Plain, build, filtered
from wharfinger.engine.fleet.properties import ClusterProperties
from wharfinger.engine.fleet.weights import static_weights
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.step import empty_head, step
from wharfinger.rules.clusters.affinity import AffinityFilter, matches
from wharfinger.rules.clusters.filters import first_refusal, refusals
from wharfinger.rules.clusters.rule import ClusterQuery
from wharfinger.rules.clusters.taints import TaintFilter
from wharfinger.stages.fleet import FleetDecider, columns, queue
from wharfinger.stages.fleet.columns import Rooms, counted
from wharfinger.stages.fleet.fold import fold_input
from wharfinger.stages.fleet.fork import fork
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.fleet.solve import feasible, solve, term_of
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.state.clusters import UNLIMITED, ClusterState, Pending

TOWNS = tuple((f"town-{i:02d}", ("north", "south", "west", "east")[i % 4]) for i in range(24))


def in_arrays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(columns, "FEW", 0)
    patch.setattr(webster, "FEW", 0)


def bodies(rounds: list[RecordedRound]) -> list[tuple[str, int, bytes]]:
    return [(d.stream, d.seq, d.body) for r in rounds for d in r.round.decisions]


@pytest.mark.parametrize("patience_s", [0, 30])
@pytest.mark.parametrize("number", range(0, 24, 6))
def test_small_and_large_fleets_are_decided_by_the_same_rules(
    number: int, patience_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleets, "FleetDecider", partial(FleetDecider, patience_s=patience_s))
    in_lists = bodies(a_fleet(number).rounds)
    in_arrays(monkeypatch)
    assert bodies(a_fleet(number).rounds) == in_lists


def test_of_a_larger_fleet_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "TOWNS", TOWNS)
    monkeypatch.setattr(
        Random, "sample", lambda self, of, k: list(of) if of is TOWNS else _sample(self, of, k)
    )
    in_lists = bodies(a_fleet(7, happenings=16).rounds)
    in_arrays(monkeypatch)
    assert bodies(a_fleet(7, happenings=16).rounds) == in_lists


_sample = Random.sample


@pytest.mark.parametrize("number", range(4))
def test_a_binding_that_waits_is_passed_over_only_where_looking_would_change_nothing(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing_over = bodies(a_fleet(number).rounds)
    monkeypatch.setattr(queue, "_chosen_alike", lambda *_: False)
    monkeypatch.setattr(queue, "_offer", lambda *_: queue.ENOUGH)
    assert bodies(a_fleet(number).rounds) == passing_over


@pytest.mark.parametrize("arrays", [False, True], ids=["lists", "arrays"])
@pytest.mark.parametrize("number", range(3))
def test_what_is_kept_is_what_would_be_counted_afresh(
    number: int, arrays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After everything that happens in a fleet, in every one of its states."""
    if arrays:
        in_arrays(monkeypatch)
    asked = 0
    end_round = FleetState.end_round

    def looked_at(state: FleetState, unfinished: bool) -> None:
        nonlocal asked
        end_round(state, unfinished)
        asked += _is_as_if_counted_afresh(state)

    monkeypatch.setattr(FleetState, "end_round", looked_at)
    a_fleet(number)
    assert asked > 100, "hardly anything was kept"


def _is_as_if_counted_afresh(state: FleetState) -> int:
    seen: dict[tuple[str, bytes], None] = {}
    for record in state.bindings.values():
        key = (record.column_key, record.parsed.key)
        if record.withdrawn or key in seen:
            continue
        seen[key] = None
        column = state.column(record)
        rooms = None if isinstance(column.values, list) else Rooms.of(state.order)
        fresh = counted(record.class_key, column.demand, column.claim, state.order, rooms)
        fresh.values_changed()
        assert list(column.values) == list(fresh.values)
        assert (column.total, column.unlimited) == (fresh.total, fresh.unlimited)
        _is_as_certain_as_defined(state, record)
        for term in range(len(record.spec.placement.terms)):
            kept = feasible(state, record, term)
            question = ClusterQuery(
                record.parsed.placement,
                term_of(record, term),
                record.spec.resource.gvk,
                state.silent,
            )
            assert kept.verdicts == [
                first_refusal(question, c.facts) for c in state.order if c.facts is not None
            ]
            del state.estimates.feasible[
                next(key for key, found in state.estimates.feasible.items() if found is kept)
            ]
            _is(kept, feasible(state, record, term))
    return len(seen)


COUNTS = st.tuples(
    st.integers(0, 6),  # nodes
    st.one_of(st.none(), st.integers(0, 40), st.just(2**70)),  # the class count; None: none
    st.one_of(st.integers(-1, 9), st.just(2**70)),  # of it not on a node yet
    st.integers(0, 3),  # on nodes that its pools can add
    st.lists(st.tuples(st.integers(0, len(CLASSES) - 1), st.integers(1, 9)), max_size=4),
)


@settings(max_examples=examples(100))
@given(st.lists(COUNTS, min_size=1, max_size=5), st.booleans())
def test_what_is_certain_of_any_counts_is_what_is_defined(
    counts: list[tuple[int, int | None, int, int, list[tuple[int, int]]]], renewed: bool
) -> None:
    """`renewed`: a second count of each cluster includes what was pending before."""
    wanted, state = CLASSES[0], FleetDecider().initial("fleet/0")
    key, told = wanted.class_key, 0

    def tell(data: Value) -> None:
        nonlocal told
        told += 1
        event = made(data, id=derived_id("/counts", told), source="/counts", subject="counts")
        fold_input(state, event, START + told)

    def count(i: int, through: int) -> None:
        nodes, fits, unplaced, makes, _ = counts[i]
        tell(
            CapacityEstimated(
                f"town-{i}",
                nodes,
                {"cpu": 10**7, "memory": 2**50, "pods": 10**4},
                {} if fits is None else {key: fits},
                {"fleet/0": through},
                provisionable={key: makes} if makes else {},
                unplaced={} if unplaced < 0 else {key: unplaced},
            )
        )

    def pend() -> None:
        for i, (*_, entries) in enumerate(counts):
            for n, (kind, replicas) in enumerate(entries, 1):
                one = CLASSES[kind]
                demand = demand_of(one)
                cluster = state.clusters[f"town-{i}"]
                cluster.take(Pending(n, one.class_key, replicas, one, demand, Claim()))
                state.estimates.changed(cluster)

    for i in range(len(counts)):
        tell(ClusterObserved(Cluster(f"town-{i}", {})))
        count(i, 0)
    resource = ObjectRef("apps/v1", "Deployment", "app", "team")
    tell(BindingRequested(Binding("team/app", "uid", resource, 7, wanted, Placement())))
    pend()
    _is_as_certain_as_defined(state, state.bindings["team/app"])
    if renewed:
        for i, (*_, entries) in enumerate(counts):
            count(i, len(entries) // 2)
        _is_as_certain_as_defined(state, state.bindings["team/app"])


def _is_as_certain_as_defined(state: FleetState, record: BindingState) -> None:
    """Of all clusters and of every second one, as lists and as arrays."""
    for young in (False, True):
        defined = [_certain(state, record, cluster, young) for cluster in state.order]
        assert list(state.estimates.certain_everywhere(record, young=young)) == defined
        for positions in ([*range(len(defined))], [*range(0, len(defined), 2)]):
            some = [defined[i] for i in positions]
            assert state.estimates.certain(record, positions, young=young) == some
            at = np.array(positions, np.int64)
            assert list(state.estimates.certain(record, at, young=young)) == some


def _certain(state: FleetState, record: BindingState, cluster: ClusterState, young: bool) -> int:
    """From every pending entry by itself."""
    if cluster.name in state.cluster_index.provisioning:
        return record.spec.replicas
    fits, capacity, key = state.fits(record, cluster), cluster.capacity, record.class_key
    if not 0 < fits < UNLIMITED:
        return fits
    if capacity is None or key not in capacity.classes:
        return 0
    taken, demand = Displaced(), state.estimates.demand_of(record)
    for entry in cluster.pending:
        if entry.class_key == key:
            taken.same += entry.replicas
        elif entry.components:
            taken.add_sets(entry.components, demand, entry.replicas)
        else:
            taken.add(entry.demand, demand, entry.replicas)
    unplaced = capacity.unplaced.get(key, 0) if young else 0
    return max(0, min(fits, capacity.classes[key] - taken.places(capacity.nodes) - unplaced))


def _is(one: Feasible, other: Feasible) -> None:
    assert one.verdicts == other.verdicts
    assert (one.names, one.clusters) == (other.names, other.clusters)
    assert list(one.positions) == list(other.positions)
    assert one.refused == other.refused
    assert (one.weights is None) == (other.weights is None)
    if one.weights is not None and other.weights is not None:
        assert list(one.weights) == list(other.weights)
    assert (one.groups is None) == (other.groups is None)
    for mine, theirs in zip(one.groups or (), other.groups or (), strict=True):
        names, others = (
            {n: name for name, n in mine.known.items()},
            {n: name for name, n in theirs.known.items()},
        )
        assert [names[n] for n in mine.numbers.tolist()] == [
            others[n] for n in theirs.numbers.tolist()
        ]


TERMS = st.builds(
    ClusterAffinity,
    cluster_names=st.sampled_from(((), (), ("a", "b", "c"))),
    exclude=st.sampled_from(((), (), ("b",))),
    labels=st.sampled_from(
        (
            None,
            LabelSelector(),
            LabelSelector({"tier": "gold"}),
            LabelSelector({"tier": "gold", "env": "prod"}),
            LabelSelector(match_expressions=(Requirement("tier", "Exists"),)),
        )
    ),
    fields=st.sampled_from(((), (), (Requirement("region", "In", ("north",)),))),
)
TAINTS = (
    Taint("closed", "NoSchedule"),
    Taint("full", "PreferNoSchedule"),
    Taint("broken", "NoExecute"),
)


@st.composite
def questions(draw: st.DrawFn) -> ClusterQuery:
    some = st.sampled_from(((), ("a",), ("b", "d")))
    spread = draw(
        st.sampled_from(((), (SpreadConstraint("region"),), (SpreadConstraint(label="tier"),)))
    )
    tolerations = draw(
        st.sampled_from(((), (Toleration("closed", "Exists"),), (Toleration("", "Exists"),)))
    )
    term = msgspec.structs.replace(draw(TERMS), overflow=tuple(draw(st.lists(TERMS, max_size=1))))
    placement = Placement((term,), tolerations, spread, strict=draw(st.booleans()))
    return ClusterQuery(
        placement,
        term,
        "v1/A",
        draw(some),
        draw(some),
        draw(st.sampled_from((None, (), ("a", "b")))),
        draw(some),
    )


CLUSTERS = st.lists(
    st.builds(
        Cluster,
        st.sampled_from("abcdef"),
        st.sampled_from(
            ({}, {"tier": "gold"}, {"tier": "tin", "env": "prod"}, {"tier": "gold", "env": "prod"})
        ),
        region=st.sampled_from(("", "north", "south")),
        taints=st.lists(st.sampled_from(TAINTS), max_size=2).map(tuple),
        api_kinds=st.sampled_from((None, (), ("v1/A",), ("v1/B", "v1/A"))),
        deleting=st.sampled_from((False, False, False, True)),
    ),
    max_size=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(questions(), CLUSTERS)
def test_thousands_are_refused_for_the_reasons_that_each_would_be(
    question: ClusterQuery, clusters: list[Cluster]
) -> None:
    assert refusals(question, clusters) == [first_refusal(question, c) for c in clusters]


WEIGHTS = st.lists(st.builds(StaticWeight, TERMS, st.integers(-1, 4)), max_size=4)


@settings(max_examples=examples(200), deadline=None)
@given(questions(), WEIGHTS, CLUSTERS, CLUSTERS)
def test_columns_filter_as_each_cluster_would_be(
    question: ClusterQuery, rules: list[StaticWeight], before: list[Cluster], now: list[Cluster]
) -> None:
    """Read at once, and after clusters changed under columns that were read before."""
    static = ReplicaScheduling("Divided", "Weighted", tuple(rules))
    placement = msgspec.structs.replace(question.placement, replicas=static)
    question = replace(question, placement=placement)
    known = {c.name: c for c in sorted(before, key=lambda c: c.name)}
    properties = ClusterProperties([*known.values()], [*known], 0, 0)
    _is_as_each(filtered(properties, question), question, [*known.values()])
    changed = {c.name: c for c in now if c.name in known}
    properties.update([(properties.names.index(n), c) for n, c in changed.items()], 1)
    _is_as_each(filtered(properties, question), question, [*(known | changed).values()])


def _is_as_each(found: Feasible, question: ClusterQuery, clusters: list[Cluster]) -> None:
    verdicts = [first_refusal(question, c) for c in clusters]
    each = build([Plain(c) for c in clusters], verdicts, question.placement, 0, 0, wide=True)
    _is(found, each)
    assert [*found.refused] == [*each.refused], "in the order of the first cluster of each"


@settings(max_examples=examples(100), deadline=None)
@given(WEIGHTS, CLUSTERS)
def test_the_weight_of_a_cluster_is_the_highest_of_the_rules_it_matches(
    rules: list[StaticWeight], clusters: list[Cluster]
) -> None:
    placement = Placement(replicas=ReplicaScheduling("Divided", "Weighted", tuple(rules)))
    for cluster, weight in zip(clusters, static_weights(placement, clusters), strict=True):
        mine = [rule.weight for rule in rules if matches(rule.target, cluster)]
        assert weight == max(mine, default=0)


REASONS: tuple[FleetReason | None, ...] = (None, None, AffinityFilter.reason, TaintFilter.reason)
PLACEMENTS = (
    Placement(),
    Placement(
        replicas=ReplicaScheduling(
            "Divided",
            "Weighted",
            (StaticWeight(ClusterAffinity(labels=LabelSelector({"tier": "gold"})), 3),),
        )
    ),
    Placement(
        spread=(SpreadConstraint("region", "", 1, 2), SpreadConstraint("cluster", "", 1, 3)),
        replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True),
    ),
)


@given(st.data(), st.sampled_from(PLACEMENTS), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_a_mended_list_of_feasible_clusters_is_a_new_one(
    data: st.DataObject, placement: Placement, wide: bool
) -> None:
    state = next(a_fleet(3, happenings=0).world.fleet_states())
    order = state.order
    verdict = st.sampled_from(REASONS)
    before = data.draw(st.lists(verdict, min_size=len(order), max_size=len(order)))
    changes = data.draw(st.dictionaries(st.integers(0, len(order) - 1), verdict))
    mended = build(order, list(before), placement, 0, 0, wide=wide).patched(
        order, changes, placement, 0
    )
    after = [changes.get(i, verdict) for i, verdict in enumerate(before)]
    _is(mended, build(order, after, placement, 0, 0, wide=wide))


def test_what_a_fork_decides_is_nothing_to_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    in_arrays(monkeypatch)
    fleet = a_fleet(5)
    state = next(fleet.world.fleet_states())
    record = next(r for r in state.bindings.values() if r.counted and not r.withdrawn)
    before = solve(state, record, {})
    other = fork(state)
    event = fleet._event(
        BindingRequested(msgspec.structs.replace(record.spec, name="another", replicas=3))
    )
    fold_input(other, event, state.clock)
    for cluster in other.order:
        cluster.silent_since = 1
        other.estimates.facts_changed(cluster)
        other.touch(cluster)
    assert all(n == 0 for n in other.column(other.bindings["another"]).values)
    assert solve(state, record, {}) == before


@pytest.mark.parametrize("amount", [2**61 - 1, 2**63, 2**70])
def test_amounts_beyond_64_bits_are_counted_all_the_same(
    amount: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays do not hold them, so such clusters are asked themselves."""

    def decided() -> list[bytes]:
        decider = FleetDecider()
        state, head = decider.initial("fleet/0"), empty_head("fleet/0")
        class_key = CLASSES[0].class_key
        facts: list[Value] = [
            ClusterObserved(Cluster(name)) for name in ("bergen", "oslo", "turku")
        ]
        facts += [
            CapacityEstimated("bergen", 1, {"cpu": amount, "memory": amount}, {class_key: amount})
        ]
        facts += [CapacityEstimated("oslo", 1, {"cpu": 9000, "memory": amount}, {})]
        facts += [
            CapacityEstimated("turku", 1, {"cpu": amount, "memory": 2**40, "pods": amount}, {})
        ]
        dynamic = Placement(replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True))
        found = []
        for i, replicas in enumerate((1, 10, 100_000, 2**33)):
            name = f"a/b{i}"
            spec = Binding(
                name, name, ObjectRef("apps/v1", "Deployment", name), replicas, CLASSES[0], dynamic
            )
            events = [
                made(data, id=derived_id("columns", i, n), source="/tests", subject=name)
                for n, data in enumerate((*facts, BindingRequested(spec)))
            ]
            round_ = step(decider, state, head, events, START, {})
            head, facts = round_.head(), []
            found += [d.body for d in round_.decisions]
        return found

    in_lists = decided()
    in_arrays(monkeypatch)
    assert decided() == in_lists


@pytest.mark.parametrize("classes", [1, 20])
def test_new_counts_of_all_clusters_are_in_the_arrays_before_the_next_decision(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision after them asks no cluster by itself. With many classes it does, since most
    columns may not be used again; the estimates are the same."""
    in_arrays(monkeypatch)
    kinds = [Requirements({"cpu": 100 + i, "memory": 2**20}) for i in range(classes)]
    decider = FleetDecider()
    state, head = decider.initial("fleet/0"), empty_head("fleet/0")
    dynamic = Placement(replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True))

    def take(*facts: Value) -> None:
        nonlocal head
        events = [
            made(data, id=derived_id("renewed", head.round, n), source="/tests", subject="fleet")
            for n, data in enumerate(facts)
        ]
        head = step(decider, state, head, events, START + head.round, {}).head()

    def counts(more: int) -> list[Value]:
        return [
            CapacityEstimated(
                name,
                1,
                {"cpu": 10_000 * (i + more), "memory": 2**40, "pods": 50 + more},
                {kind.class_key: 3 * i + more for kind in kinds},
                {"fleet/0": head.seq},
            )
            for i, (name, _) in enumerate(TOWNS)
        ]

    def request(i: int) -> BindingRequested:
        name, asks = f"a/b{i}", kinds[i % classes]
        resource = ObjectRef("apps/v1", "Deployment", name)
        return BindingRequested(Binding(name, name, resource, 40, asks, dynamic))

    take(*(ClusterObserved(Cluster(name)) for name, _ in TOWNS), *counts(1))
    take(*(request(i) for i in range(classes)))
    take(*counts(4))
    asked: list[str] = []
    whole = ClusterState.ceiling

    def ceiling(cluster: ClusterState, class_key: str, demand: Demand) -> int:
        asked.append(cluster.name)
        return whole(cluster, class_key, demand)

    monkeypatch.setattr(ClusterState, "ceiling", ceiling)
    take(request(classes))
    assert len(asked) == (0 if classes == 1 else len(TOWNS))
    for record in state.bindings.values():
        values = state.column(record).values
        assert list(values) == [state.fits(record, cluster) for cluster in state.order]


def test_amounts_are_read_again_before_steps_could_leave_64_bits() -> None:
    rooms = Rooms(
        3, {"cpu": np.full(3, 1 - columns.SAFE)}, np.zeros(3, np.int64), np.zeros(3, bool)
    )
    demand, at = demand_of(Requirements({"cpu": 2**50})), np.array([0, 2])
    for _ in range(40):
        assert not rooms.stale
        rooms.take(demand, at, np.array([2**6, 1]), 2**6)
        assert int(rooms.left["cpu"].min()) > -2 * columns.SAFE
        if rooms.stale:
            break
    assert [*rooms.stale] == [0, 1, 2]
    rooms.stale.clear()
    rooms.take(demand, at, np.array([2**7, 1]), 2**7)
    assert [*rooms.stale] == [0, 2], "one step too large for arrays"
