"""What replicas of other classes take from the places of one: never more than is said, wherever
they are put."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.binding import Component
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.displacement import Displaced, Proportions
from wharfinger.engine.fleet.estimate import demand_of, demand_of_set
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.fleet.state import pending
from wharfinger.stages.fleet.state.clusters import ClusterState, Pending

Node = dict[str, int]

amounts = st.fixed_dictionaries({"cpu": st.integers(1, 9), "memory": st.integers(1, 9)})
nodes = st.lists(
    st.fixed_dictionaries({"cpu": st.integers(0, 40), "memory": st.integers(0, 40)}),
    min_size=1,
    max_size=6,
)


def places(fleet: list[Node], wanted: Node) -> int:
    return sum([min([node[name] // n for name, n in wanted.items()]) for node in fleet])


def put(fleet: list[Node], one: Node, start: int) -> bool:
    """Onto the first node from `start` on that holds it."""
    for step in range(len(fleet)):
        node = fleet[(start + step) % len(fleet)]
        if all(node[name] >= n for name, n in one.items()):
            for name, n in one.items():
                node[name] -= n
            return True
    return False


@settings(max_examples=examples(200))
@given(nodes, amounts, st.lists(st.tuples(amounts, st.integers(0, 5)), max_size=12))
def test_no_more_places_are_lost_than_are_displaced(
    fleet: list[Node], wanted: Node, assigned: list[tuple[Node, int]]
) -> None:
    before, taken = places(fleet, wanted), Displaced()
    for one, start in assigned:
        if put(fleet, one, start):
            if one == wanted:
                taken.same += 1
            else:
                taken.add(demand_of(Requirements(one)), demand_of(Requirements(wanted)), 1)
    assert before - places(fleet, wanted) <= taken.places(len(fleet))


@given(amounts, st.lists(st.tuples(amounts, st.integers(1, 50)), max_size=12), st.booleans())
def test_many_classes_take_what_each_takes(
    wanted: Node, taken: list[tuple[Node, int]], known: bool
) -> None:
    """Also where some are of the wanted class, and whether or not their shares are known."""
    needs, key = demand_of(Requirements(wanted)), Requirements(wanted).class_key
    classes = [(Requirements(one).class_key, demand_of(Requirements(one)), n) for one, n in taken]
    proportions, together, apart = Proportions(), Displaced(), Displaced()
    for other, one, n in classes:
        if other != key:
            apart.add(one, needs, n)
            if known:
                proportions.of(key, needs, other, one)
    together.add_classes(key, needs, classes, proportions)
    assert together == apart


@given(amounts, st.lists(st.tuples(amounts, st.integers(1, 3)), min_size=1, max_size=3))
def test_a_set_takes_what_its_pods_take_apart(wanted: Node, parts: list[tuple[Node, int]]) -> None:
    needs = demand_of(Requirements(wanted))
    whole, apart = Displaced(), Displaced()
    whole.add_sets(
        [Component(f"part-{i}", n, Requirements(one)) for i, (one, n) in enumerate(parts)], needs, 2
    )
    for one, n in parts:
        apart.add(demand_of(Requirements(one)), needs, 2 * n)
    assert whole == apart


def test_what_is_small_spoils_at_most_one_place_a_node() -> None:
    small, large = demand_of(Requirements({"cpu": 50})), demand_of(Requirements({"cpu": 2000}))
    taken = Displaced()
    taken.add(small, large, 3)
    assert taken.places(nodes=4) == 3
    taken.add(small, large, 37)  # 2,000 in sum
    assert taken.places(nodes=4) == 1 + 4


def test_devices_are_counted_in_slots() -> None:
    def gpu(count: int, milli: int) -> Requirements:
        return Requirements({"cpu": 1}, (DeviceRequest(count, milli),))

    half, whole = demand_of(gpu(1, 500)), demand_of(gpu(2, 1000))
    taken = Displaced()
    taken.add(whole, half, 1)
    assert taken.places(nodes=100) >= 4


CLASSES = [Requirements({"cpu": cpu, "memory": memory}) for cpu in (1, 3, 7) for memory in (2, 5)]
SETS = [Component("part", n, one) for n, one in zip((1, 2), CLASSES, strict=False)]


def entry(seq: int, kind: int, replicas: int) -> Pending:
    """A pending entry of one of six classes, or of one of two component sets."""
    if kind < len(CLASSES):
        one = CLASSES[kind]
        return Pending(seq, one.class_key, replicas, one, demand_of(one), Claim())
    parts = (SETS[kind - len(CLASSES)],)
    nothing = Requirements({})
    return Pending(seq, f"set-{kind}", replicas, nothing, demand_of_set(parts), Claim(), parts)


def straight_sum(entries: Iterable[Pending], wanted: Requirements) -> Displaced:
    """All entries, one after the other."""
    taken, demand = Displaced(), demand_of(wanted)
    for one in entries:
        if one.class_key == wanted.class_key:
            taken.same += one.replicas
        elif one.components:
            taken.add_sets(one.components, demand, one.replicas)
        else:
            taken.add(one.demand, demand, one.replicas)
    return taken


HUGE = 2**61


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(("take", "add")),
                st.integers(0, 7),
                st.one_of(st.integers(1, 40), st.sampled_from([2**40, HUGE, 2**63 - 1])),
                st.integers(1, 7),
            ),
            st.tuples(st.just("ask"), st.integers(0, 5), st.just(0), st.integers(0, 7)),
            st.tuples(st.just("count"), st.integers(0, 30), st.integers(0, 9), st.integers(1, 7)),
        ),
        max_size=60,
    ),
    st.sampled_from((1, 2, 16)),
    st.sampled_from((8, 1 << 20)),
    st.sampled_from((1, 2, 16)),
)
def test_places_follow_from_all_pending_entries(
    steps: list[tuple[str, int, int, int]], least_columns: int, kept: int, many: int
) -> None:
    """However the entries come between questions and counts, for one cluster or several, added to
    the rows or not, however large the numbers are and however few shares are remembered, the answer
    is that of a sum over all entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending, "COLUMNS", least_columns)
        patch.setattr(pending, "SHARES_KEPT", kept)
        patch.setattr(pending, "MANY", many)
        clusters = [ClusterState(name) for name in ("bergen", "oslo", "tromso")]
        seq = 0

        def counted(cluster: ClusterState, through: int, nodes: int) -> None:
            counts = CapacityEstimated(cluster.name, nodes, {}, {}, {"fleet/0": through})
            cluster.count(counts, "fleet/0")

        for cluster in clusters:
            counted(cluster, 0, 5)
        matrix = pending.PendingMatrix(clusters)
        for what, number, amount, some_of in steps:
            positions = [i for i in range(len(clusters)) if some_of & 1 << i]
            if what in ("take", "add"):
                seq += 1
                for more, position in enumerate(positions):
                    clusters[position].take(entry(seq, number, amount + more))
                if what == "add":
                    matrix.add([clusters[i].pending[-1] for i in positions], positions)
            elif what == "count":
                for position in positions:
                    counted(clusters[position], max(0, seq - number), amount)
            else:
                wanted = CLASSES[number]
                demand = demand_of(wanted)
                expected = [
                    straight_sum(c.pending, wanted).places(c.capacity.nodes)
                    for c in (clusters[i] for i in positions)
                    if c.capacity is not None
                ]
                found = matrix.places_taken(wanted.class_key, demand, positions)
                assert list(found) == expected
                some = np.array(positions, np.int64)
                arrays = matrix.places_taken(wanted.class_key, demand, some)
                assert list(arrays) == [min(n, pending.SAFE) for n in expected]


