"""Snapshots made beside a running stage: a restart begins at them, and nobody waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs
from tests.counter import Counter, Counts, withdrawn
from tests.patience import PATIENCE_S

from wharfinger.events.decisions import BindingReleased
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import ENGINE, step
from wharfinger.runtime import snapshot_keeper
from wharfinger.runtime.ledger import Ledger, audit_verify, wall_clock
from wharfinger.runtime.ledger.follower import SnapshotCadence, SnapshotFollower
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.replay import replay
from wharfinger.runtime.snapshot_keeper import BURST, OVERDUE, SnapshotKeeper, StreamOwner
from wharfinger.runtime.stage_loop import StageLoop

pytestmark = pytest.mark.integration

TOPIC = "wharfinger.bindings"
REST_S = 0.05


EVERY = 10**6
"""Never reached: so each round is one input and one decision, two rows."""


class OneStream:
    prefix = "fleet/"

    def group_of(self, stream: str) -> int:
        return int(stream.removeprefix("fleet/"))

    def permanent_streams(self, group: int) -> Sequence[str]:
        return (f"fleet/{group}",)

    def addressed(self, message: Message) -> Sequence[str] | None:
        return ("fleet/0",)


@asynccontextmanager
async def a_stage(ledger: Ledger) -> AsyncIterator[StageLoop[Counts]]:
    loop = StageLoop(
        "tests", Counter(EVERY), OneStream(), ledger, {TOPIC: 1}, wall_clock, METRICS.of("tests")
    )
    loop.expect([0])
    await loop.acquire()
    loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


@asynccontextmanager
async def keeping(
    ledger: Ledger,
    owner: StreamOwner,
    every_rounds: int,
    of_profile: Callable[[str], Counter] = Counter.of_profile,
    idle_s: Callable[[], float] | None = None,
    cadence: SnapshotCadence | None = None,
) -> AsyncIterator[SnapshotKeeper[Counts]]:
    cadence = cadence or SnapshotCadence(2 * every_rounds, 4 * every_rounds)
    keeper = SnapshotKeeper(ledger, of_profile, owner, cadence, REST_S, idle_s)
    keeper.start()
    try:
        yield keeper
    finally:
        await keeper.stop()


async def decided(loop: StageLoop[Counts], first: int, rounds: int) -> None:
    """One message a round."""
    for number in range(first, first + rounds):
        await loop.offer([Message(TOPIC, 0, number, withdrawn(number))])
        await until(lambda: head(loop).round > number)  # noqa: B023  (asked before the next one)


def head(loop: StageLoop[Counts]) -> Head:
    return loop.heads()["fleet/0"]


async def snapshot_of(ledger: Ledger, number: int) -> bytes:
    """The digest of the snapshot of round `number`, once it is the newest."""
    while True:
        found = await ledger.latest_snapshot("fleet/0")
        if found is not None and found.round == number:
            return found.digest
        await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.002)


async def test_a_restart_begins_at_the_snapshot_and_the_chain_vouches_for_it(
    ledger: Ledger,
) -> None:
    async with a_stage(ledger) as loop, keeping(ledger, loop, every_rounds=10):
        await decided(loop, 0, 33)
        digest = await snapshot_of(ledger, 30)
        await decided(loop, 33, 3)
        # the first round after it was made learned of it, the next carried it
        assert head(loop).snapshot == digest
    with capture_logs() as logs:
        async with a_stage(ledger) as loop:
            await decided(loop, 36, 2)
            assert head(loop).snapshot == digest
    assert [line["rounds"] for line in logs if line["event"] == "stream.recovered"] == [6]
    whole = await replay(ledger, {"fleet/": Counter.of_profile})
    assert (whole.rounds, whole.inputs, whole.divergences) == (38, 38, ())
    late = await replay(ledger, {"fleet/": Counter.of_profile}, from_round=31)
    assert (late.rounds, late.divergences) == (8, ())
    verified = await audit_verify(ledger)
    assert verified.ok, verified.first_bad


async def test_a_snapshot_waits_while_another_stage_of_the_process_works(ledger: Ledger) -> None:
    idle_s = 0.0
    async with a_stage(ledger) as loop, keeping(ledger, loop, 20, idle_s=lambda: idle_s):
        await decided(loop, 0, 20 * OVERDUE - 1)
        await asyncio.sleep(REST_S * 6)
        assert await ledger.latest_snapshot("fleet/0") is None
        idle_s = 2 * REST_S
        await snapshot_of(ledger, 20 * (OVERDUE - 1))


async def test_only_what_has_enough_rounds_is_due_and_again_after_as_many(ledger: Ledger) -> None:
    async with a_stage(ledger) as loop, keeping(ledger, loop, every_rounds=10):
        await decided(loop, 0, 9)
        await asyncio.sleep(REST_S * 6)
        assert await ledger.latest_snapshot("fleet/0") is None
        await decided(loop, 9, 1)
        await snapshot_of(ledger, 10)
        await decided(loop, 10, 9)
        await asyncio.sleep(REST_S * 6)
        await snapshot_of(ledger, 10)
        await decided(loop, 19, 4)
        await snapshot_of(ledger, 20)


class Held(Counter):
    """Deciding does not end before the event loop has turned since it began."""

    began = threading.Event()
    turned = threading.Event()

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        self.turned.clear()
        self.began.set()
        assert self.turned.wait(PATIENCE_S), "the loop waits for the keeper"
        return super().decide(state, at)

    @classmethod
    def of_profile(cls, text: str) -> Counter:
        return cls(EVERY)


async def test_the_loop_never_waits_for_a_snapshot(ledger: Ledger) -> None:
    async with a_stage(ledger) as loop:
        await decided(loop, 0, 4)
        async with keeping(ledger, loop, 4, Held.of_profile):
            made = asyncio.create_task(snapshot_of(ledger, 4))
            while not made.done():
                if Held.began.is_set():
                    Held.began.clear()
                    Held.turned.set()
                await asyncio.sleep(0.01)


@dataclass
class Busy:
    """The stage's streams, and while `busy` a stage that has just decided. `looked`, `asked`: how
    often the keeper wanted to know whether it is idle, and whether it has a burst."""

    loop: StageLoop[Counts]
    busy: bool = True
    bursting: bool = False
    looked: int = 0
    asked: int = 0

    def heads(self) -> Mapping[str, Head]:
        return self.loop.heads()

    def idle_s(self) -> float:
        self.looked += 1
        return 0.0 if self.busy else self.loop.idle_s()

    def in_burst(self) -> bool:
        self.asked += 1
        return self.bursting

    async def is_asked(self) -> None:
        """The keeper has looked twice for deltas that are due, from now on."""
        asked = self.asked
        await until(lambda: self.asked >= asked + 2)


async def test_a_busy_stage_is_left_alone(ledger: Ledger) -> None:
    async with a_stage(ledger) as loop:
        await decided(loop, 0, 4 * OVERDUE - 1)
        owner = Busy(loop)
        async with keeping(ledger, owner, 4):
            await until(lambda: owner.looked >= 5)
            assert await ledger.latest_snapshot("fleet/0") is None
            owner.busy = False
            await snapshot_of(ledger, 4 * (OVERDUE - 1))


async def test_a_stage_that_is_never_at_rest_is_followed_from_when_it_is_overdue(
    ledger: Ledger,
) -> None:
    async with a_stage(ledger) as loop:
        owner = Busy(loop)
        async with keeping(ledger, owner, 1):
            await decided(loop, 0, OVERDUE - 1)
            await until(lambda: owner.looked >= 5)
            assert await ledger.latest_snapshot("fleet/0") is None
            await decided(loop, OVERDUE - 1, 1)
            await snapshot_of(ledger, OVERDUE)
            for number in range(OVERDUE, OVERDUE + 3):
                await decided(loop, number, 1)
                await snapshot_of(ledger, number + 1)
            owner.busy = False
            await decided(loop, OVERDUE + 3, 1)
            await snapshot_of(ledger, OVERDUE + 4)
    verified = await audit_verify(ledger)
    assert verified.ok, verified.first_bad


DELTAS = SnapshotCadence(whole_rows=10**6, delta_rows=4)
"""A delta after every two rounds."""


async def delta_of(ledger: Ledger, number: int, *, replayed: bool = False) -> None:
    while True:
        if await ledger.latest_delta("fleet/0", replayed=replayed) >= number:
            return
        await asyncio.sleep(0.01)


async def test_a_busy_stage_gets_deltas_from_folding_and_is_decided_again_when_it_rests(
    ledger: Ledger,
) -> None:
    deciding: list[Micros] = []

    class Listed(Counter):
        def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
            deciding.append(at)
            return super().decide(state, at)

    async with a_stage(ledger) as loop:
        owner = Busy(loop)
        async with keeping(ledger, owner, 0, lambda _: Listed(EVERY), cadence=DELTAS):
            await decided(loop, 0, 2 * OVERDUE)
            await delta_of(ledger, 2 * OVERDUE)
            await decided(loop, 2 * OVERDUE, 2)
            await delta_of(ledger, 2 * OVERDUE + 2)
            assert deciding == []
            assert await ledger.replayed_to("fleet/0") == 0
            [age] = await ledger.snapshot_ages()
            assert age.rows == head(loop).round + head(loop).seq
            owner.busy = False
            await delta_of(ledger, 2 * OVERDUE + 2, replayed=True)
            assert len(deciding) == 2 * OVERDUE + 2


ROUNDS_OF_BURST = BURST * DELTAS.delta_rows // 2
"""A round is an input and a decision."""


async def test_in_a_burst_nothing_is_folded_and_at_rest_the_deltas_are_as_dense_as_ever(
    ledger: Ledger,
) -> None:
    async with a_stage(ledger) as loop:
        owner = Busy(loop, bursting=True)
        async with keeping(ledger, owner, 0, cadence=DELTAS):
            await decided(loop, 0, ROUNDS_OF_BURST - 1)
            await owner.is_asked()
            assert await ledger.latest_delta("fleet/0") == 0
            owner.busy = owner.bursting = False
            await delta_of(ledger, ROUNDS_OF_BURST - 2, replayed=True)
    assert await deltas(ledger) == list(range(2, ROUNDS_OF_BURST, 2))


async def test_after_a_burst_a_stage_that_does_not_rest_gets_all_its_deltas(ledger: Ledger) -> None:
    async with a_stage(ledger) as loop:
        owner = Busy(loop, bursting=True)
        async with keeping(ledger, owner, 0, cadence=DELTAS):
            await decided(loop, 0, ROUNDS_OF_BURST - 1)
            await owner.is_asked()
            assert await ledger.latest_delta("fleet/0") == 0
            owner.bursting = False
            await delta_of(ledger, ROUNDS_OF_BURST - 2)
    assert await deltas(ledger) == list(range(2, ROUNDS_OF_BURST, 2))


async def test_in_a_burst_without_end_the_newest_delta_follows_at_a_bounded_distance(
    ledger: Ledger,
) -> None:
    async with a_stage(ledger) as loop:
        owner = Busy(loop, bursting=True)
        async with keeping(ledger, owner, 0, cadence=DELTAS):
            for last in (2 * ROUNDS_OF_BURST, 2 * ROUNDS_OF_BURST + 10):
                await decided(loop, head(loop).round, last - head(loop).round)
                newest = last - ROUNDS_OF_BURST + 2
                await delta_of(ledger, newest)
                await owner.is_asked()
                # all that are due up to there, and none beyond
                assert await deltas(ledger) == list(range(2, newest + 1, 2))


async def test_in_a_burst_a_state_that_cannot_be_kept_is_not_loaded_for_each_delta(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_keeper, "KEPT_BYTES_MAX", -1)
    async with a_stage(ledger) as loop:
        owner = Busy(loop, bursting=True)
        await decided(loop, 0, ROUNDS_OF_BURST)
        async with keeping(ledger, owner, 0, cadence=DELTAS):
            await delta_of(ledger, ROUNDS_OF_BURST)


async def deltas(ledger: Ledger) -> list[int]:
    """Their rounds."""
    async with ledger.database.reading() as raw:
        rows = await raw.fetch("select round from snapshot where not whole order by round")
    return [row[0] for row in rows]


async def test_deltas_from_folding_do_not_hide_that_a_stream_is_decided_otherwise(
    ledger: Ledger,
) -> None:
    async with a_stage(ledger) as loop:
        owner = Busy(loop)
        with capture_logs() as logs:
            async with keeping(ledger, owner, 0, lambda _: Counter(2), cadence=DELTAS) as keeper:
                await decided(loop, 0, 2 * OVERDUE)
                await delta_of(ledger, 2 * OVERDUE)
                owner.busy = False
                await until(lambda: keeper.divergences == 1)
        assert await ledger.replayed_to("fleet/0") == 0
    assert [line["event"] for line in logs].count("snapshot_follower.diverged") == 1


async def test_a_follower_says_when_the_history_it_followed_is_gone(ledger: Ledger) -> None:
    async with a_stage(ledger) as loop:
        await decided(loop, 0, 4)
    follower = SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=4)
    assert await follower.continues()
    assert await follower.catch_up() == [4]
    assert await follower.continues()
    async with ledger.database.transaction() as transaction:
        await transaction.raw.execute("update round set hash = 'another' where number = 4")
    assert not await follower.continues()
    async with ledger.database.transaction() as transaction:
        await transaction.raw.execute("delete from round where number = 4")
    assert not await follower.continues()


async def test_a_stream_that_cannot_be_decided_again_has_no_snapshot_and_goes_on(
    ledger: Ledger,
) -> None:
    async with a_stage(ledger) as loop:
        with capture_logs() as logs:
            async with keeping(ledger, loop, 4, lambda _: Counter(every=2)):
                await decided(loop, 0, 5)
                await until(
                    lambda: any(line["event"] == "snapshot_follower.diverged" for line in logs)
                )
                await decided(loop, 5, 6)
                await asyncio.sleep(REST_S * 6)
        assert await ledger.latest_snapshot("fleet/0") is None
        assert len([line for line in logs if line["event"] == "snapshot_follower.diverged"]) == 1


# --- after an upgrade ----------------------------------------------------------------------------

OLD = "wharfinger/0.3.0"


class Older(Counter):
    """The same profile, and another decision: what an earlier version may have decided."""

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        for draft in super().decide(state, at):
            assert isinstance(draft.data, BindingReleased)
            yield Draft(
                BindingReleased(draft.data.binding, f"formerly {draft.data.uid}"),
                draft.subject,
                draft.outcome,
                draft.cause,
            )


async def decided_by_the_old_engine(ledger: Ledger, rounds: int) -> None:
    await ledger.ensure_streams(["fleet/0"])
    older, current = Older(EVERY), (await ledger.raise_epoch(["fleet/0"]))["fleet/0"]
    state = older.initial("fleet/0")
    for number in range(rounds):
        event = withdrawn(number)
        round_ = step(
            older,
            state,
            current,
            [event],
            wall_clock(),
            {f"{TOPIC}/0": (1, number + 1)},
            engine=OLD,
        )
        assert (await ledger.commit([round_], {event.id: event})).committed
        current = round_.head()


async def test_what_another_engine_decided_is_folded_and_snapshots_go_on(ledger: Ledger) -> None:
    """Fewer rounds than make a snapshot due: the state that was recovered is stored all the same,
    and what this engine decides is followed from there on. The chain tells it: the engine of each
    round, and the digest of that state."""
    await decided_by_the_old_engine(ledger, 7)
    with capture_logs() as logs:
        async with a_stage(ledger) as loop, keeping(ledger, loop, every_rounds=10):
            digest = await snapshot_of(ledger, 7)
            await decided(loop, 7, 1)
            await decided(loop, 8, 1)
            assert head(loop).snapshot == digest
            await decided(loop, 9, 8)
            await snapshot_of(ledger, 17)
    assert [
        (line["before"], line["round"]) for line in logs if line["event"] == "engine.changed"
    ] == [(OLD, 7)]
    assert not [
        line
        for line in logs
        if line["event"] in ("snapshot_follower.diverged", "snapshots.stopped")
    ]
    rounds = [recorded.round async for recorded in ledger.recorded_rounds("fleet/0")]
    assert [r.engine for r in rounds] == [OLD] * 7 + [ENGINE] * 10
    assert digest in {r.snapshot for r in rounds[7:]}
    found = await replay(ledger, {"fleet/": Counter.of_profile})
    assert found.divergences == ()
    assert [(one.engine, one.rounds, one.differing_rounds) for one in found.other_engines] == [
        (OLD, 7, 7)
    ]
    assert (await audit_verify(ledger)).ok


async def test_a_restart_after_an_upgrade_stands_where_the_old_engine_stood(ledger: Ledger) -> None:
    await decided_by_the_old_engine(ledger, 7)
    async with a_stage(ledger) as loop:
        folded = await loop.look("fleet/0", Counter(EVERY).dump)
    async with a_stage(ledger) as loop, keeping(ledger, loop, every_rounds=10):
        await snapshot_of(ledger, 7)
    stored = await ledger.latest_snapshot("fleet/0")
    assert stored is not None
    assert stored.sections == folded


async def test_a_stream_that_this_engine_decides_otherwise_is_said_again_and_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_keeper, "SAY_AGAIN_S", 2 * REST_S)
    async with a_stage(ledger) as loop:
        with capture_logs() as logs:
            async with keeping(ledger, loop, 4, lambda _: Counter(every=2)) as keeper:
                await decided(loop, 0, 5)
                await until(
                    lambda: (
                        len([line for line in logs if line["event"] == "snapshots.stopped"]) >= 2
                    )
                )
        assert keeper.divergences == 1
        assert {line["stream"] for line in logs if line["event"] == "snapshots.stopped"} == {
            "fleet/0"
        }
