"""Where a binding may go right now, and how its replicas would lie: the engine asked with what the stage remembers.

The list of feasible clusters is kept per placement, affinity term and kind until the facts of clusters change, so that the
many bindings of one policy share it. A binding that holds replicas already is asked about those clusters anew, because
what is there passes more easily than what is not.

Cost of a verdict: linear in the feasible clusters (an estimate is counted again only where something was touched), plus
their sorting where the strategy ranks them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity
from wharfinger.engine.fleet.assign import Unassignable, assign, static_weights
from wharfinger.engine.fleet.filters import Question, first_refusal
from wharfinger.engine.fleet.select import LOCALITY
from wharfinger.engine.fleet.trigger import ANY_CLUSTER
from wharfinger.events.decisions import Explanation, Scored
from wharfinger.stages.fleet.clusters import UNLIMITED
from wharfinger.stages.fleet.explain import SHOWN, bounded
from wharfinger.stages.fleet.state import CACHED, BindingState, Feasible, FleetState, Solving

MANY = 64
"""Above so many clusters the few that are shown are picked, below all are sorted."""

MAX_SHOWN = 2**31 - 1
"""Larger numbers are cut in explanations, which show what decided, not how absurd a request was."""


class Verdict(msgspec.Struct):
    """`reason` empty: `targets` hold all that is wanted. Else why not, and `targets` is what the binding can keep or get."""

    targets: dict[str, int]
    affinity: str
    explanation: Explanation
    reason: str = ""


def terms_of(record: BindingState) -> Sequence[ClusterAffinity]:
    return record.spec.placement.affinities or (ANY_CLUSTER,)


def feasible(state: FleetState, record: BindingState, term: int) -> Feasible:
    """The clusters that may be new targets under the placement's `term`-th affinity."""
    key = (record.plan.key, record.spec.resource.gvk, term)
    cached = state.feasible.get(key)
    if cached is not None and cached.facts == state.facts:
        return cached
    if len(state.feasible) >= CACHED:
        state.feasible.clear()
    question = Question(record.plan.placement, terms_of(record)[term], key[1], state.silent)
    found = Feasible(state.facts, [], [], [], {}, None)
    for position, cluster in enumerate(state.order):
        facts = cluster.facts
        assert facts is not None  # only known clusters are laid out
        reason = first_refusal(question, facts)
        if reason is None:
            found.clusters.append(facts)
            found.names.append(facts.name)
            found.positions.append(position)
        else:
            found.refused[reason] = found.refused.get(reason, 0) + 1
    if record.plan.static:
        found.weights = static_weights(record.plan.placement, found.clusters)
    state.feasible[key] = found
    return found


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
    if record.evicted:
        without = (*without, *state.evicted(record))
    if spec.replicas < 0:
        return _refused(held, record.affinity, "InvalidPlacement", f"{spec.replicas} replicas cannot be placed")
    if plan.problem:
        return _refused(held, record.affinity, "InvalidPlacement", plan.problem)
    if spec.replicas == 0 and record.counted:
        return Verdict({}, record.affinity, Explanation(note="scaled to zero"))
    terms = terms_of(record)
    start = 0
    if len(terms) > 1 and not fresh:
        start = next((i for i, term in enumerate(terms) if term.name == record.affinity), 0)
    failure: Verdict | None = None
    for term in range(start, len(terms)):
        verdict = solve_term(state, record, held, term, fresh, without, retry)
        if not verdict.reason:
            return verdict
        failure = failure or verdict
    assert failure is not None
    return failure


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
    shared = feasible(state, record, term)
    clusters, names, positions, refused = shared.clusters, shared.names, shared.positions, shared.refused
    weights = shared.weights
    if held or without:
        clusters, positions, refused = _with_held(state, record, shared, held, term, without)
        if clusters is not shared.clusters:
            names, weights = [c.name for c in clusters], None
    affinity = terms_of(record)[term].name
    if not clusters:
        return _refused(held, affinity, "NoClusterFit", "no cluster is feasible", len(state.order), 0, refused)
    column = state.column(record.class_key, spec.requirements)
    values = column.values
    estimates = values if len(positions) == len(values) else [values[i] for i in positions]
    if column.unlimited:
        estimates = [spec.replicas if n == UNLIMITED else n for n in estimates]
    if record.shrunk:  # what was just refused or lost there is not asked for again in the decision that records it
        targets, before = record.targets, record.before
        estimates = [
            0 if c.name in before and targets.get(c.name, 0) < before[c.name] else n
            for c, n in zip(clusters, estimates, strict=True)
        ]
    answer = assign(
        plan.placement, clusters, estimates, held, spec.replicas, counted=record.counted, fresh=fresh, uid=spec.uid,
        weights=weights,
        names=names,
    )  # fmt: skip
    if isinstance(answer, Unassignable):
        none_free = sum([n <= 0 for n in estimates])
        if none_free and answer.reason == "Unschedulable":
            refused = {**refused, "NoCapacity": none_free}
        return _refused(held, affinity, answer.reason, answer.note, len(state.order), len(clusters), refused)
    targets = answer.replicas
    short = ""
    if record.counted and (plan.static or plan.duplicated) and (retry or (plan.static and state.silent)):
        targets, short = _no_growth_without_room(state, record, targets, held, clusters, estimates, retry)
    explanation = _explained(
        state, names, positions, estimates, record.class_key, held, targets, answer.weights, refused, short
    )
    if short:
        return Verdict(targets, affinity, explanation, "Unschedulable")
    return Verdict(targets, affinity, explanation)


