"""Rolling back on a running plane, by the commands a user has, and with the command killed in the
middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.patience import PATIENCE_S
from tests.planes import assert_whole, settled

pytestmark = [pytest.mark.integration, pytest.mark.long]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BOOKING = "harbour/booking-deployment"
KILLED_AFTER_S = (0.5, 0.8, 1.1, 1.4)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[PlaneUnderTest]:
    """The examples' fleet, with `booking` scaled from 6 to 8."""
    with a_plane() as plane:
        plane.up()
        plane.command(
            "apply", *(f"-f{EXAMPLES / part}" for part in ("fleet", "policies", "workloads"))
        )
        settled(plane)
        told = (EXAMPLES / "workloads" / "booking.yaml").read_text()
        (tmp_path / "booking.yaml").write_text(told.replace("replicas: 6", "replicas: 8"))
        plane.command("apply", "-f", str(tmp_path / "booking.yaml"))
        settled(plane)
        yield plane


def decided(plane: PlaneUnderTest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plane.json("history", BOOKING, "--limit", "1000")["decisions"]
    return [d for d in found if d["type"] == "io.wharfinger.schedule.decided.v1"]


def targets(plane: PlaneUnderTest) -> dict[str, int]:
    (binding,) = plane.json("get", "bindings", BOOKING)
    return {t["cluster"]: t["replicas"] for t in binding["targets"]}


def asked(plane: PlaneUnderTest, *arguments: str) -> tuple[Any, int]:
    """The answer and the exit code of a command; where it has no answer, its error."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "wharfinger_cli",
            "--data-dir",
            str(plane.data_dir),
            *arguments,
            "-o",
            "json",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return (json.loads(done.stdout) if done.stdout else done.stderr), done.returncode


def test_a_binding_goes_back_and_forth_by_commands(plane: PlaneUnderTest) -> None:
    small, large = decided(plane)[-2:]
    here = targets(plane)
    found, code = asked(plane, "rollback", "booking", "--to", small["id"])
    assert (code, found["applied"], found["fields"]) == (1, False, ["replicas"])
    assert targets(plane) == here
    found, code = asked(plane, "rollback", "booking", "--to", small["id"], "--apply")
    assert (code, found["applied"]) == (0, True)
    assert targets(plane) == {t["cluster"]: t["replicas"] for t in small["data"]["targets"]}
    settled(plane)
    before = plane.json("status")["streams"]
    found, code = asked(plane, "rollback", "booking", "--to", small["id"], "--apply")
    assert (code, found["changes"]) == (0, False)
    assert plane.json("status")["streams"] == before
    assert asked(plane, "rollback", "booking", "--to", large["id"], "--apply")[1] == 0
    assert targets(plane) == here
    assert asked(plane, "rollback", "booking", "--to", "1999-01-01")[1] == 2
    error, code = asked(plane, "rollback", "nobody", "--to", "now")
    assert (code, "nobody" in error) == (1, True)
    settled(plane)
    difference, _ = asked(plane, "diff", f"fleet/0:{large['round']}", "now", "--stream", "fleet")
    assert difference["bindings"] == []
    assert_whole(plane)


def test_a_killed_roll_back_is_finished_by_asking_again(plane: PlaneUnderTest) -> None:
    small = decided(plane)[-2]
    before = len(decided(plane))
    for after_s in KILLED_AFTER_S:
        command = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "wharfinger_cli",
                "--data-dir",
                str(plane.data_dir),
                "rollback",
                "booking",
                "--to",
                small["id"],
                "--apply",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(after_s)
        os.kill(command.pid, signal.SIGKILL)
        command.wait()
    assert asked(plane, "rollback", "booking", "--to", small["id"], "--apply")[1] == 0
    assert targets(plane) == {t["cluster"]: t["replicas"] for t in small["data"]["targets"]}
    assert len(decided(plane)) == before + 1
    settled(plane)
    assert asked(plane, "rollback", "booking", "--to", small["id"])[0]["changes"] is False
    assert_whole(plane)
