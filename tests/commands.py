"""A command of Wharfinger in the process of the test: half a processor second less than one in a
process of its own.

For what a command prints and with which code it ends. Signals, closed pipes, what a command imports
and what it starts are tested with processes.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from unittest.mock import patch

from wharfinger_cli.__main__ import main


def in_process(
    arguments: list[str], environment: Mapping[str, str], stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """`wharfinger ARGUMENTS` with this environment alone. What `main` does not turn into a line is
    raised here. Not beside other threads that start processes: the environment is this process'."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    with (
        patch.dict(os.environ, environment, clear=True),
        patch.multiple(
            sys,
            argv=["wharfinger", *arguments],
            stdin=io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"),
            stdout=out,
            stderr=err,
        ),
    ):
        code = main()
    return subprocess.CompletedProcess(arguments, code, _text_of(out), _text_of(err))


def _text_of(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()
