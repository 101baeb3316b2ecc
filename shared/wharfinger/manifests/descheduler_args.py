"""The arguments of each of the descheduler's plugins as `pluginConfig` spells them, with its defaults and checks.

`strategy_of` and `evictor_of` read one plugin's arguments; the policy that holds them is `manifests.descheduler`. `CraneWatermarks`
is not the descheduler's but ours: crane's limits, as a reason to move what is on a node already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from wharfinger.domain import descheduling as domain
from wharfinger.domain import selectors
from wharfinger.manifests.crane import SECOND_NS, Duration
from wharfinger.manifests.model import Count, ExpectedError, Int32, Model, NotEmpty, Unacted, within
from wharfinger.manifests.selectors import LabelSelector

SYSTEM_CRITICAL = 2_000_000_000
"""The priority from which on pods are critical to the system (Kubernetes)."""

POD_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
POD_REASONS = ("NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError")
WAITING = (
    "PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff", "CreateContainerConfigError",
    "ErrImagePull", "CreateContainerError", "InvalidImageName",
)  # fmt: skip
ENDED = (
    "OOMKilled", "Error", "Completed", "DeadlineExceeded", "Evicted", "ContainerCannotRun", "StartError",
    "ContainerStatusUnknown",
)  # fmt: skip
STATES = (*POD_PHASES, *POD_REASONS, *WAITING, *ENDED)
RESTARTING = ("Running", "CrashLoopBackOff")


def _number(value: object) -> object:
    """YAML writes whole percentages without a point."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _percent(value: float) -> float:
    if not 0 <= value <= 100:
        raise ExpectedError("a percentage from 0 to 100")
    return value


Percent = Annotated[float, BeforeValidator(_number), AfterValidator(_percent)]
Seconds = Count


def _some(thresholds: dict[str, float]) -> dict[str, float]:
    if not thresholds:
        raise ExpectedError("a percentage for at least one resource")
    return thresholds


Thresholds = Annotated[dict[NotEmpty, Percent], AfterValidator(_some)]


def one_of(*words: str) -> AfterValidator:
    """Each of the list is one of `words`."""

    def check(said: list[str]) -> list[str]:
        for i, word in enumerate(said):
            if word not in words:
                raise ExpectedError(f"one of {', '.join(sorted(words))}", i)
        return said

    return AfterValidator(check)


class Args(Model):
    """What all have: they may be written with the type of their arguments."""

    api_version: str = ""
    kind: str = ""

    def to_domain(self) -> domain.Strategy:
        raise NotImplementedError


# What several share.


class Namespaces(Model):
    include: list[NotEmpty] = []
    exclude: list[NotEmpty] = []

    @model_validator(mode="after")
    def _one_of_both(self) -> Namespaces:
        if self.include and self.exclude:
            raise ExpectedError("either include or exclude", "include")
        return self

    def to_domain(self) -> domain.Namespaces:
        return domain.Namespaces(tuple(self.include), tuple(self.exclude))


class OwnerKinds(Namespaces):
    def kinds(self) -> domain.OwnerKinds:
        return domain.OwnerKinds(tuple(self.include), tuple(self.exclude))


class Evictable(Model):
    """Namespaces whose pods may be evicted: all but some."""

    exclude: list[NotEmpty] = []
    include: list[NotEmpty] = []

    @model_validator(mode="after")
    def _only_without(self) -> Evictable:
        if self.include:
            raise ExpectedError("nothing: here namespaces can only be excluded", "include")
        return self


def _selector(selector: LabelSelector | None) -> selectors.LabelSelector | None:
    return None if selector is None else selector.to_domain()


class Filtered(Args):
    """Those that look only at some pods."""

    namespaces: Namespaces = Namespaces()
    label_selector: LabelSelector | None = None

    @property
    def of(self) -> tuple[domain.Namespaces, selectors.LabelSelector | None]:
        return self.namespaces.to_domain(), _selector(self.label_selector)


# By how full nodes are.


