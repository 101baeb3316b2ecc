"""Rules by which pods are taken off nodes they should not be on: the descheduler's policy, as the
stages read it.

Strategies stand in the order in which they run: first all that deschedule, of all profiles, then
all that balance. Every argument has its own type, with the defaults filled in; which limits hold
between profiles stands in the policy.

Percentages are doubles, as the manifests write them. They are only ever compared, or multiplied
once: nothing is summed in them."""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.value import Value

METRIC_RESOURCE = "MetricResource"
"""The one resource there is where usage is a Prometheus query."""


class Namespaces(Value, frozen=True):
    """`include` and `exclude` are not both set; with neither, all namespaces."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def has(self, namespace: str) -> bool:
        return namespace in self.include if self.include else namespace not in self.exclude


class OwnerKinds(Value, frozen=True):
    """Kinds of owners; `include` and `exclude` are not both set."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


Protection = Literal[
    "PodsWithLocalStorage",
    "SystemCriticalPods",
    "FailedBarePods",
    "DaemonSetPods",
    "PodsWithPVC",
    "PodsWithoutPDB",
    "PodsWithResourceClaims",
]
"""What keeps a pod where it is, in the descheduler's words. The first four hold unless they are
turned off: for pods with an emptyDir or hostPath, of system-critical priority, without an owner
(turned off: only those that have failed may go), of DaemonSets."""

DEFAULT_PROTECTIONS: tuple[Protection, ...] = (
    "PodsWithLocalStorage",
    "SystemCriticalPods",
    "FailedBarePods",
    "DaemonSetPods",
)


class EvictorArgs(Value, frozen=True):
    """Which pods may be evicted at all (DefaultEvictor).

    `node_fit`: only where another node would take the pod; None: as the policy has it
    (`DeschedulingPolicy.strict`). `node_selector`: labels of the nodes that count for that.
    `protections`: those that hold. `storage_classes`: claims of these alone are protected; empty:
    all claims. `priority`: pods of at least this priority stay, `priority_class`: of at least that
    of this class; not both. `min_replicas`: pods of owners that have fewer stay (up to 1: no such
    rule). `min_age_s`: younger ones stay. `no_eviction`: what the annotation prefer-no-eviction
    means: another comes first, or never."""

    node_fit: bool | None = None
    node_selector: LabelSelector | None = None
    protections: tuple[Protection, ...] = DEFAULT_PROTECTIONS
    storage_classes: tuple[str, ...] = ()
    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    priority: int | None = None
    priority_class: str = ""
    min_replicas: int = 0
    min_age_s: int = 0
    no_eviction: Literal["Preferred", "Mandatory"] = "Preferred"


# Those that balance.

UsageSource = Literal["requests", "KubernetesMetrics", "Prometheus"]


class LowNodeUtilization(Value, frozen=True, tag="LowNodeUtilization"):
    """From nodes above any of `targets` to nodes at or below all of `thresholds` (percent of
    allocatable, by resource; with `deviation` that far above and below the mean).
    `number_of_nodes`: nothing is done unless more nodes than that are low. `excluded`: namespaces
    whose pods stay. `per_node`: evictions of one node and pass at most. `source`: what usage is;
    `query`: of Prometheus."""

    thresholds: dict[str, float]
    targets: dict[str, float]
    deviation: bool = False
    number_of_nodes: int = 0
    excluded: tuple[str, ...] = ()
    per_node: int | None = None
    source: UsageSource = "requests"
    query: str = ""


class HighNodeUtilization(Value, frozen=True, tag="HighNodeUtilization"):
    """Off nodes that are at or below all of `thresholds`, so that they can go. `only_thresholding`:
    only pods that request one of the resources of the thresholds."""

    thresholds: dict[str, float]
    number_of_nodes: int = 0
    excluded: tuple[str, ...] = ()
    only_thresholding: bool = False


class RemoveDuplicates(Value, frozen=True, tag="RemoveDuplicates"):
    """Of pods of one owner with equal images one a node stays, or so many as must."""

    namespaces: Namespaces = Namespaces()
    excluded_owner_kinds: tuple[str, ...] = ()


class TopologySpread(Value, frozen=True, tag="RemovePodsViolatingTopologySpreadConstraint"):
    """Until the topology spread constraints of pods hold again. `node_fit`: only pods for which a
    node of a smaller domain has room."""

    namespaces: Namespaces = Namespaces()
    label_selector: LabelSelector | None = None
    hard: bool = True
    soft: bool = False
    node_fit: bool = True


class CraneWatermarks(Value, frozen=True, tag="CraneWatermarks"):
    """Off nodes that have been loaded beyond a high watermark for `samples` measurements in a row,
    until they are below the low one.

    `watermarks`: by metric of the load policy; empty: each limit of the load policy is the high
    one, and nine tenths of it the low one. A node whose measurement is missing or too old is held:
    nothing leaves it and nothing is sent to it."""

    watermarks: tuple[Watermark, ...] = ()
    samples: int = 3
    namespaces: Namespaces = Namespaces()
    per_node: int | None = 1


