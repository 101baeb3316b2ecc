"""Runs the transcripts of a document in a shell and compares what they print with what the document
shows.

A transcript is a fenced block without a language whose first line begins with `$ `: commands, each
with its output below it. The transcripts of a document run in order, in one directory and one
shell: `cd` and `export` last. A line `...` stands for any lines that the document leaves out, `...`
within a line for the part of it that is left out. HTML comments in front of a block, invisible to
readers, say how it is run:

    <!-- transcript: not run: WHY -->            the block is shown only
    <!-- transcript: needs FILE: WHY -->         run where the real data has that file, which then
                                                 is in the directory
    <!-- transcript: numbers vary: WHY -->       every number of the output may differ
    <!-- transcript: $ COMMAND -->               a command that runs first and is not shown
    <!-- transcript: wait until COMMAND -->      the block begins when that command succeeds

Two outputs are equal when they are after `normalised`: identifiers, times, durations, rates and
addresses differ between two runs, and the width of a column follows from them. An identifier that
an earlier output showed stands, in a later command, for the one that was printed in its place.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.patience import PATIENCE_S, until

from wharfinger.answers.plane_status import PlaneStatus
from wharfinger.runtime.plane import read_plane
from wharfinger_cli.output import Format
from wharfinger_cli.request import Request
from wharfinger_cli.status import look

FENCE = "```"
PROMPT = "$ "
WAIT = "wait until "
LEFT_OUT = "..."
HOME = "/home/you"
"""What a document calls the directory in which its commands run."""
MARK = re.compile(r"<!-- transcript: (.+?) -->")

IDENTIFIER = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(?=[a-f]*\d)[0-9a-f]{8,64}\b"
)
VARYING = (
    (IDENTIFIER, "ID"),
    (re.compile(r"SHA256:\S+"), "KEY"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b127\.0\.0\.1:\d+|\[::1\]:\d+"), "ADDRESS"),
    (re.compile(r"\b[\d,.]+/s\b"), "RATE"),
    (re.compile(r"\b[\d,.]+ (?:ms|s|min|h|d|MB|KB|kB|bytes)\b"), "AMOUNT"),
    (re.compile(r"\s+"), " "),
)
NUMBER = re.compile(r"(?<![\w.])[+−-]?\d[\d,.]*|\d[\d,.]*")


@dataclass(frozen=True, slots=True)
class Step:
    """One command. `expected`: the lines below it; `line`: where it stands in the document.
    `awaited`: repeated until it succeeds."""

    command: str
    line: int
    expected: tuple[str, ...] = ()
    shown: bool = True
    awaited: bool = False


@dataclass(frozen=True, slots=True)
class Transcript:
    """One block. `skipped`: why it is not run; `needs`: files of the real data without which it is
    not."""

    line: int
    steps: tuple[Step, ...]
    skipped: str = ""
    needs: tuple[str, ...] = ()
    numbers_vary: bool = False


def transcripts(text: str) -> Iterator[Transcript]:
    """Those of a document, in order, the ones that are not run included."""
    marks: list[str] = []
    block: list[str] | None = None
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        if block is None:
            if line.startswith(FENCE):
                block, start, language = [], number, line.removeprefix(FENCE)
            elif found := MARK.findall(line):
                marks += found
            elif line.strip():
                marks = []
        elif line != FENCE:
            block.append(line)
        else:
            if not language and block and block[0].startswith(PROMPT):
                yield _transcript(block, start, marks)
            block, marks = None, []


def _transcript(lines: list[str], start: int, marks: list[str]) -> Transcript:
    found = Transcript(start, ())
    steps: list[Step] = []
    for mark in marks:
        kind, _, rest = mark.partition(": ")
        if mark.startswith(PROMPT):
            steps.append(Step(mark.removeprefix(PROMPT), start, shown=False))
        elif mark.startswith(WAIT):
            steps.append(Step(mark.removeprefix(WAIT), start, shown=False, awaited=True))
        elif kind == "not run" and rest:
            found = replace(found, skipped=rest)
        elif kind == "numbers vary" and rest:
            found = replace(found, numbers_vary=True)
        elif kind.startswith("needs ") and rest:
            found = replace(found, needs=tuple(kind.split()[1:]))
        else:
            raise ValueError(f"line {start}: expected a mark with its reason, got {mark!r}")
    for number, line in enumerate(lines, start + 1):
        if line.startswith(PROMPT):
            steps.append(Step(line.removeprefix(PROMPT), number))
        else:
            steps[-1] = replace(steps[-1], expected=(*steps[-1].expected, line))
    return replace(found, steps=tuple(steps))


def normalised(line: str, *, numbers_vary: bool = False) -> str:
    for pattern, sign in VARYING:
        line = pattern.sub(sign, line)
    if numbers_vary:
        line = NUMBER.sub("N", line)
    return line.strip()


@dataclass(frozen=True, slots=True)
class Difference:
    """`line`: of the document, counted from the command; `expected`, `got`: "" where one of them
    has ended."""

    line: int
    expected: str
    got: str


def compare(
    expected: tuple[str, ...], got: list[str], *, numbers_vary: bool = False
) -> tuple[Difference | None, list[tuple[str, str]]]:
    """The first difference, and the pairs of lines that agree."""
    shown = [(n, line) for n, line in enumerate(expected, 1) if line.strip()]
    printed = [line for line in got if line.strip()]
    plain = [normalised(line, numbers_vary=numbers_vary) for line in printed]
    sought = [
        None if line.strip() == LEFT_OUT else _pattern(normalised(line, numbers_vary=numbers_vary))
        for _, line in shown
    ]
    ways: list[dict[int, int]] = [{0: -1}]
    """For each shown line: how many lines may be printed before it -> how many were before the line
    above."""
    for pattern in sought:
        above, here = ways[-1], dict[int, int]()
        for count in above:
            if pattern is None:
                here |= {
                    later: count for later in range(count, len(plain) + 1) if later not in here
                }
            elif count < len(plain) and pattern.fullmatch(plain[count]):
                here.setdefault(count + 1, count)
        if not here:
            furthest = max(above)
            number, line = shown[len(ways) - 1]
            return Difference(
                number, line, printed[furthest] if furthest < len(printed) else ""
            ), _pairs(shown, printed, sought, ways, furthest)
        ways.append(here)
    if len(plain) not in ways[-1]:
        furthest = max(ways[-1])
        return Difference(len(expected) + 1, "", printed[furthest]), _pairs(
            shown, printed, sought, ways, furthest
        )
    return None, _pairs(shown, printed, sought, ways, len(plain))


def _pairs(
    shown: list[tuple[int, str]],
    printed: list[str],
    sought: list[re.Pattern[str] | None],
    ways: list[dict[int, int]],
    count: int,
) -> list[tuple[str, str]]:
    """Back along the way that ends with `count` printed lines."""
    pairs: list[tuple[str, str]] = []
    for at in range(len(ways) - 1, 0, -1):
        before = ways[at][count]
        if sought[at - 1] is not None:
            pairs.append((shown[at - 1][1], printed[before]))
        count = before
    return pairs[::-1]


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(r"\s*.*".join(re.escape(part.rstrip()) for part in line.split(LEFT_OUT)))


def renamed(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """What the document calls an identifier -> what it is called in this run."""
    return {
        shown: real
        for expected, got in pairs
        for shown, real in zip(IDENTIFIER.findall(expected), IDENTIFIER.findall(got), strict=False)
    }


@dataclass(slots=True)
class Shell:
    """One directory and one environment that the commands share. `settle` is called before a
    command that asks."""

    directory: Path
    environment: dict[str, str]
    settle: Callable[[dict[str, str], Path], None]
    names: dict[str, str] = field(default_factory=dict)
    code: int = 0

    def run(self, step: Step, *, numbers_vary: bool = False) -> str:
        """ "" where the output is the expected one, else what differs."""
        self.settle(self.environment, self.directory)
        if step.awaited:
            until(
                lambda: self.output(f"{step.command} && echo {DONE}").endswith(f"{DONE}\n"),
                every_s=0.5,
            )
            return ""
        output = self.output(self._with_real_names(step.command)).replace(str(self.directory), HOME)
        refused = any(line.startswith(COMPLAINT) for line in step.expected)
        if "Traceback" in output or (self.code not in (0, 1) and not refused):
            return f"{step.command} ended with {self.code}:\n{output}"
        if not step.shown:
            return ""
        difference, pairs = compare(step.expected, output.splitlines(), numbers_vary=numbers_vary)
        self.names |= renamed(pairs)
        if difference is None:
            return ""
        return (
            f"line {step.line + difference.line}, below `{step.command}`:\n"
            f"  document: {difference.expected}\n  printed:  {difference.got}\n"
            f"all that was printed:\n{output}"
        )

    def output(self, command: str) -> str:
        """Standard output and error, as a terminal shows them."""
        saved = self.directory / ".environment"
        script = f"trap {shlex.quote(f'env -0 > {shlex.quote(str(saved))}')} EXIT\n{command}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        self.code = done.returncode
        self.environment = dict(
            item.split("=", 1) for item in saved.read_text().split("\0") if item
        )
        return done.stdout

    def _with_real_names(self, command: str) -> str:
        for shown, real in self.names.items():
            command = command.replace(shown, real).replace(shown[:8], real[:8])
        return command


def shell(directory: Path, examples: Path, settle: Callable[[dict[str, str], Path], None]) -> Shell:
    """A shell with `wharfinger` and the examples in an empty directory; planes that it starts end
    with this process."""
    binaries = directory / ".bin"
    binaries.mkdir()
    program = binaries / "wharfinger"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m wharfinger_cli "$@"\n')
    program.chmod(0o755)
    (directory / "examples").symlink_to(examples)
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith("WHARFINGER_")
    }
    environment = {
        **plain,
        "PATH": f"{binaries}{os.pathsep}{plain['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "COLUMNS": "160",
        "WHARFINGER_OWNER_PID": str(os.getpid()),
    }
    return Shell(directory, environment, settle)


COMPLAINT = "wharfinger: "
"""How a command begins that could not do what it was asked; it may end with 2 where the document
shows that."""
DONE = "it succeeded"
CALM_S = 2.0
CALM_LOOKS = 4
"""Without a new round for so long, and for as long as so many looks at it take, and with nothing
waiting anywhere, a plane is at rest. A search for nodes begins when nothing has come for a second,
and on a busy machine later."""


class Rest:
    """Called, it returns when the plane that the commands of an environment speak to has nothing
    left to do."""

    def __init__(self) -> None:
        self._heads: object = None

    def __call__(self, environment: dict[str, str], directory: Path) -> None:
        data_dir = directory / environment.get("WHARFINGER_DATA_DIR", ".wharfinger")
        if read_plane(data_dir) is None:
            return
        since: float | None = None
        seen: PlaneStatus | None = None

        def rests() -> bool:
            nonlocal since, seen
            asked_at = time.monotonic()
            seen = asyncio.run(look(Request(data_dir, Format.JSON)))
            heads = [(head.stream, head.hash) for head in seen.heads]
            waits = any(
                report is None or not report.ready or report.lag
                for _, report in seen.services.values()
            )
            now = time.monotonic()
            if waits or seen.freshness.unrelayed.rows or heads != self._heads:
                since = now
            self._heads = heads
            calm_s = max(CALM_S, CALM_LOOKS * (now - asked_at))
            return since is None or now - since >= calm_s

        until(rests, lambda: seen)
