"""A supervisor whose services are stand-ins, run as a process of its own so that it can be killed.

Broker, database, schema and topics are real; only the services are replaced, by `fake_service`,
because what is tested is who is started, stopped and started again. Arguments: the data directory,
then the names of the processes to run.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import structlog

from wharfinger.runtime import children, supervisor
from wharfinger.runtime.backends import BackendError
from wharfinger.runtime.plane import PlaneError

FAKE = "tests.integration.fake_service"


def replace_services(names: tuple[str, ...]) -> None:
    """Also needed by whoever takes the plane down: a process is known as ours by its module."""
    children.MODULES = dict.fromkeys((*names, children.ONE), FAKE)
    children.EACH = names


def main(data_dir: Path, names: tuple[str, ...]) -> int:
    replace_services(names)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    one = supervisor.Supervisor(data_dir, {"processes": "each"}, lambda _: None)
    supervisor.stop_on_signals(one, (signal.SIGTERM,))
    try:
        one.run()
    except (PlaneError, BackendError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), tuple(sys.argv[2:])))
