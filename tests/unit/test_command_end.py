"""A command that has done its work ends with its own exit code, whatever still runs in the
background."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# The exit handler stands for a library that cannot be destroyed while a thread is in it, as a
# compiler cannot.
COMMAND = """
import atexit, os, sys, threading, time
atexit.register(os.abort)
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
from wharfinger_cli.__main__ import program
sys.argv = ["wharfinger", *{arguments!r}]
program()
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND.format(arguments=arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_was_printed_is_whole_and_the_code_is_zero() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "Usage: wharfinger" in done.stdout


def test_a_failure_keeps_its_line_and_its_code() -> None:
    done = run("generate", "fleet")
    assert done.returncode == 2
    assert done.stderr == "wharfinger: generate fleet: expected one of --out FILE and --apply\n"


CUT_OFF = """
import wharfinger_cli.__main__ as command

def main():
    try:
        exec("raise KeyboardInterrupt")  # as in the class body of a dataclass, during an import
    except KeyboardInterrupt:
        return 130

command.main = main
command.program()
"""


def test_one_that_is_interrupted_during_an_import_ends_with_its_code_too(tmp_path: Path) -> None:
    (tmp_path / "cut_off.py").write_text(CUT_OFF)
    done = subprocess.run([sys.executable, "-m", "cut_off"], cwd=tmp_path, check=False)
    assert done.returncode == 130
