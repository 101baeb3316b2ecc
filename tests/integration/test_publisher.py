"""The publisher against a real ledger and broker: whatever happens to it, each id stands on the
topic once."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import json
from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from aiokafka.errors import KafkaTimeoutError
from tests.apps import a_context, running, standing_on, until
from tests.counter import Counter, Writer, withdrawn
from tests.patience import in_patience

from wharfinger.events.codec import decode, frame_of
from wharfinger.events.streams import BINDINGS, DECISIONS
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import DecisionQuery, Ledger, Mark, Submission, Transient, wall_clock
from wharfinger.runtime.ledger.days import DAY_US
from wharfinger.runtime.ledger.feed_writer import FeedAppender
from wharfinger.runtime.ledger.freshness import PUBLISHER
from wharfinger.runtime.producer import Producer
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.topics import partition_for
from wharfinger_publisher import feed_loop, relay
from wharfinger_publisher.app import PublisherService
from wharfinger_publisher.relay import RelaySettings

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def context(backend: Backend, ledger: Ledger, topic_prefix: str) -> ServiceContext:
    return await a_context(backend, ledger, topic_prefix)


async def decided(
    ledger: Ledger, writer: Writer | None, first: int, count: int, stream: str = "fleet/0"
) -> Writer:
    """`count` rounds of two events each: two decisions a round and now and then a third."""
    if writer is None:
        await ledger.ensure_streams([stream])
        writer = Writer((await ledger.raise_epoch([stream]))[stream], Counter(every=5))
    # what is older than its topic's retention would not be published into an empty one
    now = wall_clock()
    rounds = [
        writer.step([withdrawn(first + 2 * n), withdrawn(first + 2 * n + 1)], now)
        for n in range(count)
    ]
    await ledger.commit(rounds, writer.events)
    return writer


async def ledger_ids(ledger: Ledger) -> set[str]:
    return {
        str(row.id)
        async for row in ledger.decisions(DecisionQuery())
        if row.accepted is None and row.stream != "intake"
    }


async def ids_on_topic(context: ServiceContext) -> Counted[str]:
    return Counted(
        frame_of(record.value or b"").id for record in await standing_on(context, DECISIONS)
    )


async def assert_each_once(context: ServiceContext) -> None:
    wanted = await ledger_ids(context.ledger)
    assert wanted

    async def all_there() -> bool:
        return set(await ids_on_topic(context)) >= wanted

    await until(all_there)
    found = await ids_on_topic(context)
    assert set(found) == wanted
    assert {id_: n for id_, n in found.items() if n > 1} == {}


def with_ledger(context: ServiceContext, ledger: Ledger) -> ServiceContext:
    return ServiceContext(
        context.settings,
        context.backend,
        ledger,
        context.incarnations,
        context.partitions,
        context.prefix,
    )


class Cursors(Ledger):
    """A ledger whose cursors can be made not to move. `fails`: what to raise for the next ones;
    None hangs. `killed`: none is saved any more, as by a publisher that was killed."""

    def __init__(self, of: Ledger, *fails: Exception | None) -> None:
        super().__init__(of.database)
        self.fails = list(fails)
        self.killed = False
        self.asked = asyncio.Event()
        self.saved = asyncio.Event()

    async def advance(
        self,
        consumer: str,
        incarnation: int,
        seqs: Mapping[str, int],
        positions: Mapping[str, int],
        noted: Sequence[Mark] = (),
    ) -> None:
        if self.killed:
            raise Transient("database: the publisher is gone")
        if self.fails:
            self.asked.set()
            fail = self.fails.pop(0)
            if fail is None:
                await asyncio.Event().wait()
            else:
                raise fail
        await super().advance(consumer, incarnation, seqs, positions, noted)
        self.saved.set()


async def test_what_is_committed_is_published_once_in_order(context: ServiceContext) -> None:
    writer = await decided(context.ledger, None, 0, 50)
    async with running(PublisherService(context)):
        await decided(context.ledger, writer, 1000, 50)
        await assert_each_once(context)
    records = await standing_on(context, DECISIONS)
    by_key: dict[bytes | None, list[str]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(frame_of(record.value or b"").id)
    rows = [row async for row in context.ledger.decisions(DecisionQuery(stream="fleet/"))]
    for key, ids in by_key.items():
        assert ids == [str(row.id) for row in rows if row.subject.encode() == key]


@pytest.mark.parametrize("rows_max", [3, 2000])
async def test_what_is_committed_at_any_moment_of_a_turn_waits_for_no_poll(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    """Appender and relay look once and rest; a notification during the look ends the rest."""
    monkeypatch.setattr(feed_loop, "POLL_S", 1e6)
    service = PublisherService(context, RelaySettings(rows_max=rows_max, poll_s=1e6))
    chance, writers = Random(7), dict[str, Writer]()
    async with running(service):
        for n in range(60):
            stream = chance.choice(["fleet/0", "fleet/1"])
            writer = writers.get(stream)
            writers[stream] = await decided(context.ledger, writer, 10 * n, 1, stream)
            await asyncio.sleep(chance.choice([0.0, 0.001, 0.004, 0.02]))
        await assert_each_once(context)


@pytest.mark.parametrize("rows_max", [2000, 7, 1])
async def test_what_streams_decide_about_one_subject_is_on_the_topic_in_order_of_position(
    context: ServiceContext, rows_max: int
) -> None:
    """The clocks of the streams differ, so their decisions have positions in another order than
    their times. Example: `fleet/0` decides at 12:00 and then `fleet/1`, whose clock says 11:59."""
    ledger, now = context.ledger, wall_clock()
    await ledger.ensure_streams(["fleet/0", "fleet/1"])
    heads = await ledger.raise_epoch(["fleet/0", "fleet/1"])
    writers = [Writer(heads[stream]) for stream in ("fleet/0", "fleet/1")]
    appender = FeedAppender(ledger.database)
    await appender.begin()
    for turn in range(10):
        for number, writer in enumerate(writers):
            names = [withdrawn(100 * turn + 10 * number + n, f"binding-{n}") for n in range(3)]
            at = now + turn * 1_000_000 - number * 60_000_000
            await ledger.commit([writer.step(names, at)], writer.events)
            await appender.append()
    async with running(PublisherService(context, RelaySettings(rows_max=rows_max))):
        await assert_each_once(context)
    positions: dict[bytes | None, list[int]] = {}
    for record in await standing_on(context, DECISIONS):
        event = json.loads(record.value or b"")
        positions.setdefault(record.key, []).append(int(event["position"]))
    assert {len(found) for found in positions.values()} == {20}
    assert positions == {key: sorted(found) for key, found in positions.items()}


async def test_a_crash_between_sending_and_the_cursor_doubles_nothing(
    context: ServiceContext,
) -> None:
    await decided(context.ledger, None, 0, 40)
    crashing = Cursors(context.ledger, None)
    async with running(PublisherService(with_ledger(context, crashing))):
        await in_patience(crashing.asked.wait())
        assert len(await ids_on_topic(context)) == len(await ledger_ids(context.ledger))
        crashing.killed = True
    async with running(PublisherService(context)):
        await decided(context.ledger, None, 500, 10, "fleet/1")
        await assert_each_once(context)


async def test_a_cursor_that_was_not_saved_is_saved_before_positions_move_on(
    context: ServiceContext,
) -> None:
    """One stream's cursor fails, another stream's is saved with later positions, then the crash:
    what the first had sent lies before those positions, where nobody would look for it."""
    crashing = Cursors(context.ledger, Transient("database: away"))
    async with running(PublisherService(with_ledger(context, crashing))):
        await decided(context.ledger, None, 0, 5, "fleet/0")
        await in_patience(crashing.asked.wait())
        await decided(context.ledger, None, 500, 5, "fleet/1")
        await assert_each_once(context)
        await asyncio.sleep(0.3)
        crashing.killed = True
    async with running(PublisherService(context)):
        await decided(context.ledger, None, 900, 1, "fleet/2")
        await assert_each_once(context)


async def test_cursors_that_are_saved_amid_a_batch_do_not_hide_what_it_has_sent(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursors of one turn are still to be saved when the batch of the next breaks off, with
    some of its records on the topic. They are saved then, and the publisher is killed."""
    monkeypatch.setattr(relay, "SAVE_EVERY_S", 1e6)
    sends = Producer.send_batch
    breaks = False

    async def failing(self: Producer, batch: Any, topic: str, *, partition: int) -> Any:
        if breaks and topic.endswith(DECISIONS.name) and partition == partition_for("fleet", 4):
            raise KafkaTimeoutError
        return await sends(self, batch, topic, partition=partition)

    monkeypatch.setattr(Producer, "send_batch", failing)
    ledger = Cursors(context.ledger)
    async with running(PublisherService(with_ledger(context, ledger))):
        writer = None
        for first in (0, 100):
            writer = await decided(context.ledger, writer, first, 5)
            await assert_each_once(context)
        ledger.saved.clear()
        breaks = True
        await decided(context.ledger, None, 500, 60, "fleet/1")
        await in_patience(ledger.saved.wait())
        ledger.killed = True
    breaks = False
    async with running(PublisherService(context)):
        await assert_each_once(context)


