"""Laws of plans, over random fleets and random changes: what a plan says is what then happens, to
the node; asking changes nothing; and history can be gone through again with plans in it."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from tests.hunting import examples
from tests.plan_world import a_change, a_plane, after, layout

from wharfinger.domain.value import canonical
from wharfinger.events.decisions import PlanCommitted, PlanRefused
from wharfinger.history.plan_records import HORIZON_US
from wharfinger.history.planning import planned
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head
from wharfinger.stages.world import World

pytestmark = pytest.mark.seeded

CASES, CHUNK = examples(60), 10
"""Each hunk of seeds is one test, so that several can run side by side."""

SEEDS = range(1000, 1000 + examples(6))
"""Of the laws that are tried a seed a test."""


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_what_is_planned_is_what_then_happens(first: int) -> None:
    for seed in range(first, first + CHUNK):
        random = Random(seed)
        plane = a_plane(random)
        before = plane.layout()
        plan = plane.plan(*a_change(random, plane))
        decided = plane.carry_out(plan)
        answers = [d.data for d in decided if isinstance(d.data, PlanCommitted | PlanRefused)]
        assert [type(a) for a in answers] == [PlanCommitted] * len(plan.parts), (
            f"seed {seed}: {answers}"
        )
        assert plane.layout() == after(before, plan), f"seed {seed}"
        waiting = {name for name, record in plane.fleet.bindings.items() if record.refused}
        assert waiting == {refusal.binding for refusal in plan.refusals}, f"seed {seed}"


@pytest.mark.parametrize("seed", SEEDS)
def test_history_can_be_gone_through_again_with_plans_in_it(seed: int) -> None:
    """Decided again byte for byte, and folded without deciding to the same state."""
    random = Random(seed)
    plane = a_plane(random)
    plane.carry_out(plane.plan(*a_change(random, plane)))
    for name, running in plane.live.streams.items():
        own = [r for r in plane.rounds if r.round.stream == name]
        decider = running.decider
        assert audit(decider, decider.initial(name), empty_head(name), own).divergences == []
        assert decider.dump(recover(decider, decider.initial(name), own)) == decider.dump(
            running.state
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_on_a_plane_that_went_on_is_committed_as_planned_or_not_at_all(seed: int) -> None:
    random = Random(seed)
    plane = a_plane(random)
    plan = plane.plan(*a_change(random, plane))
    plane.tell(*(fact.data for fact in a_change(random, plane)[0]))
    plane.rounds += plane.live.wait(plane.live.at + HORIZON_US)
    before = layout(plane.live)
    decided = plane.ask(plan)
    refused = {d.stream: d.data for d in decided if isinstance(d.data, PlanRefused)}
    for part in plan.parts:
        if part.stream in refused:
            assert refused[part.stream].changed
            assert [d.stream for d in decided].count(part.stream) == 1
        else:
            found = {d.subject for d in decided if d.stream == part.stream} - {part.plan}
            assert found == {outcome.subject for outcome in part.expected}
    if len(refused) == len(plan.parts):
        assert layout(plane.live) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_planning_leaves_the_world_as_it_is_and_says_the_same_twice(seed: int) -> None:
    random = Random(seed)
    plane = a_plane(random)
    facts, proposals = a_change(random, plane)
    world = plane.recovered()
    before = _dumps(world)
    first, second = (planned(world, facts, proposals, UUID(int=1), 0) for _ in range(2))
    assert canonical(first) == canonical(second)
    assert _dumps(world) == before


def test_a_plan_asked_for_twice_changes_nothing_the_second_time() -> None:
    random = Random(0)
    plane = a_plane(random)
    plan = plane.plan(*a_change(random, plane))
    plane.carry_out(plan)
    rounds, now = len(plane.rounds), _dumps(plane.live)
    plane.carry_out(plan)
    assert plan.parts
    assert len(plane.rounds) == rounds
    assert _dumps(plane.live) == now


def _dumps(world: World) -> dict[str, dict[str, bytes]]:
    return {name: running.decider.dump(running.state) for name, running in world.streams.items()}
