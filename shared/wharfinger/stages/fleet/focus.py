"""A fleet state with one binding in it, brought to the moment of one decision about that binding.

Nothing about the clusters may be missing: their facts, their counts, and what was decided into them since. Of the other bindings
only what they took is needed, and that their decisions say: a decision names its targets and those before. So the rounds
since a snapshot are folded without their bindings, which makes the state small whatever the fleet's size; and requests of
others need not even be decoded, and of their decisions only what they took is read (`Took`), which is most of the time.

What a decision does not say is whether the requirements were others before, in which case everything was taken anew. Of a
binding that was given more than it had, that has to be looked up (`earlier`). And where a target had shrunk by a
refusal that was not yet answered, `previous` is more than was held. Both are rare, and no guess stays hidden: the decision is
taken again on this state and compared with the recorded bytes; who finds a difference takes the whole state instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.estimate import Demand, demand_of
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
from wharfinger.events.registry import LATEST
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.stages.fleet.clusters import Pending
from wharfinger.stages.fleet.quota_room import Claim
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.steadiness import look


class Took(msgspec.Struct, frozen=True):
    """What is read of another binding's decision."""

    binding: str
    targets: tuple[TargetCluster, ...] = ()
    previous: tuple[TargetCluster, ...] = ()
    requirements: msgspec.Raw = msgspec.Raw(b"{}")


_took = msgspec.json.Decoder(Took)
_requirements = msgspec.json.Decoder(Requirements)

SCHEDULED = (LATEST[ScheduleDecided].type, LATEST[ScheduleRefused].type)
"""Types of decisions whose data may be left unread where they are about others."""

REQUESTS = (LATEST[BindingRequested].type, LATEST[BindingWithdrawn].type)
"""Types of inputs that say nothing here where they do not name the binding."""


def earlier(binding: str, decisions: Iterable[Decision]) -> list[str]:
    """The other bindings of which the last decision before `decisions` has to be known: those given more than they had."""
    unknown: dict[str, None] = {}
    decided = {binding}
    for decision in decisions:
        if decision.subject in decided or decision.type not in SCHEDULED:
            continue
        decided.add(decision.subject)
        took = _took.decode(decision.body)
        before = {t.cluster for t in took.previous}
        if any(t.cluster in before for t in took.targets):
            unknown[decision.subject] = None
    return list(unknown)


class Focus:
    """`state` has of the bindings `binding` at most, and is changed in place. `before`: binding -> the requirements of its last
    decision before the rounds that will be folded, of those that `earlier` names."""

    def __init__(self, state: FleetState, binding: str, before: Mapping[str, Requirements]) -> None:
        self.state = state
        self.binding = binding
        state.selections = None  # placements of clusters say nothing about a binding
        self._classes = {name: requirements.class_key for name, requirements in before.items()}
        self._read: dict[bytes, tuple[str, Requirements, Demand]] = {}
        for id, proposal in list(state.proposals.items()):
            if proposal.binding != binding:
                del state.proposals[id]

    def fold(self, at: Micros, events: Iterable[Event[Value]], decisions: Iterable[Decision]) -> None:
        """A round, or of its decisions the first ones. The round before ended with a look at what could lie better."""
        look(self.state)
        self.state.clock = at
        for event in events:
            self.fold_input(event, at)
        for decision in decisions:
            self.fold_decision(decision, at)

    def fold_input(self, event: Event[Value], at: Micros) -> None:
        if self._concerns(event.data):
            self.state.fold_input(event, at)
        else:
            self.state.clock = at

    def fold_decision(self, decision: Decision, at: Micros) -> None:
        state, data = self.state, decision.data
        if decision.type in SCHEDULED and decision.subject != self.binding:
            self._take(_took.decode(decision.body), decision.seq)
            state.clock = at
            return
        match data:
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

    def _take(self, took: Took, seq: int) -> None:
        """What another binding's decision took of its clusters."""
        key, requirements, demand = self._requirements(bytes(took.requirements))
        same_class = self._classes.get(took.binding, key) == key
        self._classes[took.binding] = key
        held = {t.cluster: t.replicas for t in took.previous} if same_class else {}
        claim = Claim(took.binding.rpartition("/")[0])  # of its priority class a decision says nothing
        for target in took.targets:
            grown = target.replicas - held.get(target.cluster, 0)
            cluster = self.state.clusters.get(target.cluster)
            if grown > 0 and cluster is not None:
                cluster.take(Pending(seq, key, grown, requirements, demand, claim))
                self.state.touch(cluster)

    def _requirements(self, raw: bytes) -> tuple[str, Requirements, Demand]:
        """Class key, value and demand: many bindings ask for the same, and the same in the same bytes."""
        found = self._read.get(raw)
        if found is None:
            requirements = _requirements.decode(raw)
            found = self._read[raw] = (requirements.class_key, requirements, demand_of(requirements))
        return found
