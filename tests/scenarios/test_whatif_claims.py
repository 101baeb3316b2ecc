"""A what-if in which node claims become nodes: what was asked for comes, in both closed loops, and
nodes that came of recorded claims do not come a second time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest
import pytest_asyncio
from tests.pool_world import BIG, SMALL, a_pool, catalogue_policy, pool_policy
from tests.told_plane import BUCKETS, ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.node import Node
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.engine.provisioning.simulated_nodes import by_name, delivered
from wharfinger.events.cluster_state import into_buckets
from wharfinger.events.decisions import NodeClaimRequested
from wharfinger.events.policies import PolicyApplied
from wharfinger.history.changes import ChangeError, Changes, ProfileChanges, changes_of
from wharfinger.history.points import HistoryPoint
from wharfinger.history.propose import objective_of
from wharfinger.history.whatif import WhatIf, what_if
from wharfinger.kernel.recover import RecordedRound
from wharfinger.runtime.ledger import LedgerError

pytestmark = pytest.mark.integration

HOW = ReplicaScheduling("Divided", "Aggregated")
POLICY = a_policy("where", Placement(replicas=HOW))
TYPES = (SMALL, BIG)
AFTER_S = 60
STANDING = nodes("dock", "own", cpu=2000)


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    opened = await ToldPlane.opened(database_url)
    yield opened
    await opened.ledger.close()


async def short_of_nodes(
    plane: ToldPlane, policy: PolicyApplied = POLICY
) -> list[NodeClaimRequested]:
    """A cluster with two cores and a pool is asked for ten replicas of one core. What it claims."""
    await plane.tell(a_cluster("dock"), *STANDING)
    await plane.tell(policy, catalogue_policy(TYPES), pool_policy(a_pool()))
    rounds = await plane.tell(a_binding("web", 10, policy), after_s=10)
    return claims(rounds)


def claims(rounds: Iterable[RecordedRound]) -> list[NodeClaimRequested]:
    decided = [d.data for recorded in rounds for d in recorded.round.decisions]
    return [data for data in decided if isinstance(data, NodeClaimRequested)]


def unplaced(result: WhatIf) -> tuple[int | None, int | None, int | None]:
    figure = result.figure("unplaced")
    return figure.recorded, figure.unchanged, figure.changed


async def asked(plane: ToldPlane, *with_: str) -> WhatIf:
    to = HistoryPoint("now", at=plane.time.at)
    return await what_if(plane.ledger, changes_of(with_) if with_ else Changes(), to=to)


async def test_what_is_claimed_comes_where_it_is_asked_for(plane: ToldPlane) -> None:
    assert await short_of_nodes(plane)
    await plane.wait(4 * AFTER_S)
    without = await asked(plane)
    assert unplaced(without) == (8, 8, 8)
    assert any("provides-after" in note for note in without.notes)
    with_nodes = await asked(plane, f"provides-after={AFTER_S}")
    assert unplaced(with_nodes) == (8, 0, 0)
    assert any(f"a node after {AFTER_S} s" in note for note in with_nodes.notes)
    assert with_nodes.id != without.id


async def test_a_node_that_came_of_a_recorded_claim_does_not_come_twice(plane: ToldPlane) -> None:
    claimed = await short_of_nodes(plane)
    await plane.wait(AFTER_S - 1)
    came = [delivered(one, by_name(TYPES), plane.time.at) for one in claimed]
    there = [node for bucket in STANDING for node in bucket.nodes]
    made: list[Node] = [node for node in came if node is not None]
    assert len(made) == len(claimed) > 0
    await plane.tell(*into_buckets("dock", [*there, *made], BUCKETS), after_s=1)
    await plane.wait(10 * AFTER_S)
    result = await asked(plane, f"provides-after={AFTER_S}")
    assert unplaced(result) == (0, 0, 0)
    hours = result.figure("node-hours")
    assert hours.recorded == hours.unchanged == hours.changed
    assert (result.drifted, result.drifted_nodes) == (0, 0)
    recorded, *loops = [
        run.samples[-1].total for run in (result.recorded, result.unchanged, result.changed)
    ]
    assert [recorded, recorded] == loops, "of the same nodes the same part is in use"


def test_seconds_are_a_number() -> None:
    with pytest.raises(ChangeError, match="provides-after"):
        changes_of(["provides-after=soon"])


def test_nothing_is_proposed_by_an_objective_by_which_staying_is_best() -> None:
    with pytest.raises(LedgerError, match="expected one of spread, pack, cost, even, got 'moves'"):
        objective_of("moves")


async def test_where_nothing_is_claimed_the_recorded_nodes_are_not_there(plane: ToldPlane) -> None:
    """Ten of the eighteen cores of dock and quay; with dock's claimed nodes it would be fewer."""
    await plane.tell(a_cluster("quay"), *nodes("quay", "wide", cpu=16_000))
    only_dock = ClusterAffinity(cluster_names=("dock",))
    claimed = await short_of_nodes(plane, a_policy("where", Placement((only_dock,), replicas=HOW)))
    assert claimed
    await plane.wait(AFTER_S - 1)
    came = [delivered(one, by_name(TYPES), plane.time.at) for one in claimed]
    there = [node for bucket in STANDING for node in bucket.nodes]
    await plane.tell(*into_buckets("dock", [*there, *filter(None, came)], BUCKETS), after_s=1)
    await plane.wait(10 * AFTER_S)
    elsewhere = a_policy(
        "where", Placement((ClusterAffinity(cluster_names=("quay",)),), replicas=HOW)
    )
    changes = Changes(
        (elsewhere.policy,), ProfileChanges(provides_after_s=AFTER_S), ("elsewhere.yaml",)
    )
    result = await what_if(plane.ledger, changes, to=HistoryPoint("now", at=plane.time.at))
    assert unplaced(result) == (0, 0, 0)
    assert result.changed.samples[-1].total[0] == round(1000 * 10 / 18)
