"""KubeSchedulerConfiguration v1, read as it is: profiles of plugins and the extenders, with
kube-scheduler's defaults and checks.

What concerns the process of a kube-scheduler (its clients, its lease) is `Carried`. Plugins are
named against those that there are; one that is of Kubernetes and not among ours is refused by its
name. The older shapes are in `kube_policy`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import msgspec
from pydantic import Field, model_validator

from wharfinger.domain.policy import Policy
from wharfinger.domain.scheduler import (
    DEFAULT_SCHEDULER,
    Arguments,
    Extender,
    ManagedResource,
    PluginUse,
    Point,
    Profile,
    SchedulerConfig,
)
from wharfinger.domain.scheduler_plugins import BY_NAME, KnownPlugin
from wharfinger.domain.scheduler_points import ALL, PluginSet, complete, unprepared
from wharfinger.domain.value import canonical
from wharfinger.manifests.crane import Duration
from wharfinger.manifests.errors import Path
from wharfinger.manifests.kubernetes.installed_plugins import METHODS, known_plugins
from wharfinger.manifests.kubernetes.scheduler_args import (
    CONFIGURED,
    AnyPluginConfig,
    Args,
    Percent,
    PluginConfig,
)
from wharfinger.manifests.model import (
    Count,
    ExpectedError,
    Int32,
    Model,
    NotEmpty,
    Resource,
    within,
)

V1 = "kubescheduler.config.k8s.io/v1"
V1BETA3 = "kubescheduler.config.k8s.io/v1beta3"
V1BETA2 = "kubescheduler.config.k8s.io/v1beta2"
V1ALPHA1 = "kubescheduler.config.k8s.io/v1alpha1"
KIND = "KubeSchedulerConfiguration"
NAME = "default"
"""A plane has one configuration, in whichever shape it was written, and the kind has no name of its
own."""

OF_KUBERNETES = (
    "AzureDiskLimits",
    "CinderLimits",
    "DeferredPodScheduling",
    "EBSLimits",
    "GCEPDLimits",
    "NodeDeclaredFeatures",
    "NodeLabel",
    "NodePreferAvoidPods",
    "NodeResourceLimits",
    "NodeResourcesLeastAllocated",
    "NodeResourcesMostAllocated",
    "PodGroupPodsCount",
    "RequestedToCapacityRatio",
    "SelectorSpread",
    "ServiceAffinity",
    "TopologyPlacementGenerator",
)
"""Plugins of some release of Kubernetes that are none of ours. To switch one off is right, and
changes nothing."""

NS_PER_MS = 10**6


class PluginName(Model):
    name: NotEmpty
    weight: Count = 0


class Plugins(Model):
    enabled: list[PluginName] = []
    disabled: list[PluginName] = []

    @property
    def said(self) -> PluginSet:
        return PluginSet(
            tuple(PluginUse(p.name, p.weight) for p in self.enabled),
            tuple(p.name for p in self.disabled),
        )

    def check(self, known: Mapping[str, KnownPlugin], point: Point | None, path: Path) -> None:
        for i, plugin in enumerate(self.enabled):
            here = (*path, "enabled", i, "name")
            there = _plugin(plugin.name, known, here)
            if plugin.name in [p.name for p in self.enabled[:i]]:
                raise ExpectedError("each plugin once", *here)
            if point is not None and point not in (*there.points, *there.elsewhere):
                raise ExpectedError(f"a plugin that works at {point}", *here)
        for i, plugin in enumerate(self.disabled):
            if plugin.name != ALL and plugin.name not in OF_KUBERNETES:
                _plugin(plugin.name, known, (*path, "disabled", i, "name"))


def _plugin(name: str, known: Mapping[str, KnownPlugin], path: Path) -> KnownPlugin:
    if name not in known:
        of_kubernetes = (
            " (a plugin of Kubernetes that is not supported)" if name in OF_KUBERNETES else ""
        )
        raise ExpectedError(f"one of the plugins {', '.join(known)}{of_kubernetes}", *path)
    return known[name]


NOTHING = Plugins()


class Points(Model):
    """A profile's `plugins`."""

    pre_enqueue: Plugins = NOTHING
    queue_sort: Plugins = NOTHING
    pre_filter: Plugins = NOTHING
    filter: Plugins = NOTHING
    post_filter: Plugins = NOTHING
    pre_score: Plugins = NOTHING
    score: Plugins = NOTHING
    reserve: Plugins = NOTHING
    permit: Plugins = NOTHING
    pre_bind: Plugins = NOTHING
    bind: Plugins = NOTHING
    post_bind: Plugins = NOTHING
    multi_point: Plugins = NOTHING

    FIELDS: ClassVar[dict[Point, str]] = METHODS | {"queueSort": "queue_sort"}

    def at(self, point: Point) -> Plugins:
        found: Plugins = getattr(self, self.FIELDS[point])
        return found

    def complete(
        self, known: Mapping[str, KnownPlugin], path: Path
    ) -> dict[Point, tuple[PluginUse, ...]]:
        """Raises ExpectedError."""
        self.multi_point.check(known, None, (*path, "multiPoint"))
        for point in self.FIELDS:
            self.at(point).check(known, point, (*path, point))
        points = complete(
            self.multi_point.said, {point: self.at(point).said for point in self.FIELDS}, known
        )
        if len(points.get("queueSort", ())) != 1:
            names = ", ".join(use.name for use in points.get("queueSort", ())) or "none"
            raise ExpectedError(
                f"one plugin to be left at queueSort (there would be {names})", *path
            )
        if not points.get("bind"):
            raise ExpectedError("a plugin to be left at bind", *path)
        if (lack := unprepared(points, known)) is not None:
            name, point, before = lack
            raise ExpectedError(
                f"{name} at {before}, too, as long as it is at {point}", *path, before
            )
        return points


