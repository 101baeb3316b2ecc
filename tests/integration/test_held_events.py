"""An event that a fleet shard holds back while it has promised its part of a plan, and that it
fails on afterwards: it is laid aside for people, and everything else is decided as if it had never
come.

The failures stand for bugs of a decider. They are put into the real one, because no event is known
on which it fails."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from uuid import UUID

import pytest
from tests.patience import eventually

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster, ResourceSummary
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.reasons import PlanOutcome
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.decisions import PlanCommitted, PlanPromised, PlanRefused, ScheduleDecided
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.plans import PlanRequested
from wharfinger.events.room import PlanAnswered
from wharfinger.events.streams import BINDINGS, CLUSTERS, INTAKE, PROPOSALS, ROOM, TOPICS
from wharfinger.events.ticks import HeldEventsLaidAside
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.hashing import empty_head
from wharfinger.kernel.recover import recover
from wharfinger.runtime.dead_letters import HELD_BACK
from wharfinger.runtime.ledger import Ledger, audit_verify, wall_clock
from wharfinger.runtime.messages import Message
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.stage_loop import StageLoop
from wharfinger.runtime.topics import shard_for
from wharfinger.stages.fleet import FleetDecider, fold_bindings
from wharfinger.stages.fleet.state import FleetState
from wharfinger_scheduler.routing import FleetRouting

pytestmark = pytest.mark.integration

COORDINATOR, STREAM = "fleet/0", "fleet/1"
NAMESPACE = next(f"team-{n}" for n in range(99) if shard_for(f"team-{n}/web", 2) == 1)
PLAN = str(derived_id("held", "plan"))


class Glued(FleetDecider):
    """Cannot decide where a binding called `glue` is."""

    def decide(self, state: FleetState, at: Micros) -> Iterator[Draft]:
        if f"{NAMESPACE}/glue" in state.bindings:
            raise ZeroDivisionError("glue")
        yield from super().decide(state, at)


@pytest.fixture
def bones(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A binding called `bone...` cannot be folded, and has changed the state by then."""
    request = fold_bindings.request

    def choking(state: FleetState, spec: Binding, cause: UUID) -> None:
        request(state, spec, cause)
        if "/bone" in spec.name:
            raise KeyError("bone\nin two lines")

    monkeypatch.setattr("wharfinger.stages.fleet.fold.request", choking)
    return monkeypatch


def asked(name: str, replicas: int = 1) -> BindingRequested:
    return BindingRequested(
        Binding(
            f"{NAMESPACE}/{name}",
            f"uid-{name}",
            ObjectRef("apps/v1", "Deployment", name, NAMESPACE),
            replicas,
            Requirements({"cpu": 100}),
            Placement(replicas=ReplicaScheduling("Divided", "Aggregated")),
        )
    )


def event(data: Value, number: int) -> Event[Value]:
    return made(data, id=derived_id("held", number), source="/tests", subject="tests")


def answered(outcome: PlanOutcome) -> Event[Value]:
    return event(PlanAnswered(COORDINATOR, 1, PLAN, outcome, (STREAM,)), 3)


