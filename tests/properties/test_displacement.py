"""What replicas of other classes take from the places of one: never more than is said, wherever
they are put."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.binding import Component
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.displacement import Displaced
from wharfinger.engine.fleet.estimate import demand_of

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
