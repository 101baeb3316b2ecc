"""The status that the processes of a plane report: files in its data directory, and the answers to
`/readyz`.

The service processes and the supervisor write these files. Commands read them without
loading the code of the services.
"""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import msgspec

from wharfinger.domain.value import json_decoder
from wharfinger.runtime.plane import SUPERVISOR_FILE, PlaneError
from wharfinger.runtime.processes import ProcessIdentity

RUN_DIR = "run"
READYZ_TIMEOUT_S = 1.0

STEPS = ("broker and database", "schema and topics", "services", "ready")
"""The steps in which a supervisor starts a plane."""


class ServiceReport(msgspec.Struct, frozen=True):
    """One service, as it answers. `lag`: messages not yet taken in. `failed`: why it is about to be
    started again. `stalled_s`: for how long it has completed nothing although something waits.
    `oldest_s`: age of the oldest message or row that waits. `requests`: how many its last rounds
    left open, and `requests_since_us`: when the oldest of these was taken in, in microseconds; 0:
    none."""

    ready: bool = False
    lag: int = 0
    failed: str = ""
    stalled_s: float = 0.0
    oldest_s: float = 0.0
    divergences: int = 0
    requests: int = 0
    requests_since_us: int = 0


class Readiness(msgspec.Struct, frozen=True):
    """The answer of a process's `/readyz`."""

    ready: bool = False
    services: dict[str, ServiceReport] = {}


class ProcessCard(msgspec.Struct, frozen=True):
    """The file `run/<process>.json`, which a service process keeps for as long as it runs."""

    pid: int
    http_port: int = 0
    services: tuple[str, ...] = ()
    tls: bool = False

    def readiness(self, timeout_s: float = READYZ_TIMEOUT_S) -> Readiness | None:
        """The answer of `/readyz` now; None when there is no answer. A busy process may not answer
        in time, so None does not mean that the process is down."""
        connection = self._connection(timeout_s)
        try:
            connection.request("GET", "/readyz")
            return json_decoder(Readiness).decode(connection.getresponse().read())
        except (OSError, HTTPException, msgspec.MsgspecError):
            return None
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> HTTPConnection:
        if not self.tls:
            return HTTPConnection("127.0.0.1", self.http_port, timeout=timeout_s)
        import ssl
        from http.client import HTTPSConnection

        # its certificate is for the names by which others know it; nothing secret is sent
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return HTTPSConnection("127.0.0.1", self.http_port, timeout=timeout_s, context=context)


def process_cards(data_dir: Path) -> Iterator[tuple[Path, ProcessCard]]:
    """The cards in `run/`. Some may be left from processes that have ended: the caller asks the
    kernel which ones still run."""
    for path in sorted((data_dir / RUN_DIR).glob("*.json")):
        try:
            yield path, json_decoder(ProcessCard).decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError):
            continue  # gone meanwhile, or not a process's file


class SupervisorRecord(msgspec.Struct, frozen=True):
    """The file `run/supervisor.state`, which a supervisor keeps while it runs. `children`: name ->
    (pid, start time); `services`: process -> the services of it that were ready once. So a command
    can name the services that are missing when a process is down."""

    pid: int
    started: float
    step: int = 0
    error: str = ""
    children: dict[str, tuple[int, float]] = {}
    services: dict[str, tuple[str, ...]] = {}
    restarts: dict[str, int] = {}

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.started)

    @property
    def ready(self) -> bool:
        return self.step >= len(STEPS)


def read_record(data_dir: Path) -> SupervisorRecord | None:
    try:
        return json_decoder(SupervisorRecord).decode((data_dir / SUPERVISOR_FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise PlaneError(
            f"{data_dir / SUPERVISOR_FILE}: cannot be read ({error}); remove it"
        ) from error
