"""Keeps a plane running on one machine: broker, database, topics, services, in this
order.

There is one list of what must run, and one function (`_reconcile`) that starts each part of it that
does not run. The first call starts the plane; a later call restores a service, a broker or a
database that has ended. The embedded broker keeps everything in memory, so all topics are lost when
it ends. Then the services are restarted, a broker with a new boot id is started, the topics are
created again and their incarnation is raised. The same is done, with a graceful stop, when the
broker has grown too large, because it never frees memory. No data is lost: the ledger is the only
source of truth.

The supervisor itself may be killed. Broker, database and services then go on without it. The next
`up`, or `down`, finds them by the files under the data directory (`run/`, the servers' own
records), checks with the kernel that they are the same processes, and ends or adopts them.

The supervisor stops when its reason to run is gone: the data directory was removed or replaced, the
database is another one, or the process that the plane was started for has ended. Then it stops
everything and logs one line that says why.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from wharfinger.domain.text import one_line
from wharfinger.runtime.backends import BackendError
from wharfinger.runtime.children import (
    API,
    CONTROLLERS,
    STOP_PATIENCE_S,
    ServiceProcess,
    TopicSetupProcess,
    end_services_of,
    layout_for,
    open_log,
    process_names,
    usable_cores,
)
from wharfinger.runtime.database_logins import login_of
from wharfinger.runtime.embedded import BROKER_PROFILE
from wharfinger.runtime.embedded_broker import EmbeddedBroker
from wharfinger.runtime.embedded_postgres import DATABASE, EmbeddedPostgres
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.owner_watch import Lifeline, PlaneGoneError
from wharfinger.runtime.plane import (
    LOCK_FILE,
    SUPERVISOR_FILE,
    Plane,
    PlaneError,
    another_database,
    holding,
    remove_plane,
    write_plane,
)
from wharfinger.runtime.process_status import STEPS, SupervisorRecord, read_record
from wharfinger.runtime.processes import ProcessIdentity, end
from wharfinger.runtime.settings import ENV_PREFIX, SettingsError, load_settings

WATCH_S = 0.2
BROKER_RSS_EVERY_S = 5.0
TOPIC_SETUP_TIMEOUT_S = 300.0  # ends a hang; a child that fails says so at once
ANSWER_TIMEOUT_S = (
    60.0  # a process that has not said who it is hangs when it has used no processor for so long
)
READY_TIMEOUT_S = 1800.0  # one that has may have a long history to recover
STARTS_MAX = 3  # a process that ends that often before it was ever ready will not become so
TROUBLE_PAUSE_S = 1.0
BROKER_LOST_PATIENCE_S = 0.5  # what they have not committed is read again; the rest is committed
FIRST = ("publisher", "scheduler", CONTROLLERS)
FIRST_S = 8.0
"""After the loss of a broker the other services start once these are ready, so long after at the
latest: on a machine of few cores everything that starts at the same time is late together."""
DOWN_PATIENCE_S = 40.0
ABANDON_PATIENCE_S = 2.0  # there is nothing left to be saved

log = get_logger(__name__)


class StoppedError(Exception):
    """It was asked to stop while it was still starting."""


class Supervisor:
    """`run` holds the data directory, starts everything, watches it until `stop` is called, and
    stops everything.

    `told` is called with the number of each step of STEPS that is done. Raises PlaneError,
    BackendError or SettingsError (one line) when the plane cannot be started.
    """

    def __init__(
        self, data_dir: Path, flags: Mapping[str, object], told: Callable[[int], None]
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._flags = dict(flags)
        self._told = told
        self._stop = threading.Event()
        self._step = 0
        self._error = ""
        self._written: bytes = b""
        self._written_pids: Sequence[int | None] = ()
        """The processes that were written last, see `_write_plane`."""
        self._database_identity = ""
        self._known_services: dict[str, tuple[str, ...]] = {}
        me = ProcessIdentity.of(os.getpid())
        assert me is not None, "we run, so we are somebody"
        self._identity = me

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        with holding(self._data_dir):
            # of a life that was cut short; it would pass for an external broker's address
            remove_plane(self._data_dir)
            self._settings = load_settings({**self._flags, "data_dir": self._data_dir})
            self._lifeline = Lifeline(self._data_dir, self._settings.owner_pid)
            self._prepare()
            try:
                self._start()
                self._watch()
            except StoppedError:
                log.info("stopped_while_starting")
            except BaseException as error:
                self._error = one_line(error)
                raise
            finally:
                if self._lifeline.lost(self._data_dir / LOCK_FILE):
                    self._abandon()
                else:
                    self._stop_all()
                self._lifeline.close()

    # starting

    def _prepare(self) -> None:
        """What is known before anything runs; and an end to what an earlier life left."""
        settings = self._settings
        # Services of another life hold partitions and offsets of a broker that is about to end.
        leftovers = end_services_of(self._data_dir, _known_children(self._data_dir))
        if leftovers:
            log.warning("leftovers_ended", processes=leftovers)
        self._broker = EmbeddedBroker(self._data_dir) if settings.kafka is None else None
        self._postgres = EmbeddedPostgres(self._data_dir) if settings.database is None else None
        self._layout = layout_for(settings.processes, usable_cores())
        self._services = [
            ServiceProcess(name, self._data_dir) for name in process_names(self._layout)
        ]
        self._laid = False
        self._rss_due = 0.0
        self._first_until = 0.0
        self._write_record()

    def _start(self) -> None:
        self._reconcile()
        self._done(3)
        self._wait_ready()
        self._write_plane()
        self._done(4)
        log.info("plane_ready", bootstrap=self._bootstrap, boot_id=self._boot_id)

    def _wait_ready(self) -> None:
        began = moved = time.monotonic()
        used_s = 0.0
        while not self._ready():
            if self._stop.wait(0.02):
                raise StoppedError
            self._reconcile()
            for service in self._services:
                if service.failures >= STARTS_MAX:
                    raise BackendError(
                        f"process {service.name} does not start: "
                        f"{service.last_words() or 'no word'}"
                    )
            silent = any(service.card() is None for service in self._services)
            since, patience_s = (moved, ANSWER_TIMEOUT_S) if silent else (began, READY_TIMEOUT_S)
            if time.monotonic() - since > patience_s:
                before_s, used_s = used_s, sum(service.cpu_s() for service in self._services)
                if silent and used_s > before_s:
                    # it is slow, as on a machine with other work, and does not hang
                    moved = time.monotonic()
                    continue
                waiting = "; ".join(
                    service.unready() for service in self._services if not service.ready()
                )
                raise BackendError(
                    f"not ready in {patience_s:g} s: {waiting}; see {self._data_dir}/log"
                )

    # watching

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_S):
            try:
                self._reconcile()
                if self._ready() and self._pids() != self._written_pids:
                    self._write_plane()
            except (BackendError, OSError) as error:
                # OSError: a full disk, most often; it is no reason to stop all
                log.error("cannot_restore", error=str(error))
                self._stop.wait(TROUBLE_PAUSE_S)

    def _reconcile(self) -> None:
        """Bring up what is down, in the order in which they need each other. The first time that is
        everything.

        PlaneGoneError: what all this is done for is not there any more."""
        self._check_lifeline()
        laid = self._laid and (self._broker is None or self._broker.alive)
        topic_setup = None if laid else self._begin_topic_setup()
        try:
            self._end_grown_broker()
            self._raise_servers()
            if not self._laid:
                self._done(1)
                topic_setup = topic_setup or self._begin_topic_setup()
                self._lay(topic_setup)
                self._done(2)
        finally:
            if topic_setup is not None:
                topic_setup.end()
        self._keep_services_running()

    def _check_lifeline(self) -> None:
        gone = self._lifeline.broken()
        for service in self._services:
            if service.gone:
                gone = gone or service.last_words()
        if gone:
            log.error("plane_gone", why=gone)
            raise PlaneGoneError(
                f"the plane in {self._data_dir} is gone: {gone}; everything is stopped"
            )

    def _end_grown_broker(self) -> None:
        """A broker beyond its limit is stopped, after its clients, once they have been ready on it
        for a while: a limit that is always exceeded would else stop it before the plane is."""
        now = time.monotonic()
        if not self._ready():
            self._rss_due = now + BROKER_RSS_EVERY_S
        if self._broker is None or not self._broker.alive or now < self._rss_due:
            return
        self._rss_due = now + BROKER_RSS_EVERY_S
        rss_mb = self._broker.rss_bytes >> 20
        if rss_mb > self._settings.broker_rss_mb_max:
            log.warning("broker_grown", rss_mb=rss_mb, limit_mb=self._settings.broker_rss_mb_max)
            self._stop_services(services=self._of_broker())
            self._broker.stop()

    def _raise_servers(self) -> None:
        """Broker and database, at the same time where both are down."""
        raising: list[Callable[[], None]] = []
        if self._broker is not None and not self._broker.alive:
            raising.append(self._raise_broker)
        if self._postgres is not None and not self._postgres.alive:
            raising.append(self._raise_postgres)
        if not raising:
            return
        with ThreadPoolExecutor(len(raising)) as pool:
            for started in [pool.submit(raise_server) for raise_server in raising]:
                started.result()
        if self._stop.is_set():
            raise StoppedError

    def _raise_broker(self) -> None:
        assert self._broker is not None
        self._laid = (
            False  # said first: should the start fail, the topics are set up on the next one
        )
        was_up = self._step >= len(STEPS)
        self._stop_services(BROKER_LOST_PATIENCE_S if was_up else 0.0, self._of_broker())
        self._broker.start()
        self._first_until = time.monotonic() + FIRST_S if was_up else 0.0
        log.info(
            "broker_started",
            pid=self._broker.pid,
            bootstrap=self._broker.bootstrap,
            boot_id=self._broker.boot_id,
        )

    def _raise_postgres(self) -> None:
        assert self._postgres is not None
        self._postgres.start()
        self._lifeline.watch(self._postgres.version_file)
        log.info("database_started", pid=self._postgres.pid)

    def _begin_topic_setup(self) -> TopicSetupProcess:
        with open_log(self._data_dir, "topic-setup") as output:
            return TopicSetupProcess(self._environment(where={}), output)

    def _lay(self, topic_setup: TopicSetupProcess) -> None:
        laid = topic_setup.lay(
            {"data_dir": str(self._data_dir), **self._where()},
            TOPIC_SETUP_TIMEOUT_S,
            logins=self._postgres is not None,
        )
        if self._database_identity and laid.database != self._database_identity:
            raise PlaneGoneError(another_database(self._database_identity, laid.database))
        self._database_identity = laid.database
        self._laid = True
        log.info("topics_ready", incarnation=max(laid.incarnations.values(), default=0))

    def _keep_services_running(self) -> None:
        environment = self._environment(self._where())
        later = self._later()
        for number, service in enumerate(self._services):
            if service in later:
                continue
            port = self._settings.http_port
            own = {f"{ENV_PREFIX}HTTP_PORT": str(port + number)} if port else {}
            if self._postgres is not None:
                url = self._postgres.database_url(DATABASE, login_of(service.name))
                own[f"{ENV_PREFIX}DATABASE"] = url
            service.keep_running({**environment, **own})
        self._write_record()

    def _later(self) -> Sequence[ServiceProcess]:
        """Those that do not start yet (`FIRST`)."""
        if time.monotonic() >= self._first_until:
            return ()
        if all(service.ready() for service in self._services if service.name in FIRST):
            self._first_until = 0.0
            return ()
        return [
            service
            for service in self._of_broker()
            if service.name not in FIRST and service.identity is None
        ]

    # the environment of the children

    def _where(self) -> dict[str, str]:
        return {
            "kafka": self._bootstrap,
            "database": self._database_url,
            "broker": self._settings.broker if self._broker is None else BROKER_PROFILE,
            "broker_boot_id": self._boot_id,
            "database_identity": self._database_identity,
        }

    def _environment(self, where: Mapping[str, str]) -> dict[str, str]:
        """Our own environment, with the data directory as an absolute path and, once known, the
        addresses of broker and database."""
        named = {
            "data_dir": str(self._data_dir),
            "processes": self._layout,
            "owner_pid": str(self._settings.owner_pid),
            **where,
        }
        return {**os.environ, **{ENV_PREFIX + name.upper(): value for name, value in named.items()}}

    @property
    def _bootstrap(self) -> str:
        return self._broker.bootstrap if self._broker is not None else self._settings.kafka or ""

    @property
    def _boot_id(self) -> str:
        return self._broker.boot_id if self._broker is not None else self._settings.broker_boot_id

    @property
    def _database_url(self) -> str:
        return self._postgres.url if self._postgres is not None else self._settings.database or ""

    # the status that others read

    def _ready(self) -> bool:
        return all(service.ready() for service in self._services)

    def _done(self, step: int) -> None:
        if step > self._step:
            self._step = step
            self._write_record()
            self._told(step)

    def _pids(self) -> Sequence[int | None]:
        """Of all that runs, in a fixed order. What `_write_plane` writes changes only with them."""
        return (
            *(service.pid for service in self._services),
            None if self._broker is None else self._broker.pid,
            None if self._postgres is None else self._postgres.pid,
        )

    def _write_plane(self) -> None:
        found = {service.name: service.card() for service in self._services}
        cards = {name: card for name, card in found.items() if card is not None}
        pids = {name: card.pid for name, card in cards.items()}
        servers = {
            "broker": self._broker.pid if self._broker is not None else None,
            "database": self._postgres.pid if self._postgres is not None else None,
        }
        plane = Plane(
            bootstrap=self._bootstrap,
            database_url=without_password(self._database_url),
            broker=self._where()["broker"],
            boot_id=self._boot_id,
            supervisor_pid=os.getpid(),
            http_ports={name: card.http_port for name, card in cards.items()},
            pids={**pids, **{name: pid for name, pid in servers.items() if pid is not None}},
        )
        self._known_services |= {name: card.services for name, card in cards.items()}
        write_plane(self._data_dir, plane)
        self._written_pids = self._pids()

    def _write_record(self) -> None:
        me = self._identity
        living = {service.name: service.identity for service in self._services}
        record = SupervisorRecord(
            pid=me.pid,
            started=me.started,
            step=self._step,
            error=self._error,
            children={
                name: (one.pid, one.started) for name, one in living.items() if one is not None
            },
            services=self._known_services,
            restarts={
                service.name: service.restarts for service in self._services if service.restarts
            },
        )
        body = msgspec.json.encode(record)
        if body != self._written:
            _write_record(self._data_dir, body)
            self._written = body

    # stopping

    def _of_broker(self) -> list[ServiceProcess]:
        """Those that cannot work without the broker."""
        return [service for service in self._services if service.name != API]

    def _stop_services(
        self, patience_s: float = STOP_PATIENCE_S, services: Sequence[ServiceProcess] | None = None
    ) -> None:
        """All of them, or `services`, are asked to stop at the same time and share one time
        limit."""
        stopping = self._services if services is None else services
        for service in stopping:
            service.ask_to_stop()
        deadline = time.monotonic() + patience_s
        for service in stopping:
            service.make_stop(max(0.0, deadline - time.monotonic()))

    def _stop_all(self) -> None:
        """Stop the services, then the broker and the database. Every part is tried; the first error
        is raised after that."""
        remove_plane(self._data_dir)
        errors = self._try_each([self._stop_services, *self._server_stops()])
        self._step = 0
        # The data directory may be removed meanwhile; a part of it may have been missed first.
        with suppress(FileNotFoundError):
            self._write_record()
        if not self._error:
            (self._data_dir / SUPERVISOR_FILE).unlink(missing_ok=True)
        log.info("plane_stopped")
        if errors and not self._error:
            raise errors[0]

    def _abandon(self) -> None:
        """End every process and touch no file: the directory that has our path now is not ours."""
        errors = self._try_each([self._kill_services, *self._server_stops(abandon=True)])
        log.info("plane_abandoned", errors=[str(error) for error in errors])

    def _kill_services(self) -> None:
        self._stop_services(ABANDON_PATIENCE_S)

    def _server_stops(self, *, abandon: bool = False) -> list[Callable[[], None]]:
        servers = [server for server in (self._broker, self._postgres) if server is not None]
        return [server.abandon if abandon else server.stop for server in servers]

    def _try_each(self, parts: Iterable[Callable[[], None]]) -> list[BackendError]:
        errors: list[BackendError] = []
        for part in parts:
            try:
                part()
            except BackendError as error:
                errors.append(error)
        return errors


def take_down(data_dir: Path) -> list[str]:
    """Stop the plane of a data directory, all of it, also when its supervisor is dead. The names of
    what was stopped.

    PlaneError, BackendError: one line, when something of it does not end.
    """
    data_dir = data_dir.absolute()
    if not data_dir.is_dir():
        return []
    stopped: list[str] = []
    record = read_record(data_dir)
    if record is not None and record.identity.alive:  # by pid and start time: never a stranger
        if not end(record.identity, (signal.SIGTERM,), DOWN_PATIENCE_S):
            end(record.identity, (signal.SIGKILL,), DOWN_PATIENCE_S)
        stopped.append("supervisor")
    with holding(data_dir):
        stopped += end_services_of(data_dir, _known_children(data_dir))
        if EmbeddedBroker(data_dir).end_leftover():
            stopped.append("broker")
        lock_file = data_dir / "postgres" / "postmaster.pid"
        had_database = lock_file.exists()
        EmbeddedPostgres(data_dir).stop()
        if had_database and not lock_file.exists():
            stopped.append("database")
        remove_plane(data_dir)
        (data_dir / SUPERVISOR_FILE).unlink(missing_ok=True)
    return stopped


def without_password(url: str) -> str:
    """The URL as it may lie in a file: an external database's password stays in the environment."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}@{host}"))


