"""Requests to one API server: one connection pool, the credentials in each request, every failure
as one line.

What the answer means is the caller's business, but for the two things that are the same for all: a
401 is answered once more with new credentials, and an error is what the server says in its Status
object.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Self, TypeVar

import aiohttp
import msgspec

from wharfinger.domain.text import one_line
from wharfinger.domain.value import json_decoder
from wharfinger.runtime.kube.credentials import Credentials, CredentialsError
from wharfinger.runtime.kube.kubeconfig import Access

T = TypeVar("T")

REQUEST_S_MAX = 30.0
"""Of a request that is answered at once."""

CONNECT_S_MAX = 10.0

SLOWED_MAX = 5
SLOWED_S, SLOWED_S_MAX = 1.0, 10.0
"""How often a 429 is waited out, and for how long where the server names no pause, and at most."""

USER_AGENT = "wharfinger"

ERROR_BYTES_MAX = 4096

ANSWER_BYTES_MAX = 128 * 2**20
"""Of one answer after it is unpacked. A page has at most 500 objects; etcd keeps none of over 2
MiB, and few are nearly as large."""

PAUSE_S_MAX = 86_400.0
"""The longest pause that a server can ask for."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises of bytes that are not the JSON of an API server: another shape, no UTF-8,
brackets within brackets without end."""

JSON = "application/json"


_USER_INFO = re.compile(r"//[^/\s@]*@")
"""Name and password in an address, as the libraries below repeat that of a proxy."""


class ApiError(Exception):
    """The server answered with an error. `code`: of HTTP; `reason`: the word of its Status,
    such as Forbidden; `retry_after_s`: the pause that it asks for, 0: none; `causes`: the reasons
    of its details, such as DisruptionBudget."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        retry_after_s: float = 0.0,
        causes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        self.causes = causes

    @property
    def ahead(self) -> bool:
        """Whether the version that was asked for is newer than all that the server has: it was set
        back to an earlier state."""
        return self.code == 504 and "Too large resource version" in self.message

    @classmethod
    def of(cls, status: bytes | msgspec.Raw, code: int = 0) -> ApiError:
        """What a Status object says. `code`: of HTTP, where one came with it. One of
        `UNREADABLE`."""
        said = json_decoder(_ServerStatus).decode(status)
        named = said.details.causes if said.details is not None else None
        causes = tuple([cause.reason for cause in named or ()])
        asked_s = (said.details.retry_after_seconds or 0) if said.details is not None else 0
        return cls(code or said.code, said.reason, said.message, _bounded_s(asked_s), causes)


class UnreachableError(Exception):
    """There is no answer: no connection, broken in between, or not in time. One line, without
    anything secret."""


class _StatusCause(msgspec.Struct):
    reason: str = ""


class _StatusDetails(msgspec.Struct, rename="camel"):
    causes: list[_StatusCause] | None = None
    retry_after_seconds: int | None = None


