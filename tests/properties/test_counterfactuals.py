"""A counterfactual is a claim, so it is put to the proof: the change is made, the same code is
asked, the candidate is in; and what is counted could not have been one less."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_queries import KEYS, OPERATORS, VALUES, a_requirement
from tests.fleets import CLASSES, NODE_TAINTS
from tests.hunting import examples

from wharfinger.domain.node import Node
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.classes import compile_class
from wharfinger.engine.nodes.counterfactual import ways_in
from wharfinger.engine.nodes.fit import fits
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.place import Placer
from wharfinger.events.cluster_state import into_buckets
from wharfinger.rules.changes import applied, largest, less_asked, smallest, with_request


def a_node(random: Random) -> Node:
    return Node(
        "n",
        {"cpu": random.randint(0, 3000), "memory": random.randint(0, 2**31)},
        labels={k: random.choice(VALUES) for k in KEYS if random.random() < 0.5},
        taints=tuple(t for t in NODE_TAINTS if random.random() < 0.3),
        unschedulable=random.random() < 0.2,
        devices=tuple(Device(random.choice(("A100", "T4"))) for _ in range(random.randint(0, 3))),
    )


def asked_by(random: Random) -> Requirements:
    if random.random() < 0.5:
        return random.choice(CLASSES)
    devices = (DeviceRequest(random.randint(1, 4), models=random.choice(((), ("A100",)))),)
    terms = (NodeTerm((a_requirement(random, KEYS, OPERATORS),)),)
    return Requirements(
        {"cpu": random.randint(1, 4000), "memory": random.randint(1, 2**32)},
        devices if random.random() < 0.4 else (),
        node_terms=terms if random.random() < 0.5 else (),
    )


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(200), deadline=None)
def test_a_node_takes_a_replica_that_asks_for_so_much_less_and_not_for_one_unit_more(
    random: Random,
) -> None:
    book, node, asked = Occupancy(), a_node(random), asked_by(random)
    for said in into_buckets("oslo", [node], 1):
        book.observe_nodes(said, 0)
    row, cls = book.table.rows["n"], compile_class(book.table, asked, "asked")
    placer = Placer(book.table, "least-allocated")
    refused = placer.diagnose(cls).refused
    found = ways_in(book.table, row, node, cls, placer.rules.made.values())
    assert not found or refused
    for way in found:
        sizes = [c for c in way if c.kind == "less"]
        if not sizes:
            continue
        less = applied(asked, way)
        assert fits(row, compile_class(book.table, less, "less"))
        for change in sizes:
            if change.what in asked.requests and change.amount:
                back = with_request(less, change.what, less.requests[change.what] + 1)
                assert not fits(row, compile_class(book.table, back, "back")), change


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(200), deadline=None)
def test_a_replica_with_the_smaller_requests_fits_on_one_of_several_nodes(random: Random) -> None:
    """Where each node is short of something else, several requests must be smaller together."""
    nodes = [
        (random.randint(0, 3000), random.randint(0, 2**31), random.randint(0, 3))
        for _ in range(random.randint(1, 3))
    ]

    def fits(asked: Requirements) -> bool:
        devices = sum(device.count for device in asked.devices)
        return any(
            asked.requests.get("cpu", 0) <= cpu
            and asked.requests.get("memory", 0) <= memory
            and devices <= free
            for cpu, memory, free in nodes
        )

    asked = Requirements(
        {"cpu": random.randint(1, 4000), "memory": random.randint(1, 2**32)},
        (DeviceRequest(random.randint(1, 4)),) if random.random() < 0.7 else (),
    )
    for way in less_asked(asked, fits):
        assert fits(applied(asked, way)), way


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(100), deadline=None)
def test_the_parts_of_a_score_are_what_it_is_the_sum_of(random: Random) -> None:
    book, asked = Occupancy(), asked_by(random)
    for said in into_buckets("oslo", [a_node(random)], 1):
        book.observe_nodes(said, 0)
    cls = compile_class(book.table, asked, "asked")
    placer = Placer(book.table, "least-allocated")
    choice = placer.choose(cls)
    if choice is not None:
        assert sum(placer.score_parts(choice.row, cls).values()) == choice.score


@given(st.integers(-5, 60), st.integers(0, 50))
def test_halving_finds_the_edge(edge: int, width: int) -> None:
    wanted = edge if 0 <= edge <= width else None
    assert smallest(0, width, lambda n: n >= edge) == (max(0, edge) if edge <= width else None)
    assert largest(0, width, lambda n: n <= edge) == (min(edge, width) if edge >= 0 else None)
    assert wanted is None or smallest(0, width, lambda n: n >= wanted) == wanted


def test_what_fits_needs_nothing() -> None:
    assert less_asked(Requirements({"cpu": 1}), lambda _: True) == []
    assert less_asked(Requirements({"cpu": 1}), lambda _: False) == []
