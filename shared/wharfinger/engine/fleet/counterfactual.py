"""What would have let a cluster in that a filter refused: the rules that failed, each undone by the least that undoes it.

Every failing rule has to go, so the changes are taken one after another, in the order of `filters.FILTERS`, and after each of
them the same filters are asked again. What no change can undo is said to be so by `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity
from wharfinger.domain.reasons import FleetReason
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.engine.changes import Change, Way
from wharfinger.engine.fleet.filters import Question, all_refusals, field_holds, first_refusal, has_property

ANYTHING = "anything"
"""Stands for a region, zone or provider that is only required to be there."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The changes, and question and cluster as they are with them: no filter refuses."""

    way: Way
    question: Question
    cluster: Cluster


_Step = tuple[Change, Question, Cluster]


def admission(question: Question, cluster: Cluster, existing: bool = False) -> Admission | None:
    """The least that would make `cluster` feasible; no changes where it is feasible already. None: nothing would."""
    way: list[Change] = []
    met: list[FleetReason] = []
    while (reason := first_refusal(question, cluster, existing)) is not None:
        if reason in met:  # two rules that cannot both be met, such as a region that must be there and must not
            return None
        met.append(reason)
        for change, other_question, other_cluster in _UNDOING[reason](question, cluster):
            question, cluster = other_question, other_cluster
            way.append(change)
        if reason in all_refusals(question, cluster, existing):
            return None
    return Admission(tuple(way), question, cluster)


def _not_deleting(question: Question, cluster: Cluster) -> Iterator[_Step]:
    change = Change("state", cluster.name, "not being deleted")
    yield change, question, msgspec.structs.replace(cluster, deleting=False)


def _heard_of(question: Question, cluster: Cluster) -> Iterator[_Step]:
    silent = [name for name in question.silent if name != cluster.name]
    yield Change("state", cluster.name, "being heard of again"), replace(question, silent=silent), cluster


def _not_evicted(question: Question, cluster: Cluster) -> Iterator[_Step]:
    evicted = [name for name in question.evicted if name != cluster.name]
    change = Change("state", cluster.name, "the end of what it was left out for")
    yield change, replace(question, evicted=evicted), cluster


def _with_its_group(question: Question, cluster: Cluster) -> Iterator[_Step]:
    together = (*(question.together or ()), cluster.name)
    change = Change("state", cluster.name, "the others of its affinity group being there")
    yield change, replace(question, together=together), cluster


def _apart_from_its_group(question: Question, cluster: Cluster) -> Iterator[_Step]:
    apart = [name for name in question.apart if name != cluster.name]
    change = Change("state", cluster.name, "no other of its anti-affinity group being there")
    yield change, replace(question, apart=apart), cluster


def _tolerating(question: Question, cluster: Cluster) -> Iterator[_Step]:
    for taint in cluster.taints:
        if taint.effect == "PreferNoSchedule" or any(t.tolerates(taint) for t in question.placement.tolerations):
            continue
        tolerations = (*question.placement.tolerations, tolerating(taint))
        placement = msgspec.structs.replace(question.placement, tolerations=tolerations)
        question = replace(question, placement=placement)
        yield toleration(taint), question, cluster


def tolerating(taint: Taint) -> Toleration:
    return Toleration(taint.key, "Equal", taint.value, taint.effect)


def toleration(taint: Taint) -> Change:
    said = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
    return Change("toleration", said, f"toleration {said}")


def _enabling(question: Question, cluster: Cluster) -> Iterator[_Step]:
    kinds = (*(cluster.api_kinds or ()), question.gvk)
    change = Change("kind", question.gvk, f"{question.gvk} enabled there")
    yield change, question, msgspec.structs.replace(cluster, api_kinds=kinds)


def _placed_in_groups(question: Question, cluster: Cluster) -> Iterator[_Step]:
    for constraint in question.placement.spread:
        if not has_property(cluster, constraint.field):
            cluster = _with_property(cluster, constraint.field, ANYTHING)
            yield Change("property", constraint.field, f"a {constraint.field} set on it"), question, cluster
        if constraint.label and not question.placement.strict and not cluster.labels.get(constraint.label):
            cluster = _labelled(cluster, constraint.label, ANYTHING)
            yield Change("label", constraint.label, f"label {constraint.label}"), question, cluster


def _with_property(cluster: Cluster, field: str, value: str) -> Cluster:
    match field:
        case "region":
            return msgspec.structs.replace(cluster, region=value)
        case "provider":
            return msgspec.structs.replace(cluster, provider=value)
        case "zone":
            return msgspec.structs.replace(cluster, zones=(value,) if value else ())
        case _:
            return cluster


def _property(cluster: Cluster, field: str) -> str:
    """One value is enough for In."""
    match field:
        case "region":
            return cluster.region
        case "provider":
            return cluster.provider
        case "zone":
            return cluster.zones[0] if cluster.zones else ""
        case _:
            return ""


