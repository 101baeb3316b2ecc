"""Makes a division satisfy minGroups: moves as few replicas as possible into selected groups that
got none.

A selection says where replicas may go. A division by weights, or into as few clusters as possible,
can still leave selected groups empty. This module moves replicas one at a time until, for every
constraint, minGroups groups (or as many as there are replicas) hold a replica. A division that
satisfies the spread already, which is the usual case, is returned unchanged.

The clusters that need a replica are found by greedy set cover: repeatedly the one in most of the
groups still missing. For nested groups (zones in regions) that never needs more clusters than the
largest minGroups. For overlapping groups it may need more than there are replicas; the spread is
then satisfied as far as they suffice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.engine.fleet.candidates import (
    ClusterCandidate,
    gathered,
    groups_of,
    groups_of_candidate,
    homes,
)

NO_LEAST: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Holds the need of one constraint: `least` groups must hold a replica. `home`: cluster -> the
    group it counts for; "" for none."""

    least: int
    home: dict[str, str]

    def missing(self) -> int:
        return max(0, self.least - len(set(self.home.values()) - {""}))


def broken(spread: Sequence[SpreadConstraint], clusters: Sequence[Cluster], replicas: int) -> str:
    """Returns a sentence about the first spread constraint that an assignment violates; empty: it
    satisfies all constraints.

    `spread`: the spread constraints.
    `clusters`: the clusters that hold at least one replica in the assignment.
    `replicas`: the number of replicas of the assignment; a constraint needs at most that many
      groups (regions, zones and so on).

    A cluster in no group violates the constraint. A cluster with several zones is counted in one of
    its zones, in the way that is best for the assignment: minGroups is compared with the largest
    number of zones that the clusters can cover (`homes`), maxGroups with a greedy estimate of the
    smallest number (`gathered`).

    Example: two clusters in region X violate minGroups 2 by region. With 1 replica the assignment
    is allowed.
    """
    for constraint in spread:
        groups = [groups_of(c, constraint) for c in clusters]
        by = f"label {constraint.label}" if constraint.label else constraint.field
        if not all(groups):
            return f"a cluster is in no group by {by}"
        most, fewest = len(set(homes(groups))), len(set(gathered(groups)))
        if most < min(constraint.min_groups, replicas) or 0 < constraint.max_groups < fewest:
            count = most if most < constraint.min_groups else fewest
            return (
                f"{count} by {by}, {constraint.min_groups} to {constraint.max_groups or 'any'} "
                "wanted"
            )
    return ""


def keep_spread(
    placement: Placement,
    chosen: Sequence[ClusterCandidate],
    given: Mapping[str, int],
    kept: Mapping[str, int],
    least: Mapping[str, int] = NO_LEAST,
) -> dict[str, int]:
    """Changes a division so that for every spread constraint at least minGroups regions, zones or
    other groups hold a replica. Few replicas are moved. Returns cluster -> replicas; the sum of
    replicas is unchanged.

    `chosen`: the selected clusters, best first.
    `given`: cluster -> replicas, the division over the selected clusters.
    `kept`: cluster -> replicas that it held before this decision. New replicas are moved first, so
      that scaling up removes no running replica if possible.
    `least`: cluster -> the minimum number of replicas if the cluster gets any; 1 for clusters that
      are not listed.

    A group stays empty in two cases: no cluster of the group has room for the minimum of the
    cluster, or all other clusters together can give too few replicas. If the placement is `strict`
    or Duplicated, the division is returned unchanged.

    Example: minGroups 2, A in region X and B in region Y. The division A 5, B 0 becomes A 4, B 1.
    """
    total = sum(given.values())
    if placement.strict or placement.replicas.type != "Divided" or total <= 0:
        return dict(given)
    constraints = [c for c in placement.spread if c.min_groups > 1]
    used = [c for c in chosen if given.get(c.name, 0) > 0]
    if all(_kept(c, used, total) for c in constraints):
        return dict(given)
    # Those in use come first: they keep counting for groups of their own, and of equals they are
    # taken.
    order = [*used, *(c for c in chosen if given.get(c.name, 0) <= 0)]
    order.sort(key=lambda c: least.get(c.name, 1) > 1)  # those that take few replicas first
    wanted = [_wanted(c, order, total) for c in constraints]
    with_room = [
        c.name
        for c in order
        if c.available >= max(1, least.get(c.name, 1)) or given.get(c.name, 0) > 0
    ]
    needed = _needed(with_room, wanted)
    return _moved(needed, chosen, given, kept, least)


