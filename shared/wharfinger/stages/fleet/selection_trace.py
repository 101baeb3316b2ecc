"""Why a placement selects what it selects: every cluster that was asked, where it fell or what it was worth.

The engine's own answer keeps all of that, so nothing is decided twice: it is asked once more, of the state as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wharfinger.engine.placement.select import Choice, choose
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.selections import Selections


@dataclass(frozen=True, slots=True)
class CandidateTrace:
    """A cluster of the sets. `fell`: the filter that refused it, empty: none. `scores`: by prioritizer as it was given, without the
    weight; `place`: among the selected, from 1; 0: it is not one of them."""

    name: str
    fell: str
    scores: Mapping[str, int]
    total: int
    place: int
    held: bool


@dataclass(frozen=True, slots=True)
class SelectionsTrace:
    """`sets`: those it may use, of those that are `bound` in its namespace. `weights`: of the prioritizers. `trouble`: why it could
    not be decided, and what it had was kept. Candidates: the selected, best first; then who passed; then who fell; by name."""

    bound: tuple[str, ...]
    sets: tuple[str, ...]
    weights: Mapping[str, int]
    candidates: tuple[CandidateTrace, ...]
    trouble: str = ""


def trace(selections: Selections, key: str, at: Micros) -> SelectionsTrace | None:
    """What a look at the placement shows now; None: it is gone, or nothing is decided about it."""
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
        choice.valid_bindings, choice.eligible_sets, weights, _candidates(selections, key, choice), said
    )


def _candidates(selections: Selections, key: str, choice: Choice) -> tuple[CandidateTrace, ...]:
    standing = selections.standing.get(key)
    held = {} if standing is None else standing.clusters
    matched, passed = set(choice.named(choice.matched)), set(choice.named(choice.passed))
    places = {name: place for place, name in enumerate(choice.selected, 1)}
    given = {scores.name: choice.scores_of(scores) for scores in choice.scores or ()}
    totals = choice.total_of

    def candidate(name: str) -> CandidateTrace:
        fell = "" if name in passed else "TaintToleration" if name in matched else "Predicate"
        scores = {prioritizer: by_name[name] for prioritizer, by_name in given.items() if name in by_name}
        fell = "" if choice.matched is None else fell
        return CandidateTrace(name, fell, scores, totals.get(name, 0), places.get(name, 0), name in held)

    found = [candidate(name) for name in choice.named(choice.available)]
    return tuple(sorted(found, key=lambda c: (bool(c.fell), c.place or len(found) + 1, -c.total, c.name)))
