"""The one way to make a Faust app: topology, agents and rebalancing, and nothing else of Faust.

No tables (the ledger is the state), no web, no leader topic, no topic declared by the framework,
values as raw bytes. Each fetch goes to its agent whole, as one event of Faust's stream (ADR 0056).
An agent reads with `take`, hands the records to the stage loop, and acknowledges them after the
commit; an exception never leaves an agent, because the framework would drop what it was holding.
Several apps live in one event loop, or one in a process; the code is the same: `await app.start()`,
`await app.joined()`, `await app.stop()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias, cast

import faust
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
from faust.types import TP, ChannelT, StreamT, TopicT
from mode import Service
from yarl import URL

from wharfinger.runtime.backends import Backend, KafkaSecurity
from wharfinger.runtime.fetch_pacing import Pace, PacedFetches
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.send_signals import SendSignals

# readers and writers must agree on it
from wharfinger.runtime.topics import partition_for as partition_for

Partition: TypeAlias = tuple[str, int]
RawStream: TypeAlias = StreamT[bytes | None]
PartitionsListener: TypeAlias = Callable[[frozenset[Partition]], Awaitable[None]]
Starts: TypeAlias = Callable[[frozenset[Partition]], Awaitable[Mapping[Partition, int]]]

Agent: TypeAlias = Callable[[faust.Stream[bytes | None]], Awaitable[None]]

COMMIT_INTERVAL_S = 0.5
FETCH_S = 5.0
"""How long to wait for records. Then the partitions to read are determined again."""
BATCHES_MAX = 4
RECORDS_MAX = 1000
"""How many fetches may wait for an agent, and how many records each has at most."""
JOIN_TIMEOUT_S = 60.0
STOP_PATIENCE_S = 5.0
SEEK_AGAIN_S = 0.5

log = get_logger(__name__)


class Received(NamedTuple):
    """One record as an agent takes it. `value` is None for a key that was deleted. `headers`: name
    and value of each. `generation`: the rebalance of this process since which it was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    generation: int | None
    consumer: _Consumer

    def ack(self) -> None:
        """Done with it and with all records before it in its partition: the offset behind it may
        be committed."""
        self.consumer.acknowledge(self)


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

    async def _fetch_records(
        self,
        consumer: Any,
        active_partitions: Any,
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> Any:
        """A rebalance cancels who waits for a fetch, and not the fetch, which goes on in this
        thread. What it takes after the partitions were sought has no reader: it is put back, or it
        would never be read."""
        assert isinstance(self.consumer, _Consumer), "this transport is made by ServiceApp only"
        stops = self.consumer.flow_stops
        fetched = await super()._fetch_records(consumer, active_partitions, timeout, max_records)
        if stops == self.consumer.flow_stops:
            return fetched
        for partition, records in fetched.items():
            consumer.seek(partition, records[0].offset)
        return {}

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
        self._done: dict[TP, int] = {}
        """The offset behind the last record that was acknowledged since the last commit."""
        self._sought_in = 0
        """The rebalance whose assignment was sought last."""
        self.flow_stops = 0
        """How often the flow was stopped: who waited for a fetch then is gone."""

    def stop_flow(self) -> None:
        self.flow_stops += 1
        super().stop_flow()

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
        """Hand over each fetch whole. Faust hands over each record by itself: it makes two tasks
        and three objects a record, which takes longer than decoding the record."""
        stopped, fetcher_stopped = self._stopped.is_set, fetcher._stopped.is_set
        try:
            while not (stopped() or fetcher_stopped()):
                await asyncio.sleep(0)
                fetched, active = await self._wait_next_records(FETCH_S)
                if fetched and self.flow_active and not self.should_stop:
                    await self._hand_over(fetched, active)
        except self.consumer_stopped_errors:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise

    async def _hand_over(self, fetched: Mapping[TP, Sequence[Any]], active: Set[TP] | None) -> None:
        """Put the records into the queues of the agents that read their topics, as one event for
        each agent. Where a queue is full, wait; a rebalance ends the wait, and the records are
        read again after it."""
        conductor: Any = self.app.topics
        generation = self.app.consumer_generation_id
        batches: dict[Any, list[Received]] = {}
        last: dict[Any, tuple[TP, Any]] = {}
        for tp, records in fetched.items():
            if not records or not (active is None or tp in active):
                continue
            received = [
                Received(
                    r.topic, r.partition, r.offset, r.key, r.value, r.headers, generation, self
                )
                for r in records
            ]
            async with conductor._tp_to_callback_lock:
                channels = tuple(conductor._tp_index.get(tp, ()))
            for channel in channels:
                batches.setdefault(channel, []).extend(received)
                last[channel] = tp, records[-1]
            # Faust drops a record at or below the offset it noted last. An offset noted while a
            # rebalance seeks back would drop records that must be read again. Reading one twice
            # does no harm: every reader skips what it has had. So it is noted for reports only.
            self._read_offset[tp] = records[-1].offset
        for channel, batch in batches.items():
            if generation != self.app.consumer_generation_id:
                return
            tp, record = last[channel]
            message = self._to_message(tp, record)
            event = faust.Event(self.app, None, batch, None, message)
            flows = self.flow_active and not self.suspend_flow.is_set()
            if flows and self.app.flow_control.is_active() and not channel.queue.full():
                channel.queue.put_nowait(event)
            else:
                await self.wait_first(channel.queue.put(event), self.suspend_flow.wait())

    def acknowledge(self, record: Received) -> None:
        """Note that the offset behind the record may be committed. What was read before the last
        rebalance is ignored."""
        if record.generation == self.app.consumer_generation_id:
            self._done[TP(record.topic, record.partition)] = record.offset + 1
            self._acked_some.set()

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commit what was acknowledged since the last commit, of the partitions that are held."""
        done, self._done = self._done, {}
        held = self.assignment()
        offsets = {tp: offset for tp, offset in done.items() if tp in held}
        if not offsets or not await self._commit(offsets):
            return False
        self._committed_offset.update(offsets)
        return True

    @Service.task
    async def _commit_handler(self) -> None:
        """Commit one interval after a record was acknowledged. Faust would wake up at every
        interval."""
        while not self.should_stop:
            await self._acked_some.wait()
            await self.sleep(self.commit_interval)
            self._acked_some.clear()
            await self.commit()

    @Service.task
    async def _commit_livelock_detector(self) -> None:
        """Faust logs partitions whose offsets stand still. A service reports that itself
        (`runtime.progress`), and for more causes."""

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
        stream_buffer_maxsize=BATCHES_MAX,
        broker_max_poll_records=RECORDS_MAX,
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
        received = cast("list[Received]", event.value)
        if batch and batch[-1].generation != received[-1].generation:
            batch = []
        batch += received
        while len(batch) >= max_ or (batch and channel.queue.empty()):
            yield batch[:max_]
            batch = batch[max_:]


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
