"""A stage that asks somebody outside, on a real ledger with a real HTTP server: answers are inputs,
asked once, and a replay asks nobody. And what a stream that begins late is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
import pytest_asyncio
from aiohttp import web
from tests.apps import until
from tests.counter import Counter, Counts, withdrawn
from tests.patience import PATIENCE_S

from wharfinger.domain.policy import Policy
from wharfinger.domain.scheduler import Extender
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.codec import made
from wharfinger.events.decisions import BindingReleased
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.policies import PolicyApplied
from wharfinger.kernel.audit import Audit
from wharfinger.kernel.decider import Decision, Draft, Micros
from wharfinger.kernel.step import empty_head
from wharfinger.runtime.extender_http import HttpTransport
from wharfinger.runtime.ledger import DecisionQuery, Ledger, Submission, audit_verify, wall_clock
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.stage_loop import StageLoop
from wharfinger.stages.extender_calls import ExtenderCall

pytestmark = pytest.mark.integration

PATIENCE_MS = int(PATIENCE_S * 1000)

TOPIC, POLICIES = "wharfinger.bindings", "wharfinger.policies"
INCARNATIONS = {TOPIC: 1, POLICIES: 1}


class Curious(Counter):
    """Releases a binding when the extender has said something of it, and says what."""

    def __init__(self, extender: Extender) -> None:
        super().__init__(every=10**9)
        self._extender = extender
        self.said: dict[str, str] = {}

    def _ask(self, cause: UUID, name: str) -> ExtenderCall:
        return ExtenderCall(str(cause), self._extender, "filter", f'{{"binding":"{name}"}}')

    def initial(self, stream: str) -> Counts:
        self.said = {}
        return Counts()

    def fold_input(self, state: Counts, event: Event[Value], at: Micros) -> None:
        if isinstance(event.data, ExtenderAnswered):
            self.said[event.data.ask] = event.data.answer or f"failed: {event.data.error}"
        super().fold_input(state, event, at)

    def fold_decision(self, state: Counts, decision: Decision, at: Micros) -> None:
        super().fold_decision(state, decision, at)

    def asks(self, state: Counts) -> Sequence[ExtenderCall]:
        return [self._ask(cause, name) for cause, name in state.waiting.items()]

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        for cause, name in list(state.waiting.items()):
            answer = self.said.get(self._ask(cause, name).id)
            if answer is not None:
                yield Draft(BindingReleased(name, answer), name, "released", cause)

    def load(self, stream: str, sections: Mapping[str, bytes]) -> Counts:
        raise AssertionError("these tests make no snapshots")


class ByName:
    """Stream `cluster/<subject's first letter>`, begun by its first event; policies are for
    everybody."""

    prefix = "cluster/"

    def group_of(self, stream: str) -> int:
        return 0

    def permanent_streams(self, group: int) -> Sequence[str]:
        return ()

    def addressed(self, message: Message) -> Sequence[str] | None:
        return None if message.topic == POLICIES else (f"cluster/{message.event.subject[-1]}",)


class Oracle:
    """An extender: counts what it is asked; while `silent` it lets people wait, while `broken` it
    answers with an error."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.silent = asyncio.Event()
        self.broken = False
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        asked = (await request.json())["binding"]
        self.asked.append(asked)
        if self.silent.is_set():
            await asyncio.sleep(3600)
        if self.broken:
            return web.Response(status=500)
        return web.Response(text=f"{asked} may go", content_type="application/json")


