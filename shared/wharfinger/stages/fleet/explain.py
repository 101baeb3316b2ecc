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
from wharfinger.events.decisions import Explanation, FailoverSets
from wharfinger.stages.fleet.columns import Array
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.state.clusters import POSITION

MAX_SHOWN = 2**31 - 1
"""Larger numbers are replaced by this one in explanations, so that an absurdly large request does
not make them long."""

LIMIT = 2048
"""The largest size of an explanation, in bytes of canonical JSON."""

PLENTY = 150
"""With at most this many characters of names and texts, an explanation fits into `LIMIT`, even at
six bytes for each character and with every number at its longest."""

NOTE_LENGTH = 200

WHY_LENGTH = 120


def explanation_of(state: FleetState, question: Question, solution: Solution) -> Explanation:
    """Build the explanation of a solution. It describes the affinity term that led to the answer:
    how many clusters were evaluated, how many were feasible, and how many were refused for which
    reason. If replicas were divided, it also names the best chosen cluster and the best other one.
    If no affinity term led to the answer, the explanation has only the note of the answer."""
    answer, steps = solution.answer, solution.decisive
    if steps is None:
        return bounded(Explanation(note=answer.note))
    fit = steps.term.feasible
    looked_at = len(fit.verdicts)
    if isinstance(steps.outcome, ReplicaDivision):
        return _assigned(state, question, steps)
    refused = dict(fit.refused)
    if exhausted := steps.exhausted:
        refused[NO_CAPACITY] = exhausted
    return bounded(Explanation(looked_at, len(fit), refused, note=answer.note))


def _assigned(state: FleetState, question: Question, steps: Steps) -> Explanation:
    """Build the explanation of a division of replicas over clusters.

    It names the best of the chosen clusters and the best of the other feasible clusters, each with
    its estimate. The clusters are ranked in this order: clusters that held replicas of the binding
    come first; then the higher estimate; then the name.
    """
    fit, estimates = steps.term.feasible, steps.term.estimates
    targets, held = steps.answer.targets, question.held
    if isinstance(estimates, list):
        indexes = _best_of_few(fit, estimates, held, targets)
    else:
        assert isinstance(estimates, np.ndarray), "estimates are a list or an array"
        indexes = _best_of_many(state, fit, estimates, held, targets)
    best = {fit.names[i]: min(int(estimates[i]), MAX_SHOWN) for i in indexes if i >= 0}
    return bounded(
        Explanation(len(fit.verdicts), len(fit), fit.refused, note=steps.answer.note, best=best)
    )


def bounded(explanation: Explanation) -> Explanation:
    """Return the explanation, shortened to at most 2,048 bytes (`LIMIT`) of canonical JSON.

    First `note` is cut to 200 characters and `why` to 120. Then parts are removed until the rest is
    short enough, in this order:

    - the cluster names in the failover sets (reserved, available, candidate and failed clusters);
      the sizes of the sets stay;
    - the best clusters, together with the note.
    """
    length = sum([len(name) for name in explanation.best])
    if (
        length + len(explanation.note) + len(explanation.why) <= PLENTY
        and explanation.failover is None
    ):
        return explanation
    if len(explanation.note) > NOTE_LENGTH:
        explanation = msgspec.structs.replace(explanation, note=_cut(explanation.note, NOTE_LENGTH))
    if len(explanation.why) > WHY_LENGTH:
        explanation = msgspec.structs.replace(explanation, why=_cut(explanation.why, WHY_LENGTH))
    if len(canonical(explanation)) > LIMIT and explanation.failover is not None:
        sets = FailoverSets(counts=explanation.failover.counts)
        explanation = msgspec.structs.replace(explanation, failover=sets)
    if len(canonical(explanation)) > LIMIT:
        explanation = msgspec.structs.replace(explanation, best={}, note="")
    return explanation


def _cut(text: str, length: int) -> str:
    return text[: length - 1] + "…"


def _best_of_few(
    fit: Feasible, estimates: list[int], held: Mapping[str, int], targets: Mapping[str, int]
) -> tuple[int, int]:
    """Return two indexes into the feasible clusters: the best cluster that was chosen, and the best
    one that was not; -1: there is none.

    Clusters that held replicas before come first; then the higher estimate; then the name. Example:
    estimates [5, 9, 7], no replicas before, clusters 0 and 2 chosen: (2, 1). `fit`: the feasible
    clusters. `estimates[i]`: how many more replicas fit in cluster i. `held`, `targets`: cluster ->
    replicas before and after the decision.
    """
    chosen = other = most_chosen = most_other = -1
    for i, name in enumerate(fit.names):
        rank = estimates[i]
        if name in held:
            rank += HELD_RANK
        if name in targets:
            if rank > most_chosen:
                chosen, most_chosen = i, rank
        elif rank > most_other:
            other, most_other = i, rank
    return chosen, other


def _best_of_many(
    state: FleetState,
    fit: Feasible,
    estimates: Array,
    held: Mapping[str, int],
    targets: Mapping[str, int],
) -> tuple[int, int]:
    """Return two indexes into the feasible clusters: the best cluster that was chosen, and the best
    one that was not; -1: there is none.

    The function gives the same result as `_best_of_few`, but is faster for many clusters. `fit`:
    the feasible clusters. `estimates`: int64, how many more replicas fit in each feasible cluster.
    `held`, `targets`: cluster -> replicas before and after the decision.
    """
    if not len(fit):
        return -1, -1
    ranks = estimates
    mine = _indexes(state, fit, held)
    if mine.size:
        ranks = ranks.copy()
        ranks[mine] += HELD_RANK
    if len(targets) == len(fit):
        return int(ranks.argmax()), -1
    theirs = _indexes(state, fit, targets)
    chosen = int(theirs[ranks[theirs].argmax()]) if theirs.size else -1
    left = ranks.copy()
    left[theirs] = -1
    other = int(left.argmax())
    return chosen, other if left[other] >= 0 else -1


NONE = np.zeros(0, np.int64)

HELD_RANK = 2**40
"""Is added to the rank of a cluster that holds replicas; larger than every estimate."""


def _indexes(state: FleetState, fit: Feasible, names: Mapping[str, int]) -> Array:
    """Return the sorted indexes of the clusters `names` in the list of feasible clusters `fit`. A
    name that is not feasible is left out."""
    if not names:
        return NONE
    known = filter(None, map(state.clusters.get, names))
    positions = np.array(list(map(POSITION, known)), np.int64)
    positions.sort()
    if positions.size and positions[0] < 0:  # clusters without facts
        positions = positions[positions >= 0]
    if fit.all_known:
        return positions
    feasible: Array = np.asarray(fit.positions)
    indexes: Array = feasible.searchsorted(positions)
    inside = indexes < len(feasible)
    positions, indexes = positions[inside], indexes[inside]
    found: Array = indexes[feasible[indexes] == positions]
    return found
