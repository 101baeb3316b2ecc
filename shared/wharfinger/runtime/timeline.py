"""The timeline of the ledger, kept outside the database, on the topic `wharfinger.timeline`: a
database that is restored from an older backup does not take it back.

Before the publisher publishes decisions, it writes up to which round each stream will be published.
A process compares the database with the timeline when it starts, and after it has lost the
connection to the database. A database that lacks published rounds has gone back. Then no process
may decide on it before the ledger's next incarnation has begun (`ledger.incarnations`).

A broker that loses its records loses the timeline too. Then there is nothing to compare with, and
the publisher writes the timeline again. Next: `process` compares at the start, `stage_service`
whenever groups are taken over; the publisher's relay writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from aiokafka.errors import KafkaError

from wharfinger.domain.text import one_line
from wharfinger.events.ledger import StreamPublished
from wharfinger.events.ledger_types import LEDGER_TYPES
from wharfinger.events.message_codec import MessageCodec, UndecodableError
from wharfinger.events.streams import TIMELINE
from wharfinger.kernel.incarnations import FIRST
from wharfinger.runtime.backends import Backend, BackendError
from wharfinger.runtime.broadcast import BroadcastConsumer
from wharfinger.runtime.ledger import Ledger, LedgerWentBackError, WentBack
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.topics import partition_counts

log = get_logger()

READ_TIMEOUT_S = 60.0

_codec = MessageCodec([known for known in LEDGER_TYPES if known.topic is TIMELINE])

Timeline = Mapping[str, StreamPublished]
"""Stream -> its last record, which holds up to which round it was published."""


async def read_timeline(backend: Backend, wire: Callable[[str], str]) -> Timeline:
    """BackendError: the broker cannot be read. Empty where there is no such topic yet."""
    topic = wire(TIMELINE.name)
    try:
        if topic not in await partition_counts(backend):
            return {}
    except (KafkaError, OSError) as error:
        raise BackendError(f"broker {backend.bootstrap}: {topic}: {one_line(error)}") from error
    found: dict[str, StreamPublished] = {}

    async def read() -> None:
        async for batch in consumer.batches():
            for record in batch:
                try:
                    data = _codec.decode(record.value or b"").data
                except UndecodableError as error:
                    log.warning("timeline.unreadable", offset=record.offset, why=str(error))
                    continue
                if isinstance(data, StreamPublished):
                    found[data.stream] = data

    async with BroadcastConsumer(backend, [topic], client_id="wharfinger-timeline") as consumer:
        reading = asyncio.create_task(read())
        caught_up = asyncio.create_task(consumer.caught_up.wait())
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await asyncio.wait([reading, caught_up], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise BackendError(
                f"broker {backend.bootstrap}: {topic}: not read in {READ_TIMEOUT_S:g} s"
            ) from error
        finally:
            for task in (reading, caught_up):
                task.cancel()
            ended = await asyncio.gather(reading, caught_up, return_exceptions=True)
        if isinstance(ended[0], Exception):
            raise BackendError(f"broker {backend.bootstrap}: {topic}: {ended[0]}") from ended[0]
    return found


async def reconciled(
    ledger: Ledger, backend: Backend, wire: Callable[[str], str]
) -> tuple[WentBack, ...]:
    """Compare the ledger with its timeline, begin the next incarnation where it has gone back, and
    give all of them."""
    timeline = await read_timeline(backend, wire)
    if missing := await ledger.behind(timeline):
        began = await ledger.begin_next_incarnation(timeline)
        if began is not None:
            lost = {name: (began.data.kept.get(name, 0), one.seq) for name, one in missing.items()}
            log.error(
                "ledger.went_back", incarnation=began.data.incarnation, kept_and_published=lost
            )
    return tuple(await ledger.went_back())


async def ensure_not_behind(
    ledger: Ledger, backend: Backend, wire: Callable[[str], str], known: Sequence[WentBack]
) -> Timeline:
    """The timeline. LedgerWentBackError: the ledger has gone back since `known` was read, recorded
    already or not."""
    timeline = await read_timeline(backend, wire)
    if missing := await ledger.behind(timeline):
        name, published = next(iter(missing.items()))
        raise LedgerWentBackError(
            f"the ledger went back: {name} was published up to seq {published.seq} of round "
            f"{published.round}, which the "
            f"database has not ({len(missing)} streams)"
        )
    if len(now := await ledger.went_back()) != len(known):
        raise LedgerWentBackError(
            f"the ledger went back: incarnation {now[-1].data.incarnation if now else FIRST} began"
        )
    return timeline
