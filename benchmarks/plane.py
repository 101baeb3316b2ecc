"""A plane of the benchmark's own, driven by the commands a user has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from wharfinger.runtime.children import MODULES
from wharfinger.runtime.process_status import process_cards


@dataclass(frozen=True, slots=True)
class PlaneUnderTest:
    """`data_dir` is where it lives; every command is a process of its own. `environment`: what its
    commands have beside ours."""

    data_dir: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, *arguments: str, timeout_s: float = 600.0) -> str:
        """Standard output of `wharfinger ...`. RuntimeError with its last line of complaint when it
        fails."""
        done = subprocess.run(
            [sys.executable, "-m", "wharfinger_cli", "--data-dir", str(self.data_dir), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **self.environment},
        )
        if done.returncode not in (0, 1):
            complaint = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(
                f"wharfinger {' '.join(arguments)}: exit {done.returncode}: {complaint}"
            )
        return done.stdout

    def json(self, *arguments: str, timeout_s: float = 600.0) -> Any:
        return json.loads(self.command(*arguments, "-o", "json", timeout_s=timeout_s))

    def up(self, *arguments: str) -> float:
        """Seconds until `up --detach` came back, which is when everything is ready."""
        began = time.perf_counter()
        self.command("up", "--detach", *arguments)
        return time.perf_counter() - began

    def down(self) -> None:
        self.command("down")

    def plane(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data_dir / "plane.json").read_text())
        return found

    def memory_mb(
        self, named: Callable[[str, psutil.Process], str] = lambda part, _: part
    ) -> dict[str, float]:
        """Proportional set size by part, MB: memory that several processes share is counted once.
        `named`: under which name a process of a part is counted."""
        parts: dict[str, float] = {}
        for part, process in self.processes():
            try:
                name, pss = named(part, process), process.memory_full_info().pss / 1e6
            except psutil.Error:
                continue
            parts[name] = parts.get(name, 0.0) + pss
        return parts

    def http_port(self, service: str) -> int:
        """Of the process that runs this service. LookupError: none does."""
        for _, card in process_cards(self.data_dir):
            if service in card.services:
                return card.http_port
        raise LookupError(f"no process runs {service}")

    def processes(self) -> Iterator[tuple[str, psutil.Process]]:
        """All processes of the plane that run now, each with the part it belongs to."""
        mine = str(self.data_dir.resolve())
        supervisor = int(self.plane()["supervisor_pid"])
        for process in psutil.process_iter(["pid", "name", "cmdline"]):
            try:
                words = " ".join(process.info["cmdline"] or [])
                ancestors = {p.pid for p in process.parents()} | {process.pid}
                if (
                    mine not in words
                    and supervisor not in ancestors
                    and not self._is_backend(process, mine)
                ):
                    continue
            except psutil.Error:
                continue
            yield _part(process.info["name"] or "", words), process

    def _is_backend(self, process: psutil.Process, mine: str) -> bool:
        """A database backend names no directory; its parent, the postmaster, does."""
        parent = process.parent()
        return parent is not None and mine in " ".join(parent.cmdline())


def _part(name: str, words: str) -> str:
    if "postgres" in name:
        return "postgres"
    if "tansu" in name or "tansu" in words:
        return "broker"
    if any(f"-m {module}" in words for module in MODULES.values()):
        return "services"
    return "supervisor"


def service_of(part: str, process: psutil.Process) -> str:
    """Each service by its own name, and each other part."""
    service = _SERVICE.search(" ".join(process.cmdline())) if part == "services" else None
    return service.group(1) if service else part


_SERVICE = re.compile(r"\bwharfinger_(?!cli\b)(\w+)")


@contextmanager
def a_plane(environment: Mapping[str, str] | None = None) -> Iterator[PlaneUnderTest]:
    """A data directory that is stopped and removed afterwards. Not started: starting is among the
    measurements. `environment`: what its commands have beside ours."""
    directory = Path(tempfile.mkdtemp(prefix="wharfinger-bench-"))
    os.chmod(directory, 0o755)  # the embedded database runs as a user of its own where we are root
    plane = PlaneUnderTest(directory / "plane", environment or {})
    try:
        yield plane
    finally:
        try:
            plane.down()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
