"""Computes the score that each prioritizer gives to the clusters that passed the filters.

The formulas are Open Cluster Management's, in double precision, in its order of operations,
truncated towards zero. All are elementwise: no floating-point sum depends on the order of clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.selection import Priority, Selection
from wharfinger.engine.cluster_sets.fleet import SCORE_UNKNOWN, Bools, Floats, Ints, PlacementFleet

BALANCE, STEADY = "Balance", "Steady"
RESOURCES = {"ResourceAllocatableCPU": "cpu", "ResourceAllocatableMemory": "memory"}
ADD_ON = "AddOn"
BUILT_IN = "BuiltIn"
MODES = ("Additive", "", "Exact")

BEST, WORST = 100, -100


class PriorityError(ValueError):
    """Raised for invalid priorities of a placement. The text is OCM's."""


@dataclass(frozen=True, slots=True)
class Prioritizer:
    """Names one prioritizer to run, with its weight. `resource` and `score` name an add-on score;
    both are empty for built-in prioritizers."""

    name: str
    weight: int
    resource: str = ""
    score: str = ""


@dataclass(frozen=True, slots=True)
class Scores:
    """Holds the scores that one prioritizer gives.

    `values`: int64[n], the scores of the n clusters that passed the filters, in order of name.
    `known`: bool[n], which of these clusters have a score; None: all.
    `shown`: bool[n], which scores are listed in explanations; None: all.
    `expired`: indexes of the clusters whose scores have expired; None: no cluster.
    `next_expiry_us`: the time at which the next scores expire, in microseconds since the epoch;
      None: none expires.
    """

    name: str
    weight: int
    values: Ints
    known: Bools | None = None
    shown: Bools | None = None
    expired: Ints | None = None
    next_expiry_us: int | None = None


def prioritizers(selection: Selection) -> tuple[Prioritizer, ...]:
    """Returns the prioritizers to run for a placement, each with its weight, in order of name.

    The entries are `selection.priorities`. If `selection.mode` is not `Exact`, entries for the
    built-in prioritizers Balance and Steady are put before them. Of several entries for the same
    built-in prioritizer only the last counts, so a placement can change the weight of Balance.
    Entries for add-on scores are never merged, even if they name the same score. Entries of weight
    0 are left out.

    Raises PriorityError if the mode or an entry is invalid.
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
        weights[(entry.type, entry.builtin, None if entry.addon is None else at)] = (
            entry,
            entry.weight,
        )
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


def scored(
    fleet: PlacementFleet, key: str, prioritizer: Prioritizer, passed: Ints, held: Bools, at_us: int
) -> Scores:
    """Computes the scores that one prioritizer gives to the clusters that passed the filters.

    - Balance: by how many decisions of other placements name the cluster: 100 for no decision, then
      linearly down to -100 for the largest such number in the fleet.
    - Steady: 100 for a cluster that the placement selects at present, 0 otherwise.
    - A prioritizer for a resource: linearly from -100 for the smallest allocatable amount to 100
      for the largest.
    - A prioritizer for an add-on score: the score that the add-on gave; 0 if it is missing or has
      expired.

    `key`: the placement, as `namespace/name`.
    `passed`: int64[n], the n clusters to score, as positions among all clusters in order of name.
    `held`: bool[n], whether the placement selects the cluster at present.
    `at_us`: the time, in microseconds since 1970, UTC.
    """
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
    """Scores clusters by how many decisions of other placements name them: 100 for no decision,
    then linearly down to -100 for `most` decisions.

    `counts`: int64[n], the number of decisions that name each cluster. `most`: the largest such
    number in the fleet; if it is 0, every cluster gets 100.
    """
    if most == 0:
        return np.full(len(counts), BEST, np.int64)
    spread: Floats = 100 * (0.5 - counts / most)
    return np.where(counts == 0, BEST, 2 * spread.astype(np.int64))


def allocatable(values: Floats, known: Bools) -> Ints:
    """Scores clusters by their allocatable amount of a resource, linearly from -100 for the
    smallest amount to 100 for the largest. Returns int64[n], rounded towards 0.

    `values`: float64[n], the amounts.
    `known`: bool[n], whether the cluster reports the amount. A cluster that does not report the
      amount gets 0.

    If all reported amounts are equal, every cluster that reports the amount gets 100.

    Example: 4, 8 and 6 CPUs get -100, 100 and 0.
    """
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
    """Returns the scores that an add-on gave to the clusters that passed the filters, one for each
    cluster. A cluster without a score, or with an expired score, gets 0 and is marked as not known
    (`Scores.known`). The result also has the clusters with expired scores, and the time at which
    the next score expires.

    `prioritizer`: names the add-on and the score.
    `passed`: the clusters, as positions among all clusters in order of name.
    `at_us`: the time, in microseconds since 1970, UTC.
    """
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
    """Returns the total score of each cluster: the sum over all prioritizers of weight * score.
    `clusters`: the number of clusters. `unknown_is_worst`: a cluster without a score gets the
    lowest weighted score of the other clusters instead of 0."""
    total = np.zeros(clusters, np.int64)
    for one in scores:
        weighted = one.values * one.weight
        if unknown_is_worst and one.known is not None and one.known.any():
            weighted = np.where(one.known, weighted, weighted[one.known].min())
        total += weighted
    return total


def ordered(totals: Ints, preferred: Ints | None = None) -> Ints:
    """Sorts clusters by total score, highest first. Returns the indexes of the clusters in
    `totals`.

    `totals`: int64[n], the total scores, in order of cluster name.
    `preferred`: int64[n], 1 for a cluster that goes before a cluster with 0 at equal total; None:
      no such preference. Clusters that are still equal are sorted by name.

    Example: totals 10, 30, 10 and preferences 0, 0, 1 give the order 1, 2, 0.

    If all totals are within ±2**40, the total, the preference and the index are packed into one
    integer per cluster, because one array of integers sorts much faster than several keys.
    """
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
