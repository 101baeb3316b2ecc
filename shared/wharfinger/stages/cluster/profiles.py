"""The scheduler profile of a pod: from the applied scheduler configurations, or the default.

Scheduler configurations are policies and apply to every cluster. If two have a profile of the same
name, the configuration whose key comes first wins. `default-scheduler` always exists: where no
configuration defines it, the settings do, so that a configuration for some workloads does not leave
the others without a scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.scheduler import DEFAULT_SCHEDULER, Extender, Profile, SchedulerConfig
from wharfinger.engine.framework.cycle import Framework
from wharfinger.engine.framework.profile import framework
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.engine.nodes.place import Placer


@dataclass(slots=True)
class Profiles:
    """Finds the scheduler profile, placer and framework for a scheduler name. `configs`: policy key
    -> scheduler configuration. `snapshot`: builds the cluster as the framework sees it, for plugins
    that are evaluated node by node. Placers and frameworks are built on demand and cached."""

    table: NodeTable
    default: Profile
    snapshot: Callable[[], Snapshot] | None = None
    configs: dict[str, SchedulerConfig] = field(default_factory=dict)
    _named: dict[str, Profile] | None = None
    _placers: dict[str, Placer] = field(default_factory=dict)
    _frameworks: dict[str, Framework] = field(default_factory=dict)

    def applied(self, key: str, config: SchedulerConfig | None) -> bool:
        """Stores the scheduler configuration `config` of the policy with the key `key`, or removes
        the stored one. `config`: None if the policy was removed or has no scheduler configuration.
        Returns whether the stored configuration changed."""
        if self.configs.get(key) == config:
            return False
        if config is None:
            del self.configs[key]
        else:
            self.configs[key] = config
        self._named = None
        self._placers.clear()
        self._frameworks.clear()
        return True

    @property
    def named(self) -> Mapping[str, Profile]:
        if self._named is None:
            found: dict[str, Profile] = {}
            for _, config in sorted(self.configs.items()):
                for profile in config.profiles:
                    found.setdefault(profile.name, profile)
            found.setdefault(DEFAULT_SCHEDULER, self.default)
            self._named = found
        return self._named

    def profile(self, name: str) -> Profile | None:
        """Returns the scheduler profile with this name; None if there is none. An empty name means
        the default profile."""
        return self.named.get(name or DEFAULT_SCHEDULER)

    def extenders(self, name: str) -> tuple[Extender, ...]:
        """Returns the extenders of the configuration that defines this profile. A profile that
        comes from the settings has no extenders."""
        name = name or DEFAULT_SCHEDULER
        configs = (config for _, config in sorted(self.configs.items()))
        return next((c.extenders for c in configs if any(p.name == name for p in c.profiles)), ())

    def placer(self, name: str) -> Placer | None:
        name = name or DEFAULT_SCHEDULER
        placer = self._placers.get(name)
        if placer is None and (profile := self.profile(name)) is not None:
            placer = self._placers[name] = Placer(self.table, profile, self.snapshot)
        return placer

    def framework(self, name: str) -> Framework:
        """Returns the framework of the profile with this name, built on the first call. Raises
        KeyError if no profile has the name."""
        name = name or DEFAULT_SCHEDULER
        made = self._frameworks.get(name)
        if made is None:
            made = self._frameworks[name] = framework(self.named[name])
        return made
