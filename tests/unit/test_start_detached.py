"""A plane that is started in the background, and an interrupt at the worst moment."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from wharfinger_cli import lifecycle


def test_an_interrupt_while_the_process_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operating system has made it, and nothing has been returned yet."""
    made: list[int] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            lifecycle.start_detached(tmp_path, {}, lambda step: None)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        (pid,) = made
        assert not psutil.pid_exists(pid)
    finally:
        signal.signal(signal.SIGINT, before)
        for pid in filter(psutil.pid_exists, made):
            psutil.Process(pid).kill()
