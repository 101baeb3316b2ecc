"""Which texts of the plane's values are names, and of what: the table by which names are replaced, and the walk that does it.

Structural: what a text means is known from the field it stands in, never guessed from how it looks. A field that the table
does not know is refused, so that a field added later cannot leak for being forgotten; a test holds the table against every
event and every section of a state. What each name becomes is not decided here: `renaming` does that.

Some values compute on text instead of comparing it for equality: label selectors with Gt and Lt. Names that were replaced
cannot be computed on, so these are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from types import ModuleType
from typing import Protocol, TypeVar, cast
from uuid import UUID

import msgspec

from wharfinger.domain import (
    descheduling,
    device_claims,
    instance_types,
    pod_traits,
    pod_upkeep,
    rebalancing,
    scheduler,
    selection,
    storage,
)
from wharfinger.domain.binding import Binding, Component, TargetCluster
from wharfinger.domain.cluster import Cluster, Managed, ManagedTaint, NodeGrade, ResourceSummary
from wharfinger.domain.cluster_objects import (
    DaemonPods,
    DisruptionBudget,
    NamespaceLabels,
    NodeClaimStatus,
    PodSelecting,
)
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import NodeBudget, NodeOverlay, NodePoolPolicy, PoolRequirement
from wharfinger.domain.placement import (
    ApplicationFailover,
    ClusterAffinity,
    Placement,
    ReplicaLimit,
    ReplicaScheduling,
    SpreadConstraint,
)
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.policy import (
    ConditionMatch,
    FederatedQuota,
    LoadLimit,
    LoadWeight,
    PodGroups,
    Policy,
    Propagation,
    ResourceSelector,
    SyncPeriod,
)
from wharfinger.domain.quota import Quota
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.engine.fleet.objective import PRICE_LABEL
from wharfinger.events import disruption, provisioning
from wharfinger.events.assignments import (
    Assigned,
    AssignmentsDecided,
    Claimed,
    ClaimEnded,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    Recovered,
    Refused,
    Released,
    Silenced,
)
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated, DeviceTotals, QuotaRoom
from wharfinger.events.cluster_state import (
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
    WorkloadObserved,
)
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.decisions import (
    BindingReleased,
    ClusterRecovered,
    ClusterSilenced,
    Explanation,
    ExtenderAsked,
    FailoverSets,
    Leaving,
    NodeRemovalDecided,
    NodeShare,
    Outcome,
    PlanCommitted,
    PlanRefused,
    ProposalRefused,
    ReplicasNominated,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ScheduleDecided,
    ScheduleRefused,
    Scored,
)
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.placements import (
    DecidedGroup,
    PlacementDecided,
    PlacementHeld,
    PlacementReleased,
    SelectionCondition,
)
from wharfinger.events.plans import PlanRequested, Step
from wharfinger.events.policies import PolicyRemoved
from wharfinger.events.proposals import (
    DeschedulingProposed,
    DisruptionProposed,
    EvictionProposed,
    FailoverProposed,
    NewNode,
    NodeRemovalProposed,
    RescheduleProposed,
    Unseating,
)
from wharfinger.events.streams import FLEET
from wharfinger.events.ticks import Ticked
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.stages import pools
from wharfinger.stages.cluster import state as cluster_state
from wharfinger.stages.fleet import saved, selections


class RedactionError(LedgerError):
    """These names cannot be replaced: one line that says which and why."""


class Meaning(Enum):
    """What a text is. The first few are compared by order, too: their new names keep it."""

    CLUSTER = auto()
    NODE = auto()
    BINDING = auto()
    REGION = auto()
    POD_UID = auto()
    UID = auto()
    """Of a workload: it breaks ties by its parity."""
    POD = auto()
    WORKLOAD = auto()
    NAMESPACE = auto()
    PROVIDER = auto()
    ZONE = auto()
    LABEL_KEY = auto()
    """Of labels and taints."""
    LABEL_VALUE = auto()
    TAINT_PAIR = auto()
    """`key=value`"""
    TAINT_NAME = auto()
    """`key=value:Effect`"""
    RESOURCE = auto()
    MODEL = auto()
    METRIC = auto()
    API_VERSION = auto()
    GVK = auto()
    AFFINITY = auto()
    POLICY = auto()
    POLICY_KEY = auto()
    """`kind/namespace/name`"""
    ADDRESS = auto()
    TOKEN = auto()
    STREAM = auto()
    EVENT_ID = auto()
    FLEET_DECISION = auto()
    """The id of a decision of a fleet stream: derived from the stream's number and the seq, it says no name."""
    CLASS_KEY = auto()
    WORD = auto()
    """Of our own vocabulary."""
    QUANTITY = auto()
    """As Kubernetes writes amounts: it is calculated with, and stays."""
    SPREAD_FIELD = auto()
    REMARK = auto()
    """Text for people: it decides nothing."""
    DROPPED = auto()


