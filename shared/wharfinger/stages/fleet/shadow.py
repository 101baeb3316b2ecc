"""Compares what Karmada's and OCM's schedulers chose with what we decide on the same facts, one
binding or placement at a time. Nothing is placed.

OCM's clusters have scores by its own prioritizers. Karmada's scheduler scores clusters by locality
alone and divides then, so that two divisions over the same clusters have no scores. Here each
assignment of a binding has up to four, of at most `BEST` points each, computed in the same way for
theirs and for ours:

- `Room`: the part of the replicas that fits by the estimates of their clusters.
- `Locality`: the part of the replicas held before that stays.
- `Division`: how near the numbers are to exact shares of the policy's weights; for Aggregated, how
  few clusters it takes; where every cluster gets all, how many of the feasible clusters it takes.
- `ClusterAffinity`: how early the affinity term is, where there are several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import Policy
from wharfinger.engine.cluster_sets.fleet import PlacementFleet
from wharfinger.engine.cluster_sets.select import SelectionResult, choose
from wharfinger.engine.fleet.assign import ranked
from wharfinger.engine.fleet.decide import Solution, Steps, decide, decide_term
from wharfinger.engine.fleet.question import Detail, Question
from wharfinger.engine.fleet.select import ClusterCandidate, constrained
from wharfinger.engine.fleet.weights import static_weights
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.solve import question_of
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.state.selections import name_of
from wharfinger.stages.shadow import PluginDifference, Refused, ShadowDecision, Verdict

BEST = 1000
"""Points of each score of an assignment."""

MISCONFIGURED = "Misconfigured"


def compare_binding(
    state: FleetState, record: BindingState, held: Mapping[str, int], theirs: Mapping[str, int]
) -> tuple[ShadowDecision, str]:
    """Compares `theirs`, the clusters and replicas that Karmada's scheduler wrote, with our
    decision on the present state. Returns the comparison and the name of the affinity term that
    theirs are in, empty if in none.

    `held`: the clusters and replicas that the binding had before. `theirs` empty: they have none
    for it; the verdict is `unplaced` if we have, else `agreed`."""
    fresh = record.applied is not None and record.applied_token != record.spec.reschedule
    question = question_of(state, record, held, fresh=fresh)
    solution = decide(question, Detail.FULL)
    places = [
        decide_term(question, question.terms[i], Detail.FULL) for i in range(len(question.terms))
    ]
    ours = {} if solution.answer.reason else solution.answer.targets
    place = next((i for i, steps in enumerate(places) if _admits(steps, theirs)), None)
    scores: dict[str, tuple[int, int]] = {}
    refusals: tuple[Refused, ...] = ()
    verdict: Verdict
    if not theirs:
        verdict = "unplaced" if ours else "agreed"
    elif place is None or solution.answer.reason:
        verdict, refusals = "refused", _refusals(solution, places, theirs)
    elif dict(theirs) == dict(ours):
        verdict = "agreed"
    else:
        scores = _scores(question, places, solution, place, theirs)
        verdict = _by_totals(scores)
    spec = record.spec
    found = ShadowDecision(
        spec.uid,
        spec.resource.namespace,
        spec.name.rpartition("/")[2],
        spec.scheduler or "default-scheduler",
        verdict,
        in_words(theirs, record.divisible and not record.sets),
        in_words(ours, record.divisible and not record.sets),
        sum(theirs_ for _, theirs_ in scores.values()),
        sum(ours_ for ours_, _ in scores.values()),
        _differences(scores),
        refusals,
        len(state.order),
        len(places[place or 0].term.feasible.names) if places else 0,
    )
    return found, "" if place is None else places[place].term.affinity.name


def compare_placement(
    fleet: PlacementFleet, policy: Policy, before: Sequence[str], at: Micros
) -> SelectionResult:
    """What we choose for a placement on the present facts. `before`: the clusters that their
    scheduler had chosen, which prioritizers look at; they are recorded in `fleet`."""
    fleet.decided(name_of(policy), before)
    return choose(fleet, policy, at)


def compared_selection(
    result: SelectionResult, policy: Policy, theirs: Sequence[str]
) -> ShadowDecision:
    """Compares `theirs`, the clusters that OCM's scheduler chose, with `result`, our choice on the
    same facts. `theirs` empty: they have none; the verdict is `unplaced` if we have, else
    `agreed`."""
    ours, totals = result.selected, result.total_of
    refusals: tuple[Refused, ...] = ()
    verdict: Verdict
    if not theirs:
        verdict = "unplaced" if ours else "agreed"
    elif result.keeps:
        trouble = result.status_trouble.message or result.sets_trouble
        verdict, refusals = "refused", (Refused(MISCONFIGURED, (trouble,)),)
    elif out := [name for name in theirs if name not in totals]:
        verdict = "refused"
        refusals = tuple([Refused(name, (_why_not(result, name),)) for name in sorted(out)])
    elif set(theirs) == set(ours):
        verdict = "agreed"
    elif len(theirs) != len(ours):
        verdict = "better" if len(ours) > len(theirs) else "worse"
    else:
        verdict = _verdict(sum(totals[n] for n in ours), sum(totals[n] for n in theirs))
    scored = verdict in ("agreed", "equal", "better", "worse")
    return ShadowDecision(
        name_of(policy),
        policy.namespace,
        policy.name,
        "placement-controller",
        verdict,
        ", ".join(sorted(theirs)),
        ", ".join(sorted(ours)),
        sum(totals[n] for n in theirs) if scored else 0,
        sum(totals[n] for n in ours) if scored else 0,
        _prioritizers(result, ours, theirs) if verdict in ("better", "worse") else (),
        refusals,
        len(result.names),
        0 if result.passed is None else len(result.passed),
    )


def in_words(targets: Mapping[str, int], counted: bool) -> str:
    """`bergen 2, oslo 4`; without numbers where replicas are not counted."""
    return ", ".join([f"{name} {targets[name]}" if counted else name for name in sorted(targets)])


# Refusals


def _admits(steps: Steps, theirs: Mapping[str, int]) -> bool:
    return theirs.keys() <= set(steps.term.feasible.names)


def _refusals(
    solution: Solution, places: Sequence[Steps], theirs: Mapping[str, int]
) -> tuple[Refused, ...]:
    """The clusters of theirs that no affinity term admits, each with its reasons in the first term;
    if there is none, why we refuse the binding as a whole."""
    admitted = {name for steps in places for name in steps.term.feasible.names}
    first = places[0].full if places else None
    why = {c.name: reasons for c, reasons in first.refusals} if first is not None else {}
    found = [
        Refused(name, tuple(map(str, why.get(name, ("Unknown",)))))
        for name in sorted(theirs)
        if name not in admitted
    ]
    if not found:
        answer = solution.answer
        found = [Refused(answer.reason or "ClusterAffinity", (answer.note or "no term has all",))]
    return tuple(found)


def _why_not(result: SelectionResult, name: str) -> str:
    """The step of the selection that the cluster did not pass."""
    if name not in result.named(result.available):
        return "in no cluster set that the placement may use"
    return "TaintToleration" if name in result.named(result.matched) else "Predicate"


# Scores


def _scores(
    question: Question,
    places: Sequence[Steps],
    solution: Solution,
    place: int,
    theirs: Mapping[str, int],
) -> dict[str, tuple[int, int]]:
    """Score -> (ours, theirs)."""
    answer = solution.answer
    own = next((i for i, s in enumerate(places) if s.term.affinity.name == answer.affinity), place)
    ours_by = _parts(question, places, own, answer.targets)
    theirs_by = _parts(question, places, place, theirs)
    return {name: (ours_by[name], theirs_by.get(name, 0)) for name in ours_by}


def _parts(
    question: Question, places: Sequence[Steps], place: int, targets: Mapping[str, int]
) -> dict[str, int]:
    offer = {c.name: c for c in ranked(question, places[place].term)}
    found: dict[str, int] = {}
    if total := sum(targets.values()):
        fits = sum(min(n, max(0, offer[name].available)) for name, n in targets.items())
        found["Room"] = BEST * fits // total
    if question.held and not question.fresh:
        found["Locality"] = _locality(question, targets)
    if (division := _division(question, offer, targets)) is not None:
        found["Division"] = division
    if len(places) > 1:
        found["ClusterAffinity"] = BEST * (len(places) - place) // len(places)
    return found


def _locality(question: Question, targets: Mapping[str, int]) -> int:
    held = question.held
    if not sum(held.values()):
        return BEST * len(held.keys() & targets.keys()) // len(held)
    stays = sum(min(n, targets.get(name, 0)) for name, n in held.items())
    return BEST * stays // max(1, min(sum(held.values()), sum(targets.values())))


def _division(
    question: Question, offer: Mapping[str, ClusterCandidate], targets: Mapping[str, int]
) -> int | None:
    """None: the placement says nothing of it."""
    scheduling = question.placement.replicas
    if scheduling.type == "Duplicated" or question.sets or not question.counted:
        return None if constrained(question.placement) else BEST * len(targets) // len(offer)
    used = {name: n for name, n in targets.items() if n > 0}
    if not used:
        return None
    if scheduling.preference == "Aggregated":
        return BEST * _fewest(question.replicas, offer) // len(used)
    # Where the clusters are selected first, they are divided over those that were selected.
    wanted = _shares(question, offer, sorted(used if constrained(question.placement) else offer))
    away = sum(abs(used.get(name, 0) - share) for name, share in wanted.items())
    return max(0, int(BEST * (1 - away / (2 * sum(used.values())))))


def _fewest(replicas: int, offer: Mapping[str, ClusterCandidate]) -> int:
    """How many clusters it takes at least."""
    left, found = replicas, 0
    for available in sorted([c.available for c in offer.values()], reverse=True):
        if left <= 0 or available <= 0:
            break
        left, found = left - available, found + 1
    return max(1, found)


def _shares(
    question: Question, offer: Mapping[str, ClusterCandidate], names: Sequence[str]
) -> dict[str, Fraction]:
    """The exact share of each cluster. By dynamic weights replicas that are held stay: only those
    that come are divided by what still fits, and those that go are taken in proportion."""
    replicas, held = question.replicas, {} if question.fresh else question.held
    weights: Mapping[str, int]
    if not question.placement.replicas.dynamic:
        facts: list[Cluster] = [c for name in names if (c := offer[name].facts) is not None]
        known = static_weights(question.placement, facts) if len(facts) == len(names) else []
        weights = dict(zip(names, known if any(known) else [1] * len(names), strict=True))
        return _divided(replicas, weights)
    kept = {name: held.get(name, 0) for name in names}
    if (come := replicas - sum(kept.values())) < 0:
        return _divided(replicas, kept)
    weights = {name: max(0, offer[name].available - kept[name]) for name in names}
    return {name: kept[name] + share for name, share in _divided(come, weights).items()}


def _divided(count: int, weights: Mapping[str, int]) -> dict[str, Fraction]:
    total = sum(weights.values()) or 1
    return {name: Fraction(count * weight, total) for name, weight in weights.items()}


def _by_totals(scores: Mapping[str, tuple[int, int]]) -> Verdict:
    return _verdict(sum(ours for ours, _ in scores.values()), sum(t for _, t in scores.values()))


def _verdict(ours: int, theirs: int) -> Verdict:
    if ours == theirs:
        return "equal"
    return "better" if ours > theirs else "worse"


def _differences(scores: Mapping[str, tuple[int, int]]) -> tuple[PluginDifference, ...]:
    found = [
        PluginDifference(name, ours, theirs)
        for name, (ours, theirs) in scores.items()
        if ours != theirs
    ]
    return tuple(sorted(found, key=lambda one: (-abs(one.ours - one.theirs), one.plugin)))


def _prioritizers(
    result: SelectionResult, ours: Sequence[str], theirs: Sequence[str]
) -> tuple[PluginDifference, ...]:
    sums: dict[str, tuple[int, int]] = {}
    for scores in result.scores or ():
        by_cluster = result.scores_of(scores)
        own, other = sums.get(scores.name, (0, 0))
        own += scores.weight * sum(by_cluster.get(name, 0) for name in ours)
        other += scores.weight * sum(by_cluster.get(name, 0) for name in theirs)
        sums[scores.name] = own, other
    return _differences(sums)
