"""The one way to make a Faust app: topology, agents and rebalancing, and nothing else of Faust.

No tables (the ledger is the state), no web, no leader topic, no topic declared by the framework,
values as raw bytes. An agent reads with `take`, hands its events to the stage loop, and
acknowledges them after the commit; an exception never leaves an agent, because the framework would
acknowledge and drop what it was holding. Several apps live in one event loop, or one in a process;
the code is the same: `await app.start()`, `await app.joined()`, `await app.stop()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import faust
import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from faust.sensors import Monitor
from faust.tables.manager import TableManager
from faust.tables.recovery import RebalanceAgain
from faust.transport.consumer import ensure_TPset
from faust.transport.drivers.aiokafka import (
    AIOKafkaConsumerThread,
    Consumer,
    ConsumerRebalanceListener,
    Transport,
)
from faust.types import TP, ChannelT, EventT, Message, StreamT, TopicT
from mode import Service
from yarl import URL

from wharfinger.runtime.backends import Backend, KafkaSecurity
from wharfinger.runtime.fetch_pacing import Pace, PacedFetches, SendSignals

# readers and writers must agree on it
from wharfinger.runtime.topics import partition_for as partition_for

Partition: TypeAlias = tuple[str, int]
RawStream: TypeAlias = StreamT[bytes | None]
PartitionsListener: TypeAlias = Callable[[frozenset[Partition]], Awaitable[None]]
Starts: TypeAlias = Callable[[frozenset[Partition]], Awaitable[Mapping[Partition, int]]]

Agent: TypeAlias = Callable[[faust.Stream[bytes | None]], Awaitable[None]]

BREATH_EVERY = 100
COMMIT_INTERVAL_S = 0.5
LIVELOCK_EVERY_S = 30.0
JOIN_TIMEOUT_S = 60.0
STOP_PATIENCE_S = 5.0
SEEK_AGAIN_S = 0.5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Received:
    """One record as an agent takes it. `value` is None for a key that was deleted. `headers`: name
    and value of each."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    event: EventT[bytes | None]

    @property
    def generation(self) -> int | None:
        """The rebalance of this process since which the record was read."""
        return self.event.message.generation_id

    def ack(self) -> None:
        """Done with it: its offset may be committed once all before it are done."""
        self.event.ack()


class _ConsumerThread(AIOKafkaConsumerThread):
    """Faust fixes the long poll at 1500 ms, which the memory broker turns into 400 ms of delay for
    every event."""

    _fetches: PacedFetches | None = None

    async def on_start(self) -> None:
        """In the thread of the consumer. Nothing is fetched yet: there is no subscription before
        this is over."""
        await super().on_start()
        assert isinstance(self.app, ServiceApp), "this transport is made by ServiceApp only"
        app = self.app
        pace = Pace.of(app.backend.capabilities, app.fetch_wait_ms)
        self._fetches = PacedFetches(
            self._consumer, app.service_name, app.topics_read, pace, app.signals
        )

    def _create_worker_consumer(self, transport: Transport) -> Any:
        assert isinstance(self.app, ServiceApp), "this transport is made by ServiceApp only"
        consumer = super()._create_worker_consumer(transport)
        fetch_wait_ms = self.app.fetch_wait_ms
        if hasattr(consumer, "_fetch_max_wait_ms"):
            consumer._fetch_max_wait_ms = fetch_wait_ms
        else:
            log.warning(
                "fetch_wait_not_set",
                wanted_ms=fetch_wait_ms,
                reason="the client keeps it elsewhere now",
            )
        return consumer

    async def _keepalive2(self) -> None:
        """Faust wakes both loops once a second so that calls from thread to thread are not
        overlooked; they are made in a way that wakes the other loop by itself."""

    @Service.task
    async def _thread_keepalive(self) -> None:
        """As `_keepalive2`, for the thread's own loop."""

    async def seek_to_committed(self) -> Any:
        """What was fetched while the flow stood still in a rebalance is let fall, since it is read
        again from the committed offset. Where nothing was committed yet there is nothing to go back
        to, and it would never be read at all: go to the start.

        An app whose service knows better where to begin (`ServiceApp.read_from`) is asked instead,
        and what the group has committed is not looked at.
        """
        assert isinstance(self.app, ServiceApp), "this transport is made by ServiceApp only"
        if self.app.starts is not None:
            return await self._seek_to_starts(self.app.starts)
        committed = await super().seek_to_committed()
        never = [
            TopicPartition(tp.topic, tp.partition) for tp, offset in committed.items() if not offset
        ]
        if never:
            await self.seek_to_beginning(*never)
        return committed

    async def _seek_to_starts(self, starts: Starts) -> Mapping[TP, int]:
        """What retention has taken away since is not waited for: where a partition begins later,
        reading begins there. RebalanceAgain: other partitions were assigned meanwhile, and are
        sought for themselves."""
        assert isinstance(self.app, ServiceApp), "this transport is made by ServiceApp only"
        assigned, seeking = self.assignment(), self.app.assigned_in
        if not assigned:
            return {}
        wanted = await starts(_partitions(assigned))
        begins = await self.earliest_offsets(*assigned)
        if self.app.assigned_in != seeking:
            raise RebalanceAgain
        positions = {
            tp: max(wanted.get((tp.topic, tp.partition), 0), begins[tp])
            for tp in assigned & self.assignment()
        }
        await self.seek_wait(positions)
        return positions

    async def on_thread_stop(self) -> None:
        """Without a broker the driver's fetcher raises the cancellation of its own tasks. That
        would end this thread without a report, and the caller of `stop` would wait forever.
        """
        if self._fetches is not None:
            self._fetches.close()
        try:
            await super().on_thread_stop()
        except asyncio.CancelledError:
            if self._consumer is not None:
                await self._consumer._client.close()  # type: ignore[no-untyped-call]


