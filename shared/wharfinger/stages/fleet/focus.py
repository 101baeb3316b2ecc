"""Builds a reduced fleet state for one decision about one binding: a fast path for explanations.

The reduced state has everything about clusters: facts, counts, and what was decided for them since.
Of other bindings it needs only the capacity that they took. Their decisions state that, because a
decision names its targets and the previous ones. So the rounds since a snapshot are folded without
other bindings, which keeps the state small in a large fleet. Requests of other bindings are not
decoded. Of their decisions usually only the part `Took` is decoded.

Two cases are not in a decision. First, the requirements may have changed, so that all replicas took
capacity again: for bindings that grew, the previous decision is looked up (`earlier`). Second, a
target may have lost replicas by a refusal that was still open: then `previous` has more replicas
than the binding held. Both are rare and are always detected: the decision is taken again on this
state and compared with the recorded bytes. On a difference the caller loads the whole state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args
from uuid import UUID

import msgspec

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.value import Value, json_decoder
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.estimate import Demand, demand_of
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.decisions import PlanAnswer, ScheduleAnswer, as_decision, kinds_about
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.plans import Step
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.events.registry import LATEST, types_of, versions_of
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.stages.fleet.fold import carry_out, fold_decision, fold_input
from wharfinger.stages.fleet.joint_plans import answered_plan
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.state.clusters import Pending
from wharfinger.stages.fleet.steadiness import find_better_placements


class Took(msgspec.Struct, frozen=True):
    """The part that is decoded of another binding's decision: its targets, the previous targets,
    and its requirements."""

    binding: str
    targets: tuple[TargetCluster, ...] = ()
    previous: tuple[TargetCluster, ...] = ()
    requirements: msgspec.Raw = msgspec.Raw(b"{}")


_took = json_decoder(Took)
_requirements = json_decoder(Requirements)

SCHEDULED = types_of(*get_args(ScheduleAnswer))
"""Types of decisions whose data is not decoded where they are about another binding."""

REQUESTS = (LATEST[BindingRequested].type, LATEST[BindingWithdrawn].type)
"""Types of inputs that do not matter here where they are about another binding."""

ASKING = versions_of(BindingRequested)
"""Types of inputs after which a binding may have an open request."""

CARRYING_OUT = versions_of(*kinds_about("plan"))
"""Types of decisions after which any binding may have one."""


def earlier(binding: str, decisions: Iterable[Decision]) -> list[str]:
    """Return the names of the bindings for which the last decision before `decisions` must be read
    too, without `binding` itself. These are the bindings whose first decision in `decisions` keeps
    a cluster as a target.

    This is needed because the capacity that a decision took in such a cluster depends on whether
    the requirements of the binding changed. Example: a target grows from 3 to 5 replicas. With
    unchanged requirements the decision took capacity for 2 replicas. With changed requirements it
    took capacity for 5. Only the earlier decision shows whether they changed. `binding`: the
    binding that is to be explained.
    """
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


class FleetFocus:
    """Folds recorded rounds into a state that keeps only one binding.

    `state`: a fleet state with `binding` only, or with no binding. It is changed in place:
    placements and proposals of other bindings are removed. `before`: binding -> requirements of its
    last decision before the rounds to fold, for the bindings that `earlier` returns.
    """

    def __init__(self, state: FleetState, binding: str, before: Mapping[str, Requirements]) -> None:
        self.state = state
        self.binding = binding
        state.selections = None  # placements of clusters say nothing about a binding
        self._classes = {name: requirements.class_key for name, requirements in before.items()}
        self._read: dict[bytes, tuple[str, Requirements, Demand]] = {}
        for id, proposal in list(state.proposals.open.items()):
            if proposal.binding != binding:
                del state.proposals.open[id]
        state.joint.held = [event for event in state.joint.held if self._concerns(event.data)]

    def fold(
        self, at: Micros, events: Iterable[Event[Value]], decisions: Iterable[Decision]
    ) -> None:
        """Fold one recorded round: its inputs `events`, then its `decisions` or the first of them.
        Before that, carry out what ends the previous round (`find_better_placements`). `at`: the
        time of the round."""
        find_better_placements(self.state)
        self.state.clock = at
        for event in events:
            self.fold_input(event, at)
        for decision in decisions:
            self.fold_decision(decision, at)

    def fold_input(self, event: Event[Value], at: Micros) -> None:
        if self._concerns(event.data):
            fold_input(self.state, event, at)
        else:
            self.state.clock = at

    def fold_decision(self, decision: Decision, at: Micros) -> None:
        state = self.state
        if decision.type in SCHEDULED and decision.subject != self.binding:
            self._take(_took.decode(decision.body), decision.seq)
            state.clock = at
            return
        decided = as_decision(decision.data)
        if isinstance(decision.data, PlanAnswer):
            request, since = answered_plan(state, decision, at)
            if request is not None and not decided.refusal():
                self._carry_out(request.steps, decision.id, since)
        elif decided.ABOUT not in ("binding", "proposal") or decision.subject == self.binding:
            fold_decision(state, decision, at)
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
        """Apply the steps of a plan that concern this state. Each gets the id that it has among all
        steps of the plan."""
        for place, step in enumerate(steps):
            data = step.data
            if not self._concerns(data):
                continue
            if isinstance(data, FailoverProposed | EvictionProposed | RescheduleProposed):
                id = derived_id("step", str(cause), place)
                self.state.proposals.step(id, data, cause)
            else:
                carry_out(self.state, (step,), cause, at)

    def _take(self, took: Took, seq: int) -> None:
        """Deduct from the free capacity of clusters what one decision used there. `took`: the
        decision; it is about another binding than the one that is explained. For each target, this
        is the capacity of the replicas by which the target grew. If the requirements of the binding
        changed, it is the capacity of all replicas of the target. Example: 3 replicas before, 5
        now: the capacity of 2 replicas, or of 5 after a change of the requirements. `seq`: the seq
        of the decision."""
        key, requirements, demand = self._requirements(bytes(took.requirements))
        same_class = self._classes.get(took.binding, key) == key
        self._classes[took.binding] = key
        held = {t.cluster: t.replicas for t in took.previous} if same_class else {}
        # of its priority class a decision says nothing
        claim = Claim(took.binding.rpartition("/")[0])
        for target in took.targets:
            grown = target.replicas - held.get(target.cluster, 0)
            cluster = self.state.clusters.get(target.cluster)
            if grown > 0 and cluster is not None:
                cluster.take(Pending(seq, key, grown, requirements, demand, claim))
                self.state.touch(cluster)

    def _requirements(self, raw: bytes) -> tuple[str, Requirements, Demand]:
        """Decode the JSON of requirements. Return (class key, requirements, demand of one replica).
        The result is cached by the bytes, because many bindings have equal requirements."""
        found = self._read.get(raw)
        if found is None:
            requirements = _requirements.decode(raw)
            found = self._read[raw] = (
                requirements.class_key,
                requirements,
                demand_of(requirements),
            )
        return found