@dataclass(frozen=True, slots=True)
class Pairs:
    """A mapping: what its keys mean, and its values."""

    keys: Meaning
    values: Means = None


Means = Meaning | Pairs | None
"""None: no text in there but in structs, which speak for themselves."""

M = Meaning
_LABELS = Pairs(M.LABEL_KEY, M.LABEL_VALUE)
_AMOUNTS = Pairs(M.RESOURCE)

TABLE: dict[type[msgspec.Struct], dict[str, Means]] = {
    # what is known of the world
    Binding: {
        "name": M.BINDING, "uid": M.UID, "reschedule": M.TOKEN, "policy": M.POLICY_KEY, "labels": _LABELS,
        "affinity_group": M.LABEL_VALUE, "anti_affinity_group": M.LABEL_VALUE, "priority_class": M.LABEL_VALUE,
        "unacted": M.WORD, "template": M.TOKEN,
    },
    Component: {"name": M.WORKLOAD},
    TargetCluster: {"cluster": M.CLUSTER},
    Cluster: {
        "name": M.CLUSTER, "labels": _LABELS, "provider": M.PROVIDER, "region": M.REGION, "zones": M.ZONE,
        "api_kinds": M.GVK, "conditions": _LABELS,
    },
    ResourceSummary: {"allocatable": _AMOUNTS, "allocated": _AMOUNTS, "allocating": _AMOUNTS},
    NodeGrade: {"minimum": _AMOUNTS},
    Managed: {
        "claims": _LABELS, "allocatable": Pairs(M.RESOURCE, M.QUANTITY), "capacity": Pairs(M.RESOURCE, M.QUANTITY),
        "manifest": M.DROPPED,
    },
    ManagedTaint: {"key": M.LABEL_KEY, "effect": M.WORD, "value": M.LABEL_VALUE},
    Quota: {"namespace": M.NAMESPACE, "name": M.POLICY},
    Node: {
        "name": M.NODE, "allocatable": _AMOUNTS, "labels": _LABELS, "addresses": M.ADDRESS,
        "measured": Pairs(M.METRIC, M.QUANTITY), "images": Pairs(M.TOKEN), "annotations": _LABELS,
    },
    pod_upkeep.PodUpkeep: {
        "images": M.TOKEN, "quality": M.WORD, "claims": M.TOKEN, "phase": M.WORD, "reason": M.REMARK,
        "annotations": _LABELS,
    },
    pod_upkeep.Owner: {"kind": M.WORD, "name": M.WORKLOAD, "uid": M.TOKEN},
    pod_upkeep.ContainerState: {"state": M.WORD, "reason": M.REMARK},
    pod_upkeep.PodCondition: {"type": M.LABEL_KEY, "status": M.WORD, "reason": M.REMARK},
    DaemonPods: {"namespace": M.NAMESPACE, "name": M.WORKLOAD},
    Pod: {"uid": M.POD_UID, "name": M.POD, "node": M.NODE, "binding": M.BINDING},
    Device: {"model": M.MODEL, "kind": M.RESOURCE},
    DeviceRequest: {"models": M.MODEL, "kind": M.RESOURCE},
    Taint: {"key": M.LABEL_KEY, "effect": M.WORD, "value": M.LABEL_VALUE},
    Toleration: {"key": M.LABEL_KEY, "operator": M.WORD, "value": M.LABEL_VALUE, "effect": M.WORD},
    Requirement: {"key": M.LABEL_KEY, "operator": M.WORD, "values": M.LABEL_VALUE},
    LabelSelector: {"match_labels": _LABELS},
    Requirements: {"requests": _AMOUNTS, "node_selector": _LABELS},
    PodTraits: {
        "namespace": M.NAMESPACE, "labels": _LABELS, "owner": M.WORD, "images": M.TOKEN, "scored": _AMOUNTS,
        "node_name": M.NODE, "resource_claims": M.TOKEN, "scheduler": M.POLICY, "gates": M.TOKEN, "group": M.POLICY,
    },
    pod_traits.HostPort: {"protocol": M.WORD, "ip": M.ADDRESS},
    pod_traits.TopologySpread: {"key": M.LABEL_KEY, "match_label_keys": M.LABEL_KEY},
    pod_traits.PodTerm: {
        "key": M.LABEL_KEY, "namespaces": M.NAMESPACE, "match_label_keys": M.LABEL_KEY,
        "mismatch_label_keys": M.LABEL_KEY,
    },
    pod_traits.VolumeUse: {"claim": M.TOKEN, "disk": M.TOKEN},
    NamespaceLabels: {"name": M.NAMESPACE, "labels": _LABELS},
    PodSelecting: {"kind": M.WORD, "namespace": M.NAMESPACE, "name": M.WORKLOAD},
    DisruptionBudget: {
        "namespace": M.NAMESPACE, "name": M.WORKLOAD, "min_available": M.QUANTITY, "max_unavailable": M.QUANTITY,
        "disrupted": M.POD,
    },
    # what was asked for
    ClusterAffinity: {"name": M.AFFINITY, "cluster_names": M.CLUSTER, "exclude": M.CLUSTER},
    SpreadConstraint: {"field": M.SPREAD_FIELD, "label": M.LABEL_KEY},
    ReplicaScheduling: {"type": M.WORD, "preference": M.WORD, "remainder": M.WORD},
    ReplicaLimit: {},
    Placement: {
        "affinity_label": M.LABEL_KEY, "anti_affinity_label": M.LABEL_KEY, "failover": M.WORD, "cluster_purge": M.WORD,
    },
    ApplicationFailover: {"purge": M.WORD},
    Propagation: {},
    FederatedQuota: {"overall": _AMOUNTS, "clusters": Pairs(M.CLUSTER, _AMOUNTS)},
    ConditionMatch: {"type": M.LABEL_KEY, "operator": M.WORD, "statuses": M.LABEL_VALUE},
    ObjectRef: {"api_version": M.API_VERSION, "name": M.WORKLOAD, "namespace": M.NAMESPACE, "kind": M.WORD},
    ResourceSelector: {"api_version": M.API_VERSION, "name": M.WORKLOAD, "namespace": M.NAMESPACE, "kind": M.WORD},
    Policy: {"kind": M.WORD, "name": M.POLICY, "namespace": M.NAMESPACE, "manifest": M.DROPPED},
    PodGroups: {"min_counts": Pairs(M.POLICY)},
    NodePoolPolicy: {
        "name": M.LABEL_VALUE,  # it is the value of a label of its nodes
        "labels": _LABELS, "annotations": _LABELS, "node_class": M.TOKEN, "consolidation": M.WORD, "limits": _AMOUNTS,
        "catalogue": M.TOKEN, "clusters": M.CLUSTER, "digest": M.LABEL_VALUE, "min_values": M.WORD,
        "preferences": M.WORD, "reserved": M.WORD, "packing": M.WORD,
    },
    PoolRequirement: {"key": M.LABEL_KEY, "operator": M.WORD, "values": M.LABEL_VALUE},
    NodeBudget: {"nodes": M.QUANTITY, "reasons": M.WORD, "schedule": M.QUANTITY},
    SyncPeriod: {"metric": M.METRIC},
    LoadLimit: {"metric": M.METRIC},
    LoadWeight: {"metric": M.METRIC},
    # events
    ClusterForgotten: {"name": M.CLUSTER},
    NodesObserved: {"cluster": M.CLUSTER},
    PodsObserved: {"cluster": M.CLUSTER, "node": M.NODE},
    QuotasObserved: {"cluster": M.CLUSTER, "namespace": M.NAMESPACE},
    ObjectsObserved: {"cluster": M.CLUSTER, "kind": M.WORD, "namespace": M.NAMESPACE},
    NodeLoadObserved: {"cluster": M.CLUSTER, "metric": M.METRIC, "loads": Pairs(M.NODE)},
    HotValueObserved: {"cluster": M.CLUSTER, "hot": Pairs(M.NODE)},
    PolicyRemoved: {"kind": M.WORD, "name": M.POLICY, "namespace": M.NAMESPACE},
    BindingWithdrawn: {"name": M.BINDING},
    CapacityEstimated: {
        "cluster": M.CLUSTER, "free": _AMOUNTS, "classes": Pairs(M.CLASS_KEY), "accounted_through": Pairs(M.STREAM),
        "provisionable": Pairs(M.CLASS_KEY), "price_of": Pairs(M.CLASS_KEY),
    },
    WorkloadObserved: {"cluster": M.CLUSTER, "binding": M.BINDING, "health": M.WORD},
    Leaving: {"cluster": M.CLUSTER, "cause": M.WORD},
    QuotaRoom: {"namespace": M.NAMESPACE, "name": M.POLICY, "left": _AMOUNTS},
    DeviceTotals: {"kind": M.RESOURCE, "model": M.MODEL},
    FailoverProposed: {"stream": M.STREAM, "binding": M.BINDING, "cluster": M.CLUSTER, "reason": M.REMARK},
    EvictionProposed: {
        "stream": M.STREAM, "binding": M.BINDING, "cluster": M.CLUSTER, "reason": M.REMARK, "cause": M.WORD,
        "assignment": M.FLEET_DECISION,
    },
    RescheduleProposed: {
        "stream": M.STREAM, "binding": M.BINDING, "reason": M.REMARK, "replay": M.EVENT_ID, "objective": M.WORD,
        "policy": M.POLICY_KEY,
    },
    NodeRemovalProposed: {"stream": M.STREAM, "cluster": M.CLUSTER, "node": M.NODE, "reason": M.REMARK},
    PlanRequested: {"stream": M.STREAM, "plan": M.EVENT_ID, "basis": Pairs(M.REMARK, M.REMARK)},
    Step: {"forgotten": M.CLUSTER, "withdrawn": M.BINDING},
    Outcome: {"outcome": M.WORD, "reason": M.WORD},
    AssignmentsDecided: {"cluster": M.CLUSTER, "stream": M.STREAM},
    OutcomesDecided: {"cluster": M.CLUSTER, "stream": M.STREAM},
    Assigned: {"binding": M.BINDING, "uid": M.UID},
    Placed: {"binding": M.BINDING},
    Refused: {"binding": M.BINDING, "assignment": M.FLEET_DECISION, "class_key": M.CLASS_KEY, "reason": M.WORD},
    Released: {"binding": M.BINDING},
    NodeClosed: {"node": M.NODE},
    Silenced: {},
    Recovered: {},
    Ticked: {"stream": M.STREAM},
    # decisions
    ScheduleDecided: {
        "binding": M.BINDING, "uid": M.UID, "trigger": M.WORD, "suspect": M.CLUSTER, "affinity": M.AFFINITY,
        "answers": M.EVENT_ID, "move": M.WORD, "former": M.WORKLOAD,
    },
    ScheduleRefused: {
        "binding": M.BINDING, "uid": M.UID, "trigger": M.WORD, "reason": M.WORD, "affinity": M.AFFINITY,
        "answers": M.EVENT_ID, "former": M.WORKLOAD,
    },
    BindingReleased: {"binding": M.BINDING, "uid": M.UID, "former": M.WORKLOAD},
    ClusterSilenced: {"cluster": M.CLUSTER},
    ClusterRecovered: {"cluster": M.CLUSTER},
    ProposalRefused: {"proposal": M.EVENT_ID, "kind": M.WORD, "reason": M.WORD, "detail": M.REMARK},
    NodeShare: {"node": M.NODE},
    ReplicasPlaced: {"cluster": M.CLUSTER, "binding": M.BINDING, "assignment": M.FLEET_DECISION},
    ReplicasRefused: {
        "cluster": M.CLUSTER, "binding": M.BINDING, "assignment": M.FLEET_DECISION, "class_key": M.CLASS_KEY,
        "reason": M.WORD,
    },
    ReplicasReleased: {
        "cluster": M.CLUSTER, "binding": M.BINDING, "assignment": M.FLEET_DECISION, "reason": M.WORD,
    },
    ReplicasNominated: {"cluster": M.CLUSTER, "binding": M.BINDING, "assignment": M.FLEET_DECISION, "node": M.NODE},
    NodeRemovalDecided: {
        "cluster": M.CLUSTER, "node": M.NODE, "reason": M.REMARK, "proposal": M.EVENT_ID,
    },
    PlanCommitted: {"plan": M.EVENT_ID},
    Explanation: {"refused": Pairs(M.WORD), "note": M.REMARK, "why": M.REMARK},
    FailoverSets: {"reserved": M.CLUSTER, "available": M.CLUSTER, "candidates": M.CLUSTER, "failed": M.CLUSTER},
    Scored: {"estimated_by": M.WORD},
    # a fleet stream's state
    saved.SavedFleet: {"outcomes": Pairs(M.STREAM)},
    saved.SavedMoves: {"after": M.BINDING, "departed": Pairs(M.CLUSTER)},
    saved.SavedCluster: {"name": M.CLUSTER, "tainted_at": Pairs(M.TAINT_PAIR), "standing": M.POLICY_KEY},
    saved.SavedCapacity: {"cluster": M.CLUSTER, "closed": Pairs(M.CLASS_KEY), "doubt": Pairs(M.CLASS_KEY)},
    saved.SavedPending: {"class_key": M.CLASS_KEY, "namespace": M.NAMESPACE, "priority_class": M.LABEL_VALUE},
    saved.SavedBinding: {
        "targets": Pairs(M.CLUSTER), "before": Pairs(M.CLUSTER), "assigned_by": Pairs(M.CLUSTER),
        "applied_class": M.CLASS_KEY, "applied_token": M.TOKEN, "affinity": M.AFFINITY, "suspect": M.CLUSTER,
        "extra": Pairs(M.CLUSTER), "evicted": M.CLUSTER, "refused": M.WORD, "applied_requests": _AMOUNTS,
        "told": M.WORKLOAD, "barred": Pairs(M.CLUSTER),
    },
    # a cluster stream's state
    cluster_state._Nodes: {"closed": M.NODE, "taint_since": Pairs(M.NODE, Pairs(M.TAINT_NAME))},
    cluster_state._Pods: {"by_node": Pairs(M.NODE)},
    cluster_state._Bindings: {"classes": Pairs(M.CLASS_KEY)},
    cluster_state.SavedHeld: {
        "binding": M.BINDING, "class_key": M.CLASS_KEY, "uid": M.UID, "assignment": M.FLEET_DECISION,
    },
    cluster_state._Placed: {"node": M.NODE, "class_key": M.CLASS_KEY},
    cluster_state._Stream: {
        "seen": Pairs(M.STREAM), "proposals": M.EVENT_ID, "causes": Pairs(M.NODE, M.EVENT_ID),
        "nominated": Pairs(M.BINDING), "extending": Pairs(M.BINDING),
    },
    cluster_state.WaitingGroup: {"namespace": M.NAMESPACE, "name": M.POLICY},
    cluster_state.Nomination: {"node": M.NODE},
    cluster_state._Offers: {
        "pools": Pairs(M.POLICY_KEY), "overlays": Pairs(M.POLICY_KEY), "catalogues": Pairs(M.POLICY_KEY),
    },
    cluster_state._Upkeep: {
        "quiet_since": Pairs(M.NODE), "promised": Pairs(M.NODE), "leaving": Pairs(M.NODE, M.WORD),
        "disruptions": M.EVENT_ID, "descheduling": M.EVENT_ID, "motion": Pairs(M.BINDING), "rested": Pairs(M.BINDING),
        "left": Pairs(M.BINDING, Pairs(M.NODE)),
    },
    cluster_state.Motion: {"node": M.NODE},
    cluster_state._Told: {"configs": Pairs(M.POLICY_KEY), "load_policies": Pairs(M.POLICY_KEY)},
    cluster_state.ToldObjects: {"kind": M.WORD, "namespace": M.NAMESPACE},
}  # fmt: skip
"""Every struct with text in it -> what its fields mean. A struct that is not here has none. What depends on more than the
field (the stream of an item, the owner of an explanation) is in `_SPECIAL`."""

