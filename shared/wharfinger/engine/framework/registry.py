"""The plugin registry: name -> plugin class, instantiated with the arguments of a profile.

The built-in names are those of `domain.scheduler_plugins`. Each is a class in a module of its own,
imported only when a profile uses it: plugins that filter or score nodes are under
`wharfinger.rules.nodes`, the others under `plugins`. The engine refers to rules only by these
names, and to plugins of other distributions only by their entry points.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module

from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.scheduler_plugins import BUILT_IN, KnownPlugin
from wharfinger.engine.framework.protocols import Plugin
from wharfinger.manifests.kubernetes.installed_plugins import installed, plugin_class

Factory = Callable[[Arguments], Plugin]

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def module_of(name: str) -> str:
    """Convert a plugin name to the name of its module: SchedulingGates -> scheduling_gates."""
    return _WORD.sub("_", name).lower()


RULES = "wharfinger.rules.nodes"


def _ours(known: KnownPlugin) -> Factory:
    package = RULES if known.chooses_nodes else f"{__package__}.plugins"

    def made(arguments: Arguments) -> Plugin:
        module = import_module(f"{package}.{module_of(known.name)}")
        plugin: Plugin = getattr(module, known.name)(arguments)
        return plugin

    return made


def _theirs(name: str) -> Factory:
    def made(arguments: Arguments) -> Plugin:
        plugin: Plugin = plugin_class(name)(arguments)
        return plugin

    return made


PLUGINS: dict[str, Factory] = {plugin.name: _ours(plugin) for plugin in BUILT_IN}
"""The built-in plugins, in the order of the default profile."""


def registry() -> dict[str, Factory]:
    """Return all plugins by name: the built-in ones and those installed as entry points. Raise
    ValueError where an installed plugin has the name of a built-in one."""
    return PLUGINS | {name: _theirs(name) for name in installed()}