async def test_a_publisher_that_is_stopped_leaves_nothing_to_send_again(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On topics whose records are not looked for, the next one would send it a second time."""
    monkeypatch.setattr(relay, "SAVE_EVERY_S", 1e6)
    async with running(service := PublisherService(context)):
        writer = None
        for first in (0, 100):
            writer = await decided(context.ledger, writer, first, 40)
            await assert_each_once(context)
        await until(lambda: service.oldest_s() == 0)
    cursors = await context.ledger.cursors(PUBLISHER, context.life)
    heads = await context.ledger.heads("fleet/0")
    assert [cursors.seqs[head.stream] for head in heads] == [head.seq for head in heads] != [0]


@pytest.mark.parametrize("lost", ["acknowledgement", "batch"])
async def test_a_batch_the_broker_did_not_acknowledge_is_looked_for(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The other batches of the turn stand on the topic already: they must not come again with
    it."""
    sends = Producer.send_batch
    failed = 0

    async def failing(self: Producer, batch: Any, topic: str, *, partition: int) -> Any:
        nonlocal failed
        if topic.endswith(DECISIONS.name) and partition == partition_for("fleet", 4) and failed < 2:
            failed += 1
            if lost == "acknowledgement":
                await (await sends(self, batch, topic, partition=partition))
            future = asyncio.get_running_loop().create_future()
            future.set_exception(KafkaTimeoutError())
            return future
        return await sends(self, batch, topic, partition=partition)

    monkeypatch.setattr(Producer, "send_batch", failing)
    await decided(context.ledger, None, 0, 60)
    async with running(PublisherService(context)):
        await assert_each_once(context)
    assert failed


async def test_a_broker_that_forgot_everything_is_filled_again(
    backend: Backend, context: ServiceContext, topic_prefix: str
) -> None:
    ledger = context.ledger
    await decided(ledger, None, 0, 30)
    bodies = [withdrawn(n) for n in range(21)]
    await ledger.accept([Submission(e, BINDINGS.name, e.subject, e.subject) for e in bodies])
    async with running(PublisherService(context)):
        await assert_each_once(context)
    reborn = await a_context(backend, ledger, f"{topic_prefix}again.", life=2)
    await decided(ledger, None, 300, 5, "fleet/1")
    async with running(PublisherService(reborn)):
        await assert_each_once(reborn)
    latest = {e.subject: e.id for e in bodies}
    there = [decode(r.value).id for r in await standing_on(reborn, BINDINGS) if r.value is not None]
    # of a compacted topic only the last word on each key
    assert sorted(there) == sorted(latest.values())


async def test_what_was_told_a_year_ago_fills_an_empty_topic_and_what_was_decided_then_does_not(
    context: ServiceContext, database_url: str
) -> None:
    long_ago = wall_clock() - 365 * DAY_US
    past = await Ledger.open(database_url, "tests-past", clock=lambda: long_ago)
    await past.accept(
        [Submission(e, BINDINGS.name, e.subject, e.subject) for e in (withdrawn(1), withdrawn(2))]
    )
    await past.ensure_streams(["fleet/0"])
    writer = Writer((await past.raise_epoch(["fleet/0"]))["fleet/0"])
    old = writer.step([withdrawn(1), withdrawn(2), withdrawn(500)], long_ago)
    await past.commit([old], writer.events)
    await past.close()
    again = withdrawn(8)  # under the same key as the first
    await context.ledger.accept([Submission(again, BINDINGS.name, again.subject, again.subject)])
    recent = writer.step([again, withdrawn(501)], wall_clock())
    await context.ledger.commit([recent], writer.events)
    async with running(PublisherService(context)):
        wanted = {str(d.id) for d in recent.decisions}

        async def there() -> bool:
            return set(await ids_on_topic(context)) >= wanted

        await until(there)
        assert set(await ids_on_topic(context)) == wanted
        facts = [
            decode(r.value).id for r in await standing_on(context, BINDINGS) if r.value is not None
        ]
        assert sorted(facts) == sorted([withdrawn(2).id, again.id])


async def test_what_was_told_a_year_ago_and_never_read_fills_an_empty_topic_one_by_one(
    context: ServiceContext, database_url: str
) -> None:
    long_ago = wall_clock() - 365 * DAY_US
    past = await Ledger.open(database_url, "tests-past", clock=lambda: long_ago)
    told = [withdrawn(1), withdrawn(2), withdrawn(8)]  # the last under the key of the first
    for event in told[:2]:
        await past.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
    await past.close()
    await context.ledger.accept([Submission(told[2], BINDINGS.name, told[2].subject, "p")])
    async with running(PublisherService(context)):

        async def there() -> list[UUID]:
            records = await standing_on(context, BINDINGS)
            return [decode(r.value).id for r in records if r.value is not None]

        async def all_there() -> bool:
            return len(await there()) >= len(told)

        await until(all_there)
        assert sorted(await there()) == sorted(event.id for event in told)


async def test_a_crash_in_the_middle_of_the_filling_doubles_nothing(
    backend: Backend, context: ServiceContext, topic_prefix: str
) -> None:
    await decided(context.ledger, None, 0, 800)
    async with running(PublisherService(context)):
        await assert_each_once(context)
    reborn = await a_context(backend, context.ledger, f"{topic_prefix}again.", life=2)
    crashing = Cursors(context.ledger, None)
    async with running(PublisherService(with_ledger(reborn, crashing))):
        await in_patience(crashing.asked.wait())
    async with running(PublisherService(reborn)):
        await assert_each_once(reborn)


async def test_of_two_publishers_one_leads_until_it_is_gone(context: ServiceContext) -> None:
    first, second = PublisherService(context), PublisherService(context)
    writer = await decided(context.ledger, None, 0, 20)
    async with running(first):
        await second.start()
        try:
            await decided(context.ledger, writer, 500, 20)
            await assert_each_once(context)
            assert first.ready()
            assert not second.ready()
            await first.stop()
            await until(second.ready)
            await decided(context.ledger, writer, 900, 20)
            await assert_each_once(context)
        finally:
            await second.stop()


async def test_a_publisher_that_loses_its_lock_begins_anew(
    context: ServiceContext, database_url: str
) -> None:
    other = await Ledger.open(database_url, "tests-other")
    publisher = PublisherService(context)
    writer = await decided(context.ledger, None, 0, 20)
    try:
        async with running(publisher):
            for wave in range(1, 6):
                async with other.database.reading() as raw:
                    await raw.fetch(
                        "select pg_terminate_backend(pid) from pg_stat_activity "
                        "where datname = current_database() and application_name = 'tests'"
                    )
                await decided(other, writer, 1000 * wave, 20)
                await until(publisher.ready)
            await assert_each_once(context)
            assert publisher.failed() == ""
    finally:
        await other.close()
