"""What the tests cost: wall and processor seconds of each file, its child processes included.

Printed at the end of a run for the costliest files. `build/costs-TARGET.txt` has all files, and
each test that takes `SLOW_S` or longer, so that it is seen where the time of a slow suite goes. A
process that leaves its parent, as `up --detach` does, is not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.hunting import TARGET

SHOWN = 12
SLOW_S = 1.0
WRITTEN = Path("build", f"costs-{os.environ.get(TARGET, 'pytest')}.txt")
OUTPUT = "wharfinger_costs"


@dataclass(slots=True)
class Cost:
    tests: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0


@dataclass(slots=True)
class Costs:
    """A pytest plugin. In a worker of xdist it measures, in the run that started the workers it
    adds up."""

    files: dict[str, Cost] = field(default_factory=dict)
    slow: dict[str, Cost] = field(default_factory=dict)
    _me: psutil.Process = field(default_factory=psutil.Process)
    _cpu_before_s: float = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        """Processes are looked up where a file or a slow test ends: that takes 10 ms, longer than
        most tests. So a slow test includes the processor time of the fast ones before it."""
        began, name = time.monotonic(), _file(item)
        try:
            return (yield)
        finally:
            cost, wall_s = self.files.setdefault(name, Cost()), time.monotonic() - began
            cost.tests += 1
            cost.wall_s += wall_s
            slow = wall_s >= SLOW_S
            if slow or nextitem is None or _file(nextitem) != name:
                now = self._cpu_s()
                cpu_s, self._cpu_before_s = max(0.0, now - self._cpu_before_s), now
                cost.cpu_s += cpu_s
                if slow:
                    self.slow[item.nodeid] = Cost(1, wall_s, cpu_s)

    def _cpu_s(self) -> float:
        """Processor seconds so far of this process and of its children, the ended ones included."""
        own = os.times()
        return (
            own.user
            + own.system
            + own.children_user
            + own.children_system
            + sum(map(_cpu_of, self._me.children(True)))
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[OUTPUT] = [_rows(self.files), _rows(self.slow)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        told = getattr(node, "workeroutput", {}).get(OUTPUT, [{}, {}])
        for costs, rows in zip((self.files, self.slow), told, strict=True):
            for name, (tests, wall_s, cpu_s) in rows.items():
                cost = costs.setdefault(name, Cost())
                cost.tests += tests
                cost.wall_s += wall_s
                cost.cpu_s += cpu_s

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if len(self.files) < 2:
            return
        lines, slow = _lines(self.files), _lines(self.slow)
        head = "  wall s    cpu s  tests  file"
        terminalreporter.section("costs")
        for line in [head, *lines[:SHOWN]]:
            terminalreporter.write_line(line)
        total_wall, total_cpu = (
            sum(c.wall_s for c in self.files.values()),
            sum(c.cpu_s for c in self.files.values()),
        )
        terminalreporter.write_line(
            f"{total_wall:8.1f} {total_cpu:8.1f}         all files; each of them: {WRITTEN}"
        )
        WRITTEN.parent.mkdir(exist_ok=True)
        tests = f"tests of {SLOW_S:g} s and longer"
        WRITTEN.write_text("\n".join([head, *lines, "", tests, *slow]) + "\n")


def _rows(costs: Mapping[str, Cost]) -> dict[str, tuple[int, float, float]]:
    """As they pass from a worker to the run that started it."""
    return {name: (cost.tests, cost.wall_s, cost.cpu_s) for name, cost in costs.items()}


def _lines(costs: Mapping[str, Cost]) -> list[str]:
    """The longest first."""
    ordered = sorted(costs.items(), key=lambda pair: -pair[1].wall_s)
    return [f"{c.wall_s:8.1f} {c.cpu_s:8.1f} {c.tests:6d}  {name}" for name, c in ordered]


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _cpu_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