def test_classes_that_are_pending_nowhere_take_no_columns() -> None:
    """However many classes a cluster sees in its life."""
    cluster = ClusterState("oslo")
    matrix = pending.PendingMatrix([cluster])
    for seq in range(1, 500):
        one = Requirements({"cpu": seq})
        cluster.take(Pending(seq, one.class_key, 1, one, demand_of(one), Claim()))
        counts = CapacityEstimated("oslo", 3, {}, {}, {"fleet/0": seq - 5})
        cluster.count(counts, "fleet/0")
        expected = straight_sum(cluster.pending, CLASSES[0]).places(3)
        assert matrix.places_taken(CLASSES[0].class_key, demand_of(CLASSES[0]), [0]) == [expected]
    assert matrix.replicas.shape[1] <= 4 * pending.COLUMNS


def test_products_are_of_machine_integers_however_much_was_decided_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending, "SAFE", 10**10)
    cluster, (wanted, other) = ClusterState("oslo"), CLASSES[:2]
    matrix = pending.PendingMatrix([cluster])
    for seq in range(1, 100):
        one = Pending(seq, other.class_key, 500, other, demand_of(other), Claim())
        cluster.take(one)
        matrix.add([one], [0])
        cluster.count(CapacityEstimated("oslo", 3, {}, {}, {"fleet/0": seq - 1}), "fleet/0")
        demand = demand_of(wanted)
        expected = straight_sum(cluster.pending, wanted).places(3)
        assert matrix.places_taken(wanted.class_key, demand, [0]) == [expected]
        assert matrix._shares_of(wanted.class_key, demand).dtype == np.int64
