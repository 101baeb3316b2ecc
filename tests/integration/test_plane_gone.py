"""A plane does not outlive its directory, its database or the process it was started for, whatever
of it was killed before."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backends import _execute, in_a_loop
from tests.cli_plane import Cli, environment, living
from tests.patience import until

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger, LedgerUnavailable, Transient
from wharfinger.runtime.plane import Plane, read_plane

pytestmark = pytest.mark.integration


class Plain(Cli):
    """A plane of real services, with settings of the test's own."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.settings: dict[str, str] = {}

    def up(self) -> Plane:
        done = subprocess.run(
            self.command("up", "--detach"),
            env=environment() | self.settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        plane = read_plane(self.data_dir)
        assert plane is not None
        return plane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plain]:
    plane = Plain(tmp_path / "plane")
    yield plane
    plane.run("down")


def all_of(plane: Plane) -> list[int]:
    return [plane.supervisor_pid, *plane.pids.values()]


def kill(pid: int) -> None:
    os.kill(pid, 9)
    until(lambda: living([pid]) == [])


@pytest.mark.long
@pytest.mark.chaos
def test_services_whose_supervisor_was_killed_end_with_their_directory(plane: Plain) -> None:
    up = plane.up()
    kill(up.supervisor_pid)
    assert living(all_of(up)) == all_of(up)[1:], "broker, database and services go on without it"
    while plane.data_dir.exists():
        shutil.rmtree(plane.data_dir, ignore_errors=True)
    until(lambda: living(all_of(up)) == [])
    assert not plane.data_dir.exists()


@pytest.mark.long
@pytest.mark.chaos
def test_services_whose_supervisor_was_killed_end_with_their_owner(plane: Plain) -> None:
    with subprocess.Popen(["sleep", "3600"]) as owner:
        try:
            plane.settings = {"WHARFINGER_OWNER_PID": str(owner.pid)}
            up = plane.up()
            kill(up.supervisor_pid)
            assert living(all_of(up)) == all_of(up)[1:]
        finally:
            kill(owner.pid)
    until(lambda: living(all_of(up)) == [])


A_TEST = """
import subprocess, sys, time

def test_it():
    wharfinger = [sys.executable, "-m", "wharfinger_cli", "--data-dir", {data_dir!r}]
    subprocess.run([*wharfinger, "up", "--detach"], check=True)
    time.sleep(3600)
"""


@pytest.mark.long
@pytest.mark.chaos
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "by-a-worker"])
def test_a_plane_of_a_test_run_that_was_killed_ends(
    plane: Plain, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    (tmp_path / "test_it.py").write_text(A_TEST.format(data_dir=str(plane.data_dir)))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
        "-c",
        os.devnull,
    ]
    run = subprocess.Popen(
        [*command, *workers, "--rootdir", str(tmp_path), str(tmp_path / "test_it.py")],
        cwd=Path(__file__).parents[2],
        env=environment() | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        until(lambda: run.poll() is not None or read_plane(plane.data_dir) is not None)
        assert run.poll() is None, "the test runs until it is killed"
        up = read_plane(plane.data_dir)
        assert up is not None
    finally:
        run.kill()
        run.wait()
    until(lambda: living(all_of(up)) == [])
    until(lambda: read_plane(plane.data_dir) is None)


@pytest.mark.long
@pytest.mark.chaos
def test_a_plane_whose_database_was_replaced_ends_with_one_line(
    plane: Plain, backend: Backend, database_url: str, migrated_database: str
) -> None:
    plane.settings = {"WHARFINGER_DATABASE": database_url}
    up = plane.up()
    make_again(backend.database_url, database_url, migrated_database)
    until(lambda: living(all_of(up)) == [])
    last = (plane.data_dir / "log" / "supervisor.log").read_text().splitlines()[-1]
    # whichever of its processes notices it first
    assert re.search(r"is gone: (wharfinger \w+: )?the database is another one now", last), last
    assert in_a_loop(lambda: _rounds(database_url)) == 0, "nothing was written to it"


async def _rounds(url: str) -> int:
    ledger = await Ledger.open(url, "test")
    try:
        return sum(head.round for head in await ledger.heads())
    finally:
        await ledger.close()


def make_again(database_server: str, url: str, template: str) -> None:
    """The same name on the same server, and an empty ledger in it."""
    name = url.split("?")[0].rsplit("/", 1)[1]
    in_a_loop(lambda: _execute(database_server, f'drop database "{name}" with (force)'))
    in_a_loop(lambda: _execute(database_server, f'create database "{name}" template "{template}"'))


async def heads_by_a_new_connection(ledger: Ledger) -> None:
    """After the old ones were cut, which each may notice only when it is used."""
    for _ in range(10):
        try:
            await ledger.heads()
        except Transient:
            await asyncio.sleep(0.05)


async def test_a_ledger_that_was_made_again_is_another_one(
    backend: Backend, database_url: str, migrated_database: str
) -> None:
    ledger = await Ledger.open(database_url, "test")
    try:
        first = ledger.database.identity
        assert first.count("/") == 2
        await ledger.ensure_streams(["fleet/0"])
        assert ledger.database.replaced == ""
        make_again(backend.database_url, database_url, migrated_database)
        with pytest.raises(LedgerUnavailable, match="the database is another one now"):
            await heads_by_a_new_connection(ledger)
        assert first in ledger.database.replaced
    finally:
        await ledger.close()


async def test_a_ledger_is_the_same_one_for_every_connection_and_after_a_lost_one(
    database_server: str, database_url: str
) -> None:
    ledger = await Ledger.open(database_url, "one")
    other = await Ledger.open(database_url, "two")
    try:
        assert ledger.database.identity == other.database.identity
        await _execute(
            database_server,
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'one'",
        )
        await heads_by_a_new_connection(ledger)
        assert ledger.database.replaced == ""
    finally:
        await ledger.close()
        await other.close()
