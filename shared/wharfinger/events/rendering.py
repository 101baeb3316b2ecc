"""From what was decided back to objects: Open Cluster Management's PlacementDecisions and Karmada's
ResourceBindings; and from what was measured to the annotations that crane's scheduler reads.

The way back of `intake`. Nothing here is decided: objects are made of the values that events hold,
so that tools which watch those kinds (Argo CD's cluster decision generator, Karmada's controllers,
a person with a diff) can take them as they are. What we render we also read.

A set of clusters is cut into objects of a hundred, which OCM's consumers take one by one; so each
of ours says by annotations which generation of the set it is of, of how many objects that consists,
and that it is complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.placement import (
    ClusterAffinity,
    Placement,
    ReplicaLimit,
    ReplicaScheduling,
    Steadiness,
)
from wharfinger.domain.resources import quantity_of
from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.domain.taints import Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.events.decisions import DecidedGroup, SelectionCondition, SelectionPart, joined
from wharfinger.manifests.cluster_fact import CLUSTER
from wharfinger.manifests.wharfinger import options

Rendered = dict[str, Any]
"""An object as JSON has it."""

SLICE_MAX = 100
"""Clusters of one PlacementDecision."""

OCM = "cluster.open-cluster-management.io"
PLACEMENT_LABEL = f"{OCM}/placement"
GROUP_NAME_LABEL = f"{OCM}/decision-group-name"
GROUP_INDEX_LABEL = f"{OCM}/decision-group-index"
DECISION_VERSION = f"{OCM}/v1beta1"
BINDING_VERSION = "work.karmada.io/v1alpha2"

GENERATION = options.PREFIX + "generation"
SLICES = options.PREFIX + "slices"
COMPLETE = options.PREFIX + "complete"


# --- load of nodes


def annotated_node(cluster: str, node: str, annotations: Mapping[str, str]) -> Rendered:
    """A Node of which nothing is said but whose it is and what is written on it: to be applied
    server-side over the real one."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node, "annotations": {CLUSTER: cluster, **annotations}},
    }


# --- placements of clusters


@dataclass(frozen=True, slots=True)
class ClusterSelection:
    """A placement's whole set: the parts of one generation put together. `placement`:
    `<namespace>/<name>`. `time`: of the decision, as `when` writes it."""

    placement: str
    generation: int
    groups: tuple[DecidedGroup, ...]
    conditions: tuple[SelectionCondition, ...]
    time: str = ""

    @property
    def namespace(self) -> str:
        return self.placement.partition("/")[0]

    @property
    def name(self) -> str:
        return self.placement.partition("/")[2]

    @property
    def clusters(self) -> list[str]:
        return [name for group in self.groups for name in group.scores]


def put_together(parts: Sequence[SelectionPart], time: str = "") -> ClusterSelection | None:
    """The set that `parts` are of, in any order; None: one of them is missing, and a part is not a
    set."""
    ordered = sorted(parts, key=lambda part: part.part)
    if (
        not ordered
        or not ordered[-1].complete
        or [p.part for p in ordered] != list(range(1, ordered[-1].parts + 1))
    ):
        return None
    last = ordered[-1]
    if any(
        part.generation != last.generation or part.placement != last.placement for part in ordered
    ):
        return None
    groups = joined(group for part in ordered for group in part.groups)
    return ClusterSelection(last.placement, last.generation, groups, last.conditions, time)


def placement_decisions(selection: ClusterSelection) -> list[Rendered]:
    """Its PlacementDecision objects, named and labelled as OCM does it: numbered through all
    groups. A group without clusters has one object, which is empty."""
    slices = [(group, part) for group in selection.groups for part in _slices(group)]
    annotations = {
        GENERATION: str(selection.generation),
        SLICES: str(len(slices)),
        COMPLETE: "true",
    }
    return [
        {
            "apiVersion": DECISION_VERSION,
            "kind": "PlacementDecision",
            "metadata": {
                "name": decision_name(selection.name, number),
                "namespace": selection.namespace,
                "labels": {
                    PLACEMENT_LABEL: selection.name,
                    GROUP_NAME_LABEL: group.name,
                    GROUP_INDEX_LABEL: str(group.index),
                },
                "annotations": dict(annotations),
            },
            "status": {"decisions": [{"clusterName": cluster, "reason": ""} for cluster in part]},
        }
        for number, (group, part) in enumerate(slices, 1)
    ]