class Prometheus(Model):
    query: str = ""


class MetricsUtilization(Model):
    """`metricsServer`: how KubernetesMetrics was said before there was another source."""

    source: Literal["KubernetesMetrics", "Prometheus", ""] = ""
    metrics_server: bool = False
    prometheus: Prometheus | None = None

    @model_validator(mode="after")
    def _one_source(self) -> MetricsUtilization:
        if self.source and self.metrics_server:
            raise ExpectedError("no metricsServer beside a source", "metricsServer")
        if not self.source and not self.metrics_server:
            raise ExpectedError("KubernetesMetrics or Prometheus", "source")
        if self.source == "Prometheus" and not (self.prometheus and self.prometheus.query):
            raise ExpectedError("a query", "prometheus", "query")
        if self.source != "Prometheus" and self.prometheus is not None:
            raise ExpectedError("no query, since the source is not Prometheus", "prometheus")
        return self


class EvictionLimits(Model):
    node: Count | None = None


class LowNodeUtilization(Args):
    thresholds: Thresholds
    target_thresholds: Thresholds
    use_deviation_thresholds: bool = False
    number_of_nodes: Int32 = 0
    metrics_utilization: MetricsUtilization | None = None
    evictable_namespaces: Evictable = Evictable()
    eviction_limits: EvictionLimits = EvictionLimits()

    @model_validator(mode="after")
    def _go_together(self) -> LowNodeUtilization:
        if self.thresholds.keys() != self.target_thresholds.keys():
            raise ExpectedError(f"the resources of thresholds: {', '.join(self.thresholds)}", "targetThresholds")
        for name, low in self.thresholds.items():
            if low > self.target_thresholds[name] and not self.use_deviation_thresholds:
                raise ExpectedError(f"at most {self.target_thresholds[name]:g}, its target", "thresholds", name)
        if self._source == "Prometheus" and list(self.thresholds) != [domain.METRIC_RESOURCE]:
            raise ExpectedError(f"{domain.METRIC_RESOURCE} alone, since usage is a query", "thresholds")
        return self

    @property
    def _source(self) -> domain.UsageSource:
        if self.metrics_utilization is None:
            return "requests"
        return self.metrics_utilization.source or "KubernetesMetrics"

    def to_domain(self) -> domain.Strategy:
        asked = self.metrics_utilization.prometheus if self.metrics_utilization else None
        return domain.LowNodeUtilization(
            dict(self.thresholds),
            dict(self.target_thresholds),
            self.use_deviation_thresholds,
            self.number_of_nodes,
            tuple(self.evictable_namespaces.exclude),
            self.eviction_limits.node,
            self._source,
            asked.query if asked else "",
        )


class HighNodeUtilization(Args):
    thresholds: Thresholds
    number_of_nodes: Int32 = 0
    eviction_modes: Annotated[list[str], one_of("OnlyThresholdingResources")] = []
    evictable_namespaces: Evictable = Evictable()

    def to_domain(self) -> domain.Strategy:
        return domain.HighNodeUtilization(
            dict(self.thresholds),
            self.number_of_nodes,
            tuple(self.evictable_namespaces.exclude),
            "OnlyThresholdingResources" in self.eviction_modes,
        )


def _below_the_high_one(mark: Watermark) -> Watermark:
    if mark.low >= mark.high:
        raise ExpectedError(f"less than the high one, {mark.high:g}", "low")
    return mark


class Watermark(Model):
    """Percent of the whole."""

    metric: NotEmpty
    high: Percent
    low: Percent

    def to_domain(self) -> domain.Watermark:
        return domain.Watermark(self.metric, round(self.high * 1000), round(self.low * 1000))


class CraneWatermarks(Args):
    watermarks: list[Annotated[Watermark, AfterValidator(_below_the_high_one)]] = []
    samples: Annotated[Int32, within(1, 1000)] = 3
    namespaces: Namespaces = Namespaces()
    eviction_limits: EvictionLimits = EvictionLimits(node=1)

    def to_domain(self) -> domain.Strategy:
        return domain.CraneWatermarks(
            tuple(mark.to_domain() for mark in self.watermarks),
            self.samples,
            self.namespaces.to_domain(),
            self.eviction_limits.node,
        )


