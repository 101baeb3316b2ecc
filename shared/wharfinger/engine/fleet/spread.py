"""Selects clusters under spread constraints: over clusters, regions, zones, providers and labels,
alone and combined.

Guarantee: for every constraint the selected clusters belong to at least minGroups and at most
maxGroups groups; an unset maxGroups is no bound. Where replicas are divided, only clusters with
capacity are selected, and together they have capacity for all replicas. `spread_floor` then makes
sure that minGroups groups (or as many as there are replicas) really get a replica.

The first of these selections that satisfies all constraints is used:

1. without any maxGroups: all clusters;
2. with a constraint by cluster only: the best ranked clusters; from the last one on, some are
   replaced by clusters with more capacity until the replicas fit;
3. the clusters that hold replicas, and more clusters of their groups by rank, so that a binding
   that satisfies its constraints stays where it is; or, if no replicas are held or a fresh choice
   is requested, and there is one grouping and it has a maximum, Karmada's choice of regions;
4. greedy set cover: cluster by cluster, starting from those that hold replicas, first the clusters
   in most of the groups still missing;
5. tree knapsack (`nested`), where the groups are nested as zones in regions and regions in
   providers: as many clusters that hold replicas as possible, then the fewest groups;
6. if they are not nested, or the table would be too large: 4 again from other starting points, with
   swaps.

For nested groups, and for a single grouping, this is exact: if any selection satisfies the
constraints and has capacity for the replicas, one is found. So more capacity never turns success
into a refusal. Groups that overlap are in general a set-cover problem, where step 6 may miss a
solution; the refusal says that none was *found*. The cost is polynomial: clusters * the maxGroups
of the constraints that set one, and a fixed number of steps for 6.

After Karmada's `spreadConstraints`. Selection by zones, providers and labels is requested in its
issues 3187 and 5355, and in OCM's community issues 49 and 153.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.engine.fleet.candidates import LOCALITY, Unselectable
from wharfinger.engine.fleet.nested import Field, is_nested, table_fits, tables
from wharfinger.engine.fleet.regions import MAX_CELLS, best_groups, cells

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MOST = 2**48
"""Upper bound for the capacity of a cluster, so that no sum overflows."""

TRIES = 16
"""Maximum number of attempts to keep clusters that hold replicas."""

STARTS = 16
LOOKS = 2_000
"""`STARTS`: how many of the best ranked clusters the greedy search starts from. `LOOKS`: how many
clusters it examines for a swap, in all. Work is limited by these numbers, not by time, so that
every machine stops at the same place."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Holds the clusters that a selection chooses from, as arrays in rank order.

    `held`: bool[clusters], whether the cluster holds replicas of the binding.
    `available`: int64[clusters], the replicas that still fit plus those held.
    `groups`: one int64[clusters] for each constraint that is not by cluster, in the order of the
      placement: the number of the group that the cluster counts for (`numbered`), -1 for none.
    """

    held: Mask
    available: Ints
    groups: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """Holds one selection problem: choose clusters so that the number of clusters and the number of
    groups in every grouping stay within their bounds, and the replicas fit.

    `held`: bool[clusters], whether the cluster holds replicas of the binding.
    `available`: int64[clusters], the replicas that still fit plus those held.
    `fields`: the groupings with their bounds.
    `least`, `most`: bounds of the number of clusters; `most` None: no maximum.
    `replicas`: how many replicas must fit; 0: capacity is not considered.
    """

    held: Mask
    available: Ints
    fields: tuple[Field, ...]
    least: int
    most: int | None
    replicas: int

    def exceeded_by(self, chosen: Ints) -> bool:
        """Returns whether the chosen clusters already exceed a maximum, of clusters or of groups.
        Adding clusters cannot repair that."""
        if self.most is not None and len(chosen) > self.most:
            return True
        return any(f.most is not None and f.used(chosen) > f.most for f in self.fields)

    def keeps(self, chosen: Ints) -> bool:
        if len(chosen) < self.least or self.exceeded_by(chosen):
            return False
        if self.replicas and int(self.available[chosen].sum()) < self.replicas:
            return False
        return all(f.least <= f.used(chosen) for f in self.fields)


def numbered(names: Sequence[str]) -> Ints:
    """Converts names of groups to numbers, 0 for the first name in order; -1 for an empty name."""
    numbers = {name: i for i, name in enumerate(sorted(set(names) - {""}))}
    return np.array([numbers.get(name, -1) for name in names], dtype=np.int64)


def choose(
    columns: Columns, placement: Placement, replicas: int, *, fresh: bool = False
) -> Ints | Unselectable:
    """Selects clusters that satisfy the spread constraints and, if replicas are divided, have
    capacity for all replicas together. Returns the indexes of the selected clusters in rank order.

    `columns`: the candidates, in rank order.
    `replicas`: how many replicas are wanted.
    `fresh`: do not prefer clusters that hold replicas.

    Only clusters that are in a group of every constraint are considered (a cluster without a zone
    is in no group of a constraint by zone). If replicas are divided, clusters without capacity and
    without replicas are left out too. If all considered clusters together have too little capacity,
    all are returned, and the division then reports the shortage.

    Several methods are tried in a fixed order, from all clusters to a dynamic-programming table or
    a greedy search; the list is at the top of this file. The first selection that satisfies all
    constraints is used. Returns Unselectable if constraints contradict each other, if there are too
    few groups, or if no selection was found.

    Example: capacities 3, 1, 2, 9, a constraint by cluster with maxGroups 2, 10 replicas: [0, 3].
    """
    if no := contradiction(placement.spread):
        return Unselectable(no)
    divided = placement.replicas.type == "Divided" and replicas > 0
    whole = np.ones(len(columns.held), dtype=np.bool_)
    for groups in columns.groups:
        whole &= groups >= 0
    if short := _too_few(columns, placement.spread, whole, "feasible"):
        return short
    if divided:
        replicas = min(replicas, MOST)
        room = whole & ((columns.available > 0) | columns.held)
        if int(_room(columns.available[room]).sum()) < replicas:
            return np.flatnonzero(whole)
        whole = room
        if short := _too_few(columns, placement.spread, whole, "with room", replicas):
            return short
    within = np.flatnonzero(whole)
    asked = _asked(columns, placement, replicas if divided else 0, within)
    chosen = (
        None
        if _hopeless(asked)
        else _chosen(asked, placement, replicas, divided=divided, fresh=fresh)
    )
    if chosen is None:
        return Unselectable(_not_found(asked, placement.spread))
    return within[np.sort(chosen)]


def _room(available: Ints) -> Ints:
    return np.maximum(np.minimum(available, MOST), 0)


def contradiction(spread: Sequence[SpreadConstraint]) -> str:
    """Returns a sentence that says why the spread constraints contradict each other; empty: they do
    not. The constraints contradict each other if the minGroups of one constraint is larger than the
    smallest maxGroups of the constraints by cluster, because a selected cluster adds at most one
    group to a constraint.

    Example: maxGroups 2 by cluster and minGroups 3 by region contradict each other.
    """
    most = min(
        (c.max_groups for c in spread if c.field == "cluster" and c.max_groups > 0), default=None
    )
    for constraint in spread:
        if most is not None and constraint.min_groups > most:
            return (
                f"at most {most} clusters cannot spread over at least {constraint.min_groups} "
                f"{plural(constraint)}"
            )
    return ""


def plural(constraint: SpreadConstraint) -> str:
    return f"values of label {constraint.label}" if constraint.label else f"{constraint.field}s"


def _too_few(
    columns: Columns,
    spread: Sequence[SpreadConstraint],
    within: Mask,
    what: str,
    replicas: int | None = None,
) -> Unselectable | None:
    """Checks that at least minGroups groups (regions, zones and so on) exist for each spread
    constraint. Returns the refusal for the first constraint with too few groups; None: every
    constraint has enough.

    `within`: bool[clusters], which clusters are considered.
    `what`: how the message describes the considered clusters, such as `feasible`.
    `replicas`: the number of replicas. A constraint needs at most that many groups, because each
      group must hold a replica. None: the minGroups of a constraint is not reduced.

    Example: minGroups 3 by region and 2 feasible regions: refused. With `replicas` 2, two regions
    are enough.
    """
    groups = iter(columns.groups)
    for constraint in spread:
        least = constraint.min_groups if replicas is None else min(constraint.min_groups, replicas)
        there = within if constraint.field == "cluster" else next(groups)[within]
        found = (
            int(np.count_nonzero(within))
            if constraint.field == "cluster"
            else int(np.count_nonzero(np.bincount(there)))
        )
        if found < least:
            return Unselectable(
                f"spread over at least {least} {plural(constraint)}, {found} {what}"
            )
    return None


def _asked(columns: Columns, placement: Placement, replicas: int, within: Ints) -> _Asked:
    """Builds the selection problem: the considered clusters, the groupings with the minimum and
    maximum number of groups, and the minimum and maximum number of clusters. A grouping is one
    spread constraint by region, zone, provider or label, with the group of each cluster.

    `within`: indexes of the considered clusters.
    `replicas`: how many replicas must fit. Each minGroups is reduced to this number. 0: capacity is
      not considered, and no minGroups is reduced.

    A grouping is left out if every selection satisfies it: the minimum is at most 1, and the
    maximum is not below the number of groups that exist. Groups are numbered again without gaps,
    because groups without a considered cluster do not exist in the problem.

    Example: three zones, minGroups 2, maxGroups 5, 1 replica. The minimum becomes 1, and at most 3
    zones can be used, so the grouping is left out.
    """

    def wanted(constraint: SpreadConstraint) -> int:
        return min(constraint.min_groups, replicas) if replicas else constraint.min_groups

    fields, least, most = [], 1, None
    groups = iter(columns.groups)
    for constraint in placement.spread:
        if constraint.field == "cluster":
            least = max(least, wanted(constraint))
            if constraint.max_groups > 0:
                most = constraint.max_groups if most is None else min(most, constraint.max_groups)
            continue
        own = next(groups)[within]
        present = np.bincount(own) > 0
        count = int(np.count_nonzero(present))
        bound = constraint.max_groups if 0 < constraint.max_groups < count else None
        if bound is not None or wanted(constraint) > 1:
            fields.append(
                Field(
                    (np.cumsum(present) - 1)[own],
                    count,
                    wanted(constraint),
                    bound,
                    plural(constraint),
                )
            )
    available = _room(columns.available[within])
    return _Asked(columns.held[within], available, tuple(fields), least, most, replicas)


def _hopeless(asked: _Asked) -> str:
    """Checks each maximum number of groups or clusters alone: do the replicas fit in that many
    groups, or clusters, if those with the largest capacity are selected? Returns a sentence about
    the first maximum for which they do not fit. Empty: they fit for every maximum, or capacity is
    not considered.

    Example: capacities 3, 1, 2, 9, at most 2 clusters, 13 replicas. The two largest clusters hold
    12, so the problem has no solution.
    """
    if not asked.replicas:
        return ""
    for field in asked.fields:
        if field.most is not None:
            room = np.zeros(field.count, dtype=np.int64)
            np.add.at(room, field.groups, asked.available)
            if (held := int(np.sort(room)[-field.most :].sum())) < asked.replicas:
                return f"the roomiest {field.most} {field.what} hold {held}"
    if asked.most is not None and asked.most < len(asked.available):
        held = int(np.sort(asked.available)[-asked.most :].sum())
        if held < asked.replicas:
            return f"the roomiest {asked.most} clusters hold {held}"
    return ""


def _chosen(
    asked: _Asked, placement: Placement, replicas: int, *, divided: bool, fresh: bool
) -> Ints | None:
    """Solves the selection problem: returns the indexes of the first selection that satisfies all
    bounds; None: none was found. These methods are tried in order:

    1. without any maximum: all clusters;
    2. with bounds of the number of clusters only: the best ranked clusters, some exchanged for
       clusters with more capacity until the replicas fit;
    3. the clusters that hold replicas, with more clusters of their groups. If none holds replicas,
       or with `fresh`, Karmada's choice of regions;
    4. a greedy search that starts from the clusters that hold replicas (with `fresh`, from none);
    5. if the groups are nested (zones in regions) and the table is small enough: the exact table;
    6. otherwise greedy searches from several other starting points.

    `replicas`, `divided`: how many replicas are wanted, and whether they are divided or duplicated.
    `fresh`: do not prefer clusters that hold replicas.
    """
    count = len(asked.held)
    everything = np.arange(count)
    if asked.most is None and all(f.most is None for f in asked.fields):
        return everything
    if not asked.fields:
        most = min(count, asked.most or count)
        if not asked.replicas:
            return everything[:most]
        found = roomier(asked.available.tolist(), most, asked.replicas)
        return None if found is None else np.array(found, dtype=np.int64)
    steady = not fresh and bool(asked.held.any())
    tried = (
        _as_it_lies(asked) if steady else _as_karmada(asked, placement, replicas, divided=divided)
    )
    if tried is not None and asked.keeps(tried):
        return tried
    start = np.flatnonzero(asked.held) if steady else np.zeros(0, dtype=np.int64)
    tried = _Greedy(asked, start).search()
    if tried is not None and asked.keeps(tried):
        return tried
    if _tabled(asked):
        return _by_table(asked, replicas, steady=steady)
    return _greedily(asked, steady=steady)


def _tabled(asked: _Asked) -> bool:
    return is_nested(asked.fields) and table_fits(
        asked.fields, asked.least, asked.most, len(asked.held)
    )


def roomier(available: Sequence[int], count: int, replicas: int) -> list[int] | None:
    """Selects `count` clusters that together have capacity for `replicas`, with few changes to the
    rank order (greedy). Returns the indexes of the clusters; None: the replicas do not fit even in
    the `count` largest clusters.

    `available`: the capacity of each cluster, in rank order.

    It starts with the first `count` clusters. From the last of these to the first, each is
    exchanged for the unused cluster with the largest capacity, if that capacity is larger. It stops
    as soon as the replicas fit.

    Example: capacities 3, 1, 2, 9, `count` 2, 10 replicas: the second cluster is exchanged for the
    fourth, and the result is [0, 3].
    """
    taken = list(range(count))
    rest = list(range(count, len(available)))
    total = sum(available[:count])
    position = count - 1
    while position >= 0 and total < replicas:
        # the first of equals
        roomiest = max(range(len(rest)), key=lambda i: available[rest[i]], default=None)
        if roomiest is not None and available[rest[roomiest]] > available[taken[position]]:
            total += available[rest[roomiest]] - available[taken[position]]
            taken[position], rest[roomiest] = rest[roomiest], taken[position]
        position -= 1
    return taken if total >= replicas else None


# --- what is held, and what Karmada would choose


def _as_it_lies(asked: _Asked) -> Ints | None:
    """Selects all clusters that hold replicas, and adds others as far as the bounds permit. In a
    grouping that has a maximum, only clusters of groups that hold replicas are added. Clusters are
    added by rank, or by capacity if the replicas do not fit otherwise. None: this is not
    possible."""
    allowed = np.ones(len(asked.held), dtype=np.bool_)
    for field in asked.fields:
        if field.most is not None:
            used = np.zeros(field.count, dtype=np.bool_)
            used[field.groups[asked.held]] = True
            allowed &= used[field.groups]
    return _filled(asked, np.flatnonzero(asked.held), allowed)


def _filled(asked: _Asked, must: Ints, allowed: Mask) -> Ints | None:
    """Adds to the clusters `must` as many of the `allowed` clusters as the maximum number of
    clusters permits. Returns the indexes of `must` and of the added clusters; None: `must` has too
    many clusters, or the replicas do not fit.

    `must`: indexes.
    `allowed`: bool[clusters].

    The best ranked clusters are added. If the replicas do not fit, some of the added clusters are
    exchanged for clusters with more capacity (`roomier`). If the maximum permits all `allowed`
    clusters, all are added, and the capacity is not checked.

    Example: capacities 3, 1, 2, 9, at most 2 clusters, 11 replicas, `must` [0]. The missing 8
    replicas fit only into the fourth cluster, so the result is [0, 3].
    """
    others = allowed.copy()
    others[must] = False
    more = np.flatnonzero(others)
    free = len(more) if asked.most is None else asked.most - len(must)
    if free < 0:
        return None
    missing = asked.replicas - int(asked.available[must].sum())
    if asked.replicas and free < len(more):
        found = roomier(asked.available[more].tolist(), free, missing)
        return (
            None if found is None else np.concatenate([must, more[np.array(found, dtype=np.int64)]])
        )
    return np.concatenate([must, more[:free]])


def _as_karmada(
    asked: _Asked, placement: Placement, replicas: int, *, divided: bool
) -> Ints | None:
    """Selects clusters as Karmada selects them by region: the best set of groups (regions, zones
    and so on), then the best cluster of each group in the set, then the remaining clusters of these
    groups by rank. Returns the indexes of the clusters.

    Works only for a problem with exactly one grouping, which has a maximum number of groups. None:
    the problem is different, no set of groups qualifies, the replicas do not fit, or there are too
    many combinations.

    `replicas`, `divided`: how many replicas are wanted, and whether they are divided or duplicated.

    Example: groups X (clusters A, B) and Y (cluster C) are the best set, and at most 2 clusters may
    be selected: A and C.
    """
    if len(asked.fields) != 1 or (most := asked.fields[0].most) is None:
        return None
    field = asked.fields[0]
    min_clusters = max((c.min_groups for c in placement.spread if c.field == "cluster"), default=0)
    order = np.argsort(field.groups, kind="stable")
    ends = np.cumsum(np.bincount(field.groups, minlength=field.count)).tolist()
    scores, room = (asked.held[order] * LOCALITY).tolist(), asked.available[order].tolist()
    spans = [slice(start, end) for start, end in pairwise([0, *ends])]
    score = [
        divided_score(scores[s], room[s], field.least, min_clusters, replicas)
        if divided
        else duplicated_score(scores[s], room[s], replicas)
        for s in spans
    ]
    sizes = [s.stop - s.start for s in spans]
    if cells(field.count, field.least, most, min_clusters) > MAX_CELLS:
        return None
    groups = best_groups(sizes, score, field.least, most, min_clusters)
    if not groups:
        return None
    allowed = np.zeros(field.count, dtype=np.bool_)
    allowed[groups] = True
    return _filled(asked, order[[spans[g].start for g in groups]], allowed[field.groups])


def duplicated_score(scores: Sequence[int], available: Sequence[int], replicas: int) -> int:
    """Computes Karmada's score of a group for Duplicated replicas: 1000 for each member that can
    hold all replicas, plus the average score of these members. 0 if there are no such members.

    `scores`, `available`: the score and the capacity of each member.
    """
    holding = [score for score, room in zip(scores, available, strict=True) if room >= replicas]
    return 1000 * len(holding) + sum(holding) // len(holding) if holding else 0


def divided_score(
    scores: Sequence[int],
    available: Sequence[int],
    min_groups: int,
    min_clusters: int,
    replicas: int,
) -> int:
    """Computes Karmada's score of a group (such as a region) for Divided replicas.

    `scores`, `available`: the score and the capacity of each cluster in the group, in rank order.
    `min_groups`: minGroups of the constraint that the group belongs to.
    `min_clusters`: minGroups of the constraint by cluster.
    `replicas`: how many replicas are wanted in all groups.

    The target is replicas / `min_groups`, rounded up. Clusters are taken in rank order until the
    target fits into the taken clusters, and their number is at least `min_groups` and at least
    `min_clusters`. The score of the group is 1000 * min(target, capacity of the taken clusters)
    plus the average score of the taken clusters, rounded down.

    Example: 10 replicas and `min_groups` 2 give a target of 5. It fits into two clusters with
    capacities 3 and 4. With a score of 100 each, the group scores 1000 * 5 + 100 = 5100.
    """
    target = -(-replicas // max(1, min_groups))
    least = max(min_clusters, min_groups)
    room = score = taken = 0
    for own_score, own_room in zip(scores, available, strict=True):
        room += own_room
        score += own_score
        taken += 1
        if taken >= least and room >= target:
            break
    return 1000 * min(target, room) + score // taken


# --- any choice that keeps the constraints


def _by_table(asked: _Asked, replicas: int, *, steady: bool) -> Ints | None:
    """Solves the selection problem exactly by dynamic programming (`nested`). Returns the indexes
    of the selected clusters; None: no selection exists, or the numbers are too large for the
    tables.

    If capacity is considered, `_with_all` finds a selection. With `steady`, `_with_most` then
    changes it, so that as many clusters that hold replicas as possible are kept (in a bounded
    number of attempts).

    If capacity is not considered, selections are compared by these numbers, in this order:

    1. with `steady`, selected clusters that hold replicas, most first;
    2. groups, fewest first;
    3. selected clusters into which all `replicas` fit, most first;
    4. selected clusters, most first.

    `replicas`: how many replicas every cluster gets if they are duplicated.

    Example: two zones with capacities (3, 1) and (2, 9), at least 2 zones, at most 2 clusters, 10
    replicas. The result has the clusters with 3 and 9. If the cluster with 1 holds replicas and
    `steady` is true, the result has the clusters with 1 and 9.
    """
    if not asked.replicas:  # every cluster gets all of them: those that hold them count first
        value = 1 + len(asked.held) * (asked.available >= replicas)
        weight = int(value.sum()) + 1 if steady else 0
        table = tables(asked.fields, asked.least, asked.most, value + weight * asked.held)
        return table.pick(table.fewest(0, weight))
    found = _with_all(asked, [])
    return found if found is None or not steady else _with_most(asked, found)


def _with_most(asked: _Asked, found: Ints) -> Ints:
    """Changes the selection `found` so that it has as many as possible of the clusters that hold
    replicas, the best ranked first. Returns the indexes of the new selection, or `found` if nothing
    could be improved.

    It first tries to keep all clusters that hold replicas in one selection. If that fails, it tries
    the first half of these clusters, then a quarter, and so on (bisection, at most `TRIES`
    attempts). Clusters that could be kept stay required in later attempts. A single cluster that
    cannot be kept is skipped.

    Example: of clusters 0 to 3, 1 and 3 hold replicas, and `found` is [0, 3]. If [1, 3] satisfies
    all bounds, it is the result.
    """
    kept: list[int] = []
    left = np.flatnonzero(asked.held).tolist()
    count = len(left)
    for _ in range(TRIES):
        if not left:
            break
        chosen = _with_all(asked, kept + left[:count])
        if chosen is not None:
            found, kept, left = chosen, kept + left[:count], left[count:]
            count = len(left)
        elif count > 1:
            count //= 2
        else:
            left = left[1:]
            count = len(left)
    return found


def _with_all(asked: _Asked, kept: list[int]) -> Ints | None:
    """Finds a selection that satisfies the bounds, has capacity for the replicas and includes all
    clusters in `kept`. Returns the indexes of the selected clusters; None: none was found.

    `kept`: indexes of the clusters that must be selected; may be empty.

    A greedy search is tried first, then the exact dynamic-programming table. The table prefers
    selections with the most clusters of `kept`, then with the fewest groups, then with the largest
    capacity. For the first preference, a number above the capacity of all clusters together is
    added to the capacity of each cluster in `kept`.

    Example: two zones with capacities (3, 1) and (2, 9), at least 2 zones, at most 2 clusters, 10
    replicas. With `kept` [1], clusters 1 and 3 are selected. With `kept` [0, 1] there is no
    selection.
    """
    must = np.array(kept, dtype=np.int64)
    if asked.exceeded_by(must):
        return None
    found = _Greedy(asked, must).search()
    if found is not None and asked.keeps(found):
        return found
    value = asked.available.clip(0, asked.replicas)
    weight = int(value.sum()) + 1 if kept else 0
    if weight * (len(kept) + 1) >= 2**62:
        return None
    value[kept] += weight
    table = tables(asked.fields, asked.least, asked.most, value)
    chosen = table.pick(table.fewest(asked.replicas, weight))
    return chosen if chosen is not None and set(kept) <= set(chosen.tolist()) else None


def _greedily(asked: _Asked, *, steady: bool) -> Ints | None:
    """Runs the greedy search from several starting points. Returns the indexes of the first
    selection that satisfies all bounds; None: no search found one.

    The starting points are: the clusters that hold replicas (if `steady`); no cluster; and each of
    the best ranked `STARTS` clusters alone. All searches together may examine at most about `LOOKS`
    clusters for a swap, to bound the work.

    Example: two zones with capacities (3, 1) and (2, 9), at least 2 zones, at most 2 clusters, 10
    replicas: the clusters with 3 and 9 are selected.
    """
    starts = [np.flatnonzero(asked.held)] if steady else []
    starts.append(np.zeros(0, dtype=np.int64))
    starts += [np.array([i], dtype=np.int64) for i in range(min(STARTS, len(asked.held)))]
    looks = LOOKS
    for start in starts:
        search = _Greedy(asked, start, looks)
        found = search.search()
        looks = search.looks
        if found is not None and asked.keeps(found):
            return found
    return None


class _Greedy:
    """Searches greedily: adds clusters one by one without exceeding a maximum of any grouping.

    First it adds the clusters that are in most of the missing groups, then those with the largest
    capacity. If the replicas still do not fit, it swaps clusters for larger ones; each cluster
    examined costs one of `looks`. At the end it adds all other clusters that the bounds permit.
    `start`: indexes of the clusters it begins with.
    """

    def __init__(self, asked: _Asked, start: Ints, looks: int = 0) -> None:
        self.asked, self.looks = asked, looks
        self.taken = np.zeros(len(asked.held), dtype=np.bool_)
        self.used = [np.zeros(f.count, dtype=np.int64) for f in asked.fields]
        for i in start.tolist():
            self._add(i)

    def search(self) -> Ints | None:
        """Runs the greedy search and returns the indexes of the selected clusters; None: the
        missing groups cannot be covered.

        It adds clusters until every minimum is reached, then clusters with the largest capacity
        until the replicas fit. If no cluster can be added and the replicas still do not fit, it
        swaps clusters. At the end it adds all other clusters that need no further group in a
        grouping with a maximum. The caller checks whether the selection satisfies all bounds.

        Example: two zones with capacities (3, 1) and (2, 9), at least 2 zones, at most 2 clusters,
        10 replicas. It adds the clusters with 3 and 2, then swaps 2 for 9.
        """
        asked = self.asked
        while self._missing():
            if (best := self._covering()) is None:
                return None
            self._add(best)
        for _ in range(len(asked.held)):
            if int(asked.available[self.taken].sum()) >= asked.replicas:
                break
            if (best := self._roomiest()) is None:
                break
            self._add(best)
        while (
            int(asked.available[self.taken].sum()) < asked.replicas
            and self.looks > 0
            and self._swapped()
        ):
            pass
        return _filled(asked, np.flatnonzero(self.taken), self._allowed(opening=False))

    def _count(self) -> int:
        return int(np.count_nonzero(self.taken))

    def _missing(self) -> bool:
        lacking = any(
            np.count_nonzero(u) < f.least for f, u in zip(self.asked.fields, self.used, strict=True)
        )
        return lacking or self._count() < self.asked.least

    def _add(self, i: int, sign: int = 1) -> None:
        self.taken[i] = sign > 0
        for field, used in zip(self.asked.fields, self.used, strict=True):
            used[field.groups[i]] += sign

    def _allowed(self, *, opening: bool = True) -> Mask:
        """Returns, for each cluster, whether it may be added without exceeding a maximum. `opening`
        False: only if it adds no new group to a grouping that has a maximum."""
        asked = self.asked
        if asked.most is not None and self._count() >= asked.most:
            return np.zeros(len(asked.held), dtype=np.bool_)
        allowed = ~self.taken
        for field, used in zip(asked.fields, self.used, strict=True):
            full = field.most is not None and np.count_nonzero(used) >= field.most
            if full or (not opening and field.most is not None):
                allowed &= used[field.groups] > 0
        return allowed

    def _covering(self) -> int | None:
        """Returns the index of the cluster to add next, while a minimum number of groups or of
        clusters is not reached. None: no cluster that may be added helps.

        Each spread constraint counts groups of clusters, such as regions or zones. The best cluster
        brings a new group to the most constraints that are below their minimum. Ties: the cluster
        that brings a new group to the fewest of the other constraints with a maximum, because these
        may not get many more groups. Then the best ranked cluster.

        Example: the constraints on regions and zones are both below their minimum. A cluster in a
        new region and a new zone is better than a cluster in a new zone only.
        """
        allowed = self._allowed()
        if not allowed.any():
            return None
        gain = np.zeros(len(allowed), dtype=np.int64)
        opens = np.zeros(len(allowed), dtype=np.int64)
        for field, used in zip(self.asked.fields, self.used, strict=True):
            new = used[field.groups] == 0
            if np.count_nonzero(used) < field.least:
                gain += new
            elif field.most is not None:
                opens += new
        if not gain[allowed].any() and self._count() >= self.asked.least:
            return None
        return _first_best(allowed, gain * (len(self.used) + 1) - opens)

    def _roomiest(self) -> int | None:
        allowed = self._allowed()
        return _first_best(allowed, self.asked.available) if allowed.any() else None

    def _swapped(self) -> bool:
        """Makes one swap: removes a selected cluster and adds another cluster, so that the capacity
        grows as much as possible and no bound is violated. Returns whether a swap was made; False:
        no swap increases the capacity.

        Every selected cluster is tried; each reduces `looks`, the remaining number of tries, by
        one.

        Example: the clusters with capacities 3 and 2 are selected, and 9 is in the same zone as 2.
        The swap of 2 for 9 adds 7.
        """
        asked = self.asked
        best, change = 0, None
        for i in np.flatnonzero(self.taken).tolist():
            self.looks -= 1
            self._add(i, -1)
            allowed = self._allowed()
            for field, used in zip(asked.fields, self.used, strict=True):
                if np.count_nonzero(used) < field.least:
                    allowed &= used[field.groups] == 0
            allowed[i] = False
            if allowed.any():
                other = _first_best(allowed, asked.available)
                if (gained := int(asked.available[other] - asked.available[i])) > best:
                    best, change = gained, (i, other)
            self._add(i)
        if change is None:
            return False
        self._add(change[0], -1)
        self._add(change[1])
        return True


def _first_best(allowed: Mask, value: Ints) -> int:
    """Returns the index of the allowed cluster with the highest value; ties: the best ranked."""
    return int(np.where(allowed, value, value.min() - 1).argmax())


def _not_found(asked: _Asked, spread: Sequence[SpreadConstraint]) -> str:
    bounds = []
    for constraint in spread:
        least, most = constraint.min_groups, constraint.max_groups
        said = (
            f"{least} to {most}"
            if least > 0 and most > 0
            else f"at most {most}"
            if most > 0
            else f"at least {least}"
        )
        bounds.append(f"{said} {plural(constraint)}")
    none = "no choice of" if not asked.fields or _tabled(asked) else "no choice found of"
    holding = f" holds {asked.replicas} replicas" if asked.replicas else " is there"
    said = f"{none} {' in '.join(bounds)}{holding}"
    return f"{said}: {why}" if (why := _hopeless(asked)) else said
