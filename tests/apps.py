"""Services in the loop of a test: contexts on topics of the test's own, and what then stands on
those topics."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from tests.patience import eventually, in_patience

from wharfinger.events.streams import TOPICS, Topic
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.broadcast import BroadcastConsumer, IncomingRecord
from wharfinger.runtime.incarnation_watch import begin_topics
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.producer import idempotent_producer
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.settings import Settings
from wharfinger.runtime.topic_setup import partitions, topic_specs
from wharfinger.runtime.topics import ensure_topics, partition_for
from wharfinger_cli.one import BUILDERS


async def a_context(
    backend: Backend, ledger: Ledger, prefix: str, *, life: int = 1, **settings: object
) -> ServiceContext:
    """Topics are made where they are missing. `life`: the incarnation of all of them."""
    chosen = Settings(**{"fleet_shards": 1, **settings})  # type: ignore[arg-type]
    await ensure_topics(backend, topic_specs(chosen), prefix)
    counts = {t.name: partitions(t, chosen) for t in TOPICS}
    return ServiceContext(chosen, backend, ledger, {t.name: life for t in TOPICS}, counts, prefix)


@asynccontextmanager
async def all_services(
    backend: Backend,
    database_url: str,
    prefix: str,
    settings: Settings | None = None,
    names: Iterable[str] = tuple(BUILDERS),
) -> AsyncIterator[ServiceContext]:
    """Every service of a plane, or those of `names`, begun as a process begins them, on topics that
    are made where they are missing."""
    async with begun_services(backend, database_url, prefix, settings, names) as (context, _):
        yield context


@asynccontextmanager
async def begun_services(
    backend: Backend,
    database_url: str,
    prefix: str,
    settings: Settings | None = None,
    names: Iterable[str] = tuple(BUILDERS),
) -> AsyncIterator[tuple[ServiceContext, list[Service]]]:
    """As `all_services`, with the services themselves."""
    ledger = await Ledger.open(database_url, "tests-services")
    try:
        settings = settings or Settings(fleet_shards=1)
        await ensure_topics(backend, topic_specs(settings), prefix)
        incarnations = await begin_topics(ledger, backend, settings, prefix)
        await ledger.read_clock()
        counts = {t.name: partitions(t, settings) for t in TOPICS}
        context = ServiceContext(
            settings, backend, ledger, incarnations, counts, prefix, clock=ledger.clock
        )
        services = [BUILDERS[name](context) for name in names]
        async with running(*services):
            yield context, services
    finally:
        await ledger.close()


until = eventually


@asynccontextmanager
async def running(*services: Service) -> AsyncIterator[None]:
    """Started together, ready, and stopped whatever happens."""
    try:
        await asyncio.gather(*(s.start() for s in services))
        await eventually(
            lambda: all(s.ready() for s in services) or any(s.failed() for s in services)
        )
        assert [s.failed() for s in services if s.failed()] == []
        yield
    finally:
        await asyncio.gather(*(s.stop() for s in services))


async def standing_on(context: ServiceContext, topic: Topic) -> list[IncomingRecord]:
    """Every record of a topic, to the end that stands there now."""
    found: list[IncomingRecord] = []
    async with BroadcastConsumer(
        context.backend, [context.wire(topic.name)], client_id="tests"
    ) as consumer:

        async def read() -> None:
            async for batch in consumer.batches():
                found.extend(batch)

        reading = asyncio.create_task(read())
        await in_patience(consumer.caught_up.wait())
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return found


async def send(
    context: ServiceContext,
    topic: Topic,
    records: Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None],
) -> None:
    """(key, value) pairs (None: the key is deleted), each to the partition of its key, in order."""
    pairs = records.items() if isinstance(records, Mapping) else records
    count = context.partitions[topic.name]
    producer = idempotent_producer(context.backend, client_id="tests")
    await producer.start()
    try:
        futures = [
            await producer.send(
                context.wire(topic.name),
                value,
                key=key.encode(),
                partition=partition_for(key, count),
            )
            for key, value in pairs
        ]
        await asyncio.gather(*futures)
    finally:
        await producer.stop()
