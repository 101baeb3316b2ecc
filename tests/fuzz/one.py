"""One target under atheris, in a process of its own: `python -m tests.fuzz.one NAME DIRECTORY ...`
with libFuzzer's arguments. `python -m tests.fuzz` starts it.

What reads is instrumented as it is imported, so nothing of it may be imported before.
"""

from __future__ import annotations

import sys
import zlib
from contextlib import ExitStack

import atheris
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import PLACES, target_of

OUTCOMES = 4096
"""Counters for what comes of inputs: readers that are compiled have none of their own."""


def main(name: str, arguments: list[str]) -> None:
    """Ends the process."""
    with atheris.instrument_imports(include=list(PLACES[name].instrumented)):
        target = target_of(name)

    counters = [atheris.native._reserve_counter() for _ in range(OUTCOMES)]
    stack = ExitStack()
    check = stack.enter_context(target.opened())

    def one_input(data: bytes) -> None:
        outcome = check(data)
        atheris.native._trace_branch(counters[zlib.crc32(outcome.encode()) % OUTCOMES])

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        return mutated(data, most, seed, atheris.Mutate)

    atheris.Setup([sys.argv[0], *arguments], one_input, custom_mutator=mutator)
    try:
        atheris.Fuzz()
    finally:
        stack.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
