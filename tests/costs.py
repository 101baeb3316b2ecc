"""What the tests cost: wall and processor seconds of each file, its child processes included.

Printed at the end of a run for the costliest files, written for all to `build/test-costs.txt`, so
that whoever looks for a slow suite sees where its time goes. A process that leaves its parent, as
`up --detach` does, is not counted.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

SHOWN = 12
WRITTEN = Path("build", "test-costs.txt")
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
    _me: psutil.Process = field(default_factory=psutil.Process)
    _cpu_before_s: float = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        """Processes are looked up where a file ends only: that takes 10 ms, longer than most
        tests."""
        began, name = time.monotonic(), _file(item)
        try:
            return (yield)
        finally:
            cost = self.files.setdefault(name, Cost())
            cost.tests += 1
            cost.wall_s += time.monotonic() - began
            if nextitem is None or _file(nextitem) != name:
                now = self._cpu_s()
                cost.cpu_s, self._cpu_before_s = (
                    cost.cpu_s + max(0.0, now - self._cpu_before_s),
                    now,
                )

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
            rows = {name: (c.tests, c.wall_s, c.cpu_s) for name, c in self.files.items()}
            session.config.workeroutput[OUTPUT] = rows

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        for name, (tests, wall_s, cpu_s) in (
            getattr(node, "workeroutput", {}).get(OUTPUT, {}).items()
        ):
            cost = self.files.setdefault(name, Cost())
            cost.tests, cost.wall_s, cost.cpu_s = (
                cost.tests + tests,
                cost.wall_s + wall_s,
                cost.cpu_s + cpu_s,
            )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if len(self.files) < 2:
            return
        lines = [
            f"{c.wall_s:8.1f} {c.cpu_s:8.1f} {c.tests:6d}  {name}" for name, c in self._costliest()
        ]
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
        WRITTEN.write_text("\n".join([head, *lines]) + "\n")

    def _costliest(self) -> list[tuple[str, Cost]]:
        return sorted(self.files.items(), key=lambda pair: -pair[1].wall_s)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _cpu_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