# Extenders.


class Tls(Model):
    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: object = None
    key_data: object = None
    ca_data: object = None

    @model_validator(mode="after")
    def _names_files(self) -> Tls:
        for data, file in (("certData", "certFile"), ("keyData", "keyFile"), ("caData", "caFile")):
            if getattr(self, file.replace("File", "_data")) is not None:
                raise ExpectedError(f"{file}, for {data} is not supported", data)
        return self


class Managed(Model):
    name: NotEmpty
    ignored_by_scheduler: bool = False


class ExtenderModel(Model):
    """An extender's fields, which the older shape has too (`enable_https` and the time-out are
    spelled another way there)."""

    url_prefix: NotEmpty
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: Int32 = 0
    bind_verb: str = ""
    tls_config: Tls | None = None
    node_cache_capable: bool = False
    managed_resources: list[Managed] = []
    ignorable: bool = False

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if not self.url_prefix.startswith(("http://", "https://")):
            raise ExpectedError("a URL with http:// or https://", "urlPrefix")
        if self.prioritize_verb and self.weight <= 0:
            raise ExpectedError("a weight above 0 for an extender that prioritizes", "weight")
        for i, managed in enumerate(self.managed_resources):
            if "/" not in managed.name:
                raise ExpectedError(
                    "the name of an extended resource, such as example.com/gpu",
                    "managedResources",
                    i,
                    "name",
                )
            if managed.name in [m.name for m in self.managed_resources[:i]]:
                raise ExpectedError("each resource once", "managedResources", i, "name")
        return self

    def domain(self, https: bool, timeout_ms: int) -> Extender:
        """TLS without a certificate authority verifies nothing, as with kube-scheduler."""
        tls = self.tls_config or Tls()
        return Extender(
            self.url_prefix.rstrip("/"),
            self.filter_verb,
            self.prioritize_verb,
            self.preempt_verb,
            self.bind_verb,
            self.weight or 1,
            timeout_ms,
            self.node_cache_capable,
            self.ignorable,
            tuple(ManagedResource(m.name, m.ignored_by_scheduler) for m in self.managed_resources),
            tls.ca_file,
            tls.cert_file,
            tls.key_file,
            tls.insecure or (https and not tls.ca_file),
            tls.server_name,
        )


def check_binders(extenders: Sequence[ExtenderModel]) -> None:
    """At most one extender binds. Raises ExpectedError."""
    binders = [i for i, extender in enumerate(extenders) if extender.bind_verb]
    if len(binders) > 1:
        raise ExpectedError("one extender with a bindVerb", "extenders", binders[1], "bindVerb")


class HttpExtender(ExtenderModel):
    enable_https: bool = Field(False, alias="enableHTTPS")
    http_timeout: Duration = 5 * 10**9

    def to_domain(self) -> Extender:
        return self.domain(self.enable_https, timeout_ms(self.http_timeout))


