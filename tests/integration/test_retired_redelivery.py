"""Whatever was retired, nothing that a broker may still deliver is taken in or accepted a second
time.

Below a stream's basis nothing comes again. A broker that lost everything is filled again with the
latest fact under each key and with what is younger than its topic's retention, at offsets that say
nothing: those events are recognised by their ids. Histories are generated: keys said again and
again over months, taken in by two streams in their own time, retired at any point.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from tests.apps import until
from tests.counter import Counter, Counts, Writer
from tests.loops import TOPIC, Acks, ByPartition, loop_running

from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.streams import ASSIGNMENTS, BINDINGS, BY_NAME, CLUSTERS, INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import DecisionQuery, Ledger, Submission, audit_verify
from wharfinger.runtime.ledger.days import DAY_US
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.ledger.retention import cut, retire
from wharfinger.runtime.ledger.snapshots import KEPT
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.stage_loop import StageLoop

pytestmark = pytest.mark.integration

SPAN_DAYS = 5
BEGIN = 20_000 * DAY_US
STREAMS = ("fleet/0", "fleet/1")


class Time:
    at: Micros = BEGIN

    def __call__(self) -> Micros:
        return self.at


class History:
    """A ledger, and beside it what it must know."""

    def __init__(self, ledger: Ledger, time: Time, writers: dict[str, Writer]) -> None:
        self.ledger = ledger
        self.time = time
        self.writers = writers
        self.said = 0
        self.submitted: list[Submission] = []
        self.said_at: list[Micros] = []
        self.taken: dict[str, set[UUID]] = {stream: set() for stream in writers}

    async def say(self, topic: str, key: str) -> None:
        self.said += 1
        event = made(
            BindingWithdrawn(key), id=derived_id("said", self.said), source="/tests", subject=key
        )
        submission = Submission(event, topic, key, key)
        assert (await self.ledger.accept([submission])).new == (event.id,)
        self.submitted.append(submission)
        self.said_at.append(self.time.at)

    async def take(self, stream: str, events: list[Event[Value]]) -> None:
        fresh = [event for event in events if event.id not in self.taken[stream]]
        if fresh:
            writer = self.writers[stream]
            await self.ledger.commit([writer.step(fresh, at=self.time.at)], writer.events)
            self.taken[stream].update(event.id for event in fresh)

    async def retire(self, before: Micros) -> bool:
        found = await cut(self.ledger.database, before)
        if found is None:
            return False
        snapshots: dict[str, dict[str, bytes]] = {}
        for stream, head in found.heads.items():
            if stream != INTAKE:
                state = await self._state(stream, head.round)
                snapshots[stream] = Counter().dump(state)
        await retire(self.ledger.database, found, snapshots, b"a checkpoint", self.time.at)
        return True

    async def _state(self, stream: str, last: int) -> Counts:
        decider = Counter()
        snapshot = await self.ledger.latest_snapshot(stream, last)
        state = (
            decider.initial(stream) if snapshot is None else decider.load(stream, snapshot.sections)
        )
        async for recorded in self.ledger.recorded_rounds(
            stream, (snapshot.round if snapshot else 0) + 1, last
        ):
            for event in recorded.events:
                decider.fold_input(state, event, recorded.round.at)
            for decision in recorded.round.decisions:
                decider.fold_decision(state, decision, recorded.round.at)
        return state

    async def delivered_again(self) -> dict[UUID, Event[Value]]:
        """All that a broker may deliver at other offsets: filled again by the publisher, or
        mirrored from one that had it all."""
        found = {fact.id: event_of(fact) async for fact in self.ledger.facts()}
        for submission, at in zip(self.submitted, self.said_at, strict=True):
            kept_ms = BY_NAME[submission.topic].retention_ms
            if kept_ms is not None and at >= self.time.at - kept_ms * 1000:
                found[submission.event.id] = submission.event
        return found

    async def check(self) -> None:
        again = await self.delivered_again()
        known = await self.ledger.known({stream: list(again) for stream in self.taken})
        for stream, taken in self.taken.items():
            assert known[stream] == taken & again.keys(), stream
        repeated = [submission for submission in self.submitted if submission.event.id in again]
        result = await self.ledger.accept(repeated)
        assert result.new == ()
        verified = await audit_verify(self.ledger)
        assert verified.ok, verified.first_bad


@asynccontextmanager
async def a_history(url: str) -> AsyncIterator[History]:
    time = Time()
    ledger = await Ledger.open(url, "tests-retired", clock=time)
    try:
        await ledger.ensure_streams(STREAMS)
        heads = await ledger.raise_epoch(STREAMS)
        yield History(ledger, time, {stream: Writer(head) for stream, head in heads.items()})
    finally:
        await ledger.close()


@pytest.mark.parametrize("seed", range(4))
async def test_what_may_come_again_is_recognised_whatever_was_retired(
    database_url: str, seed: int
) -> None:
    chance = random.Random(seed)
    async with a_history(database_url) as history:
        retirements = 0
        for _ in range(45):
            history.time.at += int(chance.random() * 3 * DAY_US)
            await history.ledger.ensure_partitions(SPAN_DAYS)
            for _ in range(chance.randrange(3)):
                topic = chance.choice([BINDINGS, BINDINGS, CLUSTERS, ASSIGNMENTS])
                await history.say(topic.name, f"key-{chance.randrange(6)}")
            for stream in STREAMS:
                if chance.random() < 0.5:
                    waiting = [
                        s.event
                        for s in history.submitted
                        if s.event.id not in history.taken[stream]
                    ]
                    await history.take(stream, waiting[: chance.randrange(1, 6)])
            if chance.random() < 0.15:
                # No stream is made to lose what it has still to read: that waits in the topics, and
                # the publisher has sent it.
                retirements += await history.retire(
                    history.time.at - int(chance.random() * chance.choice([3, 40]) * DAY_US)
                )
                await history.check()
        await history.retire(history.time.at - DAY_US)
        await history.check()
        assert retirements
        async with history.ledger.database.reading() as raw:
            row = await raw.fetchrow("select count(*) from taken")
        assert row is not None
        keys = len({(s.topic, s.key) for s in history.submitted})
        recent = [s for s in history.submitted if s.topic == ASSIGNMENTS.name]
        # bounded by the facts, not by the history
        assert row[0] <= (len(STREAMS) + 1) * (keys + len(recent))


async def test_a_stage_that_is_told_all_of_it_again_decides_nothing(database_url: str) -> None:
    """In a new life of the topics, at offsets that begin at nought."""
    async with a_history(database_url) as history:
        for number in range(30):
            history.time.at += 2 * DAY_US
            await history.ledger.ensure_partitions(SPAN_DAYS)
            await history.say(
                BINDINGS.name, f"key-{number % 7}" if number >= 5 else f"said-once-{number}"
            )
            await history.take("fleet/0", [history.submitted[-1].event])
        assert await history.retire(history.time.at - 6 * DAY_US)
        before = (await history.ledger.heads("fleet/0"))[0]
        again = await history.delivered_again()
        assert len(again) == 7 + 5
        acks = Acks()
        loop = StageLoop(
            "tests",
            Counter(),
            ByPartition(),
            history.ledger,
            {TOPIC: 2, "wharfinger.clusters": 2},
            history.time,
            METRICS.of("tests"),
            lock_timeout_s=5.0,
        )
        async with loop_running(loop, 0):
            await loop.offer(
                Message(TOPIC, 0, offset, event, acks.of(0, offset))
                for offset, event in enumerate(again.values())
            )
            await until(lambda: len(acks.done) == len(again))
        after = (await history.ledger.heads("fleet/0"))[0]
        assert (after.round, after.seq) == (before.round, before.seq)


async def test_of_a_cluster_that_was_forgotten_little_is_left(database_url: str) -> None:
    """Its last round and the state after it: a cluster that returns goes on from there, under
    numbers that were never used."""
    async with a_history(database_url) as history:
        await history.ledger.ensure_streams(["cluster/oslo"])
        writer = history.writers["cluster/oslo"] = Writer(
            (await history.ledger.raise_epoch(["cluster/oslo"]))["cluster/oslo"]
        )
        history.taken["cluster/oslo"] = set()
        for number in range(20):
            history.time.at += DAY_US
            await history.ledger.ensure_partitions(SPAN_DAYS)
            await history.say(BINDINGS.name, f"binding-{number}")
            for stream in ("cluster/oslo", "fleet/0"):
                await history.take(stream, [history.submitted[-1].event])
            if number % 6 == 5:
                await history.ledger.write_snapshot(
                    "cluster/oslo", writer.head.round, Counter().dump(writer.state)
                )
        forgotten = made(
            ClusterForgotten("oslo"), id=derived_id("forgotten"), source="/tests", subject="oslo"
        )
        await history.ledger.accept([Submission(forgotten, CLUSTERS.name, "oslo", "oslo")])
        for number in range(8):
            history.time.at += 5 * DAY_US
            await history.ledger.ensure_partitions(SPAN_DAYS)
            await history.say(BINDINGS.name, f"later-{number}")
            await history.take("fleet/0", [history.submitted[-1].event])
        assert await history.retire(history.time.at - 10 * DAY_US)
        left = {
            table: await rows_of(history.ledger, table, "cluster/oslo")
            for table in ("round", "input", "decision", "snapshot")
        }
        # The round in which the last events were taken in has its inputs still where they were
        # causes or facts.
        assert left == {"round": 1, "input": left["input"], "decision": 0, "snapshot": 1 + KEPT}
        assert left["input"] <= 1
        assert await rows_of(history.ledger, "decision", "fleet/0") > 20
        assert (await audit_verify(history.ledger)).ok
        seq = writer.head.seq
        await history.say(BINDINGS.name, "again")
        await history.take("cluster/oslo", [history.submitted[-1].event])
        seqs = [
            row.seq async for row in history.ledger.decisions(DecisionQuery(stream="cluster/oslo"))
        ]
        assert seqs[0] == seq + 1
        assert (await audit_verify(history.ledger)).ok


async def rows_of(ledger: Ledger, table: str, stream: str) -> int:
    async with ledger.database.reading() as raw:
        row = await raw.fetchrow(
            f"select count(*) from {table} t join stream s on s.id = t.stream where s.name = $1",
            stream,
        )
    assert row is not None
    return int(row[0])
