"""Statements that follow a thread through the history read what they give, and not the history: by
statistics that were made before most rounds came, and by those of now."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.feeds import LivingLedger, numbered
from tests.query_plans import plan_nodes

from wharfinger.events.streams import INTAKE
from wharfinger.runtime.ledger import (
    DecisionQuery,
    Ledger,
    LedgerRow,
    causality,
    decision_queries,
    verify_feed,
)

pytestmark = pytest.mark.integration

FEW = 5
TIMES_MAX = 2 * FEW
"""So often a statement about a few may go through a table: a small one is read whole for each of
them. A wrong plan goes through one for each row of another."""


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    """Its statistics are of its first few rounds."""
    opened = await Ledger.open(database_url, "tests")
    plane = LivingLedger(opened, 5)
    await plane.live(20)
    async with opened.database.reading() as raw:
        await raw.execute("analyze")
    await plane.live(250)
    yield opened
    await opened.close()


async def rows_of(ledger: Ledger, stream: str) -> list[LedgerRow]:
    return [row async for row in ledger.decisions(DecisionQuery(stream=stream))]


async def most_read(ledger: Ledger, statement: str, *values: object) -> float:
    """The most rows that a step of it goes through, by old statistics and by new ones."""
    most = 0.0
    for analyzed in (False, True):
        async with ledger.database.reading() as raw:
            if analyzed:
                await raw.execute("analyze")
            explained = await raw.fetch(f"explain (analyze, format json) {statement}", *values)
        for node in plan_nodes(explained):
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            rows += node.get("Rows Removed by Join Filter", 0)
            most = max(most, rows * node["Actual Loops"])
    return most


@pytest.mark.parametrize("statement", ["accepted", "taken in"])
async def test_where_a_few_events_were_taken_in(ledger: Ledger, statement: str) -> None:
    rows = await rows_of(ledger, INTAKE)
    assert len(rows) > 10 * TIMES_MAX
    ids = [row.cause for row in rows[-FEW:]]
    text = {"accepted": causality.ACCEPTED, "taken in": causality.TAKEN_IN}[statement]
    assert await most_read(ledger, text, ids) < TIMES_MAX * len(rows)
    if statement == "accepted":
        found = await causality.accepted(ledger.database, [id_ for id_ in ids if id_])
        assert {taken.round for taken in found.values()} == {row.round for row in rows[-FEW:]}


async def test_a_few_decisions_by_their_ids(ledger: Ledger) -> None:
    rows = [row for row in await rows_of(ledger, "") if row.stream != INTAKE]
    assert len(rows) > 10 * TIMES_MAX
    ids = [row.id for row in rows[-FEW:]]
    assert await most_read(ledger, causality.NAMED, ids) < TIMES_MAX * len(rows)
    assert list((await causality.decisions_named(ledger.database, ids)).values()) == rows[-FEW:]


async def test_the_latest_decisions_about_a_binding(ledger: Ledger) -> None:
    rows = [row for row in await rows_of(ledger, "") if row.stream != INTAKE]
    subject = rows[-1].subject
    assert await most_read(ledger, causality.LATEST_ABOUT, subject, FEW) < TIMES_MAX * len(rows)
    found = await causality.latest_about(ledger.database, subject, FEW)
    assert found == [row for row in rows if row.subject == subject][-FEW:]


async def test_the_last_decisions_of_many_bindings(ledger: Ledger) -> None:
    """As an explanation asks for them, of all that were decided since a snapshot."""
    rows = [row for row in await rows_of(ledger, "") if row.stream != INTAKE]
    stream = max({row.stream for row in rows}, key=lambda name: sum(r.stream == name for r in rows))
    subjects = sorted({row.subject for row in rows})
    types = sorted({row.type for row in rows})
    async with ledger.database.reading() as raw:
        found = await raw.fetchrow("select id from stream where name = $1", stream)
    assert found is not None
    asked = (found[0], subjects, 1 << 40, types)
    assert await most_read(ledger, decision_queries.BEFORE, *asked) < TIMES_MAX * len(rows)


async def test_the_causes_of_the_whole_feed_cost_its_length(ledger: Ledger) -> None:
    """Verified: each run of the feed reads its own decisions."""
    head = await numbered(ledger)
    assert await most_read(ledger, verify_feed.CAUSES, False) <= 2 * head
