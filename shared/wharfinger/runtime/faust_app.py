"""The one way to make a Faust app: topology, agents and rebalancing, and nothing else of Faust.

No tables (the ledger is the state), no web, no leader topic, no topic declared by the framework, values as raw bytes.
An agent reads with `take`, hands its events to the stage loop, and acknowledges them after the commit; an exception
never leaves an agent, because the framework would acknowledge and drop what it was holding. Several apps live in one
event loop, or one in a process; the code is the same: `await app.start()`, `await app.joined()`, `await app.stop()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import faust
import structlog
from aiokafka import TopicPartition
from faust.tables.manager import TableManager
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP, ChannelT, EventT, StreamT, TopicT
from yarl import URL

from wharfinger.runtime.backends import Backend, KafkaSecurity
from wharfinger.runtime.topics import partition_for as partition_for  # readers and writers must agree on it

Partition: TypeAlias = tuple[str, int]
RawStream: TypeAlias = StreamT[bytes | None]
PartitionsListener: TypeAlias = Callable[[frozenset[Partition]], Awaitable[None]]

Agent: TypeAlias = Callable[[faust.Stream[bytes | None]], Awaitable[None]]

BREATH_EVERY = 100
COMMIT_INTERVAL_S = 0.5
JOIN_TIMEOUT_S = 60.0
STOP_PATIENCE_S = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Received:
    """One record as an agent takes it. `value` is None for a key that was deleted."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    event: EventT[bytes | None]

    def ack(self) -> None:
        """Done with it: its offset may be committed once all before it are done."""
        self.event.ack()


class _ConsumerThread(AIOKafkaConsumerThread):
    """Faust fixes the long poll at 1500 ms, which the memory broker turns into 400 ms of delay for every event."""

    def _create_worker_consumer(self, transport: Transport) -> Any:
        assert isinstance(self.app, ServiceApp), "this transport is made by ServiceApp only"
        consumer = super()._create_worker_consumer(transport)
        fetch_wait_ms = self.app.fetch_wait_ms
        if hasattr(consumer, "_fetch_max_wait_ms"):
            consumer._fetch_max_wait_ms = fetch_wait_ms
        else:
            log.warning("fetch_wait_not_set", wanted_ms=fetch_wait_ms, reason="the client keeps it elsewhere now")
        return consumer

    async def seek_to_committed(self) -> Any:
        """What was fetched while the flow stood still in a rebalance is let fall, since it is read again from the committed offset.
        Where nothing was committed yet there is nothing to go back to, and it would never be read at all: go to the start.
        """
        committed = await super().seek_to_committed()
        never = [TopicPartition(tp.topic, tp.partition) for tp, offset in committed.items() if not offset]
        if never:
            await self.seek_to_beginning(*never)
        return committed

    async def on_thread_stop(self) -> None:
        """Without a broker the driver's fetcher passes on its own tasks' cancellation, and the thread died of it unheard:
        whoever stopped the app then waited for ever.
        """
        try:
            await super().on_thread_stop()
        except asyncio.CancelledError:
            if self._consumer is not None:
                await self._consumer._client.close()  # type: ignore[no-untyped-call]


class _Consumer(Consumer):
    """Two changes to Faust's consumer, both in private places: the tests of this module notice when they move."""

    async def _drain_messages(self, fetcher: Any) -> None:
        """Faust makes two tasks a record, so that a suspension of the flow can overtake it; where several apps share a loop
        that bounds each to a few hundred records a second. Handing a record over never blocks while the flow is active
        (a full buffer pauses the partition), so it is done directly then, with a breath every hundred records."""
        stopped, fetcher_stopped = self._stopped.is_set, fetcher._stopped.is_set
        handed = 0
        try:
            while not (stopped() or fetcher_stopped()):
                await self.sleep(0)
                async for tp, message in self.getmany(timeout=1.0):
                    # Faust drops what lies behind the offset it noted last. A note made while a rebalance seeks back would
                    # drop what is to be read again; twice does no harm, for every reader knows what it has had.
                    self._read_offset[tp] = message.offset
                    if self.flow_active and not self.suspend_flow.is_set():
                        await self.callback(message)
                    else:
                        await self.wait_first(self.callback(message), self.suspend_flow.wait())
                    handed += 1
                    if handed % BREATH_EVERY == 0:
                        await asyncio.sleep(0)
        except self.consumer_stopped_errors:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise

    async def _commit(self, offsets: Any) -> bool:
        """An observer begins at the beginning whenever it begins, so nothing it has read may be remembered."""
        assert isinstance(self.app, ServiceApp), "this transport is made by ServiceApp only"
        if not self.app.commits_offsets:
            return True
        return bool(await super()._commit(offsets))

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class _Transport(Transport):
    Consumer = _Consumer


