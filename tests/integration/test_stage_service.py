"""Two stage services of one consumer group: partitions move, every message is decided once, every
stream has one writer."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from tests.apps import a_context, running, send, until
from tests.backends import fresh_database
from tests.counter import Counter, Counts, withdrawn
from tests.loops import ByPartition, a_stage, causes

from wharfinger.events.decisions import BindingReleased
from wharfinger.events.parts import divided, least_limit
from wharfinger.events.streams import BINDINGS, CLUSTERS, INTAKE
from wharfinger.kernel.round import Basis, Round
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.dead_letters import Letter
from wharfinger.runtime.faust_app import COMMIT_INTERVAL_S
from wharfinger.runtime.ledger import DecisionQuery, Ledger, Transient, audit_verify
from wharfinger.runtime.ledger.writer import CommitResult
from wharfinger.runtime.letter_box import Ack
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.stage_service import Stage, StageService
from wharfinger.runtime.topics import partition_for

pytestmark = pytest.mark.integration

SHARDS = 4


@pytest_asyncio.fixture
async def contexts(
    backend: Backend, database_url: str, topic_prefix: str
) -> AsyncIterator[list[ServiceContext]]:
    """One of each service's own, as if each were a process."""
    ledgers = [await Ledger.open(database_url, f"tests-{n}") for n in range(3)]
    yield [
        await a_context(backend, ledger, topic_prefix, fleet_shards=SHARDS) for ledger in ledgers
    ]
    for ledger in ledgers:
        await ledger.close()


class Feed:
    """A wave of messages every few milliseconds, over all partitions."""

    def __init__(self, context: ServiceContext) -> None:
        self.sent = 0
        self._context = context
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        while not self._stopping.is_set():
            wave = [withdrawn(self.sent + n, f"binding-{(self.sent + n) % 40}") for n in range(20)]
            await send(self._context, BINDINGS, [(e.subject, e.body) for e in wave])
            self.sent += len(wave)
            await asyncio.sleep(0.03)

    def stop(self) -> None:
        self._stopping.set()


async def test_partitions_move_and_every_message_is_decided_once(
    contexts: list[ServiceContext],
) -> None:
    first, second, third = (a_stage(context) for context in contexts)
    ledger = contexts[0].ledger
    feed = Feed(contexts[0])
    async with running(first):
        assert first.loop.owned() == [0, 1, 2, 3]
        feeding = asyncio.create_task(feed.run())
        try:
            for joining in (second, third):
                await joining.start()
            members = (first, second, third)

            def shared() -> bool:
                owned = [group for m in members for group in m.loop.owned()]
                return sorted(owned) == [0, 1, 2, 3] and all(
                    m.ready() and len(m.loop.owned()) <= 2 for m in members
                )

            await until(shared)
            await asyncio.sleep(1)
            await second.stop()
            await until(lambda: sorted(first.loop.owned() + third.loop.owned()) == [0, 1, 2, 3])
            await asyncio.sleep(0.5)
            await third.stop()
            await until(lambda: first.loop.owned() == [0, 1, 2, 3] and first.ready())
        finally:
            feed.stop()
            await feeding
            await asyncio.gather(second.stop(), third.stop())

        async def all_decided() -> bool:
            assert first.failed() == ""
            return len(set(await causes(ledger))) == feed.sent

        await until(all_decided)
    decided = await causes(ledger)
    assert len(decided) == len(set(decided)) == feed.sent > 500
    assert (await audit_verify(ledger)).ok
    assert max(h.epoch for h in await ledger.heads("fleet/")) >= 3  # they did move


async def test_facts_keep_their_order_through_rebalances(contexts: list[ServiceContext]) -> None:
    """What each process reads whole goes on coming while partitions move, and the reader of before
    is slow to stop."""
    everyone = ByPartition()
    first = slow_to_stop(contexts[0], everyone)
    ledger, sent = contexts[0].ledger, itertools.count()
    stopping = asyncio.Event()

    async def feed() -> None:
        while not stopping.is_set():
            wave = [withdrawn(next(sent), "k") for _ in range(10)]
            await send(contexts[0], CLUSTERS, [("k", event.body) for event in wave])
            await asyncio.sleep(0.05)

    async with running(first):
        feeding = asyncio.create_task(feed())
        try:
            for _ in range(2):
                async with running(second := slow_to_stop(contexts[1], everyone)):
                    await until(lambda other=second: len(other.loop.owned()) == 2)
                await until(lambda: len(first.loop.owned()) == SHARDS and first.ready())
        finally:
            stopping.set()
            await feeding
        total = next(sent)

        async def all_decided() -> bool:
            assert first.failed() == ""
            return len(await causes(ledger)) == SHARDS * total

        await until(all_decided)
    wanted = [str(withdrawn(n).id) for n in range(total)]
    for shard in range(SHARDS):
        rows = ledger.decisions(DecisionQuery(stream=f"fleet/{shard}"))
        taken = [str(row.cause) async for row in rows if isinstance(row.data(), BindingReleased)]
        assert taken == wanted, f"fleet/{shard} has taken facts out of their order"


