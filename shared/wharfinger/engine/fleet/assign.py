"""Assigns a binding to the feasible clusters of one affinity term: selects clusters and divides the
replicas over them.

All or nothing: the wanted replicas are assigned in full, or refused with a reason. Static weights
within capacity (`room`) are the exception: as many replicas as fit are assigned, and the answer
says how many wait.

Most bindings are divided by `division` alone. Three features need a *bounded* division (`bounds`):
limits per cluster, static weights within capacity, and remainders in order. An affinity with
overflow groups is divided tier by tier (`overflow`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec
import numpy as np

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.engine.fleet.bounded import bounded_by_capacity, bounded_by_weight
from wharfinger.engine.fleet.bounds import ReplicaBounds, Unbounded, bounds_of
from wharfinger.engine.fleet.division import (
    Shares,
    Shortage,
    as_list,
    by_capacity,
    by_static_weight,
    duplicated,
    in_columns,
    names_descend,
)
from wharfinger.engine.fleet.overflow import tier_targets
from wharfinger.engine.fleet.pick import pick
from wharfinger.engine.fleet.question import Estimates, Question, Term
from wharfinger.engine.fleet.room import exceeds, weighed_within_room, without_preemption
from wharfinger.engine.fleet.select import ClusterCandidate, Unselectable, constrained, rank, select
from wharfinger.engine.fleet.spread_floor import keep_spread
from wharfinger.engine.fleet.webster import Array
from wharfinger.engine.fleet.weights import static_weights
from wharfinger.rules.clusters.affinity import tier_of
from wharfinger.rules.clusters.locality import locality

Refusal = Literal["NoClusterFit", "Unschedulable", "SpreadConstraint", "InvalidPlacement"]
"""The reason of a refusal, in this order: no cluster is feasible; the feasible clusters have too
little capacity; no selection of them satisfies the spread constraints; the policy is invalid."""

NO_STRATEGY = "replicas are Divided: a replicaDivisionPreference is needed, Aggregated or Weighted"


class ReplicaDivision(msgspec.Struct, frozen=True):
    """Holds the result of a successful assignment and how it was computed.

    `replicas`: cluster -> replicas. An object without replicas has 0 in each cluster.
    `chosen`: the selected clusters, best first; None: no selection was needed, and all feasible
      clusters were used.
    `shares`: one division for each tier that got replicas. Where the spread constraints require it,
      `replicas` differs from these by the fewest moves (`spread_floor`).
    """

    replicas: dict[str, int]
    chosen: Sequence[ClusterCandidate] | None = None
    shares: tuple[Shares, ...] = ()


class Unassignable(msgspec.Struct, frozen=True):
    """Holds a refusal: no assignment satisfies the placement. `chosen`: as in `ReplicaDivision`;
    empty if no selection of clusters was possible."""

    reason: Refusal
    note: str
    chosen: Sequence[ClusterCandidate] | None = None


class Offer(msgspec.Struct, frozen=True):
    """Holds the clusters that replicas are divided over. `estimates`: how many more replicas fit
    into each cluster. `weights`: the static weight of each cluster; None: not computed yet."""

    clusters: Sequence[Cluster]
    names: Sequence[str]
    estimates: Estimates
    weights: Sequence[int] | Array | None = None

    def only(self, indexes: Sequence[int]) -> Offer:
        """Returns the offer reduced to the clusters at `indexes`, without weights. The weights must
        be computed again: a cluster that no weight rule matches gets replicas only if no cluster in
        the offer has a weight."""
        estimates = self.estimates
        some = (
            estimates[indexes].tolist()
            if isinstance(estimates, np.ndarray)
            else [estimates[i] for i in indexes]
        )
        return Offer([self.clusters[i] for i in indexes], [self.names[i] for i in indexes], some)


def assign(question: Question, term: Term) -> ReplicaDivision | Unassignable:
    """Assigns the wanted replicas to the feasible clusters of one affinity term. Returns the number
    of replicas of each cluster and how it was computed; an object without replicas gets 0 in each
    selected cluster. It works in three steps:

    1. Select clusters by the spread constraints.
    2. Divide the replicas over the selected clusters by the strategy of the placement. If the
       affinity has overflow groups (further clusters that are used after its own), divide them tier
       by tier: the affinity's own clusters are tier 0, its i-th overflow group is tier i.
    3. If minGroups of a spread constraint requires it, move replicas into selected regions, zones
       or other groups that got none.

    Returns Unassignable (a refusal with its reason) if no cluster is feasible, or if step 1 or 2
    fails.

    `term`: the affinity term with its feasible clusters, and how many more replicas fit into each.
    """
    if not term.feasible.names:
        return Unassignable("NoClusterFit", "no cluster is feasible")
    selection = select_clusters(question, term)
    if isinstance(selection, Unassignable):
        return selection
    chosen, offer = selection
    if not question.counted:
        return ReplicaDivision(dict.fromkeys(offer.names, 0), chosen)
    tiered = bool(term.affinity.overflow)
    found = (
        _by_tiers(question, term.affinity, offer)
        if tiered
        else divide(question, offer, question.replicas)
    )
    if isinstance(found, Unassignable):
        return msgspec.structs.replace(found, chosen=chosen)
    shares = found if isinstance(found, tuple) else (found,)
    replicas = (
        shares[0].replicas
        if len(shares) == 1
        else {n: r for one in shares for n, r in one.replicas.items()}
    )
    if chosen is not None and constrained(question.placement):
        replicas = _spread(question, chosen, offer.names, replicas)
    if question.empties:
        replicas = {**replicas, **{name: 0 for name in offer.names if name not in replicas}}
    return ReplicaDivision(replicas, chosen, shares)


# Select


def select_clusters(
    question: Question, term: Term
) -> tuple[Sequence[ClusterCandidate] | None, Offer] | Unassignable:
    """Selects the clusters that the replicas will be divided over.

    Returns two parts: the selected clusters as candidates, best first, and an `Offer`, which is the
    input of the division: the same clusters in the same order, with their estimates. If the
    placement needs no selection, the first part is None, and the offer has all feasible clusters. A
    selection is needed for spread constraints, for overflow groups of an affinity and, without
    `strict`, for component sets of a Divided placement.

    Returns Unassignable (a refusal with its reason) if no selection satisfies the spread
    constraints, or if no cluster has capacity for a whole component set.

    `term`: an affinity term with its feasible clusters and their estimates. In a large fleet these
      estimates are an array, and the array version of the selection (`pick`) is used.
    """
    fit, estimates = term.feasible, term.estimates
    offer = Offer(fit.clusters, fit.names, estimates, fit.weights)
    if fit.groups is not None and isinstance(estimates, np.ndarray):
        picked = pick(
            question.placement,
            fit.clusters,
            fit.names,
            estimates,
            question.held,
            question.replicas,
            fit.groups,
            fresh=question.fresh,
        )
        if isinstance(picked, Unselectable):
            return Unassignable("SpreadConstraint", picked.note, ())
        chosen, indexes = picked
        return chosen, offer.only(indexes)
    if not chooses(question.placement, term.affinity, question.sets):
        return None, offer
    found = selected(question, term)
    if isinstance(found, Unselectable):
        lacking = question.sets and not question.placement.strict
        return Unassignable("Unschedulable" if lacking else "SpreadConstraint", found.note, ())
    place = {name: i for i, name in enumerate(fit.names)}
    return found, offer.only([place[c.name] for c in found])


def chooses(placement: Placement, affinity: ClusterAffinity, sets: bool) -> bool:
    """Returns whether clusters are selected before the division. They are with spread constraints,
    with overflow groups and, without `strict`, for component sets of a Divided placement. Otherwise
    replicas are divided over all feasible clusters."""
    return constrained(placement) or bool(affinity.overflow) or (sets and _one_set(placement))


def selected(question: Question, term: Term) -> list[ClusterCandidate] | Unselectable:
    """Ranks the feasible clusters of an affinity term (`term`) and selects those that the replicas
    will be divided over, so that the spread constraints hold. Returns the selected clusters, best
    first.

    A workload with several components is placed in whole sets of pods, one set in each selected
    cluster:

    - With `strict`, or with a Duplicated placement, capacity for a set is considered only if a
      spread constraint requires exactly one cluster. This is Karmada's rule.
    - Otherwise only clusters are considered that have capacity for a whole set or hold one. If the
      placement has no spread constraints, the best of these clusters is selected.

    Returns Unselectable, with the cause as a sentence, if no selection satisfies the constraints,
    or if no cluster has capacity for a set.
    """
    placement, fresh = question.placement, question.fresh
    order = _limited(placement, ranked(question, term))
    if not question.sets:
        return select(order, placement, question.replicas, fresh=fresh)
    if not _one_set(placement):
        return select(order, placement, int(one_cluster(placement)), fresh=fresh)
    roomy = [c for c in order if c.available + (c.name in question.held) > 0]
    if not roomy:
        return Unselectable("no cluster has room for a whole set of components")
    return select(roomy, placement, 1, fresh=fresh) if constrained(placement) else roomy[:1]


def _limited(placement: Placement, order: list[ClusterCandidate]) -> list[ClusterCandidate]:
    """Limits the capacity of each candidate by the cluster's replica limit in the policy, and ranks
    the candidates again. If the limit's minimum is above the capacity, the capacity counts as 0."""
    limits = placement.replicas.limits
    if not limits:
        return order
    bounds = bounds_of(limits, [c.name for c in order])
    room = [min(c.available, b.most) for c, b in zip(order, bounds, strict=True)]
    usable = [n if n >= b.least else 0 for n, b in zip(room, bounds, strict=True)]
    return rank(
        [msgspec.structs.replace(c, available=n) for c, n in zip(order, usable, strict=True)]
    )


