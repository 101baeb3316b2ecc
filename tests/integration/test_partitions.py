"""Partitions are there before their days; and when they are not, or a clock lies, nothing is
refused and nothing is lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.counter import Writer, withdrawn

from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Ledger, audit_verify, wall_clock
from wharfinger.runtime.ledger.days import DAY_US, day_of
from wharfinger.runtime.ledger.migration import check
from wharfinger.runtime.ledger.partitions import TABLES, Span, ensure_partitions, spans

pytestmark = pytest.mark.integration


async def there(ledger: Ledger) -> list[Span]:
    async with ledger.database.reading() as raw:
        return await spans(raw)


async def in_default(ledger: Ledger) -> list[int]:
    async with ledger.database.reading() as raw:
        return [
            (await raw.fetch(f"select count(*) from {table}_default"))[0][0] for table in TABLES
        ]


async def committed(ledger: Ledger, at: Micros) -> None:
    await ledger.ensure_streams(["fleet/0"])
    writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
    await ledger.commit([writer.step([withdrawn(1), withdrawn(2)], at)], writer.events)


async def test_a_migrated_database_has_room_for_the_days_to_come(ledger: Ledger) -> None:
    found = await there(ledger)
    today = day_of(wall_clock())
    assert found[0].first <= today < found[0].beyond
    assert found[-1].beyond > today + 60
    assert all(one.beyond == other.first for one, other in pairwise(found))
    assert await ledger.ensure_partitions(30) == []
    await committed(ledger, wall_clock())
    assert await in_default(ledger) == [0, 0, 0, 0]


async def test_another_length_counts_from_the_next_one_on(
    ledger: Ledger, database_url: str
) -> None:
    before = await there(ledger)
    later = (before[-1].beyond + 3) * DAY_US
    made = await ensure_partitions(ledger.database, later, 7)
    assert made[0].first <= day_of(later) < made[0].beyond
    assert all(span.beyond - span.first <= 7 for span in made)
    assert await there(ledger) == sorted([*before, *made])
    await check(database_url)


@pytest.mark.parametrize("days_ahead", [-20_000, 5_000])
async def test_a_clock_that_lies_is_no_obstacle(ledger: Ledger, days_ahead: int) -> None:
    """Whoever comes to that day finds the rows, and gives them their partition."""
    at = wall_clock() + days_ahead * DAY_US
    await committed(ledger, at)
    assert await in_default(ledger) == [1, 2, 2, 2]
    assert (await audit_verify(ledger)).ok
    made = await ensure_partitions(ledger.database, at, 30)
    assert made[0].first <= day_of(at) < made[0].beyond
    assert await in_default(ledger) == [0, 0, 0, 0]
    assert (await audit_verify(ledger)).ok
    assert [r.round.at async for r in ledger.recorded_rounds("fleet/0")] == [at]
