"""Prioritizers: what each makes of the clusters that passed the filters.

Formulas are Open Cluster Management's, in double precision and in its order of operations, cut towards zero. All of them are
elementwise: nothing is summed in floating point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.selection import Priority, Selection
from wharfinger.engine.placement.fleet import SCORE_UNKNOWN, Bools, Floats, Ints, PlacementFleet

BALANCE, STEADY = "Balance", "Steady"
RESOURCES = {"ResourceAllocatableCPU": "cpu", "ResourceAllocatableMemory": "memory"}
ADD_ON = "AddOn"
BUILT_IN = "BuiltIn"
MODES = ("Additive", "", "Exact")

BEST, WORST = 100, -100


class PriorityError(ValueError):
    """Priorities that say nothing sensible; the text is OCM's."""


@dataclass(frozen=True, slots=True)
class Prioritizer:
    """`resource`, `score`: of an add-on."""

    name: str
    weight: int
    resource: str = ""
    score: str = ""


@dataclass(frozen=True, slots=True)
class Scores:
    """`values`: int64[clusters that passed], in order of name. `known`: which of them have a score; None: all. `shown`: which of
    them are listed with one. `expired`: whose scores are past their time. `next_expiry_us`: when the next of them will be."""

    name: str
    weight: int
    values: Ints
    known: Bools | None = None
    shown: Bools | None = None
    expired: Ints | None = None
    next_expiry_us: int | None = None


def prioritizers(selection: Selection) -> tuple[Prioritizer, ...]:
    """Those that are run, in order of name. Raises PriorityError.

    Two entries for one built-in are one, of which the last weight counts. An entry with an add-on of its own is a thing of its own,
    whatever its type and whoever else names the same add-on.
    """
    if selection.mode not in MODES:
        raise PriorityError(f"incorrect prioritizer policy mode: {selection.mode}")
    weights: dict[tuple[str, str, int | None], tuple[Priority, int]] = {}
    entries: list[Priority] = []
    if selection.mode != "Exact":
        entries += [Priority(builtin=BALANCE), Priority(builtin=STEADY)]
    entries += selection.priorities
    for at, entry in enumerate(entries):
        if not entry.type:
            raise PriorityError("scoreCoordinate field is required")
        weights[(entry.type, entry.builtin, None if entry.addon is None else at)] = (entry, entry.weight)
    run = [_prioritizer(entry, weight) for entry, weight in weights.values() if weight != 0]
    return tuple(sorted(run, key=lambda p: (p.name, p.weight)))


def _prioritizer(entry: Priority, weight: int) -> Prioritizer:
    if entry.type == BUILT_IN:
        if entry.builtin not in (BALANCE, STEADY, *RESOURCES):
            raise PriorityError(f"incorrect builtin prioritizer: {entry.builtin}")
        return Prioritizer(entry.builtin, weight)
    if entry.addon is None:
        raise PriorityError("addOn should not be empty")
    resource, score = entry.addon.resource, entry.addon.score
    return Prioritizer(f"{ADD_ON}/{resource}/{score}", weight, resource, score)


def scored(fleet: PlacementFleet, key: str, prioritizer: Prioritizer, passed: Ints, held: Bools, at_us: int) -> Scores:
    """`passed`: positions in order of name; `held`: bool[passed], whether the placement has decided it before."""
    name, weight = prioritizer.name, prioritizer.weight
    if name == BALANCE:
        counts, most = fleet.counts(without=key)
        return Scores(name, weight, balance(counts[passed], most))
    if name == STEADY:
        return Scores(name, weight, np.where(held, BEST, 0))
    if (resource := RESOURCES.get(name)) is not None:
        values = fleet.ranked(fleet.resource(resource))[passed]
        reported = ~np.isnan(values)
        known = None if reported.all() else reported
        return Scores(name, weight, allocatable(values, reported), known, known)
    return _add_on(fleet, prioritizer, passed, at_us)


def balance(counts: Ints, most: int) -> Ints:
    """Fewer decisions are better: 100 for none, -100 for as many as `most`."""
    if most == 0:
        return np.full(len(counts), BEST, np.int64)
    spread: Floats = 100 * (0.5 - counts / most)
    return np.where(counts == 0, BEST, 2 * spread.astype(np.int64))


def allocatable(values: Floats, known: Bools) -> Ints:
    """Linear from the least known (-100) to the most (100); all equal: 100; unknown: 0."""
    out = np.zeros(len(values), np.int64)
    if not known.any():
        return out
    given = values[known]
    least, most = given.min(), given.max()
    if most == least:
        out[known] = BEST
    else:
        out[known] = (((given - least) / (most - least) - 0.5) * 2.0 * 100.0).astype(np.int64)
    return out


def _add_on(fleet: PlacementFleet, prioritizer: Prioritizer, passed: Ints, at_us: int) -> Scores:
    values = fleet.ranked(fleet.score(prioritizer.resource, prioritizer.score))[passed]
    until = fleet.ranked(fleet.expiry(prioritizer.resource))[passed]
    over = at_us > until
    known = (values != SCORE_UNKNOWN) & ~over
    coming = until[~over]
    return Scores(
        prioritizer.name,
        prioritizer.weight,
        np.where(known, values, 0),
        known,
        None,
        np.flatnonzero(over) if over.any() else None,
        int(coming.min()) if len(coming) else None,
    )


def summed(scores: Sequence[Scores], clusters: int, unknown_is_worst: bool) -> Ints:
    """Weight times score, added up. `unknown_is_worst`: who has no score counts as the worst of those who have one, not as 0."""
    total = np.zeros(clusters, np.int64)
    for one in scores:
        weighted = one.values * one.weight
        if unknown_is_worst and one.known is not None and one.known.any():
            weighted = np.where(one.known, weighted, weighted[one.known].min())
        total += weighted
    return total


def ordered(totals: Ints, preferred: Ints | None = None) -> Ints:
    """Positions by total descending, `preferred` descending among equal ones, then in order of name."""
    clusters = len(totals)
    if not clusters:
        return np.zeros(0, np.int64)
    bits = max(1, int(clusters - 1).bit_length())
    extra = 0 if preferred is None else 1
    if int(totals.min()) > -(2**40) and int(totals.max()) < 2**40:
        # One number a cluster, which sorts much faster than keys side by side.
        keys = -totals
        if preferred is not None:
            keys = (keys << 1) | (1 - preferred)
        keys = (keys << bits) | np.arange(clusters)
        keys.sort()
        return keys & ((1 << bits) - 1)
    if extra and preferred is not None:
        return np.lexsort((-preferred, -totals))
    return np.argsort(-totals, kind="stable")
