"""Where a binding may go right now, and how its replicas would lie: the engine asked with what the stage remembers.

The list of feasible clusters is kept per placement, affinity term and kind, so that the many bindings of one policy share it;
only clusters whose facts have changed are asked again. A binding that holds replicas already is asked about those clusters anew,
because what is there passes more easily than what is not.

Cost of a verdict: linear in the clusters by a few array operations in a large fleet, and by Python in the clusters that the
binding gets or holds; in a small fleet (`columns.FEW`) everything lies in lists, with the same results.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import cast

import msgspec
import numpy as np

from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.engine.fleet import cycle
from wharfinger.engine.fleet.assign import Unassignable, assign
from wharfinger.engine.fleet.filters import Question, first_refusal, in_force, refusals
from wharfinger.engine.fleet.select import LOCALITY, constrained
from wharfinger.events.decisions import Explanation, Scored
from wharfinger.stages.fleet.clusters import UNLIMITED
from wharfinger.stages.fleet.columns import Array
from wharfinger.stages.fleet.explain import SHOWN, bounded
from wharfinger.stages.fleet.feasible import Feasible, gathered
from wharfinger.stages.fleet.groups import grouped
from wharfinger.stages.fleet.new_nodes import Answer, raised
from wharfinger.stages.fleet.state import BindingState, FleetState, Solving

MAX_SHOWN = 2**31 - 1
"""Larger numbers are cut in explanations, which show what decided, not how absurd a request was."""


class Verdict(msgspec.Struct):
    """`reason` empty: `targets` hold all that is wanted. Else why not, and `targets` is what the binding can keep or get."""

    targets: dict[str, int]
    affinity: str
    explanation: Explanation
    reason: str = ""


def terms_of(record: BindingState) -> Sequence[ClusterAffinity]:
    return cycle.terms_of(record.spec.placement)


def term_of(record: BindingState, term: int) -> ClusterAffinity:
    """As it is asked of this binding."""
    return in_force(terms_of(record)[term], record.divisible)


def feasible(state: FleetState, record: BindingState, term: int) -> Feasible:
    """The clusters that may be new targets under the placement's `term`-th affinity."""
    key = (record.plan.key, record.spec.resource.gvk, term if record.divisible else -1 - term)
    cached = state.feasible.get(key)
    if cached is not None and cached.facts == state.facts:
        return cached
    order = state.order
    question = _question(state, record, term)
    changed = None
    if cached is not None and cached.layout == state.layout:
        changed = state.changed_since(cached.facts)
    if cached is None or changed is None:
        if len(state.feasible) >= state.cached_max:
            state.feasible.clear()
        verdicts = refusals(question, [c.facts for c in order if c.facts is not None])
        found = gathered(order, verdicts, record.plan.placement, state.facts, state.layout, wide=state.wide)
    else:
        again = {i: first_refusal(question, facts) for i in changed if (facts := order[i].facts) is not None}
        found = cached.patched(order, again, record.plan.placement, state.facts)
    state.feasible[key] = found
    return found


def _question(state: FleetState, record: BindingState, term: int, without: Collection[str] = ()) -> Question:
    """Of all bindings of the placement alike: nothing of the group this one is in."""
    return Question(record.plan.placement, term_of(record, term), record.spec.resource.gvk, state.silent, without)


def question_of(
    state: FleetState, record: BindingState, affinity: ClusterAffinity, without: Collection[str]
) -> Question:
    """All that is asked of a cluster for this binding."""
    return Question(
        record.plan.placement, affinity, record.spec.resource.gvk, state.silent, without, state.together(record),
        state.apart(record),
    )  # fmt: skip


def solve(
    state: FleetState,
    record: BindingState,
    held: Mapping[str, int],
    *,
    fresh: bool = False,
    without: tuple[str, ...] = (),
    retry: bool = False,
) -> Verdict:
    """Where the wanted replicas would lie, given that `held` lies where it lies.

    Affinity terms are tried from the one in force onward, never back, from the first when fresh; if all fail the first
    failure is told. `without`: clusters not to be used. `retry`: a cluster that refused is not asked for what it refused.
    """
    spec, plan = record.spec, record.plan
    if state.solving is not None:
        state.solving.append(Solving(dict(held), fresh, without, retry))
    if record.evicted or record.barred:
        without = (*without, *state.evicted(record))
    if spec.replicas < 0:
        return _refused(held, record.affinity, "InvalidPlacement", f"{spec.replicas} replicas cannot be placed")
    if plan.problem:
        return _refused(held, record.affinity, "InvalidPlacement", plan.problem)
    if spec.replicas == 0 and record.counted:
        return Verdict({}, record.affinity, Explanation(note="scaled to zero"))
    _, verdict = cycle.through_terms(
        plan.placement, record.affinity, fresh,
        lambda term: solve_term(state, record, held, term, fresh, without, retry),
        lambda verdict: bool(verdict.reason),
    )  # fmt: skip
    return verdict


