"""The descheduler's policy file, v1alpha2 and v1alpha1: which pods are evicted from which nodes,
and how many at once.

A policy file is no Kubernetes object: it has no name, and a plane has one of them, `default`. For
several (one a cluster, for example), a `metadata` gives each a name; it may also have annotations
of ours. The arguments of the plugins are read in `args`. The older version configures each
strategy by itself, with its evictor: each strategy becomes a profile of its own, as in the
descheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError, model_validator

from wharfinger.domain import descheduling as domain
from wharfinger.domain.policy import Policy
from wharfinger.manifests.descheduler.args import (
    STRATEGIES,
    Args,
    DefaultEvictorArgs,
    SelectorText,
    evictor_of,
    label_selector,
    strategy_of,
)
from wharfinger.manifests.errors import Path
from wharfinger.manifests.model import (
    Count,
    ExpectedError,
    Int,
    Int32,
    Labels,
    Model,
    Name,
    NestedError,
    Resource,
)
from wharfinger.manifests.wharfinger import options

KIND = "DeschedulerPolicy"
V1ALPHA2 = "descheduler/v1alpha2"
V1ALPHA1 = "descheduler/v1alpha1"
NAME = "default"
EVICTOR = "DefaultEvictor"
ALL = "*"
BALANCES = frozenset(model.__struct_config__.tag for model in domain.BALANCES)
SECONDS_MAX = 10**8
PASSES_MAX = 1000

OF_DESCHEDULERS = (
    options.CLUSTERS,
    options.COMPAT,
    options.EVERY_S,
    options.STEADY,
    options.COOLDOWN_S,
    options.RETURN_S,
)


class PolicyMetadata(Model):
    """What the descheduler's own file lacks: a name that distinguishes it, and annotations."""

    name: Name | None = None
    annotations: Labels = {}


class _PolicyFile(Resource):
    metadata: PolicyMetadata = PolicyMetadata()
    node_selector: SelectorText = ""
    max_no_of_pods_to_evict_per_node: Count | None = None
    max_no_of_pods_to_evict_per_namespace: Count | None = None

    @property
    def name(self) -> str:
        return self.metadata.name or NAME

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from super().unacted(path)
        yield from options.unknown(self.metadata.annotations, OF_DESCHEDULERS, path)

    def _policy(
        self, profiles: tuple[domain.DeschedulerProfile, ...], total: int | None, manifest: str
    ) -> Policy:
        """Raises ExpectedError for annotations of ours that say nothing sensible."""
        said, usual = self.metadata.annotations, domain.DeschedulingPolicy()
        every = options.number(said, options.EVERY_S, 1, SECONDS_MAX)
        steady = options.number(said, options.STEADY, 1, PASSES_MAX)
        cooldown = options.number(said, options.COOLDOWN_S, 0, SECONDS_MAX)
        returning = options.number(said, options.RETURN_S, 0, SECONDS_MAX)
        descheduling = domain.DeschedulingPolicy(
            profiles,
            self.max_no_of_pods_to_evict_per_node,
            self.max_no_of_pods_to_evict_per_namespace,
            total,
            usual.every_s if every is None else every,
            options.names(said, options.CLUSTERS),
            options.strict(said),
            usual.steady if steady is None else steady,
            usual.cooldown_s if cooldown is None else cooldown,
            usual.return_s if returning is None else returning,
            label_selector(self.node_selector) if self.node_selector else None,
        )
        return Policy(self.kind, self.name, descheduling=descheduling, manifest=manifest)


# v1alpha2: profiles of plugins.


class PluginConfig(Model):
    """`args`: checked as the plugin called `name` asks; none: its defaults."""

    name: str
    args: Args | DefaultEvictorArgs | None = None

    @model_validator(mode="before")
    @classmethod
    def _args_of_the_plugin(cls, data: object) -> object:
        if not isinstance(data, dict) or not isinstance(name := data.get("name"), str):
            return data
        model = DefaultEvictorArgs if name == EVICTOR else STRATEGIES.get(name)
        if model is None:
            raise ExpectedError(f"one of {', '.join((EVICTOR, *STRATEGIES))}", "name")
        said = data.get("args")
        if said is None:
            return data
        try:
            return {**data, "args": model.model_validate(said)}
        except ValidationError as invalid:
            raise NestedError(invalid, name, model, "args") from None


class PluginSetManifest(Model):
    """`disabled` is about plugins that run by themselves, and of those there is only the
    evictor."""

    enabled: list[str] = []
    disabled: list[str] = []


