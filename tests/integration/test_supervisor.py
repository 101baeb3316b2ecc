"""The supervisor keeps a plane up: what is killed comes back, what is left over is found, nothing
outlives `down`."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.integration.fake_plane import replace_services
from tests.patience import PATIENCE_S, until
from tests.processes import lives

from wharfinger.runtime.children import PAUSE_S_FIRST
from wharfinger.runtime.plane import Plane, PlaneError, read_plane
from wharfinger.runtime.process_status import read_record
from wharfinger.runtime.processes import ProcessIdentity
from wharfinger.runtime.supervisor import Supervisor, take_down, without_password

pytestmark = pytest.mark.integration

NAMES = ("annotator", "publisher")


class Harbour:
    """One data directory and the supervisors that were started on it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.supervisor: subprocess.Popen[str] | None = None

    def launch(self, *settings: str) -> subprocess.Popen[str]:
        """`settings` as `NAME=value`, for the supervisor's environment."""
        environment = {n: v for n, v in os.environ.items() if not n.startswith("WHARFINGER_")}
        environment["WHARFINGER_OWNER_PID"] = str(os.getpid())
        environment |= dict(setting.split("=", 1) for setting in settings)
        environment["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), *sys.path])
        self.supervisor = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.fake_plane", str(self.data_dir), *NAMES],
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        return self.supervisor

    def up(self, *settings: str) -> Plane:
        supervisor = self.launch(*settings)
        self.until(lambda: supervisor.poll() is not None or self.ready_under(supervisor.pid))
        assert supervisor.poll() is None, supervisor.stderr and supervisor.stderr.read()
        return self.plane()

    def ready_under(self, pid: int) -> bool:
        plane = read_plane(self.data_dir)
        return plane is not None and plane.supervisor_pid == pid

    def plane(self) -> Plane:
        plane = read_plane(self.data_dir)
        assert plane is not None, self.ended()
        return plane

    def ended(self) -> str:
        """What the supervisor has written, once it has ended."""
        assert self.supervisor is not None
        assert self.supervisor.stderr is not None
        if self.supervisor.poll() is None and read_record(self.data_dir) is not None:
            return "it runs"
        self.supervisor.wait()
        return self.supervisor.stderr.read()

    def end_of(self, plane: Plane) -> str:
        """Wait until the plane has ended by itself, with nothing of it left; the last line that its
        supervisor wrote."""
        assert self.supervisor is not None
        assert self.supervisor.stderr is not None
        _, written = self.supervisor.communicate()
        assert self.supervisor.returncode == 2, written
        assert running(dict(plane.pids)) == set()
        last: str = written.splitlines()[-1]
        return last

    def changed(self, before: Plane, *names: str) -> Plane:
        """Wait until each of these has another pid; the plane then."""
        self.until(
            lambda: all(self.plane().pids.get(n, before.pids[n]) != before.pids[n] for n in names)
        )
        return self.plane()

    def log(self, name: str) -> list[str]:
        """What the process said, without the times."""
        return [line.partition(" at ")[0] for line in self._lines(name)]

    def _lines(self, name: str) -> list[str]:
        return (self.data_dir / "log" / f"{name}.log").read_text().splitlines()

    def births(self, name: str) -> list[float]:
        """When each process of this name began, by the monotonic clock."""
        return [
            float(line.rpartition(" at ")[2])
            for line in self._lines(name)
            if line.startswith("born under ")
        ]

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, seen=lambda: read_record(self.data_dir))


@contextmanager
def a_harbour(data_dir: Path) -> Iterator[Harbour]:
    from wharfinger.runtime import children

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(children, "MODULES", children.MODULES)  # so that the replacement is undone
        patch.setattr(children, "EACH", children.EACH)
        replace_services(NAMES)
        harbour = Harbour(data_dir)
        try:
            yield harbour
        finally:
            take_down(harbour.data_dir)
            if harbour.supervisor is not None:
                harbour.supervisor.wait(timeout=PATIENCE_S)
                assert harbour.supervisor.stderr is not None
                harbour.supervisor.stderr.close()


@pytest.fixture
def harbour(tmp_path: Path) -> Iterator[Harbour]:
    with a_harbour(tmp_path / "plane") as harbour:
        yield harbour


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbour]:
    """One plane for the tests after which it stands again: what they kill is started again."""
    with a_harbour(tmp_path_factory.mktemp("standing") / "plane") as harbour:
        harbour.up()
        yield harbour


def remove(directory: Path) -> None:
    """As `rm -rf`, also where a running server makes a file in it meanwhile."""
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)


def kill(pid: int) -> None:
    """-9, and gone: a corpse that its parent has not collected yet counts as gone."""
    os.kill(pid, signal.SIGKILL)
    while lives(pid):
        time.sleep(0.01)


def running(pids: dict[str, int]) -> set[str]:
    return {n for n, p in pids.items() if lives(p)}