def solve_term(
    state: FleetState,
    record: BindingState,
    held: Mapping[str, int],
    term: int,
    fresh: bool,
    without: Collection[str],
    retry: bool,
) -> Verdict:
    spec, plan = record.spec, record.plan
    fit = feasible(state, record, term)
    if grouped(record.spec):
        fit = _of_group(state, record, fit, held, term, without)
    elif held or without:
        fit = _with_held(state, record, fit, held, term, without)
    affinity, refused = terms_of(record)[term].name, fit.refused
    if not fit.names:
        kept = cycle.left_standing(plan.placement, "NoClusterFit", held)
        return _refused(kept, affinity, "NoClusterFit", "no cluster is feasible", len(state.order), 0, refused)
    estimates = estimates_for(state, record, fit)

    def ask(estimates: list[int] | Array) -> Answer:
        return assign(
            plan.placement, fit.clusters, cast("Sequence[int]", estimates), held, spec.replicas,
            counted=record.counted, fresh=fresh, uid=spec.uid, weights=cast("Sequence[int] | None", fit.weights),
            names=fit.names, affinity=term_of(record, term), sets=record.sets,
            groups=fit.groups if isinstance(estimates, np.ndarray) else None,
        )  # fmt: skip

    found = raised(state, record, fit, held, estimates, retry, ask)
    estimates, answer = found.estimates, found.answer
    if isinstance(answer, Unassignable):
        none_free = sum([n <= 0 for n in estimates]) if isinstance(estimates, list) else int((estimates <= 0).sum())
        if none_free and answer.reason == "Unschedulable":
            refused = {**refused, "NoCapacity": none_free}
        return _refused(held, affinity, answer.reason, answer.note, len(state.order), len(fit), refused)
    targets = answer.replicas
    short = ""
    if record.sets and retry:
        targets, short = _sets_with_room(targets, held, fit, estimates)
    elif record.counted and (plan.static or plan.duplicated) and (retry or (plan.static and state.silent)):
        targets, short = _no_growth_without_room(state, record, targets, held, fit, estimates, retry)
    note = short or found.note(targets, held)
    explanation = _explained(state, fit, estimates, record, held, targets, answer.weights, refused, note)
    if short:
        return Verdict(targets, affinity, explanation, "Unschedulable")
    return Verdict(targets, affinity, explanation)


