"""Policies as the stages read them, in one form for all manifest kinds.

One `Policy` is the whole state of its key (`kind/namespace/name`) on `wharfinger.policies`. Exactly
one of its parts is set; `manifest` keeps the user's own object for `get policies -o yaml`.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.descheduling import DeschedulingPolicy
from wharfinger.domain.ids import (
    ApiVersion,
    ClusterName,
    LabelKey,
    LabelText,
    Manifest,
    MetricName,
    NamespaceName,
    PolicyName,
    ResourceName,
    Word,
    WorkloadName,
)
from wharfinger.domain.instance_types import Catalogue
from wharfinger.domain.node_pool import NodeOverlay, NodePoolPolicy
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.domain.scheduler import SchedulerConfig
from wharfinger.domain.selection import (
    ChosenClusters,
    ClusterScores,
    ClusterSet,
    Selection,
    SetBinding,
)
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value


class ResourceSelector(Value, frozen=True):
    """Selects workloads by kind and, where given, namespace, name and labels."""

    api_version: ApiVersion
    kind: Word
    namespace: NamespaceName = ""
    name: WorkloadName = ""
    labels: LabelSelector | None = None


class Propagation(Value, frozen=True):
    """Which workloads a placement is for (Karmada's PropagationPolicy, OCM's Placement).

    `suspended`: the bindings it selects are not scheduled for now. `preempts`: it takes over
    workloads that a policy of lower priority has claimed. `lazy`: a change of it reaches a workload
    only when the workload itself changes next. `scheduler` and `binding_priority` are handed on to
    the bindings (None: the workload's own).
    """

    selectors: tuple[ResourceSelector, ...]
    placement: Placement
    priority: int = 0
    suspended: bool = False
    preempts: bool = False
    lazy: bool = False
    scheduler: str = ""
    binding_priority: int | None = None


class FederatedQuota(Value, frozen=True):
    """Karmada's FederatedResourceQuota: what all bindings of its namespace may ask for together
    (`overall`), and what they may in single clusters (`clusters`). Units: `domain.resources`."""

    overall: dict[ResourceName, int]
    clusters: dict[ClusterName, dict[ResourceName, int]] = {}


class ConditionMatch(Value, frozen=True):
    """The cluster's condition `type` has one of `statuses`, or, with NotIn, none of them."""

    type: LabelKey
    operator: Literal["In", "NotIn"]
    statuses: tuple[LabelText, ...]


class ConditionTaints(Value, frozen=True):
    """Karmada's ClusterTaintPolicy: clusters that `target` matches get `taints` when all of
    `add_on` hold, and lose them when all of `remove_on` hold. Between the two they stay as they
    are; an empty list never holds."""

    target: ClusterAffinity
    taints: tuple[Taint, ...]
    add_on: tuple[ConditionMatch, ...] = ()
    remove_on: tuple[ConditionMatch, ...] = ()


class SyncPeriod(Value, frozen=True):
    """Ask for `metric` every `period_s` seconds (crane's syncPolicy)."""

    metric: MetricName
    period_s: int


class LoadLimit(Value, frozen=True):
    """A node whose `metric` exceeds `limit` (hundred-thousandths of the whole) is not feasible
    (crane's predicate)."""

    metric: MetricName
    limit: int


class LoadWeight(Value, frozen=True):
    """`weight` in thousandths (crane's priority)."""

    metric: MetricName
    weight: int


class HotWindow(Value, frozen=True):
    """Every `count` bindings within `window_s` add one to a node's hot value (crane's hotValue)."""

    window_s: int
    count: int


class LoadPolicy(Value, frozen=True):
    """crane's DynamicSchedulerPolicy."""

    sync: tuple[SyncPeriod, ...] = ()
    limits: tuple[LoadLimit, ...] = ()
    weights: tuple[LoadWeight, ...] = ()
    hot: tuple[HotWindow, ...] = ()


class PriorityLevel(Value, frozen=True):
    """A PriorityClass. `global_default`: of pods that name no class."""

    value: int
    global_default: bool = False
    never_preempts: bool = False


class PodGroups(Value, frozen=True):
    """Groups of pods in the policy's namespace. `min_counts`: group -> how many of its pods are
    placed together or not at all; 0: each by itself."""

    min_counts: dict[PolicyName, int] = {}


class Policy(Value, frozen=True):
    kind: Word
    name: PolicyName
    namespace: NamespaceName = ""
    propagation: Propagation | None = None
    load: LoadPolicy | None = None
    node_pool: NodePoolPolicy | None = None
    quota: FederatedQuota | None = None
    taints: ConditionTaints | None = None
    selection: Selection | None = None
    cluster_set: ClusterSet | None = None
    set_binding: SetBinding | None = None
    scores: ClusterScores | None = None
    scheduler: SchedulerConfig | None = None
    priority_level: PriorityLevel | None = None
    pod_groups: PodGroups | None = None
    overlay: NodeOverlay | None = None
    catalogue: Catalogue | None = None
    descheduling: DeschedulingPolicy | None = None
    rebalancing: RebalancePolicy | None = None
    manifest: Manifest = ""
    """The user's object as JSON text."""
    chosen: ChosenClusters | None = None

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"
