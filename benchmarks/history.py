"""The record of a run of the benchmarks: one JSON file a run in `benchmarks/history`.

Next to each figure stands what the machine could do without us in the same run (`raw`) and, where
it was taken, the processor time of each part of the plane: the clock says more about the machine
than about the code.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
DIRECTORY = HERE / "benchmarks" / "history"
RAW = "raw: "
"""What the names of raw limits begin with."""


@dataclass(frozen=True, slots=True)
class Figure:
    """`bound`: what must be reached; `higher` says on which side of it to be. None: printed only.
    `processor_us`: part of the plane -> microseconds of processor time a unit of the figure."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    higher: bool = True
    ratio: str = ""
    processor_us: Mapping[str, float] = field(default_factory=dict)

    @property
    def met(self) -> str:
        if self.bound is None:
            return ""
        good = self.value >= self.bound if self.higher else self.value <= self.bound
        return "yes" if good else "NO"


def record(
    figures: Sequence[Figure],
    machine: str,
    commit: str,
    directory: Path = DIRECTORY,
    at_s: float | None = None,
) -> Path:
    """Write the figures of one run; the name of the file begins with its time (UTC). `commit`: of
    the code that ran, see `commit_now`. `at_s`: seconds since 1970, by default now."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))
    run = {
        "at": at,
        "commit": commit,
        "machine": machine,
        "python": platform.python_version(),
        "raw": {
            f.name.removeprefix(RAW): round(f.value) for f in figures if f.name.startswith(RAW)
        },
        "figures": [_plain(f) for f in figures if not f.name.startswith(RAW)],
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{re.sub('[^0-9]', '', at)[:12]}-{commit or 'no-commit'}.json"
    path.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    return path


def _plain(figure: Figure) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": figure.name, "value": round(figure.value, 3)}
    if figure.unit:
        plain["unit"] = figure.unit
    if figure.bound is not None:
        plain |= {"at_least" if figure.higher else "at_most": figure.bound}
    if figure.ratio:
        plain["beside"] = figure.ratio
    if figure.processor_us:
        plain["processor_us"] = {part: round(us, 1) for part, us in figure.processor_us.items()}
    return plain


def commit_now() -> str:
    """The commit of this tree, with `-changed` where files differ from it; empty: not a
    repository."""
    git = ["git", "-C", str(HERE)]
    try:
        commit = subprocess.run(
            [*git, "rev-parse", "--short=9", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{commit}-changed" if changed else commit