def _known_children(data_dir: Path) -> dict[str, ProcessIdentity]:
    record = read_record(data_dir)
    return (
        {}
        if record is None
        else {name: ProcessIdentity(*one) for name, one in record.children.items()}
    )


def _write_record(data_dir: Path, body: bytes) -> None:
    path = data_dir / SUPERVISOR_FILE
    # never the data directory itself: it may have been removed on purpose
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_bytes(body)
    draft.replace(path)


def stop_on_signals(supervisor: Supervisor, numbers: Iterable[signal.Signals]) -> None:
    for number in numbers:
        signal.signal(number, lambda *_: supervisor.stop())


def main() -> int:
    """The detached supervisor: what it was asked for comes in the environment, what becomes of it
    goes to its record."""
    from wharfinger.runtime.log_setup import configure_logging

    with suppress(OSError):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal that started us may go
    try:
        settings = load_settings()
    except SettingsError as error:
        print("\n".join(error.lines), file=sys.stderr)
        return 2
    configure_logging(settings.log_level, settings.log_format)
    supervisor = Supervisor(
        settings.data_dir, {}, told=lambda step: log.info("step_done", step=STEPS[step - 1])
    )
    stop_on_signals(supervisor, (signal.SIGTERM, signal.SIGINT))
    try:
        supervisor.run()
    except (PlaneError, BackendError, SettingsError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
