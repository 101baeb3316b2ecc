"""Defines the clusters that a selection chooses from, and finds the groups of each spread
constraint that they belong to.

A cluster has one region, one provider and one value of a label. Zones are a list: a cluster over
several zones counts for only one of them, since one replica runs in one zone. The assignment of
clusters to zones is a maximum bipartite matching (`homes`): as many zones as possible are covered,
and clusters that hold replicas go first, so that a new cluster never takes a zone from them. If
that covers too many zones, the fewest are used (`gathered`). Karmada lists such a cluster under
each of its zones, and cannot select by zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import SpreadConstraint
from wharfinger.rules.clusters.locality import LOCALITY as LOCALITY


class ClusterCandidate(msgspec.Struct, frozen=True):
    """Holds a feasible cluster as the selection sees it.

    `available`: the replicas that still fit plus those that the binding holds there.
    `tier`: 0 for a cluster of the affinity itself, i for one of its i-th overflow group.
    `facts`: the source of zones, provider and labels; None: only the cluster's name and region are
      known as groups.
    """

    name: str
    score: int
    available: int
    region: str = ""
    tier: int = 0
    facts: Cluster | None = None


@dataclass(frozen=True, slots=True)
class SpreadGroup:
    """Holds a region, a zone, a provider or a value of a label, with its score. `members`: its
    clusters in rank order."""

    name: str
    score: int
    members: tuple[ClusterCandidate, ...]


@dataclass(frozen=True, slots=True)
class Unselectable:
    """Holds a refusal of the selection. `note`: a sentence that says which constraint cannot be
    satisfied."""

    note: str


def rank(candidates: Sequence[ClusterCandidate]) -> list[ClusterCandidate]:
    return sorted(candidates, key=lambda c: (c.tier, -c.score, -c.available, c.name))


def groups_of(cluster: Cluster, constraint: SpreadConstraint) -> tuple[str, ...]:
    """Returns the names of the groups that the cluster belongs to under one spread constraint. The
    constraint decides what a group is:

    - a label: the cluster's value of the label;
    - region, provider: the cluster's region or provider;
    - zone: all zones of the cluster;
    - cluster: the cluster itself.

    Only a constraint by zone can give more than one group. Empty: the cluster belongs to no group.

    Example: a cluster with zones a and b gives ("a", "b") by zone and (its name,) by cluster.
    """
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


def groups_of_candidate(
    candidate: ClusterCandidate, constraint: SpreadConstraint
) -> tuple[str, ...]:
    if candidate.facts is not None:
        return groups_of(candidate.facts, constraint)
    if constraint.field == "region":
        return (candidate.region,) if candidate.region else ()
    return (candidate.name,) if constraint.field == "cluster" else ()


def homes(groups: Sequence[tuple[str, ...]]) -> list[str]:
    """Assigns each cluster to one of its groups (such as zones), so that as many different groups
    as possible get a cluster. The method is maximum bipartite matching (Kuhn's algorithm).

    `groups`: for each cluster, the groups that it belongs to. Returns one group per cluster, "" for
      a cluster without groups.

    Clusters are processed in list order. If every group of a cluster is needed for an earlier
    cluster, the cluster gets its first group, although another cluster has that group too. An
    earlier cluster may get another group later, but a group that has a cluster never becomes empty.

    Example: the first cluster has zones a and b, the second only a. The first gets b, the second
    gets a.
    """
    if all(len(g) <= 1 for g in groups):
        return [g[0] if g else "" for g in groups]
    owner: dict[str, int] = {}
    home: dict[int, str] = {}
    for i in range(len(groups)):
        _find_home(i, groups, owner, home)
    return [home.get(i, g[0] if g else "") for i, g in enumerate(groups)]


def gathered(groups: Sequence[tuple[str, ...]]) -> list[str]:
    """Assigns each cluster to one of its groups (such as zones), so that few different groups are
    used. The method is greedy set cover: repeatedly take the group that the most unassigned
    clusters have in common, and assign these clusters to it. Ties: the first name.

    `groups`: for each cluster, the groups that it belongs to. Returns one group per cluster, "" for
      a cluster without groups.

    Example: the first cluster has zones a and b, the second b and c. Both get b.
    """
    home = [""] * len(groups)
    left = [i for i, own in enumerate(groups) if own]
    while left:
        shared = Counter(name for i in left for name in groups[i])
        best = min(shared, key=lambda name: (-shared[name], name))
        for i in left:
            home[i] = best if best in groups[i] else ""
        left = [i for i in left if not home[i]]
    return home


def _find_home(
    new: int, groups: Sequence[tuple[str, ...]], owner: dict[str, int], home: dict[int, str]
) -> None:
    """Tries to give the cluster `new` a group (such as a zone) that no other cluster has; for this,
    other clusters may be moved to another group that they belong to. This is one augmenting path of
    a bipartite matching (Kuhn 1955), found by breadth-first search.

    `new`: the index of the cluster.
    `groups`: for each cluster, the groups that it belongs to.
    `owner`: group -> index of the cluster that has it.
    `home`: index of a cluster -> the group that it has.

    Changes `owner` and `home` in place. A cluster that had a group still has one afterwards. If no
    free group can be reached, nothing changes.

    Example: cluster 0 belongs to a and b and has a; cluster 1 belongs only to a. Adding cluster 1
    gives it a, and cluster 0 gets b.
    """
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
