"""Whose turn it is: requests, and the bindings that nobody asked about but that may lie otherwise now.

Requests of one round are answered by priority, the oldest first among equals. Then come, in the same order, those that lost
something, those that follow the fleet, and those that wait. What still has no place for the same reason is not decided again, and
who was refused again and again is left alone for a while (`backoff`). Groups are asked whether anything has changed, not bindings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wharfinger.domain.reasons import Trigger
from wharfinger.engine.fleet.trigger import placement_changed
from wharfinger.kernel.decider import Draft
from wharfinger.stages.fleet.clusters import UNLIMITED
from wharfinger.stages.fleet.columns import Column, same
from wharfinger.stages.fleet.drafts import present, retold, schedule
from wharfinger.stages.fleet.failover import refilled
from wharfinger.stages.fleet.groups import grouped
from wharfinger.stages.fleet.places import feasible, terms_of
from wharfinger.stages.fleet.quota import EXCEEDED
from wharfinger.stages.fleet.state import BindingState, FleetState, Waiting

ENOUGH = UNLIMITED**2
"""More than anybody asks for."""

# Requests


def answer_requests(state: FleetState) -> Iterator[Draft]:
    for name in in_turn(state, state.asked):
        record = state.bindings[name]
        if record.only_retold:
            yield retold(record)
            continue
        fresh = record.applied is not None and record.applied_token != record.spec.reschedule
        suspect = record.suspect
        if fresh and record.leaving:  # somebody said so: nothing is on its way out any more
            suspect = tuple(c for c in suspect if c not in record.leaving)
        verdict = present(state, record, fresh=fresh)
        yield schedule(record, *occasion(record), verdict, suspect, record.cause)


def in_turn(state: FleetState, names: Iterable[str]) -> list[str]:
    """Highest priority first, then who asked first."""
    several = list(names)
    if len(several) > 1:
        several.sort(key=lambda n: (-state.bindings[n].spec.priority, state.bindings[n].arrival))
    return several


def occasion(record: BindingState) -> tuple[Trigger, str]:
    """Why a request needs a decision, asked in Karmada's order; and the same for people."""
    spec = record.spec
    if record.applied is None:
        return "FirstSchedule", "never placed before"
    if placement_changed(record.applied, spec.placement, record.affinity):
        return "ReconcileSchedule", "the policy places it otherwise"
    if record.applied_replicas != spec.replicas:
        return "ScaleSchedule", f"scaled from {record.applied_replicas:,} to {spec.replicas:,} replicas"
    if record.applied_token != spec.reschedule:
        return "ReconcileSchedule", "to be placed afresh"
    asks_otherwise = record.applied_class != record.class_key
    return "ReconcileSchedule", "its replicas ask for something else" if asks_otherwise else "asked for again"


# What lost replicas, waits, or follows the fleet


def retry(state: FleetState, round_limit: int) -> Iterator[Draft]:
    """At most `round_limit` of them."""
    left = round_limit
    for name in in_turn(state, state.open):
        record = state.bindings[name]
        if record.left_alone or not (record.shrunk or state.leaving(record)):
            state.open.pop(name, None)
            continue
        if not left:
            return
        draft = reopened(state, record)
        if draft is None:
            state.open.pop(name, None)
            continue
        left -= 1
        yield draft
    names = [*_following(state), *_ripe(state)] if state.stirred else []
    names += [name for (name,) in state.pauses.ripe(state.clock)]
    names += [name for (name,) in state.graces.ripe(state.clock) if state.bindings[name].refused]
    while names := names + state.quotas.ripe(state.bindings, state.facts):
        for name in in_turn(state, names):
            if not left:
                return
            record = state.bindings[name]
            if record.refused and not _may_fit(state, record):
                continue
            draft = reopened(state, record)
            if draft is not None:
                left -= 1
                yield draft
        names = []  # what was given back meanwhile wakes who waits for it


def _following(state: FleetState) -> list[str]:
    """Bindings that go wherever they may, once the facts of some cluster have changed."""
    return list(state.everywhere) if state.everywhere_facts != state.facts else []


