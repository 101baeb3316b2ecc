"""What proves to an API server who asks: a token that may change, and a TLS context that may change
with it.

A token file is read again every minute, since kubelets replace it before it expires. An exec plugin
runs without a shell, for a limited time, and what it printed is used until it expires or the server
answers 401. Nothing of a credential is ever in an error: of a plugin that fails, its name and its
exit code.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import tempfile
import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from wharfinger.domain.value import json_decoder
from wharfinger.runtime.kube.kubeconfig import Access, ExecPlugin

TOKEN_FILE_READ_S = 60.0
"""client-go reads it as often; kubelet replaces a token when four fifths of its life are over."""

PLUGIN_S_MAX = 30.0

EXPIRY_MARGIN_S = 10.0
"""A credential that expires within so many seconds counts as expired: the request still has to
arrive."""


class CredentialsError(Exception):
    """One line for a person, without anything secret."""


@dataclass(slots=True)
class _Issued:
    """What a plugin or a file gave. `until`: monotonic seconds; None: until the server says no."""

    token: str = field(default="", repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    until: float | None = None


class Credentials:
    """Of one API server. Used by one event loop."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._issued: _Issued | None = None
        self._asking = asyncio.Lock()
        self._context: tuple[bytes | None, ssl.SSLContext] | None = None

    def secrets(self) -> list[str]:
        """What must not be repeated of a request that was sent."""
        return [self._issued.token] if self._issued is not None and self._issued.token else []

    async def headers(self) -> dict[str, str]:
        token = (await self._current()).token
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def tls(self) -> ssl.SSLContext:
        """For the connection. Another one after the client certificate has changed."""
        issued = await self._current()
        if self._context is None or self._context[0] != issued.certificate:
            self._context = (
                issued.certificate,
                tls_context(replace(self._access, certificate=issued.certificate, key=issued.key)),
            )
        return self._context[1]

    def refused(self) -> bool:
        """The server answered 401. True where asking again may give another credential."""
        self._issued = None
        return self._access.plugin is not None or self._access.token_file is not None

    async def _current(self) -> _Issued:
        async with self._asking:
            issued = self._issued
            if issued is None or (issued.until is not None and issued.until <= time.monotonic()):
                self._issued = issued = await self._issue()
            return issued

    async def _issue(self) -> _Issued:
        access = self._access
        if access.plugin is not None:
            issued = await _run(access.plugin, access)
            if issued.certificate is None:
                issued.certificate, issued.key = access.certificate, access.key
            return issued
        issued = _Issued(access.token, access.certificate, access.key)
        if access.token_file is not None:
            issued.token = _read(access.token_file)
            issued.until = time.monotonic() + TOKEN_FILE_READ_S
        return issued


def tls_context(access: Access) -> ssl.SSLContext:
    """CredentialsError where certificate and key cannot be used."""
    if access.insecure:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        try:
            data = None if access.authority is None else access.authority.decode("ascii")
            context = ssl.create_default_context(cadata=data)
        except (ssl.SSLError, UnicodeDecodeError):
            raise CredentialsError(
                "the certificate authority of the server is not a PEM certificate"
            ) from None
    if access.certificate is not None and access.key is not None:
        # OpenSSL reads a chain and its key from files only. The file is gone before anything else
        # happens.
        with tempfile.NamedTemporaryFile() as file:
            file.write(access.certificate.rstrip() + b"\n" + access.key)
            file.flush()
            try:
                context.load_cert_chain(file.name)
            except ssl.SSLError:
                raise CredentialsError(
                    "the client certificate and its key do not fit, or are not PEM"
                ) from None
    return context


def _read(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(
            f"token file {file}: {getattr(error, 'strerror', None) or 'not text'}"
        ) from None
    if not token:
        raise CredentialsError(f"token file {file}: it is empty")
    return token


# --- exec plugins


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    status: _ExecStatus
    api_version: str = ""


async def _run(plugin: ExecPlugin, access: Access) -> _Issued:
    environment = {
        **os.environ,
        **dict(plugin.env),
        "KUBERNETES_EXEC_INFO": json.dumps(_exec_info(plugin, access)),
    }
    name = Path(plugin.command).name
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=environment,
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        hint = f"; {plugin.hint}" if plugin.hint else ""
        raise CredentialsError(
            f"exec plugin {name} cannot be started: {error.strerror or error}{hint}"
        ) from None
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), PLUGIN_S_MAX)
    except TimeoutError:
        raise CredentialsError(
            f"exec plugin {name} gave nothing within {PLUGIN_S_MAX:g} s"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise CredentialsError(f"exec plugin {name} ended with code {process.returncode}")
    return _issued_by(name, plugin, printed)


def _issued_by(name: str, plugin: ExecPlugin, printed: bytes) -> _Issued:
    try:
        answer = json_decoder(_ExecCredential).decode(printed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise CredentialsError(f"exec plugin {name} did not print an ExecCredential") from None
    if answer.api_version != plugin.api_version:
        raise CredentialsError(
            f"exec plugin {name} answered in another version than {plugin.api_version}"
        )
    status = answer.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise CredentialsError(
            f"exec plugin {name} gave neither a token nor a certificate with its key"
        )
    issued = _Issued(status.token)
    if status.client_certificate_data and status.client_key_data:
        issued.certificate, issued.key = (
            status.client_certificate_data.encode(),
            status.client_key_data.encode(),
        )
    if status.expiration_timestamp is not None:
        left = status.expiration_timestamp.timestamp() - time.time()
        issued.until = time.monotonic() + max(0.0, left - EXPIRY_MARGIN_S)
    return issued


def _exec_info(plugin: ExecPlugin, access: Access) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster_info:
        spec["cluster"] = {"server": access.server, "insecure-skip-tls-verify": access.insecure}
        if access.authority is not None:
            spec["cluster"]["certificate-authority-data"] = base64.b64encode(
                access.authority
            ).decode()
        if access.server_name:
            spec["cluster"]["tls-server-name"] = access.server_name
    return {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
