"""ClusterAffinity (Karmada): a cluster must match the active affinity term, by name, label, field
and exclusion.

A term may have overflow groups: tier 0 is the term itself, tier i is its i-th group, used when the
tiers before it are full (`engine.fleet.overflow`). The filter passes a cluster of any tier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from operator import eq

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity
from wharfinger.domain.reasons import FleetReason
from wharfinger.domain.selectors import Requirement
from wharfinger.rules.changes import ANYTHING, Change, label, satisfying
from wharfinger.rules.clusters.edits import labelled, with_property
from wharfinger.rules.clusters.properties import FIELDS, field_values, on_field, on_label
from wharfinger.rules.clusters.rule import (
    ClusterQuery,
    ClusterTest,
    Condition,
    NameCondition,
    Undone,
)


class AffinityFilter:
    reason = FleetReason("ClusterAffinity")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return tier_of(query.affinity, cluster) is not None

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        return None if query.affinity.overflow else conditions_of(query.affinity)

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        return "cluster(s) did not match the placement cluster affinity constraint"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        """Yield the changes that make the cluster match: first to the names and exclusions of the
        policy, then to the cluster's labels, then to its fields. Each change is applied before the
        next is computed."""
        for undone in _named(query, cluster):
            _, query, _ = undone
            yield undone
        for undone in _with_labels(query, cluster):
            _, _, cluster = undone
            yield undone
        yield from _with_fields(query, cluster)


def _named(query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
    affinity = query.affinity
    if cluster.name in affinity.exclude:
        left = tuple(name for name in affinity.exclude if name != cluster.name)
        affinity = msgspec.structs.replace(affinity, exclude=left)
        query = replace(query, affinity=affinity)
        yield Change("affinity", "exclude", "not being excluded by name"), query, cluster
    if affinity.cluster_names and cluster.name not in affinity.cluster_names:
        affinity = msgspec.structs.replace(
            affinity, cluster_names=(*affinity.cluster_names, cluster.name)
        )
        query = replace(query, affinity=affinity)
        yield (
            Change("affinity", "clusterNames", "being named in the policy's clusterNames"),
            query,
            cluster,
        )


def _with_labels(query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
    selector = query.affinity.labels
    if selector is None:
        return
    for key, value in sorted(selector.match_labels.items()):
        if cluster.labels.get(key) != value:
            cluster = labelled(cluster, key, value)
            yield label(key, value), query, cluster
    for requirement in selector.match_expressions:
        if not requirement.holds(cluster.labels) and (found := satisfying(requirement)) is not None:
            change, wanted = found
            cluster = labelled(cluster, requirement.key, wanted)
            yield change, query, cluster


def _with_fields(query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
    """Yield the changes with which the cluster satisfies the field requirements (provider, region,
    zone) of the affinity term. Each change comes with the query and the cluster as they are after
    the change.
    - In or NotIn, and the cluster has the field: the policy is changed. The cluster's value is
      added to the values of In, or removed from the values of NotIn.
    - Otherwise the field of the cluster is changed: it is set for In and Exists, and removed for
      DoesNotExist.
    Example: "region In (eu)" and a cluster in region us: the policy also admits us. If the cluster
    has no region, its region is set to eu."""
    for place, requirement in enumerate(query.affinity.fields):
        if field_holds(requirement, cluster):
            continue
        key, operator = requirement.key, requirement.operator
        own = next(iter(field_values(cluster, key)), "")
        if operator in ("In", "NotIn") and own:
            others = tuple(v for v in requirement.values if v not in field_values(cluster, key))
            values = (*requirement.values, own) if operator == "In" else others
            fields = list(query.affinity.fields)
            fields[place] = msgspec.structs.replace(requirement, values=values)
            query = replace(
                query, affinity=msgspec.structs.replace(query.affinity, fields=tuple(fields))
            )
            word = "admitted" if operator == "In" else "no longer ruled out"
            yield Change("affinity", key, f"{key} {own} {word} by the policy"), query, cluster
        elif operator in ("In", "Exists", "DoesNotExist"):
            value = "" if operator == "DoesNotExist" else (*requirement.values, ANYTHING)[0]
            cluster = with_property(cluster, key, value)
            what = f"{key} {value}" if operator == "In" else f"a {key}"
            yield (
                Change("property", key, f"{what} set on it" if value else f"no {key}"),
                query,
                cluster,
            )


# What matches an affinity


def in_force(affinity: ClusterAffinity, divisible: bool) -> ClusterAffinity:
    """Return the affinity that applies to an object. For an object without replicas (`divisible`
    False) the overflow groups are dropped, because such an object cannot fill a cluster."""
    return (
        affinity
        if divisible or not affinity.overflow
        else msgspec.structs.replace(affinity, overflow=())
    )


def tier_of(affinity: ClusterAffinity, cluster: Cluster) -> int | None:
    """Return the first tier of the affinity that the cluster matches: 0 is the term itself, i is
    its i-th overflow group. None: it matches no tier."""
    if matches(affinity, cluster):
        return 0
    for i, group in enumerate(affinity.overflow, start=1):
        if matches(group, cluster):
            return i
    return None


def matcher(affinity: ClusterAffinity) -> ClusterTest:
    """Return a predicate: whether a cluster is in some tier of the affinity. It is specialised for
    simple label selectors, because it is called for thousands of clusters."""
    labels = affinity.labels
    if affinity.exclude or affinity.cluster_names or affinity.fields or affinity.overflow:
        return lambda cluster: tier_of(affinity, cluster) is not None
    if labels is None:
        return lambda cluster: True
    if labels.match_expressions or len(labels.match_labels) != 1:
        return lambda cluster: labels.matches(cluster.labels)
    ((key, value),) = labels.match_labels.items()
    return lambda cluster: cluster.labels.get(key) == value


def conditions_of(affinity: ClusterAffinity) -> tuple[Condition, ...]:
    """Return `matches` as conditions that all have to hold. Overflow groups are not considered."""
    found: list[Condition] = []
    if affinity.exclude:
        found.append(NameCondition(affinity.exclude, listed=False))
    if affinity.cluster_names:
        found.append(NameCondition(affinity.cluster_names, listed=True))
    if affinity.labels is not None:
        for key, value in affinity.labels.match_labels.items():
            found.append(on_label(key, partial(eq, value)))
        for requirement in affinity.labels.match_expressions:
            found.append(on_label(requirement.key, partial(_label_holds, requirement)))
    for requirement in affinity.fields:
        if requirement.key in FIELDS:
            found.append(on_field(requirement.key, partial(_values_hold, requirement)))
        else:
            found.append(NameCondition((), listed=True))  # no such field: no cluster has it
    return tuple(found)


def _label_holds(requirement: Requirement, value: str | None) -> bool:
    return requirement.holds({} if value is None else {requirement.key: value})


def matches(affinity: ClusterAffinity, cluster: Cluster) -> bool:
    """Return whether the cluster matches one tier: exclusion, names, labels and fields must all
    hold. A condition that is not set allows every cluster. Overflow groups are not considered."""
    if cluster.name in affinity.exclude:
        return False
    if affinity.cluster_names and cluster.name not in affinity.cluster_names:
        return False
    if affinity.labels is not None and not affinity.labels.matches(cluster.labels):
        return False
    return all(field_holds(requirement, cluster) for requirement in affinity.fields)


def field_holds(requirement: Requirement, cluster: Cluster) -> bool:
    """Return whether the cluster satisfies one field requirement of an affinity. The fields are
    `provider`, `region` and `zone`. A cluster may have several zones.
    - In: one of the cluster's values is listed.
    - NotIn: none of the cluster's values is listed; also true where the field is not set.
    - Exists, DoesNotExist: whether the field is set, or not set.
    Any other field or operator matches no cluster. Example: a cluster with zones a and b satisfies
    "zone In (b, c)", and not "zone NotIn (b, c)"."""
    return requirement.key in FIELDS and _values_hold(
        requirement, field_values(cluster, requirement.key)
    )


def _values_hold(requirement: Requirement, values: Collection[str]) -> bool:
    match requirement.operator:
        case "In":
            return any(v in requirement.values for v in values)
        case "NotIn":
            return not any(v in requirement.values for v in values)
        case "Exists":
            return bool(values)
        case "DoesNotExist":
            return not values
        case _:
            return False
