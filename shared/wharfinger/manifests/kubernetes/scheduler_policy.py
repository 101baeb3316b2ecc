"""The older ways to configure kube-scheduler, up to Kubernetes 1.22: a Policy file of predicates
and priorities, and algorithm providers, named sets of them. Both become one profile of today's
plugins.

Predicates are today's filters and priorities are scores. A priority scored 0..10 and a plugin
scores 0..100, so the weights keep their relation. The entry of each plugin lists its older names
(`domain.scheduler_plugins`). A name whose rule no plugin has is refused, not left out: its author
relied on that rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import msgspec
from pydantic import Field, model_validator

from wharfinger.domain.policy import Policy
from wharfinger.domain.scheduler import (
    DEFAULT_SCHEDULER,
    Arguments,
    Extender,
    FitArgs,
    InterPodArgs,
    NodeAffinityArgs,
    PluginUse,
    Point,
    Profile,
    SchedulerConfig,
    ScoringType,
    WeightedResource,
)
from wharfinger.domain.scheduler_plugins import BUILT_IN, KnownPlugin
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.manifests.errors import Path
from wharfinger.manifests.kubernetes.scheduler import (
    NAME,
    ExtenderModel,
    Points,
    arguments,
    check_binders,
    managed,
    policy_of,
    there_are,
    timeout_ms,
)
from wharfinger.manifests.kubernetes.scheduler_args import AnyPluginConfig, Percent, Shape
from wharfinger.manifests.model import ExpectedError, Int, Int32, Model, NotEmpty, Resource, within


def _became(old: Callable[[KnownPlugin], tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Name of a predicate or priority -> the plugins that it became, in order of the list."""
    found: dict[str, tuple[str, ...]] = {}
    for plugin in BUILT_IN:
        for name in old(plugin):
            found[name] = (*found.get(name, ()), plugin.name)
    return found


PREDICATES = _became(lambda plugin: plugin.predicates)
"""What a predicate became. One with `labelsPresence` in its argument may have any name
(`_label_term`)."""

MANDATORY = tuple(plugin.name for plugin in BUILT_IN if plugin.always)
"""Filters that no Policy could switch off."""

PRIORITIES = {name: plugin for name, (plugin,) in _became(lambda plugin: plugin.priorities).items()}
PRIORITIES["EqualPriority"] = ""  # all nodes alike: nothing
"""What a priority became."""

STRATEGIES: dict[str, ScoringType] = {
    "LeastRequestedPriority": "LeastAllocated",
    "MostRequestedPriority": "MostAllocated",
    "RequestedToCapacityRatioPriority": "RequestedToCapacityRatio",
}

DEFAULT_PREDICATES = (
    "NoVolumeZoneConflict",
    "MaxEBSVolumeCount",
    "MaxGCEPDVolumeCount",
    "MaxAzureDiskVolumeCount",
    "MaxCSIVolumeCountPred",
    "MatchInterPodAffinity",
    "NoDiskConflict",
    "GeneralPredicates",
    "CheckNodeUnschedulable",
    "PodToleratesNodeTaints",
    "CheckVolumeBinding",
    "EvenPodsSpread",
)
DEFAULT_PRIORITIES = (
    "SelectorSpreadPriority",
    "InterPodAffinityPriority",
    "LeastRequestedPriority",
    "BalancedResourceAllocation",
    "NodeAffinityPriority",
    "TaintTolerationPriority",
    "ImageLocalityPriority",
)
"""Those of the provider, each with weight 1. It had one more, NodePreferAvoidPodsPriority, by an
annotation that Kubernetes has let go."""

Provider = Literal["DefaultProvider", "ClusterAutoscalerProvider"]

Weight = Annotated[Int, within(1, 2**31 - 1)]


# As it is written.


class LabelsPresence(Model):
    labels: list[NotEmpty]
    presence: bool = False


class PredicateArgument(Model):
    service_affinity: object = None
    labels_presence: LabelsPresence | None = None

    @model_validator(mode="after")
    def _has_a_plugin(self) -> PredicateArgument:
        if self.service_affinity is not None:
            raise ExpectedError(
                "labelsPresence (serviceAffinity is not supported)", "serviceAffinity"
            )
        if self.labels_presence is None:
            raise ExpectedError("labelsPresence", "labelsPresence")
        return self


class PolicyPredicate(Model):
    name: NotEmpty
    argument: PredicateArgument | None = None


class RatioResource(Model):
    name: NotEmpty
    weight: Annotated[Int, within(0, 100)] = 0


class RatioArguments(Model):
    shape: Shape
    resources: list[RatioResource] = []


