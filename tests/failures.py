"""The tests of a run that failed, by name, and a run of those alone.

After a run in which tests failed, `build/failed-TARGET.txt` names them, one a line; after any other
run there is none, also where pytest itself failed or was interrupted. `WHARFINGER_TEST_ONLY=FILE`
runs the tests that FILE names and no other. `.ci/run` uses both to try a failed test by itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.hunting import TARGET

ONLY = "WHARFINGER_TEST_ONLY"


class Failures:
    """A pytest plugin."""

    def __init__(self) -> None:
        target = os.environ.get(TARGET)
        self._written = Path("build", f"failed-{target}.txt") if target else None
        only = os.environ.get(ONLY)
        self._only = set(Path(only).read_text().splitlines()) if only else None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[Any]) -> None:
        if self._only is None:
            return
        others = [item for item in items if item.nodeid not in self._only]
        items[:] = [item for item in items if item.nodeid in self._only]
        config.hook.pytest_deselected(items=others)

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        if self._written is None or self._only is not None:
            return
        if exitstatus != pytest.ExitCode.TESTS_FAILED:
            self._written.unlink(missing_ok=True)
            return
        reports = [r for kind in ("failed", "error") for r in terminalreporter.stats.get(kind, [])]
        self._written.parent.mkdir(exist_ok=True)
        self._written.write_text(
            "".join(f"{r.nodeid}\n" for r in {r.nodeid: r for r in reports}.values())
        )