def decision_name(placement: str, number: int) -> str:
    return f"{placement}-decision-{number}"


def placement(manifest: Mapping[str, Any], selection: ClusterSelection | None) -> Rendered:
    """The user's Placement with the status that its set gives it; without one, nothing was decided
    yet and it has none."""
    found: Rendered = {name: value for name, value in manifest.items() if name != "status"}
    if selection is None:
        return found
    metadata = dict(found.get("metadata") or {})
    said = metadata.get("annotations") or {}
    metadata["annotations"] = {**said, GENERATION: str(selection.generation), COMPLETE: "true"}
    observed = metadata.get("generation")
    return {**found, "metadata": metadata, "status": _placement_status(selection, observed)}


def _placement_status(selection: ClusterSelection, observed: object) -> Rendered:
    groups: list[Rendered] = []
    number = 1
    for group in selection.groups:
        count = len(_slices(group))
        groups.append(
            {
                "decisionGroupIndex": group.index,
                "decisionGroupName": group.name,
                "decisions": [decision_name(selection.name, number + i) for i in range(count)],
                "clusterCount": len(group.scores),
            }
        )
        number += count
    return {
        "numberOfSelectedClusters": len(selection.clusters),
        "decisionGroups": groups,
        "conditions": [
            _condition(condition, selection.time, observed) for condition in selection.conditions
        ],
    }


def when(at_us: int) -> str:
    """Microseconds of the epoch as Kubernetes writes a time: to the second; 0: none is known."""
    return f"{datetime.fromtimestamp(at_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}" if at_us else ""


def _condition(condition: SelectionCondition, time: str, observed: object) -> Rendered:
    """`time`: of the decision that recorded the condition."""
    rendered: Rendered = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    if time:
        rendered["lastTransitionTime"] = time
    if isinstance(observed, int):
        rendered["observedGeneration"] = observed
    return rendered


def _slices(group: DecidedGroup) -> list[list[str]]:
    names = list(group.scores)
    return [names[at : at + SLICE_MAX] for at in range(0, max(1, len(names)), SLICE_MAX)]


