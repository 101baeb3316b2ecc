"""A fleet state with one binding in it, brought to the moment of one decision about that binding.

Nothing about the clusters may be missing: their facts, their counts, and what was decided into them since. Of the other bindings
only what they took is needed, and that their decisions say: a decision names its targets and those before. So the rounds
since a snapshot are folded without their bindings, which makes the state small whatever the fleet's size.

What a decision does not say is whether the requirements were others before, in which case everything was taken anew. Where a
binding was requested again since the snapshot, that has to be looked up (`earlier`). And where a target had shrunk by a
refusal that was not yet answered, `previous` is more than was held. Both are rare, and no guess stays hidden: the decision is
taken again on this state and compared with the recorded bytes; who finds a difference takes the whole state instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.estimate import demand_of
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.decisions import (
    BindingReleased,
    PlanCommitted,
    PlanRefused,
    ProposalRefused,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.plans import Step
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.recover import RecordedRound
from wharfinger.stages.fleet.clusters import Pending
from wharfinger.stages.fleet.state import FleetState

_Scheduled = ScheduleDecided | ScheduleRefused


def earlier(binding: str, rounds: Iterable[RecordedRound]) -> list[str]:
    """The other bindings of which the last decision before `rounds` has to be known: requested again in them, and given more
    than they had."""
    requested: set[str] = set()
    unknown: dict[str, None] = {}
    decided = {binding}
    for recorded in rounds:
        for event in recorded.events:
            if isinstance(event.data, BindingRequested):
                requested.add(event.data.binding.name)
        for decision in recorded.round.decisions:
            data = decision.data
            if isinstance(data, _Scheduled) and data.binding not in decided:
                decided.add(data.binding)
                if data.previous and data.targets and data.binding in requested:
                    unknown[data.binding] = None
    return list(unknown)


class Focus:
    """`state` has of the bindings `binding` at most, and is changed in place. `before`: binding -> the requirements of its last
    decision before the rounds that will be folded, of those that `earlier` names."""

    def __init__(self, state: FleetState, binding: str, before: Mapping[str, Requirements]) -> None:
        self.state = state
        self.binding = binding
        self._classes = {name: requirements.class_key for name, requirements in before.items()}
        for id, proposal in list(state.proposals.items()):
            if proposal.binding != binding:
                del state.proposals[id]

    def fold(self, recorded: RecordedRound, before_seq: int | None = None) -> None:
        """The round, or of its decisions those before `before_seq`."""
        at = recorded.round.at
        for event in recorded.events:
            self.fold_input(event, at)
        for decision in recorded.round.decisions:
            if before_seq is None or decision.seq < before_seq:
                self.fold_decision(decision, at)

    def fold_input(self, event: Event[Value], at: Micros) -> None:
        if self._concerns(event.data):
            self.state.fold_input(event, at)
        else:
            self.state.clock = at

    def fold_decision(self, decision: Decision, at: Micros) -> None:
        state, data = self.state, decision.data
        match data:
            case ScheduleDecided() | ScheduleRefused() if data.binding != self.binding:
                self._take(data, decision.seq)
            case BindingReleased() | ProposalRefused() if decision.subject != self.binding:
                pass
            case PlanCommitted() if decision.cause is not None:
                request = state.requested.pop(decision.cause, None)
                if request is not None:
                    self._carry_out(request.steps, decision.id, at)
            case PlanRefused() if decision.cause is not None:
                state.requested.pop(decision.cause, None)
            case _:
                state.fold_decision(decision, at)
        state.clock = at

    def _concerns(self, data: Value) -> bool:
        match data:
            case BindingRequested(binding=spec):
                return spec.name == self.binding
            case BindingWithdrawn(name=name):
                return name == self.binding
            case FailoverProposed() | EvictionProposed() | RescheduleProposed():
                return data.binding == self.binding
            case _:
                return True

    def _carry_out(self, steps: Sequence[Step], cause: UUID, at: Micros) -> None:
        """As the state does, with the numbers that the steps have among all of them."""
        for place, step in enumerate(steps):
            data = step.data
            if not self._concerns(data):
                continue
            if isinstance(data, FailoverProposed | EvictionProposed | RescheduleProposed):
                id = derived_id("step", str(cause), place)
                self.state.proposals[id], self.state.on_behalf[id] = data, cause
            else:
                self.state.carry_out((step,), cause, at)

    def _take(self, data: _Scheduled, seq: int) -> None:
        """What another binding's decision took of its clusters."""
        key = data.requirements.class_key
        same_class = self._classes.get(data.binding, key) == key
        self._classes[data.binding] = key
        held = {t.cluster: t.replicas for t in data.previous} if same_class else {}
        for target in data.targets:
            grown = target.replicas - held.get(target.cluster, 0)
            cluster = self.state.clusters.get(target.cluster)
            if grown > 0 and cluster is not None:
                demand = demand_of(data.requirements)
                cluster.take(Pending(seq, key, grown, data.requirements, demand))
                self.state.touch(cluster)
