"""`up`, `down`, `migrate`: a plane's life on this machine.

`up` is the supervisor, in this process or, with `--detach`, in one of its own that outlives the
command. What the command does itself is to show how far it has come, and to say in one line why it
has not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from wharfinger.runtime.children import API, open_log
from wharfinger.runtime.extras import require
from wharfinger.runtime.plane import PlaneError, read_plane
from wharfinger.runtime.process_status import STEPS, SupervisorRecord, process_cards, read_record
from wharfinger.runtime.processes import last_lines
from wharfinger.runtime.settings import ENV_PREFIX, SettingsError, load_settings
from wharfinger.runtime.supervisor import Supervisor, stop_on_signals, take_down
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import count, messages, write
from wharfinger_cli.request import Request

if TYPE_CHECKING:
    from wharfinger.runtime.ledger.roles import DatabaseLogin

LOG_NAME = "supervisor"
FOLLOW_S = 0.02


def up(request: Request, *, detach: bool, processes: str | None) -> None:
    flags = {**request.flags, "processes": processes}
    data_dir = load_settings(flags).data_dir.absolute()
    started = time.monotonic()
    if detach:
        with _progress() as told:
            start_detached(data_dir, flags, told)
        _say_ready(data_dir, time.monotonic() - started)
    else:
        _run_here(data_dir, flags)


def start_detached(data_dir: Path, flags: dict[str, object], told: Callable[[int], None]) -> None:
    """Start a plane that outlives us, and wait until it is ready. `told` is called with each
    step of the supervisor.

    CommandError: it did not start, and why. Stops it again when the wait itself is cut short.
    """
    environment = {
        ENV_PREFIX + name.upper(): str(value) for name, value in flags.items() if value is not None
    }
    data_dir.mkdir(parents=True, exist_ok=True)
    child: subprocess.Popen[bytes] | None = None
    try:
        with open_log(data_dir, LOG_NAME) as log, _signals_held_back():
            log_from = os.fstat(log.fileno()).st_size
            child = subprocess.Popen(
                [sys.executable, "-m", "wharfinger.runtime.supervisor"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment, f"{ENV_PREFIX}DATA_DIR": str(data_dir)},
                start_new_session=True,  # no terminal, no process group of ours: it outlives both
            )
        _follow(data_dir, child, told, log_from)
    except BaseException:
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)
            child.wait()
        raise


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """What would interrupt us does so at the end. An interrupt inside of `Popen` would leave a
    process that nothing knows of. What is ignored stays ignored, also by a child."""
    came: list[int] = []
    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if callable(handler := signal.getsignal(number))
    }
    for number in before:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def down(request: Request) -> None:
    data_dir = data_dir_of(request)
    with messages().status("stopping"):
        stopped = take_down(data_dir)
    if stopped:
        # A supervisor takes everything with it; without one, each part was found and ended by
        # itself.
        what = (
            "stopped" if "supervisor" in stopped else f"stopped what was left: {', '.join(stopped)}"
        )
        messages().print(f"{what}; what the plane knows stays in {data_dir}", soft_wrap=True)
    else:
        messages().print(f"no plane is up in {data_dir}")


def migrate(request: Request, *, roles: bool, logins: Path | None = None) -> None:
    """`logins`: a directory, as `login_files` reads it."""
    import asyncio

    from wharfinger.runtime.topic_setup import lay

    settings = load_settings(request.flags)
    wanted: list[DatabaseLogin] = []
    if logins is not None:
        require("migrate", "sqlalchemy", "making roles")
        from wharfinger_cli.login_files import read_logins

        # first: what is wrong with a file is said before anything is changed
        wanted = read_logins(logins, settings.backend().database_url)
    laid = asyncio.run(lay(settings))
    messages().print(
        f"schema is current; {count(len(laid.created), 'topic')} created, "
        f"{len(laid.incarnations)} in all"
    )
    if roles or wanted:
        made = asyncio.run(_make_roles(settings.backend().database_url, wanted))
        messages().print(f"roles: {', '.join(made)}")
    if wanted:
        given = ", ".join(f"{login.name} ({', '.join(login.roles)})" for login in wanted)
        messages().print(f"logins: {given}")


async def _make_roles(database_url: str, logins: Sequence[DatabaseLogin] = ()) -> list[str]:
    from wharfinger.runtime.ledger.database import Database
    from wharfinger.runtime.ledger.roles import ROLES, make_logins, make_roles

    database = Database(database_url, "wharfinger-roles")
    try:
        await make_roles(database)
        await make_logins(database, logins)
    finally:
        await database.close()
    return [role.full_name for role in ROLES]


def print_roles() -> None:
    require("migrate", "sqlalchemy", "printing the roles")
    from wharfinger.runtime.ledger.roles import statements

    for statement in statements():
        write(f"{statement};")


def print_acls() -> None:
    from wharfinger.runtime.kafka_rights import acl_commands

    for command in acl_commands():
        write(command)


def data_dir_of(request: Request) -> Path:
    """Where the plane is. A data directory that was named is enough to stop a plane whose settings
    are broken."""
    try:
        return load_settings(request.flags).data_dir.absolute()
    except SettingsError:
        if request.data_dir is None:
            raise
        return request.data_dir.absolute()


def _run_here(data_dir: Path, flags: dict[str, object]) -> None:
    """The supervisor in this process: Ctrl-C ends it, and everything with it."""
    from wharfinger.runtime.log_setup import configure_logging

    settings = load_settings(flags)
    started = time.monotonic()
    data_dir.mkdir(parents=True, exist_ok=True)
    with (
        open_log(data_dir, LOG_NAME) as log,
        open(log.fileno(), "w", buffering=1, closefd=False) as text,
        _progress() as told,
    ):
        configure_logging(settings.log_level, settings.log_format, text)

        def tell(step: int) -> None:
            told(step)
            if step == len(STEPS):
                _say_ready(data_dir, time.monotonic() - started)
                messages().print("Ctrl-C stops it")

        supervisor = Supervisor(data_dir, {**flags, "data_dir": data_dir}, tell)
        stop_on_signals(supervisor, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        supervisor.run()


def _follow(
    data_dir: Path, child: subprocess.Popen[bytes], told: Callable[[int], None], log_from: int
) -> None:
    """The supervisor knows how long to wait for what; we wait for it."""
    step = 0
    while True:
        record = _record_of(data_dir, child.pid)
        for done in range(step + 1, record.step + 1 if record else 0):
            told(done)
            step = done
        if record is not None and record.ready and read_plane(data_dir) is not None:
            return
        if child.poll() is not None:
            raise CommandError((record and record.error) or _last_words(data_dir, log_from))
        time.sleep(FOLLOW_S)


def _record_of(data_dir: Path, pid: int) -> SupervisorRecord | None:
    try:
        record = read_record(data_dir)
    except PlaneError:
        return None  # of an earlier life and unreadable; ours will replace it
    return record if record is not None and record.pid == pid else None


def _last_words(data_dir: Path, log_from: int) -> str:
    with (data_dir / "log" / f"{LOG_NAME}.log").open("rb") as log:
        log.seek(log_from)
        return (
            last_lines(log.read().decode(errors="replace")) or "the supervisor ended without a word"
        )


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """A progress bar of the supervisor's steps, on standard error; none if that is no terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = messages()
    with Progress(
        TextColumn("{task.description:<20}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(STEPS[0], total=len(STEPS))

        def told(step: int) -> None:
            progress.update(task, completed=step, description=STEPS[min(step, len(STEPS) - 1)])
            if step == len(STEPS):
                progress.stop()

        yield told


def _say_ready(data_dir: Path, seconds: float) -> None:
    plane = read_plane(data_dir)
    if plane is None:
        raise CommandError(f"the plane in {data_dir} went down again at once; see {data_dir}/log")
    console = messages()
    console.print(
        f"ready in {seconds:.1f} s: broker {plane.bootstrap}, "
        f"{count(len(plane.http_ports), 'process', 'processes')}"
    )
    console.print(f"state in {data_dir}", soft_wrap=True)
    if (port := plane.http_ports.get(API)) is not None:
        tls = any(card.tls for _, card in process_cards(data_dir))
        scheme = "https" if tls else "http"
        console.print(
            f"HTTP API on {scheme}://127.0.0.1:{port}/v1; `wharfinger token create` makes a token",
            soft_wrap=True,
        )