def test_a_plane_comes_up_says_where_it_is_and_goes_down_whole(harbour: Harbour) -> None:
    plane = harbour.up()
    assert set(plane.pids) == {*NAMES, "broker", "database"}
    assert set(plane.http_ports) == set(NAMES)
    assert running(dict(plane.pids)) == set(plane.pids)

    assert take_down(harbour.data_dir) == ["supervisor"]

    assert running(dict(plane.pids)) == set()
    assert read_plane(harbour.data_dir) is None
    assert read_record(harbour.data_dir) is None
    assert take_down(harbour.data_dir) == []


def test_a_killed_process_is_started_again_alone(standing: Harbour) -> None:
    before = standing.plane()
    kill(before.pids["publisher"])
    after = standing.changed(before, "publisher")
    assert after.boot_id == before.boot_id
    assert after.pids["annotator"] == before.pids["annotator"]
    assert standing.log("publisher")[-2:] == [f"born under {before.boot_id}"] * 2


def test_a_dead_broker_bounces_every_service_under_a_new_boot_id(standing: Harbour) -> None:
    before = standing.plane()
    kill(before.pids["broker"])
    after = standing.changed(before, "broker", *NAMES)
    assert after.boot_id != before.boot_id
    assert after.pids["database"] == before.pids["database"]
    for name in NAMES:
        assert standing.log(name)[-2:] == [
            f"born under {before.boot_id}",
            f"born under {after.boot_id}",
        ]
    # by the kernel, in hundredths of a second: on a busy machine the second may be running first
    began = {name: psutil.Process(after.pids[name]).create_time() for name in NAMES}
    assert began["publisher"] <= began["annotator"], "what decides is started first"


def test_a_dead_database_is_started_again_under_living_services(standing: Harbour) -> None:
    before = standing.plane()
    kill(before.pids["database"])
    after = standing.changed(before, "database")
    assert {n: after.pids[n] for n in NAMES} == {n: before.pids[n] for n in NAMES}


def test_up_after_the_supervisor_was_killed_starts_anew_and_leaves_nothing_over(
    harbour: Harbour,
) -> None:
    before = harbour.up()
    assert harbour.supervisor is not None
    kill(harbour.supervisor.pid)
    assert running(dict(before.pids)) == set(before.pids), "without a supervisor everything goes on"

    after = harbour.up()

    assert running({n: p for n, p in before.pids.items() if n != "database"}) == set()
    assert after.pids["database"] == before.pids["database"], "a live database is adopted"
    assert after.boot_id != before.boot_id


def test_down_after_the_supervisor_was_killed_stops_all_of_it(harbour: Harbour) -> None:
    before = harbour.up()
    assert harbour.supervisor is not None
    kill(harbour.supervisor.pid)
    assert set(take_down(harbour.data_dir)) == {*NAMES, "broker", "database"}
    assert running(dict(before.pids)) == set()


def test_a_stranger_under_an_old_pid_is_left_alone(harbour: Harbour) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        run = harbour.data_dir / "run"
        run.mkdir(parents=True)
        (run / "publisher.json").write_text(
            json.dumps({"pid": stranger.pid, "http_port": 1, "services": []})
        )
        record = {
            "pid": stranger.pid,
            "started": 1.0,
            "children": {"annotator": [stranger.pid, 1.0]},
        }
        (run / "supervisor.state").write_text(json.dumps(record))
        assert take_down(harbour.data_dir) == []
        assert stranger.poll() is None
        stranger.kill()


def test_a_second_plane_on_the_same_directory_is_refused(standing: Harbour) -> None:
    plane = standing.plane()
    with pytest.raises(
        PlaneError, match=f"another plane holds this directory \\(pid {plane.supervisor_pid}\\)"
    ):
        Supervisor(standing.data_dir, {}, lambda _: None).run()
    assert running(dict(plane.pids)) == set(plane.pids)


def test_a_process_that_cannot_start_ends_the_start_with_its_last_words(harbour: Harbour) -> None:
    harbour.data_dir.mkdir()
    (harbour.data_dir / "behaviour").write_text("crash")
    supervisor = harbour.launch()
    assert supervisor.wait(timeout=PATIENCE_S) == 2
    assert supervisor.stderr is not None
    assert (
        supervisor.stderr.read()
        .splitlines()[-1]
        .endswith("does not start: cannot go on: the wind is wrong")
    )
    record = read_record(harbour.data_dir)
    assert record is not None
    assert "the wind is wrong" in record.error
    assert take_down(harbour.data_dir) == []


