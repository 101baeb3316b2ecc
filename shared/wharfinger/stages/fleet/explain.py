"""Builds the recorded explanation of a decision: a few lines that say why, at most 2 KiB also
where names are long.

The explanation is hashed and published with its decision. `wharfinger explain` computes again what
is left out (every candidate, every rule).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from wharfinger.domain.reasons import NO_CAPACITY
from wharfinger.domain.value import canonical
from wharfinger.engine.fleet.assign import ReplicaDivision
from wharfinger.engine.fleet.decide import Solution, Steps
from wharfinger.engine.fleet.feasible import Feasible
from wharfinger.engine.fleet.question import Question
from wharfinger.events.decisions import Explanation, FailoverSets, ScoredCandidate
from wharfinger.rules.clusters.locality import locality
from wharfinger.stages.fleet.columns import Array
from wharfinger.stages.fleet.state import BindingState, FleetState

MAX_SHOWN = 2**31 - 1
"""Larger numbers are replaced by this one in explanations, so that an absurdly large request does
not make them long."""

SHOWN = 4
"""How many of the chosen clusters, and how many of the runners-up, an explanation names."""

LIMIT = 2048
"""The largest size of an explanation, in bytes of canonical JSON."""

PLENTY = 150
"""With at most this many characters of names and note, an explanation fits into `LIMIT`, even at
six bytes for each character and with every number at its longest."""

NOTE_LENGTH = 200

WHY_LENGTH = 120


def explanation_of(
    state: FleetState, record: BindingState, question: Question, solution: Solution
) -> Explanation:
    """Build the explanation of a solution. It describes the affinity term that led to the answer:
    how many clusters were evaluated, how many were feasible, and how many were refused for which
    reason. If replicas were divided, it also names the best of the chosen clusters. If no affinity
    term led to the answer, the explanation has only the note of the answer."""
    answer, steps = solution.answer, solution.decisive
    if steps is None:
        return bounded(Explanation(note=answer.note))
    fit = steps.term.feasible
    looked_at = len(fit.verdicts)
    if isinstance(steps.outcome, ReplicaDivision):
        return _assigned(state, record, question, steps, steps.outcome.weights)
    refused = dict(fit.refused)
    if exhausted := steps.exhausted:
        refused[NO_CAPACITY] = exhausted
    return bounded(Explanation(looked_at, len(fit), refused, note=answer.note))


def _assigned(
    state: FleetState,
    record: BindingState,
    question: Question,
    steps: Steps,
    weights: Mapping[str, int],
) -> Explanation:
    """Build the explanation of a division of replicas over clusters. It names the best of the
    chosen clusters with their weights, and the best of the other feasible clusters, at most 4
    (`SHOWN`) of each.

    The clusters are ranked in this order: clusters that held replicas of the binding come first;
    then the higher estimate; then the name. `weights`: cluster -> its weight in the division.
    """
    fit, estimates = steps.term.feasible, steps.term.estimates
    targets, held = steps.answer.targets, question.held
    if isinstance(estimates, list):
        best = _best_of_few(fit, estimates, held, targets)
    else:
        assert isinstance(estimates, np.ndarray), "estimates are a list or an array"
        best = _best_of_many(state, fit, estimates, held, targets)
    chosen, others = [
        tuple([_scored(state, record, fit.names[i], int(estimates[i]), held) for i in indexes])
        for indexes in best
    ]
    division = {c.name: min(weights[c.name], MAX_SHOWN) for c in chosen if c.name in weights}
    note = steps.answer.note
    return bounded(
        Explanation(len(fit.verdicts), len(fit), fit.refused, chosen, others, division, note)
    )


def _scored(
    state: FleetState, record: BindingState, name: str, estimate: int, held: Mapping[str, int]
) -> ScoredCandidate:
    by = state.estimated_by(record, state.clusters[name])
    if name in state.cluster_index.provisioning and estimate > state.fits(
        record, state.clusters[name]
    ):
        by = "pools"
    return ScoredCandidate(name, locality(name, held), min(estimate, MAX_SHOWN), by)


def bounded(explanation: Explanation) -> Explanation:
    """Return the explanation, shortened to at most 2,048 bytes (`LIMIT`) of canonical JSON.

    First `note` is cut to 200 characters and `why` to 120. Then parts are removed until the rest is
    short enough, in this order:

    - the best clusters that were not chosen, from the last one;
    - the division (cluster -> weight);
    - the chosen clusters, from the last one; the first one stays;
    - the cluster names in the failover sets (reserved, available, candidate and failed clusters);
      the sizes of the sets stay;
    - the first chosen cluster, together with the note.
    """
    chosen, others = explanation.chosen, explanation.runners_up
    length = 2 * sum([len(s.name) for s in chosen]) + sum([len(s.name) for s in others])
    if (
        length + len(explanation.note) + len(explanation.why) <= PLENTY
        and explanation.failover is None
    ):
        return explanation
    if len(explanation.note) > NOTE_LENGTH:
        explanation = msgspec.structs.replace(explanation, note=_cut(explanation.note, NOTE_LENGTH))
    if len(explanation.why) > WHY_LENGTH:
        explanation = msgspec.structs.replace(explanation, why=_cut(explanation.why, WHY_LENGTH))
    while len(canonical(explanation)) > LIMIT:
        if explanation.runners_up:
            explanation = msgspec.structs.replace(
                explanation, runners_up=explanation.runners_up[:-1]
            )
        elif explanation.division:
            explanation = msgspec.structs.replace(explanation, division={})
        elif len(explanation.chosen) > 1:
            explanation = msgspec.structs.replace(explanation, chosen=explanation.chosen[:-1])
        elif explanation.failover is not None and explanation.failover.failed:
            sets = FailoverSets(counts=explanation.failover.counts)
            explanation = msgspec.structs.replace(explanation, failover=sets)
        else:
            explanation = msgspec.structs.replace(explanation, chosen=(), note="")
    return explanation


def _cut(text: str, length: int) -> str:
    return text[: length - 1] + "…"


def _best_of_few(
    fit: Feasible, estimates: list[int], held: Mapping[str, int], targets: Mapping[str, int]
) -> tuple[list[int], list[int]]:
    """Return two lists of indexes into the feasible clusters: the best clusters that were chosen,
    and the best clusters that were not. Each list has at most 4 (`SHOWN`) indexes.

    Clusters that held replicas before come first; then the higher estimate; then the name. Example:
    estimates [5, 9, 7], no replicas before, clusters 0 and 2 chosen: ([2, 0], [1]). `fit`: the
    feasible clusters. `estimates[i]`: how many more replicas fit in cluster i. `held`, `targets`:
    cluster -> replicas before and after the decision.
    """
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
    state: FleetState,
    fit: Feasible,
    estimates: Array,
    held: Mapping[str, int],
    targets: Mapping[str, int],
) -> tuple[list[int], list[int]]:
    """Return two lists of indexes into the feasible clusters: the best clusters that were chosen,
    and the best clusters that were not. Each list has at most 4 (`SHOWN`) indexes.

    Clusters that held replicas before come first; then the higher estimate; then the name. The
    function gives the same result as `_best_of_few`, but is faster for many clusters: it takes the
    maximum of an array repeatedly. `fit`: the feasible clusters. `estimates`: int64, how many more
    replicas fit in each feasible cluster. `held`, `targets`: cluster -> replicas before and after
    the decision.
    """
    chosen = np.arange(len(fit)) if len(targets) == len(fit) else _indexes(state, fit, targets)
    ranks = estimates.copy()
    mine = _indexes(state, fit, held)
    if mine.size:
        ranks[mine] += HELD_RANK
    own = ranks[chosen]
    ranks[chosen] = -1
    return [int(chosen[i]) for i in _greatest(own)], _greatest(ranks)


HELD_RANK = 2**40
"""Is added to the rank of a cluster that holds replicas; larger than every estimate."""


def _greatest(ranks: Array) -> list[int]:
    """Return the indexes of the greatest values of `ranks` that are not negative, at most `SHOWN`
    of them, the greatest first; ties by index. Overwrites `ranks`."""
    found: list[int] = []
    for _ in range(min(SHOWN, len(ranks))):
        i = int(ranks.argmax())
        if ranks[i] < 0:
            break
        found.append(i)
        ranks[i] = -1
    return found


def _indexes(state: FleetState, fit: Feasible, names: Mapping[str, int]) -> Array:
    """Return the sorted indexes of the clusters `names` in the list of feasible clusters `fit`. A
    name that is not feasible is left out."""
    clusters, verdicts = state.clusters, fit.verdicts
    found = [
        c.position
        for name in names
        if (c := clusters.get(name)) and c.position >= 0 and verdicts[c.position] is None
    ]
    positions = np.array(sorted(found), np.int64)
    return positions if fit.all_known else np.searchsorted(fit.positions, positions)