FIELD_OF_NAME = "metadata.name"
"""The only field a node term can ask for."""

CLUSTER_FIELDS = {"provider": M.PROVIDER, "region": M.REGION, "zone": M.ZONE}


class Names(Protocol):
    """What becomes of texts, ids and whole requirement classes."""

    def text(self, meaning: Meaning, text: str) -> str:
        """Never asked for the empty text, which stays what it is: nothing."""
        ...

    def id(self, id: UUID) -> UUID:
        """Of an event, or of a decision of any stream."""
        ...

    def decision(self, stream: str, seq: int, id: str) -> str:
        """The id of the decision `seq` of a stream, given under its old names."""
        ...

    def requirements(self, requirements: Requirements, renamed: Callable[[], Requirements]) -> Requirements:
        """A requirement class: asked apart, because equal ones come again and again."""
        ...

    def components(
        self, components: tuple[Component, ...], renamed: Callable[[], tuple[Component, ...]]
    ) -> tuple[Component, ...]:
        """Of one workload: together they are a class, too."""
        ...

    def kind(self, api_version: str, kind: str) -> str: ...


T = TypeVar("T")


class Walk:
    """Goes through values and hands every text in them, with its meaning, to `names`; gives back the same with what it got."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def value(self, value: T) -> T:
        """RedactionError: there is text in it whose meaning is unknown, or that is computed on."""
        return cast(T, self._walk(value, None, ""))

    def text(self, meaning: Meaning, text: str) -> str:
        return self._names.text(meaning, text) if text else text

    def _walk(self, value: object, means: Means, where: str) -> object:
        kind = type(value)
        if kind is int or kind is bool or value is None:
            return value
        if isinstance(value, str):
            if not isinstance(means, Meaning):
                raise RedactionError(f"redaction does not know what {where} means, so it cannot hide it")
            return self.text(means, value)
        if isinstance(value, tuple):
            return tuple([self._walk(item, means, where) for item in value])
        if isinstance(value, dict):
            return self._pairs(value, means, where)
        if isinstance(value, Requirements):
            return self._names.requirements(value, lambda: cast(Requirements, self._struct(value)))
        if isinstance(value, msgspec.Struct):
            special = _SPECIAL.get(type(value))
            return self._struct(value) if special is None else special(self, value)
        if isinstance(value, UUID):
            return self._names.id(value)
        raise RedactionError(f"redaction does not know what {where} holds")

    def _pairs(self, pairs: Mapping[object, object], means: Means, where: str) -> dict[object, object]:
        keys, values = (means.keys, means.values) if isinstance(means, Pairs) else (None, None)
        return {self._walk(key, keys, where): self._walk(item, values, where) for key, item in pairs.items()}

    def _struct(self, value: msgspec.Struct, **known: object) -> msgspec.Struct:
        """Field by field. `known`: those that a special rule has seen to."""
        changed = [
            known[field] if field in known else self._walk(getattr(value, field), means, where)
            for field, means, where in _fields(type(value))
        ]
        return type(value)(*changed)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Means, str], ...]:
    """Name, meaning and place of each field, in order."""
    meanings = TABLE.get(kind, {})
    return tuple([(field, meanings.get(field), f"{kind.__name__}.{field}") for field in kind.__struct_fields__])


# --- what depends on more than the field


def _requirement(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, Requirement)
    _refuse_arithmetic(value, "label")
    return walk._struct(value)


def _refuse_arithmetic(requirement: Requirement, what: str) -> None:
    if requirement.operator in ("Gt", "Lt"):
        raise RedactionError(f"{what} {requirement.key} is compared as a number ({requirement.operator})")


def _node_term(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, NodeTerm)
    return walk._struct(value, fields=tuple([_field(walk, r, {FIELD_OF_NAME: M.NODE}) for r in value.fields]))


def _affinity(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, ClusterAffinity)
    return walk._struct(value, fields=tuple([_field(walk, r, CLUSTER_FIELDS) for r in value.fields]))


def _field(walk: Walk, requirement: Requirement, fields: Mapping[str, Meaning]) -> Requirement:
    """A condition on a field; on one that does not exist it matches nothing, whatever it is called."""
    _refuse_arithmetic(requirement, "field")
    meaning = fields.get(requirement.key)
    key = requirement.key if meaning else walk.text(M.LABEL_KEY, requirement.key)
    values = tuple([walk.text(meaning or M.LABEL_VALUE, value) for value in requirement.values])
    return Requirement(key, requirement.operator, values)


def _limit(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, ReplicaLimit)
    return walk._struct(value, cluster="*" if value.cluster == "*" else walk.text(M.CLUSTER, value.cluster))


def _quota(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, Quota)
    return walk._struct(
        value, hard=_limits(walk, value.hard), used=_limits(walk, value.used), scope=_scope(walk, value.scope)
    )


def _quota_room(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, QuotaRoom)
    return walk._struct(value, scope=_scope(walk, value.scope))


def _limits(walk: Walk, limits: Mapping[str, int]) -> dict[str, int]:
    """What a quota limits is a resource, or a resource's requests."""
    renamed: dict[str, int] = {}
    for limit, amount in limits.items():
        prefix = next((p for p in ("requests.", "limits.", "count/") if limit.startswith(p)), "")
        renamed[prefix + walk.text(M.RESOURCE, limit.removeprefix(prefix))] = amount
    return renamed


