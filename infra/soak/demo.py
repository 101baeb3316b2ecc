"""`make demo-soak`: the demonstration as the first command of a fresh clone, again and again,
beside a load on every core.

Each run has a copy of the sources that git knows of, without byte code and without compiled
kernels, and the interpreter of this tree. The load is one endless loop a core, of the
demonstration's own priority. Every run must end with 0, show that replicas were placed elsewhere
and that nodes were made and taken away, and leave no process and no file. One closing line sums it
up.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
MEANT = (
    re.compile(r"^308 bindings decided in .*: 308 scheduled$", re.M),
    re.compile(r"^[1-9]\d* bindings placed elsewhere too", re.M),
    re.compile(r"^nodes made, and taken away again +[1-9]\d*, [1-9]\d* ", re.M),
    re.compile(r"^divergences +0 *$", re.M),
    re.compile(r"^everything that was started is stopped$", re.M),
)
_PR_SET_PDEATHSIG = 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument(
        "--load", type=int, default=os.cpu_count() or 1, help="endless loops beside it"
    )
    arguments = parser.parse_args()
    seconds: list[float] = []
    failures = 0
    with load(arguments.load):
        for number in range(1, arguments.runs + 1):
            began = time.monotonic()
            wrong = one_run()
            took_s = time.monotonic() - began
            print(
                f"demo-soak: run {number} of {arguments.runs}: {wrong or 'succeeded'} in "
                f"{took_s:.0f} s",
                flush=True,
            )
            failures += bool(wrong)
            seconds.append(took_s)
    print(
        f"demo-soak: {arguments.runs - failures} of {arguments.runs} succeeded beside "
        f"{arguments.load} busy processes on"
        f" {os.cpu_count()} cores, {min(seconds):.0f} to {max(seconds):.0f} s each, "
        f"median {statistics.median(seconds):.0f} s"
    )
    return 1 if failures else 0


def one_run() -> str:
    """What was wrong with it, "" for nothing. What it has printed follows on standard error."""
    with tempfile.TemporaryDirectory(prefix="wd-") as directory:
        clone, work = Path(directory) / "clone", Path(directory) / "work"
        copy_sources(clone)
        work.mkdir()
        Path(directory).chmod(0o755)  # the embedded database is another user's where we are root
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("WHARFINGER_")
        }
        environment |= {
            "PYTHONPATH": f"{clone / 'shared'}:{clone / 'services'}",
            "TMPDIR": str(work),
        }
        done = subprocess.run(
            [sys.executable, "-m", "wharfinger_cli", "demo"],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        left = [path.name for path in work.iterdir() if path.name != "what-if.html"]
        wrong = [f"exit code {done.returncode}"] if done.returncode else []
        wrong += [
            f"does not say {meant.pattern!r}" for meant in MEANT if not meant.search(done.stdout)
        ]
        wrong += [f"left {name}" for name in [*left, *processes_in(Path(directory))]]
        if wrong:
            print(done.stdout, file=sys.stderr)
        return "; ".join(wrong)


def copy_sources(to: Path) -> None:
    """Files that are in git, or would be: no byte code, no compiled kernels, no state."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)


def processes_in(directory: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if str(directory) in " ".join([*process.cmdline(), *process.environ().values()]):
                found.append(f"process {process.pid} {process.name()}")
        except psutil.Error:
            continue
    return found


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many endless loops, which end with us, however we end."""
    libc = ctypes.CDLL(None)

    def end_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))

    children = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=end_with_parent)
        for _ in range(processes)
    ]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


if __name__ == "__main__":
    sys.exit(main())
