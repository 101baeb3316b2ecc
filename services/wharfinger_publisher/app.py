"""The publisher as a service: one task that follows the ledger, woken by its notifications.

It is the one service that reads no topic, so it is no Faust app: there is nothing to partition. At most one publisher works
at a time, by a session lock in the database; a second one waits in the queue to take over.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from wharfinger.runtime.health import Page
from wharfinger.runtime.ledger import LedgerError, PartitionLock, Transient
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.producer import idempotent_producer
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.topics import partition_for
from wharfinger_publisher.pages import pages
from wharfinger_publisher.records import RecordMaker
from wharfinger_publisher.relay import Relay, RelaySettings

NAME = "publisher"
LAG_EVERY_S = 0.5
LOCK_TRY_S = 5.0
AGAIN_S = 0.2
PARTITIONS_EVERY_S = 3600.0

log = structlog.get_logger()


class LockLostError(Exception):
    """Another publisher may hold the lock now."""


class PublisherService:
    def __init__(self, context: ServiceContext) -> None:
        self.name = NAME
        self._context = context
        self._metrics = METRICS.of(NAME)
        self._tasks: list[asyncio.Task[None]] = []
        self._producer = idempotent_producer(context.backend, client_id=f"wharfinger-{NAME}")
        maker = RecordMaker(context.partitions, partition_for)
        self._relay = Relay(
            context.ledger, self._producer, self._reader, maker, context.wire, context.life, context.clock, self._metrics,
            RelaySettings(),
        )  # fmt: skip
        self._leading = False
        self._lag = 0
        self._failure = ""

    async def start(self) -> None:
        await self._producer.start()
        self._tasks = [
            asyncio.create_task(self._guarded(), name="publisher"),
            asyncio.create_task(self._context.ledger.notifications(self._relay.wakeup), name="publisher-notifications"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._producer.stop()

    def ready(self) -> bool:
        return self._leading and not self._failure

    def lag(self) -> int:
        return self._lag

    def failed(self) -> str:
        return self._failure

    def pages(self) -> Mapping[str, Page]:
        """What was decided, as objects of OCM and Karmada; see `pages`."""
        return pages(self._context.ledger)

    async def _guarded(self) -> None:
        try:
            while True:
                lock = await self._lead()
                try:
                    await self._relay_while(lock)
                except* (LockLostError, Transient, KafkaError) as errors:
                    why = errors.exceptions[0]
                    log.warning("publisher.begins_anew", why=f"{type(why).__name__}: {why}")
                finally:
                    self._leading = False
                    await asyncio.shield(lock.release())
                await asyncio.sleep(AGAIN_S)
        except asyncio.CancelledError:
            raise
        except BaseExceptionGroup as errors:
            self._fail(errors.exceptions[0])
        except Exception as error:  # whatever it is, nothing is published any more: restart
            self._fail(error)

    async def _relay_while(self, lock: PartitionLock) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(lock))
            await self._relay.resume()
            self._leading = True
            group.create_task(self._relay.run())
            group.create_task(self._measure())
            group.create_task(self._make_partitions())

    def _fail(self, error: BaseException) -> None:
        self._failure = f"{type(error).__name__}: {error}"
        log.error("publisher.failed", why=self._failure, exc_info=error)

    async def _lead(self) -> PartitionLock:
        while True:
            try:
                lock = await self._context.ledger.partition_lock(f"{NAME}/{self._context.prefix}")
                while not await lock.wait(LOCK_TRY_S):
                    if lock.lost:
                        break
                    log.info("publisher.waits", why="another publisher holds the lock")
                else:
                    return lock
            except Transient as error:
                log.warning("ledger.away", service=NAME, why=str(error))
                await asyncio.sleep(error.retry_after_s)

    async def _keep(self, lock: PartitionLock) -> None:
        """Without the lock another publisher may be at work: stop at once, begin anew."""
        await lock.gone.wait()
        raise LockLostError("the publisher's lock was lost")

    async def _measure(self) -> None:
        while True:
            try:
                self._lag = await self._relay.lag()
            except Transient:
                pass
            await asyncio.sleep(LAG_EVERY_S)

    async def _make_partitions(self) -> None:
        """Long before their days come. Where it fails it is tried again: until then the default partition takes what comes."""
        while True:
            try:
                await self._context.ledger.ensure_partitions(self._context.settings.ledger_partition_days)
            except LedgerError as error:
                log.warning("ledger.partitions_missing", why=str(error))
            await asyncio.sleep(PARTITIONS_EVERY_S)

    def _reader(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **self._context.backend.client_options(),
            client_id=f"wharfinger-{NAME}-reader",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=self._context.backend.capabilities.fetch_wait_ms,
        )


def build(context: ServiceContext) -> PublisherService:
    return PublisherService(context)


BUILDERS = {NAME: build}