def one_cluster(placement: Placement) -> bool:
    """Returns whether a spread constraint requires exactly one cluster. Only then does Karmada
    consider the capacity for component sets."""
    return any(c.field == "cluster" and c.min_groups == c.max_groups == 1 for c in placement.spread)


def _one_set(placement: Placement) -> bool:
    return placement.replicas.type == "Divided" and not placement.strict


def ranked(question: Question, term: Term) -> list[ClusterCandidate]:
    """Returns the feasible clusters of the affinity term as candidates, best first.

    Clusters are compared by these properties, in this order:

    1. the tier, lowest first: 0 for the affinity's own clusters, i for the clusters of its i-th
       overflow group;
    2. clusters that hold replicas of the binding come first;
    3. the capacity, largest first: replicas that still fit plus replicas held;
    4. the name.

    Example: A holds 2 replicas and 1 more fits; 9 replicas fit into B, 5 into C. The order is A, B,
    C.
    """
    fit, held = term.feasible, question.held
    tiered = bool(term.affinity.overflow)
    return rank(
        [
            ClusterCandidate(
                c.name,
                locality(c.name, held),
                n + held.get(c.name, 0),
                c.region,
                (tier_of(term.affinity, c) or 0) if tiered else 0,
                c,
            )
            for c, n in zip(fit.clusters, as_list(term.estimates), strict=True)
        ]
    )