class _RebalanceListener(ConsumerRebalanceListener):
    """Numbers generations by the rebalances of this process. The group's own number may come again:
    a group that lost its members begins with the same one again. Records from before a rebalance
    would then be taken for records from after it."""

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        app = self._thread.app
        app.consumer_generation_id = generation = app.rebalancing_count
        await self._thread.on_partitions_assigned(ensure_TPset(assigned), generation)


class _Consumer(Consumer):
    """Changes to Faust's consumer, in its private methods: the tests of this module fail when a
    release of Faust moves them."""

    RebalanceListener = _RebalanceListener

    def __post_init__(self) -> None:
        super().__post_init__()
        self._acked_some = asyncio.Event()
        self._sought_in = 0
        """The rebalance whose assignment was sought last."""

    async def perform_seek(self) -> None:
        """Set the positions of what is assigned, and wait for a broker that is away. Were that left
        to the next rebalance, records that were fetched meanwhile would be lost."""
        assert isinstance(self.app, ServiceApp), "this transport is made by ServiceApp only"
        seeking = self.app.assigned_in
        while True:
            try:
                await super().perform_seek()
            except (KafkaError, OSError, TimeoutError) as error:
                if self.should_stop or seeking != self.app.rebalancing_count:
                    raise
                log.warning("seek.failed", group=self.app.conf.id, why=repr(error))
                await self.sleep(SEEK_AGAIN_S)
            else:
                self._sought_in = max(seeking, self._sought_in)
                return

    def resume_flow(self) -> None:
        """Faust resumes what it stopped for a rebalance even where the next one has begun since.
        Records would then flow from wherever the group has committed, with the new generation,
        before they are sought: those handed over after `tell_assigned`, and not those before it.

        RebalanceAgain: the next rebalance has begun, and resumes the flow.
        """
        assert isinstance(self.app, ServiceApp), "this transport is made by ServiceApp only"
        newest = self.app.rebalancing_count
        if self.app.assigned_in != newest or (self.assignment() and self._sought_in != newest):
            self.app.flow_control.suspend()
            raise RebalanceAgain
        super().resume_flow()

    async def _drain_messages(self, fetcher: Any) -> None:
        """Faust makes two tasks a record, so that a suspension of the flow can interrupt the
        handing over. Where several apps share a loop, this limits each to a few hundred records a
        second. While the flow is active, handing a record over never blocks (a full buffer pauses
        the partition). So it is done without tasks then, and other tasks of the loop get a turn
        every hundred records."""
        stopped, fetcher_stopped = self._stopped.is_set, fetcher._stopped.is_set
        handed = 0
        try:
            while not (stopped() or fetcher_stopped()):
                await asyncio.sleep(0)
                async for tp, message in self.getmany(timeout=1.0):
                    # Faust drops a record at or below the offset it noted last. An offset noted
                    # while a rebalance seeks back would drop records that must be read again.
                    # Reading one twice does no harm: every reader skips what it has had.
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

    def ack(self, message: Message) -> bool:
        self._acked_some.set()
        return bool(super().ack(message))

    @Service.task
    async def _commit_handler(self) -> None:
        """Commits one interval after a record was acknowledged. Faust would wake up at every
        interval."""
        while not self.should_stop:
            await self._acked_some.wait()
            await self.sleep(self.commit_interval)
            self._acked_some.clear()
            await self.commit()

    @Service.task
    async def _commit_livelock_detector(self) -> None:
        """It only logs partitions that have not moved for minutes, and Faust runs it every
        second."""
        while not self.should_stop:
            await self.sleep(LIVELOCK_EVERY_S)
            if not self.app.rebalancing:
                await self.verify_all_partitions_active()

    async def _commit(self, offsets: Any) -> bool:
        """An observer always reads its topics from the beginning, so none of its offsets may be
        committed."""
        assert isinstance(self.app, ServiceApp), "this transport is made by ServiceApp only"
        if not self.app.commits_offsets:
            return True
        return bool(await super()._commit(offsets))

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class _Transport(Transport):
    Consumer = _Consumer


