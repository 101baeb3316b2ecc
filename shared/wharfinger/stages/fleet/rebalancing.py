"""Checks a proposed rebalance move at the time it is decided.

The proposer evaluated all clusters and selected the move. The checks here must hold even after the
proposer restarts: the policy still asks for the move; enough time has passed since the binding's
last move; within the policy's window, no more replicas leave a cluster than its budget allows; and
the gain still exists. Recent departures are part of the stream's state, so a restart does not renew
the budget. Nothing moves to or from a silent cluster, or while failover is paused for the fleet.

With several fleet streams, each has a budget for the replicas it placed itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.domain.time import SECOND
from wharfinger.engine.fleet.objective import ObjectiveCluster
from wharfinger.engine.fleet.rebalance import NAMES, is_worth, prices_of, worth
from wharfinger.events.proposals import RescheduleProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.relocate import place_in, resource_of
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.steadiness import keeps_limits

No = tuple[ProposalRefusal, str]


def objection(
    state: FleetState, record: BindingState, proposal: RescheduleProposed, at: Micros
) -> No | None:
    """Check a rebalance move that a policy proposed for the binding. Return (reason, text) if the
    move is refused. None: it is allowed. `at`: the time of the round.
    The move is allowed if all of these hold:
    - The policy still exists and has the objective that the proposal names (such as cost).
    - Failover is not paused for the fleet, and no target cluster before or after the move is
      silent.
    - No other decision about the binding is open: a request, a refusal, a loss of replicas, or a
      silent cluster.
    - Every cluster keeps the minimum and maximum of replicas that the placement sets for it.
    - The binding was not moved within the policy's time window, and the limit of moves per minute
      is not reached.
    - Within the window, at most `budget_percent` of a cluster's replicas leave the cluster.
      Example: a cluster had 100 replicas, the budget is 10 %, and 8 replicas have left; 2 more may
      leave.
    - The objective improves by at least `gain_percent`.
    `relocate.relocation` checks filters, spread constraints and capacity in addition."""
    policy = state.rebalancing.get(proposal.policy)
    if policy is None or policy.objective is None or NAMES[policy.objective] != proposal.objective:
        return "Changed", "its policy is gone, or minds something else now"
    if state.held:
        return "FleetHeld", "over half of the clusters with a lease are silent"
    if record.asked or record.refused or record.shrunk or record.suspect:
        return "Changed", "something else is being decided about it"
    wanted = {target.cluster: target.replicas for target in proposal.targets}
    if not keeps_limits(record, wanted):
        return "ClusterInfeasible", "a cluster would have more or fewer replicas than it may"
    if silent := [name for name in sorted({*wanted, *record.targets}) if name in state.silent]:
        return "Held", f"{silent[0]} is silent"
    return _spent(state, record, policy, wanted, at) or _too_little(state, record, policy, wanted)


def _spent(
    state: FleetState,
    record: BindingState,
    policy: RebalancePolicy,
    wanted: Mapping[str, int],
    at: Micros,
) -> No | None:
    window = policy.window_s * SECOND
    if record.moved_at and record.moved_at + window > at:
        rested = (at - record.moved_at) // SECOND
        return "BudgetSpent", f"it was moved {rested:,} s ago, and rests for {policy.window_s:,} s"
    if not state.moves.left(at):
        return "BudgetSpent", "enough bindings were moved within this minute"
    for name, n in sorted(record.targets.items()):
        leaving = n - wanted.get(name, 0)
        if leaving <= 0:
            continue
        gone = state.moves.departures(name, at, window)
        there = sum(
            state.bindings[binding].targets.get(name, 0)
            for binding in state.by_cluster.get(name, ())
        )
        budget = -(-(there + gone) * policy.budget_percent // 100)
        if gone + leaving > budget:
            share = f"{policy.budget_percent}% of {there + gone:,} replicas"
            return (
                "BudgetSpent",
                f"{share} may leave {name} in {policy.window_s:,} s: {budget:,}, and {gone:,} have",
            )
    return None


def _too_little(
    state: FleetState, record: BindingState, policy: RebalancePolicy, wanted: Mapping[str, int]
) -> No | None:
    assert policy.objective is not None, "asked about before"
    resource, held = resource_of(record.spec.requirements), record.targets
    request = record.spec.requirements.requests.get(resource, 0)
    names = [name for name in sorted({*wanted, *held}) if state.known(name)]
    places: dict[str, ObjectiveCluster] = {}
    prices: dict[str, int] = {}
    if policy.objective == "cost":
        known = {
            name: (state.clusters[name].facts, state.clusters[name].capacity) for name in names
        }
        prices = prices_of(held, known, record.class_key, record.spec.requirements)
    elif policy.objective == "load":
        places = {name: place_in(state, name, resource) for name in names}
    found = worth(policy.objective, held, wanted, request, places, prices)
    if found is None:
        return "NotBetter", "a price or a capacity is not known"
    if not is_worth(*found, policy.gain_percent):
        return (
            "NotBetter",
            (
                f"what moves stands for {found[0]:,} and would for {found[1]:,}: "
                f"less than {policy.gain_percent}%"
            ),
        )
    return None