def _rank_order(
    names: Sequence[str], estimates: Sequence[int], held: Mapping[str, int]
) -> list[int]:
    """Returns the indexes of clusters in rank order, as `ranked` without tiers."""
    if not held:
        return sorted(range(len(names)), key=lambda i: (-estimates[i], names[i]))
    return sorted(
        range(len(names)),
        key=lambda i: (names[i] not in held, -estimates[i] - held.get(names[i], 0), names[i]),
    )


# Divide


def divide(question: Question, offer: Offer, replicas: int) -> Shares | Unassignable:
    """Divides `replicas` over clusters by the strategy of the placement, and returns the number of
    replicas of each cluster.

    The strategy is Duplicated, static weights, dynamic weights or Aggregated. The result stays
    within the limits that the policy sets for single clusters; Duplicated ignores these limits.

    `offer`: the clusters to divide over, with how many more replicas fit into each.

    Returns Unassignable (a refusal with its reason) if the replicas do not fit, if no division
    satisfies the limits, or if the placement is Divided but names no strategy.

    Example: 4 replicas by dynamic weights, 6 fit into A and 2 into B: A gets 3, B gets 1.
    """
    placement, held, scheduling = question.placement, question.held, question.placement.replicas
    if scheduling.type == "Duplicated":
        return duplicated(offer.names, replicas)
    if not scheduling.preference:
        return Unassignable("InvalidPlacement", NO_STRATEGY)
    descending = names_descend(question.uid)
    answer: Shares | Shortage | Unbounded
    if placement.replicas.weighed:
        answer = _by_policy(question, offer, replicas, descending)
    else:
        aggregated = scheduling.preference == "Aggregated"
        names, estimates = offer.names, offer.estimates
        if scheduling.bounded or (
            aggregated and not constrained(placement) and not in_columns(estimates)
        ):
            fits = as_list(estimates)
            order = _rank_order(names, fits, held)
            names, estimates = [names[i] for i in order], [fits[i] for i in order]
        if scheduling.bounded:
            answer = bounded_by_capacity(
                names,
                as_list(estimates),
                held,
                replicas,
                bounds_of(scheduling.limits, names),
                aggregated=aggregated,
                fresh=question.fresh,
                descending=descending,
                in_order=scheduling.remainder == "in-order",
            )
        else:
            answer = by_capacity(
                names,
                estimates,
                held,
                replicas,
                aggregated=aggregated,
                fresh=question.fresh,
                descending=descending,
            )
    match answer:
        case Shares():
            return answer
        case Shortage():
            return _short(answer)
        case Unbounded():
            return Unassignable("Unschedulable", answer.note)


