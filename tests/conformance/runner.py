"""Asks every case of a system's suites and says, one line a suite, how many are answered the same.

A deviation is a rule over the input, written in `deviations.toml` with its reason; deviations are counted apart.
"""

from __future__ import annotations

import gzip
import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance import karmada

HERE = Path(__file__).parent


@dataclass(slots=True)
class SuiteResult:
    suite: str
    total: int = 0
    passed: int = 0
    deviating: int = 0
    failed: list[str] = field(default_factory=list)

    def line(self) -> str:
        passed = f"{self.passed}+{self.deviating}" if self.deviating else str(self.passed)
        return f"{self.suite} {passed}/{self.total}"


@dataclass(frozen=True, slots=True)
class Deviation:
    """`when`: dotted path into the input and a test of the value found there; `instead`: what our answer holds."""

    suite: str
    path: str
    test: str
    value: Any
    reason: str
    instead: dict[str, Any]

    def covers(self, suite: str, given: dict[str, Any]) -> bool:
        return suite == self.suite and any(self._holds(v) for v in values_at(given, self.path.split(".")))

    def _holds(self, value: Any) -> bool:
        match self.test:
            case "is":
                return bool(value == self.value)
            case "is not":
                return bool(value != self.value)
            case "present":
                return value is not None
            case _:
                raise ValueError(f"deviations.toml: unknown test {self.test!r}")


def values_at(node: Any, path: list[str]) -> Iterator[Any]:
    """Every value a path leads to: `*` goes through all items of a list or mapping. A path that ends early gives None."""
    if not path:
        yield node
    elif path[0] == "*":
        for child in node.values() if isinstance(node, dict) else node or []:
            yield from values_at(child, path[1:])
    elif isinstance(node, dict):
        yield from values_at(node.get(path[0]), path[1:])
    elif len(path) >= 1 and node is None:
        yield None


def deviations(system: str) -> list[Deviation]:
    rules = tomllib.loads((HERE / "deviations.toml").read_text()).get(system, [])
    return [
        Deviation(r["suite"], r["path"], r["test"], r.get("value"), r["reason"], r.get("instead", {})) for r in rules
    ]


def read_suites(system: str, directory: Path | None) -> dict[str, list[dict[str, Any]]]:
    directory = directory or HERE / "vectors" / system
    files = sorted([*directory.glob("*.json"), *directory.glob("*.json.gz")])
    if not files:
        raise FileNotFoundError(f"{directory}: no vectors there")
    out = {}
    for file in files:
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        document = json.loads(raw)
        out[document["suite"]] = document["cases"]
    return out


def run_suite(
    suite: str, cases: list[dict[str, Any]], answer: Callable[[dict[str, Any]], dict[str, Any]], rules: list[Deviation]
) -> SuiteResult:
    result = SuiteResult(suite)
    for case in cases:
        result.total += 1
        rule = next((r for r in rules if r.covers(suite, case["input"])), None)
        got = answer(case["input"])
        if karmada.agrees(got, karmada.expected(suite, case["expect"])):
            result.passed += 1
        elif rule is not None and all(got.get(k) == v for k, v in rule.instead.items()):
            result.deviating += 1
        else:
            result.failed.append(case["name"])
    return result


def run(system: str, directory: Path | None = None, only: str = "") -> list[SuiteResult]:
    """Every suite of the system that is asked so far; a suite named that is not asked is an error."""
    if system != "karmada":
        raise ValueError(f"{system}: no such system is asked yet; known: karmada")
    suites = read_suites(system, directory)
    if only and (only not in karmada.SUITES or only not in suites):
        raise ValueError(f"{only}: no such suite is asked; known: {', '.join(karmada.SUITES)}")
    rules = deviations(system)
    return [
        run_suite(name, cases, karmada.SUITES[name], rules)
        for name, cases in suites.items()
        if name in karmada.SUITES and (not only or name == only)
    ]


def show(suite: str, case: dict[str, Any]) -> None:
    out = sys.stdout
    out.write(json.dumps({"input": case["input"]}, indent=1) + "\n")
    out.write(json.dumps({"expected": karmada.expected(suite, case["expect"])}) + "\n")
    out.write(json.dumps({"actual": karmada.SUITES[suite](case["input"])}) + "\n")
