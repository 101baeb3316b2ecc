"""The array way chooses what the framework chooses, whatever is asked of it, pod after pod; and its
shortcuts change nothing.

Every example is a small cluster with everything that plugins look at. The framework asks each
plugin about each node by name; the arrays must find the same nodes feasible, refuse the others for
the same plugin, and give the same totals.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import observed
from tests.hunting import examples
from tests.node_rules import (
    Both,
    running,
    some_nodes,
    some_objects,
    some_profiles,
    some_requirements,
)

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import Profile
from wharfinger.engine import machine_code
from wharfinger.engine.framework.profile import default_profile
from wharfinger.engine.nodes import kernels, vectors
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.engine.nodes.place import Placer
from wharfinger.events.cluster_state import PodsObserved


@settings(max_examples=examples(80), deadline=None)
@given(some_nodes(), some_objects(), some_profiles(), st.data())
def test_both_ways_choose_the_same_pod_after_pod(
    nodes: list[Node], objects: ClusterObjects, profile: Profile, data: st.DataObject
) -> None:
    both = Both(nodes, objects, profile)
    both.run(running(nodes, data))
    for requirements in data.draw(st.lists(some_requirements(), min_size=1, max_size=4)):
        for _ in range(data.draw(st.integers(1, 3))):
            both.agree(requirements)


@settings(max_examples=examples(60), deadline=None)
@given(some_nodes(), some_objects(), some_profiles(), st.data())
def test_a_batch_in_order_is_one_at_a_time(
    nodes: list[Node], objects: ClusterObjects, profile: Profile, data: st.DataObject
) -> None:
    """And more of them are placed, if not in order; the table stays as it was."""
    both = Both(nodes, objects, profile)
    both.run(running(nodes, data))
    table = both.book.table
    asked = data.draw(
        st.lists(
            st.tuples(some_requirements(simple=True), st.integers(1, 4)), min_size=1, max_size=4
        )
    )
    requests = [(both.book.class_of(requirements), count) for requirements, count in asked]
    before = _seen(table)
    found = both.placer.place_batch(requests)
    assert _seen(table) == before
    together = sum(map(len, found))
    alone = [[both.agree(requirements) for _ in range(count)] for requirements, count in asked]
    one_by_one = [[name for name in names if name is not None] for names in alone]
    assert together >= sum(map(len, one_by_one))
    if together == sum(map(len, one_by_one)):
        assert [[choice.row.name for choice in choices] for choices in found] == one_by_one


def _seen(table: NodeTable) -> list[Any]:
    size = table.size
    carried = sorted(table.tallies.carried.items(), key=lambda item: repr(item[0]))
    tallies = [counts for _, (_, tally) in carried if any(counts := tally.by_slot[:size].tolist())]
    rows = [
        (row.free, row.scored, row.device_free, row.whole_left, len(row.classes))
        for row in table.rows.values()
    ]
    return [table.free[:, :size].tolist(), table.scored[:, :size].tolist(), repr(rows), tallies]


@settings(max_examples=examples(50), deadline=None)
@given(some_nodes(), some_objects(), st.data())
def test_counts_that_followed_are_those_counted_anew(
    nodes: list[Node], objects: ClusterObjects, data: st.DataObject
) -> None:
    """Pods come, go and are relabelled, nodes go and come back; a book that has seen only the end
    agrees."""
    both = Both(nodes, objects, default_profile())
    wanted = data.draw(st.lists(some_requirements(), min_size=1, max_size=3))
    for step in range(data.draw(st.integers(1, 6))):
        for requirements in wanted:
            both.placer.look(both.book.class_of(requirements))
        node = data.draw(st.sampled_from(nodes))
        here = data.draw(st.lists(st.sampled_from(wanted), max_size=2))
        pods = tuple(
            Pod(
                f"{node.name}-{i}-{step}",
                "p",
                msgspec.structs.replace(asked, devices=()),
                node.name,
            )
            for i, asked in enumerate(here)
        )
        both.book.observe_pods(PodsObserved("oslo", node.name, pods))
        if data.draw(st.integers(0, 3)) == 0:
            gone = [n for n in nodes if n.name != node.name]
            for event in (*observed(gone), *observed(nodes)):
                both.book.observe_nodes(event, 0)
    fresh = Both(nodes, objects, default_profile())
    for name, pods in both.book.pods.items():
        fresh.book.observe_pods(PodsObserved("oslo", name, pods))
    for requirements in wanted:
        kept, anew = (b.placer.look(b.book.class_of(requirements)) for b in (both, fresh))
        for name, row in both.book.table.rows.items():
            other = fresh.book.table.rows[name].slot
            assert kept.verdicts[row.slot] == anew.verdicts[other]
            if not kept.verdicts[row.slot]:
                assert kept.scores[row.slot] == anew.scores[other]


@pytest.fixture(scope="module")
def compiled() -> Any:
    assert machine_code.why_plain(kernels.__name__) == ""
    return machine_code.compiled(kernels)


@settings(max_examples=examples(50), deadline=None)
@given(some_nodes(), some_objects(), some_profiles(), st.data())
def test_machine_code_and_the_plain_functions_place_alike(
    compiled: Any, nodes: list[Node], objects: ClusterObjects, profile: Profile, data: st.DataObject
) -> None:
    both = Both(nodes, objects, profile)
    both.run(running(nodes, data))
    asked = data.draw(
        st.lists(
            st.tuples(some_requirements(simple=True), st.integers(1, 4)), min_size=1, max_size=4
        )
    )
    requests = [(both.book.class_of(requirements), count) for requirements, count in asked]
    found = []
    for way in (compiled, kernels, machine_code.plain(kernels, vectors)):
        placer = Placer(both.book.table, profile)
        placer.kernels = way
        batches = [
            [(c.row.name, c.score, c.devices) for c in choices]
            for choices in placer.place_batch(requests)
        ]
        looks = [placer.look(cls) for cls, _ in requests]
        found.append(
            (
                batches,
                [
                    (look.verdicts.tolist(), look.scores[look.verdicts == 0].tolist())
                    for look in looks
                ],
            )
        )
    assert found[0] == found[1] == found[2]


def test_the_quick_pass_is_the_exact_one() -> None:
    """Amounts of any size up to the bound: vectors of doubles give the integers."""
    random = np.random.default_rng(7)
    size = 4000
    alloc = np.vstack(
        (
            random.integers(1, 2**20, size),
            random.integers(1, kernels.QUICK_MAX, size),
            np.full(size, 2**53),
        )
    )
    alloc = alloc.astype(np.int64)
    free = alloc - (alloc * random.random((3, size))).astype(np.int64) * random.integers(
        0, 2, (3, size)
    )
    held = (alloc[:2] * random.random((2, size)) * 1.2).astype(np.int64)
    nothing, static = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    empty = np.zeros((0, 2), dtype=np.int64)
    for strategy in (kernels.LEAST, kernels.MOST):
        for cpu, memory in ((100, 2**28), (1, 1), (0, 2**45), (2**19, 0)):
            fit = np.array([(0, 0, 2, cpu), (0, 1, 3, memory)])
            balance = np.array([(0, cpu), (1, memory)])
            asks = np.array([(0, cpu, 5), (1, memory, 5), (2, 1, 5)])
            answers = []
            for quick, judge in ((0, kernels.judge), (1, kernels.judge), (1, vectors.judge)):
                form = np.array([strategy, 2, 3, 0, quick, cpu, memory, 0, 0])
                verdicts, scores = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
                inverse = 1.0 / alloc[:2]
                way = (
                    static,
                    free,
                    alloc,
                    inverse,
                    held,
                    nothing,
                    asks,
                    form,
                    fit,
                    balance,
                    empty,
                    np.zeros((2, size), dtype=np.int64),
                    np.zeros(0, dtype=np.int64),
                    verdicts,
                    scores,
                )
                judge(size, *way)  # type: ignore[no-untyped-call]
                answers.append((verdicts.tolist(), scores[verdicts == 0].tolist()))
            assert answers[0] == answers[1] == answers[2]


def test_the_kernels_that_are_compiled_are_all_there_are() -> None:
    ours = kernels.__name__
    functions = [
        name for name, value in vars(kernels).items() if getattr(value, "__module__", "") == ours
    ]
    assert sorted(kernels.ORDER) == sorted(functions)
    assert set(kernels.SIGNATURES) <= set(kernels.ORDER)
