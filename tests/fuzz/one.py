"""One target under atheris, in a process of its own: `python -m tests.fuzz.one NAME DIRECTORY ...`
with libFuzzer's arguments. `python -m tests.fuzz` starts it.

What reads is instrumented as it is imported, so nothing of it may be imported before.
"""

# mypy: disable-error-code="attr-defined"
# (atheris does not say what it exports)

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import atheris
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import PLACES, target_of

OUTCOMES = 4096
"""Counters for what comes of inputs: readers that are compiled have none of their own."""


def main(name: str, arguments: list[str]) -> None:
    """Ends the process."""
    wanted = PLACES[name].instrumented
    with atheris.instrument_imports(include=list(wanted), exclude=list(others(wanted))):
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


def others(wanted: Sequence[str]) -> Iterator[str]:
    """The modules of the same distributions that are not wanted: atheris takes a package whole."""
    for package in sorted({name.partition(".")[0] for name in wanted}):
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            for file in sorted(Path(folder).rglob("*.py")):
                parts = file.relative_to(folder).with_suffix("").parts
                name = ".".join((package, *parts)).removesuffix(".__init__")
                if not any(name == one or name.startswith(f"{one}.") for one in wanted):
                    yield name


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