# By how pods lie.


class RemoveDuplicates(Args):
    namespaces: Namespaces = Namespaces()
    exclude_owner_kinds: list[NotEmpty] = []

    def to_domain(self) -> domain.Strategy:
        return domain.RemoveDuplicates(self.namespaces.to_domain(), tuple(self.exclude_owner_kinds))


class TopologySpread(Filtered):
    constraints: Annotated[list[str], one_of("DoNotSchedule", "ScheduleAnyway")] = []
    topology_balance_node_fit: bool = True

    def to_domain(self) -> domain.Strategy:
        said = self.constraints or ["DoNotSchedule"]
        return domain.TopologySpread(
            *self.of, "DoNotSchedule" in said, "ScheduleAnyway" in said, self.topology_balance_node_fit
        )


class NodeAffinity(Filtered):
    """A type that nobody knows is one of a later Kubernetes and does nothing, as there."""

    node_affinity_type: list[str]

    @model_validator(mode="after")
    def _some_type(self) -> NodeAffinity:
        if not self.node_affinity_type:
            raise ExpectedError("requiredDuringSchedulingIgnoredDuringExecution or another", "nodeAffinityType")
        return self

    def to_domain(self) -> domain.Strategy:
        return domain.NodeAffinity(tuple(self.node_affinity_type), *self.of)


class NodeTaints(Filtered):
    include_prefer_no_schedule: bool = False
    excluded_taints: list[NotEmpty] = []
    included_taints: list[NotEmpty] | None = None

    @model_validator(mode="after")
    def _one_list(self) -> NodeTaints:
        if self.excluded_taints and self.included_taints:
            raise ExpectedError("either includedTaints or excludedTaints", "includedTaints")
        return self

    def to_domain(self) -> domain.Strategy:
        included = None if self.included_taints is None else tuple(self.included_taints)
        return domain.NodeTaints(*self.of, self.include_prefer_no_schedule, tuple(self.excluded_taints), included)


class InterPodAntiAffinity(Filtered):
    def to_domain(self) -> domain.Strategy:
        return domain.InterPodAntiAffinity(*self.of)


# By how pods fare.


class ConditionFilter(Model):
    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: Seconds | None = None

    @model_validator(mode="after")
    def _asks_something(self) -> ConditionFilter:
        if not (self.type or self.status or self.reason or self.min_time_since_last_transition_seconds is not None):
            raise ExpectedError("a type, status, reason or minTimeSinceLastTransitionSeconds")
        return self

    def to_domain(self) -> domain.ConditionFilter:
        return domain.ConditionFilter(self.type, self.status, self.reason, self.min_time_since_last_transition_seconds)


class PodLifeTime(Filtered):
    """`includingEphemeralContainers`: what is known of a pod has none of these."""

    max_pod_life_time_seconds: Seconds | None = None
    states: Annotated[list[str], one_of(*STATES)] = []
    conditions: list[ConditionFilter] = []
    exit_codes: list[Int32] = []
    owner_kinds: OwnerKinds = OwnerKinds()
    including_init_containers: bool = False
    including_ephemeral_containers: Unacted = None

    @model_validator(mode="after")
    def _asks_something(self) -> PodLifeTime:
        if self.max_pod_life_time_seconds is None and not (self.states or self.conditions or self.exit_codes):
            raise ExpectedError("maxPodLifeTimeSeconds, states, conditions or exitCodes")
        return self

    def to_domain(self) -> domain.Strategy:
        return domain.PodLifeTime(
            *self.of,
            self.max_pod_life_time_seconds,
            tuple(self.states),
            tuple(c.to_domain() for c in self.conditions),
            tuple(self.exit_codes),
            self.owner_kinds.kinds(),
            self.including_init_containers,
        )


