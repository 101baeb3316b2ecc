"""Decides in which order bindings are decided: first those with a request, then those that a change
may affect.

Requests of one round are answered by priority, then age. Then, in the same order: bindings that
lost replicas, bindings that follow the fleet (they go to every feasible cluster), and bindings that
wait. A binding that has no place for the same reason as before is not decided again, and one that
was refused repeatedly is paused (`backoff`). Changes are checked for each group of equal bindings,
not for each binding.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from wharfinger.domain.reasons import Trigger
from wharfinger.engine.fleet.trigger import placement_changed
from wharfinger.kernel.decider import Draft
from wharfinger.stages.fleet.certainty import waits_for_count
from wharfinger.stages.fleet.columns import EstimateColumn, same
from wharfinger.stages.fleet.drafts import present, retold, schedule
from wharfinger.stages.fleet.failover import refilled
from wharfinger.stages.fleet.groups import grouped
from wharfinger.stages.fleet.solve import feasible
from wharfinger.stages.fleet.state import BindingState, FleetState, WaitingGroup
from wharfinger.stages.fleet.state.clusters import UNLIMITED
from wharfinger.stages.fleet.state.quotas import EXCEEDED
from wharfinger.stages.fleet.state.waiting import GroupKey, StandingBinding

ENOUGH = UNLIMITED**2
"""More replicas than any binding can want."""

# Requests


def answer_requests(state: FleetState, limit: int | None = None) -> Generator[Draft, None, int]:
    """Yield the decisions on open requests of bindings, in order of priority, then age. Return how
    many requests were answered. `limit`: the largest number of requests to answer; None: all.

    A request that changes only pod metadata, priority or preferred nodes leaves the targets
    unchanged. A request is skipped if it should wait for the next capacity reports of the clusters:
    the estimates have room for it, but the capacity that is certain does not suffice. Requests of
    lower priority wait behind it, so that they do not take the capacity.
    """
    waiting = HeldBack()
    answered = 0
    for name in in_turn(state, state.waiting.asked):
        if limit is not None and answered >= limit:
            break
        record = state.bindings[name]
        if record.only_pod_metadata_changed:
            answered += 1
            yield retold(record)
            continue
        if waiting.has(state, record):
            continue
        fresh = record.applied is not None and record.applied_token != record.spec.reschedule
        suspect = record.suspect
        if fresh and record.leaving:  # somebody said so: nothing is on its way out any more
            suspect = tuple(c for c in suspect if c not in record.leaving)
        verdict = present(state, record, fresh=fresh)
        if verdict.waits:
            waiting.add(record)
            continue
        answered += 1
        yield schedule(record, *trigger_of(record), verdict, suspect, record.cause)
    return answered


class HeldBack:
    """Collects the bindings of this round that wait for the next capacity counts, to find out which
    others must wait too. Certain capacity only shrinks within a round. So a binding without targets
    waits too, if it wants at least as many replicas as a waiting one of the same group of equal
    bindings. Every binding with a lower priority than the first waiting one waits too; otherwise it
    would take the capacity."""

    def __init__(self) -> None:
        self._least: dict[GroupKey, int] = {}
        self._priority: int | None = None

    def add(self, record: BindingState) -> None:
        if self._priority is None:
            self._priority = record.spec.priority
        if not record.targets and not grouped(record.spec):
            wanted = record.spec.replicas
            self._least[record.group] = min(wanted, self._least.get(record.group, wanted))

    def has(self, state: FleetState, record: BindingState) -> bool:
        if self._priority is None or not waits_for_count(state, record):
            return False
        if record.spec.priority < self._priority:
            return True
        least = self._least.get(record.group)
        return (
            least is not None
            and record.spec.replicas >= least
            and not (record.targets or grouped(record.spec))
        )


def in_turn(state: FleetState, names: Iterable[str]) -> list[str]:
    """Sort bindings by priority, highest first, then by the arrival of their request."""
    several = list(names)
    if len(several) > 1:
        several.sort(key=lambda n: (-state.bindings[n].spec.priority, state.bindings[n].arrival))
    return several


def trigger_of(record: BindingState) -> tuple[Trigger, str]:
    """Return Karmada's trigger of the binding's open request, and a text that says what is new. The
    binding is compared with its last decision. If several things differ, only the first in this
    order is returned: never decided before, placement, number of replicas, reschedule token (a
    value that changes when the binding is to be decided fresh), anything else."""
    spec = record.spec
    if record.applied is None:
        return "FirstSchedule", "never placed before"
    if placement_changed(record.applied, spec.placement, record.affinity):
        return "ReconcileSchedule", "the policy places it otherwise"
    if record.applied_replicas != spec.replicas:
        return (
            "ScaleSchedule",
            f"scaled from {record.applied_replicas:,} to {spec.replicas:,} replicas",
        )
    if record.applied_token != spec.reschedule:
        return "ReconcileSchedule", "to be placed afresh"
    asks_otherwise = record.applied_class != record.class_key
    return (
        "ReconcileSchedule",
        "its replicas ask for something else" if asks_otherwise else "asked for again",
    )


# What lost replicas, waits, or follows the fleet


def retry(state: FleetState, round_limit: int) -> Iterator[Draft]:
    """Yield new decisions on the bindings that a change may affect, at most `round_limit` of them,
    in this order:

    - Open bindings: bindings that lost replicas, or whose cluster is being deleted. An open binding
      that needs no decision is removed from the list.
    - Bindings that go to every feasible cluster, and waiting bindings that may fit now. Both are
      examined only if facts or estimates changed.
    - In the same step as these: bindings whose back-off pause ended, refused bindings for which a
      cluster is no longer excluded, and bindings that wait for quota that was released.
    - Again bindings that wait for quota, if the decisions of the step before released more quota.
      This step is repeated while more quota is released.

    Within each step the order is by priority, then by arrival.
    """
    left = round_limit
    for name in in_turn(state, state.waiting.open):
        record = state.bindings[name]
        if record.left_alone or not (record.shrunk or state.leaves(record)):
            state.waiting.open.pop(name, None)
            continue
        if not left:
            return
        draft = reopened(state, record)
        if draft is None:
            state.waiting.open.pop(name, None)
            continue
        left -= 1
        yield draft
    held_back = HeldBack()
    names = [*_following(state), *_ripe(state)] if state.waiting.retry_due else []
    names += [name for (name,) in state.waiting.pauses.ripe(state.clock)]
    names += [
        name for (name,) in state.waiting.graces.ripe(state.clock) if state.bindings[name].refused
    ]
    while names := names + state.quotas.ripe(state.bindings, state.estimates.facts):
        for name in in_turn(state, names):
            if not left:
                return
            record = state.bindings[name]
            if record.refused and not _may_fit(state, record):
                continue
            if held_back.has(state, record):
                continue
            draft = reopened(state, record, held_back)
            if draft is not None:
                left -= 1
                yield draft
        names = []  # what was given back meanwhile wakes who waits for it


def _following(state: FleetState) -> list[str]:
    """Return the bindings that go to every feasible cluster, if cluster facts changed since these
    bindings were last evaluated; otherwise none. Bindings whose decision would certainly change
    nothing are left out (`stands`)."""
    if state.waiting.everywhere_facts == state.estimates.facts:
        return []
    if state.questions is not None:  # every question is wanted
        return [*state.waiting.everywhere]
    return [name for name in state.waiting.everywhere if not stands(state, state.bindings[name])]


def stands(state: FleetState, record: BindingState) -> bool:
    """Return whether a decision on a binding that goes to every feasible cluster would certainly
    leave everything as it is. False: only a decision can tell. Both checks take a small part of the
    time of a decision. Example: 60 bindings are in 5,000 clusters each. Without the checks, each
    new label of any cluster causes 60 decisions over 5,000 clusters."""
    index, before = state.cluster_index, record.before
    if index.deleting and any(name in before for name in index.deleting):
        return False
    if state.quotas.policies and state.quotas.limits(record.spec.resource.namespace):
        return False
    if _stands_as_before(state, record):
        return True
    if not _stands_everywhere(state, record):
        return False
    _remember_standing(state, record)
    return True


def _stands_as_before(state: FleetState, record: BindingState) -> bool:
    """Return whether the binding was evaluated before and left as it is, and everything that this
    evaluation read is the same. It costs a comparison for each affinity term, with any number of
    clusters. Example: no policy reads the new label of a cluster. Then the same clusters are
    feasible as before, and the binding is not evaluated."""
    standing = state.waiting.standing.get(record.spec.name)
    if standing is None:
        return False
    for place, choice in standing.choices:
        if feasible(state, record, place).choice is not choice:
            return False
    return standing.values is None or (
        not state.cluster_index.provisioning and same(standing.values, state.column(record).values)
    )


def _stands_everywhere(state: FleetState, record: BindingState) -> bool:
    """Return whether the binding is in exactly the feasible clusters of its active affinity term,
    with all wanted replicas in each of them, and its placement has no other condition. Then no
    capacity is needed, so estimates do not matter."""
    spec, placement = record.spec, record.parsed.placement
    wanted = spec.replicas if record.counted else 0
    if (
        (record.counted and not record.parsed.duplicated)
        or record.sets
        or placement.spread
        or any(term.overflow for term in placement.terms)
        or not record.before
        or not _reads_only_clusters(record)
    ):
        return False
    names = feasible(state, record, _active_term(record)).names
    before = record.before
    return (
        len(before) == len(names)
        and list(before) == names
        and list(before.values()).count(wanted) == len(names)
        and not record.shrunk
    )


def _remember_standing(state: FleetState, record: BindingState) -> None:
    """Remember what the present evaluation of the binding read, which leaves it as it is, so that
    `_stands_as_before` can compare. Nothing is remembered where it read more than the feasible
    clusters and the estimates: also where a target is not feasible for a new binding, because the
    filters then read the facts of this target."""
    if record.shrunk or not _reads_only_clusters(record):
        return
    placement, first = record.parsed.placement, _active_term(record)
    if not record.before.keys() <= set(feasible(state, record, first).names):
        return
    terms = placement.terms
    reads_estimates = record.sets or placement.spread or any(term.overflow for term in terms)
    state.waiting.standing[record.spec.name] = StandingBinding(
        tuple([(i, feasible(state, record, i).choice) for i in range(first, len(terms))]),
        state.column(record).values if reads_estimates else None,
    )


def _reads_only_clusters(record: BindingState) -> bool:
    """Return whether a decision on the binding depends on nothing but its request, the feasible
    clusters and the estimates. It also depends on other bindings in a workload group, and on times
    where the binding left a cluster or has to leave one."""
    return not (
        record.parsed.problem
        or record.refused
        or record.suspect
        or record.evicted
        or record.excluded_until
        or record.leaving
        or record.spec.replicas < 0
        or (record.spec.replicas == 0 and record.counted)
        or grouped(record.spec)
    )


def _active_term(record: BindingState) -> int:
    """Return the index of the affinity term that a decision tries first."""
    names = [term.name for term in record.parsed.placement.affinities]
    return names.index(record.affinity) if record.affinity in names else 0


def _ripe(state: FleetState) -> list[str]:
    """Return the names of the waiting bindings that may be placed now, after facts or estimates of
    clusters changed. Bindings that are still in their back-off pause are left out. The check is
    done once for each group of equal bindings, because thousands may wait.

    A change of facts matters only if it changes which clusters are feasible, or how they are
    grouped for spread constraints. If only estimates changed, a binding without targets is left out
    if it wants more replicas than all feasible clusters and their new nodes together can take.
    Example: it wants 10, two feasible clusters have estimates 4 and 5, and no nodes can be created:
    left out.
    """
    ripe: list[str] = []
    for group in state.waiting.groups.values():
        first = state.bindings[next(iter(group.names))]
        if group.facts != state.estimates.facts and not _chosen_alike(state, group, first):
            ripe += [name for name in group.names if _awake(state, state.bindings[name])]
            continue
        column, made = state.column(first), state.estimates.makeable(first)
        recounted = column.total + sum(made) > 0 and not (
            same(group.values, column.values) and group.made == made
        )
        offer = _offer(state, first, column) + sum(made) if recounted else 0
        if recounted or group.facts != state.estimates.facts:
            for name in group.names:
                record = state.bindings[name]
                otherwise = group.facts != state.estimates.facts and not _like_the(first, record)
                roomy = recounted and (record.targets or record.spec.replicas <= offer)
                if (otherwise or roomy) and _awake(state, record):
                    ripe.append(name)
    return ripe


def _chosen_alike(state: FleetState, group: WaitingGroup, first: BindingState) -> bool:
    """Return whether the same clusters are feasible for new targets of the group as at the last
    comparison, although facts changed. Store the present feasible clusters for the next comparison.
    `first`: the first binding of the group."""
    choices = tuple(
        [feasible(state, first, term).choice for term in range(len(first.spec.placement.terms))]
    )
    alike = group.facts >= 0 and choices == group.choices
    group.choices = choices
    return alike


def _like_the(first: BindingState, other: BindingState) -> bool:
    """Return whether the filters treat `other` exactly like `first`, the first binding of its
    group: `other` has no targets, was not evicted from any cluster and is in no workload group."""
    return (
        not other.targets
        and not (other.evicted or other.excluded_until)
        and other.divisible == first.divisible
        and not grouped(other.spec)
    )


def _offer(state: FleetState, first: BindingState, column: EstimateColumn) -> int:
    """Return an upper bound of how many replicas the feasible clusters can take together; `ENOUGH`
    where no such bound applies. `first`: the first binding of the group. `column`: its estimates
    for all clusters."""
    plan = first.parsed
    if plan.duplicated or plan.static or column.unlimited or len(first.spec.placement.terms) > 1:
        return ENOUGH
    fit = feasible(state, first, 0)
    return column.total if fit.all_known else column.offer(fit.positions)


def _awake(state: FleetState, record: BindingState) -> bool:
    """Return whether the pause of the binding is over. A deferred binding is not awake here,
    because `WaitingBindings.pauses` evaluates it."""
    return record.pause_until <= state.clock and not record.deferred


def _may_fit(state: FleetState, record: BindingState) -> bool:
    """Return whether the clusters together may be able to take the missing replicas of a refused
    binding. False: the binding certainly cannot be placed now. True: it may be possible, and only a
    decision can tell. The check is much cheaper than a decision. Example for divided replicas: 6
    are missing, the estimates of the feasible clusters are 2 and 3, and no nodes can be created:
    False. With 2 and 4: True."""
    if record.refused == EXCEEDED:
        return True
    group = state.waiting.groups.get(record.group)
    if group is None or group.facts != state.estimates.facts:
        return True
    if record.parsed.problem or not record.divisible:
        return False  # no capacity will mend it
    column, made = state.column(record), sum(state.estimates.makeable(record))
    if record.parsed.duplicated or record.parsed.static or record.sets or column.unlimited:
        return column.total + made > 0
    need = record.spec.replicas - sum(record.targets.values()) - made
    if record.targets or len(record.parsed.placement.affinities) > 1:
        return column.total >= need
    fit = feasible(state, record, 0)
    return (column.total if fit.all_known else column.offer(fit.positions)) >= need


def reopened(
    state: FleetState, record: BindingState, held_back: HeldBack | None = None
) -> Draft | None:
    """Decide again a binding that has no open request. Return the draft (a decision that has no seq
    yet), or None if the decision would change nothing: the same targets, the same suspects (target
    clusters that are silent or that the binding moves away from), and the same reason of the
    refusal.

    `held_back`: collects the bindings that should wait for the next capacity reports. A binding
    that should wait is added to it and is not decided; the result is None. If `held_back` is None,
    or if a target cluster was removed or is being deleted, the binding is decided in any case.
    """
    gone = tuple(
        dict.fromkeys([*(c for c in record.before if not state.known(c)), *state.leaves(record)])
    )
    verdict = refilled(state, record, gone) if gone else present(state, record, retry=waits(record))
    if verdict.waits and held_back is not None and not gone:
        held_back.add(record)
        return None
    suspect = tuple(c for c in record.suspect if c in verdict.targets)
    if (
        verdict.targets == record.before
        and verdict.reason == record.refused
        and suspect == record.suspect
    ):
        if (
            not (gone or verdict.waits)
            and verdict.affinity == record.affinity
            and record.spec.name in state.waiting.everywhere
        ):
            _remember_standing(state, record)
        return None
    trigger: Trigger = (
        "FailoverSchedule"
        if gone
        else "ScaleSchedule"
        if record.refused or record.shrunk
        else "ReconcileSchedule"
    )
    cause = record.cause if record.shrunk else state.retry_cause
    return schedule(record, trigger, _why_reopened(state, record, gone), verdict, suspect, cause)


def waits(record: BindingState) -> bool:
    """Return whether the binding is decided as a retry: it waits for a place, or it lost
    replicas."""
    return bool(record.refused) or record.shrunk


def _why_reopened(state: FleetState, record: BindingState, gone: tuple[str, ...]) -> str:
    if gone:
        how = "is being deleted" if state.known(gone[0]) else "is gone"
        return (
            f"{gone[0]} {how}"
            if len(gone) == 1
            else f"{gone[0]} and {len(gone) - 1} more are gone or being deleted"
        )
    if record.shrunk:
        lost = [c for c in record.before if record.targets.get(c, 0) < record.before[c]]
        return f"{lost[0] if lost else 'a cluster'} gave replicas back"
    return (
        "what it waited for has changed"
        if record.refused
        else "the clusters it may go to have changed"
    )
