"""`docs/conformance.md` says which code answers which suite: its numbers are those of the tests."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path

from tests.conformance import runner, test_crane, test_karmada, test_kube

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
ROW = re.compile(r"\| (\w+) \| ([\w-]+) \| ([0-9,]+) \| ([0-9,]+) \| .+ \|")

ASIDE: dict[tuple[str, str], int] = {
    **{("crane", suite): sum(why.values()) for suite, why in test_crane.ASIDE.items()},
    **{("kube", suite): n for suite, n in test_kube.ASIDE.items()},
    **{("karmada", suite): n for suite, n in test_karmada.ASIDE.items()},
}


def rows() -> dict[tuple[str, str], tuple[int, int]]:
    """(system, suite) -> cases, and how many a plane's code answers."""
    found = (ROW.fullmatch(line) for line in PAGE.read_text().splitlines())
    return {(f[1], f[2]): (int(f[3]), int(f[4])) for f in found if f}


def test_the_page_has_every_suite_with_its_number_of_cases() -> None:
    cases: Counter[tuple[str, str]] = Counter()
    for system in runner.SYSTEMS:
        for file in (runner.HERE / "vectors" / system).glob("*.json.gz"):
            document = json.loads(gzip.decompress(file.read_bytes()))
            suite = document.get("suite", document.get("part"))
            cases[system, suite] += len(document.get("cases", document.get("vectors")))
    assert {key: n for key, (n, _) in rows().items()} == cases
    assert f"{cases.total():,} questions" in PAGE.read_text()


def test_the_page_says_how_many_a_planes_code_answers() -> None:
    for key, (cases, live) in rows().items():
        assert cases - live == ASIDE.get(key, 0), key