class RemoveFailedPods(Filtered):
    min_pod_lifetime_seconds: Seconds | None = None
    reasons: list[NotEmpty] = []
    exit_codes: list[Int32] = []
    exclude_owner_kinds: list[NotEmpty] = []
    including_init_containers: bool = False

    def to_domain(self) -> domain.Strategy:
        return domain.RemoveFailedPods(
            *self.of,
            self.min_pod_lifetime_seconds,
            tuple(self.reasons),
            tuple(self.exit_codes),
            tuple(self.exclude_owner_kinds),
            self.including_init_containers,
        )


class TooManyRestarts(Filtered):
    pod_restart_threshold: Annotated[Int32, within(1, 2**31 - 1)]
    states: Annotated[list[str], one_of(*RESTARTING)] = []
    including_init_containers: bool = False

    def to_domain(self) -> domain.Strategy:
        return domain.TooManyRestarts(
            self.pod_restart_threshold, *self.of, tuple(self.states), self.including_init_containers
        )


STRATEGIES: dict[str, type[Args]] = {
    "RemovePodsViolatingNodeTaints": NodeTaints,
    "RemovePodsViolatingNodeAffinity": NodeAffinity,
    "RemovePodsViolatingInterPodAntiAffinity": InterPodAntiAffinity,
    "PodLifeTime": PodLifeTime,
    "RemoveFailedPods": RemoveFailedPods,
    "RemovePodsHavingTooManyRestarts": TooManyRestarts,
    "RemoveDuplicates": RemoveDuplicates,
    "RemovePodsViolatingTopologySpreadConstraint": TopologySpread,
    "LowNodeUtilization": LowNodeUtilization,
    "HighNodeUtilization": HighNodeUtilization,
    "CraneWatermarks": CraneWatermarks,
}
"""By the name of the plugin."""


def strategy_of(name: str, args: Mapping[str, Any]) -> domain.Strategy:
    """One plugin with its arguments, in wire form before defaulting. Raises ExpectedError for a name that nobody knows, and
    pydantic's ValidationError for arguments that are wrong."""
    model = STRATEGIES.get(name)
    if model is None:
        raise ExpectedError(f"one of {', '.join(STRATEGIES)}")
    return model.model_validate(dict(args)).to_domain()


# The evictor.


class PriorityThreshold(Model):
    value: Int32 | None = None
    name: str = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> PriorityThreshold:
        if self.value is not None and self.name:
            raise ExpectedError("either value or name", "name")
        if self.value is not None and self.value > SYSTEM_CRITICAL:
            raise ExpectedError(f"at most {SYSTEM_CRITICAL}", "value")
        return self


class StorageClassName(Model):
    name: NotEmpty


class PvcProtection(Model):
    protected_storage_classes: list[StorageClassName] = []


class ProtectionConfig(Model):
    model_config = {"alias_generator": None}

    PodsWithPVC: PvcProtection | None = None


_EXTRA: tuple[domain.Protection, ...] = ("PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims")


def _once(said: list[str]) -> list[str]:
    for i, word in enumerate(said):
        if word in said[:i]:
            raise ExpectedError("no protection twice", i)
    return said


class PodProtections(Model):
    extra_enabled: Annotated[list[str], one_of(*_EXTRA), AfterValidator(_once)] = []
    default_disabled: Annotated[list[str], one_of(*domain.DEFAULT_PROTECTIONS), AfterValidator(_once)] = []
    of_each: ProtectionConfig | None = Field(default=None, alias="config")

    @model_validator(mode="after")
    def _configured_is_enabled(self) -> PodProtections:
        said = self.of_each.PodsWithPVC if self.of_each else None
        if said is not None and "PodsWithPVC" not in self.extra_enabled:
            raise ExpectedError("PodsWithPVC among extraEnabled", "config", "PodsWithPVC")
        return self

    @property
    def changed(self) -> bool:
        return bool(self.extra_enabled or self.default_disabled)


