"""Whether the topics are still those that were read and written: at the start, and while a process
runs.

A topic begins again without us when an operator deletes and creates it, when it is restored from a
mirror, or when an unclean leader election cuts off its end. Its offsets then mean something else,
and what comes would pass for redelivery. Three things show it: the id of the topic, an end that
lies before what was read or written, and other records where some were read or written
(`record_check`: a partition that has grown again since it lost its end). Each ends the topic's
incarnation (`ledger.cursors`): nothing read before counts any more, and the publisher fills the
topics again from the ledger.

A process keeps the incarnations with which it has started. When one of them ends, the process ends
too, and starts again.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from wharfinger.domain.text import one_line
from wharfinger.events.streams import TOPICS
from wharfinger.kernel.round import Basis
from wharfinger.runtime.backends import Backend, BackendError
from wharfinger.runtime.broadcast import ends_of, stop_consumer
from wharfinger.runtime.interpreter import Cleanup
from wharfinger.runtime.ledger import Ledger, LedgerError
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.record_check import Overwritten, overwritten
from wharfinger.runtime.settings import Settings
from wharfinger.runtime.topic_ids import TopicIds, identity, topic_ids
from wharfinger.runtime.topic_setup import topic_specs
from wharfinger.runtime.topics import PUBLISHER, ensure_topics, publisher_lock

log = get_logger()

WATCH_EVERY_S = 30.0
IDS_EVERY_S = 5.0
"""How often a process with a publisher asks whether a topic is gone or another one: until it has
noticed, what it sends comes again, and others wait that would make the topic again."""
FETCH_BYTES = 16 * 1024
"""Of one fetch. One record of each partition is looked at, and the client keeps all that it has
fetched behind it: with its usual 1 MiB a process grew by hundreds of MB. A broker sends one whole
batch in any case. The embedded broker knows the limit of a fetch only, and none of a partition: it
sent all that a partition had behind the record, for each of thousands of records."""
CONFIRM_S = 3.0
NAMES = tuple(topic.name for topic in TOPICS)


@dataclass(frozen=True, slots=True)
class Shorter:
    """A partition that ends before what was read of it, or written to it, in this incarnation of
    its topic."""

    topic: str
    partition: int
    end: int
    reached: int

    def __str__(self) -> str:
        return (
            f"{self.topic}/{self.partition} ends at offset {self.end}; "
            f"it was read or written up to {self.reached}"
        )


def reached(
    bases: Mapping[str, Basis], written: Mapping[str, int], incarnations: Mapping[str, int]
) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the highest offset that the ledger knows of its present incarnation:
    read by any stream (`bases`), or written by the publisher (`written`: place -> end)."""
    found: dict[tuple[str, int], int] = {}
    places = [
        (place, offset)
        for basis in bases.values()
        for place, (incarnation, offset) in basis.items()
        if incarnation == incarnations.get(place.rpartition("/")[0])
    ]
    for place, offset in (*places, *written.items()):
        topic, _, number = place.rpartition("/")
        if topic in incarnations:
            key = topic, int(number)
            found[key] = max(offset, found.get(key, 0))
    return found


async def begin_topics(
    ledger: Ledger, backend: Backend, settings: Settings, prefix: str = ""
) -> dict[str, int]:
    """The incarnation of each topic, once those that began again without us have a new one. A topic
    that is gone is made again, and gets its incarnation, while no publisher leads: one that has not
    noticed yet would write newer records to it than those that it will be filled with.

    BackendError: the broker cannot be asked, or does not let the topics be made.
    """
    if not gone(await topic_ids(backend), prefix):
        return await _incarnations(ledger, backend, prefix)
    async with _without_publisher(ledger, prefix):
        if missing := gone(await topic_ids(backend), prefix):
            log.error("topics.gone", topics=missing)
            await ensure_topics(backend, topic_specs(settings), prefix)
        return await _incarnations(ledger, backend, prefix)


@asynccontextmanager
async def _without_publisher(ledger: Ledger, prefix: str) -> AsyncIterator[None]:
    """LedgerError: the database is away."""
    while True:
        async with ledger.holding(publisher_lock(prefix), "topics") as lock:
            if not lock.lost:
                yield
                return


def gone(ids: Mapping[str, object] | None, prefix: str) -> list[str]:
    """The topics that the broker does not have. `ids`: by name; None: it gives none."""
    return [name for name in NAMES if prefix + name not in ids] if ids is not None else []


async def _incarnations(ledger: Ledger, backend: Backend, prefix: str) -> dict[str, int]:
    ids = await topic_ids(backend)
    known = {name: identity(prefix + name, ids, backend.boot_id) for name in NAMES}
    before = await ledger.incarnations()
    incarnations = await ledger.incarnation(NAMES, set(), backend.boot_id, known)
    if begun := sorted(
        name for name, counter in incarnations.items() if counter > before.get(name, counter)
    ):
        log.error("topics.began_again", topics=begun, incarnation=max(incarnations.values()))
    truncated = await truncations(ledger, backend, incarnations, prefix)
    if truncated:
        log.error("topics.truncated", found=[str(one) for one in truncated])
        ended = {one.topic: incarnations[one.topic] for one in truncated}
        incarnations = {**incarnations, **await ledger.end_incarnations(ended)}
    return incarnations