def _ripe(state: FleetState) -> list[str]:
    """The waiting bindings for which something has changed that matters to them: groups are asked, not bindings.

    Only a change of facts can change why a binding waits, and only if the feasible clusters are others than before, or lie
    otherwise; where just the estimates have changed, those that need more than the clusters together offer are passed over.
    """
    ripe: list[str] = []
    for group in state.waiting.values():
        first = state.bindings[next(iter(group.names))]
        if group.facts != state.facts and not _chosen_alike(state, group, first):
            ripe += [name for name in group.names if _awake(state, state.bindings[name])]
            continue
        column, made = state.column(first), state.makeable(first)
        recounted = column.total + sum(made) > 0 and not (same(group.values, column.values) and group.made == made)
        offer = _offer(state, first, column) + sum(made) if recounted else 0
        if recounted or group.facts != state.facts:
            for name in group.names:
                record = state.bindings[name]
                otherwise = group.facts != state.facts and not _like_the(first, record)
                roomy = recounted and (record.targets or record.spec.replicas <= offer)
                if (otherwise or roomy) and _awake(state, record):
                    ripe.append(name)
    return ripe


def _chosen_alike(state: FleetState, group: Waiting, first: BindingState) -> bool:
    """Whether for whoever holds nothing the same clusters are feasible as when that was last asked, though facts have changed."""
    choices = tuple([feasible(state, first, term).choice for term in range(len(terms_of(first)))])
    alike = group.facts >= 0 and choices == group.choices
    group.choices = choices
    return alike


def _like_the(first: BindingState, other: BindingState) -> bool:
    """Whether the other is asked about exactly the clusters that the first is asked about: it holds nothing that passes more
    easily, was expelled from nowhere and belongs to no group."""
    return (
        not other.targets
        and not (other.evicted or other.barred)
        and other.divisible == first.divisible
        and not grouped(other.spec)
    )


def _offer(state: FleetState, first: BindingState, column: Column) -> int:
    """What the clusters offer the bindings of a group together, at most; those that ask for more need not be asked."""
    plan = first.plan
    if plan.duplicated or plan.static or column.unlimited or len(terms_of(first)) > 1:
        return ENOUGH
    fit = feasible(state, first, 0)
    return column.total if fit.all_known else column.offer(fit.positions)


def _awake(state: FleetState, record: BindingState) -> bool:
    """Those that were put off come by themselves when their pause ends."""
    return record.pause_until <= state.clock and not record.deferred


def _may_fit(state: FleetState, record: BindingState) -> bool:
    """A cheap bound, exact where it says no: what is missing against what the feasible clusters offer together."""
    if record.refused == EXCEEDED:
        return True
    group = state.waiting.get(record.group)
    if group is None or group.facts != state.facts:
        return True
    if record.plan.problem or not record.divisible:
        return False  # no capacity will mend it
    column, made = state.column(record), sum(state.makeable(record))
    if record.plan.duplicated or record.plan.static or record.sets or column.unlimited:
        return column.total + made > 0
    need = record.spec.replicas - sum(record.targets.values()) - made
    if record.targets or len(record.plan.placement.affinities) > 1:
        return column.total >= need
    fit = feasible(state, record, 0)
    return (column.total if fit.all_known else column.offer(fit.positions)) >= need


def reopened(state: FleetState, record: BindingState) -> Draft | None:
    """A decision nobody asked for: only when it changes the targets, or the reason to wait."""
    gone = tuple(dict.fromkeys([*(c for c in record.before if not state.known(c)), *state.leaves(record)]))
    verdict = refilled(state, record, gone) if gone else present(state, record, retry=waits(record))
    suspect = tuple(c for c in record.suspect if c in verdict.targets)
    if verdict.targets == record.before and verdict.reason == record.refused and suspect == record.suspect:
        return None
    trigger: Trigger = (
        "FailoverSchedule" if gone else "ScaleSchedule" if record.refused or record.shrunk else "ReconcileSchedule"
    )
    cause = record.cause if record.shrunk else state.stirrer
    return schedule(record, trigger, _why_reopened(state, record, gone), verdict, suspect, cause)


def waits(record: BindingState) -> bool:
    """It is asked again for what some cluster may have refused."""
    return bool(record.refused) or record.shrunk


def _why_reopened(state: FleetState, record: BindingState, gone: tuple[str, ...]) -> str:
    if gone:
        how = "is being deleted" if state.known(gone[0]) else "is gone"
        return f"{gone[0]} {how}" if len(gone) == 1 else f"{gone[0]} and {len(gone) - 1} more are gone or being deleted"
    if record.shrunk:
        lost = [c for c in record.before if record.targets.get(c, 0) < record.before[c]]
        return f"{lost[0] if lost else 'a cluster'} gave replicas back"
    return "what it waited for has changed" if record.refused else "the clusters it may go to have changed"
