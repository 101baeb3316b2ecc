"""The ledger as the rest of the plane sees it: one object, one verb a question.

Every method is one function of the module named after its business; nothing is decided here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Basis, Head, Round
from wharfinger.runtime.ledger import (
    cursors,
    exogenous,
    heads,
    intake,
    locks,
    notifications,
    partitions,
    reader,
    schema,
    snapshots,
    writer,
)
from wharfinger.runtime.ledger.cursors import Cursor
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.exogenous import TakenIn
from wharfinger.runtime.ledger.intake import AcceptResult, Submission
from wharfinger.runtime.ledger.locks import PartitionLock
from wharfinger.runtime.ledger.partitions import Span
from wharfinger.runtime.ledger.reader import BATCH_ROWS, DecisionQuery, Fact, LedgerRow
from wharfinger.runtime.ledger.retries import retried
from wharfinger.runtime.ledger.snapshots import Snapshot
from wharfinger.runtime.ledger.writer import CommitResult


def wall_clock() -> Micros:
    """Microseconds since the epoch. The only clock of the plane; writers stamp rounds with it, deciders never see it."""
    return time.time_ns() // 1000


class Ledger:
    """Made by `open`, ended by `close`. Any number of tasks of one loop may use it. Methods raise the errors of `errors`."""

    def __init__(self, database: Database, clock: Callable[[], Micros] = wall_clock) -> None:
        self._database = database
        self._clock = clock
        self._days = reader.Days()

    @classmethod
    async def open(
        cls, database_url: str, application_name: str, *, pool_size: int = 4, clock: Callable[[], Micros] = wall_clock
    ) -> Ledger:
        """LedgerUnavailable: one line that says whether the URL, the server or the schema is the trouble."""
        database = Database(database_url, application_name, pool_size)
        try:
            await schema.require_version(database)
            if not await heads.heads(
                database, INTAKE
            ):  # asked first: whoever only reads shall not wait for its row's lock
                await heads.ensure_streams(database, [INTAKE])
        except BaseException:
            await database.close()
            raise
        return cls(database, clock)

    async def close(self) -> None:
        await self._database.close()

    @property
    def database(self) -> Database:
        return self._database

    # --- heads

    async def ensure_streams(self, names: Collection[str]) -> dict[str, Head]:
        return await retried(lambda: heads.ensure_streams(self._database, names))

    async def heads(self, prefix: str = "") -> list[Head]:
        return await heads.heads(self._database, prefix)

    async def head_at(self, stream: str, number: int) -> Head:
        return await reader.head_at(self._database, stream, number)

    async def bases(self) -> dict[str, Head]:
        return await reader.bases(self._database)

    async def raise_epoch(self, names: Collection[str]) -> dict[str, Head]:
        return await retried(lambda: heads.raise_epoch(self._database, names))

    async def partition_lock(self, group: str, on_lost: Callable[[], object] | None = None) -> PartitionLock:
        return await locks.ask(self._database, group, on_lost)

    # --- writing

    async def commit(self, rounds: Sequence[Round], events: Mapping[UUID, Event[Value]]) -> CommitResult:
        return await writer.commit(self._database, rounds, events)

    async def accept(self, submissions: Sequence[Submission]) -> AcceptResult:
        return await intake.accept(self._database, submissions, self._clock)

    # --- reading

    async def known(self, ids: Mapping[str, Collection[UUID]]) -> dict[str, set[UUID]]:
        return await reader.known(self._database, ids)

    async def missing_bodies(self, ids: Collection[UUID]) -> set[UUID]:
        return await reader.missing_bodies(self._database, ids)

    async def rows_after(self, cursors: Mapping[str, int], limit: int) -> list[LedgerRow]:
        return await reader.rows_after(self._database, cursors, limit, self._days)

    def facts(self, topic: str | None = None) -> AsyncIterator[Fact]:
        return reader.facts(self._database, topic)

    async def facts_at(self, at: Micros, topic: str | None = None) -> list[Fact]:
        return await reader.facts_at(self._database, at, topic)

    async def seqs_before(self, at: Micros) -> dict[str, int]:
        return await reader.seqs_before(self._database, at)

    def decisions(self, query: DecisionQuery) -> AsyncIterator[LedgerRow]:
        return reader.decisions(self._database, query)

    async def decision(self, id_: UUID) -> LedgerRow | None:
        return await reader.decision(self._database, id_)

    async def current(self, subject: str = "", stream: str = "") -> list[LedgerRow]:
        return await reader.current(self._database, subject, stream)

    def recorded_rounds(
        self,
        stream: str,
        from_round: int = 1,
        to_round: int | None = None,
        batch_rows: int = BATCH_ROWS,
        judged_from: int | None = None,
        on_trust: bool = False,
    ) -> AsyncIterator[RecordedRound]:
        return reader.recorded_rounds(self._database, stream, from_round, to_round, batch_rows, judged_from, on_trust)

    async def round_at(self, stream: str, at: Micros) -> int:
        return await reader.round_at(self._database, stream, at)

    async def profile_at(self, stream: str, number: int) -> str:
        return await reader.profile_at(self._database, stream, number)

    async def basis(self, stream: str, number: int) -> Basis:
        return await reader.basis(self._database, stream, number)

    def taken_in(
        self,
        types: Collection[str],
        requests: Collection[str],
        requested_by: str,
        after: Micros = -1,
        until: Micros | None = None,
        observed: Collection[str] = (),
    ) -> AsyncIterator[TakenIn]:
        return exogenous.taken_in(self._database, types, requests, requested_by, after, until, observed)

    async def first_and_last(self) -> tuple[Micros, Micros] | None:
        return await exogenous.first_and_last(self._database)

    async def notifications(self, wakeup: asyncio.Event) -> None:
        await notifications.notifications(self._database, wakeup)

    # --- snapshots

    async def write_snapshot(
        self,
        stream: str,
        number: int,
        sections: Mapping[str, bytes],
        names: Mapping[str, Sequence[int]] | None = None,
    ) -> bytes:
        return await retried(lambda: snapshots.write_snapshot(self._database, stream, number, sections, names))

    async def latest_snapshot(
        self, stream: str, at_most_round: int | None = None, names: Collection[str] | None = None
    ) -> Snapshot | None:
        return await snapshots.latest_snapshot(self._database, stream, at_most_round, names)

    async def nearest_snapshot(
        self, stream: str, at_most_round: int, names: Collection[str] | None = None
    ) -> Snapshot | None:
        return await snapshots.nearest_snapshot(self._database, stream, at_most_round, names)

    async def newest_version(self, stream: str, at_most_round: int, section: str, name: int) -> bytes | None:
        return await snapshots.newest_version(self._database, stream, at_most_round, section, name)

    async def latest_delta(self, stream: str) -> int:
        return await snapshots.latest_delta(self._database, stream)

    # --- the days to come

    async def ensure_partitions(self, days: int) -> list[Span]:
        return await partitions.ensure_partitions(self._database, self._clock(), days)

    # --- the publisher's place

    async def cursors(self, consumer: str, incarnation: int) -> Cursor:
        return await cursors.load(self._database, consumer, incarnation)

    async def advance(
        self, consumer: str, incarnation: int, seqs: Mapping[str, int], positions: Mapping[str, int]
    ) -> None:
        await cursors.advance(self._database, consumer, incarnation, seqs, positions)

    async def incarnation(self, topics: Collection[str], created: Collection[str], boot_id: str) -> dict[str, int]:
        return await cursors.incarnation(self._database, topics, created, boot_id)
