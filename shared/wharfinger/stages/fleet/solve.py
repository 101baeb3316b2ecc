"""Solves one binding on the present state: builds the `Question`, calls `decide`, and returns a
`SolveResult`.

The feasible clusters are cached for each placement, affinity term and kind, so that bindings of one
policy share them; only clusters whose facts changed are filtered again. Clusters that hold replicas
of the binding are filtered for it separately, because filters admit an existing target more easily
than a new one.

Cost: in a large fleet a few array operations linear in the number of clusters, and Python only for
the clusters that the binding gets or holds; in a small fleet (`columns.FEW`) lists, with the same
results.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.domain.reasons import ScheduleRefusal
from wharfinger.engine.fleet.decide import Solution, decide_term
from wharfinger.engine.fleet.feasible import FEW_PATCHES, Feasible, build, filtered
from wharfinger.engine.fleet.question import NewNodes, Question, Term
from wharfinger.engine.fleet.select import constrained
from wharfinger.events.decisions import Explanation
from wharfinger.rules.clusters.affinity import in_force
from wharfinger.rules.clusters.filters import first_refusal, refusals
from wharfinger.rules.clusters.rule import ClusterQuery
from wharfinger.stages.fleet.certainty import Awaited, decide_surely
from wharfinger.stages.fleet.columns import Array
from wharfinger.stages.fleet.explain import explanation_of
from wharfinger.stages.fleet.groups import grouped
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.state.clusters import UNLIMITED, ClusterState


class SolveResult(msgspec.Struct):
    """The solution for one binding. `reason` empty: `targets` (cluster -> replicas) has all wanted
    replicas. Otherwise `reason` says why not all can be placed, and `targets` has what the binding
    can keep or get."""

    targets: dict[str, int]
    affinity: str
    explanation: Explanation
    reason: ScheduleRefusal | Literal[""] = ""
    waits: Awaited | Literal[""] = ""
    """What the binding should wait for instead of being decided now, see `certainty`; empty:
    nothing."""


def solve(
    state: FleetState,
    record: BindingState,
    held: Mapping[str, int],
    *,
    fresh: bool = False,
    without: tuple[str, ...] = (),
    retry: bool = False,
) -> SolveResult:
    """Decide where the replicas of the binding go. Return the new targets, or the targets that the
    binding can keep with the reason why not all replicas can be placed. If the binding should wait
    for capacity reports instead of being decided now, `waits` in the result says for what.
    `held`: cluster -> replicas that the binding has now, from which the decision starts. `fresh`:
    decide as if the binding held no replicas. `without`: clusters that must not be used. `retry`:
    clusters that have just refused the binding are excluded.
    The question is appended to `state.questions` if this list exists. Quotas of the namespace are
    not considered here (see `drafts.solved`)."""
    question = question_of(state, record, held, fresh=fresh, without=without, retry=retry)
    question, solution, waits = decide_surely(state, record, question)
    if state.questions is not None:
        state.questions.append(msgspec.structs.replace(question, held=dict(held)))
    verdict = _verdict(state, question, solution)
    return msgspec.structs.replace(verdict, waits=waits) if waits else verdict


def solve_in_term(state: FleetState, record: BindingState, place: int) -> SolveResult:
    """Decide the binding afresh under the affinity term with index `place`, whichever term is
    active."""
    question = question_of(state, record, record.targets, fresh=True)
    steps = decide_term(question, question.terms[place])
    return _verdict(state, question, Solution(steps.answer, (steps,)))


def _verdict(state: FleetState, question: Question, solution: Solution) -> SolveResult:
    answer = solution.answer
    explanation = explanation_of(state, question, solution)
    return SolveResult(answer.targets, answer.affinity, explanation, answer.reason)


# The question


def question_of(
    state: FleetState,
    record: BindingState,
    held: Mapping[str, int],
    *,
    fresh: bool = False,
    without: tuple[str, ...] = (),
    retry: bool = False,
) -> Question:
    """Build the question of a binding (all inputs of its decision) from the present state.
    `held`: cluster -> replicas that the binding has now, from which the decision starts. `fresh`:
    decide as if the binding held no replicas. `without`: clusters that must not be used. Clusters
    that the binding was evicted from, or where it was unhealthy, are excluded in addition. `retry`:
    clusters that have just refused the binding are excluded."""
    spec, parsed = record.spec, record.parsed
    if record.evicted or record.excluded_until:
        without = (*without, *state.evicted(record))

    def unknown(name: str) -> int:
        return UNLIMITED if _is_unknown(state.clusters.get(name)) else 0

    # Where no binding has a lower priority, no cluster can preempt: then the two are equal.
    may_preempt = state.binding_index.any_below(spec.priority)
    return Question(
        parsed.placement,
        spec.replicas,
        held,
        SolveTerms(state, record, held, without),
        observed=record.affinity,
        uid=spec.uid,
        problem=parsed.problem,
        counted=record.counted,
        sets=record.sets,
        fresh=fresh,
        retry=retry,
        silent=state.silent,
        new_nodes=(lambda: new_nodes(state, record)) if state.cluster_index.provisioning else None,
        beyond=(lambda name: beyond(state, record, name)) if may_preempt else unknown,
        unknown=unknown,
        uncounted=state.cluster_index.uncounted,
    )


@dataclass(slots=True)
class SolveTerms:
    """The affinity terms of a binding as a sequence. A term's clusters are filtered and estimated
    each time it is read."""

    state: FleetState
    record: BindingState
    held: Mapping[str, int]
    without: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.record.spec.placement.terms)

    def __getitem__(self, place: int) -> Term:
        state, record = self.state, self.record
        fit = _filtered(state, record, place, self.held, self.without)
        return Term(
            term_of(record, place),
            fit,
            estimates_for(state, record, fit),
            lambda: self._asked(place),
        )

    def _asked(self, place: int) -> tuple[ClusterQuery, Sequence[Cluster]]:
        query = query_of(self.state, self.record, place, self.without)
        return query, [c.facts for c in self.state.order if c.facts is not None]


def term_of(record: BindingState, place: int) -> ClusterAffinity:
    """Return the affinity term with index `place`, as it applies to this binding."""
    return in_force(record.spec.placement.terms[place], record.divisible)


# Filter


def feasible(state: FleetState, record: BindingState, place: int) -> Feasible:
    """Return the clusters that pass all filters as new targets under one affinity term of the
    binding's placement. `place`: the index of the term.
    Workload groups are not considered (bindings that must, or must not, run in the same clusters),
    so all bindings with the same placement and kind share the result. It is cached for each
    placement, kind and term. After a change, only clusters with changed facts are filtered again.
    """
    kept, placement = state.estimates, record.parsed.placement
    key = (record.parsed.key, record.spec.resource.gvk, place if record.divisible else -1 - place)
    cached = kept.feasible.get(key)
    if cached is not None and cached.facts == kept.facts:
        return cached
    order, query, version = (
        kept.order,
        _shared_query(state, record, place),
        kept.cluster_set_version,
    )
    changed = None
    if cached is not None and cached.layout == version:
        changed = kept.changed_since(cached.facts)
    if (cached is None or changed is None) and len(kept.feasible) >= kept.cached_max:
        kept.feasible.clear()
    if cached is None or changed is None or (kept.wide and len(changed) > FEW_PATCHES):
        if kept.wide:
            found = filtered(kept.properties(), query)
        else:
            verdicts = refusals(query, [c.facts for c in order if c.facts is not None])
            found = build(order, verdicts, placement, kept.facts, version, wide=False)
    else:
        again = {
            i: first_refusal(query, facts) for i in changed if (facts := order[i].facts) is not None
        }
        found = cached.patched(order, again, placement, kept.facts)
    kept.feasible[key] = found
    return found


def _filtered(
    state: FleetState,
    record: BindingState,
    place: int,
    held: Mapping[str, int],
    without: Collection[str],
) -> Feasible:
    """Return the feasible clusters of one binding under one affinity term. `place`: the index of
    the term. `held`: cluster -> replicas that the binding has now. `without`: clusters that must
    not be used.
    It starts from the cached result that all bindings of the placement share (`feasible`). Clusters
    in `held` are filtered again as existing targets; filters are less strict for existing targets.
    Clusters in `without` are removed. For a binding in a workload group (bindings that must, or
    must not, run in the same clusters), every cluster is filtered again."""
    fit = feasible(state, record, place)
    if grouped(record.spec):
        return _of_group(state, record, fit, held, place, without)
    return _with_held(state, record, fit, held, place, without) if held or without else fit


def _with_held(
    state: FleetState,
    record: BindingState,
    fit: Feasible,
    held: Mapping[str, int],
    place: int,
    without: Collection[str],
) -> Feasible:
    """Return the feasible clusters of one binding: `fit` with corrections. `fit`: the feasible
    clusters that all bindings of the placement share.
    Clusters in `held` (cluster -> replicas) have replicas of the binding. If `fit` refuses such a
    cluster, the cluster is filtered again as an existing target; filters are less strict for
    existing targets. Clusters in `without` are excluded. Return `fit` itself where nothing changes.
    `place`: the index of the affinity term."""
    change: dict[int, None] = {}
    for name in (*held, *without):
        cluster = state.clusters.get(name)
        if cluster is None or cluster.facts is None:
            continue
        admitted = fit.verdicts[cluster.position] is None
        if admitted == (name in without) or (not admitted and name in held):
            change[cluster.position] = None
    if not change:
        return fit
    query, order = _shared_query(state, record, place, without), state.order
    verdicts = {
        i: first_refusal(query, facts, facts.name in held)
        for i in change
        if (facts := order[i].facts) is not None
    }
    return fit.patched(order, verdicts, record.parsed.placement, fit.facts)


def _of_group(
    state: FleetState,
    record: BindingState,
    fit: Feasible,
    held: Mapping[str, int],
    place: int,
    without: Collection[str],
) -> Feasible:
    """Return the feasible clusters of a binding in a workload group (bindings that must, or must
    not, run in the same clusters). Every cluster is filtered for this binding, because the list
    that other bindings of the placement share (`fit`) does not consider workload groups.
    `held`: cluster -> replicas of the binding. These clusters are filtered as existing targets;
    filters are less strict for existing targets. `place`: the index of the affinity term.
    `without`: clusters that must not be used."""
    query = query_of(state, record, place, without)
    verdicts = [
        first_refusal(query, c.facts, c.name in held) for c in state.order if c.facts is not None
    ]
    return build(
        state.order,
        verdicts,
        record.parsed.placement,
        fit.facts,
        fit.layout,
        wide=state.estimates.wide,
    )


def _shared_query(
    state: FleetState, record: BindingState, place: int, without: Collection[str] = ()
) -> ClusterQuery:
    """Build the query that all bindings of a placement share. It has no workload groups."""
    gvk = record.spec.resource.gvk
    return ClusterQuery(record.parsed.placement, term_of(record, place), gvk, state.silent, without)


def query_of(
    state: FleetState, record: BindingState, place: int, without: Collection[str]
) -> ClusterQuery:
    """Build the query by which clusters are filtered for one binding: its placement and affinity
    term, its kind, the silent clusters, the excluded clusters, and its workload groups (the
    clusters where it must run, and must not run, because of other bindings).
    `place`: the index of the affinity term. `without`: the excluded clusters."""
    return ClusterQuery(
        record.parsed.placement,
        term_of(record, place),
        record.spec.resource.gvk,
        state.silent,
        without,
        state.together(record),
        state.apart(record),
    )


# Estimate


def estimates_for(state: FleetState, record: BindingState, fit: Feasible) -> list[int] | Array:
    """Return how many more replicas of the binding fit in each feasible cluster, one number for
    each cluster, in the order of `fit` (the feasible clusters). For component sets the numbers
    count whole sets.
    Where the replicas request nothing, an estimate has no bound; it becomes the wanted number of
    replicas (1 for a component set). A cluster that refused or lost replicas of the binding since
    the last decision gets 0.
    The result is an int64 array in a large fleet and a list in a small one. It is also a list for
    component sets, and where a rule of selection or division handles one cluster at a time."""
    replicas = 1 if record.sets else record.spec.replicas
    column = state.column(record)
    values, positions = column.values, fit.positions
    if isinstance(values, np.ndarray) and (
        replicas > UNLIMITED or record.sets or one_by_one(record.parsed.placement, fit)
    ):
        values = values.tolist()
    estimates: list[int] | Array
    if isinstance(values, list):
        estimates = values if fit.all_known else [values[i] for i in positions]
        if column.unlimited:
            estimates = [replicas if n == UNLIMITED else n for n in estimates]
    else:
        estimates = values if fit.all_known else values[positions]
        if column.unlimited:
            estimates = np.where(estimates == UNLIMITED, replicas, estimates)
    if record.shrunk:
        estimates = _less_what_was_lost(state, record, fit, estimates)
    return estimates


def one_by_one(placement: Placement, fit: Feasible) -> bool:
    """Return whether the rules for selection or division visit clusters one by one. They then need
    lists instead of arrays. `fit`: the feasible clusters."""
    scheduling = placement.replicas
    return (
        (constrained(placement) and fit.groups is None)
        or bool(scheduling.limits)
        or scheduling.within_capacity
        or scheduling.remainder == "in-order"
        or any(term.overflow for term in placement.affinities)
    )


def _less_what_was_lost(
    state: FleetState, record: BindingState, fit: Feasible, estimates: list[int] | Array
) -> list[int] | Array:
    """Return a copy of the estimates in which every cluster that refused or lost replicas of the
    binding since the last decision has 0. The next decision must not use these clusters. `fit`: the
    feasible clusters, in the order of `estimates`.
    Example: estimates of 5 and 3, and the second cluster refused a replica: 5 and 0."""
    estimates = estimates.copy()
    for name in record.before:
        cluster = state.clusters.get(name)
        if cluster is not None and lost(record, name):
            at = fit.index(cluster.position)
            if at >= 0:
                estimates[at] = 0
    return estimates


def lost(record: BindingState, name: str) -> bool:
    """Return whether the cluster has refused or lost some of the binding's replicas since the last
    decision."""
    before, now = record.before.get(name), record.targets.get(name)
    return before is not None and ((now or 0) < before or (record.sets and now is None))


def new_nodes(state: FleetState, record: BindingState) -> list[NewNodes]:
    """Return what the node pools of clusters could add for the binding, with prices, in order of
    cluster name. A cluster that has just refused or lost replicas of the binding is left out."""
    found: list[NewNodes] = []
    for name, count in zip(state.cluster_index.provisioning, state.makeable(record), strict=False):
        capacity = state.clusters[name].capacity
        if count > 0 and capacity is not None and not (record.shrunk and lost(record, name)):
            found.append(NewNodes(name, count, capacity.price_of.get(record.class_key)))
    return found


def beyond(state: FleetState, record: BindingState, name: str) -> int:
    """Return an upper bound of how many more replicas of the binding the cluster `name` may get
    above its estimate, because preemption could make space for them.
    - UNLIMITED: the cluster has not reported its capacity yet.
    - 0: the cluster is unknown or silent, it refused the class, the pods never preempt, or it has
      no replicas of a lower priority.
    - Otherwise: how many of the wanted replicas would fit if all replicas of a lower priority were
      preempted, minus the estimate.
    Example: the estimate is 2, and 5 replicas would fit after preemption: 3. The cluster makes the
    final decision."""
    cluster = state.clusters.get(name)
    if cluster is None or cluster.silent_since is not None:
        return 0
    if not cluster.reports:  # `_is_unknown`
        return UNLIMITED
    spec = record.spec
    if (
        not state.binding_index.any_below(spec.priority)
        or spec.requirements.traits.never_preempts
        or record.class_key in cluster.closed
    ):
        return 0
    below = [
        (other, n)
        for one in state.binding_index.by_cluster.get(name, ())
        if (other := state.bindings[one]).spec.priority < spec.priority
        and (n := other.targets.get(name, 0)) > 0
    ]
    if not below:
        return 0
    assert cluster.room is not None, "it reports its capacity"
    room, demand = cluster.room.copy(), state.estimates.demand_of(record)
    for other, n in below:
        room.take(state.estimates.demand_of(other), -n)
    return max(0, room.fits(demand, spec.replicas) - state.estimates.fits(record, cluster))


def _is_unknown(cluster: ClusterState | None) -> bool:
    """Return whether the cluster is not silent and has not reported its capacity yet."""
    return cluster is not None and cluster.silent_since is None and not cluster.reports
