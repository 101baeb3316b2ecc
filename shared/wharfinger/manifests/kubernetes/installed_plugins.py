"""Which plugins of the scheduling framework other distributions bring: entry points of the group
`wharfinger.plugins`.

What is installed beside us is part of what program this is, as our own modules are. The entry
point's name is the plugin's; it names a class that is made from its arguments
(`engine.framework.protocols`). At which points it works is seen from its methods."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from wharfinger.domain.scheduler import Point
from wharfinger.domain.scheduler_plugins import BUILT_IN, BY_NAME, KnownPlugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "wharfinger.plugins"

METHODS: dict[Point, str] = {
    "preEnqueue": "pre_enqueue",
    "queueSort": "order",
    "preFilter": "pre_filter",
    "filter": "filter",
    "postFilter": "post_filter",
    "preScore": "pre_score",
    "score": "score",
    "reserve": "reserve",
    "permit": "permit",
    "preBind": "pre_bind",
    "bind": "bind",
    "postBind": "post_bind",
}
"""The method that is a plugin's work at a point."""


@cache
def installed() -> dict[str, EntryPoint]:
    """Name -> entry point, in order of name. Raises ValueError where two have one name or one has
    that of a plugin of ours."""
    from importlib.metadata import entry_points  # loads some thirty modules

    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        if entry.name in BY_NAME or (
            entry.name in found and found[entry.name].value != entry.value
        ):
            raise ValueError(
                f"entry point {entry.name} = {entry.value} of {GROUP}: "
                "there is a plugin of this name already"
            )
        found[entry.name] = entry
    return found


@cache
def plugin_class(name: str) -> type:
    """The class of an installed plugin. Raises ValueError where it cannot be had."""
    entry = installed()[name]
    try:
        made = entry.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"plugin {name}: {entry.value} cannot be loaded: {error}") from None
    if not isinstance(made, type):
        raise ValueError(f"plugin {name}: expected {entry.value} to be a class")
    return made


@cache
def known_plugins() -> dict[str, KnownPlugin]:
    """Every plugin that a profile may name, ours first. An installed one stands in no profile by
    itself."""
    ours = {plugin.name: plugin for plugin in BUILT_IN}
    return ours | {
        name: KnownPlugin(name, points_of(plugin_class(name)), 1, by_default=False)
        for name in installed()
    }


def points_of(plugin: type) -> tuple[Point, ...]:
    return tuple(
        point for point, method in METHODS.items() if callable(getattr(plugin, method, None))
    )
