"""The relay: follow the ledger, send what is new and has its position in the feed, remember how
far.

A batch is sent and acknowledged before its cursor moves, so a crash can only repeat, never lose.
After a crash the topics are read from the end that the cursor recorded, and ids found there are not
sent again: on `decisions` each id occurs once. An interrupted turn is not repeated but finished:
what was acknowledged is not sent a second time (`sending`).

A record that the broker refuses for good is a failure of its key, not of the plane. It becomes a
dead letter, and everything else goes on. On the topics whose readers need every record of a stream
in order (`assignments`, `outcomes`) that key gets nothing more of the stream: from a later record
its reader would conclude that it has received the refused one. The ledger records what is held
back, and it is tried again from time to time; once the broker takes it, everything held back is
sent in order.

After the broker lost everything (a new incarnation) the topics are refilled: compacted ones with
the latest fact under each key, which the ledger keeps at hand, and with every row from the first
request on that no stage has taken in; the others with what is younger than their retention. None
of it costs more when the history is longer.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from wharfinger.events.ledger import StreamPublished
from wharfinger.events.message_codec import UndecodableError, frame_of
from wharfinger.events.streams import (
    BY_NAME,
    DEAD_LETTERS,
    DECISIONS,
    INTAKE,
    LEDGER,
    TOPICS,
    TOPICS_INCARNATION,
    written_earlier,
)
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.incarnations import FIRST
from wharfinger.runtime.broadcast import ends_of, stop_consumer
from wharfinger.runtime.dead_letters import Letter, lay_aside
from wharfinger.runtime.ledger import (
    Fact,
    FeedPlaces,
    GivenRows,
    Ledger,
    LedgerRow,
    Mark,
    Transient,
    UnsentRows,
    Withheld,
)
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.observability import ServiceMetrics
from wharfinger.runtime.progress import Progress
from wharfinger.runtime.sending import (
    OutgoingRecord,
    Place,
    ProducerLostError,
    RefusedRecord,
    Sending,
    UnacknowledgedRecords,
    as_text,
)
from wharfinger.runtime.timeline import Timeline
from wharfinger_publisher.records import RecordMaker

REQUESTS = "io.wharfinger.binding."
"""Begins the types of events that a stage has to take in one by one; of other facts the latest of a
key is enough."""

log = get_logger()

ONCE = (DECISIONS, DEAD_LETTERS)
"""Topics read by the world and by people, who are owed each id once; the stages know what they have
seen."""


KEPT_LONGEST_MS = max(topic.retention_ms or 0 for topic in TOPICS)

BUSY_AT = 64
"""So many rows in one turn are load."""
GATHER_S = 0.02

GIVEN_MAX = 50
"""So many appends are kept for the relay: while it is away, it reads their rows later."""

SAVE_EVERY_S = 0.1
"""How often cursors are saved while there is always something new. What was sent after that, a
publisher that starts after a kill finds on the topics."""

RENEW_AFTER_S = 24 * 3600.0
"""A broker forgets a fencing id that was not asked for in a week
(`transactional.id.expiration.ms`)."""


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """`rows_max`: ledger rows of one batch. `poll_s`: how long to wait when no notification comes.
    `withheld_s`: how often what a broker refused is tried again."""

    rows_max: int = 2000
    poll_s: float = 2.0
    withheld_s: float = 60.0
    consumer: str = "publisher"


class Relay:
    """`wire(topic)` gives a topic's name on this broker. `incarnations`: of the topics; the cursors
    are those of the highest one. `limits` asks the broker how large a record each topic takes, by
    the names of the stream table. `incarnation`: of the ledger, and `timeline` compares it with
    what was published before anything else is. `take_back`: accepts again what was published behind
    these positions and the ledger has lost."""

    def __init__(
        self,
        ledger: Ledger,
        sending: Sending,
        reader: Callable[[], AIOKafkaConsumer],
        maker: RecordMaker,
        wire: Callable[[str], str],
        incarnations: Mapping[str, int],
        clock: Callable[[], Micros],
        metrics: ServiceMetrics,
        settings: RelaySettings,
        limits: Callable[[], Awaitable[Mapping[str, int]]],
        incarnation: int = FIRST,
        timeline: Callable[[], Awaitable[Timeline]] | None = None,
        take_back: Callable[[Mapping[str, int]], Awaitable[None]] | None = None,
    ) -> None:
        self._incarnation = incarnation
        self._timeline = timeline
        self._take_back = take_back
        self._ledger = ledger
        self._sending = sending
        self._limits = limits
        self._reader = reader
        self._maker = maker
        self._wire = wire
        self._incarnations = incarnations
        self._life = max(incarnations.values(), default=0)
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._cursors: dict[str, int] = {}
        self._skip: set[str] = set()
        self._early: dict[Place, set[str]] = {}
        self._refill_through: dict[str, int] = {}
        self._waiting = UnacknowledgedRecords()
        self._rows: Sequence[LedgerRow] = ()
        self._withheld: dict[Withheld, int] = {}
        self._tried_at = 0.0
        self._unsaved: set[str] = set()
        self._saved_at = -SAVE_EVERY_S
        self._ends: dict[Place, int] = {}
        """Of the topics, when everything through the cursors was sent and nothing behind them. With
        later ends, a publisher that starts after a kill would look for what was sent behind where
        it stands."""
        self._unnumbered = False
        self._unread = False
        self._oldest_at: Micros | None = None
        self.progress = Progress()
        self.wakeup = asyncio.Event()
        self.at_rest = False
        """The last look at the ledger found nothing, and no notification has come since."""
        self.looked_through = 0
        """The position through which everything has been taken for sending; 0: not known. A
        notification of a position up to there says nothing new."""
        self._given: list[GivenRows] = []
        self.caught_up = asyncio.Event()

    async def resume(self) -> None:
        """Where we were: cursors of this life of the broker, and what was sent after they were last
        moved. Right at any time once the producer is a new one: what an earlier one has still under
        way is either found here or refused by the broker.

        After the ledger went back, facts that were accepted and published and that the database has
        lost are accepted again; and the compacted topics get what the ledger holds, so that nothing
        else is the last record under a key. What the ledger has beyond the cursor comes in its
        turn: a newer request of a binding never before an older one."""
        self._waiting, self._rows = UnacknowledgedRecords(), ()
        self.looked_through = 0
        self._given.clear()
        self._unsaved.clear()
        self._refill_through = {}
        self._maker.dividing.limits |= await self._limits()
        cursor = await self._ledger.cursors(self._settings.consumer, self._life)
        self._cursors = dict(cursor.seqs)
        self._sending.positions = {_place(text): end for text, end in cursor.positions.items()}
        self._ends = dict(self._sending.positions)
        self._withheld = await self._ledger.withheld(self._settings.consumer, self._life)
        self._tried_at = 0.0
        self._metrics.withheld.set(len(self._withheld))
        timeline = await self._timeline() if self._timeline is not None else {}
        if (lost := await self.facts_lost()) and self._take_back is not None:
            await self._take_back(cursor.positions)
        self._skip, self._early = await self._ids_behind(self._once())
        fresh = not self._cursors
        if fresh:
            await self._begin_anew()
        elif lost:
            await self._send_facts(self._cursors.get(INTAKE, 0))
        if lost:
            await self._ledger.advance(self._taking_back, self._life, {LEDGER: lost}, {})
        if missing := self._not_noted(timeline):
            await self._note(await self._ledger.published(missing, self._incarnation))
        log.info(
            "relay.resumed", cursors=len(self._cursors), known_ids=len(self._skip), refill=fresh
        )

    async def facts_lost(self) -> int:
        """The last record that the ledger went back, where its facts have not been taken back
        since; 0: there is none."""
        if self._take_back is None or self._incarnation == FIRST:
            return 0
        heads = {head.stream: head.seq for head in await self._ledger.heads(LEDGER)}
        done = await self._ledger.cursors(self._taking_back, self._life)
        return heads[LEDGER] if heads[LEDGER] > done.seqs.get(LEDGER, 0) else 0

    @property
    def _taking_back(self) -> str:
        return f"{self._settings.consumer}/taken-back"

    def _not_noted(self, timeline: Timeline) -> dict[str, int]:
        """The streams that were published further than the timeline says, or in a later incarnation
        than it says."""
        return {
            stream: seq
            for stream, seq in self._cursors.items()
            if (noted := timeline.get(stream)) is None
            or (noted.incarnation, noted.seq) < (self._incarnation, seq)
        }

    async def _note(self, published: Iterable[StreamPublished]) -> None:
        """Write the timeline, and wait for it: what is published must never be ahead of what it
        says."""
        if self._timeline is not None:
            await self._send(self._maker.timeline(published))

    async def _begin_anew(self) -> None:
        """Send the latest facts, and set the cursors to where the retention of the longest kept
        topic begins. The cursors are saved only after all facts are sent: a publisher that fails
        before that starts the refill from the beginning.

        From the first request on that no stage has taken in, every row comes in its turn: the
        broker may have lost requests that others follow under the same key."""
        through = {h.stream: h.seq for h in await self._ledger.heads()}
        if INTAKE in through:
            through[INTAKE] = await self._ledger.read_through(through[INTAKE], REQUESTS)
        self._refill_through = through
        await self._send_facts(through.get(INTAKE, 0))
        self._cursors = await self._ledger.seqs_before(self._clock() - KEPT_LONGEST_MS * 1000)
        if self._cursors.get(INTAKE, 0) > through.get(INTAKE, 0):
            self._cursors[INTAKE] = through[INTAKE]
        self._unsaved.update(self._cursors)
        self._ends = dict(self._sending.positions)
        await self._save()

    async def _send_facts(self, through: int) -> None:
        """The latest fact under each key. One accepted after `through` is left out: its row comes
        in its turn, and that of the fact before it is dropped."""
        batch: list[Fact] = []
        async for fact in self._ledger.facts():
            if fact.seq > through:
                break
            batch.append(fact)
            if len(batch) == self._settings.rows_max:
                await self._send(self._maker.facts(batch))
                batch.clear()
        await self._send(self._maker.facts(batch))

    async def run(self) -> None:
        """Until cancelled. A broker or database that is away is waited for; nothing is skipped."""
        pause = 0.05
        while True:
            self.at_rest = False
            # what gets its position after the look that follows sets it again
            self.wakeup.clear()
            try:
                # until the ledger has answered that nothing waits, something may
                self.progress.begin()
                sent = await self._turn()
                more = sent >= BUSY_AT or bool(sent and self._unread) or self.wakeup.is_set()
                self.progress.moved(more=more)
                pause = 0.05
                if sent >= BUSY_AT:  # fuller envelopes are cheaper for everybody who reads them
                    await asyncio.sleep(GATHER_S)
                elif not more:
                    await self._rest()
            except (Transient, KafkaError, OSError) as error:
                log.warning("relay.waits", why=f"{type(error).__name__}: {error}", retry_in_s=pause)
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)

    async def _rest(self) -> None:
        """Until there is something new, and for `poll_s` at most. Cursors are saved when nothing
        new has come for some time."""
        if not self._unnumbered:
            self.caught_up.set()
        if self._sending.age_s > RENEW_AFTER_S:
            raise ProducerLostError("its id is renewed before the broker forgets it")
        self.at_rest = not self._unnumbered
        if self._unsaved:
            if await self._woken(SAVE_EVERY_S):
                return
            await self._save()
        await self._woken(self._settings.poll_s)

    def appended(self, given: GivenRows | None) -> None:
        """The feed's writer has given positions, to these rows where they are at hand. They are
        kept while each begins where the one before ends."""
        if (
            given is None
            or len(self._given) >= GIVEN_MAX
            or (self._given and given.first != self._given[-1].last + 1)
        ):
            self._given.clear()
        if given is not None:
            self._given.append(given)
        self.wakeup.set()

    async def _woken(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self.wakeup.wait()
        except TimeoutError:
            return False
        return True

    async def lag(self) -> int:
        """Ledger rows not yet relayed."""
        heads = await self._ledger.heads()
        return sum(max(0, h.seq - self._cursors.get(h.stream, 0)) for h in heads)

    def oldest_s(self) -> float:
        """Age of the oldest row that is read and not relayed yet, by its round's time; 0 while
        there is none."""
        return 0.0 if self._oldest_at is None else max(0.0, (self._clock() - self._oldest_at) / 1e6)

    def withheld(self) -> Mapping[Withheld, int]:
        """What the broker refuses, and from which seq of its stream on nothing of it was sent."""
        return self._withheld

    async def _turn(self) -> int:
        """The rows of one batch, or the rest of a batch that broke off."""
        await self._settle()
        if self._rows or self._withheld:
            await self._save()
        if not self._rows:
            await self._try_withheld()
            found = await self._saved_and_next_rows()
            rows = found.rows
            if not rows:
                return 0
            await self._note(_published(found, self._incarnation))
            records = self._maker.records(self._wanted(rows), found.places)
            self._rows = tuple(rows)
            self._waiting.add(
                r for r in records if not self._is_there(r) and not self._is_withheld(r)
            )
        await self._flush()
        done, self._rows = self._rows, ()
        for row in done:
            self._cursors[row.stream] = row.seq
            self._unsaved.add(row.stream)
        self._ends = dict(self._sending.positions)
        if (self._skip or self._early) and not await self.lag():
            self._skip.clear()
            self._early.clear()
        return len(done)

    def _is_there(self, record: OutgoingRecord) -> bool:
        """Whether its topic has it, in its turn. A publisher that had not noticed that a topic
        began again may have written newer records to it: behind the first one that is missing, all
        of these come again."""
        if record.id in self._skip:
            return True
        early = self._early.get(record.place, ())
        if record.id in early:
            return True
        if early:
            del self._early[record.place]
        return False

    async def _next_rows(self) -> UnsentRows:
        """The next rows in order of position, so that records with one key are in the order of the
        feed, also those of several streams.

        Rows are read in order of time, some at a time, and positions are given meanwhile. So those
        are left for later that may come behind a row that was not read."""
        found = self._next_given() or await self._ledger.unsent(
            self._cursors, self._settings.rows_max
        )
        waiting, through = found.rows, found.through
        self._oldest_at = min((row.at for row in waiting), default=None)
        full = len(waiting) >= self._settings.rows_max
        if waiting:
            self.looked_through = 0 if full else through
        if full:
            read = {row.stream: row.seq for row in waiting}
            left = await self._ledger.feed_next({**self._cursors, **read})
            through = min(through, left[1] - 1) if left else through
        rows = _through(through, found)
        if full and not rows:  # times and positions differ by more than was read
            found, through = await self._rows_of_the_next_stream()
            rows = _through(through, found)
        self._unnumbered, self._unread = len(rows) < len(found.rows), full
        return found._replace(rows=rows)

    def _next_given(self) -> UnsentRows | None:
        """The rows that the feed has handed over, where they follow what was taken. None: they have
        to be read, if there are any."""
        given = [one for one in self._given if one.last > self.looked_through]
        self._given.clear()
        if not given or not self.looked_through or given[0].first != self.looked_through + 1:
            return None
        found = UnsentRows.given(given)
        reached = dict(self._cursors)
        for row in found.rows:
            if row.seq != reached.get(row.stream, 0) + 1:
                return None  # the ledger is another one, or rows were retired
            reached[row.stream] = row.seq
        return found

    async def _rows_of_the_next_stream(self) -> tuple[UnsentRows, int]:
        """Rows of the stream that has the next position, and the position through which only they
        come."""
        first = await self._ledger.feed_next(self._cursors)
        if first is None:
            return UnsentRows((), 0, {}, FeedPlaces({})), 0
        stream = first[0]
        ends = {head.stream: head.seq for head in await self._ledger.heads()}
        found = await self._ledger.unsent(
            {**ends, stream: self._cursors.get(stream, 0)}, self._settings.rows_max
        )
        beyond = await self._ledger.feed_next({**self._cursors, stream: ends[stream]})
        through = beyond[1] - 1 if beyond else sys.maxsize
        return found._replace(rows=[row for row in found.rows if row.stream == stream]), through

    async def _saved_and_next_rows(self) -> UnsentRows:
        """Cursors are saved while rows are read, where they were not for some time."""
        if time.monotonic() - self._saved_at < SAVE_EVERY_S:
            return await self._next_rows()
        saving = asyncio.ensure_future(self._save())
        try:
            found = await self._next_rows()
        except BaseException:
            saving.cancel()
            await asyncio.wait([saving])
            raise
        await saving
        return found

    async def _settle(self) -> None:
        """After a turn that broke off: some of its records may stand on the topics where a batch
        was neither acknowledged nor refused."""
        if self._waiting.unsure:
            unsure = frozenset(self._waiting.unsure)
            found, _ = await self._ids_behind(unsure)
            self._waiting.drop(lambda record: record.place in unsure and record.id in found)
            self._waiting.unsure.clear()

    async def save_at_end(self) -> None:
        """For a stop that is asked for: the next publisher sends nothing of this one again. Where
        the database is away it does, as after a kill."""
        try:
            await self._save()
        except (Transient, OSError) as error:
            log.warning("relay.not_saved", why=f"{type(error).__name__}: {error}")

    async def _save(self) -> None:
        if not self._unsaved:
            return
        moved = {stream: self._cursors[stream] for stream in self._unsaved}
        positions = {f"{topic}/{number}": end for (topic, number), end in self._ends.items()}
        marks = [
            Mark(self._settings.consumer, as_text(place), self._life, offset, digest)
            for place, (offset, digest) in self._sending.last.items()
        ]
        await self._ledger.advance(self._settings.consumer, self._life, moved, positions, marks)
        self._sending.last.clear()
        self._unsaved.clear()
        self._saved_at = time.monotonic()

    # --- what the broker refuses

    def _is_withheld(self, record: OutgoingRecord) -> bool:
        return bool(self._withheld) and _whose(record) in self._withheld

    async def _flush(self) -> None:
        """Until everything that waits is acknowledged, but for what the broker refuses."""
        while True:
            before = self._waiting.count
            try:
                refusal = await self._sending.send(self._waiting)
            finally:
                self._metrics.published.inc(max(0, before - self._waiting.count))
            if refusal is None:
                return
            await self._refuse(refusal)

    async def _refuse(self, refusal: RefusedRecord) -> None:
        """First what is held back and why is on record, then the others go on."""
        record = refusal.record
        if record.stream:
            await self._withhold(_whose(record), record.seq)
            self._waiting.drop(self._is_withheld)
        value = record.value or b""
        letter = Letter.unsent(
            record.topic, record.partition, record.key, value, record.id, refusal.why
        )
        await lay_aside(self._ledger, self._settings.consumer, [letter])
        self._metrics.dead_letters.inc()
        self._metrics.refused.inc()

    async def _withhold(self, what: Withheld, seq: int) -> None:
        seq = min(seq, self._withheld.get(what, seq))
        await self._ledger.withhold(self._settings.consumer, self._life, what, seq)
        self._withheld[what] = seq
        self._metrics.withheld.set(len(self._withheld))
        log.error("relay.withheld", topic=what.topic, key=what.key, stream=what.stream, seq=seq)

    async def _try_withheld(self) -> None:
        """Send what is held back, in order, once the broker takes it: its limits may have been
        raised meanwhile."""
        now = asyncio.get_running_loop().time()
        if not self._withheld or now < self._tried_at + self._settings.withheld_s:
            return
        self._tried_at = now
        self._maker.dividing.limits |= await self._limits()
        ends = {head.stream: head.seq for head in await self._ledger.heads()}
        for what, seq in list(self._withheld.items()):
            if await self._sent_on(what, seq, ends):
                await self._ledger.release(self._settings.consumer, self._life, what)
                del self._withheld[what]
                self._metrics.withheld.set(len(self._withheld))
                log.info("relay.released", topic=what.topic, key=what.key, stream=what.stream)

    async def _sent_on(self, what: Withheld, seq: int, ends: Mapping[str, int]) -> bool:
        """Whether everything from `seq` up to the cursor is acknowledged now."""
        reached = self._cursors.get(what.stream, 0)
        while seq <= reached:
            found = await self._ledger.rows_after(
                {**ends, what.stream: seq - 1}, self._settings.rows_max
            )
            rows = [row for row in found if row.stream == what.stream and row.seq <= reached]
            places = await self._ledger.feed_places(rows)
            rows = [row for row in rows if places.has(row.stream, row.seq)]
            if not rows:
                break
            waiting = UnacknowledgedRecords()
            waiting.add(r for r in self._maker.records(rows, places) if _whose(r) == what)
            if (refusal := await self._sending.send(waiting)) is not None:
                log.warning(
                    "relay.still_withheld",
                    topic=what.topic,
                    key=what.key,
                    stream=what.stream,
                    why=refusal.why,
                )
                return False
            seq = rows[-1].seq + 1
            await self._ledger.withhold(self._settings.consumer, self._life, what, seq)
            self._withheld[what] = seq
        return True

    def _wanted(self, rows: Sequence[LedgerRow]) -> Sequence[LedgerRow]:
        """While a topic is refilled: no row of a compacted topic, whose facts have been sent,
        nothing older than its retention."""
        if not self._refill_through:
            return rows
        now = self._clock()
        kept = []
        for row in rows:
            topic = BY_NAME[row.accepted.topic] if row.accepted else DECISIONS
            refilled = row.seq <= self._refill_through.get(row.stream, 0)
            if not refilled or (
                topic.retention_ms is not None and row.at >= now - topic.retention_ms * 1000
            ):
                kept.append(row)
        return kept

    async def _send(self, records: Iterable[OutgoingRecord]) -> None:
        self._waiting.add(records)
        await self._flush()

    def _once(self) -> list[Place]:
        return [
            (topic.name, number)
            for topic in ONCE
            for number in range(self._maker.partitions[topic.name])
        ]

    async def _ids_behind(
        self, places: Collection[Place]
    ) -> tuple[set[str], dict[Place, set[str]]]:
        """Ids that stand behind the last record that we know to be acknowledged at each of these
        places; and by place, those that were written before its topic's present incarnation."""
        places_of = {
            TopicPartition(self._wire(topic), number): (topic, number) for topic, number in places
        }
        parts = list(places_of)
        reader = self._reader()
        await reader.start()
        # Only those who read: the publisher seldom does.
        from wharfinger.runtime.unpacking import bound

        bound(reader)
        found: set[str] = set()
        early: dict[Place, set[str]] = {}
        try:
            reader.assign(parts)
            ends, begins = await ends_of(reader, parts), await reader.beginning_offsets(parts)
            behind: set[TopicPartition] = set()
            for tp in parts:
                start = max(self._sending.positions.get(places_of[tp], 0), begins[tp])
                reader.seek(tp, start)
                if start < ends[tp]:
                    behind.add(tp)
            while behind:
                batches = await reader.getmany(*behind, timeout_ms=200, max_records=2000)
                for tp, messages in batches.items():
                    place = places_of[tp]
                    incarnation = self._incarnations[place[0]]
                    for message in messages:
                        written_in = dict(message.headers).get(TOPICS_INCARNATION)
                        ids = (
                            early.setdefault(place, set())
                            if written_earlier(written_in, incarnation)
                            else found
                        )
                        try:
                            ids.add(frame_of(message.value or b"").id)
                        except UndecodableError:
                            continue
                behind = {tp for tp in behind if await reader.position(tp) < ends[tp]}
        finally:
            await stop_consumer(reader)
        return found, early


def _through(position: int, found: UnsentRows) -> list[LedgerRow]:
    """Those that have a position up to this one, in order of it. Of each stream the others are the
    last ones."""
    placed = [(found.places.of(row.stream, row.seq), row) for row in found.rows]
    through = [(place[0], row) for place, row in placed if place and place[0] <= position]
    through.sort(key=lambda one: one[0])
    return [row for _, row in through]


def _published(found: UnsentRows, incarnation: int) -> list[StreamPublished]:
    """The timeline's records for when these rows have been sent."""
    last = {row.stream: row for row in found.rows}
    return [
        StreamPublished(
            row.stream, incarnation, row.round, row.seq, found.hashes[row.stream, row.round].hex()
        )
        for _, row in sorted(last.items())
    ]


def _whose(record: OutgoingRecord) -> Withheld:
    return Withheld(record.topic, record.key.decode(errors="replace"), record.stream)


def _place(text: str) -> Place:
    topic, _, number = text.rpartition("/")
    return topic, int(number)