def timeout_ms(duration_ns: int) -> int:
    """0 is the default, 5 s. Raises ExpectedError."""
    if duration_ns < 0:
        raise ExpectedError("a duration that is not below 0", "httpTimeout")
    return -(-duration_ns // NS_PER_MS) or 5000


# Profiles.


class ProfileModel(Model):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Percent | None = None
    plugins: Points = Points()
    plugin_config: list[AnyPluginConfig] = []

    def to_domain(self, known: Mapping[str, KnownPlugin], path: Path) -> Profile:
        return Profile(
            self.scheduler_name or DEFAULT_SCHEDULER,
            self.plugins.complete(known, (*path, "plugins")),
            arguments(self.plugin_config, known, (*path, "pluginConfig")),
            self.percentage_of_nodes_to_score,
        )


def arguments(
    said: Sequence[PluginConfig], known: Mapping[str, KnownPlugin], path: Path
) -> Arguments:
    """Raises ExpectedError."""
    given: dict[str, Any] = {}
    others: dict[str, str] = {}
    for i, config in enumerate(said):
        _plugin(config.name, known, (*path, i, "name"))
        if config.name in [c.name for c in said[:i]]:
            raise ExpectedError("the arguments of each plugin once", *path, i, "name")
        if config.name in CONFIGURED:
            if isinstance(config.args, Args):
                given[CONFIGURED[config.name][0]] = config.args.to_domain()
        elif config.name in BY_NAME:
            _takes_none(config, (*path, i))
        else:
            others[config.name] = canonical(config.args).decode()
    return Arguments(**given, others=others)


def _takes_none(config: PluginConfig, path: Path) -> None:
    if config.args not in (None, {}):
        raise ExpectedError(f"no arguments of {config.name}", *path, "args")


# The configuration.


class KubeSchedulerConfiguration(
    Resource,
    carried="clientConnection delayCacheUntilActive enableContentionProfiling enableProfiling "
    "leaderElection",
):
    profiles: list[ProfileModel] = []
    extenders: list[HttpExtender] = []
    percentage_of_nodes_to_score: Percent = 0
    parallelism: Annotated[Int32, within(1, 2**31 - 1)] = 16
    pod_initial_backoff_seconds: Annotated[Int32, within(1, 2**31 - 1)] = 1
    pod_max_backoff_seconds: Annotated[Int32, within(1, 2**31 - 1)] = 10

    @model_validator(mode="after")
    def _is_one(self) -> KubeSchedulerConfiguration:
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds:
            raise ExpectedError(
                f"at least podInitialBackoffSeconds ({self.pod_initial_backoff_seconds})",
                "podMaxBackoffSeconds",
            )
        for i, profile in enumerate(self.profiles):
            if not profile.scheduler_name and (
                len(self.profiles) > 1 or profile.scheduler_name == ""
            ):
                raise ExpectedError("a name", "profiles", i, "schedulerName")
            if profile.scheduler_name in [p.scheduler_name for p in self.profiles[:i]]:
                raise ExpectedError("each schedulerName once", "profiles", i, "schedulerName")
        check_binders(self.extenders)
        return self

    @property
    def name(self) -> str:
        return NAME

    def known(self) -> dict[str, KnownPlugin]:
        """The plugins, with their weights in a profile that says nothing of them. Raises
        ExpectedError."""
        return there_are()

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError."""
        known = self.known()
        said = self.profiles or [ProfileModel()]
        extenders = tuple(extender.to_domain() for extender in self.extenders)
        profiles = tuple(
            managed(p.to_domain(known, ("profiles", i)), extenders) for i, p in enumerate(said)
        )
        _sort_alike(profiles)
        return policy_of(
            SchedulerConfig(
                profiles,
                extenders,
                self.percentage_of_nodes_to_score,
                self.pod_initial_backoff_seconds,
                self.pod_max_backoff_seconds,
                self.parallelism,
            ),
            manifest,
        )


class BetaConfiguration(
    KubeSchedulerConfiguration, carried="healthzBindAddress metricsBindAddress"
):
    """v1beta3 and v1beta2, which crane's documents are written in. Up to v1beta2 what people ask
    for weighed no more than resources did."""

    def known(self) -> dict[str, KnownPlugin]:
        plugins = there_are()
        if self.api_version == V1BETA2:
            return {
                name: plugin
                if plugin.weight_v1beta2 is None
                else msgspec.structs.replace(plugin, weight=plugin.weight_v1beta2)
                for name, plugin in plugins.items()
            }
        return plugins


def there_are() -> dict[str, KnownPlugin]:
    """Raises ExpectedError where an installed plugin cannot be had."""
    try:
        return known_plugins()
    except ValueError as error:
        raise ExpectedError(f"installed plugins that can be loaded ({error})") from None


def _sort_alike(profiles: Sequence[Profile]) -> None:
    """All profiles' pods wait in one queue."""
    for i, profile in enumerate(profiles):
        if profile.at("queueSort") != profiles[0].at("queueSort"):
            used = profiles[0].at("queueSort")[0].name
            raise ExpectedError(
                f"the queueSort plugin of the first profile, {used}",
                "profiles",
                i,
                "plugins",
                "queueSort",
            )


def managed(profile: Profile, extenders: Sequence[Extender]) -> Profile:
    """With the resources that extenders account for left out of what must fit."""
    ignored = [
        r.name for extender in extenders for r in extender.resources if r.ignored_by_scheduler
    ]
    fit = profile.arguments.fit
    fit = msgspec.structs.replace(
        fit, ignored_resources=tuple(dict.fromkeys([*fit.ignored_resources, *ignored]))
    )
    return msgspec.structs.replace(
        profile, arguments=msgspec.structs.replace(profile.arguments, fit=fit)
    )


def policy_of(config: SchedulerConfig, manifest: str) -> Policy:
    """One key for all shapes: what is applied last is the configuration."""
    return Policy(KIND, NAME, scheduler=config, manifest=manifest)
