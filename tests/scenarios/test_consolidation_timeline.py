"""`plan consolidate --over`: what consolidation would do over time, from a ledger on which nothing
is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import StringIO

import msgspec
import pytest
import pytest_asyncio
from rich.console import Console
from tests.pool_world import a_pool, catalogue_policy, pool_policy
from tests.scenarios.test_world_consolidates import POOL, TYPES, node, wanted
from tests.told_plane import SECOND, START, ToldPlane, a_cluster

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import NodeBudget, NodePoolPolicy
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.workload import Requirements
from wharfinger.events.cluster_state import PodsObserved, into_buckets
from wharfinger.history.consolidation_preview import outlooks
from wharfinger.history.consolidation_timeline import ConsolidationTimeline, consolidation_timeline
from wharfinger.history.names import UnknownNameError
from wharfinger.history.points import HistoryPoint
from wharfinger.history.savings import savings
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.world import World
from wharfinger_cli.consolidate_over import timeline_page, timeline_plain
from wharfinger_cli.output import as_json

pytestmark = pytest.mark.integration

HOUR_S = 3600
DAY_S = 24 * HOUR_S
CENTS_40, CENTS_10 = 400_000_000, 100_000_000
"""Of a large node and a small one, in billionths of a dollar an hour."""


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    opened = await ToldPlane.opened(database_url)
    yield opened
    await opened.ledger.close()


@pytest_asyncio.fixture
async def provided(database_url: str) -> AsyncIterator[ToldPlane]:
    """With a provider: claims become nodes, and nodes that may go are gone, after a minute."""
    opened = await ToldPlane.opened(database_url)
    opened.world = World(recorded=True, at=START, provides_after_s=60)
    yield opened
    await opened.ledger.close()


async def a_fleet(
    plane: ToldPlane,
    nodes: int = 3,
    pool: NodePoolPolicy = POOL,
    replicas: int = 18,
    lease_s: int | None = None,
) -> None:
    """Large nodes of eight cores, filled, of which two thirds of the replicas have just left."""
    there = [msgspec.structs.replace(node(f"n{i}"), created_us=START) for i in range(nodes)]
    await plane.tell(pool_policy(pool), catalogue_policy(TYPES), a_cluster("oslo", lease_s))
    await plane.tell(*into_buckets("oslo", there, 2))
    await plane.tell(wanted("web", replicas))
    await plane.tell(wanted("web", replicas // 3))


async def over(plane: ToldPlane, span_s: int = DAY_S, **said: object) -> ConsolidationTimeline:
    return await consolidation_timeline(plane.ledger, plane.time.at, span_s, **said)  # type: ignore[arg-type]


def bytes_of(found: ConsolidationTimeline) -> str:
    return as_json(timeline_plain(found))


async def in_the_ledger(plane: ToldPlane) -> list[tuple[str, int, int]]:
    return sorted((h.stream, h.round, h.seq) for h in await plane.ledger.heads())


def oslo(plane: ToldPlane) -> ClusterStageState:
    return next(state for state in plane.world.cluster_states() if state.cluster == "oslo")


async def test_passes_follow_each_other_until_nothing_pays_any_more(plane: ToldPlane) -> None:
    await a_fleet(plane)
    before = await in_the_ledger(plane)
    found = await over(plane)
    assert await in_the_ledger(plane) == before
    (one,) = found.clusters
    assert (one.before.nodes, one.before.price) == (3, 3 * CENTS_40)
    assert one.after.cost == 3 * CENTS_10
    assert one.after.survey.commands == ()
    assert one.after.bound is not None
    assert {change.outcome for change in found.changes} == {"done"}
    assert found.changes[-1].cost == one.after.cost
    assert found.saved == found.unchanged - found.spent > 0
    assert sum(len(change.removed) for change in found.changes) - sum(
        len(change.made) for change in found.changes
    ) == (one.before.nodes - one.after.nodes)


async def test_each_change_is_a_row_with_the_cost_after_it(plane: ToldPlane) -> None:
    await a_fleet(plane)
    found = await over(plane)
    page = shown(found, every=True)
    assert page[0] == "from 2025-06-15 15:06:44 to 2025-06-16 15:06:44 UTC"
    assert page[1].startswith("3 nodes would go and 3 come, saves ")
    assert "oslo  3 nodes, 1.2 $/h -> 3 nodes, 0.3 $/h" in page[3]
    rows = [line for line in page if line.startswith("2025-06")]
    assert len(rows) == len(found.changes)
    assert all(row.rstrip().endswith("done") for row in rows)
    assert " 0.3 " in rows[-1]


async def test_where_nothing_would_go_it_says_so(plane: ToldPlane) -> None:
    assert shown(await over_nothing(plane))[0].startswith("no cluster has nodes of a pool")
    await a_fleet(plane, pool=msgspec.structs.replace(POOL, budgets=(NodeBudget("0"),)))
    assert shown(await over(plane))[1] == "none of 3 nodes would go"


async def over_nothing(plane: ToldPlane) -> ConsolidationTimeline:
    await plane.tell(a_cluster("oslo"))
    return await over(plane)


def shown(found: ConsolidationTimeline, *, every: bool = False) -> list[str]:
    console = Console(width=200, file=StringIO())
    for part in timeline_page(found, every=every):
        console.print(part)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


async def test_asked_twice_it_prints_the_same_bytes(plane: ToldPlane) -> None:
    await a_fleet(plane)
    first, second = await over(plane), await over(plane)
    assert bytes_of(first) == bytes_of(second)
    assert bytes_of(first) != bytes_of(await over(plane, 600))


async def test_a_past_moment_gives_the_same_timeline_whatever_came_after(plane: ToldPlane) -> None:
    await a_fleet(plane)
    begin = HistoryPoint("then", at=plane.time.at)
    first = await over(plane, begin=begin)
    await plane.tell(wanted("web", 1), after_s=120)
    assert bytes_of(await over(plane, begin=begin)) == bytes_of(first)


async def test_over_no_time_it_is_the_plan_of_now(plane: ToldPlane) -> None:
    await a_fleet(plane)
    (seen,) = await outlooks(plane.ledger, plane.time.at)
    found = await over(plane, 0)
    assert found.changes == ()
    assert [one.after for one in found.clusters] == [seen]
    assert (found.saved, found.spent) == (0, 0)


async def test_the_first_to_go_are_those_of_the_plan_of_now(plane: ToldPlane) -> None:
    await a_fleet(plane, nodes=4, replicas=24)
    await plane.wait(35)
    (seen,) = await outlooks(plane.ledger, plane.time.at)
    found = await over(plane)
    now = {(command.method, command.nodes) for command in seen.survey.commands}
    begun = [change for change in found.changes if change.at == found.changes[0].at]
    assert {(change.method, tuple(change.nodes)) for change in begun} <= now != set()


async def test_what_is_shown_is_what_the_plane_then_does(provided: ToldPlane) -> None:
    """The plane lives on for a day with a provider. Only the first command may come some seconds
    earlier, because the plane has looked before."""
    await a_fleet(provided)
    found = await over(provided)
    await provided.wait(DAY_S)
    done = (await savings(provided.ledger, provided.time.at)).done
    assert [(c.method, c.nodes) for c in found.changes] == [
        (a.decided.method, [node.name for node in a.decided.nodes]) for a in done
    ]
    assert [c.moves for c in found.changes] == [a.moved for a in done]
    assert found.savings.realised == sum(a.realised for a in done)
    assert all(abs(c.at - a.at) <= 30 * SECOND for c, a in zip(found.changes, done, strict=True))
    (seen,) = await outlooks(provided.ledger, provided.time.at)
    assert (seen.nodes, seen.cost) == (found.clusters[0].after.nodes, found.clusters[0].after.cost)


async def test_an_idle_time_that_runs_already_is_not_begun_again(plane: ToldPlane) -> None:
    pool = msgspec.structs.replace(POOL, empty_after_s=HOUR_S)
    await a_fleet(plane, pool=pool)
    await plane.wait(50 * 60)
    found = await over(plane)
    first = (found.changes[0].at - found.begin) // SECOND
    assert 9 * 60 < first <= 11 * 60


async def test_nothing_goes_before_the_window_of_a_budget_ends(plane: ToldPlane) -> None:
    """No node goes between 15:00 and 21:00 UTC; it is 15:06."""
    budgets = (NodeBudget("100%"), NodeBudget("0", schedule="0 15 * * *", duration_s=6 * HOUR_S))
    await a_fleet(plane, pool=msgspec.structs.replace(POOL, budgets=budgets))
    found = await over(plane, 2 * DAY_S)
    ends = START - START % (DAY_S * SECOND) + 21 * HOUR_S * SECOND
    assert found.changes
    assert ends <= found.changes[0].at <= ends + 60 * SECOND
    for change in found.changes:
        assert not 15 <= (change.at // SECOND % DAY_S) / HOUR_S < 21
    assert (await over(plane, 5 * HOUR_S)).changes == ()


async def test_nodes_that_expire_within_the_span_go(plane: ToldPlane) -> None:
    pool = a_pool("general", empty_after_s=None, expire_after_s=3 * DAY_S, digest="w1")
    await a_fleet(plane, nodes=1, pool=pool, replicas=3)
    assert (await over(plane, DAY_S)).changes == ()
    found = await over(plane, 12 * DAY_S)
    assert {change.method for change in found.changes} == {"expiry"}
    (one,) = found.clusters
    assert one.after.nodes == 1
    days = [(change.at - START) / (DAY_S * SECOND) for change in found.changes]
    assert [round(day, 1) for day in days] == [3.0, 6.0, 9.0]


async def test_clusters_with_a_lease_go_on_reporting(plane: ToldPlane) -> None:
    await a_fleet(plane, lease_s=40)
    found = await over(plane)
    assert found.clusters[0].after.cost == 3 * CENTS_10
    silent = await consolidation_timeline(plane.ledger, plane.time.at + DAY_S * SECOND, DAY_S)
    assert silent.clusters[0].after.cost == 3 * CENTS_10


async def test_under_another_policy(plane: ToldPlane) -> None:
    await a_fleet(plane)
    none = msgspec.structs.replace(POOL, budgets=(NodeBudget("0"),))
    found = await over(plane, policies=(pool_policy(none).policy,))
    assert found.changes == ()
    assert found.saved == 0


async def test_a_claim_that_was_open_becomes_a_node(plane: ToldPlane) -> None:
    await a_fleet(plane)
    await plane.tell(wanted("web", 40), after_s=30)
    await plane.wait(30)
    opened = oslo(plane).pools.claims
    assert opened
    found = await over(plane)
    made = [name for change in found.changes for name in change.made]
    assert set(opened) <= set(made)
    first = next(change for change in found.changes if change.method == "provisioning")
    assert first.finished is not None
    assert first.finished - found.begin < 60 * SECOND
    assert first.moves == 0
    assert found.saved < 0


async def test_a_command_under_way_is_carried_to_its_end(plane: ToldPlane) -> None:
    await a_fleet(plane, nodes=1, replicas=3)
    await plane.wait(90)
    (running,) = oslo(plane).running.values()
    assert running.decided.claims
    found = await over(plane)
    change = found.changes[0]
    assert (change.outcome, change.at) == ("done", running.at)
    assert change.removed == ["n0"]
    assert change.made == list(running.decided.claims)
    assert change.cost == CENTS_10


async def test_pods_that_were_reported_of_replicas_keep_no_node(plane: ToldPlane) -> None:
    """A running cluster reports the pods of its replicas; in a simulation none reports that they
    have left."""
    await a_fleet(plane, nodes=1, replicas=3)
    asks = Requirements({"cpu": 1000, "memory": 1 << 30})
    own = Pod("uid-0", "web-0", asks, "n0", binding="web", ordinal=0)
    await plane.tell(PodsObserved("oslo", "n0", (own,)))
    assert (await over(plane)).clusters[0].after.cost == CENTS_10


async def test_pods_of_others_are_drained(plane: ToldPlane) -> None:
    await a_fleet(plane, nodes=1, replicas=3)
    upkeep = PodUpkeep(owners=(Owner("ReplicaSet", "rs"),))
    other = Pod("uid-1", "other-1", Requirements({"cpu": 100}), "n0", upkeep=upkeep)
    await plane.tell(PodsObserved("oslo", "n0", (other,)))
    found = await over(plane)
    assert found.clusters[0].after.cost == CENTS_10


async def test_of_one_cluster_only(plane: ToldPlane) -> None:
    await a_fleet(plane)
    await plane.tell(a_cluster("bergen"), *into_buckets("bergen", [a_bergen()], 2))
    both = await over(plane)
    assert [one.cluster for one in both.clusters] == ["bergen", "oslo"]
    only = await over(plane, cluster="bergen")
    assert {change.cluster for change in only.changes} == {"bergen"}
    assert only.changes == tuple(c for c in both.changes if c.cluster == "bergen")
    with pytest.raises(UnknownNameError, match="no cluster is called turku"):
        await over(plane, cluster="turku")


def a_bergen() -> Node:
    return node("b0")
