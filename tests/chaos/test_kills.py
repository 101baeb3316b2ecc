"""kill -9 in the middle of the work: nothing lost, nothing twice, the history holds.

A generated fleet when the real trace is not at hand; each victim in a plane of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.planes import assert_whole, current_outcomes, kill, settled, until

BINDINGS = 1500

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(300)]

SERVICES = ("annotator", "estimator", "scheduler", "descheduler", "publisher")


@pytest.fixture
def plane() -> Iterator[PlaneUnderTest]:
    with a_plane() as plane:
        yield plane


def feed(plane: PlaneUnderTest) -> threading.Thread:
    """A fleet and its bindings, accepted while the test goes on."""
    feeding = threading.Thread(
        target=plane.command,
        args=(
            "generate",
            "fleet",
            "--clusters",
            "6",
            "--nodes",
            "120",
            "--bindings",
            str(BINDINGS),
            "--seed",
            "7",
            "--apply",
        ),
    )
    feeding.start()
    return feeding


def decided(plane: PlaneUnderTest) -> int:
    status = plane.json("status")
    return sum(head["seq"] for name, head in status["streams"].items() if name != "intake")


def assert_nothing_lost(plane: PlaneUnderTest) -> None:
    settled(plane)
    fleet, _ = current_outcomes(assert_whole(plane))
    assert len(fleet) == BINDINGS


@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_service_is_restarted_and_nothing_is_lost(plane: PlaneUnderTest, service: str) -> None:
    plane.up("--processes", "each")
    feeding = feed(plane)
    until(lambda: decided(plane) > 100)
    victim = plane.json("status")["processes"][service]["pid"]
    kill(victim)
    feeding.join()
    assert_nothing_lost(plane)
    assert plane.json("status")["processes"][service]["pid"] != victim


def test_a_killed_broker_forgets_everything_and_nothing_is_lost(plane: PlaneUnderTest) -> None:
    plane.up()
    feeding = feed(plane)
    until(lambda: decided(plane) > 100)
    kill(_broker_pid(plane))
    feeding.join()
    assert_nothing_lost(plane)


def test_a_killed_supervisor_is_replaced_by_the_next_up(plane: PlaneUnderTest) -> None:
    plane.up()
    feeding = feed(plane)
    until(lambda: decided(plane) > 100)
    kill(int(plane.plane()["supervisor_pid"]))
    feeding.join()
    plane.up()
    assert_nothing_lost(plane)


def _broker_pid(plane: PlaneUnderTest) -> int:
    return int(plane.json("status")["processes"]["broker"]["pid"])


def test_down_leaves_no_process_behind(plane: PlaneUnderTest) -> None:
    plane.up()
    pids = [p["pid"] for p in plane.json("status")["processes"].values()]
    assert pids
    plane.down()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