def _with_held(
    state: FleetState,
    record: BindingState,
    shared: Feasible,
    held: Mapping[str, int],
    term: int,
    without: Collection[str],
) -> tuple[list[Cluster], list[int], dict[str, int]]:
    """The feasible clusters as this binding sees them: what it holds is asked as existing, `without` is left out."""
    known = {c.name for c in shared.clusters}
    change = [name for name in held if name not in known or name in without] + [n for n in without if n in known]
    if not change:
        return shared.clusters, shared.positions, shared.refused
    question = Question(record.plan.placement, terms_of(record)[term], record.spec.resource.gvk, state.silent, without)
    positions = dict.fromkeys(shared.positions)
    refused = dict(shared.refused)
    for name in dict.fromkeys(change):
        cluster = state.clusters.get(name)
        if cluster is None or cluster.facts is None:
            continue
        alone = first_refusal(
            Question(question.placement, question.affinity, question.gvk, state.silent), cluster.facts
        )
        now = first_refusal(question, cluster.facts, name in held)
        if alone is not None:
            refused[alone] -= 1
        if now is None:
            positions[cluster.position] = None
        else:
            refused[now] = refused.get(now, 0) + 1
            positions.pop(cluster.position, None)
    order = sorted(positions)
    facts = [f for i in order if (f := state.order[i].facts) is not None]
    return facts, order, {reason: n for reason, n in refused.items() if n > 0}


def _no_growth_without_room(
    state: FleetState,
    record: BindingState,
    targets: dict[str, int],
    held: Mapping[str, int],
    clusters: Sequence[Cluster],
    estimates: Sequence[int],
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
            others = [c for c in clusters if c.name not in pinned]
            rest = record.spec.replicas - sum(pinned.values())
            answer = assign(
                record.plan.placement, others, [0] * len(others), {}, rest, uid=record.spec.uid
            )  # fmt: skip
            if isinstance(answer, Unassignable):
                out.update(pinned)
            else:
                out = {n: r for n, r in {**answer.replicas, **pinned}.items() if r > 0}
    if retry:
        for cluster, fits in zip(clusters, estimates, strict=True):
            most = held.get(cluster.name, 0) + max(0, fits)
            if out.get(cluster.name, 0) > most:
                out[cluster.name] = most
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
    names: Sequence[str],
    positions: Sequence[int],
    estimates: Sequence[int],
    class_key: str,
    held: Mapping[str, int],
    targets: Mapping[str, int],
    weights: Mapping[str, int],
    refused: dict[str, int],
    note: str,
) -> Explanation:
    """The best few of the chosen and of the others, in rank order: held before not held, then by estimate, then by name."""
    chosen: list[Scored] = []
    others: list[Scored] = []
    full = min(SHOWN, len(targets)) + min(SHOWN, len(names) - len(targets))
    for i in _best_first(names, estimates, held, targets):
        name = names[i]
        into = chosen if name in targets else others
        if len(into) < SHOWN:
            score = LOCALITY if name in held else 0
            estimate = estimates[i] if estimates[i] < MAX_SHOWN else MAX_SHOWN
            into.append(Scored(name, score, estimate, state.order[positions[i]].estimated_by(class_key)))
            full -= 1
            if full == 0:
                break
    division = {c.name: min(weights[c.name], MAX_SHOWN) for c in chosen if c.name in weights}
    return bounded(Explanation(len(state.order), len(names), refused, tuple(chosen), tuple(others), division, note))


def _best_first(
    names: Sequence[str], estimates: Sequence[int], held: Mapping[str, int], targets: Mapping[str, int]
) -> Sequence[int]:
    """Enough of the clusters' indexes in rank order to name the best few of the chosen and of the others."""
    if len(names) <= MANY:
        order: Sequence[int] = sorted(range(len(names)), key=estimates.__getitem__, reverse=True)
        return sorted(order, key=lambda i: names[i] not in held) if held else order
    mine = [i for i, name in enumerate(names) if name in targets] if len(targets) > 1 else [
        names.index(name) for name in targets if name in names
    ]  # fmt: skip
    best = nlargest(SHOWN, mine, key=lambda i: (names[i] in held, estimates[i]))
    if held:
        rest = nlargest(SHOWN + len(targets), range(len(names)), key=lambda i: (names[i] in held, estimates[i]))
    else:
        rest = nlargest(SHOWN + len(targets), range(len(names)), key=estimates.__getitem__)
    return [*best, *(i for i in rest if names[i] not in targets)]
