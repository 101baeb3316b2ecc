"""Fuzzing guided by coverage: `make fuzz`, or `python -m tests.fuzz --seconds 60 events manifests`.

Each target runs in a process of its own, one after the other, from the seeds of the repository and
the inputs that were kept. An input that breaks a promise is written to `build/fuzz/NAME/crashes`
and is named with the command that tries it again, for which no fuzzer is needed. `--keep` adds what
was found to the corpus of the repository.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.target import Target
from tests.fuzz.targets import PLACES, target_of

WORK = Path("build") / "fuzz"
MEMORY_MB = 2048
"""Of a target's process; more is a finding."""

WORDS_MAX = 600
"""Of the dictionary that libFuzzer takes words from."""

MISSING = (
    "fuzz: atheris is not installed; `pip install 'wharfinger[fuzz]'`, or: pip install atheris"
)
_WORD = re.compile(rb"[A-Za-z][A-Za-z0-9./-]{3,30}")
_STATE = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
_COUNT = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_PER_S = re.compile(r"stat::average_exec_per_sec:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Run:
    """What one target's run came to. `code`: of its process; `inputs`: of the corpus at its end."""

    target: str
    code: int
    executions: int
    per_s: int
    edges: int
    features: int
    inputs: int
    crashes: tuple[Path, ...]
    log: Path

    @property
    def sound(self) -> bool:
        return self.code == 0 and not self.crashes

    def __str__(self) -> str:
        return (
            f"{self.target:13} {self.executions:>9,} executions  {self.per_s:>6,}/s  "
            f"{self.edges:>6,} edges  {self.features:>6,} features  {self.inputs:>5,} inputs  "
            f"{len(self.crashes)} crashes"
        )


def missing() -> str:
    """Why nothing can be fuzzed here; empty: it can."""
    return "" if find_spec("atheris") else MISSING


def fuzzed(
    target: Target,
    work: Path,
    *,
    seconds: int = 0,
    executions: int = 0,
    seed: int = 0,
    environment: Mapping[str, str] = os.environ,
) -> Run:
    """Runs one target in a process of its own, for so many seconds or executions. `seed` 0: one of
    the moment."""
    found, crashes = work / "corpus", work / "crashes"
    shutil.rmtree(work, ignore_errors=True)
    found.mkdir(parents=True)
    crashes.mkdir()
    known = list(corpus.inputs(target))
    for entry in known:
        (found / corpus.name_of(entry)).write_bytes(entry)
    words = work / "words.dict"
    words.write_text("".join(f'"{word}"\n' for word in dictionary(known)))
    log = work / "log"
    arguments = [
        str(found),
        f"-artifact_prefix={crashes}/",
        f"-dict={words}",
        f"-max_len={target.bytes_max}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-seed={seed}",
        "-print_final_stats=1",
        "-len_control=0",
        *([f"-max_total_time={seconds}"] if seconds else []),
        *([f"-runs={executions}"] if executions else []),
    ]
    with log.open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.one", target.name, *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
            env=dict(environment),
        )
    return run_of(target.name, done.returncode, work)


def run_of(name: str, code: int, work: Path) -> Run:
    """As libFuzzer's log tells it."""
    log = (work / "log").read_text(errors="replace")
    states = _STATE.findall(log)
    edges, features, inputs = map(int, states[-1]) if states else (0, 0, 0)
    counted, per_s = _COUNT.search(log), _PER_S.search(log)
    crashes = sorted(p for p in (work / "crashes").iterdir() if not p.name.startswith("slow-unit"))
    return Run(
        name,
        code,
        int(counted[1]) if counted else 0,
        int(per_s[1]) if per_s else 0,
        edges,
        features,
        inputs,
        tuple(crashes),
        work / "log",
    )


def dictionary(entries: Sequence[bytes]) -> list[str]:
    """Words of the inputs, the most frequent first."""
    counts: dict[bytes, int] = {}
    for entry in entries:
        for word in set(_WORD.findall(entry)):
            counts[word] = counts.get(word, 0) + 1
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return [word.decode() for word in ordered[:WORDS_MAX]]


def tried(target: Target, files: Sequence[Path]) -> int:
    """Takes inputs through a target again, without a fuzzer. 1: one of them breaks a promise."""
    code = 0
    with target.opened() as check:
        for file in files:
            try:
                print(f"{file}: {check(file.read_bytes())}")
            except Exception:  # any finding is what is asked for
                code = 1
                traceback.print_exc()
                print(f"{file}: broken")
    return code


def kept_of(target: Target, work: Path) -> int:
    """Adds what was found to the corpus. Returns how many entries it has now."""
    found = [file.read_bytes() for file in sorted((work / "corpus").iterdir())]
    with target.opened() as check:
        entries = corpus.worth_keeping(target, check, found)
    corpus.keep(target, entries)
    return len(entries)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*PLACES, []], help="all, where none is")
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--seed", type=int, default=0, help="of the fuzzer; 0: another each time")
    parser.add_argument("--input", type=Path, action="append", help="try this file only, again")
    parser.add_argument("--keep", action="store_true", help="add what is found to the corpus")
    asked = parser.parse_args(arguments)
    wanted = [target_of(name) for name in asked.targets or PLACES]
    if asked.input:
        if len(wanted) != 1:
            parser.error("--input: name the one target that the file is for")
        return tried(wanted[0], asked.input)
    if why := missing():
        print(why, file=sys.stderr)
        return 2
    code = 0
    for target in wanted:
        work = WORK / target.name
        run = fuzzed(target, work, seconds=asked.seconds, seed=asked.seed)
        print(run, flush=True)
        for crash in run.crashes:
            print(f"reproduce: python -m tests.fuzz {target.name} --input {crash}")
        if not run.sound:
            code = 1
            print(f"{target.name}: ended with {run.code}; its log is {run.log}")
        elif asked.keep:
            print(f"{target.name}: {kept_of(target, work)} inputs are kept")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