class Plugins(Model):
    """At `presort`, `sort`, `filter` and `preevictionfilter` there is one plugin, the evictor, and
    it is always there."""

    deschedule: PluginSetManifest = PluginSetManifest()
    balance: PluginSetManifest = PluginSetManifest()
    filter: PluginSetManifest = PluginSetManifest()
    preevictionfilter: PluginSetManifest = PluginSetManifest()
    presort: PluginSetManifest = PluginSetManifest()
    sort: PluginSetManifest = PluginSetManifest()

    @model_validator(mode="after")
    def _stand_where_they_can(self) -> Plugins:
        for point, of_point in (
            ("deschedule", STRATEGIES.keys() - BALANCES),
            ("balance", BALANCES),
        ):
            known = [name for name in STRATEGIES if name in of_point]
            found: PluginSetManifest = getattr(self, point)
            for i, name in enumerate(found.enabled):
                if name not in known:
                    raise ExpectedError(f"one of {', '.join(known)}", point, "enabled", i)
                if name in found.enabled[:i]:
                    raise ExpectedError("each plugin once", point, "enabled", i)
        for point in _EVICTORS:
            for i, name in enumerate(getattr(self, point).enabled):
                if name != EVICTOR:
                    raise ExpectedError(EVICTOR, point, "enabled", i)
        return self

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        for point in _EVICTORS:
            if {EVICTOR, ALL} & set(getattr(self, point).disabled):
                yield (*path, point, "disabled")

    @property
    def enabled(self) -> list[str]:
        return [*self.deschedule.enabled, *self.balance.enabled]


_EVICTORS = ("filter", "preevictionfilter", "presort", "sort")


class ProfileManifest(Model):
    name: str = ""
    plugin_config: list[PluginConfig] = []
    plugins: Plugins = Plugins()

    @model_validator(mode="after")
    def _tells_each_plugin_once(self) -> ProfileManifest:
        names = [config.name for config in self.plugin_config]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise ExpectedError("each plugin once", "pluginConfig", i, "name")
        for point in ("deschedule", "balance"):
            for i, name in enumerate(getattr(self.plugins, point).enabled):
                if name not in names and (missing := _missing(name)):
                    raise ExpectedError(
                        f"{missing} of {name} in pluginConfig", "plugins", point, "enabled", i
                    )
        return self

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """Besides single fields: arguments of a plugin that does not run."""
        yield from super().unacted(path)
        running = {EVICTOR, *self.plugins.enabled}
        for i, config in enumerate(self.plugin_config):
            if config.name not in running:
                yield (*path, "pluginConfig", i)

    def to_domain(self) -> domain.DeschedulerProfile:
        said = {config.name: config.args for config in self.plugin_config}
        evictor = said.get(EVICTOR)
        return domain.DeschedulerProfile(
            self.name,
            evictor.to_domain()
            if isinstance(evictor, DefaultEvictorArgs)
            else domain.EvictorArgs(),
            tuple(_strategy(name, said.get(name)) for name in self.plugins.deschedule.enabled),
            tuple(_strategy(name, said.get(name)) for name in self.plugins.balance.enabled),
        )


def _missing(name: str) -> str:
    """The arguments that a plugin cannot do without; empty: it has defaults for all."""
    try:
        strategy_of(name, {})
    except ValidationError as invalid:
        return str(
            next((part for error in invalid.errors() for part in error["loc"]), "the arguments")
        )
    return ""


def _strategy(name: str, args: Args | DefaultEvictorArgs | None) -> domain.Strategy:
    return args.to_domain() if isinstance(args, Args) else strategy_of(name, {})


def _named_apart(profiles: list[ProfileManifest]) -> list[ProfileManifest]:
    for i, profile in enumerate(profiles):
        if profile.name in [earlier.name for earlier in profiles[:i]]:
            raise ExpectedError("each profile under a name of its own", i, "name")
    return profiles


