"""A counterfactual is a claim, so it is put to the proof: the change is made, the same code is asked, the candidate is in; and what
is counted could not have been one less."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fleets import CLASSES, CLUSTER_TAINTS, NODE_TAINTS

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.placement import ClusterAffinity, Placement, SpreadConstraint
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Operator, Requirement
from wharfinger.domain.taints import Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.changes import applied, largest, less_asked, smallest, with_request
from wharfinger.engine.fleet.counterfactual import admission
from wharfinger.engine.fleet.filters import Question, all_refusals, first_refusal
from wharfinger.engine.nodes.classes import compile_class
from wharfinger.engine.nodes.counterfactual import refusals, ways_in
from wharfinger.engine.nodes.fit import REASONS, usage_verdict
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.place import Placer
from wharfinger.events.cluster_state import into_buckets

KEYS, VALUES = ("tier", "disk"), ("gold", "silver", "1", "7")
OPERATORS: tuple[Operator, ...] = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
REGIONS = ("", "north", "south")


def a_requirement(random: Random, keys: tuple[str, ...], operators: tuple[Operator, ...]) -> Requirement:
    operator = random.choice(operators)
    count = 0 if operator in ("Exists", "DoesNotExist") else 1 if operator in ("Gt", "Lt") else random.randint(1, 2)
    return Requirement(random.choice(keys), operator, tuple(random.sample(VALUES, count)))


def a_cluster(random: Random) -> Cluster:
    return Cluster(
        "oslo", {k: random.choice(VALUES) for k in KEYS if random.random() < 0.6}, region=random.choice(REGIONS),
        provider=random.choice(("", "aws")), zones=random.choice(((), ("a",), ("a", "b"))),
        taints=tuple(t for t in CLUSTER_TAINTS if random.random() < 0.4),
        api_kinds=random.choice((None, ("batch/v1/Job",), ("apps/v1/Deployment",))), deleting=random.random() < 0.2,
    )  # fmt: skip


def a_question(random: Random) -> Question:
    labels = LabelSelector(
        {k: random.choice(VALUES) for k in KEYS if random.random() < 0.3},
        tuple(a_requirement(random, ("zone-of", "size"), OPERATORS) for _ in range(random.randint(0, 2))),
    )
    fields = tuple(
        Requirement(
            key, random.choice(("In", "NotIn", "Exists", "DoesNotExist")), ("north", "a")[: random.randint(1, 2)]
        )
        for key in random.sample(("region", "zone", "provider"), random.randint(0, 2))
    )
    affinity = ClusterAffinity(
        cluster_names=random.choice(((), ("bergen",))), exclude=random.choice(((), ("oslo",))),
        labels=random.choice((None, labels)), fields=fields,
    )  # fmt: skip
    spread = tuple(SpreadConstraint(field, max_groups=2) for field in ("region", "zone") if random.random() < 0.3)
    placement = Placement((affinity,), random.choice(((), (Toleration("closed", "Exists"),))), spread)
    silent, evicted = (("oslo",) if random.random() < 0.3 else () for _ in range(2))
    return Question(placement, affinity, "apps/v1/Deployment", silent, evicted)


@given(st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_a_cluster_with_the_changes_made_is_feasible(random: Random) -> None:
    question, cluster = a_question(random), a_cluster(random)
    found = admission(question, cluster)
    if found is None:
        return
    assert first_refusal(found.question, found.cluster) is None
    assert bool(found.way) == bool(all_refusals(question, cluster))


def a_node(random: Random) -> Node:
    return Node(
        "n", {"cpu": random.randint(0, 3000), "memory": random.randint(0, 2**31)},
        labels={k: random.choice(VALUES) for k in KEYS if random.random() < 0.5},
        taints=tuple(t for t in NODE_TAINTS if random.random() < 0.3), unschedulable=random.random() < 0.2,
        devices=tuple(Device(random.choice(("A100", "T4"))) for _ in range(random.randint(0, 3))),
    )  # fmt: skip


def asked_by(random: Random) -> Requirements:
    if random.random() < 0.5:
        return random.choice(CLASSES)
    devices = (DeviceRequest(random.randint(1, 4), models=random.choice(((), ("A100",)))),)
    terms = (NodeTerm((a_requirement(random, KEYS, OPERATORS),)),)
    return Requirements(
        {"cpu": random.randint(1, 4000), "memory": random.randint(1, 2**32)},
        devices if random.random() < 0.4 else (), node_terms=terms if random.random() < 0.5 else (),
    )  # fmt: skip


@given(st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_a_node_takes_a_replica_that_asks_for_so_much_less_and_not_for_one_unit_more(random: Random) -> None:
    book, node, asked = Occupancy(), a_node(random), asked_by(random)
    for said in into_buckets("oslo", [node], 1):
        book.observe_nodes(said, 0)
    row, cls = book.table.rows["n"], compile_class(book.table, asked, "asked")
    reasons = refusals(book.table, row, cls)
    first = int(cls.facts(book.table)[row.slot]) or usage_verdict(row, cls)
    assert (reasons[0] if reasons else None) == (REASONS[-first - 1] if first else None)
    found = ways_in(book.table, row, node, cls)
    assert not found or reasons
    for way in found:
        sizes = [c for c in way if c.kind == "less"]
        if not sizes:
            continue
        less = applied(asked, way)
        assert usage_verdict(row, compile_class(book.table, less, "less")) == 0
        for change in sizes:
            if change.what in asked.requests and change.amount:
                back = with_request(less, change.what, less.requests[change.what] + 1)
                assert usage_verdict(row, compile_class(book.table, back, "back")) != 0, change


@given(st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
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
