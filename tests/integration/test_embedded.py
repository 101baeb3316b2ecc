"""The embedded broker and database: up on any data directory, found again after any death, never a
stranger's."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import uuid
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import asyncpg
import pytest
from tests.patience import PATIENCE_S

from wharfinger.runtime.backends import (
    DURABLE,
    MEMORY,
    Backend,
    BackendError,
    plain_database_url,
    probe,
    probe_broker,
    probe_database,
)
from wharfinger.runtime.embedded import Embedded
from wharfinger.runtime.embedded_broker import EmbeddedBroker
from wharfinger.runtime.embedded_postgres import EmbeddedPostgres
from wharfinger.runtime.plane import BROKER_FILE
from wharfinger.runtime.processes import ProcessIdentity, end, free_port

pytestmark = pytest.mark.integration

NOBODY = 65534


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(tmp_path, die_with_parent=True)
    yield broker
    broker.stop()


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    postgres = EmbeddedPostgres(tmp_path, die_with_parent=True)
    yield postgres
    postgres.stop()


async def _query(url: str, sql: str) -> object:
    connection = await asyncpg.connect(plain_database_url(url))  # type: ignore[no-untyped-call]
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def _kill(identity: ProcessIdentity) -> None:
    assert end(identity, (signal.SIGKILL,), 5.0)


def _identity(pid: int | None) -> ProcessIdentity:
    assert pid is not None
    identity = ProcessIdentity.of(pid)
    assert identity is not None
    return identity


def _started_by_another(data_dir: Path, what: str) -> subprocess.Popen[str]:
    """A process that starts `what` (an expression) under `data_dir`, prints its pid and waits to be
    killed."""
    script = textwrap.dedent(f"""
        import pathlib, time
        from wharfinger.runtime.embedded_broker import EmbeddedBroker
        from wharfinger.runtime.embedded_postgres import EmbeddedPostgres
        server = {what}(pathlib.Path({str(data_dir)!r}))
        server.start()
        print(server.pid, flush=True)
        time.sleep(600)
    """)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def _pid_from(process: subprocess.Popen[str]) -> int:
    """The last line: logs of the child may come before it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().isdigit():
            return int(line)
    raise AssertionError("the other process ended before it told a pid")


def test_a_broker_answers_and_each_life_has_its_own_id_on_the_same_port(
    broker: EmbeddedBroker,
) -> None:
    broker.start()
    first_life, address = broker.boot_id, broker.bootstrap
    assert broker.alive
    assert broker.rss_bytes > 1_000_000
    _kill(_identity(broker.pid))
    assert not broker.alive
    assert broker.rss_bytes == 0
    broker.start()
    assert broker.bootstrap == address
    assert broker.boot_id != first_life


