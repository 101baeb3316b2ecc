"""A topic that begins again without us is another topic: nothing that comes on it passes for
redelivery."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from tests.apps import a_context, running, send, standing_on, until
from tests.counter import withdrawn
from tests.loops import a_stage, causes
from tests.patience import in_patience

from wharfinger.events.codec import frame_of
from wharfinger.events.streams import BINDINGS, DECISIONS
from wharfinger.runtime.backends import Backend, BackendError
from wharfinger.runtime.broadcast import ends_of
from wharfinger.runtime.incarnation_watch import (
    Shorter,
    TopicWatch,
    _reader,
    begin_topics,
    reached,
    truncations,
)
from wharfinger.runtime.ledger import DecisionQuery, Ledger, Mark, Submission, audit_verify
from wharfinger.runtime.producer import idempotent_producer
from wharfinger.runtime.record_check import Overwritten
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.settings import Settings
from wharfinger.runtime.timeline import reconciled
from wharfinger.runtime.topic_ids import identity, topic_ids
from wharfinger.runtime.topic_setup import topic_specs
from wharfinger.runtime.topics import delete_topics, ensure_topics, topic_names
from wharfinger.runtime.unpacking import FETCH_API_KEY
from wharfinger_publisher.app import PublisherService

pytestmark = pytest.mark.integration

SETTINGS = Settings(fleet_shards=1)


@asynccontextmanager
async def a_plane(
    backend: Backend, url: str, prefix: str, every_s: float = 0.2
) -> AsyncIterator[tuple[ServiceContext, TopicWatch]]:
    """As a process: topics and ledger are looked at first, and while it runs every `every_s`."""
    ledger = await Ledger.open(url, "tests-topics")
    try:
        incarnations = await begin_topics(ledger, backend, SETTINGS, prefix)
        context = await a_context(backend, ledger, prefix, fleet_shards=1)
        went_back = await reconciled(ledger, backend, context.wire)
        context = dataclasses.replace(context, incarnations=incarnations, went_back=went_back)
        service = a_stage(context)
        watch = TopicWatch(ledger, backend, incarnations, prefix, every_s)
        watching = asyncio.create_task(watch.run())
        try:
            async with running(service, PublisherService(context)):
                yield context, watch
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    finally:
        await ledger.close()


async def accept(ledger: Ledger, numbers: Iterable[int]) -> None:
    events = [withdrawn(n, f"binding-{n}") for n in numbers]
    await ledger.accept([Submission(e, BINDINGS.name, e.subject, e.subject) for e in events])


async def accept_for(name: str, ledger: Ledger, number: int) -> None:
    event = withdrawn(number, name)
    await ledger.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])


@asynccontextmanager
async def an_old_publisher(
    backend: Backend, url: str, prefix: str, incarnations: Mapping[str, int]
) -> AsyncIterator[ServiceContext]:
    """One that has started with these topics and does not look at them."""
    ledger = await Ledger.open(url, "tests-topics")
    try:
        context = await a_context(backend, ledger, prefix, fleet_shards=1)
        context = dataclasses.replace(context, incarnations=incarnations)
        async with running(PublisherService(context)):
            yield context
    finally:
        await ledger.close()


async def all_sent(context: ServiceContext) -> bool:
    heads = {head.stream: head.seq for head in await context.ledger.heads()}
    seqs = (await context.ledger.cursors("publisher", context.life)).seqs
    return all(seqs.get(s, 0) >= seq for s, seq in heads.items())


async def waits_for_lock(ledger: Ledger) -> None:
    async def waits() -> bool:
        async with ledger.database.reading() as raw:
            return bool(
                await raw.fetch(
                    "select l.pid from pg_locks l join pg_database d on d.oid = l.database "
                    "where l.locktype = 'advisory' and not l.granted "
                    "and d.datname = current_database()"
                )
            )

    await until(waits)


async def all_out(context: ServiceContext, count: int) -> bool:
    return len(await causes(context.ledger)) >= count and await all_sent(context)


async def all_marked(context: ServiceContext) -> None:
    """The stage and the publisher have noted which record was the last of `bindings`."""

    async def marked() -> bool:
        marks = await context.ledger.marks(context.incarnations)
        return {"fleet/0", "publisher"} <= {
            mark.reader for mark in marks if mark.place == f"{BINDINGS.name}/0"
        }

    await until(marked)


async def insert(ledger: Ledger, mark: Mark) -> None:
    async with ledger.database.reading() as raw:
        await raw.execute("insert into record_mark values ($1, $2, $3, $4, $5, $6, now())", *mark)


async def taken_for_the_same(backend: Backend, url: str, prefix: str, name: str) -> None:
    """As after a truncation, which no broker of the tests can do to a running topic: the ledger
    knows the new topic by its id."""
    ids = await topic_ids(backend)
    ledger = await Ledger.open(url, "tests-topics")
    try:
        async with ledger.database.reading() as raw:
            known = identity(prefix + name, ids, backend.boot_id)
            await raw.execute("update incarnation set boot_id = $1 where topic = $2", known, name)
    finally:
        await ledger.close()


async def make_again(backend: Backend, prefix: str, *names: str) -> None:
    """As an operator would."""
    wire = [prefix + name for name in names]
    await delete_topics(backend, wire)

    specs = [spec for spec in topic_specs(SETTINGS) if spec.name in names]

    async def made() -> bool:
        """Some brokers make a topic when a client of theirs asks about it, with partitions of their
        own number: then it is deleted once more."""
        there = set(wire) & (await topic_ids(backend) or {}).keys()
        if there:
            await delete_topics(backend, sorted(there))
            return False
        try:
            created = await ensure_topics(backend, specs, prefix)
        except BackendError:
            return False
        return all(created.values())

    await until(made)


async def same_state(context: ServiceContext, total: int) -> None:
    """Everything was decided once, and stands on the topics."""
    decided = await causes(context.ledger)
    assert sorted(decided) == sorted(str(withdrawn(n).id) for n in range(total))
    assert (await audit_verify(context.ledger)).ok
    on_topic = {
        frame_of(record.value or b"").id for record in await standing_on(context, DECISIONS)
    }
    rows = context.ledger.decisions(DecisionQuery(stream="fleet/"))
    assert {str(row.id) async for row in rows} <= on_topic
    facts = {
        frame_of(record.value).id for record in await standing_on(context, BINDINGS) if record.value
    }
    assert facts == {str(withdrawn(n).id) for n in range(total)}


async def test_a_topic_that_was_made_again_while_the_plane_is_down(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        await accept(context.ledger, range(30))
        await until(lambda: all_out(context, 30))
        before = context.incarnations
    await make_again(backend, topic_prefix, BINDINGS.name, DECISIONS.name)
    async with a_plane(backend, database_url, topic_prefix) as (context, watch):
        begun = {name for name, counter in context.incarnations.items() if counter > before[name]}
        assert begun == {BINDINGS.name, DECISIONS.name}
        await accept(context.ledger, range(30, 40))  # at offsets that have been read before
        await until(lambda: all_out(context, 40))
        await same_state(context, 40)
        assert watch.failed() == ""


async def test_a_topic_that_is_made_again_while_the_plane_runs(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    async with a_plane(backend, database_url, topic_prefix) as (context, watch):
        await accept(context.ledger, range(30))
        await until(lambda: all_out(context, 30))
        await make_again(backend, topic_prefix, BINDINGS.name)
        await until(watch.failed)
        assert BINDINGS.name in watch.failed()
        await accept(context.ledger, range(30, 35))
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        await accept(context.ledger, range(35, 40))
        await until(lambda: all_out(context, 40))
        await same_state(context, 40)


async def test_a_topic_that_is_gone_is_made_again_and_filled(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    async with a_plane(backend, database_url, topic_prefix) as (context, watch):
        await accept(context.ledger, range(10))
        await until(lambda: all_out(context, 10))
        await delete_topics(backend, [topic_prefix + DECISIONS.name])
        await until(watch.failed)
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        await until(lambda: all_out(context, 10))
        await same_state(context, 10)


async def test_unread_requests_under_one_key_are_all_taken_in_after_a_topic_was_lost(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        await accept(context.ledger, range(10))
        await until(lambda: all_out(context, 10))
    ledger = await Ledger.open(database_url, "tests-topics")
    for number in range(10, 15):
        event = withdrawn(number, "binding-3")
        await ledger.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
    await ledger.close()
    await make_again(backend, topic_prefix, BINDINGS.name, DECISIONS.name)
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        await until(lambda: all_out(context, 15))
        decided = await causes(context.ledger)
        assert sorted(decided) == sorted(str(withdrawn(n).id) for n in range(15))
        assert (await audit_verify(context.ledger)).ok


async def test_what_a_publisher_writes_before_it_has_noticed_is_read_in_its_turn(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    """An older request was lost with the topic, and a newer one of the same binding is the first
    that the new topic has."""
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        await accept(context.ledger, range(10))
        await until(lambda: all_out(context, 10))
        before = context.incarnations
    async with an_old_publisher(backend, database_url, topic_prefix, before) as context:
        await accept_for("binding-3", context.ledger, 10)
        await until(lambda: all_sent(context))
    await make_again(backend, topic_prefix, BINDINGS.name)
    async with an_old_publisher(backend, database_url, topic_prefix, before) as context:
        await accept_for("binding-3", context.ledger, 11)
        await until(lambda: all_sent(context))
        first = (await standing_on(context, BINDINGS))[0]
        assert frame_of(first.value or b"").id == str(withdrawn(11).id)
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        assert context.life > max(before.values())
        await until(lambda: all_out(context, 12))
        decided = await causes(context.ledger)
        assert decided[-2:] == [str(withdrawn(10).id), str(withdrawn(11).id)]
        assert (await audit_verify(context.ledger)).ok


async def test_what_a_publisher_writes_before_it_has_noticed_comes_again_for_the_world_in_order(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    async with a_plane(backend, database_url, topic_prefix) as (context, watch):
        await accept(context.ledger, range(10))
        await until(lambda: all_out(context, 10))
        await make_again(backend, topic_prefix, DECISIONS.name)
        await until(watch.failed)  # a process of a plane ends here; this publisher goes on
        await accept(context.ledger, range(10, 15))
        await until(lambda: all_out(context, 15))
        early = [frame_of(r.value or b"").id for r in await standing_on(context, DECISIONS)]
        assert early
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        await until(lambda: all_out(context, 15))
        rows = context.ledger.decisions(DecisionQuery(stream="fleet/"))
        ids = [str(row.id) async for row in rows]
        records = await standing_on(context, DECISIONS)
        last = {frame_of(r.value or b"").id: (r.partition, r.offset) for r in records}
        assert len(records) > len(last), "some came too early, and again"
        assert last.keys() >= set(ids)
        for part in {r.partition for r in records}:
            offsets = [last[id][1] for id in ids if last[id][0] == part]
            assert offsets == sorted(offsets)


async def test_a_topic_is_not_made_again_while_a_publisher_leads_that_may_write_to_it(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    name = topic_prefix + BINDINGS.name
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        before = context.incarnations
        ledger = await Ledger.open(database_url, "tests-topics")
        await delete_topics(backend, [name])
        making = asyncio.create_task(begin_topics(ledger, backend, SETTINGS, topic_prefix))
        await waits_for_lock(context.ledger)
        assert name not in (await topic_ids(backend) or {})
    try:
        begun = await in_patience(making)
        assert name in (await topic_ids(backend) or {})
        assert begun[BINDINGS.name] > before[BINDINGS.name]
    finally:
        await ledger.close()


async def test_a_publisher_that_started_with_other_topics_does_not_lead(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        before = context.incarnations
    await make_again(backend, topic_prefix, BINDINGS.name)
    ledger = await Ledger.open(database_url, "tests-topics")
    try:
        now = await begin_topics(ledger, backend, SETTINGS, topic_prefix)
        context = await a_context(backend, ledger, topic_prefix, fleet_shards=1)
        publisher = PublisherService(dataclasses.replace(context, incarnations=before))
        await publisher.start()
        try:
            await until(publisher.failed)
        finally:
            await publisher.stop()
        assert f"incarnation {max(now.values())}" in publisher.failed()
    finally:
        await ledger.close()


async def test_an_end_before_what_was_read_ends_the_incarnation(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    """As after an unclean leader election: the same topic, without its end."""
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        await accept(context.ledger, range(10))
        await until(lambda: all_out(context, 10))
        ledger, incarnations = context.ledger, context.incarnations
        assert await truncations(ledger, backend, incarnations, topic_prefix) == []
        # The same partition, from which the last records are missing: what the ledger knows lies
        # beyond its end.
        await ledger.advance("publisher", context.life, {}, {f"{DECISIONS.name}/0": 1_000})
        [found] = await truncations(ledger, backend, incarnations, topic_prefix)
        assert isinstance(found, Shorter)
        assert (found.topic, found.partition, found.reached) == (DECISIONS.name, 0, 1_000)
    async with a_plane(backend, database_url, topic_prefix) as (context, watch):
        assert context.incarnations[DECISIONS.name] == max(incarnations.values()) + 1
        await accept(context.ledger, range(10, 15))
        await until(lambda: all_out(context, 15))
        assert len(await causes(context.ledger)) == 15
        assert watch.failed() == ""


async def test_a_partition_that_was_truncated_and_has_grown_past_what_was_read(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    """The name, the id and the length are right; the records are others, and some of them are where
    others were read."""
    async with a_plane(backend, database_url, topic_prefix) as (context, _):
        await accept(context.ledger, range(30))
        await until(lambda: all_out(context, 30))
        before = context.incarnations
        await all_marked(context)
    await make_again(backend, topic_prefix, BINDINGS.name)
    others = [withdrawn(n, f"binding-{n}") for n in range(30, 105)]  # beyond 60, the end until now
    await send(context, BINDINGS, [(event.subject, event.body) for event in others])
    await taken_for_the_same(backend, database_url, topic_prefix, BINDINGS.name)
    async with a_plane(backend, database_url, topic_prefix) as (context, watch):
        begun = {name for name, counter in context.incarnations.items() if counter > before[name]}
        assert begun == {BINDINGS.name}
        await until(lambda: all_out(context, 105))  # the ones below offset 60 as well
        assert sorted(await causes(context.ledger)) == sorted(
            str(withdrawn(n).id) for n in range(105)
        )
        facts = {
            frame_of(record.value).id
            for record in await standing_on(context, BINDINGS)
            if record.value
        }
        assert facts == {str(withdrawn(n).id) for n in range(105)}  # filled again
        assert watch.failed() == ""


async def test_a_truncation_is_seen_although_reading_went_on_behind_it(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    """What was read since stands where it was read. What was read before the pause does not."""
    # the watch itself takes the marks away that it has compared
    async with a_plane(backend, database_url, topic_prefix, math.inf) as (context, _):
        await accept(context.ledger, range(10))
        await until(lambda: all_out(context, 10))
        incarnations = context.incarnations
        await all_marked(context)
        pauses = [
            mark
            for mark in await context.ledger.marks(incarnations)
            if mark.place == f"{BINDINGS.name}/0"
        ]
        await asyncio.sleep(0.3)  # longer than `marks.PAUSE`: the mark is kept
        await accept(context.ledger, range(10, 20))
        await until(lambda: all_out(context, 20))
        marks = await context.ledger.marks(incarnations)
        assert {(m.reader, m.offset) for m in pauses} < {(m.reader, m.offset) for m in marks}
        assert await truncations(context.ledger, backend, incarnations, topic_prefix) == []
        # compared, and not needed any more
        assert len(await context.ledger.marks(incarnations)) < len(marks)
        # Another record was at offset 9 than is there now; the last one that was read is where it
        # was.
        wrong = Mark("fleet/0", f"{BINDINGS.name}/0", incarnations[BINDINGS.name], 9, bytes(32))
        await insert(context.ledger, wrong)
        [found] = await truncations(context.ledger, backend, incarnations, topic_prefix)
        assert isinstance(found, Overwritten)
        assert (found.topic, found.partition, found.offset) == (BINDINGS.name, 0, 9)
        assert wrong in await context.ledger.marks(incarnations)  # until an incarnation ends


async def test_a_check_fetches_little_of_what_stands_behind_a_record(
    backend: Backend, database_url: str, topic_prefix: str
) -> None:
    """Some brokers do not know a limit of a partition, and would send all of it."""
    ledger = await Ledger.open(database_url, "tests-topics")
    try:
        context = await a_context(backend, ledger, topic_prefix, fleet_shards=1)
        for _ in range(20):  # a batch each
            await send(context, BINDINGS, [("shop/web", bytes(100_000))] * 2)
    finally:
        await ledger.close()
    sizes: list[int] = []
    part = TopicPartition(topic_prefix + BINDINGS.name, 0)
    async with _reader(backend) as consumer:
        fetcher: Any = consumer._fetcher
        client = fetcher._client
        send_request = client.send

        async def counted(*arguments: Any, **options: Any) -> Any:
            response = await send_request(*arguments, **options)
            if getattr(response, "API_KEY", None) == FETCH_API_KEY:
                sizes.extend(len(e[-1] or b"") for _, entries in response.topics for e in entries)
            return response

        client.send = counted
        consumer.assign([part])
        for offset in (0, 10, 20):
            consumer.seek(part, offset)
            await until(lambda: consumer.getmany(part, timeout_ms=100, max_records=1))
    assert 0 < max(sizes) < 1_000_000, "a batch at a time, of 4 MB"


async def test_a_topic_that_was_written_to_while_it_was_deleted_is_read_to_its_end(
    backend: Backend, topic_prefix: str
) -> None:
    """The embedded broker takes the record, and names an end behind it that no fetch reaches."""
    name = topic_prefix + DECISIONS.name
    specs = [spec for spec in topic_specs(SETTINGS) if spec.name == DECISIONS.name]
    await ensure_topics(backend, specs, topic_prefix)
    producer = idempotent_producer(backend, client_id="tests")
    await producer.start()
    try:
        await producer.send_and_wait(name, b"before", partition=0)
        await delete_topics(backend, [name])
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(2):
                await producer.send_and_wait(name, b"late", partition=0)
    finally:
        await producer.stop()

    async def is_gone() -> bool:
        return name not in await topic_names(backend)

    await until(is_gone)  # a busy broker takes a while to forget it
    await ensure_topics(backend, specs, topic_prefix)
    part = TopicPartition(name, 0)
    async with _reader(backend) as consumer:
        consumer.assign([part])
        ends = await ends_of(consumer, [part])
        consumer.seek(part, 0)

        async def read() -> bool:
            await consumer.getmany(part, timeout_ms=100)
            return bool(await consumer.position(part) >= ends[part])

        await until(read)


def test_what_the_ledger_knows_of_another_incarnation_does_not_count() -> None:
    bases = {
        "fleet/0": {"bindings/0": (1, 90), "outcomes/0": (2, 4)},
        "fleet/1": {"outcomes/0": (2, 9), "gone/0": (1, 3)},
    }
    found = reached(bases, {"decisions/3": 7}, {"bindings": 2, "outcomes": 2, "decisions": 2})
    assert found == {("outcomes", 0): 9, ("decisions", 3): 7}