def estimates_for(state: FleetState, record: BindingState, fit: Feasible) -> list[int] | Array:
    """How many more replicas fit into each of these clusters, as the division is to see it: what has no bound holds all that is
    wanted. An array in a large fleet, except where clusters are chosen one by one."""
    replicas = 1 if record.sets else record.spec.replicas
    column = state.column(record)
    values, positions = column.values, fit.positions
    if isinstance(values, np.ndarray) and (
        replicas > UNLIMITED or record.sets or one_by_one(record.plan.placement, fit)
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
    """Whether clusters are chosen or filled by rules that go through them one by one."""
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
    """What was just refused or lost somewhere is not asked for again in the decision that records it."""
    estimates = estimates.copy()
    for name, n in record.before.items():
        cluster = state.clusters.get(name)
        if cluster is not None and (record.targets.get(name, 0) < n or (record.sets and name not in record.targets)):
            at = fit.index(cluster.position)
            if at >= 0:
                estimates[at] = 0
    return estimates


def _with_held(
    state: FleetState, record: BindingState, fit: Feasible, held: Mapping[str, int], term: int, without: Collection[str]
) -> Feasible:
    """The feasible clusters as this binding sees them: what it holds is asked as existing, `without` is left out."""
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
    question, order = _question(state, record, term, without), state.order
    verdicts = {
        i: first_refusal(question, facts, facts.name in held) for i in change if (facts := order[i].facts) is not None
    }
    return fit.patched(order, verdicts, record.plan.placement, fit.facts)


def _of_group(
    state: FleetState, record: BindingState, fit: Feasible, held: Mapping[str, int], term: int, without: Collection[str]
) -> Feasible:
    """The feasible clusters of a binding that wants to be with others or must not meet some: each is asked anew."""
    question = question_of(state, record, term_of(record, term), without)
    verdicts = [first_refusal(question, c.facts, c.name in held) for c in state.order if c.facts is not None]
    return gathered(state.order, verdicts, record.plan.placement, fit.facts, fit.layout, wide=state.wide)


def _sets_with_room(
    targets: Mapping[str, int], held: Mapping[str, int], fit: Feasible, estimates: list[int] | Array
) -> tuple[dict[str, int], str]:
    """Where sets go whether they fit or not, a cluster that refused one is not asked again before it has room."""
    out = {n: 0 for n in targets if n in held or int(estimates[bisect_left(fit.names, n)]) > 0}
    missing = len(targets) - len(out)
    return out, f"{missing} sets wait for room in their clusters" if missing else ""


def _no_growth_without_room(
    state: FleetState,
    record: BindingState,
    targets: dict[str, int],
    held: Mapping[str, int],
    fit: Feasible,
    estimates: list[int] | Array,
    retry: bool,
) -> tuple[dict[str, int], str]:
    """Strategies that look at no capacity would ask a cluster for ever for what it refused, and a silent one for more.

    On a retry every cluster grows by what fits at most. A silent cluster keeps what it has, and static weights give its
    missing share to the others.
    """
    out = dict(targets)
    if record.plan.static and state.silent:
        pinned = {n: held.get(n, 0) for n in targets if n in state.silent and targets[n] > held.get(n, 0)}
        if pinned:
            others = [i for i, name in enumerate(fit.names) if name not in pinned]
            rest = record.spec.replicas - sum(pinned.values())
            answer = assign(
                record.plan.placement, [fit.clusters[i] for i in others], [int(estimates[i]) for i in others],
                {n: r for n, r in held.items() if n not in pinned}, rest, uid=record.spec.uid,
            )  # fmt: skip
            if isinstance(answer, Unassignable):
                out.update(pinned)
            else:
                out = {n: r for n, r in {**answer.replicas, **pinned}.items() if r > 0}
    if retry:
        for name, n in out.items():
            most = held.get(name, 0) + max(0, int(estimates[bisect_left(fit.names, name)]))
            if n > most:
                out[name] = most
        out = {name: n for name, n in out.items() if n > 0}
    missing = sum(targets.values()) - sum(out.values())
    return out, f"{missing} replicas wait for room in their clusters" if missing > 0 else ""


def _refused(
    held: Mapping[str, int],
    affinity: str,
    reason: str,
    note: str,
    candidates: int = 0,
    fit: int = 0,
    refused: Mapping[str, int] | None = None,
) -> Verdict:
    explanation = bounded(Explanation(candidates, fit, dict(refused or {}), note=note))
    return Verdict(dict(held), affinity, explanation, reason)


def _explained(
    state: FleetState,
    fit: Feasible,
    estimates: list[int] | Array,
    record: BindingState,
    held: Mapping[str, int],
    targets: Mapping[str, int],
    weights: Mapping[str, int],
    refused: dict[str, int],
    note: str,
) -> Explanation:
    """The best few of the chosen and of the others, in rank order: held before not held, then by estimate, then by name."""
    best = _best_of_few if isinstance(estimates, list) else _best_of_many
    chosen, others = [
        tuple([_scored(state, fit, i, int(estimates[i]), record, held) for i in indexes])
        for indexes in best(state, fit, estimates, held, targets)  # type: ignore[arg-type]  # each for its kind
    ]
    division = {c.name: min(weights[c.name], MAX_SHOWN) for c in chosen if c.name in weights}
    return bounded(Explanation(len(state.order), len(fit), refused, chosen, others, division, note))


def _scored(
    state: FleetState, fit: Feasible, i: int, estimate: int, record: BindingState, held: Mapping[str, int]
) -> Scored:
    name = fit.names[i]
    by = state.estimated_by(record, state.clusters[name])
    if name in state.makers and estimate > state.fits(record, state.clusters[name]):
        by = "pools"
    return Scored(name, LOCALITY if name in held else 0, min(estimate, MAX_SHOWN), by)


def _best_of_few(
    state: FleetState, fit: Feasible, estimates: list[int], held: Mapping[str, int], targets: Mapping[str, int]
) -> tuple[list[int], list[int]]:
    """Indexes of the best of the chosen and of the others."""
    names = fit.names
    order = sorted(range(len(names)), key=estimates.__getitem__, reverse=True)
    if held:
        order.sort(key=lambda i: names[i] not in held)
    chosen: list[int] = []
    others: list[int] = []
    full = min(SHOWN, len(targets)) + min(SHOWN, len(names) - len(targets))
    for i in order:
        into = chosen if names[i] in targets else others
        if len(into) < SHOWN:
            into.append(i)
            full -= 1
            if full == 0:
                break
    return chosen, others


def _best_of_many(
    state: FleetState, fit: Feasible, estimates: Array, held: Mapping[str, int], targets: Mapping[str, int]
) -> tuple[list[int], list[int]]:
    """As `_best_of_few`. The best is taken out a few times over: the first of the greatest is the first by name."""
    chosen = np.arange(len(fit)) if len(targets) == len(fit) else _indexes(state, fit, targets)
    ranks = estimates.copy()
    mine = _indexes(state, fit, held)
    if mine.size:
        ranks[mine] += HELD_RANK
    own = ranks[chosen]
    ranks[chosen] = -1
    return [int(chosen[i]) for i in _greatest(own)], _greatest(ranks)


HELD_RANK = 2**40
"""Above every estimate."""


def _greatest(ranks: Array) -> list[int]:
    """Indexes of the `SHOWN` greatest that are not below 0, of equals the first; `ranks` is used up."""
    found: list[int] = []
    for _ in range(min(SHOWN, len(ranks))):
        i = int(ranks.argmax())
        if ranks[i] < 0:
            break
        found.append(i)
        ranks[i] = -1
    return found


def _indexes(state: FleetState, fit: Feasible, names: Mapping[str, int]) -> Array:
    """Where among the feasible clusters those of these names stand, in order; others are left out."""
    clusters, verdicts = state.clusters, fit.verdicts
    found = [
        c.position for name in names if (c := clusters.get(name)) and c.position >= 0 and verdicts[c.position] is None
    ]
    positions = np.array(sorted(found), np.int64)
    return positions if fit.all_known else np.searchsorted(fit.positions, positions)
