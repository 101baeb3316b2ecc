"""Laws of consolidation over time: it ends where single passes end, a span can be divided, and no
budget is exceeded in any window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.scenarios.test_world_consolidates import POOL, START, Fleet, S, a_fleet, node, wanted

from wharfinger.domain.node_pool import INSTANCE_TYPE_LABEL, NodeBudget
from wharfinger.engine.disruption.cluster_snapshot import ClusterSnapshot
from wharfinger.engine.disruption.methods import survey
from wharfinger.history.consolidation_timeline import ConsolidationTimeline, PoolChange, played
from wharfinger.stages.cluster.cluster_snapshot import scene

OSLO = ("cluster/oslo",)
HOUR_S = 3600
LONG_S = 3 * 24 * HOUR_S

Workload = tuple[int, int]
"""Replicas, and the cpu of each in milli-cores."""

WORKLOAD = st.tuples(st.integers(1, 8), st.sampled_from([300, 500, 700, 1000, 1500, 3000]))
WORKLOADS = st.lists(WORKLOAD, min_size=1, max_size=4)
SIZES = st.lists(st.sampled_from(["large", "small"]), min_size=2, max_size=6)

BUDGETS = (
    NodeBudget("50%"),
    NodeBudget("1", schedule="0 6 * * *", duration_s=12 * HOUR_S),
    NodeBudget("0", schedule="0 8 * * *", duration_s=8 * HOUR_S),
)
"""Half of the nodes at once; from 6:00 to 18:00 UTC one; from 8:00 to 16:00 none."""


def half_left(
    sizes: Sequence[str],
    workloads: Sequence[Workload],
    budgets: Sequence[NodeBudget] = POOL.budgets,
    after_s: int = 200,
) -> Fleet:
    """Nodes that were filled, and `after_s` seconds later half of the replicas have left."""
    pool = msgspec.structs.replace(POOL, budgets=tuple(budgets))
    nodes = [
        msgspec.structs.replace(node(f"n{i}", size), created_us=START)
        for i, size in enumerate(sizes)
    ]
    before = [wanted(f"w{i}", count, cpu) for i, (count, cpu) in enumerate(workloads)]
    after = [wanted(f"w{i}", -(-count // 2), cpu) for i, (count, cpu) in enumerate(workloads)]
    return a_fleet(*nodes, pool=pool, workloads=before).wait(after_s).given(*after)


def seen(fleet: Fleet) -> ClusterSnapshot:
    return scene(fleet.oslo, fleet.oslo.at)


def kinds(found: ClusterSnapshot) -> list[str]:
    return sorted(there.labels[INSTANCE_TYPE_LABEL] for there in found.nodes)


def passed(found: ClusterSnapshot) -> ClusterSnapshot:
    """Single passes, each carried out at once, an hour apart, until one finds nothing."""
    made = 0
    while commands := survey(found).commands:
        nodes = {there.name: there for there in found.nodes}
        pods = {pod.uid: pod for pod in found.pods}
        for command in commands:
            new = []
            for claim in command.replacements:
                made += 1
                came = node(f"new-{made}", claim.instance_types[0])
                nodes[came.name] = msgspec.structs.replace(came, created_us=found.at)
                new.append(came.name)
            for move in command.moves:
                kept = not move.target.startswith("new:")
                target = move.target if kept else new[int(move.target[4:])]
                pods[move.pod] = msgspec.structs.replace(pods[move.pod], node=target)
            for name in command.nodes:
                del nodes[name]
        found = replace(
            found, at=found.at + HOUR_S * S, nodes=tuple(nodes.values()), pods=tuple(pods.values())
        )
    return found


@settings(max_examples=examples(12), deadline=None)
@given(SIZES, WORKLOADS)
def test_at_the_end_a_single_pass_finds_nothing(
    sizes: list[str], workloads: list[Workload]
) -> None:
    fleet = half_left(sizes, workloads)
    (one,) = played(fleet.world, OSLO, LONG_S).clusters
    assert one.after.survey.commands == survey(seen(fleet)).commands == ()
    assert one.after.cost <= one.before.price


@settings(max_examples=examples(12), deadline=None)
@given(st.integers(2, 5), WORKLOAD)
def test_of_equal_nodes_and_one_workload_it_ends_with_the_nodes_of_repeated_passes(
    nodes: int, workload: Workload
) -> None:
    """Of a mixed fleet the passes may end elsewhere: which node goes first depends on what is idle
    then."""
    fleet = half_left(["large"] * nodes, [workload])
    fleet.world.wait(fleet.world.at + 35 * S)
    expected = kinds(passed(replace(seen(fleet), at=fleet.world.at)))
    played(fleet.world, OSLO, LONG_S)
    assert kinds(seen(fleet)) == expected


@settings(max_examples=examples(8), deadline=None)
@given(SIZES, WORKLOADS, st.integers(0, 2 * HOUR_S))
def test_a_span_can_be_divided(sizes: list[str], workloads: list[Workload], first_s: int) -> None:
    whole = played(half_left(sizes, workloads).world, OSLO, LONG_S)
    world = half_left(sizes, workloads).world
    parts = [played(world, OSLO, first_s), played(world, OSLO, LONG_S - first_s)]
    assert (parts[0].begin, parts[0].end, parts[1].end) == (whole.begin, parts[1].begin, whole.end)
    assert list(dict.fromkeys(key for part in parts for key in decided(part))) == decided(whole)
    assert parts[1].clusters[0].after == whole.clusters[0].after
    assert abs(sum(part.spent for part in parts) - whole.spent) <= 2, "two divisions, not one"


def decided(found: ConsolidationTimeline) -> list[tuple[int, str, tuple[str, ...]]]:
    """Commands, without what was under way at the beginning counted twice."""
    return [(c.at, c.method, tuple(c.nodes)) for c in found.changes if c.account is not None]


@settings(max_examples=examples(10), deadline=None)
@given(SIZES, WORKLOADS, st.integers(0, 23))
def test_no_budget_is_exceeded_in_any_window(
    sizes: list[str], workloads: list[Workload], hour: int
) -> None:
    fleet = half_left(sizes, workloads, BUDGETS, after_s=hour * HOUR_S + 200)
    found = played(fleet.world, OSLO, LONG_S)
    for change in found.changes:
        if change.account is not None and change.at >= found.begin:
            assert len(list(going(found, change.at))) <= allowed(found, change.at)


def going(found: ConsolidationTimeline, at: int) -> Iterator[str]:
    """The nodes that are about to go at `at`."""
    for change in found.changes:
        if change.at <= at and (change.finished is None or change.finished > at):
            yield from change.nodes


def allowed(found: ConsolidationTimeline, at: int) -> int:
    hour = at // S // HOUR_S % 24
    if 8 <= hour < 16:
        return 0
    (one,) = found.clusters
    there = one.before.nodes + sum(len(c.made) for c in found.changes if c.at <= at)
    gone = sum(len(c.removed) for c in found.changes if is_over(c, at))
    half = -(-(there - gone) // 2)
    return min(1, half) if 6 <= hour < 18 else half


def is_over(change: PoolChange, at: int) -> bool:
    return change.finished is not None and change.finished <= at
