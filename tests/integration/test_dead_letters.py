"""What nobody can read becomes one dead letter, row first; whoever met it goes on."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import base64
import resource
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer
from tests.apps import a_context, running, send, standing_on, until
from tests.patience import in_patience
from tests.poison import POISON, Record, binding, bomb_command

from wharfinger.domain.value import Value
from wharfinger.events.codec import decode, encode
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.envelope import derived_id
from wharfinger.events.names import wrong_name
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.events.streams import (
    ASSIGNMENTS,
    BINDINGS,
    CAPACITY,
    CLUSTER_STATE,
    CLUSTERS,
    DEAD_LETTERS,
    OUTCOMES,
    POLICIES,
    PROPOSALS,
    Topic,
)
from wharfinger.runtime import reading
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.dead_letters import Letter
from wharfinger.runtime.ledger import DecisionQuery, Ledger, audit_verify
from wharfinger.runtime.letter_box import COUNTED_TOGETHER, LETTERS_PER_MINUTE, LetterBox
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger_annotator import app as annotator
from wharfinger_cli.dead_letters import letters_of
from wharfinger_descheduler import app as descheduler
from wharfinger_estimator import app as estimator
from wharfinger_publisher.app import PublisherService
from wharfinger_scheduler.app import cluster_stage, fleet_stage

pytestmark = pytest.mark.integration

READ = (CLUSTERS, CLUSTER_STATE, POLICIES, BINDINGS, CAPACITY, PROPOSALS, ASSIGNMENTS, OUTCOMES)
"""Every topic that a service of ours reads."""


@pytest_asyncio.fixture
async def context(
    backend: Backend, database_url: str, topic_prefix: str
) -> AsyncIterator[ServiceContext]:
    ledger = await Ledger.open(database_url, "tests-letters")
    yield await a_context(backend, ledger, topic_prefix)
    await ledger.close()


def every_service(context: ServiceContext) -> list[Service]:
    builders = (
        fleet_stage,
        cluster_stage,
        estimator.build,
        descheduler.build,
        annotator.build,
        PublisherService,
    )
    return [build(context) for build in builders]


async def letters(context: ServiceContext) -> list[MessageDeadLettered]:
    return [letter.data for letter in await letters_of(context.ledger)]


async def test_poison_of_every_kind_is_one_letter_each_and_the_stage_goes_on(
    context: ServiceContext,
) -> None:
    service = fleet_stage(context)
    async with running(service, PublisherService(context)):
        for number, poison in enumerate(POISON.values()):
            await send(context, BINDINGS, [("k", poison), ("k", binding(f"shop/well-{number}"))])

        async def decided() -> bool:
            assert service.failed() == ""
            rows = [row async for row in context.ledger.decisions(DecisionQuery(stream="fleet/"))]
            return {row.subject for row in rows} == {
                f"shop/well-{number}" for number in range(len(POISON))
            }

        await until(decided)
        found = sorted(await letters(context), key=lambda letter: letter.offset)
        assert [(letter.topic, letter.offset) for letter in found] == [
            (BINDINGS.name, 2 * n) for n in range(len(POISON))
        ]
        assert [base64.b64decode(letter.payload) for letter in found] == list(POISON.values())
        await until(lambda: _published(context, len(POISON)))
    assert (await audit_verify(context.ledger)).ok


@pytest.mark.long
@pytest.mark.parametrize("kind", POISON)
async def test_poison_is_one_letter_and_the_stage_goes_on(
    context: ServiceContext, kind: str
) -> None:
    poison = POISON[kind]
    service = fleet_stage(context)
    async with running(service, PublisherService(context)):
        await send(context, BINDINGS, [("k", poison), ("k", binding("shop/well"))])

        async def decided() -> bool:
            assert service.failed() == ""
            return bool(
                [row async for row in context.ledger.decisions(DecisionQuery(subject="shop/well"))]
            )

        await until(decided)
        (letter,) = await letters(context)
        assert (letter.topic, letter.partition, letter.offset) == (BINDINGS.name, 0, 0)
        assert letter.reason
        assert "\n" not in letter.reason
        assert base64.b64decode(letter.payload) == poison
        await until(lambda: _published(context, 1))
    assert (await audit_verify(context.ledger)).ok


async def _published(context: ServiceContext, count: int) -> bool:
    return len(await standing_on(context, DEAD_LETTERS)) == count


async def test_names_are_looked_at_once_for_all_services_of_a_process(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Value] = []

    def counted(data: Value) -> str:
        looked.append(data)
        return wrong_name(data)

    monkeypatch.setattr(reading, "wrong_name", counted)
    readers = [
        reading.Reading(
            name,
            context.ledger,
            context.incarnations,
            context.unwire,
            METRICS.of(name),
            context.decoded,
        )
        for name in ("estimator", "descheduler")
    ]
    for _ in readers:  # as each service does
        context.decoded.read_by_another([BINDINGS.name])
    topic = context.wire(BINDINGS.name)
    good, bad = (
        Record(topic, 0, offset, name.encode(), binding(name))
        for offset, name in enumerate(("shop/web", "shop/a b"))
    )
    for reader in readers:
        (message,) = await reader.messages([good])
        assert message.event.subject == "shop/web"
    assert len(looked) == 1
    for reader in readers:  # what is refused is refused by each
        assert await reader.messages([bad]) == []

    async def one_letter() -> bool:
        return len(await letters(context)) >= 1

    await until(one_letter)
    for reader in readers:
        await reader.stop()
    (letter,) = await letters(context)
    assert letter.offset == 1
    assert "expected namespace/name" in letter.reason


async def test_a_letter_from_every_topic_is_written_once_however_many_read_it(
    context: ServiceContext,
) -> None:
    services = every_service(context)
    async with running(*services):
        for topic in READ:
            await send(context, topic, [("k", b"not json")])

        async def all_there() -> bool:
            assert [s.failed() for s in services if s.failed()] == []
            return len(await letters(context)) >= len(READ)

        await until(all_there)
        await asyncio.sleep(0.5)
        found = await letters(context)
        assert sorted(letter.topic for letter in found) == sorted(topic.name for topic in READ)
        await until(lambda: _published(context, len(READ)))
    async with running(*every_service(context)):  # the observers read it all again
        await asyncio.sleep(0.5)
    assert len(await letters(context)) == len(READ)
    events = [decode(record.value or b"") for record in await standing_on(context, DEAD_LETTERS)]
    assert {e.data.topic for e in events if isinstance(e.data, MessageDeadLettered)} == {
        topic.name for topic in READ
    }


async def test_events_on_every_wrong_topic_stop_nobody(context: ServiceContext) -> None:
    await an_event_on_wrong_topics(context, READ)


@pytest.mark.long
@pytest.mark.parametrize("topic", READ, ids=lambda topic: topic.name)
async def test_an_event_on_the_wrong_topic_stops_nobody(
    context: ServiceContext, topic: Topic
) -> None:
    await an_event_on_wrong_topics(context, (topic,))


async def an_event_on_wrong_topics(context: ServiceContext, topics: tuple[Topic, ...]) -> None:
    """Well-formed, but not what the readers of that topic expect."""
    services = every_service(context)
    lost = binding("shop/lost")
    async with running(*services):
        for topic in topics:
            await send(context, topic, [("k", lost), ("", lost)])
        await send(context, BINDINGS, [("k", binding("shop/well"))])

        async def decided() -> bool:
            assert [s.failed() for s in services if s.failed()] == []
            return bool(
                [row async for row in context.ledger.decisions(DecisionQuery(subject="shop/well"))]
            )

        await until(decided)
    assert await letters(context) == []
    assert (await audit_verify(context.ledger)).ok


async def test_a_big_letter_is_cut_and_still_published(context: ServiceContext) -> None:
    async with running(fleet_stage(context), PublisherService(context)):
        await send(context, BINDINGS, [("k", b"x" * 900_000), ("k", b"y" * 100)])
        await until(lambda: _published(context, 2))
        big, small = await letters(context)
        assert (len(base64.b64decode(big.payload)), len(base64.b64decode(small.payload))) == (
            512 * 1024,
            100,
        )
        assert "payload of 900000 bytes cut" in big.reason


NO_STREAMS = ("fleet/²", "fleet/007", "fleet/99", "fleet/", "cluster/", "nowhere", "")


async def test_proposals_to_streams_that_are_none_stop_nobody(context: ServiceContext) -> None:
    await proposals_to_no_streams(context, NO_STREAMS)


@pytest.mark.long
@pytest.mark.parametrize("stream", NO_STREAMS)
async def test_a_proposal_to_a_stream_that_is_none_stops_nobody(
    context: ServiceContext, stream: str
) -> None:
    await proposals_to_no_streams(context, (stream,))


async def proposals_to_no_streams(context: ServiceContext, streams: tuple[str, ...]) -> None:
    fleet, cluster = fleet_stage(context), cluster_stage(context)
    async with running(fleet, cluster):
        for stream in streams:
            proposal = RescheduleProposed(stream, "shop/well", "because")
            event = encode(proposal, id=derived_id("p", stream), source="/tests", subject=stream)
            await send(context, PROPOSALS, [("k", event)])
        await send(context, BINDINGS, [("k", binding("shop/well"))])

        async def decided() -> bool:
            assert fleet.failed() + cluster.failed() == ""
            return bool(
                [row async for row in context.ledger.decisions(DecisionQuery(subject="shop/well"))]
            )

        await until(decided)
        await asyncio.sleep(0.3)
        assert fleet.failed() + cluster.failed() == ""
    assert {h.stream for h in await context.ledger.heads()} <= {"intake", "fleet/0", "cluster/"}


async def test_a_key_of_any_size_makes_a_letter_that_can_be_written(
    context: ServiceContext,
) -> None:
    """Before, such a letter was larger than an event may be: the process ended, at every start."""
    key = "\0\x1b" + "k" * 700_000
    service = fleet_stage(context)
    async with running(service, PublisherService(context)):
        await send(context, BINDINGS, [(key, b"\xff" * 300_000), ("k", binding("shop/well"))])
        await until(lambda: _published(context, 1))
        assert service.failed() == ""
        (letter,) = await letters(context)
        assert letter.key.startswith("\ufffd\x1bkkk")
        assert (len(letter.key), letter.key_bytes) == (1024, len(key))
        assert base64.b64decode(letter.payload) == b"\xff" * 300_000
    assert (await audit_verify(context.ledger)).ok


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
async def test_a_decompression_bomb_is_one_letter_on_every_reader(
    context: ServiceContext, codec: str
) -> None:
    """It is unpacked within bounds and beside the event loop."""
    services = every_service(context)
    async with running(*services):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        bootstrap, topic = context.backend.bootstrap, context.wire(BINDINGS.name)
        producing = await asyncio.create_subprocess_exec(
            *bomb_command(bootstrap, topic, codec, 200_000_000)
        )
        await in_patience(producing.wait())
        await send(context, BINDINGS, [("k", binding("shop/well"))])

        async def decided() -> bool:
            assert [s.failed() for s in services if s.failed()] == []
            return bool(
                [row async for row in context.ledger.decisions(DecisionQuery(subject="shop/well"))]
            )

        await until(decided)
        await until(lambda: _published(context, 1))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        (letter,) = await letters(context)
    assert "without compression" in letter.reason
    assert grown < 128 * 1024, f"{grown} KiB"


async def test_a_producer_chooses_its_compression(context: ServiceContext) -> None:
    names = {codec: f"shop/{codec}" for codec in ("gzip", "snappy", "lz4", "zstd")}
    async with running(fleet_stage(context)):
        for codec, name in names.items():
            producer = AIOKafkaProducer(
                bootstrap_servers=context.backend.bootstrap, compression_type=codec
            )
            await producer.start()
            try:
                await producer.send_and_wait(
                    context.wire(BINDINGS.name), binding(name), key=name.encode(), partition=0
                )
            finally:
                await producer.stop()

        async def decided(name: str) -> bool:
            query = DecisionQuery(subject=name)
            return bool([row async for row in context.ledger.decisions(query)])

        for name in names.values():
            await until(partial(decided, name))
        assert await letters(context) == []


async def test_what_is_read_again_with_more_behind_it_is_counted(context: ServiceContext) -> None:
    """As after a lost session: some letters are written, their place is not committed yet."""
    first, again = LETTERS_PER_MINUTE + 10, LETTERS_PER_MINUTE + 25
    failures: list[Exception] = []
    box = LetterBox(context.ledger, "tests", failures.append, clock_s=lambda: 0.0)
    written: Counter[int] = Counter()

    async def read(offsets: range) -> None:
        for offset in offsets:
            letter = Letter.read(BINDINGS.name, 1, 0, offset, b"k", b"garbage", "no JSON")
            await box.add(letter, 1, partial(written.update, [offset]))

        async def all_written() -> bool:
            assert failures == []
            return all(written[offset] for offset in offsets)

        await until(all_written)
        written.clear()

    await read(range(first))
    box.forget([(BINDINGS.name, 0)])
    await read(range(LETTERS_PER_MINUTE, again))
    assert sum(letter.more or 1 for letter in await letters(context)) >= again


async def test_garbage_of_one_producer_is_counted_above_a_limit(context: ServiceContext) -> None:
    garbage = LETTERS_PER_MINUTE * 4
    service = fleet_stage(context)
    async with running(service):
        await send(
            context,
            BINDINGS,
            [*[("k", b"garbage %d" % n) for n in range(garbage)], ("k", binding("shop/well"))],
        )

        async def all_there() -> bool:
            assert service.failed() == ""
            found = await letters(context)
            return sum(letter.more or 1 for letter in found) >= garbage

        await until(all_there)
        found = await letters(context)
        assert len(found) < 2 * LETTERS_PER_MINUTE + garbage / COUNTED_TOGETHER + 20
        assert {base64.b64decode(letter.payload) for letter in found if not letter.more} >= {
            b"garbage %d" % n for n in range(LETTERS_PER_MINUTE)
        }