class Shard:
    """The shard `fleet/1` of two, beside a coordinator that is played by hand. It can be started
    again on the same ledger."""

    def __init__(
        self, ledger: Ledger, decider: FleetDecider | None = None, take_max: int = 500
    ) -> None:
        self.ledger = ledger
        self.take_max = take_max
        self.decider = decider or FleetDecider(ranges=2)
        self.offsets: dict[str, int] = {}
        self.acknowledged = 0
        self.sent = 0

    async def start(self) -> None:
        self.loop = StageLoop(
            "tests",
            self.decider,
            FleetRouting(2),
            self.ledger,
            {topic.name: 1 for topic in TOPICS},
            wall_clock,
            METRICS.of("tests"),
            take_max=self.take_max,
        )
        self.loop.expect([1])
        await self.loop.acquire()
        self.loop.start()

    async def restart(self) -> None:
        await self.loop.stop()
        await self.start()

    async def send(self, topic: str, *events: Event[Value]) -> None:
        """Returns when all is taken in."""
        for one in events:
            await self.put(topic, one)
        await self.taken_in()

    async def put(self, topic: str, one: Event[Value]) -> None:
        offset = self.offsets[topic] = self.offsets.get(topic, -1) + 1
        self.sent += 1
        await self.loop.offer_facts([Message(topic, 1, offset, one, self._acknowledge)])

    async def taken_in(self) -> None:
        await eventually(lambda: self.acknowledged == self.sent or self.loop.fatal)
        assert not self.loop.fatal, self.loop.fatal

    def _acknowledge(self) -> None:
        self.acknowledged += 1

    async def promise(self) -> None:
        """Promise a part of a plan in a fleet of one cluster."""
        oslo = Cluster("oslo", summary=ResourceSummary({"cpu": 10_000}))
        await self.send(CLUSTERS.name, event(ClusterObserved(oslo), 1))
        plan = PlanRequested(STREAM, PLAN, (), shards=(COORDINATOR, STREAM))
        await self.send(PROPOSALS.name, event(plan, 2))
        assert isinstance((await self.decisions())[-1], PlanPromised)

    async def settle(self, outcome: PlanOutcome = "committed") -> None:
        """The coordinator decides. Returns when nothing is held back any more."""
        await self.send(ROOM.name, answered(outcome))

        async def released() -> bool:
            assert not self.loop.fatal, self.loop.fatal
            return not (await self.recovered()).joint.held

        await eventually(released)

    async def recovered(self) -> FleetState:
        rounds = [recorded async for recorded in self.ledger.recorded_rounds(STREAM, 1)]
        return recover(self.decider, self.decider.initial(STREAM), rounds)

    async def decisions(self) -> list[Value]:
        return [
            decision.data
            async for recorded in self.ledger.recorded_rounds(STREAM, 1)
            for decision in recorded.round.decisions
        ]

    async def scheduled(self) -> list[tuple[str, int]]:
        """Binding and replicas of each decision, in order."""
        return [
            (data.binding.rpartition("/")[2], sum(target.replicas for target in data.targets))
            for data in await self.decisions()
            if isinstance(data, ScheduleDecided)
        ]

    async def laid_aside(self) -> list[str]:
        return [
            id
            async for recorded in self.ledger.recorded_rounds(STREAM, 1)
            for one in recorded.events
            if isinstance(one.data, HeldEventsLaidAside)
            for id in one.data.events
        ]

    async def letters(self) -> list[MessageDeadLettered]:
        return [
            one.data
            async for recorded in self.ledger.recorded_rounds(INTAKE, 1)
            for one in recorded.events
            if isinstance(one.data, MessageDeadLettered)
        ]

    async def assert_replays(self) -> None:
        """Every round comes out with the same bytes, and the chain is whole."""
        rounds = [recorded async for recorded in self.ledger.recorded_rounds(STREAM, 1)]
        fresh = self.decider.initial(STREAM)
        result = audit(self.decider, fresh, empty_head(STREAM), rounds)
        assert result.rounds == len(rounds)
        assert not result.divergences
        assert (await audit_verify(self.ledger)).ok