class Watermark(Value, frozen=True):
    """`high` and `low` in hundred-thousandths of the whole, as loads are."""

    metric: str
    high: int
    low: int


# Those that deschedule.


class NodeAffinity(Value, frozen=True, tag="RemovePodsViolatingNodeAffinity"):
    """`types`: in which order affinity is looked at, in Kubernetes' words."""

    types: tuple[str, ...]
    namespaces: Namespaces = Namespaces()
    label_selector: LabelSelector | None = None


class NodeTaints(Value, frozen=True, tag="RemovePodsViolatingNodeTaints"):
    """`excluded`, `included`: taints as `key` or `key=value`; not both (`included` None: all,
    empty: none). `prefer`: PreferNoSchedule counts too."""

    namespaces: Namespaces = Namespaces()
    label_selector: LabelSelector | None = None
    prefer: bool = False
    excluded: tuple[str, ...] = ()
    included: tuple[str, ...] | None = None


class InterPodAntiAffinity(Value, frozen=True, tag="RemovePodsViolatingInterPodAntiAffinity"):
    namespaces: Namespaces = Namespaces()
    label_selector: LabelSelector | None = None


class ConditionFilter(Value, frozen=True):
    """A condition of a pod; what is empty is not asked. `since_s`: it has been so for at least that
    long."""

    type: str = ""
    status: str = ""
    reason: str = ""
    since_s: int | None = None


class PodLifeTime(Value, frozen=True, tag="PodLifeTime"):
    """Pods that meet everything that is said: older than `max_s`, in one of `states` (phase,
    reason, or what a container waits for or ended with), with one of `conditions`, with a container
    that ended with one of `exit_codes`, of such owners. The oldest first."""

    namespaces: Namespaces = Namespaces()
    label_selector: LabelSelector | None = None
    max_s: int | None = None
    states: tuple[str, ...] = ()
    conditions: tuple[ConditionFilter, ...] = ()
    exit_codes: tuple[int, ...] = ()
    owner_kinds: OwnerKinds = OwnerKinds()
    init_containers: bool = False


class RemoveFailedPods(Value, frozen=True, tag="RemoveFailedPods"):
    """Pods of the phase Failed, for one of `reasons` (empty: any), with one of `exit_codes`, older
    than `min_age_s`."""

    namespaces: Namespaces = Namespaces()
    label_selector: LabelSelector | None = None
    min_age_s: int | None = None
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    excluded_owner_kinds: tuple[str, ...] = ()
    init_containers: bool = False


class TooManyRestarts(Value, frozen=True, tag="RemovePodsHavingTooManyRestarts"):
    """`threshold`: so many restarts of its containers together, or more. `states`: the phase, or
    what a container waits for."""

    threshold: int
    namespaces: Namespaces = Namespaces()
    label_selector: LabelSelector | None = None
    states: tuple[str, ...] = ()
    init_containers: bool = False


Strategy = (
    NodeTaints
    | NodeAffinity
    | InterPodAntiAffinity
    | PodLifeTime
    | RemoveFailedPods
    | TooManyRestarts
    | RemoveDuplicates
    | TopologySpread
    | LowNodeUtilization
    | HighNodeUtilization
    | CraneWatermarks
)
"""One plugin with its arguments."""

BALANCES = (
    RemoveDuplicates,
    TopologySpread,
    LowNodeUtilization,
    HighNodeUtilization,
    CraneWatermarks,
)
"""Those that look at nodes together; the others look at pods one by one."""


def name_of(strategy: Strategy) -> str:
    """The name of the plugin, as the descheduler's policy writes it."""
    return str(strategy.__struct_config__.tag)


class DeschedulerProfile(Value, frozen=True):
    name: str
    evictor: EvictorArgs = EvictorArgs()
    deschedule: tuple[Strategy, ...] = ()
    balance: tuple[Strategy, ...] = ()


class DeschedulingPolicy(Value, frozen=True):
    """`per_node`, `per_namespace`, `total`: evictions of one pass at most; None: no limit.
    `every_s`: between two passes. `clusters`: where it holds; empty: everywhere. `nodes`: those
    that are looked at at all; None: all. `strict`: as the descheduler does it, where we do better
    (`docs/deviations.md`).

    Against moves that come to nothing: `steady`: so many passes in a row a node must have been
    found too full, or pods too unevenly spread by it, before balancing takes anything off it;
    `cooldown_s`: so long no pod of a workload is moved again after one was, twice as long after
    each further move; `return_s`: so long nothing is sent back to a node that its workload was
    taken off. None of the three holds where `strict`."""

    profiles: tuple[DeschedulerProfile, ...] = ()
    per_node: int | None = None
    per_namespace: int | None = None
    total: int | None = None
    every_s: int = 300
    clusters: tuple[str, ...] = ()
    strict: bool = False
    steady: int = 3
    cooldown_s: int = 1800
    return_s: int = 14 * 86_400
    nodes: LabelSelector | None = None