_TERM = re.compile(r"\s*([^\s=!,()]+)\s*(==|=|!=)\s*([^\s=!,()]*)\s*|\s*(!?)\s*([^\s=!,()]+)\s*")
_SET = re.compile(r"\s*([^\s=!,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_COMMA = re.compile(r",(?![^()]*\))")


def label_selector(text: str) -> selectors.LabelSelector:
    """A selector in one line, as `pool=x,disk!=hdd,zone in (a, b),!old`. Raises ExpectedError."""
    return selectors.LabelSelector({}, tuple(_requirement(term) for term in _COMMA.split(text) if text.strip()))


def _requirement(term: str) -> selectors.Requirement:
    if (found := _SET.fullmatch(term)) is not None:
        values = tuple(v.strip() for v in found[3].split(","))
        return selectors.Requirement(found[1], "In" if found[2] == "in" else "NotIn", values)
    if (found := _TERM.fullmatch(term)) is None:
        raise ExpectedError("a label selector such as pool=x,disk!=hdd")
    if found[1]:
        return selectors.Requirement(found[1], "NotIn" if found[2] == "!=" else "In", (found[3],))
    return selectors.Requirement(found[5], "DoesNotExist" if found[4] else "Exists")


def _checked_selector(text: str) -> str:
    label_selector(text)
    return text


SelectorText = Annotated[str, AfterValidator(_checked_selector)]


class EvictorArgs(Model):
    """DefaultEvictor's. Its protections are written by `podProtections`, or by older fields of their own, not by both."""

    api_version: str = ""
    kind: str = ""
    node_selector: SelectorText = ""
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    evict_failed_bare_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = False
    label_selector: LabelSelector | None = None
    namespace_label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool | None = None
    min_replicas: Count = 0
    min_pod_age: Duration = 0
    pod_protections: PodProtections = PodProtections()
    no_eviction_policy: Literal["Preferred", "Mandatory"] = "Preferred"

    @model_validator(mode="after")
    def _one_way(self) -> EvictorArgs:
        if self.pod_protections.changed and (self._given_up or self._added):
            raise ExpectedError("either podProtections or the older fields that evict and ignore", "podProtections")
        return self

    @property
    def _given_up(self) -> frozenset[str]:
        """Protections that older fields turn off."""
        said: dict[str, bool] = {
            "PodsWithLocalStorage": self.evict_local_storage_pods,
            "DaemonSetPods": self.evict_daemon_set_pods,
            "SystemCriticalPods": self.evict_system_critical_pods,
            "FailedBarePods": self.evict_failed_bare_pods,
        }
        return frozenset(name for name, off in said.items() if off)

    @property
    def _added(self) -> frozenset[str]:
        said = {"PodsWithPVC": self.ignore_pvc_pods, "PodsWithoutPDB": self.ignore_pods_without_pdb}
        return frozenset(name for name, on in said.items() if on)

    def to_domain(self) -> domain.EvictorArgs:
        off = self._given_up | set(self.pod_protections.default_disabled)
        on = self._added | set(self.pod_protections.extra_enabled)
        of_each = self.pod_protections.of_each
        pvc = of_each.PodsWithPVC if of_each else None
        threshold = self.priority_threshold or PriorityThreshold()
        return domain.EvictorArgs(
            self.node_fit,
            label_selector(self.node_selector) if self.node_selector else None,
            (*(p for p in domain.DEFAULT_PROTECTIONS if p not in off), *(p for p in _EXTRA if p in on)),
            tuple(c.name for c in pvc.protected_storage_classes) if pvc else (),
            _selector(self.label_selector),
            _selector(self.namespace_label_selector),
            threshold.value,
            threshold.name,
            self.min_replicas,
            self.min_pod_age // SECOND_NS,
            self.no_eviction_policy,
        )


def evictor_of(args: Mapping[str, Any]) -> domain.EvictorArgs:
    """DefaultEvictor's arguments, in wire form before defaulting. Raises pydantic's ValidationError."""
    return EvictorArgs.model_validate(dict(args)).to_domain()
