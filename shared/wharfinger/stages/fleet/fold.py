"""Folds events and decisions into the fleet state. Makes no decisions.

This module dispatches by type. Folds of clusters are in `fold_clusters`, of bindings in
`fold_bindings`; folds of decisions are registered in tables (`kernel.folds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved, FleetHeard
from wharfinger.events.decisions import as_decision, decided_by
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.plans import PlanRequested, Step
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.events.room import PlanAnswered, RoomTaken
from wharfinger.events.ticks import HeldEventsLaidAside
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.folds import DecisionFolds
from wharfinger.kernel.incarnations import noted
from wharfinger.stages.fleet import fold_bindings, fold_clusters
from wharfinger.stages.fleet.fold_bindings import apply_eviction, apply_outcomes, request, withdraw
from wharfinger.stages.fleet.fold_clusters import (
    apply_capacity,
    apply_policy,
    deduct_promised,
    hear_clusters,
    observe_cluster,
    remove_cluster,
)
from wharfinger.stages.fleet.joint_plans import forget_late, joint_folds
from wharfinger.stages.fleet.state import FleetState, selections
from wharfinger.stages.proposal_refusals import refusal_folds


def fold_input(state: FleetState, event: Event[Value], at: Micros) -> None:
    state.clock = at
    if state.joint.holds_back(event):
        return
    if isinstance(event.data, HeldEventsLaidAside) and event.data.stream == state.stream:
        state.joint.lay_aside(event.data.events)
    for held in state.joint.released():
        _fold_input(state, held, at)
    _fold_input(state, event, at)


def _fold_input(state: FleetState, event: Event[Value], at: Micros) -> None:
    if not state.versions.admits(event, at):
        return
    data = event.data
    if state.selections is not None and isinstance(data, PolicyApplied | PolicyRemoved):
        state.selections.fold_policy(data, event.id)
    match data:
        case BindingRequested(binding=spec):
            request(state, spec, event.id)
        case BindingWithdrawn(name=name):
            withdraw(state, name, event.id)
        case CapacityEstimated():
            apply_capacity(state, data, event.id, at)
        case ClusterObserved(cluster=facts):
            observe_cluster(state, facts, event.id, at)
        case ClusterForgotten(name=name):
            remove_cluster(state, name, event.id)
        case FleetHeard(heard=heard):
            hear_clusters(state, heard, event.id, at)
        case OutcomesDecided():
            apply_outcomes(state, data, event.id)
        case RoomTaken():
            deduct_promised(state, data)
        case FailoverProposed() | EvictionProposed() | RescheduleProposed():
            if data.stream == state.stream:
                state.proposals.open.setdefault(event.id, data)
        case PlanRequested():
            if data.stream == state.stream:
                state.proposals.plans.setdefault(event.id, data)
                if data.others:
                    state.joint.expect(data.plan, at)
        case PlanAnswered():
            if state.stream in data.tell:
                forget_late(state, at)
                state.joint.hear(data, at)
        case PolicyApplied(policy=policy):
            apply_policy(state, policy.key, policy, event.id, at)
        case PolicyRemoved(kind=kind, name=name, namespace=namespace):
            apply_policy(state, Policy(kind, name, namespace).key, None, event.id, at)
        case _:
            # ticks bring the time, which is kept; other events are not for a fleet stream
            state.incarnations = noted(state.incarnations, state.stream, data)


def carry_out(state: FleetState, steps: Sequence[Step], cause: UUID, at: Micros) -> None:
    """Apply the steps of a plan to the state, as if they had arrived as events. `steps`: requests
    and withdrawals of bindings, facts about clusters, and proposals. `cause`: id that becomes the
    cause of the decisions that follow from the steps. `at`: the time of the round. Each proposal
    gets an id that is derived from `cause` and from the position of the step. Raise AssertionError
    if a step has any other data."""
    for place, step in enumerate(steps):
        match step.data:
            case BindingRequested(binding=spec):
                request(state, spec, cause)
            case BindingWithdrawn(name=name):
                withdraw(state, name, cause)
            case ClusterObserved(cluster=facts):
                observe_cluster(state, facts, cause, at)
            case ClusterForgotten(name=name):
                remove_cluster(state, name, cause)
            case FailoverProposed() | EvictionProposed() | RescheduleProposed() as proposal:
                state.proposals.step(derived_id("step", str(cause), place), proposal, cause)
            case _:
                raise AssertionError(f"{type(step.data).__name__} is no step of a fleet stream")


FOLDS = DecisionFolds(
    fold_bindings.FOLDS,
    fold_clusters.FOLDS,
    selections.FOLDS.within(FleetState, lambda state: state.selections),
    refusal_folds(lambda state, proposal: None),
    joint_folds(carry_out),
).covering(decided_by("fleet"))
"""How each kind of decision of a fleet stream changes the state."""


def fold_decision(state: FleetState, decision: Decision, at: Micros) -> None:
    state.clock = at
    FOLDS.fold(state, decision, at)
    about = as_decision(decision.data).ABOUT
    if about in ("plan", "placement"):
        return
    proposal = state.proposals.answered_by(decision)
    if isinstance(proposal, EvictionProposed) and about != "proposal":
        apply_eviction(state, state.bindings[proposal.binding], proposal, decision.id)
