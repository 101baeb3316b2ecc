"""Explains why a placement selects its clusters: every cluster with the step that removed it, or
with its score.

The engine's result has all of that, so the selection is computed again from the state at that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wharfinger.engine.cluster_sets.select import SelectionResult, choose
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.state.selections import Selections


@dataclass(frozen=True, slots=True)
class CandidateTrace:
    """A cluster of the placement's cluster sets. `fell`: the filter that refused it; empty: none.
    `scores`: prioritizer -> its score, without the weight. `total`: the weighted sum. `place`: rank
    among the selected clusters, from 1; 0: not selected. `held`: the last decision selected it."""

    name: str
    fell: str
    scores: Mapping[str, int]
    total: int
    place: int
    held: bool


@dataclass(frozen=True, slots=True)
class SelectionsTrace:
    """Explains the selection of one placement. `bound`: the cluster sets that are bound in its
    namespace. `sets`: those of them that it may use. `weights`: prioritizer -> weight. `trouble`:
    why the selection could not be computed, so that the previous one stays; empty: it was computed.
    `candidates`: the selected clusters, best first; then those that passed all filters; then the
    refused ones; ties by name."""

    bound: tuple[str, ...]
    sets: tuple[str, ...]
    weights: Mapping[str, int]
    candidates: tuple[CandidateTrace, ...]
    trouble: str = ""


def trace(selections: Selections, key: str, at: Micros) -> SelectionsTrace | None:
    """Select the clusters of an OCM placement again, and return the selection with full detail: for
    every cluster of its cluster sets, the filter that removed it or its scores. None: the placement
    does not exist, is being deleted, or its scheduling is disabled.
    `key`: `<namespace>/<name>` of the placement. `at`: the time of the round."""
    policy = selections.policy(key)
    if policy is None:
        return None
    choice = choose(selections.fleet, policy, at)
    if choice.skipped:
        return None
    weights = {scores.name: scores.weight for scores in choice.scores or ()}
    trouble = choice.status_trouble
    said = f"{trouble.plugin}: {trouble.message}".removeprefix(": ") if trouble.message else ""
    return SelectionsTrace(
        choice.valid_bindings,
        choice.eligible_sets,
        weights,
        _candidates(selections, key, choice),
        said,
    )


def _candidates(
    selections: Selections, key: str, choice: SelectionResult
) -> tuple[CandidateTrace, ...]:
    standing = selections.active.get(key)
    held = {} if standing is None else standing.clusters
    matched, passed = set(choice.named(choice.matched)), set(choice.named(choice.passed))
    places = {name: place for place, name in enumerate(choice.selected, 1)}
    given = {scores.name: choice.scores_of(scores) for scores in choice.scores or ()}
    totals = choice.total_of

    def candidate(name: str) -> CandidateTrace:
        fell = "" if name in passed else "TaintToleration" if name in matched else "Predicate"
        scores = {
            prioritizer: by_name[name] for prioritizer, by_name in given.items() if name in by_name
        }
        fell = "" if choice.matched is None else fell
        return CandidateTrace(
            name, fell, scores, totals.get(name, 0), places.get(name, 0), name in held
        )

    found = [candidate(name) for name in choice.named(choice.available)]
    return tuple(
        sorted(found, key=lambda c: (bool(c.fell), c.place or len(found) + 1, -c.total, c.name))
    )