def _by_policy(
    question: Question, offer: Offer, replicas: int, descending: bool
) -> Shares | Unbounded:
    """Divides `replicas` by the static weights of the policy, within the limits that the policy
    sets for single clusters. Returns the number of replicas of each cluster.

    If the policy requests static weights within capacity, no cluster gets more than its capacity.
    Otherwise capacity is ignored at first, and with `strict` this first division is the result.
    Without `strict` it is the result only if no cluster gets more than its capacity. If some
    cluster does, the replicas are divided again within capacity (`weighed_within_room`). First this
    is tried without preemption: a cluster does not preempt where others of the policy have room for
    all. Replicas that fit nowhere are left out. If the limits make that impossible, the first
    division is the result.

    `offer`: the clusters to divide over, with how many more replicas fit into each.
    `descending`: break ties by descending instead of ascending cluster name.

    Returns Unbounded if no division satisfies the limits.

    Example without `strict`: 6 replicas by weights 2 and 1 would be 4 and 2. If 1 and 9 replicas
    fit, the result is 1 and 5.
    """
    scheduling, held = question.placement.replicas, question.held
    weights = (
        static_weights(question.placement, offer.clusters)
        if offer.weights is None
        else offer.weights
    )
    calm = without_preemption(question)
    if not scheduling.bounded:
        shares = by_static_weight(offer.names, weights, replicas, descending)
        if question.placement.strict or not exceeds(
            calm, offer.names, offer.estimates, shares.replicas
        ):
            return shares
    order = _rank_order(offer.names, as_list(offer.estimates), held)
    names, weights = [offer.names[i] for i in order], [int(weights[i]) for i in order]
    fits, in_order = [int(offer.estimates[i]) for i in order], scheduling.remainder == "in-order"
    found = bounded_by_weight(
        names,
        weights,
        replicas,
        _static_bounds(scheduling, names, fits, held),
        descending=descending,
        in_order=in_order,
    )
    if question.placement.strict or scheduling.within_capacity or isinstance(found, Unbounded):
        return found
    if not exceeds(calm, names, fits, found.replicas):
        return found
    within = partial(
        weighed_within_room,
        names=names,
        weights=weights,
        estimates=fits,
        replicas=replicas,
        limits=bounds_of(scheduling.limits, names),
        descending=descending,
        in_order=in_order,
    )
    spared = within(calm)
    if not isinstance(spared, Unbounded) and sum(spared.replicas.values()) == replicas:
        return spared
    if not exceeds(question, names, fits, found.replicas):
        return found
    cut = within(question)
    return found if isinstance(cut, Unbounded) else cut


