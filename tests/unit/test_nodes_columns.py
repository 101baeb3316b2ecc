"""Rows and columns stay one thing while nodes come and go, and a cache can trust the change log."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from tests.cluster_world import a_node, needs, observed

from wharfinger.domain.node import Node
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.scheduler import FitArgs, WeightedResource
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import stable_hash
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.columns import AMOUNT_MAX, ChangeLog, NodeTable
from wharfinger.engine.nodes.count import COUNT_MAX, Counter
from wharfinger.engine.nodes.message import message
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.place import Diagnosis, Placer
from wharfinger.engine.nodes.score import profile_of
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.decisions import NodeShare
from wharfinger.rules.nodes.taint_toleration import tolerates


def book_of(*nodes: Node) -> Occupancy:
    book = Occupancy()
    for bucket in observed(nodes):
        book.observe_nodes(bucket, 0)
    return book


def test_a_log_remembers_the_latest_and_says_when_it_has_forgotten() -> None:
    log = ChangeLog(capacity=8)
    for slot in range(20):
        log.append(slot)
    assert log.end == 20
    assert log.since(0) is None
    kept = log.since(17)
    assert kept is not None
    assert kept.tolist() == [17, 18, 19]
    nothing = log.since(20)
    assert nothing is not None
    assert len(nothing) == 0


def test_columns_follow_rows_through_growth_and_reuse_of_slots() -> None:
    nodes = [a_node(f"n{i}", cpu=1000 + i, gpus=i % 3, pods=i) for i in range(200)]
    book = book_of(*nodes)
    for bucket in observed(nodes[50:]):
        book.observe_nodes(bucket, 0)
    for bucket in observed(
        [*nodes[50:], a_node("late", cpu=7, gpus=5, extended={"example.com/fpga": 2})]
    ):
        book.observe_nodes(bucket, 0)
    table = book.table
    assert len(table.rows) == 151
    for row in table.rows.values():
        assert [int(c[row.slot]) for c in table.free] == row.free
        assert [int(c[row.slot]) for c in table.allocatable] == row.allocatable
        devices = [milli for milli in table.device_free[row.slot].tolist() if milli >= 0]
        assert devices == row.device_free
    gone = [slot for slot in range(table.size) if table.by_slot[slot] is None]
    assert all(int(column[slot]) == 0 for column in table.free for slot in gone)


@pytest.mark.parametrize("seed", [0, 1, 2**63 + 5])
def test_ties_are_ordered_by_hash_then_name_and_never_by_arrival(seed: int) -> None:
    names = [f"n{i}" for i in range(40)]
    orders = []
    for arriving in (names, names[::-1]):
        table = NodeTable(capacity=4)
        for name in arriving:
            table.set_usage(table.put(a_node(name), closed=False), {}, [])
        ranks = table.tie_ranks(seed)
        orders.append(sorted(names, key=lambda name: int(ranks[table.rows[name].slot])))
    assert (
        orders[0] == orders[1] == sorted(names, key=lambda name: (stable_hash(name) ^ seed, name))
    )


def test_nodes_whose_hashes_collide_are_ordered_by_name() -> None:
    orders = []
    for arriving in (["a", "b", "c"], ["c", "b", "a"]):
        table = NodeTable()
        for name in arriving:
            table.set_usage(table.put(a_node(name), closed=False), {}, [])
        table.hashes[:] = np.uint64(7)
        ranks = table.tie_ranks(1)
        orders.append([int(ranks[table.rows[name].slot]) for name in "abc"])
    assert orders[0] == orders[1] == [0, 1, 2]


def test_amounts_beyond_reason_are_clamped_and_negative_ones_are_nothing() -> None:
    book = book_of(Node("a", {"cpu": 10**40, "memory": -5}), Node("b", {"cpu": -(10**40)}))
    assert book.table.rows["a"].free[:2] == [AMOUNT_MAX, 0]
    assert book.table.rows["b"].free[0] == 0
    greedy = book.class_of(Requirements({"cpu": 10**50, "memory": -1}))
    choice = Placer(book.table, "least-allocated").choose(greedy)
    assert choice is not None
    assert choice.row.name == "a"


MIB = 2**20


@pytest.mark.parametrize(
    ("strategy", "cpu", "memory", "score"),
    [
        ("least-allocated", 1000, 25, ((4000 - 1000) * 100 // 4000 + (100 - 25) * 100 // 100) // 2),
        ("most-allocated", 1000, 25, (1000 * 100 // 4000 + 25) // 2),
        ("least-allocated", 4000, 100, 0),
        ("most-allocated", 4000, 100, 100),
        ("least-allocated", 1, 1, (99 + 99) // 2),
    ],
)
def test_scores_are_the_integers_of_kube_scheduler(
    strategy: str, cpu: int, memory: int, score: int
) -> None:
    """Of what is free once the pod is there; beside it stand how evenly that is taken, and that no
    taint is unwelcome."""
    book = book_of(a_node("a", cpu=4000, memory=100))
    placer = Placer(
        book.table, "least-allocated" if strategy.startswith("least") else "most-allocated"
    )
    cls = book.class_of(needs(cpu=cpu, memory=memory))
    choice = placer.choose(cls)
    assert choice is not None
    parts = placer.score_parts(choice.row, cls)
    assert parts.get("NodeResourcesFit", 0) == score
    assert parts["TaintToleration"] == 300
    assert parts["NodeResourcesBalancedAllocation"] == int(
        (1 - abs(cpu / 4000 - memory / 100) / 2) * 100
    )
    assert choice.score == sum(parts.values())


def test_a_pod_that_asks_for_nothing_counts_a_little_in_the_score_of_the_next() -> None:
    """100m and 200 MiB, as kube-scheduler has it, and nothing in what is free."""
    book = book_of(a_node("a", cpu=4000, memory=1000 * MIB))
    placer = Placer(book.table, "least-allocated")
    silent = book.class_of(Requirements())
    row = book.table.rows["a"]
    assert placer.score_parts(row, silent)["NodeResourcesFit"] == (97 + 80) // 2
    book.place("quiet", (NodeShare("a", (0,)),), Requirements(), 0)
    assert row.free[:2] == row.allocatable[:2]
    assert placer.score_parts(row, silent)["NodeResourcesFit"] == (95 + 60) // 2


def test_devices_enter_the_score_where_the_profile_names_them() -> None:
    """By default a pod's devices are no part of it; whole ones are a resource by the name of their
    kind."""
    book = book_of(a_node("a", cpu=4000, memory=1000 * MIB, gpus=4))
    asking = book.class_of(needs(cpu=2000, gpus=1))
    row = book.table.rows["a"]
    plain = profile_of("least-allocated")
    fit = FitArgs(resources=(WeightedResource("cpu"), WeightedResource("nvidia.com/gpu", 3)))
    named = msgspec.structs.replace(
        plain, arguments=msgspec.structs.replace(plain.arguments, fit=fit)
    )
    assert Placer(book.table, plain).score_parts(row, asking)["NodeResourcesFit"] == (50 + 80) // 2
    assert (
        Placer(book.table, named).score_parts(row, asking)["NodeResourcesFit"] == (50 + 3 * 75) // 4
    )


def test_several_device_requests_are_served_from_what_the_others_leave() -> None:
    node = Node("a", {}, (Device("T4"), Device("T4"), Device("V100")))
    book = book_of(node)
    asks = Requirements(
        {}, (DeviceRequest(1, 400), DeviceRequest(1, 1000, ("T4",)), DeviceRequest(2, 100))
    )
    cls = book.class_of(asks)
    choice = Placer(book.table, "least-allocated").choose(cls)
    assert choice is not None
    assert choice.devices == ((0, 1000), (1, 100), (1, 400), (2, 100))
    assert Counter(book.table).how_many(cls) == 1  # no T4 is left entirely free


def test_a_request_for_more_than_a_whole_device_fits_nowhere() -> None:
    book = book_of(a_node("a", gpus=2))
    cls = book.class_of(Requirements({}, (DeviceRequest(1, 1500),)))
    assert Placer(book.table, "least-allocated").choose(cls) is None
    assert Counter(book.table).how_many(cls) == 0


def test_a_class_that_asks_for_nothing_is_counted_to_the_limit_and_no_further() -> None:
    free = Requirements()
    unlimited = book_of(a_node("a"), a_node("b"))
    assert Counter(unlimited.table).how_many(unlimited.class_of(free)) == COUNT_MAX
    limited = book_of(a_node("a", pods=3), a_node("b", pods=4))
    assert Counter(limited.table).how_many(limited.class_of(free)) == 7


def test_a_count_follows_what_is_placed_without_counting_all_again() -> None:
    book = book_of(*[a_node(f"n{i}", cpu=4000) for i in range(30)])
    cls = book.class_of(needs(cpu=1000))
    counter = Counter(book.table)
    counter.keep([cls])
    assert counter.count() == [120]
    book.place("web", (NodeShare("n3", (0, 1)), NodeShare("n4", (2,))), cls.requirements, 0)
    assert counter.count() == [117]
    assert counter.touched_last == 2


def test_a_model_seen_later_joins_the_views_that_allow_it() -> None:
    book = book_of(a_node("a", gpus=1, model="T4"))
    any_model, only = book.class_of(needs(gpus=1)), book.class_of(needs(gpus=1, models=("H100",)))
    counter = Counter(book.table)
    counter.keep([any_model, only])
    assert counter.count() == [1, 0]
    for bucket in observed([a_node("a", gpus=1, model="T4"), a_node("b", gpus=2, model="H100")]):
        book.observe_nodes(bucket, 0)
    assert counter.count() == [3, 2]


def test_a_toleration_of_no_seconds_bears_nothing() -> None:
    taint = (Taint("a", "NoExecute"),)
    assert tolerates(taint, (Toleration("a", "Exists", seconds=5),))
    assert not tolerates(taint, (Toleration("a", "Exists", seconds=0),))
    assert tolerates((Taint("a", "PreferNoSchedule"),), ())


def test_a_bucket_outside_its_count_says_nothing() -> None:
    book = Occupancy()
    assert not book.observe_nodes(NodesObserved("oslo", 4, 4, (a_node("a"),)), 0)
    assert not book.observe_nodes(NodesObserved("oslo", 0, 0, (a_node("a"),)), 0)
    assert not book.known


def test_the_best_few_outlast_what_was_kept_of_them() -> None:
    """Each placing takes the best node from the top; when too few of the kept ones are left, the
    others are ranked again."""
    book = book_of(*[a_node(f"n{i:02}", cpu=1000 + 10 * i, memory=100) for i in range(80)])
    cls = book.class_of(needs(cpu=900))
    kept = Placer(book.table, "least-allocated")
    for number in range(80):
        ranked = [choice.row.name for choice in kept.ranked(cls, 4)]
        anew = Placer(book.table, "least-allocated").ranked(cls, 80)
        assert ranked == [choice.row.name for choice in anew[:4]]
        assert len(anew) == 80 - number
        book.place(f"b{number}", (NodeShare(ranked[0], (0,)),), cls.requirements, 0)
    assert kept.ranked(cls, 4) == []


def test_a_slot_whose_node_went_is_no_candidate_whatever_is_asked() -> None:
    nodes = [a_node(f"n{i}") for i in range(3)]
    book = book_of(*nodes)
    for bucket in observed(nodes[2:]):
        book.observe_nodes(bucket, 0)
    placer = Placer(book.table, "least-allocated")
    nobody_has = book.class_of(Requirements({"example.com/port": 1}))
    assert placer.diagnose(nobody_has) == Diagnosis(1, 0, {"InsufficientResources": 1})
    assert (
        message(placer, nobody_has) == "0/1 nodes are available: 1 Insufficient example.com/port."
    )
    assert placer.diagnose(book.class_of(Requirements())) == Diagnosis(1, 1, {})
