"""Plans against a real ledger: made from it, kept in it, carried out through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from uuid import UUID

import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.plan_world import Plane, a_plane, after

from wharfinger.domain.drain import drained_cluster
from wharfinger.domain.value import canonical
from wharfinger.events.accepted import accepted
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.streams import INTAKE, PROPOSALS
from wharfinger.history import plan as plans
from wharfinger.history import plan_making
from wharfinger.history.plan import Applied, PlanRefusal
from wharfinger.history.plan_records import Plan, request_event
from wharfinger.kernel.recover import RecordedRound
from wharfinger.runtime.ledger import Ledger, LedgerError, Submission

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def plane(ledger: Ledger) -> Plane:
    """A small fleet with a past, all of it in the ledger. Its intake is empty: it was told
    directly."""
    plane = a_plane(Random(5))
    await written(ledger, plane.rounds)
    return plane


async def written(ledger: Ledger, rounds: list[RecordedRound]) -> None:
    await ledger.ensure_streams(list({r.round.stream for r in rounds}))
    for recorded in rounds:
        result = await ledger.commit([recorded.round], {e.id: e for e in recorded.events})
        assert not result.fenced


@asynccontextmanager
async def at_work(ledger: Ledger, plane: Plane) -> AsyncIterator[None]:
    """The scheduler's place taken by the world: what the intake accepts is told, what is decided is
    committed."""

    async def work() -> None:
        done = 0
        while True:
            async for recorded in ledger.recorded_rounds(INTAKE, done + 1):
                done = recorded.round.number
                await written(ledger, plane.live.tell(recorded.events, plane.live.at))
            await asyncio.sleep(0.02)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        await asyncio.sleep(0.3)  # what was handed in last is told, too
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def heads(ledger: Ledger) -> dict[str, bytes]:
    return {head.stream: head.hash for head in await ledger.heads()}


def a_drain(plane: Plane) -> ClusterObserved:
    fullest = max(
        plane.fleet.by_cluster, key=lambda name: (len(plane.fleet.by_cluster[name]), name)
    )
    facts = plane.fleet.clusters[fullest].facts
    assert facts is not None
    return ClusterObserved(drained_cluster(facts))


async def drained(ledger: Ledger, plane: Plane) -> Plan:
    made = await plan_making.make_plan(ledger, [accepted(a_drain(plane))])
    await plans.save(ledger, made)
    return made


async def test_making_a_plan_tells_nobody(ledger: Ledger, plane: Plane) -> None:
    before = await heads(ledger)
    made = await drained(ledger, plane)
    assert made.changes
    assert made.moves
    assert await heads(ledger) == before


async def test_a_plan_is_kept_as_it_was_made_and_found_by_the_beginning_of_its_id(
    ledger: Ledger, plane: Plane
) -> None:
    made = await drained(ledger, plane)
    await plans.save(ledger, made)
    assert canonical(await plans.load(ledger, made.id)) == canonical(made)
    assert (await plans.named(ledger, str(made.id)[:8])).id == made.id


@pytest.mark.parametrize("text", ["zzz", "", "'; drop table plan; --", str(UUID(int=7))])
async def test_a_plan_that_there_is_not_is_one_line(ledger: Ledger, text: str) -> None:
    with pytest.raises(LedgerError, match="there is no plan"):
        await plans.named(ledger, text)


async def test_what_is_carried_out_is_what_was_planned_and_then_the_facts_are_known(
    ledger: Ledger, plane: Plane
) -> None:
    before = plane.layout()
    made = await drained(ledger, plane)
    async with at_work(ledger, plane):
        answer = await plans.apply(ledger, made, 10)
        assert isinstance(answer, Applied)
        assert set(answer.decisions) == {"fleet/0"}
        assert not answer.again
        again = await plans.apply(ledger, made, 10)
        assert isinstance(again, Applied)
        assert again.again
    assert plane.layout() == after(before, made)
    latest = [event.data async for r in ledger.recorded_rounds(INTAKE) for event in r.events]
    assert latest[-1] == a_drain_of(made)
    assert len(latest) == 2  # the request, and the fact


def a_drain_of(made: Plan) -> object:
    (fact,) = made.facts
    return fact.accepted.data


async def test_carried_out_half_it_is_finished_the_next_time(ledger: Ledger, plane: Plane) -> None:
    made = await drained(ledger, plane)
    (part,) = made.parts
    asked = Submission(request_event(part), PROPOSALS.name, part.stream, part.stream)
    async with at_work(ledger, plane):
        await ledger.accept([asked])  # and there the command was killed
        await asyncio.sleep(0.2)
        answer = await plans.apply(ledger, made, 10)
    assert isinstance(answer, Applied)
    assert not answer.again
    assert sum([len(r.events) async for r in ledger.recorded_rounds(INTAKE)]) == 2


async def test_a_plan_out_of_date_is_refused_and_its_facts_are_not_handed_in(
    ledger: Ledger, plane: Plane
) -> None:
    made = await drained(ledger, plane)
    changed = a_drain(plane).cluster
    rounds = plane.tell(ClusterObserved(type(changed)(changed.name, {"tier": "gold"})))
    await written(ledger, rounds)
    async with at_work(ledger, plane):
        answer = await plans.apply(ledger, made, 10)
        assert isinstance(answer, PlanRefusal)
        assert answer.refusals["fleet/0"].changed == (f"cluster/{changed.name} facts",)
        assert answer.committed == ()
        again = await plans.apply(ledger, made, 10)
        assert again == answer
    assert sum([len(r.events) async for r in ledger.recorded_rounds(INTAKE)]) == 1


async def test_with_nobody_to_answer_it_says_so_and_waits_no_longer_than_it_was_told(
    ledger: Ledger, plane: Plane
) -> None:
    made = await drained(ledger, plane)
    with pytest.raises(
        LedgerError, match=r"no answer from fleet/0 within 0.3 s; is a scheduler up\?"
    ):
        await plans.apply(ledger, made, 0.3)


async def test_a_drain_and_a_scale_have_words_of_their_own(ledger: Ledger, plane: Plane) -> None:
    name, record = next(
        (n, r) for n, r in sorted(plane.fleet.bindings.items()) if r.targets and r.counted
    )
    scaled = await plan_making.scale(ledger, name, record.spec.replicas + 1)
    (step,) = scaled.parts[0].steps
    assert step.binding is not None
    assert step.binding.replicas == record.spec.replicas + 1
    state = next(s for s in plane.live.cluster_states() if s.book.on_node)
    node = next(iter(sorted(state.book.on_node)))
    of_node = await plan_making.drain(ledger, f"{state.cluster}/{node}")
    assert [part.stream for part in of_node.parts] == [state.stream]
    with pytest.raises(LedgerError, match="no cluster and no node is called atlantis"):
        await plan_making.drain(ledger, "atlantis")


async def test_what_does_not_fit_into_one_message_is_said_and_not_sent(
    ledger: Ledger, plane: Plane
) -> None:
    made = await drained(ledger, plane)
    (part,) = made.parts
    huge = replace(
        made, parts=(replace(part, basis={f"binding/{n}": "0" * 8 for n in range(50_000)}),)
    )
    with pytest.raises(
        LedgerError, match=r"fleet/0 would be asked 1,\d+,\d+ bytes at once, .*: split the change"
    ):
        await plans.apply(ledger, huge, 1)
    assert [r async for r in ledger.recorded_rounds(INTAKE)] == []
