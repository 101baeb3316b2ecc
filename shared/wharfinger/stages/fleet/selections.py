"""Decides OCM placements: which clusters each selects, which changes wait for its stabilisation
window, and which decisions are written.

A decision is written only where the set, its groups or its conditions change. A changed request is
decided at once. Where other clusters only rank higher, that must be true throughout the placement's
stabilisation window. Changes that cannot wait, because a cluster was removed or is not admitted any
more, are made with as few other changes as possible.

A placement that is invalid, or cannot be decided, reports that in its conditions and keeps its
clusters, except in `strict` mode. `engine.cluster_sets` computes the selection; `state.selections`
is the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from wharfinger.domain.policy import Policy
from wharfinger.domain.time import SECOND
from wharfinger.engine.cluster_sets.fleet import PlacementFleet
from wharfinger.engine.cluster_sets.select import SelectionResult, choose
from wharfinger.events.decisions import (
    MISCONFIGURED,
    PART_SIZE,
    SATISFIED,
    DecidedGroup,
    Explanation,
    PlacementDecided,
    PlacementHeld,
    PlacementReleased,
    SelectionCondition,
    SelectionTrigger,
)
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.fleet.explain import bounded
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.state.selections import (
    SelectionRecord,
    Selections,
    Why,
    asleep,
    name_of,
    subject_of,
)

SHOWN = 4
"""How many of the clusters that would come, and of those that would go, a held change names."""

STAYING = 2**40
"""The hysteresis, in points, with which no new cluster replaces a selected one; larger than every
score."""


def decide_placements(state: FleetState, at: Micros) -> Iterator[Draft]:
    """Yield the decisions on the OCM placements of this round. First come the releases: a
    placement that no longer exists gives up the clusters that it selected. Then come the decisions
    on all placements that must be evaluated: the new selection, and whether a change of it waits
    for the end of the stabilisation window. Each of the two groups is in order of the placements'
    names.
    The order matters, because the Balance prioritizer counts how many placements selected a
    cluster, and earlier decisions of the round are included. There is no new selection for a
    placement that is being deleted or whose scheduling is disabled."""
    selections = state.selections
    if selections is None:
        return
    for key in sorted(selections.removed):
        standing = selections.active[key]
        released = PlacementReleased(key, standing.generation, len(standing.clusters))
        yield Draft(released, subject_of(key), "released", selections.removed[key])
    selections.wake(at)
    for key in sorted(selections.open):
        why, policy = selections.open.pop(key), selections.policy(key)
        if policy is not None and not asleep(policy):
            yield from _decided(selections, policy, why, at)


def next_selection(state: FleetState) -> Micros | None:
    """Return the next time, in microseconds, at which a selection may change only because time
    passes. None: never."""
    return None if state.selections is None else state.selections.dues.next()


def _decided(selections: Selections, policy: Policy, why: Why, at: Micros) -> Iterator[Draft]:
    key, fleet = name_of(policy), selections.fleet
    before = selections.active.get(key)
    if before is None:
        before, why = SelectionRecord(), Why("FirstSelection", why.cause)
    wish = now = _looked(fleet, policy, before, at)
    until = before.held_until
    held = PlacementHeld(key)
    if _may_be_held(policy, why) and not wish.kept:
        calm = _looked(fleet, _staying(policy), before, at)
        until = until or at + _window(policy)
        if calm.clusters.keys() != wish.clusters.keys() and at < until:
            now, held = calm, _held(key, until, calm, wish)
    yield from _written(key, now, before, why)
    standing = selections.active.get(key)  # one that was written again is not held
    if standing is not None and held.until_us != standing.held_until:
        yield Draft(held, subject_of(key), "held" if held.until_us else "settled", why.cause)


def _may_be_held(policy: Policy, why: Why) -> bool:
    """Return whether changes may wait for the stabilisation window: the placement has one, and it
    is neither new nor changed."""
    return _window(policy) > 0 and why.trigger not in ("FirstSelection", "PlacementChanged")


def _window(policy: Policy) -> Micros:
    return 0 if policy.selection is None else policy.selection.window_s * SECOND


def _staying(policy: Policy) -> Policy:
    """Return a copy of the placement with a hysteresis so large that every selected cluster stays
    while it is admitted."""
    assert policy.selection is not None
    return msgspec.structs.replace(
        policy, selection=msgspec.structs.replace(policy.selection, hysteresis=STAYING)
    )


def _held(key: str, until: Micros, calm: SelectionOutcome, wish: SelectionOutcome) -> PlacementHeld:
    better = [name for name in wish.clusters if name not in calm.clusters]
    worse = [name for name in calm.clusters if name not in wish.clusters]
    return PlacementHeld(key, until, tuple(better[:SHOWN]), tuple(worse[:SHOWN]))


@dataclass(frozen=True, slots=True)
class SelectionOutcome:
    """The selection computed for one placement. `layout`: its groups. `unscheduled`: how many
    clusters are missing. `kept`: the selection could not be computed, so the recorded one stays."""

    layout: tuple[_Group, ...]
    unscheduled: int
    conditions: tuple[SelectionCondition, ...]
    choice: SelectionResult
    kept: bool = False

    @property
    def clusters(self) -> dict[str, None]:
        return {name: None for _, _, clusters in self.layout for name in clusters}

    def groups(self, before: SelectionRecord) -> tuple[DecidedGroup, ...]:
        """Return the groups with the total score of each cluster. For a kept selection, return the
        recorded groups."""
        if self.kept:
            return before.groups
        totals = self.choice.total_of
        return tuple(
            [
                DecidedGroup(i, name, {c: totals[c] for c in clusters})
                for i, name, clusters in self.layout
            ]
        )


_Group = tuple[int, str, tuple[str, ...]]
"""Index, name and clusters of a group. It has no scores, because a change of scores alone is not
written."""


def _layout(standing: SelectionRecord) -> tuple[_Group, ...]:
    return tuple([(group.index, group.name, tuple(group.scores)) for group in standing.groups])


def _looked(
    fleet: PlacementFleet, policy: Policy, before: SelectionRecord, at: Micros
) -> SelectionOutcome:
    choice = choose(fleet, policy, at)
    told = tuple(
        [SelectionCondition(c.type, c.status, c.reason, c.message) for c in choice.conditions]
    )
    if choice.keeps:
        return SelectionOutcome(
            _layout(before), before.unscheduled, told or before.conditions, choice, kept=True
        )
    layout = tuple([(group.index, group.name, group.clusters) for group in choice.groups])
    return SelectionOutcome(layout, choice.unscheduled, told, choice)


def _written(key: str, now: SelectionOutcome, before: SelectionRecord, why: Why) -> Iterator[Draft]:
    """Yield the drafts of a decision on a placement, in parts. Yield none if groups, conditions and
    `unscheduled` are unchanged. The generation increases only where groups changed. `key`: the key
    of the placement. `now`, `before`: the new selection and the last decision. `why`: the trigger.
    """
    same = now.kept or (before.generation > 0 and now.layout == _layout(before))
    if same and now.conditions == before.conditions and now.unscheduled == before.unscheduled:
        return
    generation = before.generation if same else before.generation + 1
    for part in _parts(key, now, before, why.trigger, generation):
        yield Draft(part, subject_of(key), _outcome(now), why.cause)


def _outcome(now: SelectionOutcome) -> str:
    told = {condition.type: condition.status for condition in now.conditions}
    if told.get(MISCONFIGURED) == "True":
        return "misconfigured"
    return "selected" if told.get(SATISFIED) == "True" else "unsatisfied"


def _parts(
    key: str,
    now: SelectionOutcome,
    before: SelectionRecord,
    trigger: SelectionTrigger,
    generation: int,
) -> Iterator[PlacementDecided]:
    old, new = before.clusters, now.clusters
    pieces = list(_pieces(now.groups(before)))
    added = [name for name in new if name not in old]
    removed = [name for name in old if name not in new]
    parts = max(len(pieces), _shares(added), _shares(removed))
    for part in range(parts):
        here = pieces[part] if part < len(pieces) else ()
        decided = PlacementDecided(
            key,
            trigger,
            generation,
            here,
            part + 1,
            parts,
            False,
            added=_share(added, part),
            removed=_share(removed, part),
        )
        if part == parts - 1:
            decided = msgspec.structs.replace(
                decided,
                complete=True,
                unscheduled=now.unscheduled,
                conditions=now.conditions,
                explanation=_explained(now.choice),
            )
        yield decided


def _explained(choice: SelectionResult) -> Explanation:
    """Build the explanation of a selection. It has the number of clusters of the placement's
    cluster sets, the number of clusters that passed all filters, and the number that each filter
    removed (predicates, taints). It also has the best selected cluster and the best cluster that
    was not selected, with their total scores; ties by name."""
    available, matched, passed = (
        None if c is None else len(c) for c in (choice.available, choice.matched, choice.passed)
    )
    fell = {
        "Predicate": 0 if available is None or matched is None else available - matched,
        "TaintToleration": 0 if matched is None or passed is None else matched - passed,
    }
    totals, taken = choice.total_of, set(choice.selected)
    other = min(
        [name for name in totals if name not in taken],
        key=lambda name: (-totals[name], name),
        default=None,
    )
    named = [*choice.selected[:1], *([] if other is None else [other])]
    return bounded(
        Explanation(
            candidates=available or 0,
            feasible=passed or 0,
            refused={reason: n for reason, n in fell.items() if n},
            note=choice.status_trouble.message,
            best={name: totals[name] for name in named},
        )
    )


def _pieces(groups: Iterable[DecidedGroup]) -> Iterator[tuple[DecidedGroup, ...]]:
    """Split the decision groups of a placement (OCM) into parts of at most `PART_SIZE` clusters,
    because a decision has to fit into one message. A group that does not fit into the rest of a
    part continues in the next part.
    Example: with 1,000 clusters for each part, groups of 600 and 900 clusters give two parts: 600 +
    400 clusters, and 500 clusters."""
    piece: list[DecidedGroup] = []
    room = PART_SIZE
    for group in groups:
        names = list(group.scores)
        while True:
            if not room:
                yield tuple(piece)
                piece, room = [], PART_SIZE
            taken, names = names[:room], names[room:]
            piece.append(
                DecidedGroup(group.index, group.name, {name: group.scores[name] for name in taken})
            )
            room -= len(taken)
            if not names:
                break
    yield tuple(piece)


def _shares(names: Sequence[str]) -> int:
    return -(-len(names) // PART_SIZE)


def _share(names: Sequence[str], part: int) -> tuple[str, ...]:
    return tuple(names[part * PART_SIZE : (part + 1) * PART_SIZE])
