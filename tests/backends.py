"""Where the tests find a broker and a database: what the environment names, else Docker, else the
embedded wheels.

`WHARFINGER_TEST_BACKEND` = external, docker or embedded forces one; then what is missing is a
failure and never a skip or another one. Tests keep apart by topic prefix, consumer group and
database, so one backend serves a whole run.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import os
import tempfile
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from infra.scratch import is_in_memory
from tests.patience import PATIENCE_S

from wharfinger.runtime.backends import (
    CAPABILITIES,
    DURABLE,
    Backend,
    async_database_url,
    plain_database_url,
    probe,
)
from wharfinger.runtime.embedded import Embedded
from wharfinger.runtime.ledger.writer import CHANNEL
from wharfinger.runtime.topics import delete_topics, topic_names

T = TypeVar("T")

FORCE = "WHARFINGER_TEST_BACKEND"
KAFKA = "WHARFINGER_TEST_KAFKA"
DATABASE = "WHARFINGER_TEST_DATABASE"
BROKER = "WHARFINGER_TEST_BROKER"  # what the external broker promises: durable (default) or memory

TOPIC_PREFIX = r"t[0-9a-f]{10}\."  # each test has one of its own

PROBE_S = 2  # for a Docker engine; the tests take the embedded servers where none answers
KAFKA_IMAGE = "confluentinc/cp-kafka:7.6.0"
POSTGRES_IMAGE = "postgres:18"


class BackendMissing(Exception):  # noqa: N818 - it is a state of the machine, and read as one
    """Why this backend cannot be had here."""


@contextmanager
def any_backend(environment: Mapping[str, str] = os.environ) -> Iterator[Backend]:
    """The first backend there is, or the forced one; BackendMissing when there is none."""
    forced = environment.get(FORCE)
    if forced is not None and forced not in WAYS:
        raise BackendMissing(f"{FORCE}={forced}: expected one of {', '.join(WAYS)}")
    with ExitStack() as stack:
        for name in [forced] if forced else WAYS:
            try:
                backend = stack.enter_context(WAYS[name](environment))
                break
            except BackendMissing as missing:
                if forced:
                    raise BackendMissing(f"{FORCE}={forced}: {missing}") from missing
        else:
            raise BackendMissing(
                "no broker and database: nothing named, no Docker engine, no embedded wheels"
            )
        yield backend


@contextmanager
def _external(environment: Mapping[str, str]) -> Iterator[Backend]:
    kafka, database = environment.get(KAFKA), environment.get(DATABASE)
    if not kafka and not database:
        raise BackendMissing(f"{KAFKA} and {DATABASE} are not set")
    if not kafka or not database:
        # half an answer is a mistake, not a no
        raise RuntimeError(f"{KAFKA} and {DATABASE}: set both or neither")
    match environment.get(BROKER, "durable"):
        case "durable" | "memory" as promise:
            backend = Backend(kafka, async_database_url(database), CAPABILITIES[promise])
        case other:
            raise RuntimeError(f"{BROKER}={other}: expected durable or memory")
    in_a_loop(lambda: probe(backend))
    yield backend


@contextmanager
def _docker(_: Mapping[str, str]) -> Iterator[Backend]:
    _probe_docker()
    try:
        from testcontainers.community.kafka import KafkaContainer
        from testcontainers.community.postgres import PostgresContainer
    except ImportError as error:
        raise BackendMissing(f"testcontainers: {error}") from error
    with ExitStack() as stack:
        try:
            kafka = stack.enter_context(KafkaContainer(KAFKA_IMAGE).with_kraft())
            postgres = stack.enter_context(PostgresContainer(POSTGRES_IMAGE, driver="asyncpg"))
        except Exception as error:  # an engine without a way to the images fails in many shapes
            warnings.warn(f"Docker answers, but the containers do not start: {error}", stacklevel=2)
            raise BackendMissing(str(error)) from error
        yield Backend(
            kafka.get_bootstrap_server(), async_database_url(postgres.get_connection_url()), DURABLE
        )


def _probe_docker() -> None:
    """Asked first, because making a container object without an engine raises whatever the client
    likes."""
    try:
        import docker  # type: ignore[import-untyped]
    except ImportError as error:
        raise BackendMissing(f"docker: {error}") from error
    try:
        client = docker.from_env(timeout=PROBE_S)
        try:
            client.ping()
        finally:
            client.close()
    except Exception as error:
        raise BackendMissing(f"no Docker engine answers: {error}") from error


@contextmanager
def _embedded(_: Mapping[str, str]) -> Iterator[Backend]:
    """Both end with the test session, however it ends: the fixture runs on the main thread."""
    with tempfile.TemporaryDirectory(prefix="wharfinger-test-") as directory:
        embedded = Embedded.under(Path(directory), die_with_parent=True)
        try:
            yield embedded.start()
        finally:
            embedded.stop()


WAYS: Mapping[str, Callable[[Mapping[str, str]], Any]] = {
    "external": _external,
    "docker": _docker,
    "embedded": _embedded,
}


def in_a_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run async work from a fixture, whether or not the test has a loop of its own."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


def on_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@contextmanager
def fresh_database(server_url: str, template: str = "template0") -> Iterator[str]:
    """The URL of a new database that is dropped afterwards, with whoever is still connected to
    it."""
    name = f"wharfinger_test_{uuid.uuid4().hex[:12]}"
    in_a_loop(lambda: _create(server_url, name, template))
    try:
        yield on_database(server_url, name)
    finally:
        in_a_loop(lambda: _execute(server_url, f'drop database if exists "{name}" with (force)'))


async def _create(server_url: str, name: str, template: str) -> None:
    """A server whose files are in memory copies them in half the processor time. On a disk
    it would wait for the disk twice: there it copies through its log, as it does by itself."""
    async with _connected(server_url) as connection:
        # empty: the server is another user's, and does not say where its files are
        files = await connection.fetchval(
            "select setting from pg_settings where name = 'data_directory'"
        )
        strategy = "file_copy" if is_in_memory(Path(files or "")) else "wal_log"
        await connection.execute(
            f'create database "{name}" template "{template}" strategy {strategy}'
        )


async def _execute(url: str, statement: str) -> None:
    async with _connected(url) as connection:
        await connection.execute(statement)


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(
        plain_database_url(on_database(url, "postgres")), timeout=PATIENCE_S
    )
    try:
        yield connection
    finally:
        await connection.close()


async def forget_topics(backend: Backend, prefix: str) -> None:
    """Free what a test made: the memory broker would keep it for the whole run."""
    await delete_topics(
        backend, [name for name in await topic_names(backend) if name.startswith(prefix)]
    )


class Commits:
    """Tells which bytes to PostgreSQL make it commit rounds: a COMMIT, or outside of a transaction
    the parameters of the statement that writes them, which name the channel that it notifies. One
    for each connection."""

    def __init__(self) -> None:
        self._open = False

    def next(self, data: bytes) -> bool:
        """To be called with everything that is sent."""
        if b"BEGIN" in data:
            self._open = True
        if b"COMMIT" in data:
            self._open = False
            return True
        return not self._open and CHANNEL.encode() in data and b"LISTEN" not in data
