"""From feasible clusters to an assignment: score, select, divide. The spine of a fleet decision.

What is asked for is either given in full or refused with a reason: a division never hands out a part.

Most bindings are divided by `division` alone. Three things make a division a *bounded* one (`bounds`): limits per cluster, static
weights within capacity, and remainders in order; and an affinity with overflow groups is divided tier by tier (`overflow`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.engine.fleet.bounded import bounded_by_capacity, bounded_by_weight
from wharfinger.engine.fleet.bounds import Bound, Unbounded, bounds_of
from wharfinger.engine.fleet.division import (
    Shares,
    Shortage,
    by_capacity,
    by_static_weight,
    duplicated,
    in_columns,
    names_descend,
)
from wharfinger.engine.fleet.filters import chooser, matches, tier_of
from wharfinger.engine.fleet.keep import keep_spread
from wharfinger.engine.fleet.overflow import tier_targets
from wharfinger.engine.fleet.pick import Grouping, pick
from wharfinger.engine.fleet.select import LOCALITY, Candidate, Unselectable, constrained, rank, select
from wharfinger.engine.fleet.spread import contradiction
from wharfinger.engine.fleet.trigger import ANY_CLUSTER

Refusal = Literal["NoClusterFit", "Unschedulable", "SpreadConstraint", "InvalidPlacement"]
"""No cluster is feasible; the feasible ones do not hold it; no choice of them keeps the spread; the policy is wrong."""

SPREAD_FIELDS = ("cluster", "region", "zone", "provider")

NO_STRATEGY = "replicas are Divided: a replicaDivisionPreference is needed, Aggregated or Weighted"


class Assigned(msgspec.Struct, frozen=True):
    """cluster -> replicas (0 for an object without replicas), and the weights that divided them."""

    replicas: dict[str, int]
    weights: dict[str, int]


class Unassignable(msgspec.Struct, frozen=True):
    reason: Refusal
    note: str


def assign(
    placement: Placement,
    clusters: Sequence[Cluster],
    estimates: Sequence[int],
    held: Mapping[str, int],
    replicas: int,
    *,
    counted: bool = True,
    fresh: bool = False,
    uid: str = "",
    weights: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    affinity: ClusterAffinity = ANY_CLUSTER,
    sets: bool = False,
    empties: bool = False,
    groups: Sequence[Grouping] | None = None,
) -> Assigned | Unassignable:
    """Divide `replicas` over `clusters`, all of them feasible; `estimates` says how many more fit into each.

    `held` is the assignment so far. `counted` False: an object without replicas. `sets`: a workload of several components, whose
    `estimates` count whole sets of them. `affinity`: the term in force, whose overflow groups come after its own clusters.
    `empties`: clusters that were selected and got nothing are listed, too. `weights`: the static weights of `clusters` where the
    caller has them at hand, and `names` their names. `groups`: with estimates in columns, which groups of the spread
    constraints the clusters lie in.
    """
    if not clusters:
        return Unassignable("NoClusterFit", "no cluster is feasible")
    chosen: list[Candidate] | Unselectable = []
    if groups is not None and names is not None and isinstance(estimates, np.ndarray):
        picked = pick(placement, clusters, names, estimates, held, replicas, groups, fresh=fresh)
        if isinstance(picked, Unselectable):
            return Unassignable("SpreadConstraint", picked.note)
        chosen, indexes = picked
        clusters, names = [clusters[i] for i in indexes], [names[i] for i in indexes]
        estimates, weights = estimates[indexes].tolist(), None
    elif chooses(placement, affinity, sets):
        chosen = selected(placement, clusters, estimates, held, replicas, affinity=affinity, sets=sets, fresh=fresh)
        if isinstance(chosen, Unselectable):
            return Unassignable("Unschedulable" if sets and not placement.strict else "SpreadConstraint", chosen.note)
        fits = {c.name: (c, n) for c, n in zip(clusters, estimates, strict=True)}
        names = [c.name for c in chosen]
        clusters = [fits[name][0] for name in names]
        estimates = [fits[name][1] for name in names]
        weights = None
    if names is None:
        names = [c.name for c in clusters]
    if not counted:
        return Assigned(dict.fromkeys(names, 0), {})
    if affinity.overflow:
        answer = _by_tiers(placement, clusters, names, estimates, held, replicas, fresh, uid, affinity)
    else:
        answer = _divided(placement, clusters, names, estimates, held, replicas, fresh, uid, weights)
    if isinstance(answer, Assigned) and constrained(placement):
        answer = _spread(placement, chosen, names, answer, {} if fresh else held)
    if isinstance(answer, Assigned) and empties:
        return Assigned({**answer.replicas, **{n: 0 for n in names if n not in answer.replicas}}, answer.weights)
    return answer


# Select


def chooses(placement: Placement, affinity: ClusterAffinity, sets: bool) -> bool:
    """Whether clusters are ranked and chosen before the division, or all feasible ones are divided over."""
    return constrained(placement) or bool(affinity.overflow) or (sets and _one_set(placement))


def selected(
    placement: Placement,
    clusters: Sequence[Cluster],
    estimates: Sequence[int],
    held: Mapping[str, int],
    replicas: int,
    *,
    affinity: ClusterAffinity = ANY_CLUSTER,
    sets: bool = False,
    fresh: bool = False,
) -> list[Candidate] | Unselectable:
    """The clusters to divide over, best first. `fresh`: they are chosen as if nothing were held.

    Component sets are chosen as if one replica were wanted, the set. Karmada looks at the room for them where a constraint asks for
    exactly one cluster, and otherwise sends them everywhere. Unless strict, sets of a Divided placement go to clusters that hold
    a whole one, and where nothing constrains the clusters, to one.
    """
    order = _limited(placement, ranked(clusters, estimates, held, affinity))
    if not sets:
        return select(order, placement, replicas, fresh=fresh)
    if not _one_set(placement):
        return select(order, placement, int(one_cluster(placement)), fresh=fresh)
    roomy = [c for c in order if c.available + (c.name in held) > 0]
    if not roomy:
        return Unselectable("no cluster has room for a whole set of components")
    return select(roomy, placement, 1, fresh=fresh) if constrained(placement) else roomy[:1]


def _limited(placement: Placement, order: list[Candidate]) -> list[Candidate]:
    """What may lie in a cluster is no more than its limit, however much would fit, and nothing where its least would not fit."""
    limits = placement.replicas.limits
    if not limits:
        return order
    bounds = bounds_of(limits, [c.name for c in order])
    room = [min(c.available, b.most) for c, b in zip(order, bounds, strict=True)]
    usable = [n if n >= b.least else 0 for n, b in zip(room, bounds, strict=True)]
    return rank([msgspec.structs.replace(c, available=n) for c, n in zip(order, usable, strict=True)])


def one_cluster(placement: Placement) -> bool:
    """Whether a spread constraint asks for exactly one cluster: where Karmada counts sets of components."""
    return any(c.field == "cluster" and c.min_groups == c.max_groups == 1 for c in placement.spread)


def _one_set(placement: Placement) -> bool:
    return placement.replicas.type == "Divided" and not placement.strict


def ranked(
    clusters: Sequence[Cluster],
    estimates: Sequence[int],
    held: Mapping[str, int],
    affinity: ClusterAffinity = ANY_CLUSTER,
) -> list[Candidate]:
    """Best first: by tier, then clusters that hold some already (even none of it yet), then the roomiest, then by name."""
    tiered = bool(affinity.overflow)
    return rank(
        [
            Candidate(
                c.name,
                LOCALITY if c.name in held else 0,
                n + held.get(c.name, 0),
                c.region,
                (tier_of(affinity, c) or 0) if tiered else 0,
                c,
            )
            for c, n in zip(clusters, estimates, strict=True)
        ]
    )


def _rank_order(names: Sequence[str], estimates: Sequence[int], held: Mapping[str, int]) -> list[int]:
    """As `ranked`, by index."""
    if not held:
        return sorted(range(len(names)), key=lambda i: (-estimates[i], names[i]))
    return sorted(
        range(len(names)), key=lambda i: (names[i] not in held, -estimates[i] - held.get(names[i], 0), names[i])
    )


# Divide


def _by_tiers(
    placement: Placement,
    clusters: Sequence[Cluster],
    names: Sequence[str],
    estimates: Sequence[int],
    held: Mapping[str, int],
    replicas: int,
    fresh: bool,
    uid: str,
    affinity: ClusterAffinity,
) -> Assigned | Unassignable:
    """Each tier divides its part on its own; a tier that gets nothing gives up what it holds."""
    tiers: dict[int, list[int]] = {tier: [] for tier in range(len(affinity.overflow) + 1)}
    for i, cluster in enumerate(clusters):
        tiers[tier_of(affinity, cluster) or 0].append(i)
    room = _capped(placement, names, estimates, held)
    parts = tier_targets(
        [sum([room[i] for i in members]) for members in tiers.values()],
        [sum([held.get(names[i], 0) for i in members]) for members in tiers.values()],
        replicas,
        refill=fresh or placement.strict,
    )
    if isinstance(parts, Shortage):
        return _short(parts)
    shares: dict[str, int] = {}
    weights: dict[str, int] = {}
    for members, part in zip(tiers.values(), parts, strict=True):
        if not members or part <= 0:
            continue
        answer = _divided(
            placement, [clusters[i] for i in members], [names[i] for i in members], [estimates[i] for i in members],
            held, part, fresh, uid, None,
        )  # fmt: skip
        if isinstance(answer, Unassignable):
            return answer
        shares.update(answer.replicas)
        weights.update(answer.weights)
    return Assigned(shares, weights)


def _divided(
    placement: Placement,
    clusters: Sequence[Cluster],
    names: Sequence[str],
    estimates: Sequence[int],
    held: Mapping[str, int],
    replicas: int,
    fresh: bool,
    uid: str,
    weights: Sequence[int] | None,
) -> Assigned | Unassignable:
    scheduling = placement.replicas
    if scheduling.type == "Duplicated":
        return Assigned(duplicated(names, replicas).replicas, {})
    if not scheduling.preference:
        return Unassignable("InvalidPlacement", NO_STRATEGY)
    descending = names_descend(uid)
    bounded = scheduling.bounded
    answer: Shares | Shortage | Unbounded
    if scheduling.preference == "Weighted" and not scheduling.dynamic:
        if weights is None:
            weights = static_weights(placement, clusters)
        if not bounded:
            shares = by_static_weight(names, weights, replicas, descending)
            return Assigned(shares.replicas, shares.weights)
        order = _rank_order(names, estimates, held)
        answer = bounded_by_weight(
            [names[i] for i in order],
            [weights[i] for i in order],
            replicas,
            _static_bounds(scheduling, [names[i] for i in order], [estimates[i] for i in order], held),
            descending=descending,
            in_order=scheduling.remainder == "in-order",
        )
    else:
        aggregated = scheduling.preference == "Aggregated"
        if bounded or (aggregated and not constrained(placement) and not in_columns(estimates)):
            order = _rank_order(names, estimates, held)
            names, estimates = [names[i] for i in order], [estimates[i] for i in order]
        if bounded:
            answer = bounded_by_capacity(
                names, estimates, held, replicas, bounds_of(scheduling.limits, names), aggregated=aggregated,
                fresh=fresh, descending=descending, in_order=scheduling.remainder == "in-order",
            )  # fmt: skip
        else:
            answer = by_capacity(
                names, estimates, held, replicas, aggregated=aggregated, fresh=fresh, descending=descending
            )
    match answer:
        case Shares():
            return Assigned(answer.replicas, answer.weights)
        case Shortage():
            return _short(answer)
        case Unbounded():
            return Unassignable("Unschedulable", answer.note)


def _spread(
    placement: Placement,
    chosen: list[Candidate] | Unselectable,
    names: Sequence[str],
    answer: Assigned,
    held: Mapping[str, int],
) -> Assigned:
    """A group that the spread needs and the division left out gets a replica after all."""
    assert not isinstance(chosen, Unselectable), "refused before anything is divided"
    kept = {name: n for name in names if (n := held.get(name, 0))}
    least = {
        name: b.least for name, b in zip(names, bounds_of(placement.replicas.limits, names), strict=True) if b.least > 1
    }
    return Assigned(keep_spread(placement, chosen, answer.replicas, kept, least), answer.weights)


def _short(short: Shortage) -> Unassignable:
    return Unassignable("Unschedulable", f"{short.wanted} replicas to place, {short.available} fit")


def _static_bounds(
    scheduling: ReplicaScheduling, names: Sequence[str], estimates: Sequence[int], held: Mapping[str, int]
) -> list[Bound]:
    bounds = bounds_of(scheduling.limits, names)
    if not scheduling.within_capacity:
        return bounds
    return [
        Bound(bound.least, min(bound.most, held.get(name, 0) + max(0, fits)), bound.due)
        for bound, name, fits in zip(bounds, names, estimates, strict=True)
    ]


def _capped(placement: Placement, names: Sequence[str], estimates: Sequence[int], held: Mapping[str, int]) -> list[int]:
    """How many more may go to each cluster: what fits, and no more than its limit lets in."""
    bounds = bounds_of(placement.replicas.limits, names)
    return [
        max(0, min(int(fits), bound.most - held.get(name, 0)))
        for name, fits, bound in zip(names, estimates, bounds, strict=True)
    ]


def static_weights(placement: Placement, clusters: Sequence[Cluster]) -> list[int]:
    """The highest weight among the rules that match each cluster; 0 when none does."""
    rules = placement.replicas.static
    if len(clusters) == 1 or any(rule.weight < 0 for rule in rules):
        return [max((rule.weight for rule in rules if matches(rule.target, c)), default=0) for c in clusters]
    weights = [0] * len(clusters)
    for rule in sorted(rules, key=lambda rule: -rule.weight):
        within = chooser(msgspec.structs.replace(rule.target, overflow=()))
        for i, cluster in enumerate(clusters):
            if not weights[i] and within(cluster):
                weights[i] = rule.weight
    return weights


# What no choice of clusters can mend


def problem_of(placement: Placement) -> str:
    """What is wrong with the placement itself, in one sentence; empty: nothing. Such a placement is refused, never guessed.

    As Karmada does it (`strict`), wrong spread constraints and overflow groups are not looked at before they are met.
    """
    found = [_wrong_replicas(placement)]
    if not placement.strict:
        found += [_wrong_spread(placement), _wrong_overflow(placement)]
    return next((sentence for sentence in found if sentence), "")


def _wrong_spread(placement: Placement) -> str:
    for constraint in placement.spread:
        what = f"label {constraint.label}" if constraint.label else constraint.field
        if (constraint.field and constraint.label) or (not constraint.label and constraint.field not in SPREAD_FIELDS):
            return f"spread constraint by {what or 'nothing'}: one of {', '.join(SPREAD_FIELDS)} or a label is expected"
        if constraint.min_groups < 0 or constraint.max_groups < 0:
            return f"spread constraint by {what}: minGroups and maxGroups must not be negative"
        if 0 < constraint.max_groups < constraint.min_groups:
            return (
                f"spread constraint by {what}: maxGroups {constraint.max_groups} "
                f"is less than minGroups {constraint.min_groups}"
            )
    return contradiction(placement.spread)


def _wrong_replicas(placement: Placement) -> str:
    scheduling = placement.replicas
    for rule in scheduling.static:
        if rule.weight < 0:
            return f"static weight {rule.weight} is negative"
    divided = scheduling.type == "Divided"
    if scheduling.limits and not divided:
        return "least and most replicas of clusters are for Divided replicas, these are Duplicated"
    if scheduling.within_capacity and not (divided and scheduling.preference == "Weighted" and not scheduling.dynamic):
        return "static weights within capacity need Divided replicas with static weights"
    if twice := _first_twice(limit.cluster for limit in scheduling.limits):
        return f"two limits for the cluster {twice}"
    for limit in scheduling.limits:
        if limit.least < 0 or (limit.most is not None and limit.most < 0):
            return f"a limit of replicas for the cluster {limit.cluster} is negative"
        if limit.most is not None and limit.most < limit.least:
            return f"the cluster {limit.cluster} may have {limit.most} replicas at most and {limit.least} at least"
    return ""


def _wrong_overflow(placement: Placement) -> str:
    scheduling = placement.replicas
    by_room = scheduling.type == "Divided" and (scheduling.preference == "Aggregated" or scheduling.dynamic)
    for term in placement.affinities:
        if term.overflow and not by_room:
            return "overflow groups need Divided replicas, Aggregated or with dynamic weights: others do not go by room"
        if any(group.overflow for group in term.overflow):
            return f"an overflow group of the affinity {term.name} has overflow groups of its own"
    return ""


def _first_twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""
