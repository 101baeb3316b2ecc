"""The arguments of each of the descheduler's plugins as `pluginConfig` spells them, with its
checks.

Which arguments a plugin has, with types and defaults, is stated once, in `domain.descheduling`; the
models here are derived from it and add what only YAML has: names and narrower types. `strategy_of`
and `evictor_of` read one plugin's arguments; the policy that holds them is `policy`.
`CraneWatermarksArgs` is not the descheduler's but ours: crane's limits, as a reason to move what is
on a node already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Protocol, cast, runtime_checkable

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from wharfinger.domain import descheduling as domain
from wharfinger.domain import selectors
from wharfinger.domain.value import Value
from wharfinger.manifests.crane import SECOND_NS, Duration
from wharfinger.manifests.model import Count, ExpectedError, Int32, Model, NotEmpty, within
from wharfinger.manifests.selectors import LabelSelectorManifest

SYSTEM_CRITICAL = 2_000_000_000
"""The priority from which on pods are critical to the system (Kubernetes)."""

POD_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
POD_REASONS = ("NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError")
WAITING = (
    "PodInitializing",
    "ContainerCreating",
    "ImagePullBackOff",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "CreateContainerError",
    "InvalidImageName",
)
ENDED = (
    "OOMKilled",
    "Error",
    "Completed",
    "DeadlineExceeded",
    "Evicted",
    "ContainerCannotRun",
    "StartError",
    "ContainerStatusUnknown",
)
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
    """The arguments of one plugin. They may be written with the type of the arguments.

    `value`, the domain's value of the plugin, states which there are, their types and defaults;
    `_args` derives the fields from it. `check` refuses values whose arguments do not go together:
    it raises ExpectedError with the name of one, as YAML spells it."""

    api_version: str = ""
    kind: str = ""

    value: ClassVar[type[Value]]
    check: ClassVar[Callable[[Any], None]]

    def to_domain(self) -> domain.Strategy:
        """What is not written has the default of the value."""
        given: dict[str, object] = {}
        for name in sorted(self.model_fields_set - Args.model_fields.keys()):
            field = getattr(self, name)
            given |= field.fields() if isinstance(field, Several) else {name: _plain(field)}
        return cast(domain.Strategy, self.value(**given))

    @model_validator(mode="after")
    def _go_together(self) -> Args:
        type(self).check(self.to_domain())
        return self


@runtime_checkable
class Several(Protocol):
    """A written field that is several fields of the value."""

    def fields(self) -> dict[str, object]: ...


class _Meaning(Protocol):
    def to_domain(self) -> object: ...


def _plain(field: object) -> object:
    """A written field as the domain has it."""
    match field:
        case Model():
            return cast(_Meaning, field).to_domain()
        case list():
            return tuple(_plain(item) for item in field)
        case _:
            return field


# The types of fields.


class _Included(Model):
    include: list[NotEmpty] = []
    exclude: list[NotEmpty] = []

    @model_validator(mode="after")
    def _one_of_both(self) -> _Included:
        if self.include and self.exclude:
            raise ExpectedError("either include or exclude", "include")
        return self


class NamespacesArgs(_Included):
    def to_domain(self) -> domain.Namespaces:
        return domain.Namespaces(tuple(self.include), tuple(self.exclude))


class OwnerKindsArgs(_Included):
    def to_domain(self) -> domain.OwnerKinds:
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

    def to_domain(self) -> tuple[str, ...]:
        return tuple(self.exclude)


class EvictionLimits(Model):
    node: Count | None = None

    def to_domain(self) -> int | None:
        return self.node


class PrometheusArgs(Model):
    query: str = ""


class MetricsUtilization(Model):
    """`metricsServer`: how KubernetesMetrics was said before there was another source."""

    source: Literal["KubernetesMetrics", "Prometheus", ""] = ""
    metrics_server: bool = False
    prometheus: PrometheusArgs | None = None

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

    def fields(self) -> dict[str, object]:
        query = self.prometheus.query if self.prometheus else ""
        return {"source": self.source or "KubernetesMetrics", "query": query}


@dataclass(frozen=True)
class Constraints:
    """`whenUnsatisfiable` of the constraints that count; without any, those that are hard."""

    said: list[str]

    def fields(self) -> dict[str, object]:
        hard = "DoNotSchedule" in self.said or not self.said
        return {"hard": hard, "soft": "ScheduleAnyway" in self.said}


class WatermarkArgs(Model):
    """Percent of the whole."""

    metric: NotEmpty
    high: Percent
    low: Percent

    def to_domain(self) -> domain.Watermark:
        return domain.Watermark(self.metric, round(self.high * 1000), round(self.low * 1000))


def _below_the_high_one(mark: WatermarkArgs) -> WatermarkArgs:
    if mark.low >= mark.high:
        raise ExpectedError(f"less than the high one, {mark.high:g}", "low")
    return mark


class ConditionFilterArgs(Model):
    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: Seconds | None = None

    @model_validator(mode="after")
    def _asks_something(self) -> ConditionFilterArgs:
        if self.to_domain() == domain.ConditionFilter():
            raise ExpectedError("a type, status, reason or minTimeSinceLastTransitionSeconds")
        return self

    def to_domain(self) -> domain.ConditionFilter:
        return domain.ConditionFilter(
            self.type, self.status, self.reason, self.min_time_since_last_transition_seconds
        )


_WRITTEN: dict[object, object] = {
    bool: bool,
    str: str,
    int: Int32,
    int | None: Count | None,
    dict[str, float]: Thresholds,
    tuple[str, ...]: list[NotEmpty],
    tuple[str, ...] | None: list[NotEmpty] | None,
    tuple[int, ...]: list[Int32],
    domain.Namespaces: NamespacesArgs,
    domain.OwnerKinds: OwnerKindsArgs,
    selectors.LabelSelector | None: LabelSelectorManifest | None,
}
"""By the type of a value's field how it is written."""