@pytest.mark.parametrize("outcome", ["committed", "refused"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_held_event_that_cannot_be_folded_is_laid_aside_and_the_others_take_effect_in_order(
    ledger: Ledger, bones: pytest.MonkeyPatch, restarted: bool, outcome: PlanOutcome
) -> None:
    shard = Shard(ledger)
    await shard.start()
    try:
        await shard.promise()
        bad = event(asked("bone"), 12)
        await shard.send(
            BINDINGS.name,
            event(asked("first"), 10),
            event(asked("scaled", 2), 11),
            bad,
            event(asked("scaled", 5), 13),
            event(asked("last"), 14),
        )
        assert await shard.scheduled() == []
        if restarted:
            await shard.restart()
        await shard.settle(outcome)
        answer = PlanCommitted if outcome == "committed" else PlanRefused
        assert any(isinstance(data, answer) for data in await shard.decisions())
        assert await shard.scheduled() == [("first", 1), ("scaled", 5), ("last", 1)]
        assert await shard.laid_aside() == [str(bad.id)]
        (letter,) = await shard.letters()
        assert (letter.topic, letter.offset) == (BINDINGS.name, HELD_BACK)
        assert letter.reason == f"{STREAM} cannot take it in: KeyError: 'bone\\nin two lines'"

        if restarted:
            await shard.restart()
        # the same event again, under another offset: it changes nothing, and the shard goes on
        await shard.send(BINDINGS.name, bad, event(asked("later"), 15))
        assert (await shard.scheduled())[-1] == ("later", 1)
        assert len(await shard.letters()) == 1
        await shard.assert_replays()
    finally:
        await shard.loop.stop()

    # It stays laid aside for a version that could fold it: what was decided without it stands.
    bones.undo()
    assert f"{NAMESPACE}/bone" not in (await shard.recovered()).bindings
    await shard.assert_replays()


async def test_several_bad_events_among_held_ones_are_each_laid_aside(
    ledger: Ledger, bones: pytest.MonkeyPatch
) -> None:
    shard = Shard(ledger)
    await shard.start()
    try:
        await shard.promise()
        names = [f"{'bone' if n in (0, 4, 5, 9) else 'web'}-{n}" for n in range(10)]
        await shard.send(BINDINGS.name, *(event(asked(n), 10 + i) for i, n in enumerate(names)))
        await shard.settle()
        assert [name for name, _ in await shard.scheduled()] == [
            name for name in names if name.startswith("web")
        ]
        assert await shard.laid_aside() == [str(event(asked(""), 10 + n).id) for n in (0, 4, 5, 9)]
        assert len(await shard.letters()) == 4
        await shard.assert_replays()
    finally:
        await shard.loop.stop()


async def test_a_held_event_that_lets_nothing_be_decided_is_laid_aside_too(ledger: Ledger) -> None:
    shard = Shard(ledger, Glued(ranges=2))
    await shard.start()
    try:
        await shard.promise()
        names = ("first", "glue", "last")
        await shard.send(BINDINGS.name, *(event(asked(n), 10 + i) for i, n in enumerate(names)))
        await shard.settle()
        assert await shard.scheduled() == [("first", 1), ("last", 1)]
        (letter,) = await shard.letters()
        assert "ZeroDivisionError: glue" in letter.reason
        await shard.assert_replays()
    finally:
        await shard.loop.stop()


async def test_a_bad_message_beside_a_bad_held_event_is_laid_aside_by_itself(
    ledger: Ledger, bones: pytest.MonkeyPatch
) -> None:
    """The first message after the coordinator's answer, which is a turn of its own, is bad: in that
    turn held events are released, of which one is bad too."""
    shard = Shard(ledger, take_max=1)
    await shard.start()
    try:
        await shard.promise()
        await shard.send(BINDINGS.name, event(asked("bone-held"), 10), event(asked("first"), 11))
        shard.loop.hold(True)
        await shard.put(ROOM.name, answered("committed"))
        await shard.put(BINDINGS.name, event(asked("bone-late"), 12))
        await shard.put(BINDINGS.name, event(asked("last"), 13))
        shard.loop.hold(False)
        await shard.taken_in()
        assert await shard.scheduled() == [("first", 1), ("last", 1)]
        held, late = await shard.letters()
        assert b"bone-held" in payload(held)
        assert (held.offset, late.offset) == (HELD_BACK, 2)
        assert b"bone-late" in payload(late)
        await shard.assert_replays()
    finally:
        await shard.loop.stop()


def payload(letter: MessageDeadLettered) -> bytes:
    return base64.b64decode(letter.payload)
