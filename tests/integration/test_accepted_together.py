"""What is accepted together is decided together, however its records arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from random import Random
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.apps import a_context, running, standing_on, until
from tests.counter import Counter, Counts, withdrawn
from tests.loops import TOPIC, Acks, a_loop, a_stage, assert_each_once, loop_running, messages

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.events.streams import BINDINGS, CLUSTERS, FOLLOWED, TOGETHER, Together, together_of
from wharfinger.kernel.round import Round
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger, Submission
from wharfinger.runtime.messages import Message
from wharfinger_publisher.app import PublisherService

pytestmark = pytest.mark.integration


def together(accepted: Sequence[Message]) -> list[Message]:
    """As the publisher marks them: each but the last is followed."""
    return [*[replace(message, followed=True) for message in accepted[:-1]], accepted[-1]]


async def rounds_of(ledger: Ledger, stream: str, ids: Collection[UUID]) -> list[int]:
    """In which rounds of the stream these events are inputs."""
    return [
        recorded.round.number
        async for recorded in ledger.recorded_rounds(stream)
        if {ref.id for ref in recorded.round.inputs} & set(ids)
    ]


@pytest.mark.parametrize("take_max", [1, 7, 500])
@pytest.mark.parametrize("seed", range(4))
async def test_an_acceptance_is_one_round_however_its_messages_are_cut(
    ledger: Ledger, seed: int, take_max: int
) -> None:
    """Several acceptances on two places, cut into any batches, with pauses, some of it twice."""
    random = Random(f"{seed} {take_max}")
    acceptances: list[tuple[int, list[Message]]] = []
    number, offsets, acks = 0, [0, 0], Acks()
    for _ in range(12):
        partition, size = random.randrange(2), random.choice((1, 2, 5, 40))
        acceptances.append(
            (
                partition,
                together(
                    messages(
                        range(number, number + size),
                        acks,
                        partition=partition,
                        first=offsets[partition],
                    )
                ),
            )
        )
        number, offsets[partition] = number + size, offsets[partition] + size
    arriving = [message for _, accepted in acceptances for message in accepted]
    async with loop_running(a_loop(ledger, take_max=take_max), 0, 1) as loop:
        at = 0
        while at < len(arriving):
            cut = random.choice((1, 1, 3, 30))
            await loop.offer(arriving[at : at + cut])
            at += cut if random.random() < 0.9 else 0  # some of it is read again
            await asyncio.sleep(random.choice((0, 0, 0.001, 0.01)))
        await until(lambda: len(set(acks.done)) == number)
    for partition, accepted in acceptances:
        ids = {message.event.id for message in accepted}
        assert len(await rounds_of(ledger, f"fleet/{partition}", ids)) == 1
    await assert_each_once(ledger, range(number))


async def test_the_rest_of_an_acceptance_that_never_comes_is_waited_for_a_second(
    ledger: Ledger,
) -> None:
    """The broker may refuse a record: nothing waits for it without end, and what comes late is
    decided as well."""
    acks = Acks()
    first, second, late = together(messages(range(3), acks))
    async with loop_running(a_loop(ledger), 0) as loop:
        await loop.offer([first, second])
        await until(lambda: len(acks.done) == 2)
        await loop.offer([late])
        await until(lambda: len(acks.done) == 3)
    await assert_each_once(ledger, range(3))
    assert len(await rounds_of(ledger, "fleet/0", {first.event.id, second.event.id})) == 1


def over_places(*accepted: Sequence[Message]) -> list[list[Message]]:
    """As the publisher marks one acceptance that has records at several places."""
    places = Together(f"{accepted[0][0].event.id}", tuple(one[0].place for one in accepted))
    return [[*one[:-1], replace(one[-1], together=places)] for one in map(together, accepted)]


@pytest.mark.parametrize("take_max", [1, 3, 500])
@pytest.mark.parametrize("seed", range(4))
async def test_an_acceptance_over_several_topics_is_one_round(
    ledger: Ledger, seed: int, take_max: int
) -> None:
    """One topic is read by all, of the other each group reads one partition. Records of each place
    come in their order, of several places in any, cut into any batches, some of it twice. What
    goes to the partition of another group is waited for by that group alone."""
    random = Random(f"places {seed} {take_max}")
    acks, number, offsets = Acks(), 0, {"own": 0, "other": 0, "all": 0}
    acceptances: list[dict[str, list[Message]]] = []
    for _ in range(8):
        made = {}
        for place in random.sample(["own", "other", "all"], random.choice((2, 3))):
            size = random.choice((1, 2, 9))
            found = messages(
                range(number, number + size),
                acks,
                partition=int(place == "other"),
                first=offsets[place],
            )
            topic = CLUSTERS.name if place == "all" else TOPIC
            made[place] = [replace(message, topic=topic, ack=None) for message in found]
            number, offsets[place] = number + size, offsets[place] + size
        acceptances.append(dict(zip(made, over_places(*made.values()), strict=True)))
    async with loop_running(a_loop(ledger, take_max=take_max), 0, 1) as loop:
        for acceptance in acceptances:
            rest = {place: list(found) for place, found in acceptance.items()}
            while rest:
                place = random.choice(list(rest))
                count = random.choice((1, 2, 9))
                await loop.offer(rest[place][:count])
                if random.random() < 0.9:  # some of it is read again
                    del rest[place][:count]
                if not rest[place]:
                    del rest[place]
                await asyncio.sleep(random.choice((0, 0, 0.001, 0.01)))
        for group, places in ((0, ("own", "all")), (1, ("other", "all"))):
            stream = f"fleet/{group}"
            for acceptance in acceptances:
                ids = {m.event.id for place in places for m in acceptance.get(place, ())}

                async def decided(stream: str = stream, ids: set[UUID] = ids) -> bool:
                    return (await ledger.known({stream: ids}))[stream] == ids

                await until(decided)
                assert len(await rounds_of(ledger, stream, ids)) <= 1


async def test_a_place_whose_record_never_comes_is_waited_for_a_second(ledger: Ledger) -> None:
    acks = Acks()
    lone = messages(range(1), acks)
    never = [replace(message, topic=CLUSTERS.name) for message in messages(range(1, 2))]
    (marked, _) = over_places(lone, never)
    async with loop_running(a_loop(ledger), 0) as loop:
        await loop.offer(marked)
        await until(lambda: len(acks.done) == 1)
    await assert_each_once(ledger, range(1))


async def test_what_is_due_does_not_wait_for_the_rest_of_an_acceptance(ledger: Ledger) -> None:
    """A group that waits holds back no other group."""
    acks = Acks()
    begun = [replace(message, followed=True) for message in messages(range(1), acks)]
    async with loop_running(a_loop(ledger), 0, 1) as loop:
        await loop.offer(begun)
        await loop.offer(messages(range(1, 2), acks, partition=1))
        await until(lambda: (1, 0) in acks.done)
        await until(lambda: (0, 0) in acks.done)
    assert acks.done == [(1, 0), (0, 0)]


class WithPeers(Counter):
    """Its streams are stepped one a turn, as those of the fleet."""

    has_peers = True

    def peer_events(self, state: Counts, round_: Round) -> Sequence[Event[Value]]:
        return ()


async def test_streams_with_peers_wait_for_a_second_too(ledger: Ledger) -> None:
    acks = Acks()
    begun = [replace(message, followed=True) for message in messages(range(1), acks)]
    async with loop_running(a_loop(ledger, WithPeers()), 0, 1) as loop:
        await loop.offer(begun)
        await until(lambda: acks.done == [(0, 0)])
    await assert_each_once(ledger, range(1))


async def test_more_than_one_turn_takes_is_not_waited_for(ledger: Ledger) -> None:
    """An acceptance without end on a full mailbox: its messages are decided, and readers go on."""
    acks = Acks()
    endless = [replace(message, followed=True) for message in messages(range(60), acks)]
    async with loop_running(a_loop(ledger, take_max=10, mailbox_max=20), 0) as loop:
        for start in range(0, 60, 20):
            await loop.offer(endless[start : start + 20])
        await until(lambda: len(acks.done) == 60)
    await assert_each_once(ledger, range(60))


async def test_what_one_command_hands_in_is_one_round_of_a_stage(
    backend: Backend, ledger: Ledger, topic_prefix: str
) -> None:
    """The whole way: accepted, published, read, decided. Each of these withdrawals is followed by a
    null record, which is no event."""
    context = await a_context(backend, ledger, topic_prefix)
    sizes = (1, 2, 150, 400, 3)
    async with running(a_stage(context), PublisherService(context)):
        begin = 0
        for size in sizes:
            events = [withdrawn(n, f"binding-{n}") for n in range(begin, begin + size)]
            await ledger.accept(
                [Submission(e, BINDINGS.name, e.subject, e.subject) for e in events]
            )
            begin += size
            ids = {event.id for event in events}

            async def decided(ids: set[UUID] = ids) -> bool:
                return (await ledger.known({"fleet/0": ids}))["fleet/0"] == ids

            await until(decided)
            assert len(await rounds_of(ledger, "fleet/0", ids)) == 1
    marked = [
        any(name == FOLLOWED for name, _ in record.headers)
        for record in await standing_on(context, BINDINGS)
        if record.value is not None
    ]
    assert len(marked) == sum(sizes)
    assert marked.count(False) == len(sizes)


async def test_the_last_record_at_each_place_names_all_places_of_a_command(
    backend: Backend, ledger: Ledger, topic_prefix: str
) -> None:
    """The whole way: a stage that reads both topics takes them in."""
    context = await a_context(backend, ledger, topic_prefix)
    rounds = 12
    async with running(a_stage(context), PublisherService(context)):
        for number in range(rounds):
            events = [withdrawn(2 * number + n, f"binding-{number}-{n}") for n in range(2)]
            ids = {events[0].id}
            topics = (BINDINGS, CLUSTERS)
            await ledger.accept(
                [
                    Submission(event, topic.name, event.subject, event.subject)
                    for event, topic in zip(events, topics, strict=True)
                ]
            )

            async def decided(ids: set[UUID] = ids) -> bool:
                return (await ledger.known({"fleet/0": ids}))["fleet/0"] == ids

            await until(decided)
    marks = [
        [together_of(content) for name, content in record.headers if name == TOGETHER]
        for topic in (BINDINGS, CLUSTERS)
        for record in await standing_on(context, topic)
        if record.value is not None
    ]
    assert len(marks) == 2 * rounds
    for (mark,) in marks:
        assert mark is not None
        assert {place.rpartition("/")[0] for place in mark.places} == {BINDINGS.name, CLUSTERS.name}