# --- bindings


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What the last decision about a binding says: `refused` is the reason of a refusal, `note` a
    sentence. `time`: as `when` writes it. `affinity`: the name of the affinity in force."""

    targets: tuple[TargetCluster, ...] = ()
    refused: str = ""
    note: str = ""
    affinity: str = ""
    time: str = ""


def resource_binding(binding: Binding, scheduled: Scheduled | None) -> Rendered:
    """Karmada's ResourceBinding (ClusterResourceBinding, where the object has no namespace) as its
    scheduler would leave it. None: no decision yet."""
    namespace, _, name = binding.name.rpartition("/")
    metadata: Rendered = {"name": name, **_some(namespace=namespace), "uid": binding.uid}
    metadata |= _some(
        labels=dict(binding.labels), annotations=option_annotations(binding.placement)
    )
    return {
        "apiVersion": BINDING_VERSION,
        "kind": "ResourceBinding" if namespace else "ClusterResourceBinding",
        "metadata": metadata,
        "spec": _binding_spec(binding, scheduled),
        **({} if scheduled is None else {"status": _binding_status(scheduled)}),
    }


def _binding_spec(binding: Binding, scheduled: Scheduled | None) -> Rendered:
    resource = binding.resource
    targets = binding.clusters if scheduled is None else scheduled.targets
    return {
        "resource": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **_some(namespace=resource.namespace),
            "name": resource.name,
        },
        **_some(
            replicas=binding.replicas,
            replicaRequirements=_requirements(binding.requirements, binding.priority_class),
            components=[
                {
                    "name": c.name,
                    "replicas": c.replicas,
                    **_some(replicaRequirements=_requirements(c.requirements)),
                }
                for c in binding.components
            ],
            placement=karmada_placement(binding.placement),
            failover=karmada_failover(binding.placement),
            clusters=[{"name": t.cluster, **_some(replicas=t.replicas)} for t in targets],
            schedulePriority=_some(priority=binding.priority),
            schedulerName=binding.scheduler,
            rescheduleTriggeredAt=binding.reschedule,
            suspension=_some(scheduling=binding.suspended),
            workloadAffinityGroups=_some(
                affinityGroup=binding.affinity_group, antiAffinityGroup=binding.anti_affinity_group
            ),
        ),
    }


def _binding_status(scheduled: Scheduled) -> Rendered:
    """In the words of Karmada's scheduler."""
    refused = bool(scheduled.refused)
    message = (
        "Binding has been scheduled successfully."
        if not refused
        else scheduled.note or scheduled.refused
    )
    condition = {
        "type": "Scheduled",
        "status": "False" if refused else "True",
        "reason": scheduled.refused if refused else "Success",
        "message": message,
        **_some(lastTransitionTime=scheduled.time),
    }
    return {
        "conditions": [condition],
        **_some(
            schedulerObservingAffinityName=scheduled.affinity,
            lastScheduledTime="" if refused else scheduled.time,
        ),
    }


def _requirements(needs: Requirements, priority_class: str = "") -> Rendered:
    """Whole devices are resources there; shares of one, and which models it may be, cannot be
    said."""
    requests = {name: quantity_of(name, amount) for name, amount in needs.requests.items()}
    for device in needs.devices:
        requests[device.kind] = str(device.count)
    claim = _some(
        nodeSelector=dict(needs.node_selector),
        hardNodeAffinity=_some(
            nodeSelectorTerms=[
                _some(
                    matchExpressions=_expressions(t.expressions), matchFields=_expressions(t.fields)
                )
                for t in needs.node_terms
            ]
        ),
        tolerations=[_toleration(t) for t in needs.tolerations],
    )
    return _some(nodeClaim=claim, resourceRequest=requests, priorityClassName=priority_class)


def karmada_placement(placement: Placement) -> Rendered:
    """As it stands in a policy's or a binding's spec; what only annotations can say is in
    `option_annotations`."""
    affinities = placement.affinities
    named = (
        any(affinity.name or affinity.overflow for affinity in affinities) or len(affinities) > 1
    )
    single = {} if named or not affinities else {"clusterAffinity": _affinity(affinities[0])}
    return single | _some(
        clusterAffinities=[_term(affinity) for affinity in affinities] if named else [],
        clusterTolerations=[_toleration(t) for t in placement.tolerations],
        spreadConstraints=[
            _some(
                spreadByField=c.field,
                spreadByLabel=c.label,
                minGroups=c.min_groups,
                maxGroups=c.max_groups,
            )
            for c in placement.spread
        ],
        replicaScheduling=_replica_scheduling(placement.replicas),
        workloadAffinity=_some(
            affinity=_some(groupByLabelKey=placement.affinity_label),
            antiAffinity=_some(groupByLabelKey=placement.anti_affinity_label),
        ),
    )


def karmada_failover(placement: Placement) -> Rendered:
    """As it stands in a policy's or a binding's spec, beside the placement."""
    application = placement.application
    how: Rendered = {}
    if application is not None:
        how = {
            "decisionConditions": {"tolerationSeconds": application.toleration_s},
            "purgeMode": application.purge,
        }
        if application.purge == "Gracefully":
            how["gracePeriodSeconds"] = application.grace_s
    gracefully = placement.cluster_purge == "Gracefully"
    return _some(application=how, cluster={"purgeMode": "Gracefully"} if gracefully else {})


