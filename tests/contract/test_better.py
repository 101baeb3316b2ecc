"""Every claim of `docs/better.md` names a test, and the test is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(?:(tests/[\w/]+\.py)|…)(?:::(\w+))?`")


def test_every_test_that_is_named_exists() -> None:
    rows = [
        line
        for line in (ROOT / "docs/better.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| **")
    ]
    assert rows
    for row in rows:
        found = NAMED.findall(row)
        assert found, f"no proof: {row[:80]}"
        file = ""
        for path, test in found:
            file = path or file
            text = (ROOT / file).read_text(encoding="utf-8")
            assert f"def {test}(" in text or not test, f"{file} has no {test}"
