"""kill -9 in the middle of the work: nothing lost, nothing twice, the history holds.

A generated fleet when the real trace is not at hand; each victim in a plane of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psutil
import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.planes import assert_whole, current_outcomes, data_file, kill, runs, settled, until

NODES = data_file("openb", "openb_node_list_all_node.csv")
PODS = data_file("openb", "openb_pod_list_default.csv")

BINDINGS = 1200

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

SERVICES = (
    "one",
    "controllers",
    pytest.param("scheduler", marks=pytest.mark.long),
    pytest.param("publisher", marks=pytest.mark.long),
    pytest.param("estimator", marks=pytest.mark.long),
    pytest.param("descheduler", marks=pytest.mark.long),
    pytest.param("annotator", marks=pytest.mark.long),
)
"""`one`: the process in which all of them run where there is one core; `controllers`: all but the
scheduler, where there are two."""


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
    try:
        status = plane.json("status")
    except RuntimeError:  # there is no database to ask
        return 0
    return sum(head["seq"] for name, head in status["streams"].items() if name != "intake")


def until_decided(plane: PlaneUnderTest, count: int, feeding: threading.Thread) -> None:
    until(lambda: decided(plane) > count or not feeding.is_alive())


def living(plane: PlaneUnderTest, process: str) -> int:
    """Its pid, once it runs: after a kill it may be on its way up."""

    def pid() -> int:
        try:
            status = plane.json("status")
        except RuntimeError:  # the database recovers from a kill
            return 0
        return int(status["processes"].get(process, {}).get("pid") or 0)

    until(lambda: pid() and psutil.pid_exists(pid()))
    return pid()


def assert_nothing_lost(plane: PlaneUnderTest) -> None:
    settled(plane, BINDINGS)
    fleet, _ = current_outcomes(assert_whole(plane))
    assert len(fleet) == BINDINGS


@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_service_is_restarted_and_nothing_is_lost(
    plane: PlaneUnderTest, service: str
) -> None:
    plane.up("--processes", {"one": "one", "controllers": "two"}.get(service, "each"))
    feeding = feed(plane)
    until(lambda: decided(plane) > 100)
    victim = plane.json("status")["processes"][service]["pid"]
    kill(victim)
    feeding.join()
    assert_nothing_lost(plane)
    assert plane.json("status")["processes"][service]["pid"] != victim


@pytest.mark.long
def test_a_killed_broker_forgets_everything_and_nothing_is_lost(plane: PlaneUnderTest) -> None:
    plane.up()
    feeding = feed(plane)
    until(lambda: decided(plane) > 100)
    kill(_broker_pid(plane))
    feeding.join()
    assert_nothing_lost(plane)


@pytest.mark.long
def test_a_killed_database_is_recovered_and_nothing_is_lost(plane: PlaneUnderTest) -> None:
    """The postmaster: its backends end with it, in whatever transaction they are. What was answered
    is on the disk."""
    plane.up()
    feeding = feed(plane)
    until(lambda: decided(plane) > 100)
    victim = int(plane.json("status")["processes"]["database"]["pid"])
    kill(victim)
    feeding.join()
    # what was cut off in the middle is accepted the second time, and what was accepted only once
    until(lambda: decided(plane) > 0)  # the database recovers
    feed(plane).join()
    assert_nothing_lost(plane)
    assert plane.json("status")["processes"]["database"]["pid"] != victim


@pytest.mark.long
def test_everything_killed_one_after_the_other_loses_nothing(plane: PlaneUnderTest) -> None:
    plane.up("--processes", "each")
    feeding = feed(plane)
    for number, victim in enumerate(
        ("scheduler", "database", "publisher", "broker", "estimator"), 1
    ):
        until_decided(plane, 300 * number, feeding)
        kill(living(plane, victim))
    feeding.join()
    until(lambda: decided(plane) > 0)  # the database recovers
    feed(plane).join()
    assert_nothing_lost(plane)


@pytest.mark.long
@pytest.mark.data
@pytest.mark.skipif(
    NODES is None or PODS is None, reason="the openb trace is not at hand: set WHARFINGER_DATA"
)
def test_the_openb_run_goes_on_without_its_broker_and_its_scheduler(plane: PlaneUnderTest) -> None:
    plane.up("--processes", "each")
    plane.command("import", "openb", "--nodes", str(NODES), "--pods", str(PODS))
    until(lambda: decided(plane) > 500)
    kill(_broker_pid(plane))
    until(lambda: decided(plane) > 3000)
    kill(living(plane, "scheduler"))
    settled(plane, 8152)
    fleet, _ = current_outcomes(assert_whole(plane))
    assert len(fleet) == 8152


@pytest.mark.long
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


@pytest.mark.long
def test_down_leaves_no_process_behind(plane: PlaneUnderTest) -> None:
    plane.up()
    pids = [p["pid"] for p in plane.json("status")["processes"].values()]
    assert pids
    plane.down()
    until(lambda: not [pid for pid in pids if runs(pid)])