def _term(affinity: ClusterAffinity) -> Rendered:
    overflow = [{"affinityName": group.name, **_affinity(group)} for group in affinity.overflow]
    return {
        "affinityName": affinity.name,
        **_affinity(affinity),
        **_some(overflowAffinities=overflow),
    }


def _affinity(affinity: ClusterAffinity) -> Rendered:
    """An empty selector is not none: it is kept."""
    found = _some(
        clusterNames=list(affinity.cluster_names),
        exclude=list(affinity.exclude),
        fieldSelector=_some(matchExpressions=_expressions(affinity.fields)),
    )
    return (
        found
        if affinity.labels is None
        else {**found, "labelSelector": _label_selector(affinity.labels)}
    )


def _label_selector(selector: LabelSelector) -> Rendered:
    return _some(
        matchLabels=dict(selector.match_labels),
        matchExpressions=_expressions(selector.match_expressions),
    )


def _expressions(requirements: Iterable[Requirement]) -> list[Rendered]:
    return [
        {"key": r.key, "operator": r.operator, **_some(values=list(r.values))} for r in requirements
    ]


def _toleration(toleration: Toleration) -> Rendered:
    found = _some(
        key=toleration.key,
        operator=toleration.operator,
        value=toleration.value,
        effect=toleration.effect,
    )
    return (
        found if toleration.seconds is None else {**found, "tolerationSeconds": toleration.seconds}
    )


def _replica_scheduling(replicas: ReplicaScheduling) -> Rendered:
    found: Rendered = {"replicaSchedulingType": replicas.type}
    if replicas.type == "Divided":
        found |= _some(replicaDivisionPreference=replicas.preference)
    weights = [{"targetCluster": _affinity(w.target), "weight": w.weight} for w in replicas.static]
    preference = _some(
        staticWeightList=weights, dynamicWeight="AvailableReplicas" if replicas.dynamic else ""
    )
    return found | _some(weightPreference=preference)


def option_annotations(placement: Placement) -> dict[str, str]:
    """What a placement says beyond Karmada's API, as annotations of its policy or binding say
    it."""
    replicas, steadiness, usual = placement.replicas, placement.steadiness, Steadiness()
    said: dict[str, str | int | None] = {
        options.REMAINDER: replicas.remainder if replicas.remainder != "webster" else None,
        options.STATIC_WEIGHTS: "within-capacity" if replicas.within_capacity else None,
        options.MIN_REPLICAS: _least(replicas.limits),
        options.MAX_REPLICAS: _most(replicas.limits),
        options.FAILOVER: placement.failover if placement.failover != "evict" else None,
        options.FAILBACK_AFTER_S: steadiness.failback_after_s,
        options.REBALANCE_AFTER_S: steadiness.rebalance_after_s,
        options.WINDOW_S: steadiness.window_s if steadiness.window_s != usual.window_s else None,
        options.GAIN_PERCENT: steadiness.gain_percent
        if steadiness.gain_percent != usual.gain_percent
        else None,
        options.BUDGET_PERCENT: (
            steadiness.budget_percent if steadiness.budget_percent != usual.budget_percent else None
        ),
        options.COMPAT: "strict" if placement.strict else None,
    }
    return {key: str(value) for key, value in said.items() if value is not None}


def _least(limits: Iterable[ReplicaLimit]) -> str | None:
    return ",".join(f"{limit.cluster}={limit.least}" for limit in limits) or None


def _most(limits: Iterable[ReplicaLimit]) -> str | None:
    return (
        ",".join(f"{limit.cluster}={limit.most}" for limit in limits if limit.most is not None)
        or None
    )


def _some(**fields: object) -> Rendered:
    """Those that say anything: as Kubernetes leaves out what is empty."""
    return {name: value for name, value in fields.items() if value}
