"""A command beside a PostgreSQL of its own: `python -m infra.postgres.local -- COMMAND ...`.

The embedded server on a fresh directory, named to the command by WHARFINGER_TEST_DATABASE and gone
when the command ends. A database that the variable names already is left alone and used. The other
half of `infra/kafka/local.py`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

from infra.scratch import scratch

from wharfinger.runtime.embedded_postgres import EmbeddedPostgres

VARIABLE = "WHARFINGER_TEST_DATABASE"


def main(command: list[str]) -> int:
    """The command's exit code."""
    if not command:
        print("usage: python -m infra.postgres.local -- COMMAND ...", file=sys.stderr)
        return 2
    if os.environ.get(VARIABLE):
        return subprocess.run(command, check=False).returncode
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    directory = scratch("wharfinger-postgres-")
    postgres = EmbeddedPostgres(directory, die_with_parent=True)
    try:
        postgres.start()
        return subprocess.run(
            command, env=os.environ | {VARIABLE: postgres.url}, check=False
        ).returncode
    finally:
        postgres.stop()
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:][sys.argv[1:2] == ["--"] :]))
