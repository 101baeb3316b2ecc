"""Backends that are away for a long time, and what the services of a plane do meanwhile.

Each outage is real. `database frozen` and `broker frozen`: every process of the server is stopped
by SIGSTOP, so connections stay open and nothing is answered. `database refused`: the server is
killed and cannot start again. `broker refused`: the broker's address takes no connection, while its
records stay. `database full`: the disk of the database has no free byte.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import psutil
from benchmarks.plane import PlaneUnderTest, service_of
from tests.patience import until
from tests.planes import kill

from wharfinger.runtime.embedded_broker import HOST, broker_executable
from wharfinger.runtime.embedded_postgres import EmbeddedPostgres
from wharfinger.runtime.process_status import read_record
from wharfinger.runtime.processes import die_with_parent, free_port, listens

DISK_MIB = 1536
"""The write-ahead log alone may take 512 MiB before a checkpoint."""
BACKENDS = frozenset({"broker", "postgres"})
"""Their memory is printed only. The embedded broker keeps all records in memory until it is
replaced (`WHARFINGER_BROKER_RSS_MB_MAX`), and PostgreSQL fills its shared buffers with tables."""
MEMORY_MORE = 0.20
LINES_AT_ONCE = 20
"""So many lines of a process may come together; in the long run one a second."""
MEMORY_EVERY_S = 10.0
MEMORY_FROM_S = 60.0
"""A shorter outage says nothing about memory that grows."""


class NoDiskError(Exception):
    """No disk of its own can be made here for the database."""


class Outage:
    """One kind. `prepared` comes before the plane is started; `hold` is called each second.
    `refuses`: it ends only after an event was refused."""

    refuses: ClassVar[bool] = False

    @contextmanager
    def prepared(self, plane: PlaneUnderTest) -> Iterator[PlaneUnderTest]:
        yield plane

    def begin(self, plane: PlaneUnderTest) -> None:
        raise NotImplementedError

    def hold(self, plane: PlaneUnderTest) -> None:
        """Nothing has to be done again."""

    def end(self, plane: PlaneUnderTest) -> None:
        raise NotImplementedError


class Frozen(Outage):
    """`part`: broker or postgres."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._stopped: list[psutil.Process] = []

    def begin(self, plane: PlaneUnderTest) -> None:
        server = server_of(plane, self._part)
        server.send_signal(signal.SIGSTOP)  # first, so that it starts no other process
        self._stopped = [server, *server.children(recursive=True)]
        for process in self._stopped[1:]:
            process.send_signal(signal.SIGSTOP)

    def end(self, plane: PlaneUnderTest) -> None:
        for process in reversed(self._stopped):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        self._stopped = []


class DatabaseRefused(Outage):
    """Killed, with a setting in its file that no server starts with."""

    _LINE = "\nno_such_setting = on\n"

    def begin(self, plane: PlaneUnderTest) -> None:
        path = cluster_of(plane) / "postgresql.conf"
        path.write_text(path.read_text() + self._LINE)
        kill(server_of(plane, "postgres").pid)

    def end(self, plane: PlaneUnderTest) -> None:
        path = cluster_of(plane) / "postgresql.conf"
        path.write_text(path.read_text().replace(self._LINE, ""))


