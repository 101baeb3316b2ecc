"""Laws of plans over several fleet shards, on the simulated plane whose log and ledger fail and
whose processes end at any moment: of every plan all parts are carried out, or none, and what is
carried out is what was planned. Requests are lost, too, and plans contradict each other and the
changes beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec
import pytest
from tests.hunting import examples
from tests.simulation import CommitError, Simulation

from wharfinger.domain.binding import Binding
from wharfinger.events.accepted import accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.decisions import PlanCommitted, PlannedOutcome, PlanPromised, PlanRefused
from wharfinger.events.envelope import Event
from wharfinger.events.plans import PlanRequested
from wharfinger.history.plan_records import request_event
from wharfinger.history.planning import planned
from wharfinger.kernel.decider import Draft
from wharfinger.stages.fleet.plans import outcome_of
from wharfinger.stages.world import World

SEEDS = 3
PLANNED = 0.2
"""Share of changes that are plans."""
LOST = 0.06
"""Share of requests that never reach the ledger."""


class PlannedSimulation(Simulation):
    """A history with plans in it. `plans`: what each stream was asked, lost requests left out."""

    def __init__(self, seed: int, shards: int) -> None:
        super().__init__(seed, shards)
        self.plans: dict[str, list[PlanRequested]] = {}
        self.lost = 0

    def _change(self, fresh: list[BindingRequested]) -> None:
        if self.random.random() < PLANNED:
            self._plan()
        else:
            super()._change(fresh)

    def _plan(self) -> None:
        """Scale and withdraw bindings of several shards, as of a state of the ledger. Mostly the
        plane has nearly come to rest by then, and a few turns follow before the next change: a plan
        of a plane in motion is nearly always refused."""
        random = self.random
        quiet = random.random() < 0.8
        self._turns(15 if quiet else 0)
        self._ask_for(self._world())
        self._turns(random.choice((0, 1, 3, 9)) if quiet else 0)

    def _turns(self, n: int) -> None:
        for _ in range(n):
            self._turn(everything=self.random.random() < 0.7)

    def _ask_for(self, world: World) -> None:
        random = self.random
        if any(state.joint.promised for state in world.fleet_states()):
            return
        known = [
            record.spec
            for state in world.fleet_states()
            for _, record in sorted(state.bindings.items())
            if not record.withdrawn
        ]
        chosen = random.sample(known, min(len(known), random.randint(2, 6)))
        facts = [accepted(self._planned_change(spec)) for spec in chosen]
        id = UUID(int=len(self.plans) + 1)
        plan = planned(world, facts, (), id, self.at)
        if not plan.parts:
            return
        self.plans[str(id)] = []
        for part in plan.parts:
            if self.random.random() < LOST:
                self.lost += 1
                continue
            self.plans[str(id)].append(part)
            self._ask(part)

    def _planned_change(self, spec: Binding) -> BindingRequested | BindingWithdrawn:
        random = self.random
        if random.random() < 0.2:
            return BindingWithdrawn(spec.name)
        return BindingRequested(msgspec.structs.replace(spec, replicas=random.randint(0, 20)))

    def _world(self) -> World:
        world = World(shards=0, shard_of=self.shard_of, recorded=True, at=self.at)
        for stage in (self.fleet, self.cluster):
            for name in stage.streams:
                running = stage.recovered(name)
                world.adopt(name, stage.decider, running.state, running.head)
        world.settle_in()
        return world

    def _ask(self, part: PlanRequested) -> None:
        event = request_event(part)
        while True:
            try:
                return self.ledger.accept(event)
            except CommitError:
                continue

    def _relay(self, events: Iterable[Event[Any]]) -> None:
        for event in events:
            if isinstance(event.data, PlanRequested):
                self.log.append(event, event.data.stream)
            else:
                super()._relay([event])

    def _effects(self) -> Counter[str]:
        """Instead of the law for single facts, which a plan takes the place of."""
        found: Counter[str] = Counter()
        answers = self._answers()
        for plan, parts in self.plans.items():
            outcomes = set()
            for part in parts:
                said = answers.get((plan, part.stream), [])
                assert len(said) == 1, f"{part.stream}: {len(said)} answers to plan {plan}"
                outcomes.add(type(said[0][0]))
                if isinstance(said[0][0], PlanCommitted):
                    assert said[0][1] == {o.subject: o for o in part.expected}, (
                        f"{part.stream}: not as planned: {said[0][1]} and {part.expected}"
                    )
                    assert len(parts) == len(part.shards or (part.stream,)), "a part was lost"
            assert len(outcomes) <= 1, f"half of plan {plan}: {answers}"
            several = "several" if len(parts) > 1 else "one"
            found.update(f"{kind.TYPE} of {several}" for kind in outcomes)
        for running in self.fleet.streams.values():
            joint = running.state.joint
            assert joint.promised is None, "a promise is left"
            assert not joint.held, "events are held back"
        return found + Counter(lost=self.lost)

    def _answers(self) -> dict[tuple[str, str], list[tuple[Any, dict[str, PlannedOutcome]]]]:
        """(plan, stream) -> its answers to what it was asked, and what followed in their rounds."""
        asked = {
            (plan, part.stream): request_event(part).id
            for plan, parts in self.plans.items()
            for part in parts
        }
        found: dict[tuple[str, str], list[tuple[Any, dict[str, PlannedOutcome]]]] = {}
        for stream, rounds in self.ledger.rounds.items():
            for one in rounds:
                followed: dict[str, PlannedOutcome] = {}
                for decision in one.round.decisions:
                    data = decision.data
                    if isinstance(data, PlanCommitted | PlanRefused | PlanPromised):
                        followed = {}
                        key = data.plan, stream
                        if not isinstance(data, PlanPromised) and asked.get(key) == decision.cause:
                            found.setdefault(key, []).append((data, followed))
                    elif stream.startswith("fleet/"):
                        draft = Draft(data, decision.subject, decision.outcome)
                        followed[decision.subject] = outcome_of(draft)
        return found


def history(seed: int, shards: int) -> Counter[str]:
    simulation = PlannedSimulation(seed, shards)
    simulation.run()
    return simulation.check()


@pytest.mark.seeded
@pytest.mark.parametrize("shards", [2, 8])
def test_of_a_plan_over_several_shards_all_parts_are_carried_out_or_none(shards: int) -> None:
    figures = sum((history(seed, shards) for seed in range(1, examples(SEEDS))), history(0, shards))

    # that there was something to hold
    assert figures["plan.committed of several"]
    assert figures["plan.refused of several"]
