"""The stage loop on a real ledger: whatever happens in between, every message is decided once, and
the chain holds.

The decider is the counter of `tests/counter.py`, so that what was decided can be counted; the
readers are played by hand.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec
import pytest
import pytest_asyncio
from tests.apps import until
from tests.counter import Counter, Counts, withdrawn
from tests.loops import (
    INCARNATIONS,
    TOPIC,
    Acks,
    ByPartition,
    a_loop,
    assert_each_once,
    causes,
    loop_running,
    messages,
)
from tests.patience import PATIENCE_S, in_patience

from wharfinger.domain.binding import Binding
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.streams import CLUSTERS
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.round import Round
from wharfinger.runtime.ledger import Ledger, LedgerError, Transient, audit_verify, wall_clock
from wharfinger.runtime.ledger.writer import CommitResult
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.stage_loop import StageLoop
from wharfinger.stages.fleet import FleetDecider

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def other(database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.open(database_url, "tests-other")
    yield opened
    await opened.close()


# --- what one turn holds -------------------------------------------------------------------------


WEB = BindingRequested(
    Binding(
        "web", "uid-web", ObjectRef("apps/v1", "Deployment", "web"), 2, Requirements({"cpu": 1000})
    )
)
NINE = BindingRequested(msgspec.structs.replace(WEB.binding, replicas=9))
GONE = BindingWithdrawn("web")


@pytest.mark.parametrize(
    ("facts", "replicas"),
    [
        ([WEB, GONE], None),
        ([WEB, NINE, WEB], 2),
        ([WEB, GONE, WEB], 2),
        ([WEB, GONE, NINE, GONE], None),
    ],
    ids=["created, deleted", "2, 9, 2", "created, deleted, created", "twice deleted"],
)
@pytest.mark.parametrize("cut", [1, 2, 4], ids=["one a turn", "two a turn", "one turn"])
async def test_the_last_word_on_a_binding_holds_however_many_come_in_one_turn(
    ledger: Ledger, facts: list[BindingRequested | BindingWithdrawn], replicas: int | None, cut: int
) -> None:
    told = [
        Message(
            TOPIC,
            0,
            offset,
            made(fact, id=derived_id("last word", offset), source="/tests", subject="web"),
            None,
        )
        for offset, fact in enumerate(facts)
    ]
    loop = StageLoop(
        "tests",
        FleetDecider(),
        ByPartition(),
        ledger,
        INCARNATIONS,
        wall_clock,
        METRICS.of("tests"),
        take_max=cut,
    )
    loop.expect([0])
    await loop.acquire()
    loop.hold(True)
    loop.start()
    try:
        await loop.offer_facts(told)  # all wait, as after a stop of the process
        loop.hold(False)
        await until(lambda: loop.idle_s() > 0 and loop.backlog() == 0)
        held = await loop.look(
            "fleet/0", lambda state: {name: r.spec.replicas for name, r in state.bindings.items()}
        )
        assert held == ({} if replicas is None else {"web": replicas})
    finally:
        await loop.stop()
    ids = [message.event.id for message in told]
    assert set((await ledger.known({"fleet/0": ids}))["fleet/0"]) == set(ids), (
        "every event is an input of some round"
    )
    assert (await audit_verify(ledger)).ok


# --- redelivery ----------------------------------------------------------------------------------


async def test_what_comes_again_changes_nothing(ledger: Ledger) -> None:
    acks = Acks()
    async with loop_running(a_loop(ledger), 0) as loop:
        await loop.offer(messages(range(20), acks))
        await until(lambda: len(acks.done) == 20)
        before = loop.heads()
        await loop.offer(messages(range(20), acks))  # at their old offsets
        await loop.offer(messages(range(20), acks, first=20))  # sent again: known by their ids
        await loop.offer(messages([20, 20, 20], acks, first=40))  # and within one batch
        await until(lambda: len(acks.done) == 63)
        after = loop.heads()
    assert after["fleet/0"].round == before["fleet/0"].round + 1
    await assert_each_once(ledger, range(21))


@pytest.mark.parametrize("cut", [1, 3, 500])
async def test_facts_that_came_early_are_taken_in_their_order(ledger: Ledger, cut: int) -> None:
    """A reader that stands at offset 5 goes on while groups are expected; then it begins again
    where their streams stand."""
    facts = [msgspec.structs.replace(m, topic=CLUSTERS.name) for m in messages(range(12))]
    loop = StageLoop(
        "tests",
        Counter(),
        ByPartition(),
        ledger,
        INCARNATIONS,
        wall_clock,
        METRICS.of("tests"),
        take_max=cut,
    )
    loop.hold(True)
    loop.expect([0])
    await loop.offer(messages([12]))
    await loop.offer_facts(facts[5:9])
    loop.forget_early({CLUSTERS.name})
    await loop.acquire()
    assert loop.positions() == {}
    loop.start()
    try:
        await loop.offer_facts(facts)
        loop.hold(False)
        await until(lambda: loop.idle_s() > 0 and loop.backlog() == 0)
    finally:
        await loop.stop()
    decided = await causes(ledger)
    assert decided == [str(withdrawn(n).id) for n in (12, *range(12))]


async def test_a_restart_knows_what_was_decided(ledger: Ledger) -> None:
    acks = Acks()
    async with loop_running(a_loop(ledger), 0) as loop:
        await loop.offer(messages(range(10), acks))
        await until(lambda: len(acks.done) == 10)
    async with loop_running(a_loop(ledger), 0) as loop:
        await loop.offer(messages(range(15), acks))
        await until(lambda: len(acks.done) == 25)
        assert loop.heads()["fleet/0"].epoch == 2
    await assert_each_once(ledger, range(15))


async def test_a_new_life_of_the_topic_begins_at_offset_zero(ledger: Ledger) -> None:
    acks = Acks()
    async with loop_running(a_loop(ledger), 0) as loop:
        await loop.offer(messages(range(10), acks))
        await until(lambda: len(acks.done) == 10)
    loop = StageLoop(
        "tests",
        Counter(),
        ByPartition(),
        ledger,
        {**INCARNATIONS, TOPIC: 2},
        wall_clock,
        METRICS.of("tests"),
    )
    async with loop_running(loop, 0):
        # offsets 0, 1 and 2 were other events in the life before
        await loop.offer(messages([10, 11, 3], acks))
        await until(lambda: len(acks.done) == 13)
    await assert_each_once(ledger, range(12))


# --- broadcast -----------------------------------------------------------------------------------


async def test_a_broadcast_begins_where_the_one_who_knows_least_stands(ledger: Ledger) -> None:
    def told(number: int, offset: int) -> Message:
        return Message("wharfinger.clusters", 0, offset, withdrawn(number))

    async with loop_running(a_loop(ledger), 0) as loop:
        await loop.offer([told(n, n) for n in range(5)])
        await until(lambda: loop.heads()["fleet/0"].seq > 4)
        assert loop.positions() == {"wharfinger.clusters/0": 5}
        loop.expect([1])
        await loop.acquire()
        assert loop.positions() == {"wharfinger.clusters/0": 0}  # the new one has heard nothing
        await loop.offer([told(n, n) for n in range(5)])
        await until(lambda: loop.heads()["fleet/1"].seq > 4)
        assert loop.positions() == {"wharfinger.clusters/0": 5}
    fresh = {**INCARNATIONS, "wharfinger.clusters": 2}
    loop = StageLoop(
        "tests", Counter(), ByPartition(), ledger, fresh, wall_clock, METRICS.of("tests")
    )
    loop.expect([0, 1])
    await loop.acquire()
    loop.start()
    try:
        loop.expect([0, 1])
        assert loop.positions() == {}
        await loop.offer([told(100, 7)])
        await until(lambda: loop.positions() == {"wharfinger.clusters/0": 8})
        loop.expect([2])
        await loop.acquire()
        assert loop.positions() == {"wharfinger.clusters/0": 0}
    finally:
        await loop.stop()


async def test_a_stream_that_stands_in_an_older_life_of_a_topic_is_told_from_its_beginning(
    ledger: Ledger,
) -> None:
    """One stream has read the new life of a broadcast topic and the other only the old: the reader
    begins at 0 for its sake."""

    def told(number: int, offset: int) -> Message:
        return Message("wharfinger.clusters", 0, offset, withdrawn(number))

    async with loop_running(a_loop(ledger), 0, 1) as loop:
        await loop.offer([told(n, n) for n in range(9)])
        await until(lambda: min(h.seq for h in loop.heads().values()) > 8)
    fresh = {**INCARNATIONS, "wharfinger.clusters": 2}

    def again() -> StageLoop[Counts]:
        return StageLoop(
            "tests", Counter(), ByPartition(), ledger, fresh, wall_clock, METRICS.of("tests")
        )

    async with loop_running(again(), 0) as loop:  # alone: stream 1 is nobody's meanwhile
        await loop.offer([told(100 + n, n) for n in range(4)])
        await until(lambda: loop.positions() == {"wharfinger.clusters/0": 4})
    async with loop_running(again(), 0, 1) as loop:
        assert loop.positions() == {"wharfinger.clusters/0": 0}


async def test_nothing_is_decided_while_the_facts_are_not_there(ledger: Ledger) -> None:
    acks = Acks()
    loop = a_loop(ledger)
    loop.hold(True)
    async with loop_running(loop, 0):
        await loop.offer(messages(range(5), acks))
        await asyncio.sleep(0.2)
        assert (acks.done, loop.ready(), loop.backlog()) == ([], False, 5)
        loop.hold(False)
        await until(lambda: len(acks.done) == 5)
        assert loop.ready()
    await assert_each_once(ledger, range(5))


# --- fencing -------------------------------------------------------------------------------------


async def test_a_fenced_writer_recovers_and_goes_on_without_losing_a_message(
    ledger: Ledger, other: Ledger
) -> None:
    acks = Acks()
    async with loop_running(a_loop(ledger), 0, 1) as loop:
        for wave in range(6):
            for partition in (0, 1):
                numbers = range(1000 * partition + wave * 10, 1000 * partition + wave * 10 + 10)
                await loop.offer(messages(numbers, acks, partition=partition, first=wave * 10))
            await other.raise_epoch(["fleet/0"])
            await until(lambda wave=wave: len(acks.done) == (wave + 1) * 20)
        assert loop.heads()["fleet/0"].epoch > loop.heads()["fleet/1"].epoch
        assert not loop.fatal
    assert sorted(acks.done) == [(p, o) for p in (0, 1) for o in range(60)]
    await assert_each_once(ledger, [*range(60), *range(1000, 1060)])


async def test_two_writers_of_a_stream_never_both_decide(ledger: Ledger, other: Ledger) -> None:
    """The second does not wait for the lock long, and both are given the same messages."""
    first, second = Acks(), Acks()
    async with loop_running(a_loop(ledger, lock_timeout_s=0.2), 0) as old:
        await old.offer(messages(range(50), first))
        async with loop_running(a_loop(other, lock_timeout_s=0.2), 0) as new:
            for wave in range(5, 15):
                batch = range(wave * 10, wave * 10 + 10)
                await asyncio.gather(
                    old.offer(messages(batch, first, first=wave * 10)),
                    new.offer(messages(batch, second, first=wave * 10)),
                )
                await asyncio.sleep(0.05)
            await until(lambda: len(first.done) == 150 and len(second.done) == 100)
            assert not old.fatal
            assert not new.fatal
    await assert_each_once(ledger, range(150))


async def test_a_lost_lock_is_taken_again(ledger: Ledger, other: Ledger) -> None:
    acks = Acks()
    async with loop_running(a_loop(ledger), 0) as loop:
        await loop.offer(messages(range(5), acks))
        await until(lambda: len(acks.done) == 5)
        async with other.database.reading() as raw:
            killed = await raw.fetch(
                "select pg_terminate_backend(a.pid) from pg_locks l join pg_stat_activity a "
                "using (pid) "
                "where l.locktype = 'advisory' and l.granted "
                "and a.datname = current_database() and a.application_name = 'tests'"
            )
        assert len(killed) == 1
        await loop.offer(messages(range(5, 10), acks, first=5))
        await until(lambda: len(acks.done) == 10)
        assert loop.owned() == [0]
        assert not loop.fatal
    await assert_each_once(ledger, range(10))


async def test_killed_connections_lose_nothing_and_double_nothing(
    ledger: Ledger, other: Ledger
) -> None:
    acks, sent, kills = Acks(), 2000, 0
    done = asyncio.Event()

    async def kill() -> None:
        """Ever more seldom: on a slow machine no transaction would ever live long enough else."""
        nonlocal kills
        pause = 0.05
        async with other.database.reading() as raw:
            while not done.is_set():
                kills += len(
                    await raw.fetch(
                        "select pg_terminate_backend(pid) from pg_stat_activity "
                        "where datname = current_database() and application_name = 'tests' "
                        "order by random() limit 1"
                    )
                )
                await asyncio.sleep(pause)
                pause *= 1.05

    async with loop_running(a_loop(ledger, take_max=25), 0, 1) as loop:
        killing = asyncio.create_task(kill())
        try:
            for start in range(0, sent, 50):
                await loop.offer(
                    messages(
                        range(start, start + 50),
                        acks,
                        partition=start // 50 % 2,
                        first=start // 100 * 50,
                    )
                )
                await asyncio.sleep(0.02)
            await until(lambda: len(acks.done) == sent or loop.fatal)
        finally:
            done.set()
            await killing
        assert not loop.fatal
    assert kills >= 10
    await assert_each_once(other, range(sent))


# --- coming and going ----------------------------------------------------------------------------


async def test_a_revocation_finishes_or_abandons_the_batch_and_frees_the_lock(
    ledger: Ledger, other: Ledger
) -> None:
    """Whatever was acknowledged is decided; whatever was not comes again to the next owner."""
    acks = Acks()
    async with loop_running(a_loop(ledger, take_max=10), 0, 1) as loop:
        await loop.offer(messages(range(300), acks))
        await until(lambda: acks.done)
        await in_patience(loop.revoke([0]))
        kept = {offset for _, offset in acks.done}
        assert len(kept) < 300
        assert loop.owned() == [1]
        decided = set(await causes(ledger))
        assert {str(withdrawn(n).id) for n in kept} == decided
        async with loop_running(a_loop(other), 0) as next_owner:
            again = Acks()
            await next_owner.offer(messages(range(300), again))
            await until(lambda: len(again.done) == 300)
        assert loop.backlog() == 0
    await assert_each_once(ledger, range(300))


async def test_messages_that_come_after_the_revocation_are_not_acknowledged(ledger: Ledger) -> None:
    """They are the next owner's: acknowledged here, the broker would never show them to him."""
    acks = Acks()
    async with loop_running(a_loop(ledger), 0) as loop:
        await loop.revoke([0])
        await loop.offer(messages(range(5), acks))
        await asyncio.sleep(0.05)
        assert acks.done == []
    await loop.offer(messages(range(5), acks))  # nor after the stop
    assert acks.done == []


