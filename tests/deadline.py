"""A run that has to end in time: from a moment on, no further test begins.

CI has a fixed time, and a busy machine takes several times as long for the same tests. What is left
out is named one by one at the end of the run. Without `WHARFINGER_TEST_UNTIL` every test runs.
"""

from __future__ import annotations

import os
import time

import pytest

UNTIL = "WHARFINGER_TEST_UNTIL"
"""Seconds since 1970, as `date +%s` prints them."""

REASON = "not run: the time of this run is used up"


class Deadline:
    """A pytest plugin."""

    def __init__(self) -> None:
        self._until_s = float(os.environ.get(UNTIL, "inf"))

    @pytest.hookimpl(tryfirst=True)  # before a fixture starts a server
    def pytest_runtest_setup(self) -> None:
        if time.time() >= self._until_s:
            pytest.skip(REASON)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        skipped = terminalreporter.stats.get("skipped", [])
        for report in skipped:
            if REASON in str(report.longrepr):
                terminalreporter.write_line(f"not run: {report.nodeid}")
