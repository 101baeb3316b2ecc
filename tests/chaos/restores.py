"""What takes history from a plane: its database is put back to an earlier state, and its topics
are deleted and made again.

The database's files are copied behind a killed server, so they are what a crash leaves. The
supervisor is stopped meanwhile and starts the server again afterwards. The broker and its records
stay, as they do where Kafka is another machine.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from benchmarks.plane import PlaneUnderTest
from tests.chaos.outages import cluster_of, server_of
from tests.patience import until
from tests.planes import kill

from wharfinger.runtime.processes import ProcessIdentity
from wharfinger.runtime.settings import load_settings
from wharfinger.runtime.topics import delete_topics

WATCHED = "PG_VERSION"
"""A plane ends where this file is another one, because its database then is."""


class Backup:
    """The files of a plane's embedded database, beside them."""

    def __init__(self, plane: PlaneUnderTest) -> None:
        self._plane = plane
        self._copy = plane.data_dir / "postgres.backup"

    def take(self) -> None:
        with _database_ended(self._plane):
            shutil.rmtree(self._copy, ignore_errors=True)
            _copied(cluster_of(self._plane), self._copy)

    def put_back(self) -> None:
        cluster = cluster_of(self._plane)
        with _database_ended(self._plane):
            for path in cluster.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != WATCHED:
                    path.unlink()
            _copied(self._copy, cluster)


@contextmanager
def _database_ended(plane: PlaneUnderTest) -> Iterator[None]:
    """Every process of the server, until the supervisor goes on."""
    supervisor = psutil.Process(int(plane.plane()["supervisor_pid"]))
    server = server_of(plane, "postgres")
    supervisor.suspend()
    try:
        pids = [server.pid, *(child.pid for child in server.children(recursive=True))]
        all_of_it = [one for one in map(ProcessIdentity.of, pids) if one is not None]
        kill(server.pid)
        until(lambda: not any(one.alive for one in all_of_it))
        yield
    finally:
        supervisor.resume()


def _copied(source: Path, target: Path) -> None:
    """With owners and modes. A file that is there keeps its place on the disk."""
    target.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)


async def delete_topic(plane: PlaneUnderTest, topic: str) -> None:
    """The plane makes it again."""
    await delete_topics(load_settings({"data_dir": plane.data_dir}).backend(), [topic])