async def test_a_takeover_that_is_cancelled_leaves_no_lock_behind(
    ledger: Ledger, other: Ledger
) -> None:
    """The next rebalance may come while we wait for a lock or recover."""
    held = await other.partition_lock("fleet/0")
    assert await held.wait(PATIENCE_S)
    loop = a_loop(ledger)
    loop.expect([0])
    taking = asyncio.create_task(loop.acquire())
    await asyncio.sleep(0.3)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await held.release()
    lock = await other.partition_lock("fleet/0")
    try:
        assert await lock.wait(PATIENCE_S)
    finally:
        await lock.release()
        await loop.stop()


async def test_a_group_taken_away_while_it_recovers_leaves_an_empty_mailbox(
    ledger: Ledger, other: Ledger
) -> None:
    held = await other.partition_lock("fleet/0")
    assert await held.wait(PATIENCE_S)
    loop = a_loop(ledger, mailbox_max=10)
    loop.start()
    loop.expect([0, 1])
    taking = asyncio.create_task(loop.acquire())
    await asyncio.sleep(0.1)
    full = asyncio.create_task(loop.offer(messages(range(10))))
    leaving = asyncio.create_task(loop.revoke([0]))
    await asyncio.sleep(0.1)
    await held.release()
    await asyncio.gather(taking, leaving, full)
    acks = Acks()
    try:
        assert loop.owned() == [1]
        assert loop.backlog() == 0
        await in_patience(loop.offer(messages(range(10, 20), acks, partition=1)))
        await until(lambda: len(acks.done) == 10)
    finally:
        await loop.stop()