class PriorityArgument(Model):
    service_anti_affinity: object = None
    label_preference: object = None
    requested_to_capacity_ratio_arguments: RatioArguments | None = None

    @model_validator(mode="after")
    def _has_a_plugin(self) -> PriorityArgument:
        for name, said in (
            ("serviceAntiAffinity", self.service_anti_affinity),
            ("labelPreference", self.label_preference),
        ):
            if said is not None:
                raise ExpectedError(
                    f"requestedToCapacityRatioArguments ({name} is not supported)", name
                )
        if self.requested_to_capacity_ratio_arguments is None:
            raise ExpectedError(
                "requestedToCapacityRatioArguments", "requestedToCapacityRatioArguments"
            )
        return self


class PolicyPriority(Model):
    name: NotEmpty
    weight: Weight
    argument: PriorityArgument | None = None


class LegacyExtender(ExtenderModel):
    """`http_timeout` in nanoseconds."""

    enable_https: bool = Field(False, alias="enableHttps")
    http_timeout: Int = 0

    def to_domain(self) -> Extender:
        return self.domain(self.enable_https, timeout_ms(self.http_timeout))


class PolicyFile(Resource, carried="alwaysCheckAllPredicates"):
    """`kind: Policy`. Without predicates, or without priorities, the provider's are meant; an empty
    list means none."""

    predicates: list[PolicyPredicate] | None = None
    priorities: list[PolicyPriority] | None = None
    extenders: list[LegacyExtender] = []
    hard_pod_affinity_symmetric_weight: Percent = 1

    @model_validator(mode="after")
    def _one_binds(self) -> PolicyFile:
        check_binders(self.extenders)
        return self

    @property
    def name(self) -> str:
        return NAME

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError."""
        predicates = _named(DEFAULT_PREDICATES) if self.predicates is None else self.predicates
        priorities = _weighing(DEFAULT_PRIORITIES) if self.priorities is None else self.priorities
        profile = _profile(
            DEFAULT_SCHEDULER, predicates, priorities, self.hard_pod_affinity_symmetric_weight
        )
        extenders = tuple(extender.to_domain() for extender in self.extenders)
        return policy_of(SchedulerConfig((managed(profile, extenders),), extenders), manifest)


class PolicySource(Model, carried="file configMap"):
    """The file or config map that a Policy lay in."""


class AlgorithmSource(Model):
    provider: Provider | None = None
    policy: PolicySource | None = None

    @model_validator(mode="after")
    def _is_read(self) -> AlgorithmSource:
        if self.policy is not None:
            raise ExpectedError(
                "a provider: a Policy is applied as a manifest of its own", "policy"
            )
        return self


class ProviderConfiguration(
    Resource,
    carried="bindTimeoutSeconds clientConnection enableContentionProfiling enableProfiling "
    "healthzBindAddress leaderElection metricsBindAddress",
):
    """KubeSchedulerConfiguration v1alpha1: one profile, by an algorithm provider, and plugins
    beside it."""

    scheduler_name: NotEmpty = DEFAULT_SCHEDULER
    algorithm_source: AlgorithmSource = AlgorithmSource()
    hard_pod_affinity_symmetric_weight: Percent = 1
    percentage_of_nodes_to_score: Percent = 0
    disable_preemption: bool = False
    plugins: Points | None = None
    plugin_config: list[AnyPluginConfig] = []
    pod_initial_backoff_seconds: Annotated[Int32, within(1, 2**31 - 1)] = 1
    pod_max_backoff_seconds: Annotated[Int32, within(1, 2**31 - 1)] = 10

    @property
    def name(self) -> str:
        return NAME

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError."""
        if self.plugins is not None:
            raise ExpectedError(
                "no plugins beside an algorithm provider; a configuration of v1 has both", "plugins"
            )
        profile = provider_profile(
            self.algorithm_source.provider or "DefaultProvider", self.scheduler_name
        )
        profile = msgspec.structs.replace(profile, arguments=self._arguments(profile.arguments))
        if self.disable_preemption:
            points = {
                point: uses for point, uses in profile.points.items() if point != "postFilter"
            }
            profile = msgspec.structs.replace(profile, points=points)
        config = SchedulerConfig(
            (profile,),
            percentage=self.percentage_of_nodes_to_score,
            initial_backoff_s=self.pod_initial_backoff_seconds,
            max_backoff_s=self.pod_max_backoff_seconds,
        )
        return policy_of(config, manifest)

    def _arguments(self, of_provider: Arguments) -> Arguments:
        said = arguments(self.plugin_config, there_are(), ("pluginConfig",))
        fit = of_provider.fit if said.fit == FitArgs() else said.fit
        inter_pod = said.inter_pod if said.inter_pod != InterPodArgs() else self._hard_weight
        return msgspec.structs.replace(said, fit=fit, inter_pod=inter_pod)

    @property
    def _hard_weight(self) -> InterPodArgs:
        return InterPodArgs(self.hard_pod_affinity_symmetric_weight)


