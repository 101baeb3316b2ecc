"""Instantiates a configured profile: makes each plugin once from the profile's arguments and
registers it at its extension points."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.scheduler import Point, Profile
from wharfinger.domain.scheduler_points import default_profile
from wharfinger.engine.framework.cycle import Framework
from wharfinger.engine.framework.protocols import Plugin
from wharfinger.engine.framework.registry import Factory, registry
from wharfinger.manifests.kubernetes.installed_plugins import METHODS

__all__ = ["default_profile", "framework"]


def framework(profile: Profile, plugins: Mapping[str, Factory] | None = None) -> Framework:
    """Create the plugins of a profile and register each at its extension points. Return the
    framework that runs them.

    `plugins`: plugin name -> factory; None: the factories of the registry. Raise ValueError (one
    line) in these cases: a plugin is unknown; a plugin does not implement one of its extension
    points; the profile does not have exactly one queue sort plugin; the profile has no bind plugin.
    """
    known = registry() if plugins is None else plugins
    names = dict.fromkeys(use.name for uses in profile.points.values() for use in uses)
    if missing := [name for name in names if name not in known]:
        raise ValueError(
            f"profile {profile.name}: no plugin is called {missing[0]}; "
            f"there are {', '.join(known)}"
        )
    made = {name: known[name](profile.arguments) for name in names}
    points = {
        point: tuple(made[use.name] for use in uses) for point, uses in profile.points.items()
    }
    for point, standing in points.items():
        for plugin in standing:
            _works(profile, plugin, point)
    _count(profile, points)
    return Framework(profile, made, points, {use.name: use.weight for use in profile.at("score")})


def _works(profile: Profile, plugin: Plugin, point: Point) -> None:
    if not callable(getattr(plugin, METHODS[point], None)):
        raise ValueError(f"profile {profile.name}: plugin {plugin.name} does nothing at {point}")


def _count(profile: Profile, points: Mapping[Point, tuple[Plugin, ...]]) -> None:
    if len(points.get("queueSort", ())) != 1:
        names = ", ".join(p.name for p in points.get("queueSort", ())) or "none"
        raise ValueError(f"profile {profile.name}: expected one plugin at queueSort, got {names}")
    if not points.get("bind"):
        raise ValueError(f"profile {profile.name}: expected a plugin at bind, got none")