class DatabaseFull(Outage):
    """The database is on a file system of its own. A file takes all of it, and grows into
    what the server sets free. Events are still accepted as long as the pages that the server has
    already hold them."""

    refuses = True

    @contextmanager
    def prepared(self, plane: PlaneUnderTest) -> Iterator[PlaneUnderTest]:
        server = EmbeddedPostgres(plane.data_dir)
        server.start()
        server.stop()
        cluster = cluster_of(plane)
        aside = plane.data_dir / "postgres.aside"
        cluster.rename(aside)
        cluster.mkdir()
        size = f"size={DISK_MIB}m,mode=0700"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(cluster)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NoDiskError(f"no disk can be made for the database: {done.stderr.strip()}")
        try:
            subprocess.run(["cp", "-a", f"{aside}/.", str(cluster)], check=True)
            yield plane
        finally:
            with suppress(Exception):
                plane.down()
            subprocess.run(["umount", str(cluster)], check=True)

    def begin(self, plane: PlaneUnderTest) -> None:
        self.hold(plane)

    def hold(self, plane: PlaneUnderTest) -> None:
        """Large pieces first, then what is left by the page."""
        with (cluster_of(plane) / "filler").open("ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def end(self, plane: PlaneUnderTest) -> None:
        (cluster_of(plane) / "filler").unlink()


class BrokerRefused(Outage):
    """The plane reaches its broker through a port of ours, which is closed meanwhile."""

    @contextmanager
    def prepared(self, plane: PlaneUnderTest) -> Iterator[PlaneUnderTest]:
        inner, outer = free_port(), free_port()
        self._door = Door(outer, inner)
        broker = subprocess.Popen(
            [
                *(broker_executable(), "broker", "--storage-engine", "memory://tansu/"),
                *("--listener-url", f"tcp://{HOST}:{inner}"),
                *("--advertised-listener-url", f"tcp://{HOST}:{outer}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "RUST_LOG": "error"},
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        try:
            until(lambda: listens(broker.pid, inner))
            self._door.open()
            named = {
                "WHARFINGER_KAFKA": f"{HOST}:{outer}",
                "WHARFINGER_BROKER": "memory",
                "WHARFINGER_BROKER_BOOT_ID": f"outage-{broker.pid}",
            }
            yield replace(plane, environment={**plane.environment, **named})
        finally:
            with suppress(Exception):
                plane.down()
            self._door.end()
            broker.kill()
            broker.wait()

    def begin(self, plane: PlaneUnderTest) -> None:
        self._door.shut()

    def end(self, plane: PlaneUnderTest) -> None:
        self._door.open()


class Door:
    """A TCP port that passes everything on while it is open, in a thread of its own. Shut, it takes
    no connection and has none."""

    def __init__(self, port: int, to: int) -> None:
        self._port, self._to = port, to
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def open(self) -> None:
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    def shut(self) -> None:
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()

    def end(self) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            inner_reader, inner_writer = await asyncio.open_connection(HOST, self._to)
            self._writers.add(inner_writer)
            try:
                await asyncio.gather(
                    self._pass(reader, inner_writer), self._pass(inner_reader, writer)
                )
            finally:
                self._writers.discard(inner_writer)
                inner_writer.close()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()


OUTAGES = (
    "database frozen",
    "database refused",
    "database full",
    "broker frozen",
    "broker refused",
)


def outage_of(victim: str) -> Outage:
    match victim:
        case "database frozen":
            return Frozen("postgres")
        case "broker frozen":
            return Frozen("broker")
        case "database refused":
            return DatabaseRefused()
        case "database full":
            return DatabaseFull()
        case "broker refused":
            return BrokerRefused()
        case other:
            raise ValueError(f"unknown outage {other!r}")


def cluster_of(plane: PlaneUnderTest) -> Path:
    return plane.data_dir / "postgres"


def server_of(plane: PlaneUnderTest, part: str) -> psutil.Process:
    """The first process of an embedded server, or of the broker that `BrokerRefused` started."""
    found = plane.plane()
    pid = found["pids"].get("database" if part == "postgres" else "broker")
    if pid is not None:
        return psutil.Process(int(pid))
    address = f"tcp://{found['bootstrap']}"
    return next(one for one in psutil.Process().children() if address in one.cmdline())


@dataclass(slots=True)
class LogLines:
    """Lines that the processes of a plane write to their logs. `level`: of a bucket that loses one
    line a second; `highest`: the most that was ever in it."""

    directory: Path
    lines: Counter[str] = field(default_factory=Counter)
    level: dict[str, float] = field(default_factory=dict)
    highest: dict[str, float] = field(default_factory=dict)
    said: Counter[str] = field(default_factory=Counter)
    _read: dict[Path, int] = field(default_factory=dict)
    _at: float = 0.0

    def begin(self) -> None:
        self._read = {path: path.stat().st_size for path in self.directory.glob("*.log")}
        self._at = time.monotonic()

    def look(self) -> None:
        now = time.monotonic()
        passed, self._at = now - self._at, now
        for path in self.directory.glob("*.log"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                new = file.read()
            self._read[path] = self._read.get(path, 0) + len(new)
            count = new.count(b"\n")
            name = path.stem
            self.lines[name] += count
            self.level[name] = max(0.0, self.level.get(name, 0.0) - passed) + count
            self.highest[name] = max(self.highest.get(name, 0.0), self.level[name])
            for line in new.splitlines():
                self.said[f"{name}: {_event(line)}"] += 1


def _event(line: bytes) -> str:
    text = line.decode(errors="replace")
    _, found, rest = text.partition('"event":')
    return rest.strip().strip('"').partition('"')[0] if found else text[:80]


@dataclass(slots=True)
class Watched:
    """What one outage did to the services: `before`, `most` and `after` are MiB of each."""

    victim: str
    seconds: float
    logs: LogLines
    before: dict[str, float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    exits: Counter[str] = field(default_factory=Counter)
    accepted: int = 0

    def report(self) -> Iterator[str]:
        yield f"outage of {self.victim}, {self.seconds:.0f} s: {self.accepted} events accepted"
        yield f"  exits: {dict(self.exits) or 0}"
        for name in sorted(self.before):
            most, after = self.most.get(name, 0.0), self.after.get(name, 0.0)
            yield (
                f"  memory of {name}: {self.before[name]:.0f} MiB before, {most:.0f} at the most, "
                f"{after:.0f} after"
            )
        for name, count in sorted(self.logs.lines.items()):
            if count:
                yield (
                    f"  log of {name}: {count} lines, {count / self.seconds:.2f} a second, "
                    f"{self.logs.highest[name]:.0f} at once"
                )
        together = sum(self.logs.lines.values())
        yield f"  log of all: {together} lines, {together / self.seconds:.2f} a second"
        for what, count in self.logs.said.most_common(12):
            yield f"    {count} x {what}"

    def broken(self) -> Iterator[str]:
        for name, count in sorted(self.exits.items()):
            yield f"outage of {self.victim}: {name} ended {count} times"
        if self.seconds >= MEMORY_FROM_S:
            for name in sorted(self.before.keys() - BACKENDS):
                most = self.most.get(name, 0.0)
                if most > self.before[name] * (1 + MEMORY_MORE):
                    yield (
                        f"outage of {self.victim}: memory of {name} rose from "
                        f"{self.before[name]:.0f} to {most:.0f} MiB"
                    )
        for name, lines in sorted(self.logs.highest.items()):
            if lines > LINES_AT_ONCE:
                yield (
                    f"outage of {self.victim}: {name} wrote more than a line a second: "
                    f"{lines:.0f} lines ahead of it"
                )


async def watched(
    plane: PlaneUnderTest, outage: Outage, victim: str, seconds: float, more: Callable[[], bool]
) -> Watched:
    """Begin the outage, look at the plane meanwhile, for `seconds` and while `more()`, and end
    it."""
    found = Watched(victim, seconds, LogLines(plane.data_dir / "log"))
    found.before = await asyncio.to_thread(memory_mib, plane)
    found.most = dict(found.before)
    lives = Lives(plane)
    found.logs.begin()
    await asyncio.to_thread(outage.begin, plane)
    try:
        began = measured = time.monotonic()
        while (now := time.monotonic()) - began < seconds or more():
            await asyncio.to_thread(outage.hold, plane)
            found.logs.look()
            lives.look()
            if now - measured >= min(MEMORY_EVERY_S, seconds / 4):
                measured = now
                for name, mib in (await asyncio.to_thread(memory_mib, plane)).items():
                    found.most[name] = max(found.most.get(name, 0.0), mib)
            await asyncio.sleep(min(1.0, seconds / 4))
        found.logs.look()
    finally:
        await asyncio.to_thread(outage.end, plane)
    found.seconds = time.monotonic() - began
    lives.look()
    found.exits = lives.exits
    return found


class Lives:
    """Which process each service is, and how often that changed."""

    def __init__(self, plane: PlaneUnderTest) -> None:
        self._plane = plane
        self.exits: Counter[str] = Counter()
        self._pids = self._now()
        self._restarts = self._restarted()

    def look(self) -> None:
        restarts, pids = self._restarted(), self._now()
        for name in self._pids.keys() | pids.keys():
            more = restarts.get(name, 0) - self._restarts.get(name, 0)
            changed = pids.get(name) not in (None, self._pids.get(name))
            self.exits[name] += more or int(changed)
        self.exits = +self.exits
        self._pids, self._restarts = {**self._pids, **pids}, restarts

    def _now(self) -> dict[str, int]:
        record = read_record(self._plane.data_dir)
        found = {name: pid for name, (pid, _) in record.children.items()} if record else {}
        return {**found, **({"supervisor": record.pid} if record else {})}

    def _restarted(self) -> dict[str, int]:
        record = read_record(self._plane.data_dir)
        return record.restarts if record else {}


def memory_mib(plane: PlaneUnderTest) -> dict[str, float]:
    """Of each service and each other part."""
    return {name: mb * 1e6 / 2**20 for name, mb in plane.memory_mb(service_of).items()}
