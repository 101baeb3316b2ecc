"""A database that is named with `sslmode=verify-full` gets nothing before its certificate was
verified. The server's side is TLS as PostgreSQL begins it, without a database behind it."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from infra.kube.certificates import Authority

from wharfinger.runtime.backends import BackendError, async_database_url, probe_database

SSL_REQUEST = struct.pack("!ii", 8, 80877103)


@dataclass
class Server:
    """`said`: what clients have sent after TLS was agreed on, or in clear. `users`: whose
    certificates they have shown."""

    port: int = 0
    said: list[bytes] = field(default_factory=list)
    users: list[str] = field(default_factory=list)


@asynccontextmanager
async def listening(context: ssl.SSLContext | None) -> AsyncIterator[Server]:
    """None: a server without TLS."""
    server = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.readexactly(8)
            if first != SSL_REQUEST:
                server.said.append(first)
                return
            writer.write(b"N" if context is None else b"S")
            await writer.drain()
            if context is not None:
                await writer.start_tls(context)
                shown = writer.get_extra_info("ssl_object").getpeercert() or {}
                server.users += [v for part in shown.get("subject", ()) for _, v in part]
            if sent := await reader.read(1024):
                server.said.append(sent)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone: it did not like the certificate
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server


def files(directory: Path, *names: str) -> tuple[ssl.SSLContext, str]:
    """The server's side with a certificate for `names`, and the parameters of a URL that trusts its
    authority."""
    authority = Authority("database")
    certificate, key = authority.server(*names).write(directory, "server")
    trusted, _ = authority.pair.write(directory, "authority")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=trusted)
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_OPTIONAL
    client, client_key = authority.user("wharfinger").write(directory, "client")
    return context, f"sslrootcert={trusted}&sslcert={client}&sslkey={client_key}"


async def probe(server: Server, parameters: str) -> str:
    """Why it failed, which it always does: there is no database behind the server."""
    url = f"postgresql://wharfinger:secret@localhost:{server.port}/ledger?{parameters}"
    with pytest.raises(BackendError) as failed:
        await probe_database(async_database_url(url))
    assert "secret" not in str(failed.value)
    return str(failed.value)


async def test_a_verified_server_is_spoken_to_and_sees_our_certificate(tmp_path: Path) -> None:
    context, parameters = files(tmp_path, "localhost")
    async with listening(context) as server:
        await probe(server, f"sslmode=verify-full&{parameters}")
    assert any(b"wharfinger" in sent for sent in server.said)
    assert "wharfinger" in server.users


async def test_a_server_of_another_name_is_told_nothing(tmp_path: Path) -> None:
    context, parameters = files(tmp_path, "db.example")
    async with listening(context) as server:
        why = await probe(server, f"sslmode=verify-full&{parameters}")
    assert "certificate verify failed" in why
    assert server.said == []


async def test_a_server_of_another_authority_is_told_nothing(tmp_path: Path) -> None:
    context, _ = files(tmp_path, "localhost")
    (tmp_path / "other").mkdir()
    _, parameters = files(tmp_path / "other", "localhost")
    async with listening(context) as server:
        why = await probe(server, f"sslmode=verify-full&{parameters}")
    assert "certificate verify failed" in why
    assert server.said == []


async def test_a_server_without_tls_is_told_nothing(tmp_path: Path) -> None:
    _, parameters = files(tmp_path, "localhost")
    async with listening(None) as server:
        await probe(server, f"sslmode=verify-full&{parameters}")
    assert server.said == []
