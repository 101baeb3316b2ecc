"""A choice of clusters that keeps every spread constraint: over clusters, regions, zones, providers and labels, alone and
together.

What is promised. For every constraint the chosen clusters lie in at least minGroups and at most maxGroups groups; an unset
maxGroups is no bound. Where replicas are divided, only clusters with room are chosen and together they hold all replicas, and
what `keep` makes of the division puts a replica into as many groups as minGroups says (or as there are replicas, if these are
fewer).

How it is chosen, the first that keeps every constraint:

1. without any maxGroups: all clusters;
2. with one by cluster only: the best ranked, roomier ones swapped in from the back until they hold the replicas;
3. what is held, filled up by rank from the groups it lies in: a binding that keeps its constraints stays where it is; or, where
   nothing is held or a fresh choice is asked for, and one grouping is bounded, as Karmada chooses regions;
4. cluster by cluster, beginning with what is held, those first that are in most of the groups still missing;
5. by table (`nested`), where the groups lie within each other as zones do in regions and regions in providers: as much of
   what is held as possible, then the fewest groups;
6. where they do not, or where the table would be too large, 4 again from other beginnings and with swaps.

Where groups lie within each other, and where there is one grouping only, that is exact: if any choice keeps the constraints and
holds the replicas, one is found, so that more room never turns success into a refusal. Groups that cross each other are in general
a set cover, 6 may miss a choice, and the refusal says that none was *found*. All of it is polynomial: clusters x the maxGroups of
the constraints that set one, and, for 6, a number of steps that is fixed.

After Karmada's `spreadConstraints`; that zones, providers and labels choose is what its users ask for in its issues 3187 and
5355, and OCM's in community 49 and 153.
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
"""Room beyond that is not told apart, so that no sum overflows."""

TRIES = 16
"""How often it is tried to keep some of what is held."""

STARTS = 16
LOOKS = 2_000
"""How often the greedy search begins anew, and at how many clusters it looks for a roomier one instead. Counted, never timed, so
that every machine stops at the same place."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Clusters in rank order. `held` bool[n]: they hold replicas of the binding; `available` int64[n]: what fits plus what is
    held; `groups`: int64[n] for each constraint that is not by cluster, in their order in the placement: the number of the
    group the cluster counts for, in order of name (`numbered`), -1 for none."""

    held: Mask
    available: Ints
    groups: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """One choice: `replicas` 0 where room is not asked about. `least` and `most` (None: any number) are of clusters."""

    held: Mask
    available: Ints
    fields: tuple[Field, ...]
    least: int
    most: int | None
    replicas: int

    def exceeded_by(self, chosen: Ints) -> bool:
        """Whether these are too many, or in too many groups, whatever is added to them."""
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
    """Groups as numbers in order of name; -1 where there is no name."""
    numbers = {name: i for i, name in enumerate(sorted(set(names) - {""}))}
    return np.array([numbers.get(name, -1) for name in names], dtype=np.int64)


def choose(columns: Columns, placement: Placement, replicas: int, *, fresh: bool = False) -> Ints | Unselectable:
    """Indexes of the chosen in rank order. Where the replicas fit nowhere, whatever is chosen, all clusters: the division
    tells it."""
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
    chosen = None if _hopeless(asked) else _chosen(asked, placement, replicas, divided=divided, fresh=fresh)
    if chosen is None:
        return Unselectable(_not_found(asked, placement.spread))
    return within[np.sort(chosen)]


def _room(available: Ints) -> Ints:
    return np.maximum(np.minimum(available, MOST), 0)


def contradiction(spread: Sequence[SpreadConstraint]) -> str:
    """Why no choice can keep the constraints, whatever there is; empty: one might."""
    most = min((c.max_groups for c in spread if c.field == "cluster" and c.max_groups > 0), default=None)
    for constraint in spread:
        if most is not None and constraint.min_groups > most:
            return f"at most {most} clusters cannot spread over at least {constraint.min_groups} {plural(constraint)}"
    return ""


def plural(constraint: SpreadConstraint) -> str:
    return f"values of label {constraint.label}" if constraint.label else f"{constraint.field}s"


def _too_few(
    columns: Columns, spread: Sequence[SpreadConstraint], within: Mask, what: str, replicas: int | None = None
) -> Unselectable | None:
    """More groups are wanted than there are. As many as there are `replicas` are enough."""
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
            return Unselectable(f"spread over at least {least} {plural(constraint)}, {found} {what}")
    return None


def _asked(columns: Columns, placement: Placement, replicas: int, within: Ints) -> _Asked:
    """Only what bounds a choice: groups that may all be used, and of which any one suffices, are left out."""

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
            fields.append(Field((np.cumsum(present) - 1)[own], count, wanted(constraint), bound, plural(constraint)))
    available = _room(columns.available[within])
    return _Asked(columns.held[within], available, tuple(fields), least, most, replicas)


def _hopeless(asked: _Asked) -> str:
    """Which bound alone keeps the replicas from being held, whatever else is chosen; empty: none does."""
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


def _chosen(asked: _Asked, placement: Placement, replicas: int, *, divided: bool, fresh: bool) -> Ints | None:
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
    tried = _as_it_lies(asked) if steady else _as_karmada(asked, placement, replicas, divided=divided)
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
    return is_nested(asked.fields) and table_fits(asked.fields, asked.least, asked.most, len(asked.held))


def roomier(available: Sequence[int], count: int, replicas: int) -> list[int] | None:
    """The first `count`, each from the last to the first changed for the roomiest of the others while they do not hold `replicas`.
    None: not even the `count` roomiest hold them."""
    taken = list(range(count))
    rest = list(range(count, len(available)))
    total = sum(available[:count])
    position = count - 1
    while position >= 0 and total < replicas:
        roomiest = max(range(len(rest)), key=lambda i: available[rest[i]], default=None)  # the first of equals
        if roomiest is not None and available[rest[roomiest]] > available[taken[position]]:
            total += available[rest[roomiest]] - available[taken[position]]
            taken[position], rest[roomiest] = rest[roomiest], taken[position]
        position -= 1
    return taken if total >= replicas else None


# --- what is held, and what Karmada would choose


def _as_it_lies(asked: _Asked) -> Ints | None:
    """The clusters that hold replicas, filled up from their groups; roomier ones instead of those that are filled up with."""
    allowed = np.ones(len(asked.held), dtype=np.bool_)
    for field in asked.fields:
        if field.most is not None:
            used = np.zeros(field.count, dtype=np.bool_)
            used[field.groups[asked.held]] = True
            allowed &= used[field.groups]
    return _filled(asked, np.flatnonzero(asked.held), allowed)


def _filled(asked: _Asked, must: Ints, allowed: Mask) -> Ints | None:
    """`must` and as many of the `allowed` as may be, the best ranked, or roomier ones where they hold too little."""
    others = allowed.copy()
    others[must] = False
    more = np.flatnonzero(others)
    free = len(more) if asked.most is None else asked.most - len(must)
    if free < 0:
        return None
    missing = asked.replicas - int(asked.available[must].sum())
    if asked.replicas and free < len(more):
        found = roomier(asked.available[more].tolist(), free, missing)
        return None if found is None else np.concatenate([must, more[np.array(found, dtype=np.int64)]])
    return np.concatenate([must, more[:free]])


def _as_karmada(asked: _Asked, placement: Placement, replicas: int, *, divided: bool) -> Ints | None:
    """Where one grouping alone is bounded: the best set of groups, the best cluster of each, then by rank."""
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
    """Karmada's score of a group where every cluster gets all: how many of its members hold them, then how good these are."""
    holding = [score for score, room in zip(scores, available, strict=True) if room >= replicas]
    return 1000 * len(holding) + sum(holding) // len(holding) if holding else 0