class _Monitor(Monitor):
    """Counts, but does not compute rates from its counts once a second: no code reads the rates."""

    @Service.task
    async def _sampler(self) -> None: ...


class _NoTables(TableManager):
    """Faust waits a second for tables to be declared before it joins; we declare none.

    In a rebalance this manager also resumes the flow of records, and Faust reports the new
    partitions only after that. A record that came in between had no owner yet and was dropped.
    Later offsets were then decided, so that record was never read again. Therefore the new
    partitions are reported here, before the flow resumes.
    """

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        assert isinstance(self.app, ServiceApp), "this manager is made for ServiceApp only"
        await self.app.tell_assigned(assigned, generation_id)
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()


class ServiceApp(faust.App):
    """A Faust app that knows its backend and reports when partitions are assigned to it."""

    backend: Backend
    commits_offsets: bool

    def __init__(
        self,
        group: str,
        backend: Backend,
        *,
        commits_offsets: bool = True,
        fetch_wait_ms: int = 0,
        name: str = "",
        signals: SendSignals | None = None,
        **options: Any,
    ) -> None:
        self.backend = backend
        self.fetch_wait_ms = fetch_wait_ms or backend.capabilities.fetch_wait_ms
        self.commits_offsets = commits_offsets
        self.starts: Starts | None = None
        self.service_name = name or group
        self.signals = signals
        self.topics_read: list[str] = []
        self.assigned_in = 0
        """The rebalance that gave the partitions held, as `rebalancing_count` numbers them."""
        self._assigned = asyncio.Event()
        self._assigned_listeners: list[PartitionsListener] = []
        super().__init__(group, **options)

    async def joined(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Wait until the group has assigned us partitions (perhaps none). TimeoutError when it does
        not."""
        async with asyncio.timeout(timeout_s):
            await self._assigned.wait()

    async def stop(self) -> None:
        """Leave the group. It waits neither for a broker that is gone nor for records that were
        taken and not acknowledged: those are not being processed any more, and their next owner
        reads them again."""
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await super().stop()
        except TimeoutError:
            log.warning("group_not_left", group=self.conf.id, waited_s=STOP_PATIENCE_S)

    @property
    def ready(self) -> bool:
        """Has joined its group, is not in a rebalance, has not crashed."""
        return bool(self._assigned.is_set() and not self.rebalancing and self.crash_reason is None)

    def read_from(self, starts: Starts) -> None:
        """Ask `starts`, whenever partitions were assigned, at which offset each of them is to be
        read from; 0 where it does not say. Called after the listeners of `notify_assigned`."""
        self.starts = starts

    def notify_assigned(self, listener: PartitionsListener) -> None:
        """Call in each rebalance with *all* partitions held from now on, before the first record of
        them is handed over."""
        self._assigned_listeners.append(listener)

    async def tell_assigned(self, assigned: set[TP], rebalance: int) -> None:
        partitions = _partitions(assigned)
        self.assigned_in = rebalance
        for listener in self._assigned_listeners:
            await listener(partitions)
        self._assigned.set()

    def is_current(self, record: Received) -> bool:
        """Whether the record was read since the last rebalance. An older one is read again by the
        partition's present owner."""
        return record.generation == self.consumer_generation_id

    def notify_revoked(self, listener: PartitionsListener) -> None:
        """Call at the start of each rebalance with the partitions given up; the group waits while
        it runs."""
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
        self.topics_read.extend(names)
        self.agent(self.bytes_topic(*names), name=f"{self.conf.id}-reader")(cast(Any, agent))

    def _new_transport(self) -> Transport:
        return _Transport(self.conf.broker_consumer, self)

    def _new_producer_transport(self) -> Transport:
        return _Transport(self.conf.broker_producer, self)

    def _create_directories(self) -> None:
        """Does nothing. Faust would create directories for tables, which we do not have, in the
        current working directory."""


def faust_app(
    name: str,
    backend: Backend,
    *,
    group: str,
    stream_buffer_max: int = 4096,
    commits_offsets: bool = True,
    fetch_wait_ms: int = 0,
    signals: SendSignals | None = None,
) -> ServiceApp:
    """An app that is not started yet. `name` is for logs and client ids, `group` is the consumer
    group.

    The group carries what must change when the broker lost everything (see `ServiceContext.group`).
    Without `commits_offsets` its members read from the beginning after every rebalance.
    `fetch_wait_ms`: how often an idle reader asks (see `runtime.fetch_pacing`); 0 takes the
    backend's, the shortest. `signals`: what the producers of this process have sent.
    """
    capabilities = backend.capabilities
    return ServiceApp(
        group,
        backend,
        commits_offsets=commits_offsets,
        fetch_wait_ms=fetch_wait_ms,
        name=name,
        signals=signals,
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
        Monitor=_Monitor,
        # not for tables: it selects the assignor that gives one member co-partitioned topics
        table_standby_replicas=1,
        # A rebalance does not wait for what was taken: the others wait for us meanwhile, perhaps
        # for a lock that we give back only when told of the rebalance. What is given up
        # unacknowledged is read again by the next owner.
        stream_wait_empty=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        env={},  # or variables such as BROKER_URL and WEB_PORT would win over what stands here
        autodiscover=False,
        worker_redirect_stdouts=False,
    )


async def take(stream: RawStream, max_: int) -> AsyncIterator[list[Received]]:
    """Batches as they come: all that has arrived, up to `max_` records. Nothing is acknowledged
    here.

    No timer: a batch ends when nothing more has arrived, so a lone record does not wait for
    company, and an idle stream costs nothing. (Faust's own `noack_take` wakes every few
    milliseconds and makes four tasks each time.)

    All records of a batch were read since the same rebalance. One may begin between two records,
    which empties the buffer. What was taken before it is read again by the partition's present
    owner. Handed over together with what is read again, its higher offsets would make the lower
    ones look as if they had been decided.
    """
    assert isinstance(stream, faust.Stream), "every stream of an agent is one"
    stream.enable_acks = False
    channel = cast(ChannelT[Any], stream.channel)
    batch: list[Received] = []
    async for event in stream.events():
        received = _received(cast(EventT[bytes | None], event))
        if batch and batch[-1].generation != received.generation:
            batch = []
        batch.append(received)
        if len(batch) >= max_ or channel.queue.empty():
            yield batch
            batch = []


def _received(event: EventT[bytes | None]) -> Received:
    message = event.message
    headers: Any = message.headers  # as the driver passes them on: pairs
    return Received(
        message.topic,
        message.partition,
        message.offset,
        message.key,
        message.value,
        headers or (),
        event,
    )


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
