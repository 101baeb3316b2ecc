"""From feasible clusters to an assignment: score, select, divide. The spine of a fleet decision.

What is asked for is either given in full or refused with a reason: a division never hands out a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.engine.fleet.division import Shortage, by_capacity, by_static_weight, duplicated, names_descend
from wharfinger.engine.fleet.filters import matches
from wharfinger.engine.fleet.select import LOCALITY, Candidate, Unselectable, constrained, rank, select

Refusal = Literal["NoClusterFit", "Unschedulable", "SpreadConstraint", "InvalidPlacement"]
"""No cluster is feasible; the feasible ones do not hold it; no choice of them keeps the spread; the policy is wrong."""

SPREAD_FIELDS = ("cluster", "region", "zone", "provider")


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
) -> Assigned | Unassignable:
    """Divide `replicas` over `clusters`, all of them feasible; `estimates` says how many more fit into each.

    `held` is the assignment so far. `counted` False: an object without replicas. `weights`: the static weights of
    `clusters` where the caller has them at hand, and `names` their names.
    """
    if not clusters:
        return Unassignable("NoClusterFit", "no cluster is feasible")
    if constrained(placement):
        fits = {c.name: (c, n) for c, n in zip(clusters, estimates, strict=True)}
        chosen = select(ranked(clusters, estimates, held), placement, replicas)
        if isinstance(chosen, Unselectable):
            return Unassignable("SpreadConstraint", chosen.note)
        clusters = [fits[c.name][0] for c in chosen]
        estimates = [fits[c.name][1] for c in chosen]
        weights = names = None
    if names is None:
        names = [c.name for c in clusters]
    scheduling = placement.replicas
    if not counted:
        return Assigned(dict.fromkeys(names, 0), {})
    if scheduling.type == "Duplicated":
        return Assigned(duplicated(names, replicas).replicas, {})
    if scheduling.preference == "Weighted" and not scheduling.dynamic:
        if weights is None:
            weights = static_weights(placement, clusters)
        shares = by_static_weight(names, weights, replicas, names_descend(uid))
        return Assigned(shares.replicas, shares.weights)
    aggregated = scheduling.preference == "Aggregated"
    if aggregated and not constrained(placement):
        order = _rank_order(names, estimates, held)
        names, estimates = [names[i] for i in order], [estimates[i] for i in order]
    divided = by_capacity(
        names, estimates, held, replicas, aggregated=aggregated, fresh=fresh, descending=names_descend(uid)
    )
    if isinstance(divided, Shortage):
        return Unassignable("Unschedulable", f"{divided.wanted} replicas to place, {divided.available} fit")
    return Assigned(divided.replicas, divided.weights)


def ranked(clusters: Sequence[Cluster], estimates: Sequence[int], held: Mapping[str, int]) -> list[Candidate]:
    """Best first: clusters that hold some already (even none of it yet), then the roomiest, then by name."""
    return rank(
        [
            Candidate(c.name, LOCALITY if c.name in held else 0, n + held.get(c.name, 0), c.region)
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


def static_weights(placement: Placement, clusters: Sequence[Cluster]) -> list[int]:
    """The highest weight among the rules that match each cluster; 0 when none does."""
    rules = placement.replicas.static
    return [max((rule.weight for rule in rules if matches(rule.target, c)), default=0) for c in clusters]


def problem_of(placement: Placement) -> str:
    """What is wrong with the placement itself, in one sentence; empty: nothing. Such a placement is refused, never guessed."""
    for constraint in placement.spread:
        what = constraint.field or f"label {constraint.label}"
        if constraint.label or constraint.field not in SPREAD_FIELDS:
            return f"spread constraint by {what or 'nothing'}: only {', '.join(SPREAD_FIELDS)} are supported"
        if constraint.min_groups < 0 or constraint.max_groups < 0:
            return f"spread constraint by {what}: minGroups and maxGroups must not be negative"
        if 0 < constraint.max_groups < constraint.min_groups:
            return (
                f"spread constraint by {what}: maxGroups {constraint.max_groups} "
                f"is less than minGroups {constraint.min_groups}"
            )
    for rule in placement.replicas.static:
        if rule.weight < 0:
            return f"static weight {rule.weight} is negative"
    return ""