def _kept(constraint: SpreadConstraint, used: Sequence[ClusterCandidate], total: int) -> bool:
    """Returns whether enough groups of one spread constraint (such as regions) hold a replica: at
    least minGroups, or as many as there are replicas if that is less.

    `used`: the clusters that hold replicas.
    `total`: the number of replicas.

    The check stops as soon as enough groups are found. If a cluster belongs to several zones,
    clusters are assigned to zones so that as many zones as possible are covered (`homes`).

    Example: minGroups 3 and clusters in 2 regions: false. With `total` 2 it is true.
    """
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


def _wanted(constraint: SpreadConstraint, order: Sequence[ClusterCandidate], total: int) -> _Wanted:
    found = homes([groups_of_candidate(c, constraint) for c in order])
    return _Wanted(
        min(constraint.min_groups, total), {c.name: g for c, g in zip(order, found, strict=True)}
    )


def _needed(names: Sequence[str], wanted: Sequence[_Wanted]) -> list[str]:
    """Returns the names of the clusters that need a replica so that enough groups (regions, zones
    and so on) hold one.

    The method is greedy set cover. It repeatedly takes the cluster that adds a new group to the
    largest number of constraints that still need groups. Ties: the first in `names`.

    `names`: the clusters that can be used, the preferred ones first.
    `wanted`: for each constraint, how many groups must hold a replica, and the group of each
      cluster.

    If not all constraints can be satisfied, returns the clusters taken until no cluster adds a
    group.

    Example: 2 groups are needed; a and b are in group x, c is in group y. The result is [a, c].
    """
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
    chosen: Sequence[ClusterCandidate],
    given: Mapping[str, int],
    kept: Mapping[str, int],
    least: Mapping[str, int],
) -> dict[str, int]:
    """Moves replicas until each cluster in `needed` has its minimum. Returns the new division:
    cluster -> replicas, without clusters that have 0.

    `needed`: the clusters that must get replicas.
    `chosen`: the selected clusters, best first.
    `given`: cluster -> replicas, the division before the moves.
    `kept`: cluster -> replicas that it held before the decision.
    `least`: cluster -> the minimum number of replicas if the cluster gets any; 1 for clusters that
      are not listed.

    Replicas move one at a time. A cluster that is in `needed` or has a minimum above 1 gives only
    what it has above its minimum; any other cluster can give all of its replicas. Clusters with
    more than one replica give first; among these the cluster with the most new replicas (those
    beyond `kept`), then the one with the most replicas. If all clusters together can give too few
    replicas, one cluster is emptied (`empty_one_for`).

    Example: A has 5 replicas, B is needed and has 0: A 4, B 1.
    """
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
            giver = max(
                givers,
                key=lambda n: (out[n] > 1, out[n] - kept.get(n, 0), out[n], place.get(n, -1), n),
            )
            out[giver] -= 1
            out[name] = out.get(name, 0) + 1
    return {name: n for name, n in out.items() if n > 0}


@dataclass(frozen=True, slots=True)
class _Moving:
    """Holds a division while replicas are moved. `out`: cluster -> replicas so far. `fixed`:
    cluster -> replicas that a needed cluster must keep. `least`: cluster -> minimum of another
    cluster if it gets any; 1 for clusters that are not listed."""

    out: dict[str, int]
    fixed: Mapping[str, int]
    least: Mapping[str, int]

    def spare(self, name: str) -> int:
        """Returns how many replicas the cluster can give away without falling below its minimum. A
        cluster that is not needed and has no minimum above 1 can give all."""
        floor = self.fixed.get(name, self.least.get(name, 1))
        return max(0, self.out[name] - (0 if name not in self.fixed and floor <= 1 else floor))

    def empty_one_for(self, name: str, missing: int, room: Mapping[str, int]) -> None:
        """Empties one cluster, so that the cluster `name` gets `missing` replicas. This is used if
        all clusters must stay at or above their minimums and therefore can give too few replicas.
        The rest of the replicas of the emptied cluster go one by one to the cluster with the most
        free capacity (`room` - its replicas), among `name` and the clusters that have replicas.

        `room`: cluster -> how many replicas it can hold in all.

        The cluster with the fewest replicas is tried first. A cluster is not emptied if it is in
        `fixed` (it must have replicas itself), if it has fewer than `missing` replicas, or if the
        other clusters have no room for the rest. If no cluster can be emptied, nothing changes.

        Example: A has 3 replicas and a minimum of 3, C has 4 and a minimum of 4, each cluster can
        hold 9, and B needs 2. A is emptied: B gets 2, then the last replica, because B has the most
        free capacity. The result is B 3, C 4.
        """
        for giver in sorted(self.out, key=lambda n: (self.out[n], n)):
            if giver in self.fixed or self.out[giver] < missing:
                continue
            takers = {
                n: room.get(n, 0) - r
                for n, r in {**self.out, name: self.out.get(name, 0) + missing}.items()
            }
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
