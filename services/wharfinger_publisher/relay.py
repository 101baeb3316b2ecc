"""The relay: follow the ledger, send what is new, remember how far.

A batch is sent and acknowledged before its cursor moves, so a crash can only repeat, never lose. After a crash the topics
are read from where the cursor says they ended, and ids found there are not sent again: on `decisions` each id stands once.
After the broker lost everything (a new incarnation) the topics are refilled: compacted ones with the latest fact under each
key, which the ledger keeps at hand, the others with what is younger than their retention. Neither costs more when the
history is longer.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from wharfinger.events.codec import UndecodableError, frame_of
from wharfinger.events.streams import BY_NAME, DEAD_LETTERS, DECISIONS, INTAKE, TOPICS
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.broadcast import ends_of
from wharfinger.runtime.ledger import Fact, Ledger, LedgerRow, Transient
from wharfinger.runtime.observability import ServiceMetrics
from wharfinger_publisher.records import Record, RecordMaker

log = structlog.get_logger()

ONCE = (DECISIONS, DEAD_LETTERS)
"""Topics read by the world and by people, who are owed each id once; the stages know what they have seen."""


KEPT_LONGEST_MS = max(topic.retention_ms or 0 for topic in TOPICS)

BUSY_AT = 64
"""So many rows in one turn are load."""
GATHER_S = 0.02


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """`rows_max`: ledger rows of one batch. `poll_s`: how long to wait when no notification comes."""

    rows_max: int = 2000
    poll_s: float = 0.25
    consumer: str = "publisher"


class Relay:
    """`wire(topic)` gives a topic's name on this broker; `life` names the incarnation whose cursors are used."""

    def __init__(
        self,
        ledger: Ledger,
        producer: AIOKafkaProducer,
        reader: Callable[[], AIOKafkaConsumer],
        maker: RecordMaker,
        wire: Callable[[str], str],
        life: int,
        clock: Callable[[], Micros],
        metrics: ServiceMetrics,
        settings: RelaySettings,
    ) -> None:
        self._ledger = ledger
        self._producer = producer
        self._reader = reader
        self._maker = maker
        self._wire = wire
        self._life = life
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._cursors: dict[str, int] = {}
        self._positions: dict[str, int] = {}
        self._skip: set[str] = set()
        self._refill_through: dict[str, int] = {}
        self._unsure = False
        self._unsaved: set[str] = set()
        self.wakeup = asyncio.Event()
        self.caught_up = asyncio.Event()

    async def resume(self) -> None:
        """Where we were: cursors of this life of the broker, and what was sent after they were last moved. Right at any time:
        what an earlier attempt of ours still has under way is waited for, so that it is found too."""
        await self._producer.flush()
        self._unsure = False
        self._unsaved.clear()
        self._refill_through = {}
        cursor = await self._ledger.cursors(self._settings.consumer, self._life)
        self._cursors, self._positions = dict(cursor.seqs), dict(cursor.positions)
        self._skip = await self._sent_after(self._positions)
        fresh = not self._cursors
        if fresh:
            await self._begin_anew()
        log.info("relay.resumed", cursors=len(self._cursors), known_ids=len(self._skip), refill=fresh)

    async def _begin_anew(self) -> None:
        """Send the latest facts, and set the cursors to where the retention of the longest kept topic begins. Nothing says
        that a refill has begun before the facts are all sent: whoever breaks off here begins here again."""
        self._refill_through = {h.stream: h.seq for h in await self._ledger.heads()}
        through = self._refill_through.get(INTAKE, 0)
        batch: list[Fact] = []
        async for fact in self._ledger.facts():
            if (
                fact.seq > through
            ):  # told meanwhile: its row comes in its turn, and that of the fact before it is dropped
                break
            batch.append(fact)
            if len(batch) == self._settings.rows_max:
                await self._send(self._maker.facts(batch))
                batch.clear()
        await self._send(self._maker.facts(batch))
        self._cursors = await self._ledger.seqs_before(self._clock() - KEPT_LONGEST_MS * 1000)
        self._unsaved.update(self._cursors)
        if self._unsaved:
            await self._save()

    async def run(self) -> None:
        """Until cancelled. A broker or database that is away is waited for; nothing is skipped."""
        pause = 0.05
        while True:
            try:
                sent = await self._turn()
                pause = 0.05
            except (Transient, KafkaError, OSError) as error:
                log.warning("relay.waits", why=f"{type(error).__name__}: {error}", retry_in_s=pause)
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)
                continue
            if sent >= BUSY_AT:  # fuller envelopes are cheaper for everybody who reads them
                await asyncio.sleep(GATHER_S)
            elif not sent:
                self.caught_up.set()
                try:
                    async with asyncio.timeout(self._settings.poll_s):
                        await self.wakeup.wait()
                except TimeoutError:
                    pass
                self.wakeup.clear()

    async def lag(self) -> int:
        """Ledger rows not yet relayed."""
        heads = await self._ledger.heads()
        return sum(max(0, h.seq - self._cursors.get(h.stream, 0)) for h in heads)

    async def _turn(self) -> int:
        await self._settle()
        rows = await self._ledger.rows_after(self._cursors, self._settings.rows_max)
        if not rows:
            return 0
        records = self._maker.records(self._wanted(rows))
        if self._skip:
            records = [r for r in records if r.id not in self._skip]
        self._unsure = True
        await self._send(records)
        self._unsure = False
        for row in rows:
            self._cursors[row.stream] = row.seq
            self._unsaved.add(row.stream)
        await self._save()
        if self._skip and not await self.lag():
            self._skip.clear()
        self._metrics.published.inc(len(records))
        return len(rows)

    async def _settle(self) -> None:
        """After a turn that broke off. Some of its records may stand on the topics: the rows come again, those must not. And
        cursors are saved before positions move on, or a crash would look for what was sent behind where it stands."""
        if self._unsure:
            self._skip |= await self._sent_after(self._positions)
            self._unsure = False
        if self._unsaved:
            await self._save()

    async def _save(self) -> None:
        moved = {stream: self._cursors[stream] for stream in self._unsaved}
        await self._ledger.advance(self._settings.consumer, self._life, moved, self._positions)
        self._unsaved.clear()

    def _wanted(self, rows: Iterable[LedgerRow]) -> Iterable[LedgerRow]:
        """While a topic is refilled: no row of a compacted topic, whose facts have been sent, nothing older than its retention."""
        if not self._refill_through:
            return rows
        now = self._clock()
        kept = []
        for row in rows:
            topic = BY_NAME[row.accepted.topic] if row.accepted else DECISIONS
            refilled = row.seq <= self._refill_through.get(row.stream, 0)
            if not refilled or (topic.retention_ms is not None and row.at >= now - topic.retention_ms * 1000):
                kept.append(row)
        return kept

    async def _send(self, records: Iterable[Record]) -> None:
        """Hand whole batches to the producer and wait until every one is acknowledged. When one is not, the positions stay
        where they were, and nothing is under way any more."""
        by_place: dict[tuple[str, int], list[Record]] = {}
        for record in records:
            by_place.setdefault((record.topic, record.partition), []).append(record)
        waiting: list[tuple[str, asyncio.Future[RecordMetadata]]] = []
        try:
            for (topic, partition), batch in by_place.items():
                async for future in self._send_batch(topic, partition, batch):
                    waiting.append((f"{topic}/{partition}", future))
        finally:
            await asyncio.gather(*(future for _, future in waiting), return_exceptions=True)
        ends = [(place, future.result().offset + 1) for place, future in waiting]
        for place, end in ends:
            self._positions[place] = max(self._positions.get(place, 0), end)

    async def _send_batch(
        self, topic: str, partition: int, records: list[Record]
    ) -> AsyncIterator[asyncio.Future[RecordMetadata]]:
        """One producer batch after another: a future for each, not one for each record, which would cost more than the
        record itself."""
        builder = self._producer.create_batch()
        for record in records:
            if builder.append(key=record.key, value=record.value, timestamp=None) is None:
                yield await self._producer.send_batch(builder, self._wire(topic), partition=partition)
                builder = self._producer.create_batch()
                if builder.append(key=record.key, value=record.value, timestamp=None) is None:
                    raise ValueError(f"a record of {len(record.value or b'')} bytes does not fit into a batch: {topic}")
        yield await self._producer.send_batch(builder, self._wire(topic), partition=partition)

    async def _sent_after(self, positions: Mapping[str, int]) -> set[str]:
        """Ids that stand on the once-only topics behind the positions of the last cursor."""
        parts = [
            TopicPartition(self._wire(topic.name), p)
            for topic in ONCE
            for p in range(self._maker.partitions[topic.name])
        ]
        reader = self._reader()
        await reader.start()
        found: set[str] = set()
        try:
            reader.assign(parts)
            ends, begins = await ends_of(reader, parts), await reader.beginning_offsets(parts)
            behind: set[TopicPartition] = set()
            for tp in parts:
                place = f"{tp.topic.removeprefix(self._wire(''))}/{tp.partition}"
                start = max(positions.get(place, 0), begins[tp])
                reader.seek(tp, start)
                if start < ends[tp]:
                    behind.add(tp)
            while behind:
                batches = await reader.getmany(*behind, timeout_ms=200, max_records=2000)
                for messages in batches.values():
                    for message in messages:
                        try:
                            found.add(frame_of(message.value or b"").id)
                        except UndecodableError:
                            continue
                behind = {tp for tp in behind if await reader.position(tp) < ends[tp]}
        finally:
            await reader.stop()
        return found
