"""Observers against a real broker: they begin again, and say nothing that was not counted from the
whole."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.apps import a_context, running, send, standing_on, until
from tests.counter import withdrawn
from tests.patience import PATIENCE_S

from wharfinger.answers.submit import submission
from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.codec import decode
from wharfinger.events.decisions import as_decision
from wharfinger.events.envelope import Event
from wharfinger.events.streams import ASSIGNMENTS, BINDINGS, CAPACITY, CLUSTER_STATE, Together
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.observer import Failures, Publication
from wharfinger.runtime import observer_loop
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.broadcast import ends_of
from wharfinger.runtime.ledger import DecisionQuery, Ledger
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.runtime.observer_service import ObserverService, Observing
from wharfinger.runtime.service import ServiceContext
from wharfinger_annotator import app as annotator
from wharfinger_cli.dead_letters import letters_of
from wharfinger_cli.generate import FleetPlan, generate
from wharfinger_descheduler import app as descheduler
from wharfinger_estimator import app as estimator
from wharfinger_publisher.app import PublisherService
from wharfinger_scheduler.app import cluster_stage, fleet_stage

pytestmark = pytest.mark.integration


@dataclass
class Tally:
    seen: set[str] = field(default_factory=set)
    told: int = -1


class Teller:
    """Publishes how many different events it has folded, as the capacity of a cluster of that
    name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures = Failures()
        self.loads_s = 0.0
        """The processor time of its next publication, which loads what later ones find loaded."""

    def initial(self) -> Tally:
        return Tally()

    def fold(self, state: Tally, event: Event[Value], at: Micros) -> None:
        if isinstance(event.data, BindingWithdrawn):
            state.seen.add(str(event.id))

    def publish(self, state: Tally, at: Micros) -> list[Publication]:
        if state.told == len(state.seen):
            return []
        state.told = len(state.seen)
        until_s, self.loads_s = time.thread_time() + self.loads_s, 0.0
        while time.thread_time() < until_s:
            pass
        data = CapacityEstimated(self.name, state.told, {}, {})
        return [Publication(data, self.name, self.name, self.name)]

    def next_due(self, state: Tally) -> Micros | None:
        return None


def a_teller(
    context: ServiceContext,
    teller: Teller | str,
    loaded: Iterable[Loaded] = (),
    can_wait: Callable[[Tally], bool] = lambda _: False,
) -> ObserverService[Tally]:
    async def load(groups: frozenset[int]) -> Iterable[Loaded]:
        await asyncio.sleep(0.2)  # as the ledger may take its time
        return loaded

    observer = Teller(teller) if isinstance(teller, str) else teller
    observing = Observing(
        "tests-teller", observer, (CLUSTER_STATE, ASSIGNMENTS), (BINDINGS,), load, can_wait=can_wait
    )
    return ObserverService(observing, context)


@pytest_asyncio.fixture
async def context(
    backend: Backend, database_url: str, topic_prefix: str
) -> AsyncIterator[ServiceContext]:
    ledger = await Ledger.open(database_url, "tests-observer")
    yield await a_context(backend, ledger, topic_prefix)
    await ledger.close()


async def facts(context: ServiceContext, first: int, count: int) -> None:
    """Half on a topic that members share, half on one that each reads whole."""
    events = [withdrawn(n, f"k{n}") for n in range(first, first + count)]
    await send(context, CLUSTER_STATE, [(e.subject, e.body) for e in events[::2]])
    await send(context, BINDINGS, [(e.subject, e.body) for e in events[1::2]])


async def told(context: ServiceContext, name: str) -> list[int]:
    events = [decode(r.value).data for r in await standing_on(context, CAPACITY) if r.value]
    return [
        data.nodes
        for data in events
        if isinstance(data, CapacityEstimated) and data.cluster == name
    ]