def divided_score(
    scores: Sequence[int], available: Sequence[int], min_groups: int, min_clusters: int, replicas: int
) -> int:
    """Karmada's score of a group where replicas are divided: how much of its share its best members hold, then how good these
    are. Members in rank order."""
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
    """The fewest groups that hold the replicas, with as much of what is held as can be kept."""
    if not asked.replicas:  # every cluster gets all of them: those that hold them count first
        value = 1 + len(asked.held) * (asked.available >= replicas)
        weight = int(value.sum()) + 1 if steady else 0
        table = tables(asked.fields, asked.least, asked.most, value + weight * asked.held)
        return table.pick(table.fewest(0, weight))
    found = _with_all(asked, [])
    return found if found is None or not steady else _with_most(asked, found)


def _with_most(asked: _Asked, found: Ints) -> Ints:
    """What is held is kept beginning with the best ranked: all of it; or half, and so on; what cannot be kept is passed over."""
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
    """A choice that holds the replicas with all of `kept` in it. What is quickly said comes first: these are too many already, or
    it is enough to add others to them. In the table each of them outweighs all room there is."""
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
    """From what is held, from nothing, and from each of the best ranked: the first that keeps the constraints."""
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
    """Clusters added one by one, none that opens a group too many: those that are in most of the groups still missing; then the
    roomiest; then roomier ones for those taken; in the end all that may be used besides."""

    def __init__(self, asked: _Asked, start: Ints, looks: int = 0) -> None:
        self.asked, self.looks = asked, looks
        self.taken = np.zeros(len(asked.held), dtype=np.bool_)
        self.used = [np.zeros(f.count, dtype=np.int64) for f in asked.fields]
        for i in start.tolist():
            self._add(i)

    def search(self) -> Ints | None:
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
        while int(asked.available[self.taken].sum()) < asked.replicas and self.looks > 0 and self._swapped():
            pass
        return _filled(asked, np.flatnonzero(self.taken), self._allowed(opening=False))

    def _count(self) -> int:
        return int(np.count_nonzero(self.taken))

    def _missing(self) -> bool:
        lacking = any(np.count_nonzero(u) < f.least for f, u in zip(self.asked.fields, self.used, strict=True))
        return lacking or self._count() < self.asked.least

    def _add(self, i: int, sign: int = 1) -> None:
        self.taken[i] = sign > 0
        for field, used in zip(self.asked.fields, self.used, strict=True):
            used[field.groups[i]] += sign

    def _allowed(self, *, opening: bool = True) -> Mask:
        """Those that may be added; `opening` False: only into groups in use where these are bounded."""
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
        """One cluster for a roomier one, the change that gains most; False: there is none."""
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
    """The best ranked of those with the highest value."""
    return int(np.where(allowed, value, value.min() - 1).argmax())


def _not_found(asked: _Asked, spread: Sequence[SpreadConstraint]) -> str:
    bounds = []
    for constraint in spread:
        least, most = constraint.min_groups, constraint.max_groups
        said = (
            f"{least} to {most}" if least > 0 and most > 0 else f"at most {most}" if most > 0 else f"at least {least}"
        )
        bounds.append(f"{said} {plural(constraint)}")
    none = "no choice of" if not asked.fields or _tabled(asked) else "no choice found of"
    holding = f" holds {asked.replicas} replicas" if asked.replicas else " is there"
    said = f"{none} {' in '.join(bounds)}{holding}"
    return f"{said}: {why}" if (why := _hopeless(asked)) else said