# --- time ----------------------------------------------------------------------------------------


class Alarm(Counter):
    """Releases what it was told a while later, when nothing but time says so."""

    def __init__(self, after: Micros) -> None:
        super().__init__(every=1000)
        self.after = after
        self.due: dict[str, Micros] = {}

    def fold_input(self, state: Counts, event: Event[Value], at: Micros) -> None:
        match event.data:
            case BindingWithdrawn():
                super().fold_input(state, event, at)
                self.due.setdefault("now", at + self.after)
            case Ticked():
                self.due.clear()

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        if not self.due:
            yield from super().decide(state, at)

    def next_due(self, state: Counts) -> Micros | None:
        return self.due.get("now")


async def test_a_tick_fires_when_it_is_due_and_once(ledger: Ledger) -> None:
    async with loop_running(a_loop(ledger, Alarm(after=300_000)), 0) as loop:
        told = wall_clock()
        await loop.offer(messages(range(3)))
        await until(lambda: loop.heads()["fleet/0"].round == 2)
        fired = wall_clock()
        await asyncio.sleep(0.3)
        head = loop.heads()["fleet/0"]
    assert fired - told >= 300_000
    assert (head.round, head.seq) == (2, 3)  # the messages, the tick; an idle stream writes nothing
    rounds = [r async for r in ledger.recorded_rounds("fleet/0")]
    assert [type(e.data) for e in rounds[1].events] == [Ticked]
    await assert_each_once(ledger, range(3))