async def truncations(
    ledger: Ledger,
    backend: Backend,
    incarnations: Mapping[str, int],
    prefix: str = "",
    confirm_s: float = CONFIRM_S,
) -> list[Shorter | Overwritten]:
    """The partitions that end before what the ledger knows of them, or that have other records
    there. BackendError: the broker does not answer.

    Asked twice: just after it was elected a leader may not know yet how far its partition is
    committed.
    """
    written = (await ledger.cursors(PUBLISHER, max(incarnations.values(), default=0))).positions
    wanted = reached(await ledger.last_bases(""), written, incarnations)
    if not wanted:
        return []

    async def look(consumer: AIOKafkaConsumer) -> list[Shorter | Overwritten]:
        short = await _shorter(consumer, wanted, prefix)
        known = {f"{one.topic}/{one.partition}" for one in short}
        return [*short, *await overwritten(ledger, backend, consumer, incarnations, prefix, known)]

    async with _reader(backend) as consumer:
        if await look(consumer):
            await asyncio.sleep(confirm_s)
            return await look(consumer)
    return []


@asynccontextmanager
async def _reader(backend: Backend) -> AsyncIterator[AIOKafkaConsumer]:
    """Of no group and no topic yet. BackendError: the broker did not answer it."""
    consumer = AIOKafkaConsumer(
        **backend.client_options(),
        client_id="wharfinger-ends",
        group_id=None,
        enable_auto_commit=False,
        fetch_max_wait_ms=backend.capabilities.fetch_wait_ms,
        max_partition_fetch_bytes=FETCH_BYTES,
        fetch_max_bytes=FETCH_BYTES,
    )
    try:
        await consumer.start()
        # Only those who read: the publisher seldom does.
        from wharfinger.runtime.unpacking import bound

        bound(consumer)
        yield consumer
    except (KafkaError, OSError) as error:
        raise BackendError(
            f"broker {backend.bootstrap}: ends of the topics: {one_line(error)}"
        ) from error
    finally:
        await stop_consumer(consumer)


async def _shorter(
    consumer: AIOKafkaConsumer, wanted: Mapping[tuple[str, int], int], prefix: str
) -> list[Shorter]:
    """`wanted`: (topic, partition) -> the offset at which it must not end before."""
    parts = {TopicPartition(prefix + topic, number): (topic, number) for topic, number in wanted}
    consumer.assign(list(parts))
    ends = await consumer.end_offsets(list(parts))
    doubtful = sorted(part for part, end in ends.items() if end < wanted[parts[part]])
    if doubtful:  # what the memory broker answers first is not always the end
        ends.update(await ends_of(consumer, doubtful))
    return [
        Shorter(*parts[p], ends[p], wanted[parts[p]])
        for p in doubtful
        if ends[p] < wanted[parts[p]]
    ]


async def changed(
    ledger: Ledger, backend: Backend, incarnations: Mapping[str, int], prefix: str, ids: TopicIds
) -> str:
    """Why a process that has started with `incarnations` must start again; empty: it need not.
    BackendError, LedgerError: the broker or the database does not answer."""
    if why := await other_topics(ledger, backend, incarnations, prefix, ids):
        return why
    truncated = await truncations(ledger, backend, incarnations, prefix)
    return "; ".join(str(one) for one in truncated[:3])


async def other_topics(
    ledger: Ledger, backend: Backend, incarnations: Mapping[str, int], prefix: str, ids: TopicIds
) -> str:
    """As `changed`, as far as incarnations and ids show it: without reading any record."""
    now = await ledger.incarnations()
    if ended := sorted(name for name, counter in incarnations.items() if now.get(name) != counter):
        return f"topics began again: {', '.join(ended)}"
    present = await ids.now()
    if present is not None:
        stored = await ledger.topic_identities()
        for name in sorted(incarnations):
            wire = prefix + name
            if wire not in present:
                return f"topic {wire} is gone"
            if stored.get(name, "") != identity(wire, present, backend.boot_id):
                return f"topic {wire} was made again: its id is {present[wire]} now"
    return ""


class TopicWatch:
    """Checks at intervals whether the process must start again: incarnations and ids after each
    `ids_every_s`, records after each `every_s`. When the broker or the database is away, the next
    check follows after the usual interval."""

    name = "topics"

    def __init__(
        self,
        ledger: Ledger,
        backend: Backend,
        incarnations: Mapping[str, int],
        prefix: str = "",
        every_s: float = WATCH_EVERY_S,
        ids_every_s: float = WATCH_EVERY_S,
    ) -> None:
        self._ledger = ledger
        self._backend = backend
        self._incarnations = incarnations
        self._prefix = prefix
        self._every_s = every_s
        self._ids_every_s = min(ids_every_s, every_s)
        self._why = ""
        self._cleanup = Cleanup()

    def failed(self) -> str:
        """Why the process must start again; empty: it need not."""
        return self._why

    async def run(self) -> None:
        async with aclosing(TopicIds(self._backend)) as ids:
            await self._watch(ids)

    async def _watch(self, ids: TopicIds) -> None:
        next_s = asyncio.get_running_loop().time() + self._every_s
        while not self._why:
            await asyncio.sleep(self._ids_every_s)
            check, now_s = other_topics, asyncio.get_running_loop().time()
            if now_s >= next_s:
                check, next_s = changed, now_s + self._every_s
            try:
                self._why = await check(
                    self._ledger, self._backend, self._incarnations, self._prefix, ids
                )
            except (BackendError, LedgerError) as error:
                log.info("topics.not_watched", why=str(error))
            if check is changed:
                self._cleanup.free()  # the clients of this check