def provider_profile(provider: Provider, name: str = DEFAULT_SCHEDULER) -> Profile:
    """A provider as a profile. ClusterAutoscalerProvider fills nodes up where the default one
    spreads over them."""
    least, most = "LeastRequestedPriority", "MostRequestedPriority"
    full = provider == "ClusterAutoscalerProvider"
    priorities = [most if full and p == least else p for p in DEFAULT_PRIORITIES]
    return _profile(name, _named(DEFAULT_PREDICATES), _weighing(priorities), 1)


def _named(names: Iterable[str]) -> list[PolicyPredicate]:
    return [PolicyPredicate(name=name) for name in names]


def _weighing(names: Iterable[str]) -> list[PolicyPriority]:
    return [PolicyPriority(name=name, weight=1) for name in names]


# As a profile.


def _profile(
    name: str, predicates: list[PolicyPredicate], priorities: list[PolicyPriority], hard_weight: int
) -> Profile:
    filters = {
        plugin
        for i, predicate in enumerate(predicates)
        for plugin in _filters(predicate, ("predicates", i))
    }
    filters |= {*MANDATORY, *_OURS}
    scores = _scores(priorities)
    points: dict[Point, tuple[PluginUse, ...]] = {}
    for plugin in BUILT_IN:
        for point in plugin.points:
            if point == "score":
                weight = scores.get(plugin.name) or (plugin.weight if plugin.name in _OURS else 0)
                uses: tuple[PluginUse, ...] = (PluginUse(plugin.name, weight),) if weight else ()
            elif point == "preScore":
                uses = (
                    (PluginUse(plugin.name),)
                    if plugin.name in scores or plugin.name in _OURS
                    else ()
                )
            elif point in ("preFilter", "filter"):
                uses = (PluginUse(plugin.name),) if plugin.name in filters else ()
            else:  # a Policy had nothing to say about the queue, preemption and binding
                uses = (PluginUse(plugin.name),)
            points[point] = (*points.get(point, ()), *uses)
    terms = [
        _label_term(p.argument.labels_presence)
        for p in predicates
        if p.argument and p.argument.labels_presence
    ]
    added = NodeTerm(tuple(requirement for term in terms for requirement in term))
    return Profile(
        name,
        {point: uses for point, uses in points.items() if uses},
        Arguments(
            fit=_fit(priorities),
            inter_pod=InterPodArgs(hard_weight),
            node_affinity=NodeAffinityArgs((added,) if terms else None),
        ),
    )


_OURS = tuple(plugin.name for plugin in BUILT_IN if plugin.ours)
"""Stand in every profile that does not know how to name them: without devices and measured load
they say nothing."""


def _filters(predicate: PolicyPredicate, path: Path) -> tuple[str, ...]:
    """The plugins of a predicate. Raises ExpectedError."""
    if predicate.argument is not None:
        return PREDICATES["MatchNodeSelector"]  # labels of nodes, too
    if predicate.name not in PREDICATES:
        raise ExpectedError(f"one of the predicates {', '.join(PREDICATES)}", *path, "name")
    return PREDICATES[predicate.name]


def _label_term(presence: LabelsPresence) -> tuple[Requirement, ...]:
    """Nodes that have all of the labels, or none of them: what a profile may add to the affinity of
    every pod."""
    operator: Literal["Exists", "DoesNotExist"] = "Exists" if presence.presence else "DoesNotExist"
    return tuple(Requirement(label, operator) for label in presence.labels)


def _scores(priorities: list[PolicyPriority]) -> dict[str, int]:
    """Plugin -> weight; where two priorities became one plugin, their sum. Raises ExpectedError."""
    weights: dict[str, int] = {}
    strategy = ""
    for i, priority in enumerate(priorities):
        name = (
            "RequestedToCapacityRatioPriority" if priority.argument is not None else priority.name
        )
        path = ("priorities", i, "name")
        if name not in PRIORITIES:
            raise ExpectedError(f"one of the priorities {', '.join(PRIORITIES)}", *path)
        if name == "RequestedToCapacityRatioPriority" and priority.argument is None:
            raise ExpectedError("requestedToCapacityRatioArguments", "priorities", i, "argument")
        if name in STRATEGIES:
            if strategy:
                raise ExpectedError(
                    f"one priority of requested resources ({strategy} is another)", *path
                )
            strategy = name
        if plugin := PRIORITIES[name]:
            weights[plugin] = weights.get(plugin, 0) + priority.weight
    return weights


def _fit(priorities: list[PolicyPriority]) -> FitArgs:
    """How requested resources are scored; cpu and memory, unless a priority has its own."""
    for priority in priorities:
        if priority.argument is not None and (
            ratio := priority.argument.requested_to_capacity_ratio_arguments
        ):
            resources = tuple(WeightedResource(r.name, r.weight or 1) for r in ratio.resources)
            shape = tuple(point.to_domain() for point in ratio.shape)
            return FitArgs("RequestedToCapacityRatio", resources or FitArgs().resources, shape)
        if priority.name in STRATEGIES:
            return FitArgs(STRATEGIES[priority.name])
    return FitArgs()