# The plugins.


def _any(value: domain.Strategy) -> None:
    """Arguments that always go together."""


def _args(
    value: type[Value],
    names: Mapping[str, str] = MappingProxyType({}),
    check: Callable[[Any], None] = _any,
    unacted: str = "",
    without: Sequence[str] = (),
    **kinds: Any,
) -> type[Args]:
    """The arguments of a plugin, derived from its value. `names`: what YAML calls a field that the
    value calls otherwise. `kinds`: the type of a written field where that of the value does not say
    it, and of those that are `Several`, which stand for the fields `without`."""
    derived: dict[str, Any] = {}
    for field in msgspec.structs.fields(value):
        if field.name not in without:
            kind = kinds.pop(field.name, None) or _WRITTEN[field.type]
            default = ... if field.required else None
            derived[field.name] = (kind, Field(default, alias=names.get(field.name)))
    derived |= {name: (kind, None) for name, kind in kinds.items()}
    model = create_model(
        f"{value.__name__}Args", __base__=Args, __cls_kwargs__={"unacted": unacted}, **derived
    )
    model.value, model.check = value, staticmethod(check)
    return model


def _fit_each_other(said: domain.LowNodeUtilization) -> None:
    if said.thresholds.keys() != said.targets.keys():
        raise ExpectedError(
            f"the resources of thresholds: {', '.join(said.thresholds)}", "targetThresholds"
        )
    for name, low in said.thresholds.items():
        if low > said.targets[name] and not said.deviation:
            raise ExpectedError(f"at most {said.targets[name]:g}, its target", "thresholds", name)
    if said.source == "Prometheus" and list(said.thresholds) != [domain.METRIC_RESOURCE]:
        raise ExpectedError(f"{domain.METRIC_RESOURCE} alone, since usage is a query", "thresholds")


def _one_list(said: domain.NodeTaints) -> None:
    if said.excluded and said.included:
        raise ExpectedError("either includedTaints or excludedTaints", "includedTaints")


def _some_type(said: domain.NodeAffinity) -> None:
    """A type that is not known is one of a later Kubernetes and does nothing, as there."""
    if not said.types:
        raise ExpectedError(
            "requiredDuringSchedulingIgnoredDuringExecution or another", "nodeAffinityType"
        )


def _some_criterion(said: domain.PodLifeTime) -> None:
    if said.max_s is None and not (said.states or said.conditions or said.exit_codes):
        raise ExpectedError("maxPodLifeTimeSeconds, states, conditions or exitCodes")


_EXCLUDED = {"excluded": "evictableNamespaces"}
_LIMITED = {"per_node": "evictionLimits"}
_INIT = {"init_containers": "includingInitContainers"}