@pytest.mark.parametrize("counts", [(0,), (1,), (700,), (700, 1), (1, 700), (3, 300, 2, 500)])
async def test_the_end_lies_behind_the_last_record_of_the_last_batch(
    context: ServiceContext, counts: tuple[int, ...]
) -> None:
    for number, count in enumerate(counts):
        await send(
            context, CLUSTER_STATE, [("k", withdrawn(1000 * number + n).body) for n in range(count)]
        )
    place = TopicPartition(context.wire(CLUSTER_STATE.name), context.cluster_partition("k"))
    async with AIOKafkaConsumer(
        **context.backend.client_options(), auto_offset_reset="earliest"
    ) as consumer:
        others = [TopicPartition(place.topic, p) for p in range(4)]
        consumer.assign(others)
        ends = await ends_of(consumer, others)
    assert ends == {tp: sum(counts) if tp == place else 0 for tp in others}


async def test_what_was_accepted_together_is_told_together(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the rest of it takes, while it is waited for."""
    monkeypatch.setattr(observer_loop, "REST_S", PATIENCE_S)
    service = a_teller(context, "oslo")
    place = CLUSTER_STATE.name, context.cluster_partition("k")
    mark = Together("one", (f"{place[0]}/{place[1]}", f"{BINDINGS.name}/0"))

    async def told_are(*counts: int) -> bool:
        return await told(context, "oslo") == list(counts)

    async with running(service):
        await until(lambda: told_are(0))
        first = [
            Message(*place, 0, withdrawn(0), followed=True),
            Message(*place, 1, withdrawn(1), together=mark),
        ]
        for message in first:
            await service.loop.offer([message])
            await asyncio.sleep(0.2)  # several times what is coalesced
        await service.loop.offer([Message(BINDINGS.name, 0, 0, withdrawn(2), together=mark)])
        await until(lambda: told_are(0, 3))


async def test_what_can_wait_is_told_with_what_follows(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer_loop, "GATHER_S", PATIENCE_S)
    service = a_teller(context, "oslo", can_wait=lambda tally: len(tally.seen) == 1)
    async with running(service):
        await until(lambda: _tells(context, "oslo", 0))
        await facts(context, 0, 1)
        await asyncio.sleep(0.2)  # several times what is coalesced
        await facts(context, 1, 1)
        await until(lambda: _tells(context, "oslo", 2))
        assert await told(context, "oslo") == [0, 2]


async def test_what_was_accepted_together_is_told_together_after_what_can_wait(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer_loop, "REST_S", PATIENCE_S)
    monkeypatch.setattr(observer_loop, "GATHER_S", PATIENCE_S)
    service = a_teller(context, "oslo", can_wait=lambda tally: len(tally.seen) == 1)
    place = CLUSTER_STATE.name, context.cluster_partition("k")
    mark = Together("one", (f"{place[0]}/{place[1]}", f"{BINDINGS.name}/0"))
    async with running(service):
        await until(lambda: _tells(context, "oslo", 0))
        for message in (
            Message(*place, 0, withdrawn(0)),
            Message(*place, 1, withdrawn(1), together=mark),
        ):
            await service.loop.offer([message])
            await asyncio.sleep(0.2)  # several times what is coalesced
        await service.loop.offer([Message(BINDINGS.name, 0, 0, withdrawn(2), together=mark)])
        await until(lambda: _tells(context, "oslo", 3))
        assert await told(context, "oslo") == [0, 3]


async def test_what_can_wait_is_told_though_nothing_follows(context: ServiceContext) -> None:
    service = a_teller(context, "oslo", can_wait=lambda tally: len(tally.seen) > 0)
    async with running(service):
        await until(lambda: _tells(context, "oslo", 0))
        await facts(context, 0, 1)
        await until(lambda: _tells(context, "oslo", 1))


async def test_more_that_comes_all_the_time_holds_up_nothing(context: ServiceContext) -> None:
    """A wait for what is there already is over before its limit is looked at."""
    loop = a_teller(context, "oslo").loop
    now_s = asyncio.get_running_loop().time()
    loop.nudge()
    assert await loop._work_by(now_s + PATIENCE_S)
    loop.nudge()
    assert not await loop._work_by(now_s - 1.0)


async def test_the_next_is_told_soon_after_a_publication_that_had_to_load(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publications wait for a multiple of what the last one cost; the first one costs much."""
    monkeypatch.setattr(observer_loop, "REST_TIMES", 100 * PATIENCE_S)
    teller = Teller("oslo")
    teller.loads_s = 0.1
    service = a_teller(context, teller)
    async with running(service):
        await until(lambda: _tells(context, "oslo", 0))
        await facts(context, 0, 1)
        await until(lambda: _tells(context, "oslo", 1))


async def test_nothing_is_told_before_everything_is_read(context: ServiceContext) -> None:
    await facts(context, 0, 6000)
    loaded = [(withdrawn(n), 1) for n in range(9000, 9010)]
    service = a_teller(context, "oslo", loaded)
    async with running(service):
        await until(lambda: _tells(context, "oslo", 6010))
        await facts(context, 6000, 2)
        await until(lambda: _tells(context, "oslo", 6012))
    assert (await told(context, "oslo"))[0] == 6010


async def test_an_event_that_an_observer_cannot_take_in_is_a_dead_letter(
    context: ServiceContext,
) -> None:
    """Before, it ended the process, at every start."""
    service = a_teller(context, "oslo")
    fold = Teller.fold

    def failing(state: Tally, event: Event[Value], at: Micros) -> None:
        if event.id == withdrawn(7, "k7").id:
            raise ZeroDivisionError("no node")
        fold(service.loop.observer, state, event, at)  # type: ignore[arg-type]

    service.loop.observer.fold = failing  # type: ignore[method-assign]
    await facts(context, 0, 20)
    async with running(service):
        await until(lambda: _tells(context, "oslo", 19))
        await until(lambda: letters_of(context.ledger))
        (letter,) = await letters_of(context.ledger)
        assert service.failed() == ""
    assert "ZeroDivisionError: no node" in letter.data.reason
    assert base64.b64decode(letter.data.payload) == withdrawn(7, "k7").body


async def test_a_restarted_observer_reads_everything_again(context: ServiceContext) -> None:
    await facts(context, 0, 500)
    for name in ("oslo", "bergen"):
        async with running(a_teller(context, name)):
            await until(lambda name=name: _tells(context, name, 500))
        assert await told(context, name) == [500]


async def test_members_that_come_and_go_never_tell_less_than_their_share(
    context: ServiceContext,
) -> None:
    """After every change each counts its share from the beginning: what it tells first is the whole
    of it."""
    await facts(context, 0, 2000)
    broadcast = 1000
    first, second = a_teller(context, "oslo"), a_teller(context, "bergen")
    async with running(first):
        await until(lambda: _tells(context, "oslo", 2000))
        async with running(second):
            await until(
                lambda: (
                    len(first.groups()) == len(second.groups()) == 2
                    and first.ready()
                    and second.ready()
                )
            )
            await until(lambda: _told_something(context, "bergen"))
            shares = [len(m.loop.state.seen) for m in (first, second)]
            assert sum(shares) - 2 * broadcast == 1000
            await until(lambda: _tells(context, "oslo", shares[0]))
            assert set(await told(context, "bergen")) == {shares[1]}
        await until(lambda: len(first.groups()) == 4 and first.ready())
        await until(lambda: _tells(context, "oslo", 2000))
    assert set(await told(context, "oslo")) == {2000, shares[0]}


async def test_a_reader_of_before_a_rebalance_does_not_speak_for_the_one_after_it(
    context: ServiceContext,
) -> None:
    """It has facts to offer and comes to its end after the partitions have come again."""
    events = [withdrawn(n, f"k{n}") for n in range(3000)]
    await send(context, BINDINGS, [(e.subject, e.body) for e in events])
    service = a_teller(context, "oslo")
    async with running(service):
        await until(lambda: _tells(context, "oslo", 3000))
        former = service._broadcast
        await service._assigned(frozenset((context.wire(CLUSTER_STATE.name), n) for n in range(4)))
        await former._offer([Message(BINDINGS.name, 0, 7000, withdrawn(7000), None)])
        former._caught_up()
        await until(service.ready)
        await facts(context, 3000, 2)
        await until(lambda: _tells(context, "oslo", 3002))
    assert [count for count in await told(context, "oslo") if count < 3000] == []


async def _tells(context: ServiceContext, name: str, count: int) -> bool:
    return (await told(context, name))[-1:] == [count]


async def _told_something(context: ServiceContext, name: str) -> bool:
    return bool(await told(context, name))


# --- the estimator -------------------------------------------------------------------------------


async def test_a_restarted_estimator_counts_as_before(context: ServiceContext) -> None:
    ledger = context.ledger
    bindings = 150
    fleet = [
        submission(f, None)
        for f in generate(FleetPlan(clusters=4, nodes=40, bindings=bindings, seed=11))
    ]
    stages = [fleet_stage(context), cluster_stage(context), PublisherService(context)]
    observers = [descheduler.build(context), annotator.build(context)]
    before, again = estimator.build(context), estimator.build(context)
    async with running(before):
        async with running(*stages, *observers):
            await ledger.accept(fleet)
            await until(lambda: _at_rest(ledger, bindings))
        # Nothing is decided or published any more: a busy machine may have gone on.
        await until(lambda: _all_is_counted(context))
        counted = await _latest(context)
    already = len(await standing_on(context, CAPACITY))
    async with running(again):
        await until(lambda: _more_capacity(context, already, 4))
        await until(lambda: _all_is_counted(context))
        recounted = await _latest(context)
    assert len(counted) == 4
    assert {name: c.free for name, c in recounted.items()} == {
        name: c.free for name, c in counted.items()
    }
    assert {name: c.devices for name, c in recounted.items()} == {
        name: c.devices for name, c in counted.items()
    }
    assert {name: c.nodes for name, c in recounted.items()} == {
        name: c.nodes for name, c in counted.items()
    }
    assert {name: c.classes for name, c in recounted.items()} == {
        name: c.classes for name, c in counted.items()
    }


async def _latest(context: ServiceContext) -> dict[str, CapacityEstimated]:
    events = [decode(r.value).data for r in await standing_on(context, CAPACITY) if r.value]
    return {data.cluster: data for data in events if isinstance(data, CapacityEstimated)}


async def _all_is_counted(context: ServiceContext) -> bool:
    """The newest estimate of each cluster takes all assignments into account that were sent."""
    through: dict[tuple[str, str], int] = {}
    for record in await standing_on(context, ASSIGNMENTS):
        data = decode(record.value).data if record.value else None
        if isinstance(data, AssignmentsDecided):
            key = data.cluster, data.stream
            through[key] = max(data.through, through.get(key, 0))
    newest = await _latest(context)
    return all(
        cluster in newest and newest[cluster].accounted_through.get(stream, 0) >= seq
        for (cluster, stream), seq in through.items()
    )


async def _more_capacity(context: ServiceContext, already: int, more: int) -> bool:
    return len(await standing_on(context, CAPACITY)) >= already + more


async def _at_rest(ledger: Ledger, bindings: int) -> bool:
    """Every binding has a fleet decision, every cluster has answered for every binding that it was
    given, and nothing has moved for a second."""
    before = await ledger.heads()
    subjects: set[str] = set()
    given: set[tuple[str, str]] = set()
    answered: set[tuple[str, str]] = set()
    async for row in ledger.decisions(DecisionQuery()):
        if row.stream.startswith("fleet/"):
            subjects.add(row.subject)
            items = as_decision(row.data()).assignment_items(row.seq, "")
            given |= {(cluster, row.subject) for cluster, _ in items}
        elif row.stream.startswith("cluster/"):
            answered.add((row.stream.removeprefix("cluster/"), row.subject))
    await asyncio.sleep(1.5)
    return len(subjects) >= bindings and given <= answered and await ledger.heads() == before