@pytest_asyncio.fixture
async def oracle() -> AsyncIterator[Oracle]:
    oracle = Oracle()
    app = web.Application()
    app.add_routes([web.post("/filter", oracle.answer)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    oracle.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield oracle
    await runner.cleanup()


@asynccontextmanager
async def running(ledger: Ledger, decider: Counter) -> AsyncIterator[StageLoop[Counts]]:
    loop = StageLoop(
        "tests",
        decider,
        ByName(),
        ledger,
        INCARNATIONS,
        wall_clock,
        METRICS.of("tests"),
        standing=(POLICIES,),
    )
    loop.expect([0])
    await loop.acquire()
    loop.start()
    try:
        yield loop
    finally:
        await loop.stop()


def told(*numbers: int) -> list[Message]:
    return [Message(TOPIC, 0, n, withdrawn(n, f"binding-{n}")) for n in numbers]


async def released(ledger: Ledger) -> dict[str, str]:
    """Binding -> what the decision says."""
    rows = [row.data() async for row in ledger.decisions(DecisionQuery(stream="cluster/"))]
    return {data.binding: data.uid for data in rows if isinstance(data, BindingReleased)}


async def test_an_answer_is_an_input_and_asked_once(ledger: Ledger, oracle: Oracle) -> None:
    async with running(ledger, Curious(Extender(oracle.url, timeout_ms=PATIENCE_MS))) as loop:
        await loop.offer(told(1, 11, 2))
        await until(lambda: sum(h.seq for h in loop.heads().values()) == 3)
    assert await released(ledger) == {f"binding-{n}": f"binding-{n} may go" for n in (1, 11, 2)}
    assert sorted(oracle.asked) == ["binding-1", "binding-11", "binding-2"]
    inputs = [e.data async for r in ledger.recorded_rounds("cluster/1") for e in r.events]
    assert sum(isinstance(data, ExtenderAnswered) for data in inputs) == 2
    assert (await audit_verify(ledger)).ok


async def test_a_replay_takes_the_recorded_answers_and_asks_nobody(
    ledger: Ledger, oracle: Oracle
) -> None:
    async with running(ledger, Curious(Extender(oracle.url, timeout_ms=PATIENCE_MS))) as loop:
        await loop.offer(told(1, 11))
        await until(lambda: sum(h.seq for h in loop.heads().values()) == 2)
    asked = len(oracle.asked)
    decider = Curious(Extender(oracle.url, timeout_ms=PATIENCE_MS))
    audit = Audit(decider, decider.initial("cluster/1"), empty_head("cluster/1"))
    async for recorded in ledger.recorded_rounds("cluster/1"):
        audit.replay(recorded)
    assert audit.result.decisions == 2
    assert audit.result.divergences == []
    assert len(oracle.asked) == asked


async def test_who_takes_over_asks_what_was_not_answered(ledger: Ledger, oracle: Oracle) -> None:
    oracle.silent.set()
    async with running(ledger, Curious(Extender(oracle.url, timeout_ms=PATIENCE_MS))) as loop:
        await loop.offer(told(1))
        await until(lambda: oracle.asked)
        assert not (await released(ledger))
    oracle.silent.clear()
    async with running(ledger, Curious(Extender(oracle.url, timeout_ms=PATIENCE_MS))) as loop:
        await until(lambda: sum(h.seq for h in loop.heads().values()) == 1)
    assert oracle.asked == ["binding-1", "binding-1"]
    assert await released(ledger) == {"binding-1": "binding-1 may go"}


@pytest.mark.parametrize("fault", ["broken", "slow", "nobody"])
async def test_no_answer_is_an_answer_with_its_reason(
    ledger: Ledger, oracle: Oracle, fault: str
) -> None:
    extender = Extender(oracle.url, timeout_ms=200)
    if fault == "broken":
        oracle.broken = True
    elif fault == "slow":
        oracle.silent.set()
    else:
        extender = Extender("http://127.0.0.1:9", timeout_ms=2000)
    async with running(ledger, Curious(extender)) as loop:
        await loop.offer(told(1))
        await until(lambda: sum(h.seq for h in loop.heads().values()) == 1)
    (said,) = (await released(ledger)).values()
    assert said.startswith(f"failed: {extender.url}/filter: ")
    assert "\n" not in said


async def test_a_certificate_that_is_not_there_is_a_reason_too() -> None:
    asker = HttpTransport()
    nobody = Extender("https://127.0.0.1:9", ca_file="/nowhere/ca.pem")
    answer, error = await asker.ask(ExtenderCall("1", nobody, "filter", "{}"))
    assert answer == ""
    assert error.startswith("https://127.0.0.1:9/filter: ")
    await asker.close()


# --- a stream that begins late


class Listening(Counter):
    """Says with each release which policies it had heard of."""

    def __init__(self) -> None:
        super().__init__(every=10**9)
        self.heard: list[str] = []

    def fold_input(self, state: Counts, event: Event[Value], at: Micros) -> None:
        if isinstance(event.data, PolicyApplied):
            self.heard.append(event.data.policy.name)
        super().fold_input(state, event, at)

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        for cause, name in list(state.waiting.items()):
            yield Draft(BindingReleased(name, ",".join(self.heard)), name, "released", cause)


def policy(name: str) -> Event[Value]:
    data = PolicyApplied(Policy("Placement", name))
    return made(data, id=derived_id("test", name), source="/tests", subject=data.policy.key)


async def test_a_stream_that_begins_late_is_told_the_standing_facts_once(ledger: Ledger) -> None:
    first, second = policy("first"), policy("second")
    await ledger.accept([Submission(e, POLICIES, e.subject, e.subject) for e in (first, second)])
    async with running(ledger, Listening()) as loop:
        await loop.offer([Message(POLICIES, 0, 0, first)])  # before there is any stream to tell it
        await loop.offer(told(1))
        await loop.offer([Message(POLICIES, 0, 1, second)])  # the ledger has told it already
        await until(lambda: sum(h.seq for h in loop.heads().values()) == 1)
    assert await released(ledger) == {"binding-1": "first,second"}
    inputs = [e.data async for r in ledger.recorded_rounds("cluster/1") for e in r.events]
    assert sum(isinstance(data, PolicyApplied) for data in inputs) == 2
    assert sum(isinstance(data, BindingWithdrawn) for data in inputs) == 1
