"""Which of the feasible clusters are used at all, so that the spread constraints hold.

Clusters come ranked: score, then what is available, then name. A constraint by cluster takes the first few of that
order and, where the replicas are divided, swaps in roomier ones until they hold what is wanted. A constraint by region
scores each region by its best members, looks for the best set of regions, takes the best cluster of each and fills up
by rank. Zones and providers only have to exist (the filter has seen to that). All as in Karmada, whose search over
regions is exhaustive; ours stops after `MAX_STEPS` sets and keeps the best it has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wharfinger.domain.placement import Placement, SpreadConstraint

LOCALITY = 100
"""Score of a cluster that holds replicas of the binding already: moving costs, staying does not."""

MAX_STEPS = 20_000
"""How many sets of regions are looked at. Counted, never timed, so that every machine stops at the same one."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """`available`: what still fits plus what the binding holds there. `tier`: 0 in the affinity itself, i in its i-th overflow
    group."""

    name: str
    score: int
    available: int
    region: str = ""
    tier: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """A region: its score, and its members in rank order."""

    name: str
    score: int
    members: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Unselectable:
    """The sentence says which constraint cannot be met."""

    note: str


def rank(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda c: (c.tier, -c.score, -c.available, c.name))


def constrained(placement: Placement) -> bool:
    """Whether spread constraints choose clusters. Static weights name their clusters themselves, so there they do not."""
    scheduling = placement.replicas
    weighted = scheduling.type == "Divided" and scheduling.preference == "Weighted"
    return bool(placement.spread) and not (weighted and not scheduling.dynamic)


def select(ranked: Sequence[Candidate], placement: Placement, replicas: int) -> list[Candidate] | Unselectable:
    """The clusters to divide over, in rank order as far as that means anything."""
    if not constrained(placement):
        return list(ranked)
    divided = placement.replicas.type == "Divided"
    by_field = {c.field: c for c in placement.spread if c.field}
    region, cluster = by_field.get("region"), by_field.get("cluster")
    if region is not None:
        return _by_region(ranked, region, cluster or SpreadConstraint(), replicas, divided)
    if cluster is not None:
        return _by_cluster(ranked, cluster, replicas, divided)
    return Unselectable("spread constraints need one by cluster or by region to choose by")


def _by_cluster(
    ranked: Sequence[Candidate], constraint: SpreadConstraint, replicas: int, divided: bool
) -> list[Candidate] | Unselectable:
    if len(ranked) < constraint.min_groups:
        return Unselectable(f"spread over at least {constraint.min_groups} clusters, {len(ranked)} feasible")
    taken = list(ranked[: max(0, constraint.max_groups)])
    if not taken:
        return Unselectable("spread over at most 0 clusters: maxGroups is not set")
    rest = list(ranked[len(taken) :])
    if not divided or replicas <= 0:
        return taken
    position = len(taken) - 1
    while position >= 0 and sum(c.available for c in taken) < replicas:
        roomiest = max(range(len(rest)), key=lambda i: rest[i].available, default=None)  # the first of equals
        if roomiest is not None and rest[roomiest].available > taken[position].available:
            taken[position], rest[roomiest] = rest[roomiest], taken[position]
        position -= 1
    if sum(c.available for c in taken) < replicas:
        return Unselectable(f"{len(taken)} clusters at most: the roomiest hold fewer than {replicas} replicas")
    return taken


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
    members: dict[str, list[Candidate]] = {}
    for candidate in ranked:
        members.setdefault(candidate.region, []).append(candidate)
    return [
        Group(
            name,
            _divided_score(own, region.min_groups, cluster.min_groups, replicas)
            if divided
            else _duplicated_score(own, replicas),
            tuple(own),
        )
        for name, own in members.items()
    ]


def _duplicated_score(members: Sequence[Candidate], replicas: int) -> int:
    holding = [c for c in members if c.available >= replicas]
    return 1000 * len(holding) + sum(c.score for c in holding) // len(holding) if holding else 0


def _divided_score(members: Sequence[Candidate], min_regions: int, min_clusters: int, replicas: int) -> int:
    target = -(-replicas // max(1, min_regions))
    least = max(min_clusters, min_regions)
    available = score = taken = 0
    for candidate in members:
        available += candidate.available
        score += candidate.score
        taken += 1
        if taken >= least and available >= target:
            break
    return 1000 * min(target, available) + score // taken


def best_regions(groups: Sequence[Group], least: int, most: int, min_clusters: int) -> list[Group]:
    """The set of `least` to `most` regions with at least `min_clusters` members and the highest sum of scores; then the
    most members; then the first found. A set that qualifies is not extended. A better-ranked prefix of the winner wins."""
    order = sorted(groups, key=lambda g: (len(g.members), -g.score, g.name))
    found: list[tuple[int, int, int, tuple[Group, ...]]] = []
    # Depth first with a stack of our own: (next region to add, regions taken, their members).
    stack: list[tuple[int, tuple[Group, ...], int]] = [(0, (), 0)] if most > 0 else []
    for _ in range(MAX_STEPS):
        while stack and len(stack[-1][1]) + len(order) - stack[-1][0] < max(1, least):
            stack.pop()  # too few regions are left to complete this set
        if not stack:
            break
        position, taken, members = stack.pop()
        stack.append((position + 1, taken, members))
        if position >= len(order):
            stack.pop()
            continue
        taken, members = (*taken, order[position]), members + len(order[position].members)
        if len(taken) >= least and members >= min_clusters:
            found.append((-sum(g.score for g in taken), -members, len(found), taken))
        elif len(taken) < most:
            stack.append((position + 1, taken, members))
    if not found:
        return []
    found.sort(key=lambda f: f[:3])
    listed = [sorted(taken, key=lambda g: (-g.score, g.name)) for _, _, _, taken in found]
    best = listed[0]
    for other in listed[1:]:
        if len(other) < len(best) and best[: len(other)] == other:
            best = other
    return best