def _scope(walk: Walk, scope: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Scopes have fixed names; what a scope asks for are priority classes."""
    return tuple(
        [Requirement(r.key, r.operator, tuple([walk.text(M.LABEL_VALUE, v) for v in r.values])) for r in scope]
    )


def _scheduled_by(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    """Whose scheduler it is decides only whether it is ours."""
    assert isinstance(value, Binding | Propagation)
    ours = value.scheduler in ("", "default-scheduler")
    known: dict[str, object] = {"scheduler": value.scheduler if ours else walk.text(M.POLICY, value.scheduler)}
    if isinstance(value, Binding) and value.components:
        several = value.components
        known["components"] = walk._names.components(several, lambda: tuple([walk.value(c) for c in several]))
    return walk._struct(value, **known)


def _object(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    """A kind is only known together with the group it belongs to."""
    assert isinstance(value, ObjectRef | ResourceSelector)
    return walk._struct(value, kind=walk._names.kind(value.api_version, value.kind) if value.kind else "")


def _explained(candidates: Meaning) -> Callable[[Walk, msgspec.Struct], msgspec.Struct]:
    """A decision whose candidates are clusters, or nodes."""

    def rename(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
        explanation = getattr(value, "explanation")  # noqa: B009  (every struct this is asked for has one)
        assert isinstance(explanation, Explanation)

        def scored(several: tuple[Scored, ...]) -> tuple[msgspec.Struct, ...]:
            return tuple([walk._struct(s, name=walk.text(candidates, s.name)) for s in several])

        renamed = walk._struct(
            explanation,
            chosen=scored(explanation.chosen),
            runners_up=scored(explanation.runners_up),
            division={walk.text(candidates, name): n for name, n in explanation.division.items()},
        )
        return walk._struct(value, explanation=renamed)

    return rename


def _items(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    """The decision an item came from is one of the message's stream."""
    assert isinstance(value, AssignmentsDecided | OutcomesDecided)
    items = [
        walk._struct(item, decision=walk._names.decision(value.stream, item.seq, item.decision)) for item in value.items
    ]
    return walk._struct(value, items=tuple(items))


def _reschedule(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, RescheduleProposed)
    if value.objective == "cost":
        raise RedactionError(
            f"{value.binding} is to be moved for its cost, and prices are values of the label {PRICE_LABEL}"
        )
    return walk._struct(value)


def _plan(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    """What is expected of a fleet stream is about bindings and clusters, of a cluster stream about bindings and nodes."""
    assert isinstance(value, PlanRequested)
    places = M.CLUSTER if value.stream.startswith(FLEET) else M.NODE
    expected = [
        walk._struct(
            outcome,
            subject=walk.text(_SUBJECTS.get(outcome.outcome, M.BINDING), outcome.subject),
            places={walk.text(places, name): n for name, n in outcome.places.items()},
        )
        for outcome in value.expected
    ]
    return walk._struct(value, expected=tuple(expected))


_SUBJECTS = {
    "silenced": M.CLUSTER, "recovered": M.CLUSTER, "removed": M.NODE, "held": M.STREAM, "resumed": M.STREAM,
}  # fmt: skip
"""What a decision with this outcome is about, where that is no binding."""


def _plan_refused(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, PlanRefused)
    raise RedactionError(
        f"plan {value.plan} was refused because of digests of its inputs, which new names would change"
    )


def _policy(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, Policy)
    if value.selection or value.cluster_set or value.set_binding or value.scores:
        raise RedactionError(f"{value.key} chooses clusters by texts that are compared, which new names would change")
    if value.catalogue or value.overlay or value.descheduling or value.rebalancing:
        raise RedactionError(f"{value.key} says by names of types, labels and zones what nodes are bought or emptied")
    if value.scheduler:
        raise RedactionError(f"{value.key} says by names of plugins, resources and hosts how nodes are chosen")
    return walk._struct(value)


def _answered(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    where = getattr(value, "stream", "") or getattr(value, "cluster", "") or "a cluster"
    raise RedactionError(f"{where} was answered by an extender, in words of its own that hold names")


_EXTENDERS = (ExtenderAnswered, ExtenderAsked, cluster_state.Question, cluster_state.Extending)


def _claimed(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    raise RedactionError(
        f"the {type(value).__name__} {getattr(value, 'name', '')} is found by texts that are compared, which new names would change"
    )


def _pool_requirement(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, PoolRequirement)
    if value.operator in ("Gt", "Lt", "Gte", "Lte"):
        raise RedactionError(f"label {value.key} is compared as a number ({value.operator})")
    return walk._struct(value)


def _bought(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    where = getattr(value, "cluster", "") or getattr(value, "name", "") or type(value).__name__
    raise RedactionError(
        f"{where}: nodes were bought or emptied by names of types, zones and labels, which new names would change"
    )


def _selected(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, PlacementDecided | PlacementHeld | PlacementReleased | selections.SavedStanding)
    raise RedactionError(
        f"placement {value.placement} chooses clusters by texts that are compared, which new names would change"
    )


def _proposal_refused(walk: Walk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, ProposalRefused)
    return walk._struct(value, target=walk.text(target_of(value), value.target))


def target_of(refused: ProposalRefused) -> Meaning:
    return M.NODE if refused.kind == NodeRemovalProposed.__name__ else M.BINDING


_SPECIAL: dict[type[msgspec.Struct], Callable[[Walk, msgspec.Struct], msgspec.Struct]] = {
    Requirement: _requirement,
    PoolRequirement: _pool_requirement,
    NodeTerm: _node_term,
    ClusterAffinity: _affinity,
    ReplicaLimit: _limit,
    Quota: _quota,
    QuotaRoom: _quota_room,
    Binding: _scheduled_by,
    Propagation: _scheduled_by,
    ObjectRef: _object,
    Policy: _policy,
    **dict.fromkeys(_EXTENDERS, _answered),
    PlacementDecided: _selected,
    PlacementHeld: _selected,
    PlacementReleased: _selected,
    selections.SavedStanding: _selected,
    ResourceSelector: _object,
    ScheduleDecided: _explained(M.CLUSTER),
    ScheduleRefused: _explained(M.CLUSTER),
    ReplicasPlaced: _explained(M.NODE),
    ReplicasRefused: _explained(M.NODE),
    AssignmentsDecided: _items,
    OutcomesDecided: _items,
    ProposalRefused: _proposal_refused,
    RescheduleProposed: _reschedule,
    PlanRequested: _plan,
    PlanRefused: _plan_refused,
}

_CLAIMED: tuple[type[msgspec.Struct], ...] = (
    storage.ClaimReference, storage.PersistentVolume, storage.PersistentVolumeClaim, storage.StorageClass,
    storage.CSINode, storage.CSIDriver, storage.CSIStorageCapacity, device_claims.DeviceClass,
    device_claims.OfferedDevice, device_claims.ResourceSlice, device_claims.WantedDevices, device_claims.Alike,
    device_claims.HeldDevice, device_claims.ResourceClaim,
)  # fmt: skip
"""Volumes and claimed devices: expressions and topologies find them by their texts, so a history that holds any is
not redacted."""

_SPECIAL |= dict.fromkeys(_CLAIMED, _claimed)


def _all_of(*modules: ModuleType) -> tuple[type[msgspec.Struct], ...]:
    """The structs a module defines."""
    return tuple(
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, msgspec.Struct) and found.__module__ == module.__name__
    )


_BOUGHT: tuple[type[msgspec.Struct], ...] = (
    *_all_of(instance_types, descheduling, rebalancing, provisioning, disruption),
    NodeOverlay, NodeClaimStatus, DisruptionProposed, DeschedulingProposed, NewNode, Unseating, Claimed, ClaimEnded,
    Disrupting, Disrupted, pools.OpenClaim, pools.OpenCommand, pools.Offer, cluster_state.Replacement,
    cluster_state.Running,
)  # fmt: skip
"""Of nodes that are bought and emptied: prices, types and zones are looked up by name, so a history that holds any is
not redacted."""

_SPECIAL |= dict.fromkeys(_BOUGHT, _bought)

_SCHEDULERS: tuple[type[msgspec.Struct], ...] = (
    scheduler.PluginUse, scheduler.WeightedResource, scheduler.FitArgs, scheduler.DynamicArgs, scheduler.DevicesArgs,
    scheduler.Arguments, scheduler.Profile, scheduler.ManagedResource, scheduler.Extender,
)  # fmt: skip
"""Of how nodes are chosen: a history in which that was configured is not redacted."""

_SELECTIONS: tuple[type[msgspec.Struct], ...] = (
    selection.Condition, selection.Selector, selection.Predicate, selection.ClusterToleration, selection.AddOnScore,
    selection.Priority, selection.DecisionGroup, selection.Selection, selection.ClusterSet, selection.SetBinding,
    selection.ScoreValue, selection.ClusterScores, DecidedGroup, SelectionCondition, PlacementDecided, PlacementHeld,
    PlacementReleased, selections.SavedStanding,
)  # fmt: skip
"""Of placements that choose clusters: a history that holds any is not redacted."""

SPECIAL_FIELDS = {
    *((kind, field) for kind in (*_SELECTIONS, *_CLAIMED, *_SCHEDULERS, *_BOUGHT) for field in kind.__struct_fields__),
    *((kind, field) for kind in _EXTENDERS for field in kind.__struct_fields__),
    (ProposalRefused, "target"),
    (Scored, "name"),
    (Outcome, "subject"),
    (Outcome, "places"),
    *((PlanRefused, field) for field in ("plan", "reason", "subject", "changed")),
    (Explanation, "division"),
    (ClusterAffinity, "fields"),
    (ReplicaLimit, "cluster"),
    *((quota, field) for quota, field in ((Quota, "hard"), (Quota, "used"), (Quota, "scope"), (QuotaRoom, "scope"))),
    (Binding, "scheduler"),
    (Propagation, "scheduler"),
    (NodeTerm, "fields"),
    *((item, "decision") for item in (Assigned, Placed, Refused, Released, NodeClosed, Silenced, Recovered)),
}
"""Fields with text that only a special rule knows the meaning of."""


def subject_of(data: Value) -> Meaning:
    """What the subject of a decision with this data is."""
    match data:
        case ClusterSilenced() | ClusterRecovered():
            return M.CLUSTER
        case NodeRemovalDecided():
            return M.NODE
        case ProposalRefused():
            return target_of(data)
        case PlanCommitted():
            return M.EVENT_ID
        case _:
            return M.BINDING if hasattr(data, "binding") else M.STREAM
