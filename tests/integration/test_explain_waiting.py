"""What the ledger says of a request that waits: for what, and until when at the latest."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from io import StringIO

import pytest
import pytest_asyncio
from rich.console import Console
from tests.scenarios.fleet_plane import AGGREGATED, STREAM, FleetPlane, a_binding, a_cluster, room
from tests.scenarios.test_fleet_counts import LARGE, counted
from tests.told_plane import SECOND, ToldPlane, a_policy, nodes
from tests.told_plane import a_binding as requested

from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.history.deciders import DECIDERS
from wharfinger.history.explain import Explained, Undecided, account, explain
from wharfinger.history.names import UnknownNameError
from wharfinger.history.points import HistoryPoint
from wharfinger.runtime.ledger import Ledger, LedgerError, SnapshotFollower
from wharfinger.runtime.ledger.follower import SnapshotCadence
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet.request_wait import RequestWait
from wharfinger_cli.explain import account_of, account_page, account_plain

pytestmark = pytest.mark.integration

BY_ROOM = Placement(replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True))
GOLD = a_policy("gold", BY_ROOM)
WEB = "shop/web-deployment"


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    plane = await ToldPlane.opened(database_url, FleetDecider(patience_s=30))
    yield plane
    await plane.ledger.close()


async def undecided(ledger: Ledger, name: str) -> Undecided:
    found = await account(ledger, name)
    assert isinstance(found, Undecided)
    return found


async def page_of(ledger: Ledger, name: str) -> str:
    console = Console(width=200, record=True, file=StringIO())
    for part in account_page(await account_of(ledger, name)):
        console.print(part)
    return console.export_text()


async def test_before_any_decision_it_is_said_what_it_waits_for(plane: ToldPlane) -> None:
    await plane.tell(GOLD)
    await plane.tell(requested("web", 2, GOLD))
    asked_at = plane.world.at
    found = await undecided(plane.ledger, "web")
    assert (found.binding, found.stream) == (WEB, "fleet/0")
    assert found.waiting == RequestWait(
        "clusters", (), asked_at, asked_at + 3 * SECOND, asked_at + 30 * SECOND
    )
    shown = await page_of(plane.ledger, "web")
    assert "none yet" in shown
    assert (
        "waits for the first cluster, since 2025-06-15 15:06:42; decided without it at "
        "2025-06-15 15:06:45, or at 2025-06-15 15:07:12 at the latest where other requests make "
        "it wait longer" in shown
    )
    plain = json.loads(json.dumps(account_plain(found)))
    assert plain["decision"] is None
    assert plain["waiting"] == {
        "for": "clusters",
        "clusters": [],
        "since": "2025-06-15T15:06:42.000000Z",
        "due": "2025-06-15T15:06:45.000000Z",
        "until": "2025-06-15T15:07:12.000000Z",
        "said": plain["waiting"]["said"],
    }
    with pytest.raises(UnknownNameError, match="nothing has been decided about shop/web"):
        await explain(plane.ledger, "web")


async def test_it_waits_for_counts_and_is_decided_when_they_come(plane: ToldPlane) -> None:
    await plane.tell(GOLD)
    await plane.tell(requested("web", 2, GOLD))
    await plane.tell(a_cluster("oslo"))
    found = await undecided(plane.ledger, WEB)
    assert found.waiting is not None
    assert (found.waiting.awaits, found.waiting.clusters) == ("first-counts", ("oslo",))
    waited = HistoryPoint("then", STREAM, found.round)
    await plane.tell(*nodes("oslo", "n-1"))
    decided = await account(plane.ledger, WEB)
    assert isinstance(decided, Explained)
    assert decided.waiting is None
    assert decided.decision.row.outcome == "scheduled"
    then = await account(plane.ledger, WEB, waited)
    assert then == found, "as it was said at that moment"
    with pytest.raises(UnknownNameError, match="its first decision came later"):
        await account(plane.ledger, WEB, HistoryPoint("1", STREAM, 1))


async def test_when_its_time_is_over_it_is_decided(plane: ToldPlane) -> None:
    await plane.tell(GOLD)
    await plane.tell(requested("web", 2, GOLD))
    found = await undecided(plane.ledger, WEB)
    assert found.waiting is not None
    assert found.waiting.due is not None
    await plane.wait((found.waiting.due - plane.world.at) / SECOND)
    decided = await account(plane.ledger, WEB)
    assert isinstance(decided, Explained)
    assert (decided.decision.row.outcome, decided.waiting) == ("refused", None)
    assert decided.decision.row.at == found.waiting.due


async def test_a_changed_request_waits_beside_the_decision_about_the_last(plane: ToldPlane) -> None:
    await plane.tell(GOLD)
    await plane.tell(requested("web", 2, GOLD))
    await plane.wait(5)  # refused without a cluster
    await plane.tell(requested("web", 3, GOLD))
    for at in (None, HistoryPoint("now")):
        found = await account(plane.ledger, WEB, at)
        assert isinstance(found, Explained)
        assert found.decision.row.outcome == "refused"
        assert found.waiting is not None
        assert found.waiting.awaits == "clusters"
        assert found.waiting.since == plane.world.at
    assert "its present request waits for the first cluster" in await page_of(plane.ledger, WEB)


async def test_what_was_withdrawn_while_it_waited_was_released(plane: ToldPlane) -> None:
    await plane.tell(GOLD)
    await plane.tell(requested("web", 2, GOLD))
    await plane.tell(BindingWithdrawn(WEB))
    found = await account(plane.ledger, WEB)
    assert isinstance(found, Explained)
    assert (found.decision.row.outcome, found.waiting) == ("released", None)


async def test_a_request_that_the_stage_has_not_read_waits_to_be_read(plane: ToldPlane) -> None:
    await plane.tell(GOLD, a_cluster("oslo"))
    await plane.ledger.accept([plane._submission(requested("web", 2, GOLD))])
    found = await undecided(plane.ledger, "web")
    assert found.waiting == RequestWait("reading", (), plane.world.at)
    assert "waits to be read by the fleet stage, since 2025-06-15 15:06:41" in await page_of(
        plane.ledger, "web"
    )


async def test_a_suspended_one_does_not_wait_and_says_why(plane: ToldPlane) -> None:
    await plane.tell(GOLD)
    asked = requested("web", 2, GOLD)
    await plane.tell(suspended(asked))
    found = await undecided(plane.ledger, WEB)
    assert found.waiting is None
    assert "it is suspended" in await page_of(plane.ledger, WEB)


def suspended(asked: BindingRequested) -> BindingRequested:
    from msgspec.structs import replace

    return BindingRequested(replace(asked.binding, suspended=True))


async def test_nothing_is_made_up_of_names_that_nobody_asked_for(plane: ToldPlane) -> None:
    with pytest.raises(UnknownNameError, match="no decision was ever taken"):
        await account(plane.ledger, "web")
    await plane.tell(GOLD, requested("web", 2, GOLD), requested("web-1", 2, GOLD))
    with pytest.raises(UnknownNameError, match="no decision was ever taken"):
        await account(plane.ledger, "db")
    other = a_policy("silver", BY_ROOM, "mill")
    await plane.tell(requested("web", 2, other))
    with pytest.raises(LedgerError, match="expected one binding"):
        await account(plane.ledger, "web")


# In a burst


async def written(ledger: Ledger, fleet: FleetPlane) -> None:
    await ledger.ensure_streams([STREAM])
    events = {event.id: event for recorded in fleet.rounds for event in recorded.events}
    for recorded in fleet.rounds:
        assert not (await ledger.commit([recorded.round], events)).fenced


async def test_in_a_burst_the_ledger_says_of_every_request_what_the_stage_would(
    database_url: str,
) -> None:
    """From snapshots, and without the other bindings where that suffices."""
    fleet = FleetPlane(FleetDecider(patience_s=30))
    for n in range(6):
        fleet.given(a_cluster(f"oslo-{n}"), counted(f"oslo-{n}", small=16, large=3, nodes=3))
    for n in range(12):
        fleet.when(
            a_binding(f"shop/web-{n}", 5, AGGREGATED),
            a_binding(f"shop/db-{n}", 3, AGGREGATED, requirements=LARGE, priority=n % 2),
        )
    fleet.when(room("oslo-2", 3))
    said = {
        name: fleet.decider.wait_of(fleet.state, name, len(fleet.last))
        for name in fleet.state.bindings
    }
    assert {wait.awaits for wait in said.values() if wait is not None} == {"counts", "requests"}
    ledger = await Ledger.open(database_url, "tests")
    try:
        await written(ledger, fleet)
        follower: SnapshotFollower[object] = SnapshotFollower(
            ledger, DECIDERS["fleet/"], STREAM, cadence=SnapshotCadence(whole_rows=20, delta_rows=5)
        )
        assert await follower.catch_up()
        for name, wait in said.items():
            assert (await account(ledger, name)).waiting == wait, name
        shown = await page_of(ledger, next(n for n, w in said.items() if w and w.clusters))
        assert "waits for the next capacity count of oslo-" in shown
        print(shown)
    finally:
        await ledger.close()
