"""Which scheduler profile a pod is placed by: those of the configurations that were applied, and the default one.

Scheduler configurations are policies and told to every cluster. Of two profiles of one name that of the configuration whose key
comes first holds. `default-scheduler` is always there: where no configuration names it, it is what the settings say, so that a
configuration for some workloads does not leave all others without a scheduler.
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
    """`configs`: policy key -> configuration. `snapshot`: the cluster as the framework sees it, for what is asked of plugins node
    by node. Placers and frameworks are caches: made when first asked for."""

    table: NodeTable
    default: Profile
    snapshot: Callable[[], Snapshot] | None = None
    configs: dict[str, SchedulerConfig] = field(default_factory=dict)
    _named: dict[str, Profile] | None = None
    _placers: dict[str, Placer] = field(default_factory=dict)
    _frameworks: dict[str, Framework] = field(default_factory=dict)

    def applied(self, key: str, config: SchedulerConfig | None) -> bool:
        """None: the policy is gone, or says nothing of this. False: nothing changed."""
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
        """Empty: the default one."""
        return self.named.get(name or DEFAULT_SCHEDULER)

    def extenders(self, name: str) -> tuple[Extender, ...]:
        """Of the configuration whose profile this is; none of the one that the settings make."""
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
        """KeyError: no profile has the name."""
        name = name or DEFAULT_SCHEDULER
        made = self._frameworks.get(name)
        if made is None:
            made = self._frameworks[name] = framework(self.named[name])
        return made
