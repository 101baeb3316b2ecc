"""The clusters that a selection chooses from, and in which groups of a spread constraint each of them lies.

A cluster lies in one region, has one provider and one value of a label. Zones are a list: a cluster over several zones counts
for one of them, since one replica in it runs in one zone. For which one is not the order's business: of the clusters together
as many zones as possible are counted (`homes`), clusters that hold replicas first, so that what others bring never takes a
zone from them; or, where that makes too many, as few as possible (`gathered`). Karmada lists such a cluster under each of its
zones, and chooses by none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import SpreadConstraint

LOCALITY = 100
"""Score of a cluster that holds replicas of the binding already: moving costs, staying does not."""


class Candidate(msgspec.Struct, frozen=True):
    """`available`: what still fits plus what the binding holds there. `tier`: 0 in the affinity itself, i in its i-th overflow
    group. `facts`: of which zone, provider and labels are read; None: it is in no group but its cluster and region."""

    name: str
    score: int
    available: int
    region: str = ""
    tier: int = 0
    facts: Cluster | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A region, zone, provider or value of a label: its score, and its members in rank order."""

    name: str
    score: int
    members: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Unselectable:
    """The sentence says which constraint cannot be met."""

    note: str


def rank(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda c: (c.tier, -c.score, -c.available, c.name))


def groups_of(cluster: Cluster, constraint: SpreadConstraint) -> tuple[str, ...]:
    """The groups of the constraint that the cluster may count for; none: it cannot be counted into any."""
    if constraint.label:
        value = cluster.labels.get(constraint.label, "")
        return (value,) if value else ()
    match constraint.field:
        case "region":
            return (cluster.region,) if cluster.region else ()
        case "provider":
            return (cluster.provider,) if cluster.provider else ()
        case "zone":
            return tuple(dict.fromkeys(cluster.zones))
        case _:
            return (cluster.name,)


def groups_of_candidate(candidate: Candidate, constraint: SpreadConstraint) -> tuple[str, ...]:
    if candidate.facts is not None:
        return groups_of(candidate.facts, constraint)
    if constraint.field == "region":
        return (candidate.region,) if candidate.region else ()
    return (candidate.name,) if constraint.field == "cluster" else ()


def homes(groups: Sequence[tuple[str, ...]]) -> list[str]:
    """For which of its groups each cluster counts, empty where it has none: as many different groups as possible. Clusters
    that come first keep counting for a group of their own whatever comes after them."""
    if all(len(g) <= 1 for g in groups):
        return [g[0] if g else "" for g in groups]
    owner: dict[str, int] = {}
    home: dict[int, str] = {}
    for i in range(len(groups)):
        _find_home(i, groups, owner, home)
    return [home.get(i, g[0] if g else "") for i, g in enumerate(groups)]


def gathered(groups: Sequence[tuple[str, ...]]) -> list[str]:
    """For which of its groups each cluster counts, so that these are few: again and again the group that most clusters share."""
    home = [""] * len(groups)
    left = [i for i, own in enumerate(groups) if own]
    while left:
        shared = Counter(name for i in left for name in groups[i])
        best = min(shared, key=lambda name: (-shared[name], name))
        for i in left:
            home[i] = best if best in groups[i] else ""
        left = [i for i in left if not home[i]]
    return home


def _find_home(new: int, groups: Sequence[tuple[str, ...]], owner: dict[str, int], home: dict[int, str]) -> None:
    """A group for `new` that is not counted yet; those that have one may change theirs for it, none of them loses it (Kuhn
    1955)."""
    wanted_by = dict.fromkeys(groups[new], new)
    waiting = list(groups[new])
    for group in waiting:
        holder = owner.get(group)
        if holder is not None:
            fresh = [other for other in groups[holder] if other not in wanted_by]
            wanted_by.update(dict.fromkeys(fresh, holder))
            waiting.extend(fresh)
            continue
        while True:
            taker = wanted_by[group]
            left = home.get(taker, "")
            home[taker], owner[group] = group, taker
            if taker == new:
                return
            group = left
