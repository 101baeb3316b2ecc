"""Name -> plugin: every plugin that a profile may name, made from the arguments of its profile.

Ours are those of `domain.scheduler_plugins`, each a class of its name in a module of its name under `plugins`, which is only
imported when a profile uses it. Those of other distributions come by entry points.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module

from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.scheduler_plugins import BUILT_IN
from wharfinger.engine.framework.protocols import Plugin
from wharfinger.manifests.installed_plugins import installed, plugin_class

Factory = Callable[[Arguments], Plugin]

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def module_of(name: str) -> str:
    """NodeResourcesFit -> node_resources_fit."""
    return _WORD.sub("_", name).lower()


def _ours(name: str) -> Factory:
    def made(arguments: Arguments) -> Plugin:
        module = import_module(f"{__package__}.plugins.{module_of(name)}")
        plugin: Plugin = getattr(module, name)(arguments)
        return plugin

    return made


def _theirs(name: str) -> Factory:
    def made(arguments: Arguments) -> Plugin:
        plugin: Plugin = plugin_class(name)(arguments)
        return plugin

    return made


PLUGINS: dict[str, Factory] = {plugin.name: _ours(plugin.name) for plugin in BUILT_IN}
"""Ours, in the order of the default profile."""


def registry() -> dict[str, Factory]:
    """Ours and those that are installed. Raises ValueError where an installed one takes a name of ours."""
    return PLUGINS | {name: _theirs(name) for name in installed()}