class _NoTables(TableManager):
    """Faust waits a second for tables to be declared before it joins; we declare none.

    It also lets records flow again from here, and tells of the new partitions only afterwards: what came in between was
    nobody's yet and was dropped, and since later offsets were then decided, nobody ever read it again. So it is told here.
    """

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        assert isinstance(self.app, ServiceApp), "this manager is made for ServiceApp only"
        await self.app.tell_assigned(assigned)
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()


class ServiceApp(faust.App):
    """A Faust app that knows its backend and tells when it has its partitions."""

    backend: Backend
    commits_offsets: bool

    def __init__(
        self, group: str, backend: Backend, *, commits_offsets: bool = True, fetch_wait_ms: int = 0, **options: Any
    ) -> None:
        self.backend = backend
        self.fetch_wait_ms = fetch_wait_ms or backend.capabilities.fetch_wait_ms
        self.commits_offsets = commits_offsets
        self._assigned = asyncio.Event()
        self._assigned_listeners: list[PartitionsListener] = []
        super().__init__(group, **options)

    async def joined(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Wait until the group gave us partitions (perhaps none). TimeoutError when it does not."""
        async with asyncio.timeout(timeout_s):
            await self._assigned.wait()

    async def stop(self) -> None:
        """Leave the group; a broker that is gone is not waited for, nor what was taken and not acknowledged: by now nobody
        works on it, and it will be read again."""
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await super().stop()
        except TimeoutError:
            log.warning("group_not_left", group=self.conf.id, waited_s=STOP_PATIENCE_S)

    @property
    def ready(self) -> bool:
        """Has joined its group, is not in a rebalance, has not crashed."""
        return bool(self._assigned.is_set() and not self.rebalancing and self.crash_reason is None)

    def notify_assigned(self, listener: PartitionsListener) -> None:
        """Call in each rebalance with *all* partitions held from now on, before the first record of them is handed over."""
        self._assigned_listeners.append(listener)

    async def tell_assigned(self, assigned: set[TP]) -> None:
        partitions = _partitions(assigned)
        for listener in self._assigned_listeners:
            await listener(partitions)
        self._assigned.set()

    def is_current(self, record: Received) -> bool:
        """Whether it was read since the last rebalance. What was read before it is read again, by whoever owns it now."""
        return bool(record.event.message.generation_id == self.consumer_generation_id)

    def notify_revoked(self, listener: PartitionsListener) -> None:
        """Call at the start of each rebalance with the partitions given up; the group waits while it runs."""
        self.on_partitions_revoked.connect(_calling(listener), weak=False)

    def bytes_topic(self, *names: str) -> TopicT:
        """Topics an agent reads together: raw bytes, deletions included, none declared."""
        return self.topic(
            *names,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            allow_empty=True,
            internal=False,
        )

    def read(self, *names: str, agent: Agent) -> None:
        """Let `agent` read these topics, as one stream."""
        self.agent(self.bytes_topic(*names), name=f"{self.conf.id}-reader")(cast(Any, agent))

    def _new_transport(self) -> Transport:
        return _Transport(self.conf.broker_consumer, self)

    def _new_producer_transport(self) -> Transport:
        return _Transport(self.conf.broker_producer, self)

    def _create_directories(self) -> None:
        """Faust would make directories for tables we do not have, in whatever directory we were started."""


def faust_app(
    name: str,
    backend: Backend,
    *,
    group: str,
    stream_buffer_max: int = 4096,
    commits_offsets: bool = True,
    fetch_wait_ms: int = 0,
) -> ServiceApp:
    """An app that is not started yet. `name` is for logs and client ids, `group` is the consumer group.

    The group carries what must change when the broker lost everything (see `ServiceContext.group`). Without `commits_offsets` its
    members read from the beginning after every rebalance. `fetch_wait_ms`: the long poll; 0 takes the backend's, the shortest.
    """
    capabilities = backend.capabilities
    return ServiceApp(
        group,
        backend,
        commits_offsets=commits_offsets,
        fetch_wait_ms=fetch_wait_ms,
        broker=[URL(f"aiokafka://{server}") for server in backend.bootstrap_servers],
        broker_client_id=f"wharfinger-{name}",
        broker_credentials=_credentials(backend.security),
        broker_session_timeout=capabilities.session_s,
        broker_heartbeat_interval=capabilities.heartbeat_s,
        broker_rebalance_timeout=capabilities.rebalance_s,
        broker_commit_interval=COMMIT_INTERVAL_S,
        broker_request_timeout=max(30.0, capabilities.session_s * 2),
        consumer_auto_offset_reset="earliest",
        consumer_metadata_max_age_ms=capabilities.metadata_max_age_ms,
        key_serializer="raw",
        value_serializer="raw",
        producer_linger=0.0,
        processing_guarantee="at_least_once",
        stream_buffer_maxsize=stream_buffer_max,
        TableManager=_NoTables,
        table_standby_replicas=1,  # not for tables: it selects the assignor that gives one member co-partitioned topics
        # A rebalance does not wait for what was taken: the others wait for us meanwhile, perhaps for a lock that we give back
        # only when told of the rebalance. What is given up unacknowledged is read again by the next owner.
        stream_wait_empty=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        env={},  # or variables such as BROKER_URL and WEB_PORT would win over what stands here
        autodiscover=False,
        worker_redirect_stdouts=False,
    )


async def take(stream: RawStream, max_: int) -> AsyncIterator[list[Received]]:
    """Batches as they come: all that has arrived, up to `max_` records. Nothing is acknowledged here.

    No timer: a batch ends when nothing more has arrived, so a lone record does not wait for company, and an idle stream
    costs nothing. (Faust's own `noack_take` wakes every few milliseconds and makes four tasks each time.)
    """
    assert isinstance(stream, faust.Stream), "every stream of an agent is one"
    stream.enable_acks = False
    channel = cast(ChannelT[Any], stream.channel)
    batch: list[Received] = []
    async for event in stream.events():
        batch.append(_received(cast(EventT[bytes | None], event)))
        if len(batch) >= max_ or channel.queue.empty():
            yield batch
            batch = []


def _received(event: EventT[bytes | None]) -> Received:
    message = event.message
    return Received(message.topic, message.partition, message.offset, message.key, message.value, event)


def _calling(listener: PartitionsListener) -> Callable[..., Awaitable[None]]:
    async def call(_app: object, partitions: set[TP], *_: object, **__: object) -> None:
        await listener(_partitions(partitions))

    return call


def _partitions(of: set[TP]) -> frozenset[Partition]:
    return frozenset((tp.topic, tp.partition) for tp in of)


def _credentials(security: KafkaSecurity) -> faust.SASLCredentials | faust.SSLCredentials | None:
    """Faust's words for the same thing: TLS alone, SASL with or without TLS, or nothing."""
    if security.uses_sasl:
        return faust.SASLCredentials(
            username=security.username,
            password=security.password,
            mechanism=security.mechanism,
            ssl_context=security.ssl_context(),
        )
    context = security.ssl_context()
    return faust.SSLCredentials(context) if context is not None else None