def slow_to_stop(context: ServiceContext, routing: ByPartition) -> StageService[Counts]:
    """A service whose broadcast reader goes on for a while when it is to stop."""
    stage = Stage("tests-stage", Counter(), routing, (BINDINGS,), (CLUSTERS,))
    service = StageService(stage, context)
    stop = service._broadcast.stop

    async def slowly() -> None:
        await asyncio.sleep(0.3)
        await stop()

    service._broadcast.stop = slowly  # type: ignore[method-assign]
    return service


async def test_half_of_an_event_holds_nothing_back_where_another_process_has_joined_it(
    contexts: list[ServiceContext],
) -> None:
    """One process has read half of it, the partition moves, the other process reads the rest and
    decides it, and the partition comes back."""
    first, second = (a_stage(context) for context in contexts[:2])
    ledger = contexts[0].ledger
    names = [_name_in(partition) for partition in range(SHARDS)]
    large = [_large(withdrawn(n, name).body) for n, name in enumerate(names)]
    parts = [divided(body, least_limit(body)) for body in large]
    assert all(len(each) > 2 for each in parts)
    async with running(first):
        await _send_all(contexts[0], names, [each[:-1] for each in parts])
        await until(lambda: all(first._next.get(place, 0) > 1 for place in _places(contexts[0])))
        async with running(second):
            await until(
                lambda: len(second.loop.owned()) == 2 and first.ready() and second.ready(),
                seen=lambda: [_state(service) for service in (first, second)],
            )
            await _send_all(contexts[0], names, [each[-1:] for each in parts])
            await until(lambda: _more_than(ledger, SHARDS - 1))
        await until(lambda: len(first.loop.owned()) == SHARDS and first.ready())
        after = [withdrawn(SHARDS + n, name) for n, name in enumerate(names)]
        await _send_all(contexts[0], names, [[event.body] for event in after])
        await until(lambda: _more_than(ledger, 2 * SHARDS - 1))
    assert await causes(ledger) == [*dict.fromkeys(await causes(ledger))]
    bases = await ledger.last_bases("fleet/")
    for partition, each in enumerate(parts):
        life_and_next = bases[f"fleet/{partition}"][f"{BINDINGS.name}/{partition}"]
        assert life_and_next == (1, len(each) + 1)


def _state(service: StageService[Counts]) -> str:
    app = service._app
    return (
        f"owned {service.loop.owned()}, lag {service.lag()}, next {service._next}, "
        f"ends {service._ends}, app {app is not None and app.ready}, loop {service.loop.ready()}"
    )


def _name_in(partition: int) -> str:
    names = (f"binding-{n}" for n in itertools.count())
    return next(name for name in names if partition_for(name, SHARDS) == partition)


def _large(body: bytes) -> bytes:
    """The same event in so many bytes that it takes several records: a name alone is too short."""
    return body[:-1] + b" " * 1500 + body[-1:]


def _places(context: ServiceContext) -> list[tuple[str, int]]:
    return [(context.wire(BINDINGS.name), partition) for partition in range(SHARDS)]


async def _send_all(
    context: ServiceContext, names: Sequence[str], bodies: Sequence[Sequence[bytes]]
) -> None:
    pairs = [(name, body) for name, each in zip(names, bodies, strict=True) for body in each]
    await send(context, BINDINGS, pairs)


async def test_a_stop_in_the_middle_leaves_the_rest_to_the_next(
    contexts: list[ServiceContext],
) -> None:
    """Nothing that was fetched and not decided may count as done."""
    total = 6000
    events = [withdrawn(n, f"binding-{n % 40}") for n in range(total)]
    await send(contexts[0], BINDINGS, [(e.subject, e.body) for e in events])
    ledger = contexts[0].ledger
    for context in contexts[:2]:
        # a fast machine may have come to the end already
        before = min(len(await causes(ledger)), total - 1)
        async with running(a_stage(context)):
            await until(lambda before=before: _more_than(ledger, before))
    async with running(a_stage(contexts[2])):
        await until(lambda: _more_than(ledger, total - 1))
    decided = await causes(ledger)
    assert len(decided) == len(set(decided)) == total
    assert (await audit_verify(ledger)).ok


async def _more_than(ledger: Ledger, count: int) -> bool:
    return len(await causes(ledger)) > count


