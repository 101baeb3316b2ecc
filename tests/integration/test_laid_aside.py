"""An event that a decider fails on: it is laid aside for people, and everything else is decided as
if it had never come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.apps import until
from tests.counter import Counter, Counts, withdrawn
from tests.loops import TOPIC, Acks, a_loop, assert_each_once, loop_running, messages

from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.envelope import Event
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.messages import Message

pytestmark = pytest.mark.integration


class Choking(Counter):
    """Cannot take in what is called `bone`, and cannot decide while something called `glue`
    waits."""

    def fold_input(self, state: Counts, event: Event[Value], at: Micros) -> None:
        super().fold_input(state, event, at)
        if isinstance(event.data, BindingWithdrawn) and event.data.name == "bone":
            raise KeyError("bone\nin two lines")

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        if "glue" in state.waiting.values():
            raise ZeroDivisionError("glue")
        yield from super().decide(state, at)


class Broken(Counter):
    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        raise RuntimeError("nothing can be decided")
        yield


async def letters(ledger: Ledger) -> list[MessageDeadLettered]:
    return [
        event.data
        async for recorded in ledger.recorded_rounds(INTAKE, 1)
        for event in recorded.events
        if isinstance(event.data, MessageDeadLettered)
    ]


@pytest.mark.parametrize("name", ["bone", "glue"])
async def test_one_bad_event_among_many_is_laid_aside_and_the_others_are_decided(
    ledger: Ledger, name: str
) -> None:
    acks = Acks()
    sent = messages(range(12), acks)
    sent[5] = Message(TOPIC, 0, 5, withdrawn(5, name), acks.of(0, 5))
    async with loop_running(a_loop(ledger, Choking()), 0) as loop:
        await loop.offer(sent)
        await until(lambda: len(acks.done) == 12)
        assert loop.ready()
    assert sorted(offset for _, offset in acks.done) == list(range(12))
    await assert_each_once(ledger, [n for n in range(12) if n != 5])
    (letter,) = await letters(ledger)
    assert (letter.topic, letter.partition, letter.offset) == (TOPIC, 0, 5)
    assert letter.reason.startswith("fleet/0 cannot take it in: ")
    assert "\n" not in letter.reason


async def test_several_bad_events_are_each_laid_aside(ledger: Ledger) -> None:
    acks = Acks()
    sent = messages(range(9), acks)
    for place in (0, 3, 8):
        sent[place] = Message(TOPIC, 0, place, withdrawn(place, "bone"), acks.of(0, place))
    async with loop_running(a_loop(ledger, Choking()), 0) as loop:
        await loop.offer(sent)
        await until(lambda: len(acks.done) == 9)
    await assert_each_once(ledger, [1, 2, 4, 5, 6, 7])
    assert sorted(letter.offset for letter in await letters(ledger)) == [0, 3, 8]


async def test_other_groups_go_on(ledger: Ledger) -> None:
    acks = Acks()
    bad = Message(TOPIC, 0, 0, withdrawn(100, "bone"), acks.of(0, 0))
    async with loop_running(a_loop(ledger, Choking()), 0, 1) as loop:
        await loop.offer([bad, *messages(range(5), acks, partition=1)])
        await until(lambda: len(acks.done) == 6)
        await loop.offer(messages(range(5, 10), acks, partition=1, first=5))
        await until(lambda: len(acks.done) == 11)
    await assert_each_once(ledger, range(10))
    assert len(await letters(ledger)) == 1


async def test_what_was_laid_aside_is_the_same_letter_when_it_comes_again(ledger: Ledger) -> None:
    for _ in range(2):  # a restart that had not committed the offset reads it again
        acks = Acks()
        async with loop_running(a_loop(ledger, Choking()), 0) as loop:
            await loop.offer([Message(TOPIC, 0, 0, withdrawn(0, "bone"), acks.of(0, 0))])
            await until(lambda acks=acks: len(acks.done) == 1)
    assert len(await letters(ledger)) == 1


async def test_a_stream_that_fails_without_any_event_is_no_events_fault(ledger: Ledger) -> None:
    acks = Acks()
    async with loop_running(a_loop(ledger, Broken()), 0) as loop:
        await loop.offer(messages(range(3), acks))
        await until(lambda: bool(loop.fatal))
        assert loop.fatal == "RuntimeError: nothing can be decided"
    assert acks.done == []
    assert await letters(ledger) == []
