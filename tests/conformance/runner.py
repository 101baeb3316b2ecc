"""Asks every case of a system's suites and says, one line a suite, how many are answered the same.

A deviation is a rule over the input, written in `deviations.toml` with its reason; deviations are
counted apart. A case that cannot be answered at all (an object that our manifests refuse, an input
of another shape) has failed, with the sentence why.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tomllib
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from tests.conformance import crane, descheduler, karmada, kube, ocm

HERE = Path(__file__).parent

Json = dict[str, Any]


class System(Protocol):
    """A module that asks our own functions what its system was asked. Each function gets the whole
    case."""

    SUITES: Collection[str]

    def answer(self, suite: str, case: Json) -> Json:
        """Our answer: the keys that are compared."""

    def expected(self, suite: str, case: Json) -> Json:
        """The recorded answer in that shape."""

    def agrees(self, suite: str, got: Json, case: Json) -> bool: ...

    def path(self, suite: str, case: Json) -> str:
        """Which code answers: empty for what a plane runs; else why it is code that is only
        compared with (`tests/reference`)."""


SYSTEMS: dict[str, System] = {
    "crane": cast(System, crane),
    "descheduler": cast(System, descheduler),
    "karmada": cast(System, karmada),
    "kube": cast(System, kube),
    "ocm": cast(System, ocm),
}


class UnreadableError(Exception):
    """The vectors cannot be read, or nobody here can be asked them. One line."""


@dataclass(slots=True)
class SuiteResult:
    """`aside`: why a case is answered by code that no plane runs -> how many."""

    suite: str
    total: int = 0
    passed: int = 0
    deviating: int = 0
    failed: list[str] = field(default_factory=list)
    aside: Counter[str] = field(default_factory=Counter)

    @property
    def live(self) -> int:
        """How many were answered by what a plane runs."""
        return self.total - self.aside.total()

    def line(self) -> str:
        passed = f"{self.passed}+{self.deviating}" if self.deviating else str(self.passed)
        return f"{self.suite} {passed}/{self.total}"


@dataclass(frozen=True, slots=True)
class Deviation:
    """`path`: dotted, into the input, and a `test` of the value found there against `value`. What
    our answer holds there: `instead`, key by key, and for the keys of `lower` a number that is
    lower than the recorded one."""

    suite: str
    path: str
    test: str
    value: Any
    reason: str
    instead: Json
    lower: tuple[str, ...] = ()

    def holds(self, got: Json, expect: Json) -> bool:
        """Whether our answer is what the rule says that we do."""
        return all(got.get(key) == value for key, value in self.instead.items()) and all(
            key not in expect or got[key] < expect[key] for key in self.lower
        )

    def covers(self, suite: str, given: Json) -> bool:
        return suite == self.suite and any(
            self._holds(v) for v in values_at(given, self.path.split("."))
        )

    def _holds(self, value: Any) -> bool:
        match self.test:
            case "is":
                return bool(value == self.value)
            case "is not":
                return bool(value != self.value)
            case "present":
                return value is not None
            case "matches":
                return isinstance(value, str) and re.fullmatch(self.value, value) is not None
            case _:
                raise UnreadableError(f"deviations.toml: unknown test {self.test!r}")


def values_at(node: Any, path: list[str]) -> Iterator[Any]:
    """Every value a path leads to: `*` goes through all items of a list or mapping. A path that
    ends early gives None."""
    if not path:
        yield node
    elif path[0] == "*":
        for child in node.values() if isinstance(node, dict) else node or []:
            yield from values_at(child, path[1:])
    elif isinstance(node, dict):
        yield from values_at(node.get(path[0]), path[1:])
    elif node is None:
        yield None


def deviations(system: str) -> list[Deviation]:
    rules = tomllib.loads((HERE / "deviations.toml").read_text()).get(system, [])
    return [
        Deviation(
            r["suite"],
            r["path"],
            r["test"],
            r.get("value"),
            r["reason"],
            r.get("instead", {}),
            tuple(r.get("lower", ())),
        )
        for r in rules
    ]


# Reading


def system_named(name: str) -> System:
    if name not in SYSTEMS:
        raise UnreadableError(f"{name}: no such system is asked; known: {', '.join(SYSTEMS)}")
    return SYSTEMS[name]


def read_suites(system: str, directory: Path | None) -> dict[str, list[Json]]:
    """Suite -> its cases. Several files may hold parts of one suite. Raises UnreadableError."""
    directory = directory or HERE / "vectors" / system
    if not directory.is_dir():
        raise UnreadableError(f"{directory}: no such folder")
    files = sorted([*directory.glob("*.json"), *directory.glob("*.json.gz")])
    if not files:
        raise UnreadableError(f"{directory}: no vectors there")
    out: dict[str, list[Json]] = {}
    for file in files:
        suite, cases = _read_file(file)
        if suite not in system_named(system).SUITES:
            raise UnreadableError(
                f"{file}: {suite} is no suite of {system}; known: "
                f"{', '.join(SYSTEMS[system].SUITES)}"
            )
        out.setdefault(suite, []).extend(cases)
    return out


def _read_file(file: Path) -> tuple[str, list[Json]]:
    try:
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        document = json.loads(raw)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UnreadableError(f"{file}: cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise UnreadableError(f"{file}: no JSON: {error}") from None
    suite = document.get("suite", document.get("part")) if isinstance(document, dict) else None
    if not isinstance(suite, str):
        raise UnreadableError(f"{file}: expected an object with a suite")
    cases = document.get("cases", document.get("vectors"))
    if not isinstance(cases, list):
        raise UnreadableError(f"{file}: expected a list of cases or vectors")
    for i, case in enumerate(cases):
        if not isinstance(case, dict) or not name_of(case) or given(case) in (None, {}):
            raise UnreadableError(f"{file}: case {i}: expected a name or id and an input")
    return suite, cases


def name_of(case: Json) -> str:
    return str(case.get("name") or case.get("id") or "")


def given(case: Json) -> Any:
    """The input; in suites where it has no key of its own, what lies beside the name and the
    answer."""
    return (
        case["input"]
        if "input" in case
        else {key: case[key] for key in case if key not in ("name", "id", "expect", "expected")}
    )


# Asking


def answered(system: System, suite: str, case: Json) -> Json:
    """Our answer; `unanswerable` with a sentence where there is none."""
    try:
        return system.answer(suite, case)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return {"unanswerable": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}


def run_suite(system: System, suite: str, cases: list[Json], rules: list[Deviation]) -> SuiteResult:
    result = SuiteResult(suite)
    for case in cases:
        result.total += 1
        got = answered(system, suite, case)
        if "unanswerable" not in got and (aside := system.path(suite, case)):
            result.aside[aside] += 1
        if "unanswerable" not in got and _agrees(system, suite, got, case):
            result.passed += 1
        elif (
            rule := next((r for r in rules if r.covers(suite, given(case))), None)
        ) is not None and rule.holds(got, system.expected(suite, case)):
            result.deviating += 1
        else:
            result.failed.append(name_of(case))
    return result


def _agrees(system: System, suite: str, got: Json, case: Json) -> bool:
    try:
        return system.agrees(suite, got, case)
    except (KeyError, TypeError, AttributeError):
        return False  # what was recorded has another shape


def run(
    system: str, directory: Path | None = None, only: str = "", case: str = ""
) -> list[SuiteResult]:
    """Every suite, or only one, of every case, or only those of that name. Raises
    UnreadableError."""
    asked = system_named(system)
    suites = read_suites(system, directory)
    if only and only not in suites:
        raise UnreadableError(f"{only}: no such suite there; there are {', '.join(suites)}")
    rules = deviations(system)
    chosen = {
        suite: [c for c in cases if not case or name_of(c) == case]
        for suite, cases in suites.items()
        if not only or suite == only
    }
    if case and not any(chosen.values()):
        raise UnreadableError(f"{case}: no such case")
    return [run_suite(asked, suite, cases, rules) for suite, cases in chosen.items() if cases]


def show(system: str, directory: Path | None, only: str, name: str) -> None:
    """Input, expected and actual answer of the cases of that name."""
    asked, out = system_named(system), sys.stdout
    for suite, cases in read_suites(system, directory).items():
        for case in cases:
            if name_of(case) == name and (not only or suite == only):
                out.write(f"{suite} {name}\n")
                out.write(json.dumps({"input": given(case)}, indent=1) + "\n")
                out.write(json.dumps({"expected": asked.expected(suite, case)}) + "\n")
                out.write(json.dumps({"actual": answered(asked, suite, case)}) + "\n")