class _ServerStatus(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _StatusDetails | None = None


class KubeApi:
    """An async context manager. `access`: which server, and who asks. `patient`: a 429 is waited
    out a few times before it is an error, as a command does that a person waits for. The server has
    done nothing then, so any request may be repeated."""

    def __init__(self, access: Access, *, patient: bool = False) -> None:
        self._access = access
        self._slowed_max = SLOWED_MAX if patient else 0
        self._credentials = Credentials(access)
        self._session: aiohttp.ClientSession | None = None

    @property
    def server(self) -> str:
        return self._access.server

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, as_: type[T], parameters: Mapping[str, str] | None = None) -> T:
        """The object at a path. ApiError, UnreachableError, CredentialsError."""
        body = await self.request("GET", path, parameters)
        return self.decoded(body, as_, path)

    async def request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """The body of the answer. `body`: JSON that is sent; `content_type`: which kind of it."""
        async with self.answer(
            method, path, parameters, body=body, content_type=content_type, total_s=REQUEST_S_MAX
        ) as response:
            return await self.body_of(response)

    async def connect(self, count: int) -> None:
        """Opens connections, so that `count` are there for requests that come within seconds. What
        is asked for costs the server little; what it answers does not matter."""

        async def ask() -> None:
            with suppress(ApiError, UnreachableError, CredentialsError):
                await self.request("GET", "/version")

        await asyncio.gather(*(ask() for _ in range(count)))

    async def body_of(self, response: aiohttp.ClientResponse) -> bytes:
        """All of it. UnreachableError: it broke off, or is longer than `ANSWER_BYTES_MAX`."""
        parts, size = [], 0
        try:
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > ANSWER_BYTES_MAX:
                    raise UnreachableError(
                        f"{self._access.server}{response.url.path}: expected at most "
                        f"{ANSWER_BYTES_MAX >> 20} MiB"
                    )
                parts.append(chunk)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from None
        return b"".join(parts)

    @asynccontextmanager
    async def answer(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        total_s: float | None = None,
        silent_s: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer whose body is still to be read. `silent_s`: how long nothing may come; errors
        while it is read are aiohttp's."""
        timeout = aiohttp.ClientTimeout(
            total=total_s, sock_connect=CONNECT_S_MAX, sock_read=silent_s
        )
        response = await self._send(method, path, parameters, timeout, body, content_type)
        if response.status == 401 and self._credentials.refused():
            response.release()
            response = await self._send(method, path, parameters, timeout, body, content_type)
        for _ in range(self._slowed_max):
            if response.status != 429:
                break
            error = await _error(response, self._credentials.secrets())
            response.close()
            await asyncio.sleep(min(error.retry_after_s or SLOWED_S, SLOWED_S_MAX))
            response = await self._send(method, path, parameters, timeout, body, content_type)
        try:
            if response.status >= 400:
                raise await _error(response, self._credentials.secrets())
            yield response
        finally:
            response.close()

    async def _send(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
        body: bytes | None,
        content_type: str,
    ) -> aiohttp.ClientResponse:
        assert self._session is not None, "not entered"
        headers = await self._credentials.headers()
        if body is not None:
            headers["Content-Type"] = content_type
        tls = await self._credentials.tls() if self._access.server.startswith("https:") else True
        try:
            return await self._session.request(
                method,
                self._access.server + path,
                params=parameters,
                headers=headers,
                data=body,
                timeout=timeout,
                ssl=tls,
                proxy=self._access.proxy or None,
                server_hostname=self._access.server_name or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: BaseException) -> UnreachableError:
        return UnreachableError(f"{self._access.server}: {_why(error)}")

    def decoded(self, body: bytes, as_: type[T], path: str) -> T:
        """UnreachableError: it is not what an API server answers there."""
        try:
            return json_decoder(as_).decode(body)
        except UNREADABLE as error:
            raise UnreachableError(
                f"{self._access.server}{path}: not the answer of an API server: {error}"
            ) from None


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not accepted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"its proxy answers {error.status} {error.message}"
    return _USER_INFO.sub("//", one_line(error))


async def _error(response: aiohttp.ClientResponse, secrets: Sequence[str]) -> ApiError:
    """What the server says, unless it is no API server: then its words are left out, since a proxy
    may repeat the headers that it was sent. `secrets`: are left out of any words."""
    try:
        async with asyncio.timeout(REQUEST_S_MAX):
            body = await response.content.read(ERROR_BYTES_MAX)
    except (aiohttp.ClientError, TimeoutError, OSError):
        body = b""
    reason, asked_s = response.reason or "", 0.0
    try:
        error = ApiError.of(body, response.status)
        code, word, said = error.code, error.reason, error.message or reason
        causes, asked_s = error.causes, error.retry_after_s
    except UNREADABLE:
        code, word, said, causes = response.status, "", reason, ()
    for secret in secrets:
        word, said = word.replace(secret, "***"), said.replace(secret, "***")
    asked_s = _pause_s(response.headers.get("Retry-After", "")) or asked_s
    return ApiError(code, word, said, asked_s, causes)


def _pause_s(asked: str) -> float:
    """The header has seconds, or the time after which to ask again."""
    if asked.isdecimal():
        return _bounded_s(float(asked))
    try:
        return _bounded_s(parsedate_to_datetime(asked).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _bounded_s(asked: float) -> float:
    """Compared before it becomes a float: a whole number may be too large for one."""
    return float(max(0.0, min(asked, PAUSE_S_MAX)))