STRATEGIES: dict[str, type[Args]] = {
    str(args.value.__struct_config__.tag): args
    for args in (
        _args(
            domain.NodeTaints,
            {
                "prefer": "includePreferNoSchedule",
                "excluded": "excludedTaints",
                "included": "includedTaints",
            },
            _one_list,
        ),
        _args(domain.NodeAffinity, {"types": "nodeAffinityType"}, _some_type, types=list[str]),
        _args(domain.InterPodAntiAffinity),
        _args(
            domain.PodLifeTime,
            {"max_s": "maxPodLifeTimeSeconds"} | _INIT,
            _some_criterion,
            # what is known of a pod has none of these
            unacted="includingEphemeralContainers",
            states=Annotated[list[str], one_of(*STATES)],
            conditions=list[ConditionFilterArgs],
        ),
        _args(
            domain.RemoveFailedPods,
            {"min_age_s": "minPodLifetimeSeconds", "excluded_owner_kinds": "excludeOwnerKinds"}
            | _INIT,
        ),
        _args(
            domain.TooManyRestarts,
            {"threshold": "podRestartThreshold"} | _INIT,
            threshold=Annotated[Int32, within(1, 2**31 - 1)],
            states=Annotated[list[str], one_of(*RESTARTING)],
        ),
        _args(domain.RemoveDuplicates, {"excluded_owner_kinds": "excludeOwnerKinds"}),
        _args(
            domain.TopologySpread,
            {"node_fit": "topologyBalanceNodeFit"},
            without=("hard", "soft"),
            constraints=Annotated[
                list[str], one_of("DoNotSchedule", "ScheduleAnyway"), AfterValidator(Constraints)
            ],
        ),
        _args(
            domain.LowNodeUtilization,
            {"targets": "targetThresholds", "deviation": "useDeviationThresholds"}
            | _EXCLUDED
            | _LIMITED,
            _fit_each_other,
            without=("source", "query"),
            excluded=Evictable,
            per_node=EvictionLimits,
            metrics_utilization=MetricsUtilization,
        ),
        _args(
            domain.HighNodeUtilization,
            {"only_thresholding": "evictionModes"} | _EXCLUDED,
            excluded=Evictable,
            only_thresholding=Annotated[
                list[str], one_of("OnlyThresholdingResources"), AfterValidator(bool)
            ],
        ),
        _args(
            domain.CraneWatermarks,
            _LIMITED,
            watermarks=list[Annotated[WatermarkArgs, AfterValidator(_below_the_high_one)]],
            samples=Annotated[Int32, within(1, 1000)],
            per_node=EvictionLimits,
        ),
    )
}
"""By the name of the plugin."""


def strategy_of(name: str, args: Mapping[str, Any]) -> domain.Strategy:
    """One plugin with its arguments, in wire form before defaulting. Raises ExpectedError for a
    name that is not known, and pydantic's ValidationError for arguments that are wrong."""
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
    default_disabled: Annotated[
        list[str], one_of(*domain.DEFAULT_PROTECTIONS), AfterValidator(_once)
    ] = []
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
    return selectors.LabelSelector(
        {}, tuple(_requirement(term) for term in _COMMA.split(text) if text.strip())
    )


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


def _selector(selector: LabelSelectorManifest | None) -> selectors.LabelSelector | None:
    return None if selector is None else selector.to_domain()


SelectorText = Annotated[str, AfterValidator(_checked_selector)]


class DefaultEvictorArgs(Model):
    """DefaultEvictor's. Its protections are written by `podProtections`, or by older fields of
    their own, not by both."""

    api_version: str = ""
    kind: str = ""
    node_selector: SelectorText = ""
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    evict_failed_bare_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = False
    label_selector: LabelSelectorManifest | None = None
    namespace_label_selector: LabelSelectorManifest | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool | None = None
    min_replicas: Count = 0
    min_pod_age: Duration = 0
    pod_protections: PodProtections = PodProtections()
    no_eviction_policy: Literal["Preferred", "Mandatory"] = "Preferred"

    @model_validator(mode="after")
    def _one_way(self) -> DefaultEvictorArgs:
        if self.pod_protections.changed and (self._given_up or self._added):
            raise ExpectedError(
                "either podProtections or the older fields that evict and ignore", "podProtections"
            )
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
            (
                *(p for p in domain.DEFAULT_PROTECTIONS if p not in off),
                *(p for p in _EXTRA if p in on),
            ),
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
    """DefaultEvictor's arguments, in wire form before defaulting. Raises pydantic's
    ValidationError."""
    return DefaultEvictorArgs.model_validate(dict(args)).to_domain()
