"""Finds errors in a placement itself. With such an error no selection of clusters is possible."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.placement import Placement
from wharfinger.engine.fleet.spread import contradiction

SPREAD_FIELDS = ("cluster", "region", "zone", "provider")


def problem_of(placement: Placement) -> str:
    """Returns a sentence about the first error in the placement itself; empty: there is none. The
    scheduler refuses such a placement and does not guess what was meant.

    With `strict`, as in Karmada, invalid spread constraints and overflow groups are found only when
    a decision uses them, so they are not checked here.
    """
    found = [_wrong_replicas(placement)]
    if not placement.strict:
        found += [_wrong_spread(placement), _wrong_overflow(placement)]
    return next((sentence for sentence in found if sentence), "")


def _wrong_spread(placement: Placement) -> str:
    for constraint in placement.spread:
        what = f"label {constraint.label}" if constraint.label else constraint.field
        if (constraint.field and constraint.label) or (
            not constraint.label and constraint.field not in SPREAD_FIELDS
        ):
            return (
                f"spread constraint by {what or 'nothing'}: one of {', '.join(SPREAD_FIELDS)} or "
                "a label is expected"
            )
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
    if scheduling.within_capacity and not (
        divided and scheduling.preference == "Weighted" and not scheduling.dynamic
    ):
        return "static weights within capacity need Divided replicas with static weights"
    if twice := _first_twice(limit.cluster for limit in scheduling.limits):
        return f"two limits for the cluster {twice}"
    for limit in scheduling.limits:
        if limit.least < 0 or (limit.most is not None and limit.most < 0):
            return f"a limit of replicas for the cluster {limit.cluster} is negative"
        if limit.most is not None and limit.most < limit.least:
            return (
                f"the cluster {limit.cluster} may have {limit.most} replicas at most and "
                f"{limit.least} at least"
            )
    return ""


def _wrong_overflow(placement: Placement) -> str:
    scheduling = placement.replicas
    by_room = scheduling.type == "Divided" and (
        scheduling.preference == "Aggregated" or scheduling.dynamic
    )
    for term in placement.affinities:
        if term.overflow and not by_room:
            return (
                "overflow groups need Divided replicas, Aggregated or with dynamic weights: "
                "others do not go by room"
            )
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
