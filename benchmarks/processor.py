"""Processor time of the parts of a plane, as the kernel counts it (user and system)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import psutil

from benchmarks.plane import PlaneUnderTest


def processor_seconds(
    plane: PlaneUnderTest, named: Callable[[str, psutil.Process], str] = lambda part, _: part
) -> dict[tuple[str, int], float]:
    """(part, pid) -> processor seconds that it has used since it started, user and system.
    `named`: under which name a process of a part is counted."""
    used: dict[tuple[str, int], float] = {}
    for part, process in plane.processes():
        try:
            name, times = named(part, process), process.cpu_times()
        except psutil.Error:
            continue
        used[name, process.pid] = times.user + times.system
    return used


def used_between(
    before: Mapping[tuple[str, int], float], after: Mapping[tuple[str, int], float], units: int
) -> dict[str, float]:
    """Part of the plane -> microseconds of processor time a unit. A process that began meanwhile
    counts from its start; one that ended is left out."""
    used: dict[str, float] = {}
    for (part, pid), seconds in after.items():
        used[part] = used.get(part, 0.0) + seconds - before.get((part, pid), 0.0)
    return {part: 1e6 * seconds / units for part, seconds in sorted(used.items())}
