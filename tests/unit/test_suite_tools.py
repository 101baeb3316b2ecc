"""What the tests themselves stand on: nothing outlives them, a failure can be brought back, a run
ends in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.deadline import UNTIL
from tests.failures import ONLY
from tests.hunting import EXAMPLES, PROFILE, SEED, TARGET
from tests.patience import until

ROOT = Path(__file__).resolve().parents[2]

FAILING = """\
from hypothesis import given, strategies as st

@given(st.integers())
def test_small(number):
    assert number < 1000
"""

STARTER = """\
import subprocess, sys, time
from tests.watchdog import Watchdog
Watchdog.start()
left = subprocess.Popen(["sleep", "3600"], start_new_session=True)
print(left.pid, flush=True)
time.sleep(3600)
"""


def environment(**extra: str) -> dict[str, str]:
    ours = (SEED, PROFILE, EXAMPLES, UNTIL, TARGET, ONLY)
    plain = {name: value for name, value in os.environ.items() if name not in ours}
    return {**plain, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **extra}


def suite(tmp_path: Path, **extra: str) -> str:
    """What pytest prints for one failing property, under our conftest."""
    tests = tmp_path / "laws"
    if not tests.is_dir():
        tests.mkdir()
        (tests / "conftest.py").write_text("from tests.conftest import *\n")
        (tests / "test_failing.py").write_text(FAILING)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tests)],
        cwd=tmp_path,
        env=environment(**{EXAMPLES: str(tmp_path / "kept"), "TMPDIR": str(tmp_path), **extra}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_a_failed_property_is_brought_back_by_its_seed_and_its_example_is_kept(
    tmp_path: Path,
) -> None:
    said = suite(tmp_path)
    (line,) = [line for line in said.splitlines() if line.startswith("reproduce: ")]
    seed = line.partition("SEED=")[2].partition(" ")[0]
    assert f"seed {seed}," in said
    assert "test_failing.py::test_small" in line
    assert any(path.is_file() for path in (tmp_path / "kept").rglob("*"))
    again = suite(tmp_path, **{SEED: seed, PROFILE: "long"})
    assert "profile quick" in said
    assert "profile long" in again
    assert f"SEED={seed} " in again


def test_when_the_time_is_used_up_no_test_begins_and_each_is_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_late.py").write_text("def test_fails():\n    assert False\n")

    def run(until: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
            cwd=tmp_path,
            env=environment(**{UNTIL: str(until), "TMPDIR": str(tmp_path)}),
            capture_output=True,
            text=True,
            check=False,
        )

    late, early = run(1.0), run(2.0**40)
    assert late.returncode == 0, late.stdout + late.stderr
    assert "not run: test_late.py::test_fails" in late.stdout.splitlines()
    assert "1 skipped" in late.stdout
    assert early.returncode == 1
    assert "not run:" not in early.stdout


def test_failed_tests_are_named_in_a_file_and_run_alone_by_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_some.py").write_text(
        "from pathlib import Path\n"
        "def test_passes():\n    Path('passed').touch()\n"
        "def test_fails():\n    assert Path('mended').exists()\n"
    )
    failed = tmp_path / "build" / "failed-test.txt"

    def run(*arguments: str, **extra: str) -> int:
        Path(tmp_path, "passed").unlink(missing_ok=True)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(tmp_path)],
            cwd=tmp_path,
            env=environment(**{TARGET: "test", "TMPDIR": str(tmp_path), **extra}),
            capture_output=True,
            check=False,
        ).returncode

    assert run("-n", "2") == pytest.ExitCode.TESTS_FAILED
    assert failed.read_text() == "test_some.py::test_fails\n"
    Path(tmp_path, "mended").touch()
    assert run(**{ONLY: str(failed)}) == pytest.ExitCode.OK
    assert not Path(tmp_path, "passed").exists()
    assert failed.exists()
    assert run() == pytest.ExitCode.OK
    assert not failed.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_tests_that_are_killed(number: signal.Signals) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert starter.stdout is not None
        left = psutil.Process(int(starter.stdout.readline()))
        assert left.is_running()
        starter.send_signal(number)
        starter.wait()
        starter.stdout.close()
        until(lambda: not left.is_running())
    finally:
        starter.kill()


@pytest.mark.parametrize(
    ("target", "named", "all_in"),
    [
        ("test-kube", "'tests/kube/test_act.py::test_some[one]' -s", "tests/kube"),
        ("test-kafka", "'tests/integration/test_feed.py'", "tests/integration"),
    ],
)
def test_a_test_that_is_named_runs_alone(target: str, named: str, all_in: str) -> None:
    def words(arguments: str) -> list[str]:
        done = subprocess.run(
            ["make", "--no-print-directory", "-n", target, f"ARGS={arguments}"],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    assert all_in in words("-x")
    assert all_in not in words(named)
    assert named.split()[0] in words(named)