@pytest.mark.long
def test_a_process_that_fails_later_is_tried_again_with_growing_pauses(harbour: Harbour) -> None:
    before = harbour.up()
    (harbour.data_dir / "behaviour").write_text("crash")
    kill(before.pids["publisher"])
    harbour.until(lambda: len(harbour.births("publisher")) >= 6)
    times = harbour.births("publisher")[1:]  # the first was well, and the second came at once
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(pause >= PAUSE_S_FIRST * 2**number for number, pause in enumerate(pauses, 1)), pauses
    (harbour.data_dir / "behaviour").write_text("")
    harbour.changed(before, "publisher")


@pytest.mark.long
def test_a_process_that_does_not_hear_is_ended_all_the_same(harbour: Harbour) -> None:
    harbour.data_dir.mkdir()
    (harbour.data_dir / "behaviour").write_text("deaf")
    plane = harbour.up()
    take_down(harbour.data_dir)
    assert running(dict(plane.pids)) == set()


def test_a_plane_whose_directory_was_removed_ends_with_one_line_and_makes_no_new_one(
    harbour: Harbour,
) -> None:
    plane = harbour.up()
    remove(harbour.data_dir)
    assert "was removed; everything is stopped" in harbour.end_of(plane)
    assert not harbour.data_dir.exists()


@pytest.mark.long
def test_a_plane_whose_directory_was_replaced_ends_and_leaves_the_new_one_alone(
    harbour: Harbour,
) -> None:
    plane = harbour.up()
    harbour.data_dir.rename(harbour.data_dir.with_name("moved"))
    harbour.data_dir.mkdir()
    for name in ("lock", "plane.json", "broker.json"):
        (harbour.data_dir / name).write_text("of another plane")
    assert f"{harbour.data_dir} was replaced by another one" in harbour.end_of(plane)
    assert {path.name: path.read_text() for path in harbour.data_dir.iterdir()} == dict.fromkeys(
        ("lock", "plane.json", "broker.json"), "of another plane"
    )
    remove(harbour.data_dir)


@pytest.mark.long
def test_a_plane_whose_database_was_removed_ends_and_makes_no_new_one(harbour: Harbour) -> None:
    plane = harbour.up()
    remove(harbour.data_dir / "postgres")
    assert "postgres/PG_VERSION was removed" in harbour.end_of(plane)
    assert not (harbour.data_dir / "postgres" / "PG_VERSION").exists()
    assert read_plane(harbour.data_dir) is None


def test_a_plane_started_for_a_process_ends_when_that_is_killed(harbour: Harbour) -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        plane = harbour.up(f"WHARFINGER_OWNER_PID={owner.pid}")
        kill(owner.pid)
        assert f"process {owner.pid}, which the plane was started for, has ended" in harbour.end_of(
            plane
        )
    assert read_plane(harbour.data_dir) is None


def test_a_plane_is_not_started_for_a_process_that_has_ended(harbour: Harbour) -> None:
    with subprocess.Popen(["true"]) as owner:
        owner.wait()
    supervisor = harbour.launch(f"WHARFINGER_OWNER_PID={owner.pid}")
    assert supervisor.wait() == 2
    assert "which the plane was started for, has ended" in harbour.ended().splitlines()[-1]


@pytest.mark.long
def test_a_service_that_finds_another_database_ends_the_plane(harbour: Harbour) -> None:
    plane = harbour.up()
    (harbour.data_dir / "behaviour").write_text("gone")
    kill(plane.pids["publisher"])
    assert "the database is another one now" in harbour.end_of(plane)
    assert (
        sum("the database is another one now" in line for line in harbour._lines("publisher")) == 1
    ), "not tried again"


def test_a_process_is_the_same_one_whatever_the_wall_clock_says() -> None:
    """Its identity is counted from the boot: seconds since the epoch all move when the clock is
    corrected."""
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    assert me.alive
    assert me == ProcessIdentity.of(os.getpid())
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert me.started % 1e10 == pytest.approx(ticks / os.sysconf("SC_CLK_TCK"), abs=0.01)
    assert not ProcessIdentity(me.pid, me.started + 0.01).alive
    assert not ProcessIdentity(me.pid, me.started + 1e10).alive, "of another boot"
    assert ProcessIdentity(me.pid, psutil.Process().create_time()).alive, (
        "as earlier versions recorded it"
    )


@pytest.mark.long
def test_a_broker_that_has_grown_too_large_is_replaced(harbour: Harbour) -> None:
    before = harbour.up("WHARFINGER_BROKER_RSS_MB_MAX=1")
    after = harbour.changed(before, "broker", *NAMES)
    assert after.boot_id != before.boot_id
    assert after.pids["database"] == before.pids["database"]


def test_an_external_password_stays_out_of_the_plane_file() -> None:
    url = "postgresql+asyncpg://me:hunter2@db:5432/ledger?ssl=require"
    assert without_password(url) == "postgresql+asyncpg://me@db:5432/ledger?ssl=require"
    socket = "postgresql+asyncpg://postgres@/wharfinger?host=/some/where"
    assert without_password(socket) == socket
