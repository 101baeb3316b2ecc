"""Selects, among the feasible clusters, those that are used, so that the spread constraints hold.

Clusters are ranked by score, capacity and name. `spread` enforces all constraints, by cluster,
region, zone, provider and label. With `strict` the rules here are Karmada's. By cluster: the first
in rank order and, where replicas are divided, clusters with more capacity swapped in until the
replicas fit. By region: each region is scored by its best members, the best set of regions is found
(`regions`), the best cluster of each is taken, and the rest is filled by rank. Zones and providers
only have to exist (checked by the filter), an unset maxGroups is 0 and selects nothing, and regions
are never dropped to satisfy the maxGroups of clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.engine.fleet.candidates import (
    LOCALITY,
    ClusterCandidate,
    SpreadGroup,
    Unselectable,
    gathered,
    groups_of_candidate,
    homes,
    rank,
)
from wharfinger.engine.fleet.regions import MAX_CELLS, best_groups, cells
from wharfinger.engine.fleet.spread import (
    MOST,
    Columns,
    choose,
    divided_score,
    duplicated_score,
    numbered,
    roomier,
)

__all__ = [
    "LOCALITY",
    "ClusterCandidate",
    "SpreadGroup",
    "Unselectable",
    "best_regions",
    "constrained",
    "groups_by",
    "homes_of",
    "rank",
    "region_groups",
    "select",
]


def constrained(placement: Placement) -> bool:
    """Returns whether spread constraints select clusters. They do not with static weights, because
    these name their clusters themselves."""
    scheduling = placement.replicas
    weighted = scheduling.type == "Divided" and scheduling.preference == "Weighted"
    return bool(placement.spread) and not (weighted and not scheduling.dynamic)


def select(
    ranked: Sequence[ClusterCandidate], placement: Placement, replicas: int, *, fresh: bool = False
) -> list[ClusterCandidate] | Unselectable:
    """Selects the clusters that the replicas will be divided over, so that the spread constraints
    hold. Returns the selected clusters. If no spread constraint applies, all candidates are
    returned; with static weights no spread constraint applies.

    `ranked`: the candidates, best first.
    `replicas`: how many replicas must fit in the selected clusters together.
    `fresh`: select as if no replicas were held; clusters with replicas still rank first in
      `ranked`.

    With `strict` the selection is Karmada's, and the result need not be in rank order. Otherwise
    the result is in rank order. Returns Unselectable, with the cause as a sentence, if no selection
    satisfies the constraints.

    The later division may leave a selected region or zone without a replica. So the caller must
    pass the division to `spread_floor.keep_spread`.
    """
    if not constrained(placement):
        return list(ranked)
    if not placement.strict:
        return _by_any(ranked, placement, replicas, fresh=fresh)
    divided = placement.replicas.type == "Divided"
    by_field = {c.field: c for c in placement.spread if c.field}
    region, cluster = by_field.get("region"), by_field.get("cluster")
    if region is not None:
        return _by_region(ranked, region, cluster or SpreadConstraint(), replicas, divided)
    if cluster is not None:
        return _by_cluster(ranked, cluster, replicas, divided)
    return Unselectable("spread constraints need one by cluster or by region to choose by")


def _by_any(
    ranked: Sequence[ClusterCandidate], placement: Placement, replicas: int, *, fresh: bool
) -> list[ClusterCandidate] | Unselectable:
    """Selects clusters under spread constraints of any kind: by cluster, region, zone, provider and
    label (`spread.choose`). Returns the selected clusters in rank order, or Unselectable.

    A cluster with several zones is assigned to one of its zones for the selection. The first
    attempt assigns the clusters so that as many zones as possible are covered. A second attempt
    covers few zones. It is made only if a constraint by zone has a maxGroups, some cluster has
    several zones, and the first attempt failed or left out a cluster that holds replicas. With
    `fresh`, a cluster that is left out is no reason for a second attempt.

    Returns the first selection that keeps all clusters that hold replicas (with `fresh`, simply the
    first selection). If no selection keeps all of them, returns the first selection. If both
    attempts found no selection, returns the first refusal.

    `ranked`: the candidates, best first.
    `replicas`: how many replicas must fit in the selected clusters together.
    `fresh`: select as if no replicas were held.
    """
    first: list[ClusterCandidate] | Unselectable | None = None
    for counted in (homes, gathered) if _several(ranked, placement) else (homes,):
        found = choose(columns_of(ranked, placement, counted), placement, replicas, fresh=fresh)
        chosen = found if isinstance(found, Unselectable) else [ranked[i] for i in found.tolist()]
        if isinstance(chosen, list) and (
            fresh or sum(c.score > 0 for c in chosen) == sum(c.score > 0 for c in ranked)
        ):
            return chosen
        if first is None or (isinstance(first, Unselectable) and isinstance(chosen, list)):
            first = chosen
    assert first is not None, "clusters are counted in some way"
    return first


def _several(ranked: Sequence[ClusterCandidate], placement: Placement) -> bool:
    bounded = any(c.field == "zone" and c.max_groups > 0 for c in placement.spread)
    return bounded and any(c.facts is not None and len(c.facts.zones) > 1 for c in ranked)


Counted = Callable[[Sequence[tuple[str, ...]]], list[str]]
"""Assigns each cluster to one of its groups (`homes` or `gathered`). Input: for each cluster, the
groups it may count for."""


def columns_of(
    ranked: Sequence[ClusterCandidate], placement: Placement, counted: Counted = homes
) -> Columns:
    """Converts candidates in rank order to the arrays that `spread.choose` reads."""
    groups = tuple(
        numbered(homes_of(ranked, c, counted)) for c in placement.spread if c.field != "cluster"
    )
    return Columns(
        np.array([c.score > 0 for c in ranked], dtype=np.bool_),
        np.array([min(c.available, MOST) for c in ranked], dtype=np.int64),
        groups,
    )


def homes_of(
    ranked: Sequence[ClusterCandidate], constraint: SpreadConstraint, counted: Counted = homes
) -> list[str]:
    """Returns the group that each candidate counts for; "" where it has none. Clusters that hold
    replicas are assigned first, so that their group does not depend on the others. `counted`: the
    rule for clusters that belong to several groups."""
    order = sorted(range(len(ranked)), key=lambda i: ranked[i].score <= 0)
    found = counted([groups_of_candidate(ranked[i], constraint) for i in order])
    out = [""] * len(ranked)
    for i, name in zip(order, found, strict=True):
        out[i] = name
    return out


def _by_cluster(
    ranked: Sequence[ClusterCandidate], constraint: SpreadConstraint, replicas: int, divided: bool
) -> list[ClusterCandidate] | Unselectable:
    """Selects clusters as Karmada does under a constraint by cluster: the first maxGroups clusters
    in rank order. Returns the selected clusters.

    If the replicas are divided and do not fit in these clusters, some are exchanged for clusters
    with more capacity until the replicas fit. Returns Unselectable if fewer than minGroups clusters
    are feasible, if maxGroups is not set, or if the replicas do not fit even then.

    `ranked`: the candidates, best first.
    `replicas`, `divided`: how many replicas are wanted, and whether they are divided or duplicated.

    Example: capacities 3, 1, 2, 9, maxGroups 2, 10 replicas. The first and the fourth cluster are
    selected.
    """
    if len(ranked) < constraint.min_groups:
        return Unselectable(
            f"spread over at least {constraint.min_groups} clusters, {len(ranked)} feasible"
        )
    taken = min(len(ranked), max(0, constraint.max_groups))
    if not taken:
        return Unselectable("spread over at most 0 clusters: maxGroups is not set")
    if not divided or replicas <= 0:
        return list(ranked[:taken])
    chosen = roomier([c.available for c in ranked], taken, replicas)
    if chosen is None:
        return Unselectable(
            f"{taken} clusters at most: the roomiest hold fewer than {replicas} replicas"
        )
    return [ranked[i] for i in chosen]


def _by_region(
    ranked: Sequence[ClusterCandidate],
    region: SpreadConstraint,
    cluster: SpreadConstraint,
    replicas: int,
    divided: bool,
) -> list[ClusterCandidate] | Unselectable:
    """Selects clusters as Karmada does under a constraint by region. Returns the selected clusters:
    first the best cluster of each region in the best set of regions, then the remaining clusters of
    these regions by rank, up to the maxGroups of the constraint by cluster.

    `ranked`: the candidates, best first.
    `region`, `cluster`: the constraints by region and by cluster.
    `replicas`, `divided`: how many replicas are wanted, and whether they are divided or duplicated.

    Returns Unselectable if fewer than minGroups regions are feasible, if no set of regions has
    enough clusters, or if there are too many combinations to search.

    Example: the best set is region X with clusters A, B and region Y with cluster C. With maxGroups
    2 by cluster, A and C are selected; with 3, A, C and B.
    """
    groups = region_groups(ranked, region, cluster, replicas, divided)
    if len(groups) < region.min_groups:
        return Unselectable(
            f"spread over at least {region.min_groups} regions, {len(groups)} feasible"
        )
    members = min(cluster.min_groups, len(ranked))
    if cells(len(groups), region.min_groups, region.max_groups, members) > MAX_CELLS:
        return Unselectable(
            f"{len(groups)} regions and at least {cluster.min_groups} clusters are too many to "
            "search"
        )
    chosen = best_regions(groups, region.min_groups, region.max_groups, cluster.min_groups)
    if not chosen:
        return Unselectable(
            f"no set of at most {region.max_groups} regions has {cluster.min_groups} clusters"
        )
    taken = [group.members[0] for group in chosen]
    others = rank([c for group in chosen for c in group.members[1:]])
    room = max(0, min(cluster.max_groups, sum(len(g.members) for g in chosen)) - len(taken))
    return taken + others[:room]


def region_groups(
    ranked: Sequence[ClusterCandidate],
    region: SpreadConstraint,
    cluster: SpreadConstraint,
    replicas: int,
    divided: bool,
) -> list[SpreadGroup]:
    """Returns the regions with their scores, in order of first appearance in the ranking."""
    return groups_by(ranked, region, cluster, replicas, divided)


def groups_by(
    ranked: Sequence[ClusterCandidate],
    constraint: SpreadConstraint,
    cluster: SpreadConstraint,
    replicas: int,
    divided: bool,
) -> list[SpreadGroup]:
    """Returns the groups of one spread constraint (its regions, zones, providers or values of a
    label) with their scores, in order of first appearance in the ranking. The score of a group is
    computed as Karmada computes the score of a region.

    `ranked`: the candidates, best first.
    `constraint`: the constraint whose groups are returned; its minGroups is used in the score.
    `cluster`: the constraint by cluster; its minGroups is used in the score too.
    `replicas`, `divided`: how many replicas are wanted, and whether they are divided or duplicated.

    A cluster with several zones is a member of each of these zones.

    Example: A (region X), B (region Y), C (region X) give X with A and C, then Y with B.
    """
    members: dict[str, list[ClusterCandidate]] = {}
    for candidate in ranked:
        for name in groups_of_candidate(candidate, constraint) or (
            ("",) if candidate.facts is None else ()
        ):
            members.setdefault(name, []).append(candidate)
    return [
        SpreadGroup(
            name,
            _score(own, constraint.min_groups, cluster.min_groups, replicas, divided),
            tuple(own),
        )
        for name, own in members.items()
    ]


def _score(
    members: Sequence[ClusterCandidate],
    min_groups: int,
    min_clusters: int,
    replicas: int,
    divided: bool,
) -> int:
    scores, available = [c.score for c in members], [c.available for c in members]
    if divided:
        return divided_score(scores, available, min_groups, min_clusters, replicas)
    return duplicated_score(scores, available, replicas)


def best_regions(
    groups: Sequence[SpreadGroup], least: int, most: int, min_clusters: int
) -> list[SpreadGroup]:
    """Selects the best set of regions as Karmada does, and returns its regions, best score first.
    Empty: no set qualifies. The work is done by `regions.best_groups`.

    `groups`: the regions with their scores and clusters.
    `least`, `most`: a set qualifies if it has at least `least` and at most `most` regions.
    `min_clusters`: a set qualifies if its regions have at least this many clusters together.

    The best set has the highest sum of scores. Ties: the set with the most clusters, then the set
    that is found first. The search adds regions to a set one by one, in ascending order of size,
    and adds no more to a set that qualifies. The regions of the best set are then listed best score
    first. If the first few of this list qualify alone, only these are returned, as few as possible.

    Example: regions with 1, 2, 2 clusters and scores 100, 300, 200, 2 regions and 3 clusters: the
    second and the third region are selected, with 500.
    """
    named = sorted(groups, key=lambda g: g.name)
    found = best_groups(
        [len(g.members) for g in named], [g.score for g in named], least, most, min_clusters
    )
    return [named[i] for i in found]
