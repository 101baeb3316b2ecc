"""One glance at a wrong clock: what is stamped by it, what is refused, and what goes on all the
same. Real ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.apps import until
from tests.counter import Counter, Counts, withdrawn
from tests.loops import Acks, a_loop, loop_running, messages

from wharfinger.domain.value import Value
from wharfinger.events.decisions import BindingReleased
from wharfinger.events.envelope import Event
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.runtime.ledger import Ledger, Submission, wall_clock

pytestmark = pytest.mark.integration

HOUR = 3_600_000_000
SOON = 60_000_000


class Leased(Counter):
    """Something is due 0.2 s after each event that is not a tick. `ended`: how often that came."""

    LEASE_US = 200_000

    def __init__(self) -> None:
        super().__init__()
        self.until: Micros | None = None
        self.ended = 0

    def fold_input(self, state: Counts, event: Event[Value], at: Micros) -> None:
        super().fold_input(state, event, at)
        if not isinstance(event.data, Ticked):
            self.until = at + self.LEASE_US

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        yield from super().decide(state, at)
        if self.until is not None and at >= self.until:
            self.until, self.ended = None, self.ended + 1

    def next_due(self, state: Counts) -> Micros | None:
        return self.until


class Glance:
    """A clock that is an hour ahead for as long as it is `wrong`."""

    wrong = True

    def __call__(self) -> Micros:
        return wall_clock() + (HOUR if self.wrong else 0)


async def test_what_is_due_happens_though_the_head_lies_an_hour_ahead(ledger: Ledger) -> None:
    clock, decider, acks = Glance(), Leased(), Acks()
    async with loop_running(a_loop(ledger, decider, clock), 0) as loop:
        await loop.offer(messages([1], acks))
        await until(lambda: len(acks.done) == 1)
        clock.wrong = False
        assert loop.heads()["fleet/0"].at > wall_clock() + HOUR - SOON
        await until(lambda: decider.ended == 1)
        await loop.offer(messages([2], acks, first=1))
        await until(lambda: decider.ended == 2)


async def test_a_round_far_ahead_of_the_databases_clock_is_refused_and_decided_again(
    ledger: Ledger,
) -> None:
    await ledger.read_clock()  # from here on the ledger holds writers against it
    acks = Acks()

    class Once(Glance):
        """Right once it was asked a few times."""

        asked = 0

        def __call__(self) -> Micros:
            self.asked += 1
            self.wrong = self.asked < 20
            return super().__call__()

    async with loop_running(a_loop(ledger, Counter(), Once()), 0) as loop:
        await loop.offer(messages(range(5), acks))
        await until(lambda: len(acks.done) == 5)
        head = loop.heads()["fleet/0"]
        assert abs(head.at - wall_clock()) < SOON
        assert head.epoch > 1  # it was taken over from itself
        assert loop.fatal == ""
    rounds = [r async for r in ledger.recorded_rounds("fleet/0")]
    assert [
        d.data.binding
        for r in rounds
        for d in r.round.decisions
        if isinstance(d.data, BindingReleased)
    ] == [f"binding-{n}" for n in range(5)]


async def test_what_is_accepted_is_stamped_by_the_database(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time_ns
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: right() + HOUR * 1000)
        await ledger.accept([Submission(withdrawn(1), "wharfinger.bindings", "a", "a")])
    (intake,) = await ledger.heads("intake")
    assert abs(intake.at - right() // 1000) < SOON
