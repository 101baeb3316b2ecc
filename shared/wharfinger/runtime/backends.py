"""What the plane stands on: one broker, one database, and what they can do.

No code asks which product the broker is. It asks for capabilities. There are two sets of them, each
named after what it promises: `durable` (Apache Kafka and brokers that behave like it) and `memory`
(the embedded broker: it loses its records on restart, a group join takes half a session timeout,
and it answers a long poll late). The settings of clients, topics and tests follow from the set.
Next: `embedded` starts a backend; `faust_app`, `broadcast` and `topics` use it.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypedDict
from urllib.parse import parse_qs, urlsplit

from wharfinger.domain.text import one_line

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
BrokerProfile = Literal["durable", "memory"]


class BackendError(Exception):
    """The broker or the database cannot be used; the message is one line, fit for a person."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a broker can do and what its clients must therefore be set to. Seconds and milliseconds
    as named."""

    durable_restart: bool  # acknowledged records survive the broker's own restart
    retention: bool  # cleanup.policy and retention.ms have an effect
    transactions: bool  # read_committed hides aborted records
    idempotence: bool  # a producer's retries leave one record
    offsets_for_times: bool
    static_membership: bool  # group.instance.id shortens a restart instead of lengthening it
    min_session_s: float  # a shorter session timeout is refused
    session_s: float
    heartbeat_s: float
    rebalance_s: float  # how long the broker waits for members to come back to a rebalance
    # long poll of a consumer, or the shortest pause between polls (see `runtime.fetch_pacing`)
    fetch_wait_ms: int
    idle_poll_ms: int  # the longest pause between polls; 0: the broker itself wakes a long poll
    metadata_max_age_ms: int


# A session below 6 s is refused by brokers with default settings; the broker wakes a long poll when
# data comes.
DURABLE = Capabilities(
    durable_restart=True,
    retention=True,
    transactions=True,
    idempotence=True,
    offsets_for_times=True,
    static_membership=True,
    min_session_s=6.0,
    session_s=10.0,
    heartbeat_s=3.0,
    rebalance_s=10.0,
    fetch_wait_ms=500,
    idle_poll_ms=0,
    metadata_max_age_ms=60_000,
)

# The embedded broker lets a group join after half a session (never before one second), lets a
# member that left come back after up to two sessions, and answers a long poll after half of what
# remains of it. Short sessions make it quick; its readers poll without a wait, at times that
# `runtime.fetch_pacing` chooses (observers, which coalesce anyway, with ten times the pause). A
# session of one second held without a false expiry under five apps in one process whose loop was
# blocked for 1.5 s at a time, on a machine with twice as many busy processes as cores. Topics never
# change their partitions, so metadata may be old.
MEMORY = Capabilities(
    durable_restart=False,
    retention=False,
    transactions=False,
    idempotence=True,
    offsets_for_times=False,
    static_membership=False,
    min_session_s=0.1,
    session_s=1.0,
    heartbeat_s=0.4,
    rebalance_s=5.0,
    fetch_wait_ms=10,
    idle_poll_ms=2000,
    metadata_max_age_ms=60_000,
)

CAPABILITIES: Mapping[BrokerProfile, Capabilities] = MappingProxyType(
    {"durable": DURABLE, "memory": MEMORY}
)


class ClientOptions(TypedDict):
    """The connection part of every aiokafka client's keyword arguments."""

    bootstrap_servers: list[str]
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: SaslMechanism
    sasl_plain_username: str | None
    sasl_plain_password: str | None


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """How clients prove themselves to the broker and the broker to them."""

    protocol: SecurityProtocol = "PLAINTEXT"
    mechanism: SaslMechanism = "PLAIN"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def ssl_context(self) -> ssl.SSLContext | None:
        """A context that verifies the broker; the system's authorities unless `ca_file` is given.
        None without TLS."""
        if not self.uses_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(
                str(path)
                for path in (self.ca_file, self.cert_file, self.key_file)
                if path is not None
            )
            raise BackendError(f"broker TLS files cannot be used ({files}): {error}") from error
        return context


@dataclass(frozen=True, slots=True)
class Backend:
    """One broker and one database. `boot_id` changes whenever the broker lost everything; "" where
    it never does."""

    bootstrap: str  # host:port, comma-separated
    database_url: str = field(repr=False)  # postgresql+asyncpg://…; may hold a password
    capabilities: Capabilities
    boot_id: str = ""
    security: KafkaSecurity = KafkaSecurity()

    @property
    def bootstrap_servers(self) -> list[str]:
        return self.bootstrap.split(",")

    def client_options(self) -> ClientOptions:
        """Connection arguments for any aiokafka client; call once per client (a TLS context is
        made)."""
        return ClientOptions(
            bootstrap_servers=self.bootstrap_servers,
            security_protocol=self.security.protocol,
            ssl_context=self.security.ssl_context(),
            sasl_mechanism=self.security.mechanism,
            sasl_plain_username=self.security.username,
            sasl_plain_password=self.security.password,
        )


