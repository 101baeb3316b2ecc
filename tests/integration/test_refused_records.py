"""A broker that takes less than we send: it comes in smaller records, and what cannot be sent holds
back its own key only.

On a real broker the topic's own limit is lowered; the embedded one has none, so there the producer
refuses what a limit would.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import re
from collections import Counter as Counted
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from tests.apps import a_context, running, standing_on, until
from tests.counter import Counter, Counts, Writer, withdrawn

from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentsDecided, Placed
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.codec import decode, frame_of
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.decisions import NodeShare, ReplicasPlaced
from wharfinger.events.envelope import Event
from wharfinger.events.event_part import EventPart
from wharfinger.events.parts import Assembler
from wharfinger.events.streams import (
    ASSIGNMENTS,
    BATCH_BYTES_MAX,
    CAPACITY,
    CLUSTER_STATE,
    DECISIONS,
    INTAKE,
    RECORD_BYTES_MAX,
    Topic,
)
from wharfinger.kernel.decider import Decision, Draft, Micros
from wharfinger.kernel.observer import Failures, Publication
from wharfinger.runtime.backends import Backend, BackendError
from wharfinger.runtime.dead_letters import UNSENT
from wharfinger.runtime.ledger import DecisionQuery, Ledger, wall_clock
from wharfinger.runtime.ledger.freshness import PUBLISHER
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.runtime.observer_service import ObserverService, Observing
from wharfinger.runtime.producer import Producer
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.topic_setup import topic_specs
from wharfinger.runtime.topics import MESSAGE_BYTES, check_topics, configured
from wharfinger_publisher.app import PublisherService
from wharfinger_publisher.relay import RelaySettings

pytestmark = pytest.mark.integration

LONG = "x" * 400
"""A cluster whose name alone takes more of a record than the limits here leave."""

NODES = 60
LIMIT = 2000


class Placing(Counter):
    """Every event is a workload that was placed on many nodes: decisions and assignments of some 6
    kB."""

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self._cluster = cluster

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        for cause, name in list(state.waiting.items()):
            shares = tuple(
                NodeShare(f"node-{i:03}.{self._cluster[:3]}.{'y' * 60}", (i,)) for i in range(NODES)
            )
            yield Draft(ReplicasPlaced(self._cluster, name, "a", shares), name, "placed", cause)

    def fold_decision(self, state: Counts, decision: Decision, at: Micros) -> None:
        if decision.cause is not None:
            state.waiting.pop(decision.cause, None)


class Placings:
    """Cluster streams that go on placing."""

    def __init__(self, ledger: Ledger, *clusters: str) -> None:
        self._ledger = ledger
        self._clusters = clusters
        self._writers: dict[str, Writer] = {}
        self._number = 0

    async def decide(self, count: int) -> None:
        for cluster in self._clusters:
            stream = f"cluster/{cluster}"
            if stream not in self._writers:
                await self._ledger.ensure_streams([stream])
                head = (await self._ledger.raise_epoch([stream]))[stream]
                self._writers[stream] = Writer(head, Placing(cluster))
            writer = self._writers[stream]
            events = [withdrawn(n) for n in range(self._number, self._number + count)]
            self._number += count
            await self._ledger.commit([writer.step(events, wall_clock())], writer.events)


class Limits:
    """What the broker takes, by topic."""

    def __init__(self, context: ServiceContext, monkeypatch: pytest.MonkeyPatch) -> None:
        self._context = context
        self._bytes: dict[str, int] = {}
        if not context.backend.capabilities.retention:
            self._refuse_like_a_broker(monkeypatch)

    async def lower(self, topic: Topic, bytes_: int = LIMIT) -> None:
        self._bytes[self._context.wire(topic.name)] = bytes_
        if self._context.backend.capabilities.retention:
            await self._configure(topic, bytes_)

    async def lift(self, topic: Topic) -> None:
        await self.lower(topic, BATCH_BYTES_MAX)

    async def _configure(self, topic: Topic, bytes_: int) -> None:
        configs = {MESSAGE_BYTES: str(bytes_), "cleanup.policy": "delete"}
        admin = AIOKafkaAdminClient(**self._context.backend.client_options())
        await admin.start()
        try:
            name = self._context.wire(topic.name)
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs)])
        finally:
            await admin.close()
        # The broker acts by it a moment after it has recorded it.
        await until(lambda: self._is_configured(name, str(bytes_)))

    async def _is_configured(self, name: str, bytes_: str) -> bool:
        return await configured(self._context.backend, [name], MESSAGE_BYTES) == {name: bytes_}

    def _refuse_like_a_broker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sends = Producer.send_batch

        async def send_batch(producer: Producer, batch: Any, topic: str, *, partition: int) -> Any:
            if batch.size() > self._bytes.get(topic, BATCH_BYTES_MAX):
                refused = asyncio.get_running_loop().create_future()
                refused.set_exception(MessageSizeTooLargeError())
                # as the client counts what it sends
                producer.take_back(topic, partition, -batch.record_count())
                return refused
            return await sends(producer, batch, topic, partition=partition)

        monkeypatch.setattr(Producer, "send_batch", send_batch)


@pytest_asyncio.fixture
async def context(backend: Backend, ledger: Ledger, topic_prefix: str) -> ServiceContext:
    return await a_context(backend, ledger, topic_prefix)


@pytest.fixture
def limits(context: ServiceContext, monkeypatch: pytest.MonkeyPatch) -> Limits:
    return Limits(context, monkeypatch)


def a_publisher(context: ServiceContext) -> PublisherService:
    return PublisherService(context, RelaySettings(withheld_s=0.1))


async def whole(context: ServiceContext, topic: Topic) -> list[Event[Value]]:
    """The events of a topic as a reader has them."""
    parts, found = Assembler(), []
    for record in await standing_on(context, topic):
        event = decode(record.value or b"")
        while isinstance(event.data, EventPart):
            joined = parts.add(
                (topic.name, record.partition), record.offset, event, event.data, None
            )
            if joined is None:
                break
            event = decode(joined.body)
        else:
            found.append(event)
    return found


async def placed(context: ServiceContext) -> dict[str, list[int]]:
    """Cluster -> the seqs whose items are on the assignments topic, in order."""
    found: dict[str, list[int]] = {}
    for event in await whole(context, ASSIGNMENTS):
        assert isinstance(event.data, AssignmentsDecided)
        for item in event.data.items:
            assert isinstance(item, Placed)
            assert len(item.placed) == NODES
            found.setdefault(event.data.cluster, []).append(item.seq)
    return found


async def published(context: ServiceContext) -> set[str]:
    return {str(event.id) for event in await whole(context, DECISIONS)}


async def decided(context: ServiceContext) -> set[str]:
    return {str(r.id) async for r in context.ledger.decisions(DecisionQuery("cluster/"))}


async def letters(ledger: Ledger) -> list[MessageDeadLettered]:
    return [
        event.data
        async for recorded in ledger.recorded_rounds(INTAKE, 1)
        for event in recorded.events
        if isinstance(event.data, MessageDeadLettered)
    ]


async def assert_nothing_twice(context: ServiceContext) -> None:
    for topic in (ASSIGNMENTS, DECISIONS):
        ids = Counted(
            frame_of(record.value or b"").id for record in await standing_on(context, topic)
        )
        assert {id_: n for id_, n in ids.items() if n > 1} == {}


async def test_a_lower_limit_makes_smaller_records(context: ServiceContext, limits: Limits) -> None:
    for topic in (ASSIGNMENTS, DECISIONS):
        await limits.lower(topic)
    placings = Placings(context.ledger, "oslo", "bergen")
    await placings.decide(10)
    async with running(a_publisher(context)):
        await until(lambda: _all_there(context, 20))
        await placings.decide(5)
        await until(lambda: _all_there(context, 30))
    assert await placed(context) == {"oslo": [*range(1, 16)], "bergen": [*range(1, 16)]}
    assert await letters(context.ledger) == []
    await assert_nothing_twice(context)


async def _all_there(context: ServiceContext, count: int) -> bool:
    return (
        len(await published(context)) == count
        and sum(map(len, (await placed(context)).values())) == count
    )


async def test_a_limit_lowered_meanwhile_is_found_out_and_nothing_is_appended_twice(
    context: ServiceContext, limits: Limits
) -> None:
    """One topic refuses in the middle of a turn: what the others acknowledged in that turn is not
    sent again with it."""
    placings = Placings(context.ledger, "oslo", "bergen", "tromso")
    async with running(a_publisher(context)):
        await placings.decide(2)
        await until(lambda: _all_there(context, 6))
        await limits.lower(ASSIGNMENTS)
        await placings.decide(20)
        await until(lambda: _all_there(context, 66))
    assert await placed(context) == {name: [*range(1, 23)] for name in ("oslo", "bergen", "tromso")}
    assert await letters(context.ledger) == []
    await assert_nothing_twice(context)


async def test_what_cannot_be_sent_holds_back_its_key_until_it_can(
    context: ServiceContext, limits: Limits
) -> None:
    """The plane goes on; the key that is held back is on record through a restart, and gets
    everything in order afterwards."""
    await limits.lower(ASSIGNMENTS)
    placings = Placings(context.ledger, "oslo", LONG)
    await placings.decide(3)
    async with running(publisher := a_publisher(context)):
        await placings.decide(3)

        async def the_rest_is_there() -> bool:
            there = await placed(context)
            return there.get("oslo") == [*range(1, 7)] and len(await published(context)) == 12

        await until(the_rest_is_there)
        await until(lambda: publisher.withheld())
        assert {(w.topic, w.key, w.stream): seq for w, seq in publisher.withheld().items()} == {
            (ASSIGNMENTS.name, LONG, f"cluster/{LONG}"): 1
        }
        recorded = await context.ledger.withheld(PUBLISHER, context.life)
        assert recorded == publisher.withheld()
    assert LONG not in await placed(context)
    async with running(publisher := a_publisher(context)):
        await placings.decide(2)
        await until(lambda: _there(context, "oslo", 8))
        assert len(publisher.withheld()) == 1
        found = await letters(context.ledger)
        assert [(one.topic, one.key, one.offset) for one in found] == [
            (ASSIGNMENTS.name, LONG, UNSENT)
        ]
        assert found[0].reason.startswith("refused by the broker: MessageSizeTooLargeError")
        await limits.lift(ASSIGNMENTS)
        await until(lambda: not publisher.withheld())
        await placings.decide(2)
        await until(lambda: _there(context, LONG, 10))
    assert await placed(context) == {"oslo": [*range(1, 11)], LONG: [*range(1, 11)]}
    assert await published(context) == await decided(context)


async def _there(context: ServiceContext, cluster: str, count: int) -> bool:
    return len((await placed(context)).get(cluster, [])) >= count


@pytest.mark.parametrize("lost", ["acknowledgement", "batch"])
async def test_a_turn_that_breaks_off_goes_on_where_it_stopped(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """One place fails three times while the others get through: no envelope of theirs is appended
    again."""
    sends = Producer.send_batch
    failed = 0

    async def failing(self: Producer, batch: Any, topic: str, *, partition: int) -> Any:
        nonlocal failed
        if topic.endswith(ASSIGNMENTS.name) and failed < 3:
            failed += 1
            if lost == "acknowledgement":
                await (await sends(self, batch, topic, partition=partition))
            future = asyncio.get_running_loop().create_future()
            future.set_exception(KafkaTimeoutError())
            return future
        return await sends(self, batch, topic, partition=partition)

    monkeypatch.setattr(Producer, "send_batch", failing)
    await Placings(context.ledger, "oslo", "bergen", "tromso").decide(30)
    async with running(a_publisher(context)):
        await until(lambda: _all_there(context, 90))
    assert failed == 3
    await assert_nothing_twice(context)


async def test_a_topic_that_takes_less_than_we_send_is_named(
    context: ServiceContext, limits: Limits
) -> None:
    if not context.backend.capabilities.retention:
        pytest.skip("topics of the embedded broker have no settings")
    specs = topic_specs(context.settings)
    await check_topics(context.backend, specs, context.prefix)
    await limits.lower(DECISIONS)
    expected = (
        f"{context.wire(DECISIONS.name)} has {MESSAGE_BYTES} {LIMIT}, "
        f"at least {BATCH_BYTES_MAX} expected"
    )
    with pytest.raises(BackendError, match=re.escape(expected)):
        await check_topics(context.backend, specs, context.prefix)


class OneFact:
    """An observer that has one large fact to publish."""

    def __init__(self, fact: CapacityEstimated) -> None:
        self._fact = fact
        self.failures = Failures()

    def initial(self) -> list[CapacityEstimated]:
        return [self._fact]

    def fold(self, state: list[CapacityEstimated], event: Event[Value], at: Micros) -> None:
        pass

    def publish(self, state: list[CapacityEstimated], at: Micros) -> list[Publication]:
        facts, state[:] = list(state), []
        return [Publication(fact, fact.cluster, fact.cluster, fact.cluster) for fact in facts]

    def next_due(self, state: list[CapacityEstimated]) -> Micros | None:
        return None


async def test_a_large_fact_of_an_observer_comes_in_parts(context: ServiceContext) -> None:
    fact = CapacityEstimated("oslo", 1, {}, {f"{'c' * 40}-{i:05}": i for i in range(60_000)})

    async def load(groups: frozenset[int]) -> list[Loaded]:
        return []

    observing = Observing("estimator", OneFact(fact), [CLUSTER_STATE], [], load)
    async with running(ObserverService(observing, context)):

        async def is_there() -> bool:
            return [event.data for event in await whole(context, CAPACITY)] == [fact]

        await until(is_there)
    sizes = [len(record.value or b"") for record in await standing_on(context, CAPACITY)]
    assert len(sizes) > 1
    assert max(sizes) <= RECORD_BYTES_MAX
