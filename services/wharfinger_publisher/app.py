"""The publisher as a service: one task gives what the ledger decided its positions in the feed,
woken by the ledger's notifications, and one sends it, woken by the first one; or by the feed's
notifications, where another process gives the positions.

It is the one service that reads no topic, so it is no Faust app: there is nothing to partition. At
most one publisher works at a time, by a session lock in the database; a second one waits in the
queue to take over.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from wharfinger.runtime.health import Page
from wharfinger.runtime.ledger import LedgerError, PartitionLock, Transient, Withheld
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.producer import Producer, idempotent_producer
from wharfinger.runtime.sending import ProducerLostError, Sending
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.tasks import end_tasks
from wharfinger.runtime.timeline import Timeline, ensure_not_behind
from wharfinger.runtime.topics import PUBLISHER, largest_records, partition_for, publisher_lock
from wharfinger_publisher.feed_loop import FeedLoop
from wharfinger_publisher.pages import pages
from wharfinger_publisher.records import RecordMaker
from wharfinger_publisher.relay import Relay, RelaySettings

NAME = PUBLISHER
LAG_EVERY_S = 0.5
AGAIN_S = 0.2
PARTITIONS_EVERY_S = 3600.0

log = get_logger()


class LockLostError(Exception):
    """Another publisher may hold the lock now."""


class OtherTopicsError(Exception):
    """A topic began again since this process started: it has to start again."""


class PublisherService:
    def __init__(self, context: ServiceContext, settings: RelaySettings | None = None) -> None:
        self.name = NAME
        self._context = context
        self._metrics = METRICS.of(NAME)
        self._tasks: list[asyncio.Task[None]] = []
        maker = RecordMaker(context.partitions, partition_for, went_back=context.went_back)
        self._sending = Sending(self._new_producer, maker.dividing, context.wire, context.life)
        self._relay = Relay(
            context.ledger,
            self._sending,
            self._reader,
            maker,
            context.wire,
            context.incarnations,
            context.clock,
            self._metrics,
            settings or RelaySettings(),
            self._limits,
            context.ledger_incarnation,
            self._timeline,
            self._take_back,
        )
        self._feed = FeedLoop(context.ledger, self._relay.facts_lost, appended=self._relay.appended)
        self._leading = False
        self._stopping = False
        self._lag = 0
        self._failure = ""

    async def _take_back(self, positions: Mapping[str, int]) -> None:
        """As `TakingBack`: it is only asked for where the ledger went back."""
        from wharfinger.runtime.believed_sources import BelievedSources
        from wharfinger_publisher.reaccept import TakingBack

        context = self._context
        taking_back = TakingBack(
            context.ledger,
            self._reader,
            context.wire,
            context.partitions,
            context.went_back,
            BelievedSources.parse(context.settings.believed_sources),
        )
        await taking_back(positions)

    async def start(self) -> None:
        self._stopping = False
        self._tasks = [
            asyncio.create_task(self._guarded(), name="publisher"),
            asyncio.create_task(self._number(), name="publisher-feed"),
            asyncio.create_task(
                self._context.ledger.notifications(self._feed.wakeup, decided=True),
                name="publisher-notifications",
            ),
            asyncio.create_task(
                self._context.ledger.feed_news(self._relay.wakeup, self._is_known),
                name="publisher-feed-notifications",
            ),
        ]

    async def stop(self) -> None:
        self._stopping = True
        await end_tasks(self._tasks)
        await self._sending.stop()

    def ready(self) -> bool:
        """Relays, and moves: a record that the broker does not take is sent again and again, and
        nothing behind it is relayed."""
        moves = self._relay.progress.stalled_s() <= self._context.settings.stalled_after_s
        return self._leading and moves and not self._failure and not self._feed.trouble

    def stalled_s(self) -> float:
        return self._relay.progress.stalled_s() if self._leading else 0.0

    def oldest_s(self) -> float:
        return self._relay.oldest_s()

    def lag(self) -> int:
        return self._lag

    def failed(self) -> str:
        return self._failure

    def withheld(self) -> Mapping[Withheld, int]:
        """What the broker refuses, and from which seq of its stream on nothing of it was sent."""
        return self._relay.withheld()

    def pages(self) -> Mapping[str, Page]:
        """What was decided, as objects of OCM and Karmada; see `pages`."""
        return pages(self._context.ledger)

    async def _guarded(self) -> None:
        try:
            # Where a task fails as the group is cancelled, its error replaces the cancellation.
            while not self._stopping:
                again_s = AGAIN_S
                try:
                    async with self._context.ledger.holding(
                        publisher_lock(self._context.prefix), NAME
                    ) as lock:
                        try:
                            await self._relay_while(lock)
                        finally:
                            self._leading = False
                            if self._stopping:  # with the lock: the next publisher reads them
                                await self._relay.save_at_end()
                except* (
                    LockLostError,
                    ProducerLostError,
                    Transient,
                    KafkaError,
                    OSError,
                ) as errors:
                    why = errors.exceptions[0]
                    log.warning("publisher.begins_anew", why=f"{type(why).__name__}: {why}")
                    if isinstance(why, Transient):
                        again_s = max(again_s, why.retry_after_s)
                await asyncio.sleep(again_s)
        except asyncio.CancelledError:
            raise
        except BaseExceptionGroup as errors:
            self._fail(errors.exceptions[0])
        except Exception as error:  # any error stops publishing: restart
            self._fail(error)

    async def _number(self) -> None:
        try:
            await self._feed.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # any error stops publishing: restart
            self._fail(error)

    async def _relay_while(self, lock: PartitionLock) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(lock))
            context = self._context
            now = max((await context.ledger.incarnations()).values(), default=0)
            if now > context.life:
                raise OtherTopicsError(f"topics are in incarnation {now}, not {context.life}")
            # Start the producer before reading any row to send: this fences off the publisher that
            # led before, so it can send nothing more.
            await self._sending.start()
            await self._relay.resume()
            self._leading = True
            group.create_task(self._relay.run())
            group.create_task(self._measure())
            group.create_task(self._make_partitions())
            group.create_task(self._ship_checkpoints())

    def _fail(self, error: BaseException) -> None:
        self._failure = f"{type(error).__name__}: {error}"
        log.error("publisher.failed", why=self._failure, exc_info=error)

    async def _keep(self, lock: PartitionLock) -> None:
        """Without the lock another publisher may be at work: stop at once, begin again."""
        await lock.gone.wait()
        raise LockLostError("the publisher's lock was lost")

    async def _measure(self) -> None:
        while True:
            try:
                self._lag = 0 if self._relay.at_rest else await self._relay.lag()
            except Transient:
                pass
            await asyncio.sleep(LAG_EVERY_S)

    async def _make_partitions(self) -> None:
        """Long before their days come. Where it fails it is tried again: until then the default
        partition takes what comes."""
        while True:
            try:
                await self._context.ledger.ensure_partitions(
                    self._context.settings.ledger_partition_days
                )
            except LedgerError as error:
                log.warning("ledger.partitions_missing", why=str(error))
            await asyncio.sleep(PARTITIONS_EVERY_S)

    async def _ship_checkpoints(self) -> None:
        settings = self._context.settings
        if not settings.checkpoints:
            return
        if settings.checkpoint_key is None:
            log.warning(
                "checkpoints.no_key", to=settings.checkpoints, why="checkpoint_key is not set"
            )
            return
        # only who ships loads it, with the cryptography
        from wharfinger.history.checkpoint_store import store_at
        from wharfinger_publisher.checkpoints import CheckpointLoop

        await CheckpointLoop(
            self._context.ledger,
            store_at(settings.checkpoints, lambda: self._context.backend),
            settings.checkpoint_key,
            settings.checkpoint_every_s,
            self._context.clock,
        ).run()

    def _is_known(self, position: int) -> bool:
        """Whether the relay learns without a notification that this position was given. One that
        this process gave it learns from the feed's loop, with the rows; the notification often
        comes a moment before."""
        return self._feed.leading or position <= self._relay.looked_through

    def _new_producer(self) -> Producer:
        fencing_id = f"wharfinger.{NAME}.{self._context.prefix}"
        return idempotent_producer(
            self._context.backend,
            client_id=f"wharfinger-{NAME}",
            sent=self._context.signals.sent,
            fencing_id=fencing_id,
        )

    async def _limits(self) -> Mapping[str, int]:
        return await largest_records(self._context.backend, self._context.prefix)

    async def _timeline(self) -> Timeline:
        """Compared before anything is published: another publisher's connection may have been to
        the database that is gone."""
        context = self._context
        return await ensure_not_behind(
            context.ledger, context.backend, context.wire, context.went_back
        )

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