def test_a_port_that_was_taken_meanwhile_is_not_insisted_on(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker.start()
    address = broker.bootstrap
    broker_record = (tmp_path / BROKER_FILE).read_text()
    broker.stop()
    (tmp_path / BROKER_FILE).write_text(broker_record)
    other = EmbeddedBroker(tmp_path / "other", die_with_parent=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / BROKER_FILE).write_text(broker_record)
    other.start()
    try:
        assert other.bootstrap == address
        broker.start()
        assert broker.bootstrap != address
    finally:
        other.stop()


def test_a_broker_whose_owner_was_killed_is_ended_by_the_next_start(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    owner = _started_by_another(tmp_path, "EmbeddedBroker")
    orphan = _identity(_pid_from(owner))
    with pytest.raises(BackendError, match=f"pid {orphan.pid} in .* still serves pid {owner.pid}"):
        broker.start()
    owner.kill()
    owner.wait()
    assert orphan.alive
    broker.start()
    assert not orphan.alive
    assert broker.alive


def test_a_record_that_names_a_stranger_ends_nobody(broker: EmbeddedBroker, tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        record = {"pid": stranger.pid, "started": 1.0, "port": free_port(), "boot_id": "b"}
        (tmp_path / BROKER_FILE).write_text(
            json.dumps({**record, "owner_pid": 1, "owner_started": 1.0})
        )
        broker.start()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_the_database_keeps_what_was_committed_when_it_is_killed(
    postgres: EmbeddedPostgres,
) -> None:
    postgres.start()
    asyncio.run(_query(postgres.url, "create table kept as select 7 as x"))
    _kill(_identity(postgres.pid))
    postgres.start()
    assert asyncio.run(_query(postgres.url, "select x from kept")) == 7
    durable = "select current_setting('fsync') || ' ' || current_setting('synchronous_commit')"
    assert asyncio.run(_query(postgres.url, durable)) == "on on"


def test_an_initialised_database_is_not_initialised_again(postgres: EmbeddedPostgres) -> None:
    identity = "select system_identifier::text from pg_control_system()"
    postgres.start()
    before = asyncio.run(_query(postgres.url, identity))
    postgres.stop()
    postgres.start()
    assert asyncio.run(_query(postgres.url, identity)) == before
    assert 0 < postgres.rss_bytes < 150_000_000


def test_a_database_whose_owner_was_killed_is_adopted(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    owner = _started_by_another(tmp_path, "EmbeddedPostgres")
    pid = _pid_from(owner)
    owner.kill()
    owner.wait()
    postgres.start()
    assert postgres.pid == pid
    assert asyncio.run(_query(postgres.url, "select 1")) == 1
    postgres.stop()
    assert ProcessIdentity.of(pid) is None


def test_a_lock_file_that_names_a_stranger_is_cleared(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    postgres.start()
    lock_file = tmp_path / "postgres" / "postmaster.pid"
    lines = lock_file.read_text().splitlines()
    postgres.stop()
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        lock_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        postgres.start()
        assert stranger.poll() is None
        assert asyncio.run(_query(postgres.url, "select 1")) == 1
    finally:
        stranger.kill()
        stranger.wait()


def test_an_initdb_cut_short_is_made_again(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    (tmp_path / "postgres.new").mkdir()
    (tmp_path / "postgres.new" / "PG_VERSION").write_text("18\n")
    postgres.start()
    assert postgres.alive
    assert not (tmp_path / "postgres.new").exists()


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("PG_VERSION", "9\n", "was written by PostgreSQL 9"),
        ("letters.txt", "dear", "is not empty and holds no database"),
    ],
)
def test_a_directory_that_is_not_ours_is_left_alone(
    postgres: EmbeddedPostgres, tmp_path: Path, file: str, content: str, expected: str
) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / file).write_text(content)
    with pytest.raises(BackendError, match=expected):
        postgres.start()
    assert (tmp_path / "postgres" / file).read_text() == content


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path / ("long" * 30), die_with_parent=True)
    try:
        postgres.start()
        assert asyncio.run(_query(postgres.url, "select 1")) == 1
        socket_dir = Path(postgres.url.split("host=")[1])
        assert socket_dir.stat().st_mode & 0o777 == 0o700
    finally:
        postgres.stop()
    assert not socket_dir.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the database as somebody else")
def test_root_may_use_a_directory_that_nobody_else_can_pass(tmp_path: Path) -> None:
    closed, shared = tmp_path / "closed", tmp_path / "closed" / "shared"
    shared.mkdir(parents=True)
    closed.chmod(0o700)
    shared.chmod(0o770)
    postgres = EmbeddedPostgres(shared / "data", die_with_parent=True)
    try:
        postgres.start()
        assert asyncio.run(_query(postgres.url, "select 1")) == 1
    finally:
        postgres.stop()
    assert closed.stat().st_mode & 0o777 == 0o710
    assert shared.stat().st_mode & 0o777 == 0o771


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("useradd") is None, reason="only root makes users"
)
def test_planes_that_start_at_once_as_root_make_one_user() -> None:
    """On a new machine. Of two users of one name, the server of one plane runs as a uid without a
    name, and does not start."""
    name = f"wharfinger_{uuid.uuid4().hex[:8]}"
    make = textwrap.dedent(f"""
        import sys
        from wharfinger.runtime import embedded_postgres
        embedded_postgres.SYSTEM_USER = {name!r}
        print("ready", flush=True)
        sys.stdin.readline()
        print("uid", embedded_postgres._account().uid)
    """)
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", make], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for maker in makers:
            assert maker.stdout is not None
            assert maker.stdout.readline() == "ready\n"
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.write("\n")
            maker.stdin.flush()
        lines = [maker.communicate()[0].splitlines()[-1] for maker in makers]
        assert lines == [f"uid {pwd.getpwnam(name).pw_uid}"] * len(makers)
        entries = Path("/etc/passwd").read_text().splitlines()
        assert sum(entry.startswith(f"{name}:") for entry in entries) == 1
    finally:
        for maker in makers:
            maker.kill()
            maker.wait()
        while subprocess.run(["userdel", name], capture_output=True, check=False).returncode == 0:
            pass


def _start_as_nobody(home: str, told: Connection) -> None:
    """In a fork, because the interpreter's own files may be closed to other users."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.chdir(home)
    os.environ["HOME"] = home
    embedded = Embedded.under(Path("data"))
    try:
        asyncio.run(probe(embedded.start()))
        told.send("well")
    except BackendError as error:
        told.send(str(error))
    finally:
        embedded.stop()


@pytest.mark.skipif(
    os.geteuid() != 0, reason="otherwise every test here already runs as an ordinary user"
)
def test_an_ordinary_user_needs_no_rights() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, NOBODY, NOBODY)
        heard, told = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(
            target=_start_as_nobody, args=(home, told)
        )
        child.start()
        told.close()
        child.join(PATIENCE_S)
        said = heard.recv()
    if "Permission denied" in said:
        pytest.skip(f"the packages are closed to other users: {said}")
    assert said == "well"


async def test_both_start_together_and_answer(tmp_path: Path) -> None:
    embedded = Embedded.under(tmp_path)
    backend = await asyncio.to_thread(embedded.start)
    try:
        assert backend.capabilities == MEMORY
        assert backend.boot_id == embedded.broker.boot_id
        await probe(backend)
    finally:
        await asyncio.to_thread(embedded.stop)
    assert not embedded.broker.alive
    assert not embedded.postgres.alive


def test_a_database_that_cannot_start_takes_the_broker_down_with_it(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "letters.txt").write_text("dear")
    embedded = Embedded.under(tmp_path)
    with pytest.raises(BackendError):
        embedded.start()
    assert embedded.broker.pid is None


async def test_wrong_addresses_are_one_line_each() -> None:
    nowhere = Backend(
        f"127.0.0.1:{free_port()}", "postgresql+asyncpg://me:hunter2@127.0.0.1:1/d", DURABLE
    )
    for probing in (probe_broker(nowhere, 2.0), probe_database(nowhere.database_url, 2.0)):
        with pytest.raises(BackendError) as raised:
            await probing
        assert "\n" not in str(raised.value)
        assert "127.0.0.1" in str(raised.value)
        assert "hunter2" not in str(raised.value)