def checked_bootstrap(value: str) -> str:
    """`host:port`, comma-separated, without blanks. ValueError says what was expected."""
    servers = [server.strip() for server in value.split(",")]
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError("expected host:port, comma-separated when there are several")
    return ",".join(servers)


def async_database_url(url: str) -> str:
    """`postgres://…` and `postgresql://…` as the URL of the driver we use. ValueError says what was
    expected."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("postgres", "postgresql", "postgresql+asyncpg"):
        raise ValueError("expected postgresql://user:password@host:port/database")
    return f"postgresql+asyncpg://{rest}"


def plain_database_url(url: str) -> str:
    """The same URL as asyncpg and psql read it, without SQLAlchemy's driver name."""
    return url.replace("postgresql+asyncpg://", "postgresql://", 1)


def shown_database_url(url: str) -> str:
    """The URL with its password left out, for messages and logs."""
    parts = urlsplit(plain_database_url(url))
    host = parts.hostname or ",".join(parse_qs(parts.query).get("host", [])) or "?"
    try:
        port = parts.port
    except ValueError:  # the port may be part of a password that is not escaped
        return f"{host}:?{'' if '@' in parts.path else parts.path}"
    return f"{host}{f':{port}' if port else ''}{parts.path}"


async def probe(backend: Backend, timeout_s: float = 5.0) -> None:
    """Ask both for a sign of life. BackendError: one line that names the one that gave none, and
    why."""
    await asyncio.gather(
        probe_broker(backend, timeout_s), probe_database(backend.database_url, timeout_s)
    )


async def probe_broker(backend: Backend, timeout_s: float = 5.0) -> None:
    # settings know backends, and few commands ask them
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaError

    admin = AIOKafkaAdminClient(
        **backend.client_options(), request_timeout_ms=int(timeout_s * 1000)
    )
    try:
        async with asyncio.timeout(timeout_s):
            await admin.start()
            await admin.list_topics()
    except (KafkaError, OSError, ValueError, TimeoutError) as error:
        why = (
            f"no answer in {timeout_s:g} s" if isinstance(error, TimeoutError) else one_line(error)
        )
        raise BackendError(f"broker {backend.bootstrap}: {why}") from error
    finally:
        await admin.close()


async def probe_database(url: str, timeout_s: float = 5.0) -> None:
    import asyncpg
    from asyncpg.exceptions import InterfaceError, PostgresError

    try:
        connection = await asyncpg.connect(plain_database_url(url), timeout=timeout_s)
    except (PostgresError, InterfaceError, OSError, ValueError, TimeoutError) as error:
        why = (
            f"no answer in {timeout_s:g} s" if isinstance(error, TimeoutError) else one_line(error)
        )
        raise BackendError(f"database {shown_database_url(url)}: {why}") from error
    await connection.close(timeout=timeout_s)


def notice_lost_connections() -> None:
    """From now on a request to a broker on a connection that was just lost closes it and is a
    KafkaConnectionError, which the client tries again on a new one. It wraps methods of the client;
    a test of this function notices when they move.

    libuv closes a connection as soon as it is reset, and a write to it is a RuntimeError then.
    asyncio takes such bytes and drops them, and that is what the client expects: it notices the
    loss a few turns of the loop later, when its reader ends. A RuntimeError ends its background
    tasks for good, and a producer without them never sends again."""
    from aiokafka.conn import AIOKafkaConnection

    for name in ("send", "_send_sasl_token"):
        send = getattr(AIOKafkaConnection, name)
        if not hasattr(send, "__wrapped__"):
            setattr(AIOKafkaConnection, name, _where_connected(send))


def _where_connected(send: Callable[..., Any]) -> Callable[..., Any]:
    from aiokafka.conn import CloseReason
    from aiokafka.errors import KafkaConnectionError

    @wraps(send)
    def sent(connection: Any, *arguments: Any, **options: Any) -> Any:
        writer = connection._writer
        if writer is not None and writer.transport.is_closing():
            connection.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(
                f"Connection at {connection._host}:{connection._port} broken: it was reset"
            )
        return send(connection, *arguments, **options)

    return sent
