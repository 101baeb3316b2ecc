"""Two versions measured in turns: `make bench-compare A=main B=.`

A version is a commit, or a directory that holds a tree. Each runs the same work (`benchmarks.work`
of this tree) with its own library, one after the other, several times: what else the machine does
meanwhile falls on both alike. Compared are processor times, never the clock. A ratio above 1 means
that B takes longer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parents[1]
ROUNDS = 5

Measured = dict[str, list[float]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("a", help="commit or directory")
    parser.add_argument("b", help="commit or directory")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--live", action="store_true", help="the openb trace through planes too")
    parser.add_argument(
        "--at-most", type=float, default=0.0, metavar="RATIO", help="fail where B / A is above it"
    )
    options = parser.parse_args()
    with tree(options.a) as a, tree(options.b) as b:
        if options.live:
            for place in {a, b} - {HERE}:  # or its loops would not be compiled
                subprocess.run([sys.executable, "infra/kernels/compile.py"], cwd=place, check=True)
        found = in_turns(a, b, options.rounds, live=options.live)
    Console(width=120).print(table(options.a, options.b, *found))
    over = {
        name: ratio
        for name, ratio in ratios(*found).items()
        if options.at_most and ratio > options.at_most
    }
    for name, ratio in over.items():
        print(f"{name}: {ratio:.2f} times, at most {options.at_most:.2f}", file=sys.stderr)
    return 1 if over else 0


@contextmanager
def tree(version: str) -> Iterator[Path]:
    """The directory of the version; a commit is checked out into one that is removed afterwards."""
    if Path(version).is_dir():
        yield Path(version).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="wharfinger-compare-") as parent:
        place = Path(parent) / "tree"
        git = ["git", "-C", str(HERE), "worktree"]
        done = subprocess.run(
            [*git, "add", "--detach", str(place), version],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["git says nothing"])[-1]
            raise SystemExit(f"{version}: neither a directory nor a commit: {last}")
        try:
            yield place
        finally:
            subprocess.run([*git, "remove", "--force", str(place)], check=False)


def in_turns(a: Path, b: Path, rounds: int, *, live: bool) -> tuple[Measured, Measured]:
    """name -> processor time of each round, in microseconds a unit, of both versions. They take
    turns in going first."""
    found: tuple[Measured, Measured] = ({}, {})
    for round_ in range(rounds):
        order = ((0, a), (1, b)) if round_ % 2 == 0 else ((1, b), (0, a))
        for which, place in order:
            for name, us in once(place, live=live).items():
                found[which].setdefault(name, []).append(us)
    return found


def once(place: Path, *, live: bool) -> dict[str, float]:
    paths = [str(place / "shared"), str(place / "services"), str(HERE)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.work", *(["--live"] if live else [])],
        cwd=HERE,  # its `benchmarks`, and no library
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"{place}: the work failed: {last}")
    read: dict[str, float] = json.loads(done.stdout)
    return read


def ratios(a: Measured, b: Measured) -> dict[str, float]:
    """name -> the middle of the ratios of each round. Both runs of a round are neighbours in
    time."""
    return {
        name: median(y / x for x, y in zip(a[name], b[name], strict=True))
        for name in a
        if name in b
    }


def table(name_a: str, name_b: str, a: Measured, b: Measured) -> Table:
    shown = Table(
        title="Processor time, in turns", title_justify="left", caption=f"A {name_a}, B {name_b}"
    )
    for column in ("work", "A, µs", "B, µs", "B / A", "of the rounds"):
        shown.add_column(column, justify="left" if column == "work" else "right")
    for name, ratio in ratios(a, b).items():
        each = [y / x for x, y in zip(a[name], b[name], strict=True)]
        shown.add_row(
            name,
            f"{median(a[name]):,.0f}",
            f"{median(b[name]):,.0f}",
            f"{ratio:.2f}",
            f"{min(each):.2f}-{max(each):.2f}",
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