# --- affinity


def _selected(question: Question, cluster: Cluster) -> Iterator[_Step]:
    """Of the policy what concerns this cluster alone; of the cluster the labels that it should have."""

    def admitted(affinity: ClusterAffinity) -> Question:
        return replace(question, affinity=affinity)

    affinity = question.affinity
    if cluster.name in affinity.exclude:
        left = tuple(name for name in affinity.exclude if name != cluster.name)
        question = admitted(msgspec.structs.replace(affinity, exclude=left))
        yield Change("affinity", "exclude", "not being excluded by name"), question, cluster
    affinity = question.affinity
    if affinity.cluster_names and cluster.name not in affinity.cluster_names:
        names = (*affinity.cluster_names, cluster.name)
        question = admitted(msgspec.structs.replace(affinity, cluster_names=names))
        yield Change("affinity", "clusterNames", "being named in the policy's clusterNames"), question, cluster
    if question.affinity.labels is not None:
        for key, value in sorted(question.affinity.labels.match_labels.items()):
            if cluster.labels.get(key) != value:
                cluster = _labelled(cluster, key, value)
                yield label(key, value), question, cluster
        for requirement in question.affinity.labels.match_expressions:
            if not requirement.holds(cluster.labels) and (found := satisfying(requirement)) is not None:
                change, wanted = found
                cluster = _labelled(cluster, requirement.key, wanted)
                yield change, question, cluster
    for place, requirement in enumerate(question.affinity.fields):
        if field_holds(requirement, cluster):
            continue
        own = _property(cluster, requirement.key)
        if requirement.operator in ("In", "NotIn") and own:
            others = tuple(v for v in requirement.values if v != own and not _one_of(cluster, requirement.key, v))
            values = (*requirement.values, own) if requirement.operator == "In" else others
            fields = list(question.affinity.fields)
            fields[place] = msgspec.structs.replace(requirement, values=values)
            question = admitted(msgspec.structs.replace(question.affinity, fields=tuple(fields)))
            word = "admitted" if requirement.operator == "In" else "no longer ruled out"
            yield (
                Change("affinity", requirement.key, f"{requirement.key} {own} {word} by the policy"),
                question,
                cluster,
            )
        elif requirement.operator in ("In", "Exists", "DoesNotExist"):
            value = "" if requirement.operator == "DoesNotExist" else (*requirement.values, ANYTHING)[0]
            cluster = _with_property(cluster, requirement.key, value)
            what = f"{requirement.key} {value}" if requirement.operator == "In" else f"a {requirement.key}"
            yield (
                Change("property", requirement.key, f"{what} set on it" if value else f"no {requirement.key}"),
                question,
                cluster,
            )


def _one_of(cluster: Cluster, field: str, value: str) -> bool:
    return field == "zone" and value in cluster.zones


def _labelled(cluster: Cluster, key: str, value: str | None) -> Cluster:
    labels = {k: v for k, v in cluster.labels.items() if k != key}
    return msgspec.structs.replace(cluster, labels=labels if value is None else {**labels, key: value})


def label(key: str, value: str) -> Change:
    return Change("label", key, f"label {key}={value}")


def satisfying(requirement: Requirement) -> tuple[Change, str | None] | None:
    """What the label would have to be (None: absent), and how that is said. None: no value satisfies the requirement."""
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In" if values:
            change = (
                label(key, values[0])
                if len(values) == 1
                else Change("label", key, f"label {key} in {', '.join(values)}")
            )
            return change, values[0]
        case "Exists":
            return Change("label", key, f"label {key}"), ANYTHING
        case "NotIn" | "DoesNotExist":
            said = (
                f"no label {key}"
                if requirement.operator == "DoesNotExist"
                else f"label {key} not in {', '.join(values)}"
            )
            return Change("label", key, said), None
        case "Gt" | "Lt" if len(values) == 1 and values[0].lstrip("+-").isdecimal():
            bound = int(values[0])
            above = requirement.operator == "Gt"
            value = str(bound + 1 if above else bound - 1)
            return Change("label", key, f"label {key} {'above' if above else 'below'} {bound}"), value
        case _:
            return None


_UNDOING: dict[FleetReason, Callable[[Question, Cluster], Iterator[_Step]]] = {
    "ClusterDeleting": _not_deleting,
    "ClusterSilent": _heard_of,
    "ClusterAffinity": _selected,
    "TaintToleration": _tolerating,
    "APIEnablement": _enabling,
    "SpreadConstraint": _placed_in_groups,
    "WorkloadAffinity": _with_its_group,
    "WorkloadAntiAffinity": _apart_from_its_group,
    "Evicted": _not_evicted,
}
"""Of each filter the changes that undo its refusal."""
