"""Which plugins stand at which extension point, once a configuration has been joined with the
defaults.

Users write what differs: plugins off, on, in another order, with another weight, for one point or
for all of a plugin's points at once (`multiPoint`). `complete` gives every point its list, by
kube-scheduler's rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args

from wharfinger.domain.scheduler import PluginUse, Point, Profile
from wharfinger.domain.scheduler_plugins import BUILT_IN, KnownPlugin
from wharfinger.domain.value import Value

POINTS: tuple[Point, ...] = get_args(Point)
ALL = "*"


class PluginSet(Value, frozen=True):
    """What is said for one point, or for all of them. A weight of 0 was not said."""

    enabled: tuple[PluginUse, ...] = ()
    disabled: tuple[str, ...] = ()


NOTHING_SAID = PluginSet()


def complete(
    everywhere: PluginSet, points: Mapping[Point, PluginSet], known: Mapping[str, KnownPlugin]
) -> dict[Point, tuple[PluginUse, ...]]:
    """All points that have any plugin. `everywhere`: what `multiPoint` says. Names are of
    `known`."""
    standing = _joined(_defaults(known), everywhere)
    found = {
        point: _at(point, standing, points.get(point, NOTHING_SAID), known) for point in POINTS
    }
    return {point: uses for point, uses in found.items() if uses}


PREPARED: tuple[tuple[Point, Point], ...] = (("filter", "preFilter"), ("score", "preScore"))
"""What a plugin does at the first it has prepared at the second."""


def unprepared(
    points: Mapping[Point, tuple[PluginUse, ...]], known: Mapping[str, KnownPlugin]
) -> tuple[str, Point, Point] | None:
    """The first plugin that stands at a point and is off at the one where it prepares for it:
    (plugin, point, missing point)."""
    for point, before in PREPARED:
        ready = {use.name for use in points.get(before, ())}
        for use in points.get(point, ()):
            if before in known[use.name].points and use.name not in ready:
                return use.name, point, before
    return None


def _defaults(known: Mapping[str, KnownPlugin]) -> tuple[PluginUse, ...]:
    return tuple(
        PluginUse(plugin.name, plugin.weight) for plugin in known.values() if plugin.by_default
    )


def _joined(defaults: Iterable[PluginUse], said: PluginSet) -> tuple[PluginUse, ...]:
    """Defaults that are not off, with the weights that are said for them, in their order; then
    those that are on besides."""
    wanted = {use.name: use for use in said.enabled}
    kept = (
        ()
        if ALL in said.disabled
        else tuple(use for use in defaults if use.name not in said.disabled)
    )
    names = {use.name for use in kept}
    return (
        *(wanted.get(use.name, use) for use in kept),
        *(use for use in said.enabled if use.name not in names),
    )


def _at(
    point: Point, standing: Iterable[PluginUse], said: PluginSet, known: Mapping[str, KnownPlugin]
) -> tuple[PluginUse, ...]:
    """First those of `standing` that the point names itself, in its order: that is how a user
    changes weight or place of one. Then the rest of `standing` that works here and is not off. Then
    what only the point names."""
    works = {use.name: use for use in standing if point in known[use.name].points}
    here = [use for use in said.enabled if point in known[use.name].points]
    if ALL in said.disabled:
        works = {}
    kept = {name: use for name, use in works.items() if name not in said.disabled}
    again = [use for use in here if use.name in kept]
    rest = [use for name, use in kept.items() if name not in {u.name for u in again}]
    besides = [use for use in here if use.name not in kept]
    return tuple(_weighed(point, use) for use in (*again, *rest, *besides))


def _weighed(point: Point, use: PluginUse) -> PluginUse:
    """Only scores weigh; a weight that is not said is 1."""
    return PluginUse(use.name, (use.weight or 1) if point == "score" else 0)


def default_points() -> dict[Point, tuple[PluginUse, ...]]:
    """Those of a profile about which nothing is said."""
    return complete(NOTHING_SAID, {}, {plugin.name: plugin for plugin in BUILT_IN})


def default_profile() -> Profile:
    return Profile(points=default_points())