def _by_tiers(
    question: Question, affinity: ClusterAffinity, offer: Offer
) -> tuple[Shares, ...] | Unassignable:
    """Divides the replicas tier by tier: first it computes how many replicas each tier gets
    (`tier_targets`), then it divides the replicas of each tier over the clusters of that tier.
    Returns one division for each tier that gets replicas.

    Tier 0 has the clusters of the affinity itself. Tier i has the clusters of the affinity's i-th
    overflow group, which are used when the tiers before it are full. If a tier gets no replicas,
    the replicas that its clusters hold are not kept.

    `offer`: the clusters to divide over, with how many more replicas fit into each.

    Returns Unassignable (a refusal with its reason) if all tiers together have too little capacity,
    or if the replicas of one tier cannot be divided over its clusters.

    Example: tier 0 holds 4 replicas and 1 more fits; tier 1 holds 2 and 9 more fit. Of 10 replicas
    each tier gets 5.
    """
    tiers: dict[int, list[int]] = {tier: [] for tier in range(len(affinity.overflow) + 1)}
    for i, cluster in enumerate(offer.clusters):
        tiers[tier_of(affinity, cluster) or 0].append(i)
    room, held = _capped(question, offer), question.held
    parts = tier_targets(
        [sum([room[i] for i in members]) for members in tiers.values()],
        [sum([held.get(offer.names[i], 0) for i in members]) for members in tiers.values()],
        question.replicas,
        refill=question.fresh or question.placement.strict,
    )
    if isinstance(parts, Shortage):
        return _short(parts)
    shares: list[Shares] = []
    for members, part in zip(tiers.values(), parts, strict=True):
        if not members or part <= 0:
            continue
        answer = divide(question, offer.only(members), part)
        if isinstance(answer, Unassignable):
            return answer
        shares.append(answer)
    return tuple(shares)


def _spread(
    question: Question,
    chosen: Sequence[ClusterCandidate],
    names: Sequence[str],
    replicas: Mapping[str, int],
) -> dict[str, int]:
    """Moves replicas between the selected clusters so that, for every spread constraint, at least
    minGroups regions, zones or other groups hold a replica. Returns cluster -> replicas after the
    moves. With `strict` or a Duplicated placement nothing is moved.

    Replicas that the binding held before are moved last. With `fresh` there is no difference
    between replicas held before and new ones.

    `chosen`: the selected clusters, best first.
    `names`: the names of the selected clusters.
    `replicas`: cluster -> replicas before the moves.

    Example: minGroups 2 by region, 5 replicas in a cluster of region X and 0 in a cluster of region
    Y: the result is 4 and 1.
    """
    placement = question.placement
    held: Mapping[str, int] = {} if question.fresh else question.held
    kept = {name: n for name in names if (n := held.get(name, 0))}
    bounds = bounds_of(placement.replicas.limits, names)
    least = {name: b.least for name, b in zip(names, bounds, strict=True) if b.least > 1}
    return keep_spread(placement, chosen, replicas, kept, least)


def _short(short: Shortage) -> Unassignable:
    return Unassignable("Unschedulable", f"{short.wanted} replicas to place, {short.available} fit")


def _static_bounds(
    scheduling: ReplicaScheduling,
    names: Sequence[str],
    estimates: Sequence[int],
    held: Mapping[str, int],
) -> list[ReplicaBounds]:
    bounds = bounds_of(scheduling.limits, names)
    if not scheduling.within_capacity:
        return bounds
    return [
        ReplicaBounds(bound.least, min(bound.most, held.get(name, 0) + max(0, fits)), bound.due)
        for bound, name, fits in zip(bounds, names, estimates, strict=True)
    ]


def _capped(question: Question, offer: Offer) -> list[int]:
    """Returns how many more replicas may go to each cluster: as many as fit, but not more than the
    cluster's limit allows."""
    bounds = bounds_of(question.placement.replicas.limits, offer.names)
    return [
        max(0, min(int(fits), bound.most - question.held.get(name, 0)))
        for name, fits, bound in zip(offer.names, offer.estimates, bounds, strict=True)
    ]
