"""That a division keeps the spread: a group that was chosen so that there are enough of them really gets a replica.

A selection says where replicas may lie; a division by weights, or into as few clusters as hold them, may still leave chosen
groups empty. Here as few replicas as possible are moved, one at a time, so that of every constraint as many groups hold a
replica as minGroups says, or as there are replicas, if these are fewer. Where a division keeps the spread by itself, as it
mostly does, nothing is changed.

The clusters that must have a replica are found by taking, again and again, the one that is in most of the groups still
missing. Of groups within groups (zones in regions) that never takes more clusters than the largest minGroups; of groups that
cross it may take more than there are replicas, and then the spread is kept as far as these go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.engine.fleet.candidates import Candidate, gathered, groups_of, groups_of_candidate, homes

NO_LEAST: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """So many of the groups of a constraint get a replica. `home`: cluster -> the group it counts for."""

    least: int
    home: dict[str, str]

    def missing(self) -> int:
        return max(0, self.least - len(set(self.home.values()) - {""}))


def broken(spread: Sequence[SpreadConstraint], clusters: Sequence[Cluster], replicas: int) -> str:
    """Which constraint `clusters`, each with some of the `replicas`, do not keep; empty: they keep all. A cluster over several
    zones may count for any one of them; with how few of them all can do is found by taking, again and again, the zone that most
    share."""
    for constraint in spread:
        groups = [groups_of(c, constraint) for c in clusters]
        by = f"label {constraint.label}" if constraint.label else constraint.field
        if not all(groups):
            return f"a cluster is in no group by {by}"
        most, fewest = len(set(homes(groups))), len(set(gathered(groups)))
        if most < min(constraint.min_groups, replicas) or 0 < constraint.max_groups < fewest:
            count = most if most < constraint.min_groups else fewest
            return f"{count} by {by}, {constraint.min_groups} to {constraint.max_groups or 'any'} wanted"
    return ""


def keep_spread(
    placement: Placement,
    chosen: Sequence[Candidate],
    given: Mapping[str, int],
    kept: Mapping[str, int],
    least: Mapping[str, int] = NO_LEAST,
) -> dict[str, int]:
    """The division `given` of replicas over the `chosen` clusters, with every group that needs one holding a replica; the sum
    is the same.

    `kept`: what of it lay there before; it is moved after what is new, so that growing takes nothing away as long as there is
    anything else. `least`: how many replicas a cluster gets at least if it gets any, where it is not one; groups that can only be
    had with more replicas than there are go without.
    """
    total = sum(given.values())
    if placement.strict or placement.replicas.type != "Divided" or total <= 0:
        return dict(given)
    constraints = [c for c in placement.spread if c.min_groups > 1]
    used = [c for c in chosen if given.get(c.name, 0) > 0]
    if all(_kept(c, used, total) for c in constraints):
        return dict(given)
    # Those in use come first: they keep counting for groups of their own, and of equals they are taken.
    order = [*used, *(c for c in chosen if given.get(c.name, 0) <= 0)]
    order.sort(key=lambda c: least.get(c.name, 1) > 1)  # those that take few replicas first
    wanted = [_wanted(c, order, total) for c in constraints]
    with_room = [c.name for c in order if c.available >= max(1, least.get(c.name, 1)) or given.get(c.name, 0) > 0]
    needed = _needed(with_room, wanted)
    return _moved(needed, chosen, given, kept, least)


def _kept(constraint: SpreadConstraint, used: Sequence[Candidate], total: int) -> bool:
    """Whether enough groups have replicas. Only as many clusters are looked at as are needed, unless some count for one of several
    groups."""
    least = min(constraint.min_groups, total)
    found: set[str] = set()
    for candidate in used:
        groups = groups_of_candidate(candidate, constraint)
        if len(groups) > 1:
            return not _wanted(constraint, used, total).missing()
        found.update(groups)
        if len(found) >= least:
            return True
    return False


def _wanted(constraint: SpreadConstraint, order: Sequence[Candidate], total: int) -> _Wanted:
    found = homes([groups_of_candidate(c, constraint) for c in order])
    return _Wanted(min(constraint.min_groups, total), {c.name: g for c, g in zip(order, found, strict=True)})


def _needed(names: Sequence[str], wanted: Sequence[_Wanted]) -> list[str]:
    """Clusters that are in enough groups of every constraint, those first that are in most of the missing ones; else all that
    helps."""
    needed: dict[str, None] = {}
    found: list[set[str]] = [set() for _ in wanted]
    while open_ := [i for i, w in enumerate(wanted) if len(found[i]) < w.least]:
        best, most = "", 0
        for name in names:
            gain = sum([wanted[i].home[name] not in found[i] for i in open_])
            if gain > most:
                best, most = name, gain
                if most == len(open_):
                    break
        if not most:
            break
        needed[best] = None
        for i, w in enumerate(wanted):
            found[i].add(w.home[best])
    return list(needed)


def _moved(
    needed: Sequence[str],
    chosen: Sequence[Candidate],
    given: Mapping[str, int],
    kept: Mapping[str, int],
    least: Mapping[str, int],
) -> dict[str, int]:
    """Each needed cluster its replica, as long as there is one to spare; or all that lie in a cluster that may not have fewer."""
    moving = _Moving(dict(given), {name: max(1, least.get(name, 1)) for name in needed}, least)
    place = {c.name: i for i, c in enumerate(chosen)}
    room = {c.name: c.available for c in chosen}
    out = moving.out
    for name, wanted in moving.fixed.items():
        missing = wanted - out.get(name, 0)
        if missing > sum(moving.spare(n) for n in out if n != name):
            moving.empty_one_for(name, missing, room)
            continue
        for _ in range(missing):
            givers = [n for n in out if n != name and moving.spare(n) > 0]
            giver = max(givers, key=lambda n: (out[n] > 1, out[n] - kept.get(n, 0), out[n], place.get(n, -1), n))
            out[giver] -= 1
            out[name] = out.get(name, 0) + 1
    return {name: n for name, n in out.items() if n > 0}


@dataclass(frozen=True, slots=True)
class _Moving:
    """`out`: where replicas lie by now. `fixed`: how many the needed clusters have to have."""

    out: dict[str, int]
    fixed: Mapping[str, int]
    least: Mapping[str, int]

    def spare(self, name: str) -> int:
        floor = self.fixed.get(name, self.least.get(name, 1))
        return max(0, self.out[name] - (0 if name not in self.fixed and floor <= 1 else floor))

    def empty_one_for(self, name: str, missing: int, room: Mapping[str, int]) -> None:
        """A cluster whose least is in the way is left altogether: `missing` go to `name`, the rest to the roomiest of those
        in use."""
        for giver in sorted(self.out, key=lambda n: (self.out[n], n)):
            if giver in self.fixed or self.out[giver] < missing:
                continue
            takers = {n: room.get(n, 0) - r for n, r in {**self.out, name: self.out.get(name, 0) + missing}.items()}
            takers = {n: left for n, left in takers.items() if n != giver and left > 0}
            rest = self.out[giver] - missing
            if sum(takers.values()) < rest:
                continue
            self.out[name] = self.out.get(name, 0) + missing
            del self.out[giver]
            for _ in range(rest):
                taker = max(takers, key=lambda n: (takers[n], n))
                takers[taker] -= 1
                self.out[taker] += 1
            return
