"""The demonstration on real API servers, where it cannot run."""

from __future__ import annotations

import pytest
from infra.kube.demo import main


def test_without_go_one_line_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main() == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err == ("demo-kube: real API servers are built with Go, and go is not on PATH\n")
