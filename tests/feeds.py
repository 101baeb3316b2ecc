"""Ledgers with a feed, what holds of it by its rows alone, and places for rows in no feed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from tests.counter import Counter, Writer, withdrawn

from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event
from wharfinger.events.streams import BINDINGS, INTAKE
from wharfinger.runtime.ledger import FeedAppender, FeedPlaces, Ledger, LedgerRow, Submission
from wharfinger.runtime.ledger.days import DAY_US


class LivingLedger:
    """Streams that decide about what was accepted, and about what the others decided; each has a
    clock of its own. `late`: by how much it may go on in a round, in microseconds. `begin`: when
    they begin."""

    def __init__(
        self,
        ledger: Ledger,
        seed: int,
        late: Sequence[int] = (0, 0, 1, 700, DAY_US),
        begin: int = 0,
    ) -> None:
        self.late = late
        self.begin = begin
        self.ledger = ledger
        self.random = random.Random(seed)
        self.writers: dict[str, Writer] = {}
        self.causes: list[UUID] = []
        self.accepted = 0

    async def live(self, turns: int) -> None:
        for _ in range(turns):
            if self.random.random() < 0.4:
                await self.accept(self.random.randint(1, 4))
            else:
                await self._decide(self.random.choice(["fleet/0", "cluster/a", "cluster/b"]))

    async def accept(self, count: int) -> None:
        events = [withdrawn(self.accepted + n) for n in range(count)]
        self.accepted += count
        await self.ledger.accept([Submission(e, BINDINGS.name, e.subject, "p") for e in events])
        self.causes += [event.id for event in events]

    async def _decide(self, stream: str) -> None:
        writer = self.writers.get(stream)
        if writer is None:
            await self.ledger.ensure_streams([stream])
            head = (await self.ledger.raise_epoch([stream]))[stream]
            writer = self.writers[stream] = Writer(head, Counter(every=4))
        fresh = [cause for cause in self.causes if cause not in writer.events]
        chosen = self.random.sample(fresh, min(len(fresh), self.random.randint(1, 3)))
        late = self.random.choice(self.late)
        at = max(self.begin, writer.head.at) + late
        round_ = writer.step([_about(cause) for cause in chosen], at)
        await self.ledger.commit([round_], writer.events)
        self.causes += [decision.id for decision in round_.decisions]


def _about(cause: UUID) -> Event[Any]:
    """An input with the id of what caused it: the decision on it names that as its cause."""
    name = f"shop/b{cause.int % 5}"
    return made(BindingWithdrawn(name), id=cause, source="/tests", subject=name)


async def numbered(ledger: Ledger, page: int = 2000) -> int:
    """Until nothing waits."""
    appender, given = FeedAppender(ledger.database, page), 0
    await appender.begin()
    while one := await appender.append():
        given += one
    return given


def placed(rows: Iterable[LedgerRow]) -> FeedPlaces:
    """Positions for rows that were made by hand: each its seq in thousands of its stream."""
    streams: dict[str, list[tuple[int, int, int, bytes]]] = {}
    for row in rows:
        base = 1_000_000 * (sum(row.stream.encode()) % 900 + 1)
        run = (row.seq, 1, base + row.seq, (row.cause or row.id).bytes)
        streams.setdefault(row.stream, []).append(run)
    return FeedPlaces({stream: sorted(runs) for stream, runs in streams.items()})


async def positions(ledger: Ledger) -> dict[int, tuple[str, int]]:
    """Every position in the feed; none twice."""
    async with ledger.database.reading() as raw:
        found = await raw.fetch(
            "select f.first_position + n, s.name, f.first_seq + n "
            "from feed f join stream s on s.id = f.stream, generate_series(0, f.count - 1) n"
        )
    given = {position: (stream, seq) for position, stream, seq in found}
    assert len(given) == len(found), "a position stands for two decisions"
    return given


async def assert_feed(ledger: Ledger, *, whole: bool = True) -> dict[int, tuple[str, int]]:
    """Dense, injective, each stream in order, no effect before its cause, each correlation the
    first cause; `whole`: and nothing is left out."""
    given = await positions(ledger)
    head = await ledger.feed_head()
    assert sorted(given) == list(range(1, head.position + 1))
    assert len(set(given.values())) == len(given)
    last: dict[str, int] = {}
    for position in sorted(given):
        stream, seq = given[position]
        assert seq == last.get(stream, 0) + 1, (position, stream, seq)
        last[stream] = seq
    if whole:
        heads = {h.stream: h.seq for h in await ledger.heads() if h.seq}
        assert last == heads
    await _assert_causes(ledger, {place: position for position, place in given.items()})
    return given


async def _assert_causes(ledger: Ledger, place: dict[tuple[str, int], int]) -> None:
    async with ledger.database.reading() as raw:
        rows = await raw.fetch(
            "select s.name, d.seq, d.id, d.cause, substr(f.correlations, "
            "((d.seq - f.first_seq) * 16 + 1)::int, 16) from feed f "
            "join stream s on s.id = f.stream join decision d on d.stream = f.stream "
            "and d.seq >= f.first_seq and d.seq < f.first_seq + f.count"
        )
    named: dict[UUID, tuple[str, int]] = {}
    causes: dict[UUID, UUID | None] = {}
    for stream, seq, id_, cause, _ in rows:
        # a fact is named by its event, not by the decision that accepted it
        name = cause if stream == INTAKE else id_
        named[name], causes[name] = (stream, seq), None if stream == INTAKE else cause
    for stream, seq, id_, cause, correlation in rows:
        if stream != INTAKE and cause in named:
            assert place[named[cause]] < place[stream, seq], f"{stream} {seq} is before its cause"
        first = cause if stream == INTAKE else id_
        while (before := causes.get(first)) is not None:
            first = before
        assert UUID(bytes=correlation) == first, f"{stream} {seq}"
