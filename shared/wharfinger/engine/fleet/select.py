"""Which of the feasible clusters are used at all, so that the spread constraints hold.

Clusters come ranked: score, then what is available, then name. How they are chosen is in `spread`, which keeps every
constraint, by cluster, region, zone, provider and label, alone and together. A placement that is `strict` is treated as
Karmada does it, and that is here: a constraint by cluster takes the first few of the order and, where the replicas are
divided, swaps in roomier ones until they hold what is wanted. A constraint by region scores each region by its best members,
looks for the best set of regions (`regions`, with the answer of Karmada's exhaustive search), takes the best cluster of each
and fills up by rank. Zones and providers only have to exist (the filter has seen to that), an unset maxGroups is 0 and
chooses nothing, and regions are never dropped for the sake of cluster.maxGroups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from wharfinger.domain.placement import Placement, SpreadConstraint
from wharfinger.engine.fleet.candidates import (
    LOCALITY,
    Candidate,
    Group,
    Unselectable,
    gathered,
    groups_of_candidate,
    homes,
    rank,
)
from wharfinger.engine.fleet.regions import MAX_CELLS, best_groups, cells
from wharfinger.engine.fleet.spread import MOST, Columns, choose, divided_score, duplicated_score, numbered, roomier

__all__ = [
    "LOCALITY",
    "Candidate",
    "Group",
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
    """Whether spread constraints choose clusters. Static weights name their clusters themselves, so there they do not."""
    scheduling = placement.replicas
    weighted = scheduling.type == "Divided" and scheduling.preference == "Weighted"
    return bool(placement.spread) and not (weighted and not scheduling.dynamic)


def select(
    ranked: Sequence[Candidate], placement: Placement, replicas: int, *, fresh: bool = False
) -> list[Candidate] | Unselectable:
    """The clusters to divide over, in rank order as far as that means anything. `fresh`: they are chosen as if nothing were held,
    though what is held still ranks first. Whoever divides over them lets `keep.keep_spread` look at the outcome."""
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
    ranked: Sequence[Candidate], placement: Placement, replicas: int, *, fresh: bool
) -> list[Candidate] | Unselectable:
    """Clusters over several zones are counted for as many zones as possible; for as few, where that finds nothing or would
    move what is held, and a maxGroups is set that this might keep."""
    first: list[Candidate] | Unselectable | None = None
    for counted in (homes, gathered) if _several(ranked, placement) else (homes,):
        found = choose(columns_of(ranked, placement, counted), placement, replicas, fresh=fresh)
        chosen = found if isinstance(found, Unselectable) else [ranked[i] for i in found.tolist()]
        if isinstance(chosen, list) and (fresh or sum(c.score > 0 for c in chosen) == sum(c.score > 0 for c in ranked)):
            return chosen
        if first is None or (isinstance(first, Unselectable) and isinstance(chosen, list)):
            first = chosen
    assert first is not None, "clusters are counted in some way"
    return first


def _several(ranked: Sequence[Candidate], placement: Placement) -> bool:
    bounded = any(c.field == "zone" and c.max_groups > 0 for c in placement.spread)
    return bounded and any(c.facts is not None and len(c.facts.zones) > 1 for c in ranked)


Counted = Callable[[Sequence[tuple[str, ...]]], list[str]]
"""For which of its groups each cluster counts."""


def columns_of(ranked: Sequence[Candidate], placement: Placement, counted: Counted = homes) -> Columns:
    """Candidates in rank order as `spread.choose` reads them."""
    groups = tuple(numbered(homes_of(ranked, c, counted)) for c in placement.spread if c.field != "cluster")
    return Columns(
        np.array([c.score > 0 for c in ranked], dtype=np.bool_),
        np.array([min(c.available, MOST) for c in ranked], dtype=np.int64),
        groups,
    )


def homes_of(ranked: Sequence[Candidate], constraint: SpreadConstraint, counted: Counted = homes) -> list[str]:
    """The group that each candidate counts for, empty where there is none. Those with replicas have theirs first, whatever their
    tier: what they count for does not depend on the others."""
    order = sorted(range(len(ranked)), key=lambda i: ranked[i].score <= 0)
    found = counted([groups_of_candidate(ranked[i], constraint) for i in order])
    out = [""] * len(ranked)
    for i, name in zip(order, found, strict=True):
        out[i] = name
    return out


def _by_cluster(
    ranked: Sequence[Candidate], constraint: SpreadConstraint, replicas: int, divided: bool
) -> list[Candidate] | Unselectable:
    if len(ranked) < constraint.min_groups:
        return Unselectable(f"spread over at least {constraint.min_groups} clusters, {len(ranked)} feasible")
    taken = min(len(ranked), max(0, constraint.max_groups))
    if not taken:
        return Unselectable("spread over at most 0 clusters: maxGroups is not set")
    if not divided or replicas <= 0:
        return list(ranked[:taken])
    chosen = roomier([c.available for c in ranked], taken, replicas)
    if chosen is None:
        return Unselectable(f"{taken} clusters at most: the roomiest hold fewer than {replicas} replicas")
    return [ranked[i] for i in chosen]


def _by_region(
    ranked: Sequence[Candidate],
    region: SpreadConstraint,
    cluster: SpreadConstraint,
    replicas: int,
    divided: bool,
) -> list[Candidate] | Unselectable:
    groups = region_groups(ranked, region, cluster, replicas, divided)
    if len(groups) < region.min_groups:
        return Unselectable(f"spread over at least {region.min_groups} regions, {len(groups)} feasible")
    members = min(cluster.min_groups, len(ranked))
    if cells(len(groups), region.min_groups, region.max_groups, members) > MAX_CELLS:
        return Unselectable(f"{len(groups)} regions and at least {cluster.min_groups} clusters are too many to search")
    chosen = best_regions(groups, region.min_groups, region.max_groups, cluster.min_groups)
    if not chosen:
        return Unselectable(f"no set of at most {region.max_groups} regions has {cluster.min_groups} clusters")
    taken = [group.members[0] for group in chosen]
    others = rank([c for group in chosen for c in group.members[1:]])
    room = max(0, min(cluster.max_groups, sum(len(g.members) for g in chosen)) - len(taken))
    return taken + others[:room]


def region_groups(
    ranked: Sequence[Candidate],
    region: SpreadConstraint,
    cluster: SpreadConstraint,
    replicas: int,
    divided: bool,
) -> list[Group]:
    """Regions with their scores, in order of first appearance in the ranking."""
    return groups_by(ranked, region, cluster, replicas, divided)


def groups_by(
    ranked: Sequence[Candidate],
    constraint: SpreadConstraint,
    cluster: SpreadConstraint,
    replicas: int,
    divided: bool,
) -> list[Group]:
    """The groups of any constraint, scored as Karmada scores regions; a cluster with several zones is a member of each."""
    members: dict[str, list[Candidate]] = {}
    for candidate in ranked:
        for name in groups_of_candidate(candidate, constraint) or (("",) if candidate.facts is None else ()):
            members.setdefault(name, []).append(candidate)
    return [
        Group(name, _score(own, constraint.min_groups, cluster.min_groups, replicas, divided), tuple(own))
        for name, own in members.items()
    ]


def _score(members: Sequence[Candidate], min_groups: int, min_clusters: int, replicas: int, divided: bool) -> int:
    scores, available = [c.score for c in members], [c.available for c in members]
    if divided:
        return divided_score(scores, available, min_groups, min_clusters, replicas)
    return duplicated_score(scores, available, replicas)


def best_regions(groups: Sequence[Group], least: int, most: int, min_clusters: int) -> list[Group]:
    """The set of `least` to `most` regions with at least `min_clusters` members and the highest sum of scores; then the
    most members; then the first found. A set that qualifies is not extended. A better-ranked prefix of the winner wins."""
    named = sorted(groups, key=lambda g: g.name)
    found = best_groups([len(g.members) for g in named], [g.score for g in named], least, most, min_clusters)
    return [named[i] for i in found]
