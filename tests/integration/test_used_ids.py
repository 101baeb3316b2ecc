"""An id that somebody has sent before, under another source, keeps no event out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from tests.apps import a_context, running, send, until
from tests.counter import Counter, Counts, withdrawn
from tests.loops import Acks, a_loop, loop_running
from tests.poison import binding

from wharfinger.domain.value import Value
from wharfinger.events.codec import decode, made
from wharfinger.events.decisions import LedgerWentBack
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.streams import BINDINGS, INTAKE
from wharfinger.history.deciders import DECIDERS
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.believed_sources import BelievedSources
from wharfinger.runtime.ledger import DecisionQuery, Ledger, WentBack, audit_verify
from wharfinger.runtime.messages import Message
from wharfinger.runtime.replay import replay
from wharfinger.runtime.service import ServiceContext
from wharfinger_publisher.app import PublisherService
from wharfinger_publisher.reaccept import TakingBack
from wharfinger_scheduler.app import fleet_stage

pytestmark = pytest.mark.integration

ID = str(derived_id("the real one"))
REAL = binding("shop/real", id=ID, source="/ci")


def forged(name: str, source: str, id: str = ID) -> bytes:
    return binding(name, id=id, source=source)


@pytest_asyncio.fixture
async def context(
    backend: Backend, database_url: str, topic_prefix: str
) -> AsyncIterator[ServiceContext]:
    ledger = await Ledger.open(database_url, "tests-ids")
    yield await a_context(backend, ledger, topic_prefix)
    await ledger.close()


async def decided(context: ServiceContext) -> list[str]:
    rows = [row async for row in context.ledger.decisions(DecisionQuery(stream="fleet/"))]
    return [row.subject for row in rows]


async def test_an_id_sent_early_by_another_source_does_not_keep_the_event_out(
    context: ServiceContext,
) -> None:
    service = fleet_stage(context)
    async with running(service, PublisherService(context)):
        await send(context, BINDINGS, [("k", forged("shop/early", "/attacker"))])
        await until(lambda: _is_decided(context, "shop/early"))
        await send(context, BINDINGS, [("k", REAL), ("k", REAL)])
        await until(lambda: _is_decided(context, "shop/real"))
        # in one turn with it, and the id that it gets then
        (_, taken) = [e async for e in _inputs(context.ledger)]
        again = [("k", forged("shop/next", "/attacker", str(taken.id))), ("k", REAL)]
        await send(context, BINDINGS, [*again, ("k", binding("shop/last"))])
        await until(lambda: _is_decided(context, "shop/last"))
        assert service.failed() == ""
    assert await decided(context) == ["shop/early", "shop/real", "shop/next", "shop/last"]
    assert [event.source for event in [e async for e in _inputs(context.ledger)]] == [
        "/attacker",
        "/ci",
        "/attacker",
        "/tests",
    ]
    assert (await audit_verify(context.ledger)).ok
    assert not (await replay(context.ledger, DECIDERS)).divergences


async def _is_decided(context: ServiceContext, name: str) -> bool:
    return name in await decided(context)


async def _inputs(ledger: Ledger) -> AsyncIterator[Event[Value]]:
    async for recorded in ledger.recorded_rounds("fleet/0"):
        for event in recorded.events:
            if event.subject.startswith("shop/"):
                yield event


async def test_facts_are_taken_back_from_topics_by_source_and_id(context: ServiceContext) -> None:
    """The intake has lost them; the topic has the forged one first."""
    early = forged("shop/early", "/attacker")
    other = forged("shop/other", "/other", str(derived_id("not listed")))
    await send(context, BINDINGS, [("shop/early", early), ("shop/other", other)])
    await send(context, BINDINGS, [("shop/real", REAL), ("shop/real", REAL)])
    data = LedgerWentBack(2, {}, {"intake": 3})
    lost = WentBack(data, made(data, id=derived_id("lost"), source="/t", subject="ledger"), 0)
    listed = BelievedSources.parse("/ci=wharfinger.bindings,/attacker=wharfinger.bindings")
    for _ in range(2):  # it may be stopped and begun again
        await TakingBack(
            context.ledger,
            PublisherService(context)._reader,
            context.wire,
            context.partitions,
            [lost],
            listed,
        )({})
    taken = [
        event.source
        async for recorded in context.ledger.recorded_rounds(INTAKE)
        for event in recorded.events
    ]
    assert taken == ["/attacker", "/ci"]
    assert (await audit_verify(context.ledger)).ok


# --- the loop


def sent(number: int, source: str, name: str, *, offset: int, partition: int = 0) -> Message:
    """The counter's event under its own id, from another source and about another binding."""
    event = withdrawn(number, name)
    frame = msgspec.json.decode(event.body) | {"source": source}
    return Message(BINDINGS.name, partition, offset, decode(msgspec.json.encode(frame)))


@pytest.mark.parametrize("cut", [1, 2, 5])
async def test_each_source_has_its_event_once_however_they_are_batched(
    ledger: Ledger, cut: int
) -> None:
    told = [
        sent(1, source, name, offset=offset)
        for offset, (source, name) in enumerate(
            [("/a", "of-a"), ("/b", "of-b"), ("/a", "of-a"), ("/c", "of-c"), ("/b", "of-b")]
        )
    ]
    acks = Acks()
    last = msgspec.structs.replace(sent(2, "/a", "last", offset=5), ack=acks.of(0, 5))
    async with loop_running(a_loop(ledger, take_max=cut), 0) as loop:
        await loop.offer([*told, last])
        await until(lambda: acks.done == [(0, 5)])
        state = await loop.look("fleet/0", lambda state: dict(state.by_binding))
        assert loop.fatal == ""
    assert state == {"of-a": 1, "of-b": 1, "of-c": 1, "last": 1}
    assert (await audit_verify(ledger)).ok


async def test_one_id_for_two_streams_in_one_turn_stops_neither(ledger: Ledger) -> None:
    """Before, the process ended: the body of one of them was missing, at every start."""
    loop = a_loop(ledger)
    loop.hold(True)
    async with loop_running(loop, 0, 1):
        await loop.offer_facts(
            [sent(1, "/a", "one", offset=0), sent(1, "/a", "two", offset=0, partition=1)]
        )
        loop.hold(False)
        await until(lambda: loop.fatal or min(h.round for h in loop.heads().values()) == 1)
        assert loop.fatal == ""
    assert (await audit_verify(ledger)).ok


class FailsOn(Counter):
    def fold_input(self, state: Counts, event: Event[Value], at: Micros) -> None:
        if event.subject == "poison":
            raise ZeroDivisionError("a bug")
        super().fold_input(state, event, at)


async def test_an_event_that_was_laid_aside_keeps_no_other_of_its_id_out(ledger: Ledger) -> None:
    acks = Acks()
    told = [
        msgspec.structs.replace(sent(1, source, name, offset=offset), ack=acks.of(0, offset))
        for offset, (source, name) in enumerate(
            [("/attacker", "before"), ("/other", "poison"), ("/ci", "real")]
        )
    ]
    async with loop_running(a_loop(ledger, FailsOn()), 0) as loop:
        await loop.offer(told)
        await until(lambda: len(acks.done) == 3)
        state = await loop.look("fleet/0", lambda state: dict(state.by_binding))
        assert loop.fatal == ""
    assert state == {"before": 1, "real": 1}
