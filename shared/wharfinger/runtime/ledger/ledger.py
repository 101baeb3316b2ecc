"""The ledger as the rest of the plane sees it: one object, one verb a question.

Every method is one function of the module named after its business; nothing is decided here. What
does more than read is imported with its first use: a command that reads should not load it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.events.ledger import StreamPublished
from wharfinger.events.origin import AS_IT_CAME, Origin
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Basis, Head, RecordedRound, Round
from wharfinger.runtime.deadlines import Deadlines
from wharfinger.runtime.ledger import decision_rows, facts, heads, version
from wharfinger.runtime.ledger.clock import AHEAD_MAX_US, DatabaseClock, read
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.decision_rows import DecisionQuery, LedgerRow
from wharfinger.runtime.ledger.facts import Fact
from wharfinger.runtime.ledger.retries import retried

if TYPE_CHECKING:
    from wharfinger.events.decisions import TimeCorrection
    from wharfinger.runtime.ledger.cursors import Cursor, Withheld
    from wharfinger.runtime.ledger.exogenous import ExogenousRound
    from wharfinger.runtime.ledger.fact_writers import FactWriter
    from wharfinger.runtime.ledger.feed import (
        FeedFilter,
        FeedHead,
        FeedPage,
        FeedPlaces,
        UnsentRows,
    )
    from wharfinger.runtime.ledger.freshness import Freshness, SnapshotAge
    from wharfinger.runtime.ledger.incarnations import WentBack
    from wharfinger.runtime.ledger.intake import AcceptResult, AsRead, AsSeen, Submission
    from wharfinger.runtime.ledger.locks import Locks, PartitionLock
    from wharfinger.runtime.ledger.notifications import Listener
    from wharfinger.runtime.ledger.partitions import Span
    from wharfinger.runtime.ledger.record_marks import Mark
    from wharfinger.runtime.ledger.snapshots import StoredSnapshot
    from wharfinger.runtime.ledger.streams_ahead import Wrong
    from wharfinger.runtime.ledger.writer import CommitResult


class Ledger:
    """Made by `open`, ended by `close`. Any number of tasks of one loop may use it. Methods raise
    the errors of `errors`.

    `clock`: stamps what is written instead of the database's clock, for a history of another
    time. `origin`: of what is accepted by this one, unless a call names another."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], Micros] | None = None,
        origin: Origin = AS_IT_CAME,
    ) -> None:
        self._database = database
        self._origin = origin
        self._own_clock = clock
        self.clock = DatabaseClock()
        """The database's time, as last read by `read_clock` or a commit. Before that, this
        machine's."""
        self._days = decision_rows.Days()
        self._locks: Locks | None = None
        self._listener: Listener | None = None

    @classmethod
    async def open(
        cls,
        database_url: str,
        application_name: str,
        *,
        pool_size: int = 8,
        clock: Callable[[], Micros] | None = None,
        deadlines: Deadlines | None = None,
        origin: Origin = AS_IT_CAME,
    ) -> Ledger:
        """LedgerUnavailable: one line that says whether the URL, the server or the schema is the
        trouble."""
        database = Database(database_url, application_name, pool_size, deadlines)
        try:
            await version.require_version(database)
            if not await heads.heads(database, INTAKE):
                # looked up first: a process that only reads must not wait for the row lock
                await heads.ensure_streams(database, [INTAKE])
        except BaseException:
            await database.close()
            raise
        return cls(database, clock, origin)

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
        from wharfinger.runtime.ledger import rounds

        return await rounds.head_at(self._database, stream, number)

    async def bases(self) -> dict[str, Head]:
        from wharfinger.runtime.ledger import rounds

        return await rounds.bases(self._database)

    async def raise_epoch(self, names: Collection[str]) -> dict[str, Head]:
        return await retried(lambda: heads.raise_epoch(self._database, names))

    async def partition_lock(
        self, group: str, on_lost: Callable[[], object] | None = None
    ) -> PartitionLock:
        return await self._locks_of_process().ask(group, on_lost)

    def holding(self, group: str, service: str) -> AbstractAsyncContextManager[PartitionLock]:
        return self._locks_of_process().holding(group, service)

    def _locks_of_process(self) -> Locks:
        if self._locks is None:
            from wharfinger.runtime.ledger.locks import Locks

            self._locks = Locks(self._database)
        return self._locks

    # --- writing

    async def commit(
        self,
        rounds: Sequence[Round],
        events: Mapping[Any, Event[Value]],
        group_of: Callable[[str], object] | None = None,
        marks: Mapping[object, Sequence[Mark]] | None = None,
    ) -> CommitResult:
        from wharfinger.runtime.ledger import writer

        group_of = group_of or writer.alone
        if self._own_clock is not None or not self.clock.known:
            return await writer.commit(self._database, rounds, events, group_of, None, marks)
        asked_s = time.monotonic()
        result = await writer.commit(self._database, rounds, events, group_of, AHEAD_MAX_US, marks)
        if result.now:
            self.clock.note(result.now, asked_s, time.monotonic())
        return result

    async def accept(
        self,
        submissions: Sequence[Submission],
        origin: Origin | None = None,
        seen: AsSeen | None = None,
        read: AsRead | None = None,
        writer: FactWriter | None = None,
    ) -> AcceptResult:
        from wharfinger.runtime.ledger import intake

        by = self._origin if origin is None else origin
        return await intake.accept(
            self._database, submissions, self._own_clock, by, seen, read, writer
        )

    async def begin_writer(self, name: str, at_least: int) -> FactWriter:
        """As `fact_writers.begin`."""
        from wharfinger.runtime.ledger import fact_writers

        return await retried(lambda: fact_writers.begin(self._database, name, at_least))

    async def accepted_seq(self) -> int:
        """The seq of the intake up to which facts are accepted."""
        found = await self.heads(INTAKE)
        return found[0].seq if found else 0

    # --- reading

    async def known(self, ids: Mapping[str, Collection[UUID]]) -> dict[str, set[UUID]]:
        return await facts.known(self._database, ids)

    async def told_apart(
        self, events: Mapping[str, Sequence[Event[Value]]]
    ) -> tuple[dict[str, list[Event[Value]]], dict[str, dict[UUID, str]]]:
        return await facts.told_apart(self._database, events)

    async def missing_bodies(self, ids: Collection[UUID]) -> set[UUID]:
        return await facts.missing_bodies(self._database, ids)

    async def rows_after(self, cursors: Mapping[str, int], limit: int) -> list[LedgerRow]:
        return await decision_rows.rows_after(self._database, cursors, limit, self._days)

    def facts(self, topic: str | None = None) -> AsyncIterator[Fact]:
        return facts.facts(self._database, topic)

    async def facts_at(self, at: Micros, topic: str | None = None) -> list[Fact]:
        return await facts.facts_at(self._database, at, topic)

    async def read_through(self, through: int, types: str) -> int:
        return await facts.read_through(self._database, through, types)

    async def seqs_before(self, at: Micros) -> dict[str, int]:
        return await facts.seqs_before(self._database, at)

    def decisions(self, query: DecisionQuery) -> AsyncIterator[LedgerRow]:
        return decision_rows.decisions(self._database, query)

    async def decision(self, id_: UUID) -> LedgerRow | None:
        return await decision_rows.decision(self._database, id_)

    async def current(self, subject: str = "", stream: str = "") -> list[LedgerRow]:
        return await decision_rows.current(self._database, subject, stream)

    async def current_of(self, subjects: Collection[str], stream: str = "") -> list[LedgerRow]:
        return await decision_rows.current_of(self._database, subjects, stream)

    def recorded_rounds(
        self,
        stream: str,
        from_round: int = 1,
        to_round: int | None = None,
        batch_rows: int | None = None,
        judged_from: int | None = None,
        on_trust: bool = False,
    ) -> AsyncIterator[RecordedRound]:
        from wharfinger.runtime.ledger import rounds

        return rounds.recorded_rounds(
            self._database,
            stream,
            from_round,
            to_round,
            batch_rows or rounds.BATCH_ROWS,
            judged_from,
            on_trust,
        )

    async def other_engine(self, stream: str, engine: str) -> tuple[int, str] | None:
        from wharfinger.runtime.ledger import rounds

        return await rounds.other_engine(self._database, stream, engine)

    async def round_at(self, stream: str, at: Micros) -> int:
        from wharfinger.runtime.ledger import rounds

        return await rounds.round_at(self._database, stream, at)

    async def profile_at(self, stream: str, number: int) -> str:
        from wharfinger.runtime.ledger import rounds

        return await rounds.profile_at(self._database, stream, number)

    async def profile_changes(
        self, stream: str, after: Micros, until: Micros
    ) -> list[tuple[Micros, str]]:
        from wharfinger.runtime.ledger import rounds

        return await rounds.profile_changes(self._database, stream, after, until)

    async def basis(self, stream: str, number: int) -> Basis:
        from wharfinger.runtime.ledger import rounds

        return await rounds.basis(self._database, stream, number)

    async def last_bases(self, prefix: str) -> dict[str, Basis]:
        from wharfinger.runtime.ledger import rounds

        return await rounds.last_bases(self._database, prefix)

    def taken_in(
        self,
        types: Collection[str],
        requests: Collection[str],
        requested_by: str,
        after: Micros = -1,
        until: Micros | None = None,
        observed: Collection[str] = (),
    ) -> AsyncIterator[ExogenousRound]:
        from wharfinger.runtime.ledger import exogenous

        return exogenous.taken_in(
            self._database, types, requests, requested_by, after, until, observed
        )

    async def first_and_last(self) -> tuple[Micros, Micros] | None:
        from wharfinger.runtime.ledger import exogenous

        return await exogenous.first_and_last(self._database)

    async def notifications(self, wakeup: asyncio.Event, *, decided: bool = False) -> None:
        """`decided`: rounds without decisions wake no one."""
        await self._listener_of_process().rounds(wakeup, decided=decided)

    def _listener_of_process(self) -> Listener:
        if self._listener is None:
            from wharfinger.runtime.ledger.notifications import Listener

            self._listener = Listener(self._database)
        return self._listener

    # --- the feed

    async def feed_head(self) -> FeedHead:
        from wharfinger.runtime.ledger import feed

        return await feed.head(self._database)

    async def feed_page(
        self, after: int, limit: int, wanted: FeedFilter | None = None, scan_max: int | None = None
    ) -> FeedPage:
        from wharfinger.runtime.ledger import feed

        return await feed.page(
            self._database, after, limit, wanted or feed.FeedFilter(), scan_max or feed.SCAN_MAX
        )

    async def feed_position_at(self, at: Micros) -> int:
        from wharfinger.runtime.ledger import feed

        return await feed.position_at(self._database, at)

    async def feed_places(self, rows: Sequence[LedgerRow]) -> FeedPlaces:
        from wharfinger.runtime.ledger import feed

        return await feed.places(self._database, rows)

    async def unsent(self, cursors: Mapping[str, int], limit: int) -> UnsentRows:
        from wharfinger.runtime.ledger import feed

        return await feed.unsent(self._database, cursors, limit, self._days)

    async def feed_next(self, seqs: Mapping[str, int]) -> tuple[str, int] | None:
        from wharfinger.runtime.ledger import feed

        return await feed.next_place(self._database, seqs)

    async def feed_news(
        self, wakeup: asyncio.Event, known: Callable[[int], bool] = lambda _: False
    ) -> None:
        from wharfinger.runtime.ledger import feed

        await feed.news(self._listener_of_process(), wakeup, known)

    # --- snapshots

    async def write_snapshot(
        self,
        stream: str,
        number: int,
        sections: Mapping[str, bytes],
        names: Mapping[str, Sequence[int]] | None = None,
        *,
        replayed: bool = True,
    ) -> bytes | None:
        from wharfinger.runtime.ledger import snapshots

        return await retried(
            lambda: snapshots.write_snapshot(
                self._database, stream, number, sections, names, replayed=replayed
            )
        )

    async def latest_snapshot(
        self, stream: str, at_most_round: int | None = None, names: Collection[str] | None = None
    ) -> StoredSnapshot | None:
        from wharfinger.runtime.ledger import snapshots

        return await snapshots.latest_snapshot(self._database, stream, at_most_round, names)

    async def nearest_snapshot(
        self, stream: str, at_most_round: int, names: Collection[str] | None = None
    ) -> StoredSnapshot | None:
        from wharfinger.runtime.ledger import snapshots

        return await snapshots.nearest_snapshot(self._database, stream, at_most_round, names)

    async def newest_version(
        self, stream: str, at_most_round: int, section: str, name: int
    ) -> bytes | None:
        from wharfinger.runtime.ledger import snapshots

        return await snapshots.newest_version(self._database, stream, at_most_round, section, name)

    async def latest_delta(self, stream: str, *, replayed: bool = False) -> int:
        from wharfinger.runtime.ledger import snapshots

        return await snapshots.latest_delta(self._database, stream, replayed=replayed)

    async def replayed_to(self, stream: str) -> int:
        from wharfinger.runtime.ledger import snapshots

        return await snapshots.replayed_to(self._database, stream)

    async def mark_replayed(self, stream: str, to_round: int) -> None:
        from wharfinger.runtime.ledger import snapshots

        await retried(lambda: snapshots.mark_replayed(self._database, stream, to_round))

    # --- how far behind

    async def freshness(self) -> Freshness:
        from wharfinger.runtime.ledger import freshness

        return await freshness.freshness(self._database)

    async def read_clock(self) -> None:
        """Let `clock` follow the database's. Where it must be right it is read every few
        seconds."""
        self.clock.note(*await read(self._database))

    async def snapshot_ages(self) -> list[SnapshotAge]:
        from wharfinger.runtime.ledger import freshness

        return await freshness.snapshot_ages(self._database)

    # --- its incarnations

    async def went_back(self) -> list[WentBack]:
        from wharfinger.runtime.ledger import incarnations

        return await incarnations.went_back(self._database)

    async def behind(self, timeline: Mapping[str, StreamPublished]) -> dict[str, StreamPublished]:
        from wharfinger.runtime.ledger import incarnations

        return await incarnations.compare(self._database, timeline)

    async def begin_next_incarnation(
        self, timeline: Mapping[str, StreamPublished]
    ) -> WentBack | None:
        from wharfinger.runtime.ledger import incarnations

        return await retried(
            lambda: incarnations.begin_next(self._database, timeline, self._own_clock)
        )

    async def published(self, seqs: Mapping[str, int], incarnation: int) -> list[StreamPublished]:
        from wharfinger.runtime.ledger import incarnations

        return await incarnations.published(self._database, seqs, incarnation)

    # --- a wrong time

    async def wrong_times(self, stream: str = "") -> Wrong:
        from wharfinger.runtime.ledger import streams_ahead

        return await streams_ahead.wrong_times(self._database, stream)

    async def rebase(self, reason: str, stream: str = "") -> TimeCorrection | None:
        from wharfinger.runtime.ledger import rebasing

        return await rebasing.rebase(self._database, reason, stream, self._own_clock)

    # --- the days to come

    async def ensure_partitions(self, days: int) -> list[Span]:
        from wharfinger.runtime.ledger import partitions

        return await partitions.ensure_partitions(
            self._database, (self._own_clock or self.clock)(), days
        )

    # --- the publisher's place

    async def cursors(self, consumer: str, incarnation: int) -> Cursor:
        from wharfinger.runtime.ledger import cursors

        return await cursors.load(self._database, consumer, incarnation)

    async def advance(
        self,
        consumer: str,
        incarnation: int,
        seqs: Mapping[str, int],
        positions: Mapping[str, int],
        noted: Sequence[Mark] = (),
    ) -> None:
        from wharfinger.runtime.ledger import cursors

        await cursors.advance(self._database, consumer, incarnation, seqs, positions, noted)

    # --- the records at the offsets that were read or written

    async def marks(self, incarnations: Mapping[str, int]) -> list[Mark]:
        from wharfinger.runtime.ledger import record_marks

        return await record_marks.marks(self._database, incarnations)

    async def settle_marks(
        self, confirmed: Sequence[Mark], done: Sequence[Mark], incarnations: Mapping[str, int]
    ) -> None:
        from wharfinger.runtime.ledger import record_marks

        await record_marks.settle(self._database, confirmed, done, incarnations)

    async def lives(self) -> dict[str, int]:
        from wharfinger.runtime.ledger import cursors

        return await cursors.lives(self._database)

    async def withheld(self, consumer: str, incarnation: int) -> dict[Withheld, int]:
        from wharfinger.runtime.ledger import cursors

        return await cursors.withheld(self._database, consumer, incarnation)

    async def withhold(self, consumer: str, incarnation: int, what: Withheld, seq: int) -> None:
        from wharfinger.runtime.ledger import cursors

        await cursors.withhold(self._database, consumer, incarnation, what, seq)

    async def release(self, consumer: str, incarnation: int, what: Withheld) -> None:
        from wharfinger.runtime.ledger import cursors

        await cursors.release(self._database, consumer, incarnation, what)

    async def incarnation(
        self,
        topics: Collection[str],
        created: Collection[str],
        boot_id: str,
        identities: Mapping[str, str] | None = None,
    ) -> dict[str, int]:
        from wharfinger.runtime.ledger import cursors

        return await cursors.incarnation(self._database, topics, created, boot_id, identities)

    async def end_incarnations(self, ended: Mapping[str, int]) -> dict[str, int]:
        from wharfinger.runtime.ledger import cursors

        return await cursors.end_incarnations(self._database, ended)

    async def incarnations(self) -> dict[str, int]:
        from wharfinger.runtime.ledger import cursors

        return await cursors.incarnations(self._database)

    async def topic_identities(self) -> dict[str, str]:
        from wharfinger.runtime.ledger import cursors

        return await cursors.topic_identities(self._database)
