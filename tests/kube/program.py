"""A program of others that runs beside a test."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from wharfinger.runtime.processes import die_with_parent, last_lines


@contextmanager
def program(
    log: Path, command: Sequence[str], variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """It runs meanwhile, and has not ended by itself. `log`: what it prints is added to this file.
    `variables`: of its environment, besides those of the test. On the main thread: with the thread
    that starts it, it ends."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(variables or {})},
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
    try:
        yield process
        name = Path(command[0]).name
        assert process.poll() is None, f"{name} ended: {last_lines(log.read_text(), 3)}"
    finally:
        process.kill()
        process.wait()
