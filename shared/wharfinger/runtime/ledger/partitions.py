"""The partitions of the history: spans of days, the same for its four big tables, and made before
their days come.

A row is stored in the partition of its round's day. A row in no span goes into the default
partition: the clock of a writer was wrong, or the next span was not made in time. No row is refused
for its date. Migrations and the publisher make the spans. Rows of a new span that are already in
the default partition are moved into it. A new table is filled before it is attached, so writers
wait only for a change of the catalogue.

Next: `retention` takes old spans away.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from asyncpg.exceptions import PostgresError

from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database, Raw, Transaction
from wharfinger.runtime.ledger.days import day_of
from wharfinger.runtime.ledger.errors import Transient
from wharfinger.runtime.ledger.retries import retried

TABLES = ("round", "input", "event", "decision")

AHEAD = 2
"""Spans beyond the present one: a plane that stands still for one of them finds the next one
made."""

DAYS = 30
"""Of a span, unless the settings say otherwise."""

_TRIES = 60
_PAUSE_S = 0.2
_IN_USE = ("55P03", "40P01")  # not granted in time, or only if somebody else gave way

_LOCK = 0x77686172_0000_0002

_BOUND = re.compile(r"FOR VALUES FROM \('?(-?\d+)'?\) TO \('?(-?\d+)'?\)")


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Days `first` to `beyond`, the latter not included. `suffix`: of its tables' names."""

    first: int
    beyond: int
    suffix: str = ""

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(f"{table}_{self.suffix}" for table in TABLES)


def spanning(first: int, beyond: int) -> Span:
    return Span(first, beyond, f"{shown_day(first):%Y%m%d}")


def shown_day(day: int) -> date:
    return date(1970, 1, 1) + timedelta(days=day)


async def ensure_partitions(database: Database, now: Micros, days: int = DAYS) -> list[Span]:
    """Make the spans of the present and the next ones where they are missing. Returns those made
    now."""

    async def attempt() -> list[Span]:
        async with database.transaction(patient=True) as transaction:
            await begin_change(transaction)
            raw = transaction.raw
            today = day_of(now)
            missing = list(_missing(await spans(raw), today, today + AHEAD * days + 1, days))
            if missing:
                await lock_history(transaction)
            for span in missing:
                await make(raw, span)
            return missing

    return await retried(attempt)


async def sort_out_default(
    transaction: Transaction, before_day: int, days: int = DAYS
) -> list[Span]:
    """Give the rows of the default partition that lie before a day partitions of their own."""
    raw = transaction.raw
    there = await spans(raw)
    made: list[Span] = []
    asked = (
        f"select day / {days:d} * {days:d} from {table}_default where day < $1" for table in TABLES
    )
    astray = sorted(row[0] for row in await raw.fetch(" union ".join(asked), before_day))
    if astray:
        await lock_history(transaction)
    for first in astray:
        for span in list(_missing([*there, *made], first, min(first + days, before_day), days)):
            await make(raw, span)
            made.append(span)
    return made


async def lock_history(
    transaction: Transaction, also: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Locks the four tables exclusively, in the order in which the writer locks them. Each attempt
    waits only for moments and is then repeated: readers may keep their locks for minutes, and every
    later request queues behind ours. Transient: no attempt got the locks.

    `also`: locks rows of heads; part of each attempt. A transaction that has such rows must not
    wait for the tables: the writer that uses the tables may wait for the rows. The tables stay
    locked while it waits for a row, for moments too."""
    raw = transaction.raw
    for _ in range(_TRIES):
        await raw.execute("savepoint before_lock")
        try:
            # as the owner of the tables, whom the publisher need not be
            await raw.execute("select ledger_lock_history()")
            if also is not None:
                await also()
            return
        except PostgresError as error:
            if getattr(error, "sqlstate", None) not in _IN_USE:
                raise
            await raw.execute("rollback to savepoint before_lock")
            await asyncio.sleep(_PAUSE_S)
    raise Transient("the tables of the history were in use all the time: nothing was changed")


async def begin_change(transaction: Transaction) -> None:
    """Begins a change of partitions: only one at a time. It does not wait long for a table, because
    writers would queue behind it."""
    await transaction.raw.execute("select pg_advisory_xact_lock($1)", _LOCK)
    await transaction.raw.execute("set local lock_timeout = '300ms'")


async def spans(raw: Raw) -> list[Span]:
    """Those that are there, in order, without the default partition."""
    found = await raw.fetch(
        "select c.relname, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i "
        "join pg_class c on c.oid = i.inhrelid "
        "where i.inhparent = 'round'::regclass"
    )
    return sorted(
        Span(int(match[1]), int(match[2]), name.removeprefix("round_"))
        for name, bound in found
        if (match := _BOUND.match(bound)) is not None
    )


async def make(raw: Raw, span: Span) -> None:
    """The tables of a new span, with what the default partition has of its days. The function does
    it as the owner of the tables, whom the publisher need not be."""
    await raw.execute("select ledger_make_span($1, $2, $3)", span.first, span.beyond, span.suffix)


async def attach(raw: Raw, table: str, partition: str, span: Span) -> None:
    await raw.execute(
        f"alter table {table} attach partition {partition} for values "
        f"from ({span.first:d}) to ({span.beyond:d})"
    )


def _missing(there: Sequence[Span], first: int, beyond: int, days: int) -> Iterator[Span]:
    """What is not covered of `first` to `beyond`, in spans that begin at multiples of `days` where
    others leave them room."""
    day = first
    while day < beyond:
        covering = next((s for s in there if s.first <= day < s.beyond), None)
        if covering is not None:
            day = covering.beyond
            continue
        low, high = day // days * days, day // days * days + days
        low = max([low, *(s.beyond for s in there if s.beyond <= day)])
        high = min([high, *(s.first for s in there if s.first > day)])
        yield spanning(low, high)
        day = high
