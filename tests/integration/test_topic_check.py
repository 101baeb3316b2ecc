"""The published decisions as a witness: what the ledger's owner rewrote, the topic still says as it
was."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.apps import a_context, running, until
from tests.attacker import another_decision, another_time, cut_off, forget, rewrite
from tests.counter import Counter, Writer, withdrawn
from tests.feeds import placed

from wharfinger.events.streams import BINDINGS, DECISIONS, TOPICS
from wharfinger.history.topic_check import BadRecord, TopicResult, check_topic
from wharfinger.history.verification import verify
from wharfinger.runtime.backends import Backend, BackendError
from wharfinger.runtime.ledger import (
    DecisionQuery,
    Ledger,
    LedgerRow,
    Submission,
    audit_verify,
    wall_clock,
)
from wharfinger.runtime.producer import idempotent_producer
from wharfinger.runtime.sending import OutgoingRecord
from wharfinger.runtime.settings import Settings
from wharfinger.runtime.topic_setup import partitions, topic_specs
from wharfinger.runtime.topics import ensure_topics, partition_for
from wharfinger_publisher.app import PublisherService
from wharfinger_publisher.records import RecordMaker

pytestmark = pytest.mark.integration

STREAMS = ("fleet/0", "fleet/1")
DAY_US = 86_400_000_000
PARTITIONS = {topic.name: partitions(topic, Settings(fleet_shards=1)) for topic in TOPICS}


@dataclass
class Plane:
    """A ledger and the topic its decisions go to."""

    ledger: Ledger
    backend: Backend
    prefix: str

    async def make_topic(self) -> None:
        await ensure_topics(
            self.backend,
            [spec for spec in topic_specs(Settings(fleet_shards=1)) if spec.name == DECISIONS.name],
            self.prefix,
        )

    async def check(self) -> TopicResult:
        return await check_topic(self.ledger, self.backend, self.prefix)

    async def decide(self, stream: str, first: int, count: int, age_us: int = 0) -> None:
        """`count` rounds of two events each: two decisions a round and now and then a third."""
        head = (await self.ledger.raise_epoch([stream]))[stream]
        writer = Writer(head, Counter(every=5))
        now = wall_clock() - age_us
        rounds = [
            writer.step([withdrawn(first + 2 * n), withdrawn(first + 2 * n + 1)], now)
            for n in range(count)
        ]
        await self.ledger.commit(rounds, writer.events)

    async def publish(
        self,
        change: Callable[[list[OutgoingRecord]], Sequence[OutgoingRecord]] = list,
        *,
        cursors: bool = True,
    ) -> None:
        """By hand: the records of all decisions, changed, and the cursors moved to the heads as if
        all were sent."""
        rows: list[LedgerRow] = [row async for row in self.ledger.decisions(DecisionQuery("fleet"))]
        made = RecordMaker(PARTITIONS, partition_for).records(rows, placed(rows))
        records = [record for record in made if record.topic == DECISIONS.name]
        producer = idempotent_producer(self.backend, client_id="tests")
        await producer.start()
        try:
            for record in change(records):
                await producer.send_and_wait(
                    self.prefix + record.topic,
                    record.value,
                    key=record.key,
                    partition=record.partition,
                )
        finally:
            await producer.stop()
        if cursors:
            heads = {head.stream: head.seq for head in await self.ledger.heads("fleet")}
            await self.ledger.advance("publisher", 1, heads, {})


@pytest_asyncio.fixture
async def plane(backend: Backend, database_url: str, topic_prefix: str) -> AsyncIterator[Plane]:
    ledger = await Ledger.open(database_url, "tests-topic")
    await ledger.incarnation([topic.name for topic in TOPICS], [], backend.boot_id)
    await ledger.ensure_streams(STREAMS)
    event = withdrawn(9999)
    await ledger.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
    await ensure_topics(
        backend,
        [spec for spec in topic_specs(Settings(fleet_shards=1)) if spec.name == DECISIONS.name],
        topic_prefix,
    )
    made = Plane(ledger, backend, topic_prefix)
    for number, stream in enumerate(STREAMS):
        await made.decide(stream, 1000 * number, 6)
    yield made
    await ledger.close()


async def total(plane: Plane) -> int:
    return sum(head.seq for head in await plane.ledger.heads("fleet"))


def found(result: TopicResult) -> BadRecord:
    assert result.first_bad is not None
    return result.first_bad


async def test_what_the_publisher_sends_is_what_the_ledger_says(plane: Plane) -> None:
    service = PublisherService(await a_context(plane.backend, plane.ledger, plane.prefix))

    async def all_sent() -> bool:
        seqs = (await plane.ledger.cursors("publisher", 1)).seqs
        return all(seqs.get(head.stream) == head.seq for head in await plane.ledger.heads())

    async with running(service):
        await until(all_sent)
    ends = await plane.check()
    assert ends.ok
    assert (ends.records, ends.repeats) == (await total(plane), 0)
    assert (ends.decisions, ends.covered, ends.waiting) == (ends.records, ends.records, 0)
    await plane.decide("fleet/0", 500, 3)
    later = await plane.check()
    assert later.ok
    # and nothing was written
    assert (later.records, later.waiting) == (ends.records, await total(plane) - ends.records)


async def test_a_rewritten_chain_is_found_by_what_was_published(plane: Plane) -> None:
    await plane.publish()
    await rewrite(plane.ledger, "fleet/1", 3, another_decision)
    assert (await audit_verify(plane.ledger)).ok
    bad = found(await plane.check())
    assert (bad.stream, bad.what) == ("fleet/1", "data")
    assert (await plane.ledger.head_at("fleet/1", 2)).seq + 1 == bad.seq
    assert "9/9" in bad.expected
    assert "9/9" not in bad.found
    assert bad.offset is not None
    whole = await verify(plane.ledger, topic=plane.backend, prefix=plane.prefix)
    assert not whole.ok
    assert whole.ledger.ok


async def test_a_time_that_was_rewritten_needs_a_checkpoint(plane: Plane) -> None:
    """What a round knew and when is in its hash, and not in what is published."""
    await plane.publish()
    await rewrite(plane.ledger, "fleet/1", 3, another_time)
    assert (await plane.check()).ok


async def test_an_end_that_was_cut_off_is_still_published(plane: Plane) -> None:
    await plane.publish()
    await cut_off(plane.ledger, "fleet/0", 5)
    assert (await audit_verify(plane.ledger)).ok
    bad = found(await plane.check())
    assert (bad.stream, bad.what) == ("fleet/0", "id")
    assert bad.seq > (await plane.ledger.head_at("fleet/0", 5)).seq


async def test_a_stream_that_was_forgotten_is_still_published(plane: Plane) -> None:
    await plane.publish()
    await forget(plane.ledger, "fleet/1")
    assert (await audit_verify(plane.ledger)).ok
    bad = found(await plane.check())
    assert (bad.stream, bad.what) == ("fleet/1", "id")


async def test_a_decision_that_was_never_published_is_named(plane: Plane) -> None:
    await plane.publish(lambda records: [r for r in records if r is not records[8]])
    bad = found(await plane.check())
    assert (bad.stream, bad.seq, bad.offset, bad.what, bad.found) == (
        "fleet/0",
        9,
        None,
        "decision",
        "missing",
    )


async def test_a_decision_that_was_added_with_its_cursor_is_named(plane: Plane) -> None:
    await plane.publish()
    await plane.decide("fleet/0", 500, 1)
    last = (await plane.ledger.heads("fleet/0"))[0].seq
    await plane.ledger.advance("publisher", 1, {"fleet/0": last}, {})
    bad = found(await plane.check())
    assert (bad.stream, bad.what) == ("fleet/0", "decision")


async def test_decisions_in_another_order_are_named(plane: Plane) -> None:
    def last_first(records: list[OutgoingRecord]) -> list[OutgoingRecord]:
        one = [
            r
            for r in records
            if r.partition == records[0].partition and b"/wharfinger/fleet/0" in (r.value or b"")
        ]
        return [one[-1], *[r for r in records if r is not one[-1]]]

    await plane.publish(last_first)
    bad = found(await plane.check())
    assert (bad.what, bad.offset) == ("order", 1)


async def test_a_repeat_is_counted_and_does_no_harm(plane: Plane) -> None:
    await plane.publish(lambda records: [*records, records[3]])
    result = await plane.check()
    assert result.ok
    assert result.repeats == 1


def _first_changed(
    change: Callable[[OutgoingRecord], OutgoingRecord], records: list[OutgoingRecord]
) -> list[OutgoingRecord]:
    return [change(records[0]), *records[1:]]


CHANGES: list[tuple[str, Callable[[OutgoingRecord], OutgoingRecord]]] = [
    ("id", lambda r: replace(r, value=(r.value or b"").replace(b'"id":"', b'"id":"00', 1))),
    (
        "source",
        lambda r: replace(
            r, value=(r.value or b"").replace(b"wharfinger/fleet/0", b"wharfinger/fleet/9")
        ),
    ),
    (
        "sequence",
        lambda r: replace(r, value=(r.value or b"").replace(b'"sequence":"1"', b'"sequence":"2"')),
    ),
    ("type", lambda r: replace(r, value=(r.value or b"").replace(b"released.v1", b"released.v2"))),
    (
        "subject",
        lambda r: replace(
            r, value=(r.value or b"").replace(b'"subject":"binding', b'"subject":"x')
        ),
    ),
    ("key", lambda r: replace(r, key=b"x")),
    ("partition", lambda r: replace(r, partition=(r.partition + 1) % 4)),
    ("data", lambda r: replace(r, value=(r.value or b"").replace(b'"uid":"1', b'"uid":"7'))),
    ("record", lambda r: replace(r, value=b"no json")),
    ("record", lambda r: replace(r, value=None)),
]


async def test_a_record_that_says_something_else_is_named(plane: Plane) -> None:
    """Each on a topic of its own."""
    own = plane.prefix
    for number, (what, change) in enumerate(CHANGES):
        plane.prefix = f"{own}{number}."
        await plane.make_topic()
        await plane.publish(partial(_first_changed, change))
        bad = found(await plane.check())
        assert (bad.what, bad.offset) == (what, 0), what


async def test_after_the_broker_lost_its_log_the_topic_covers_what_is_there(
    plane: Plane, topic_prefix: str
) -> None:
    """In a new life nothing is missing before the publisher has come to it, and nothing that is
    older than the topic keeps."""
    await plane.publish(lambda records: [])
    await plane.ledger.incarnation([DECISIONS.name], [DECISIONS.name], plane.backend.boot_id)
    lost = await plane.check()
    assert lost.ok
    assert (lost.life, lost.covered, lost.waiting) == (2, 0, lost.decisions)
    heads = {head.stream: head.seq for head in await plane.ledger.heads("fleet")}
    await plane.ledger.advance("publisher", 2, heads, {})
    # they are young, so they had to be sent again
    assert found(await plane.check()).what == "decision"


async def test_what_is_older_than_the_topic_keeps_may_be_missing(
    plane: Plane, topic_prefix: str
) -> None:
    await plane.ledger.ensure_streams(["fleet/2"])
    await plane.decide("fleet/2", 7000, 2, age_us=40 * DAY_US)
    old = (await plane.ledger.heads("fleet/2"))[0].seq
    await plane.decide("fleet/2", 7100, 2)
    await plane.publish(
        lambda records: [r for r in records if b"fleet/2" not in (r.value or b"") or _seq(r) > old]
    )
    result = await plane.check()
    assert result.ok
    assert (result.decisions - result.covered, result.waiting) == (old, 0)
    assert result.from_us > wall_clock() - DAY_US


def _seq(record: OutgoingRecord) -> int:
    return int((record.value or b"").split(b'"sequence":"')[1].split(b'"')[0])


async def test_a_topic_that_ends_before_the_publisher_did_is_named(plane: Plane) -> None:
    await plane.publish()
    await plane.ledger.advance("publisher", 1, {}, {f"{DECISIONS.name}/0": 10_000})
    bad = found(await plane.check())
    assert (bad.partition, bad.what) == (0, "end")


async def test_without_a_topic_there_is_one_clear_line(plane: Plane) -> None:
    with pytest.raises(BackendError, match=r"no such topic: nowhere\.wharfinger\.decisions"):
        await check_topic(plane.ledger, plane.backend, "nowhere.")
