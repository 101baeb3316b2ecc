"""Laws of the estimator: it sees what the cluster stage sees, whatever the order, and says so
once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from operator import eq, le

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, Harness, as_items, event
from tests.hunting import examples
from tests.properties.test_cluster_stage import histories, wild_events, wild_requirements

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster, ResourceSummary
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.quota import Quota
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.engine.nodes.count import COUNT_MAX
from wharfinger.engine.nodes.place import Placer
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import (
    NodesObserved,
    PodsObserved,
    QuotasObserved,
    into_buckets,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.stages.estimator import EstimatorObserver, EstimatorState

OBSERVER = EstimatorObserver()
REF = ObjectRef("apps/v1", "Deployment", "web")


def wanted_by(rounds: Sequence[Sequence[Value]]) -> list[Value]:
    """A BindingRequested for each class that is assigned anywhere."""
    classes = {
        item.requirements.class_key: item.requirements
        for inputs in rounds
        for one in inputs
        if isinstance(one, AssignmentsDecided)
        for item in one.items
        if isinstance(item, Assigned)
    }
    return [
        BindingRequested(Binding(f"b-{key}", key, REF, 1, r)) for key, r in sorted(classes.items())
    ]


def fold(state: EstimatorState, *data: Value) -> None:
    for i, one in enumerate(data):
        OBSERVER.fold(state, event(one, "estimator", i), 1)


def told(state: EstimatorState) -> CapacityEstimated | None:
    OBSERVER.publish(state, 1)
    return state.clusters[CLUSTER].published if CLUSTER in state.clusters else None


def columns(book: object) -> object:
    from wharfinger.engine.nodes.occupancy import Occupancy

    assert isinstance(book, Occupancy)
    return {
        name: (
            dict(zip(book.table.resources, row.free, strict=True)),
            row.device_free,
            row.unschedulable,
        )
        for name, row in sorted(book.table.rows.items())
    }


def without_zeros(seen: object) -> object:
    """Which resource columns exist depends on what was asked for; what is free in them does not."""
    assert isinstance(seen, dict)
    return {
        name: ({k: v for k, v in free.items() if v}, d, u) for name, (free, d, u) in seen.items()
    }


@settings(max_examples=examples(120), deadline=None)
@given(histories())
def test_it_counts_as_free_what_the_cluster_stage_has_free(
    history: tuple[str, list[list[Value]]],
) -> None:
    plane, state = Harness(history[0]), OBSERVER.initial()
    fold(state, *wanted_by(history[1]))
    for inputs in history[1]:
        decisions = plane.feed(*inputs)
        fold(state, *inputs)
        items = as_items(decisions)
        if items is not None:
            fold(state, items)
        estimate = told(state)
        assert estimate is not None
        book = plane.state.book
        assert without_zeros(columns(state.clusters[CLUSTER].book)) == without_zeros(columns(book))
        # Replicas for which room is being made are on no node yet, and count as taken.
        assert state.clusters[CLUSTER].book.unbound == book.unbound
        assert not book.unbound or plane.state.nominated
        agree = le if book.unbound else eq
        usable = [row for row in book.table.rows.values() if not row.unschedulable]
        assert estimate.nodes == len(usable)
        for name, free in estimate.free.items():
            code = book.table.resource(name)
            assert agree(free, sum(max(0, row.free[code]) for row in usable))
        assert agree(
            sum(d.milli for d in estimate.devices), sum(sum(row.device_free) for row in usable)
        )
        placer = Placer(book.table, "least-allocated")
        for key, n in estimate.classes.items():
            requirements = state.asking.classes[key]
            if n >= COUNT_MAX // 2:
                continue
            cls = book.class_of(requirements)
            fitting = list(placer.fill(cls, n + 1))
            for choice in fitting:
                book.table.charge(choice.row, cls, -1, [(i, -m) for i, m in choice.devices])
            assert agree(n, len(fitting))
        assert OBSERVER.publish(state, 2) == []


@settings(max_examples=examples(80), deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_the_order_across_topics_and_redelivery_change_nothing(
    history: tuple[str, list[list[Value]]], chance: random.Random
) -> None:
    """Topics are read side by side: only the order within one topic is given."""
    plane = Harness(history[0])
    facts: list[Value] = []
    assignments: list[Value] = []
    for inputs in history[1]:
        items = as_items(plane.feed(*inputs))
        facts += [one for one in inputs if isinstance(one, NodesObserved | PodsObserved)]
        assignments += [one for one in inputs if isinstance(one, AssignmentsDecided)]
        if items is not None:
            assignments.append(items)
    if any(
        d.type.startswith("io.wharfinger.node-removal.decided")
        for r in plane.rounds
        for d in r.round.decisions
    ):
        # when a node was closed between two lives of the same name only the stream itself can tell
        return
    bindings = wanted_by(history[1])
    straight, mixed = OBSERVER.initial(), OBSERVER.initial()
    fold(straight, *bindings, *facts, *assignments)
    sources = [list(bindings), list(facts), list(assignments)]
    while any(sources):
        source = chance.choice([s for s in sources if s])
        one = source.pop(0)
        fold(mixed, one, *([one] if chance.random() < 0.3 else []))
        if chance.random() < 0.2:
            OBSERVER.publish(mixed, 1)
    assert told(straight) == told(mixed)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.one_of(
            wild_events,
            st.builds(
                lambda n, k, r: BindingRequested(Binding(n, n, REF, k, r)),
                st.sampled_from("abc"),
                st.integers(-1, 3),
                wild_requirements,
            ),
            st.builds(BindingWithdrawn, st.sampled_from("abc")),
            st.builds(
                lambda s: ClusterObserved(Cluster(CLUSTER, summary=s)),
                st.none()
                | st.builds(
                    ResourceSummary,
                    st.dictionaries(st.sampled_from(["cpu", "pods"]), st.integers()),
                ),
            ),
            st.builds(ClusterForgotten, st.just(CLUSTER)),
        ),
        max_size=20,
    )
)
def test_nothing_that_decodes_brings_the_estimator_down(events: list[Value]) -> None:
    state = OBSERVER.initial()
    for one in events:
        fold(state, one)
        for publication in OBSERVER.publish(state, 1):
            assert isinstance(publication.data, CapacityEstimated)
            assert (
                min([0, *publication.data.free.values(), *publication.data.classes.values()]) >= 0
            )
            assert publication.key == publication.partition_key == publication.data.cluster
        assert OBSERVER.publish(state, 1) == []


# --- quotas

SIZES = {"shop/web": 3, "shop/db": 7}
HARD = 200


def told_by_the_member(running: dict[str, int], foreign: int) -> list[Value]:
    """What the member cluster reports when so many replicas of ours run there: its pods, then what
    its quota says is used."""
    pods = tuple(
        Pod(f"{name}-{i}", f"{name}-{i}", Requirements({"cpu": SIZES[name]}), "n", name, i)
        for name, count in sorted(running.items())
        for i in range(count)
    )
    used = foreign + sum(SIZES[name] * count for name, count in running.items())
    return [
        PodsObserved(CLUSTER, "n", pods),
        QuotasObserved(CLUSTER, "shop", (Quota("shop", "q", {"cpu": HARD}, {"cpu": used}),)),
    ]


@settings(max_examples=examples(120), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(SIZES)), st.integers(0, 9)), max_size=8),
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 60), st.booleans()),
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
def test_a_decided_replica_is_taken_from_a_quota_exactly_once(
    decided: list[tuple[str, int]], reports: list[tuple[int, int, int, bool]], chance: random.Random
) -> None:
    """However far the member is behind what was decided, and in whatever order its reports and the
    decisions are read."""
    assignments: list[Value] = []
    wanted: dict[str, int] = {}
    for seq, (name, replicas) in enumerate(decided, 1):
        wanted[name] = replicas
        item = Assigned(seq, f"d{seq}", name, "u", replicas, Requirements({"cpu": SIZES[name]}))
        assignments.append(AssignmentsDecided(CLUSTER, "fleet/0", seq, (item,)))
    facts: list[Value] = [*into_buckets(CLUSTER, [Node("n", {"cpu": 10_000})], 1)]
    running, contained, used = {}, {}, 0
    for web, db, foreign, quota_too in [(0, 0, 0, True), *reports]:
        running = {"shop/web": web, "shop/db": db}
        pods, quota = told_by_the_member(running, foreign)
        facts.append(pods)
        if quota_too:
            facts.append(quota)
            contained, used = running, foreign + sum(SIZES[n] * k for n, k in running.items())
    state = OBSERVER.initial()
    bindings: list[Value] = [
        BindingRequested(Binding(n, n, REF, 1, Requirements({"cpu": k}))) for n, k in SIZES.items()
    ]
    sources = [bindings, facts, assignments]
    while any(sources):
        one = chance.choice([s for s in sources if s]).pop(0)
        fold(state, one, *([one] if chance.random() < 0.3 else []))
    said = told(state)
    assert said is not None
    missing = sum(SIZES[n] * max(0, k - contained[n]) for n, k in wanted.items())
    assert said.quotas[0].left == {"cpu": max(0, HARD - used - missing)}
