"""How many bytecode instructions the work of `benchmarks.work` takes, against those on record.

Instructions are the same on every machine, beside every load: so a test holds them, where a time
would have to be given room. They are those of the interpreter; what compiled code does inside of
one call is not seen, and stays with `benchmarks.compare`. Another version of Python has other
instructions: then nothing is compared, and that is said.

`python -m benchmarks.instructions` compares and ends with 1 where work takes over a tenth more;
`--write` records what is counted in `benchmarks/instructions.json`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks import work

RECORD = Path(__file__).with_suffix(".json")
AT_MOST = 1.1

WORK: dict[str, Callable[..., float]] = {
    "fleet decision, 8 clusters": partial(work.few_clusters, 200),
    "fleet decision, 8 clusters, 60 classes": partial(work.many_classes, 200),
    "fleet decision, 300 clusters": partial(work.many_clusters, 20, clusters=300),
    "a label, 300 clusters, 60 Duplicated bindings": partial(work.a_label_of_one_cluster, 300),
    "Duplicated over 300 clusters": partial(work.duplicated_everywhere, 300),
    "first decision by a policy, 300 clusters": partial(work.new_policies, 300),
    "node decision, 100 nodes, 8 classes": partial(work.nodes_of_a_cluster, 200, 100),
    "node decision by itself, 100 nodes, 8 classes": partial(
        work.nodes_of_a_cluster, 100, 100, at_once=1, replicas=1
    ),
}


def instructions(work: Callable[[], object], units: int) -> float:
    """Bytecode instructions of this thread in `work`, a unit."""
    counted = 0

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        counted += event == "opcode"
        return inside

    def called(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return inside

    gc.collect()
    before = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted / units


def counted() -> dict[str, int]:
    """name -> instructions a unit, counted by a process of its own: with the same hashes of texts
    each time, and nothing kept of earlier work."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.instructions", "--print"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        cwd=RECORD.parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


def python() -> str:
    return f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"


def recorded() -> dict[str, int] | None:
    """None where they are those of another Python."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found["instructions"] if found["python"] == python() else None


def grown(now: Mapping[str, int], known: Mapping[str, int]) -> list[str]:
    """What takes over a tenth more than is on record, in a line each."""
    return [
        f"{name}: {count:,} instructions, {known[name]:,} on record"
        for name, count in now.items()
        if count > AT_MOST * known[name]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--print", action="store_true", help="count here and print JSON")
    parser.add_argument("--write", action="store_true", help="record what is counted")
    options = parser.parse_args()
    if options.print:
        print(json.dumps({name: round(one(meter=instructions)) for name, one in WORK.items()}))
        return 0
    found = counted()
    if options.write:
        text = json.dumps({"python": python(), "instructions": found}, indent=2)
        RECORD.write_text(text + "\n")
        return 0
    known = recorded()
    if known is None:
        print(f"{RECORD.name} was counted with another Python than {python()}", file=sys.stderr)
        return 0
    if missing := found.keys() - known.keys():
        print(f"not on record, see --write: {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    for name, now in found.items():
        print(f"{name}: {now:,} instructions, {now / known[name]:.2f} of those on record")
    return 1 if grown(found, known) else 0


if __name__ == "__main__":
    sys.exit(main())