async def test_what_is_done_with_at_once_takes_nothing_along_that_is_not(
    contexts: list[ServiceContext],
) -> None:
    """A null record and a dead letter behind an event that waits for the database: were their
    offsets committed before the event's, nobody would be given it again."""

    class Stuck(Ledger):
        async def commit(
            self,
            rounds: Sequence[Round],
            events: object,
            group_of: object = None,
            marks: object = None,
        ) -> CommitResult:
            raise Transient("database: away")

    ledger = contexts[0].ledger
    stuck = dataclasses.replace(contexts[0], ledger=Stuck(ledger.database))
    event = withdrawn(1, "k")
    service = a_stage(stuck)
    async with running(service):
        await send(contexts[0], BINDINGS, [("k", event.body), ("k", None), ("k", b"poison")])
        await until(lambda: _letters(ledger))
        await asyncio.sleep(3 * COMMIT_INTERVAL_S)
    assert await causes(ledger) == []
    async with running(a_stage(contexts[1])):
        await until(lambda: _more_than(ledger, 0))
    assert await causes(ledger) == [str(event.id)]


async def test_a_stage_that_has_not_read_what_was_there_is_not_ready(
    contexts: list[ServiceContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill: what waits on the topics when the partitions come is lag, though the mailbox
    is empty."""
    ledger = contexts[0].ledger
    events = [withdrawn(n, "k") for n in range(20)]
    await send(contexts[0], BINDINGS, [("k", b"poison"), *(("k", event.body) for event in events)])
    service = a_stage(contexts[0])
    letters = service._reading._letters
    room, add = asyncio.Event(), letters.add

    async def waiting(letter: Letter, life: int, done: Ack) -> None:
        await room.wait()  # so many dead letters wait that the reader waits for them
        await add(letter, life, done)

    monkeypatch.setattr(letters, "add", waiting)
    await service.start()
    try:
        await until(lambda: service.loop.ready() and service.lag() > 0)
        await asyncio.sleep(0.5)
        assert (service.ready(), service.loop.backlog(), service.lag()) == (False, 0, 21)
        room.set()
        await until(lambda: service.ready() and service.lag() == 0)
        await until(lambda: _more_than(ledger, len(events) - 1))
    finally:
        await service.stop()


async def _letters(ledger: Ledger) -> bool:
    return any(h.seq for h in await ledger.heads(INTAKE))


async def test_a_crashed_app_ends_the_process(contexts: list[ServiceContext]) -> None:
    service = a_stage(contexts[0])
    async with running(service):
        assert service.failed() == ""
        assert service._app is not None
        await service._app.crash(RuntimeError("the consumer's thread died"))
        assert "thread died" in service.failed()


async def test_what_was_acknowledged_and_is_in_no_round_is_read_again(
    contexts: list[ServiceContext], database_server: str, migrated_database: str
) -> None:
    """The group has committed the offsets of records that a restored database knows nothing of."""
    context = contexts[0]
    events = [withdrawn(n, f"binding-{n % 40}") for n in range(60)]
    await send(context, BINDINGS, [(e.subject, e.body) for e in events])
    async with running(a_stage(context)):
        await until(lambda: _more_than(context.ledger, 59))
        await asyncio.sleep(3 * COMMIT_INTERVAL_S)
    with fresh_database(database_server, template=migrated_database) as restored:
        ledger = await Ledger.open(restored, "tests-restored")
        try:
            async with running(a_stage(dataclasses.replace(context, ledger=ledger))):
                await until(lambda: _more_than(ledger, 59))
            assert sorted(await causes(ledger)) == sorted(str(e.id) for e in events)
        finally:
            await ledger.close()


async def test_without_an_answer_from_the_database_everything_is_read_again(
    contexts: list[ServiceContext],
) -> None:
    """The database is away while partitions are assigned: everything is read from the beginning,
    and decided once."""

    class NoAnswer(Ledger):
        async def last_bases(self, prefix: str) -> dict[str, Basis]:
            raise Transient("database: away")

    context, ledger = contexts[0], contexts[0].ledger
    await send(
        context,
        BINDINGS,
        [(e.subject, e.body) for e in (withdrawn(n, f"binding-{n}") for n in range(20))],
    )
    async with running(a_stage(context)):
        await until(lambda: _more_than(ledger, 19))
    async with running(a_stage(dataclasses.replace(contexts[1], ledger=NoAnswer(ledger.database)))):
        await send(
            context,
            BINDINGS,
            [(e.subject, e.body) for e in (withdrawn(n, f"binding-{n}") for n in (20, 21))],
        )
        await until(lambda: _more_than(ledger, 21))
    decided = await causes(ledger)
    assert len(decided) == len(set(decided)) == 22