class DeschedulerPolicy(
    _PolicyFile,
    unacted="gracePeriodSeconds metricsProviders",
    carried="evictionFailureEventNotification metricsCollector",
):
    profiles: Annotated[list[ProfileManifest], AfterValidator(_named_apart)] = []
    max_no_of_pods_to_evict_total: Count | None = None

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError for annotations of ours that say nothing sensible."""
        profiles = tuple(profile.to_domain() for profile in self.profiles)
        return self._policy(profiles, self.max_no_of_pods_to_evict_total, manifest)


# v1alpha1: strategies, each with everything it needs.


class Parameters(Model):
    """Of all strategies together: each reads those that are its own."""

    node_resource_utilization_thresholds: dict[str, Any] = {}
    node_affinity_type: list[str] = []
    pods_having_too_many_restarts: dict[str, Any] = {}
    pod_life_time: dict[str, Any] = {}
    remove_duplicates: dict[str, Any] = {}
    failed_pods: dict[str, Any] = {}
    include_soft_constraints: bool = False
    namespaces: dict[str, Any] | None = None
    threshold_priority: Int32 | None = None
    threshold_priority_class_name: str = ""
    label_selector: dict[str, Any] | None = None
    node_fit: bool = False
    include_prefer_no_schedule: bool = False
    excluded_taints: list[str] = []
    included_taints: list[str] = []


class OldStrategy(Model):
    enabled: bool = False
    weight: Int = 0
    params: Parameters = Parameters()


OLD = tuple(name for name in STRATEGIES if name != "CraneWatermarks")
"""What v1alpha1 knew."""


class OldDeschedulerPolicy(_PolicyFile):
    """v1alpha1. Its strategies are a mapping, and run in order of name."""

    strategies: dict[str, OldStrategy] = {}
    evict_failed_bare_pods: bool = False
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False

    @model_validator(mode="after")
    def _known_strategies(self) -> OldDeschedulerPolicy:
        for name in self.strategies:
            if name not in OLD:
                raise ExpectedError(f"one of {', '.join(OLD)}", "strategies", name)
        return self

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        yield from super().unacted(path)
        for name, strategy in self.strategies.items():
            if strategy.weight:
                yield (*path, "strategies", name, "weight")

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError for parameters and annotations that say nothing sensible."""
        running = {
            name: found.params for name, found in sorted(self.strategies.items()) if found.enabled
        }
        profiles = tuple(self._profile(name, params) for name, params in running.items())
        return self._policy(profiles, None, manifest)

    def _profile(self, name: str, params: Parameters) -> domain.DeschedulerProfile:
        try:
            strategy = strategy_of(name, old_args(name, params))
            evictor = evictor_of(self._evictor(params))
        except ValidationError as invalid:
            raise ExpectedError(_first_of(invalid, name), "strategies", name, "params") from None
        balances = name in BALANCES
        return domain.DeschedulerProfile(
            f"strategy-{name}-profile",
            evictor,
            () if balances else (strategy,),
            (strategy,) if balances else (),
        )

    def _evictor(self, params: Parameters) -> Mapping[str, Any]:
        threshold = {
            "value": params.threshold_priority,
            "name": params.threshold_priority_class_name,
        }
        return {
            "evictLocalStoragePods": self.evict_local_storage_pods,
            "evictSystemCriticalPods": self.evict_system_critical_pods,
            "evictFailedBarePods": self.evict_failed_bare_pods,
            "ignorePvcPods": self.ignore_pvc_pods,
            "nodeFit": params.node_fit,
            "priorityThreshold": {
                key: value for key, value in threshold.items() if value not in (None, "")
            },
        }


def _first_of(invalid: ValidationError, name: str) -> str:
    """What was expected first; the file has it under another name, so its line is that of all
    parameters."""
    first = invalid.errors(include_url=False)[0]
    reason, where = first.get("ctx", {}).get("error"), ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{where} of {name}"
    return (
        f"{reason if isinstance(reason, ExpectedError) else f'what {name} understands'} ({where})"
    )


def old_args(name: str, params: Parameters) -> dict[str, Any]:
    """The arguments of a strategy in the words of v1alpha2."""
    selected = {"namespaces": params.namespaces, "labelSelector": params.label_selector}
    match name:
        case "LowNodeUtilization" | "HighNodeUtilization":
            args = {
                **params.node_resource_utilization_thresholds,
                "evictableNamespaces": params.namespaces,
            }
        case "RemoveDuplicates":
            args = {**params.remove_duplicates, "namespaces": params.namespaces}
        case "RemovePodsHavingTooManyRestarts":
            args = {**params.pods_having_too_many_restarts, **selected}
        case "PodLifeTime":
            args = {
                _LIFE_TIME.get(key, key): value for key, value in params.pod_life_time.items()
            } | selected
        case "RemoveFailedPods":
            args = {**params.failed_pods, **selected}
        case "RemovePodsViolatingNodeAffinity":
            args = {"nodeAffinityType": params.node_affinity_type, **selected}
        case "RemovePodsViolatingNodeTaints":
            args = {
                "includePreferNoSchedule": params.include_prefer_no_schedule,
                "excludedTaints": params.excluded_taints,
                "includedTaints": params.included_taints,
                **selected,
            }
        case "RemovePodsViolatingTopologySpreadConstraint":
            soft = (
                ["DoNotSchedule", "ScheduleAnyway"]
                if params.include_soft_constraints
                else ["DoNotSchedule"]
            )
            args = {"constraints": soft, **selected}
        case _:
            args = selected
    return {key: value for key, value in args.items() if value is not None}


_LIFE_TIME = {"podStatusPhases": "states"}
"""What v1alpha1 called otherwise."""