# --- what cannot be mended -----------------------------------------------------------------------


class Broken(Counter):
    """Nothing can be decided after the first decision, whatever comes: no event is to blame."""

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        if state.total:
            raise ZeroDivisionError("a bug")
        yield from super().decide(state, at)


async def test_a_decider_that_raises_without_an_event_to_blame_is_fatal_and_said_once(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    acks = Acks()
    async with loop_running(a_loop(ledger, Broken()), 0) as loop:
        await loop.offer(messages([1], acks))
        await until(lambda: acks.done)
        await loop.offer(messages([2, 3], acks, first=1))
        await until(lambda: loop.fatal)
        await asyncio.sleep(0.2)
        assert loop.fatal == "ZeroDivisionError: a bug"
        assert not loop.ready()
        assert acks.done == [(0, 0)]
    said = capsys.readouterr()
    assert (said.out + said.err).count("stage.failed") == 1
    await assert_each_once(ledger, [1])


class Away(Ledger):
    """Its commits fail for a while, before or after they took place."""

    away = itertools.count(-1)  # so many are yet to fail; replaced by the test

    async def commit(
        self, rounds: Sequence[Round], events: object, group_of: object = None, marks: object = None
    ) -> CommitResult:
        number = next(self.away)
        if number % 4 == 1:
            raise Transient("database: away")
        result = await super().commit(rounds, events, group_of, marks)  # type: ignore[arg-type]
        if number % 4 == 2:
            raise Transient("database: no answer")
        return result


async def test_a_commit_that_may_have_taken_place_is_asked_again(ledger: Ledger) -> None:
    acks = Acks()
    async with loop_running(a_loop(Away(ledger.database)), 0) as loop:
        for n in range(12):
            await loop.offer(messages([n], acks, first=n))
            await until(lambda n=n: len(acks.done) == n + 1)
        assert not loop.fatal
    await assert_each_once(ledger, range(12))


async def test_a_stop_while_the_database_is_away_is_no_failure(ledger: Ledger) -> None:
    class Gone(Ledger):
        async def commit(
            self,
            rounds: Sequence[Round],
            events: object,
            group_of: object = None,
            marks: object = None,
        ) -> CommitResult:
            raise Transient("database: away")

    acks = Acks()
    async with loop_running(a_loop(Gone(ledger.database)), 0) as loop:
        await loop.offer(messages(range(3), acks))
        await asyncio.sleep(0.2)
    assert loop.fatal == ""
    assert acks.done == []
    async with loop_running(a_loop(ledger), 0) as loop:
        await loop.offer(messages(range(3), acks))
        await until(lambda: len(acks.done) == 3)
    await assert_each_once(ledger, range(3))


async def test_a_ledger_that_refuses_is_fatal(ledger: Ledger) -> None:
    class Refusing(Ledger):
        async def commit(
            self,
            rounds: Sequence[Round],
            events: object,
            group_of: object = None,
            marks: object = None,
        ) -> CommitResult:
            raise LedgerError("fleet/0: refused")

    acks = Acks()
    async with loop_running(a_loop(Refusing(ledger.database)), 0) as loop:
        await loop.offer(messages(range(3), acks))
        await until(lambda: loop.fatal)
        assert loop.fatal == "LedgerError: fleet/0: refused"
    assert acks.done == []
