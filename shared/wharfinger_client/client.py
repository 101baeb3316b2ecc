"""The clients: carry out a call, try it again where that is safe, and turn a problem into its
exception."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from wharfinger_client.api import Call
from wharfinger_client.errors import BY_STATUS, ApiError, UnreachableError

T = TypeVar("T")

AGAIN_STATUS = frozenset((429, 502, 503, 504))


@dataclass(frozen=True, slots=True)
class Retries:
    """At most `tries` in all; waits from `first_s` on, doubled each time up to `longest_s`, with
    jitter. A longer `Retry-After` is obeyed."""

    tries: int = 6
    first_s: float = 0.2
    longest_s: float = 10.0

    def wait_s(self, tried: int, retry_after: str = "") -> float:
        """Before the next try."""
        own = min(self.longest_s, self.first_s * 2.0 ** (tried - 1)) * random.uniform(0.5, 1.0)
        asked = float(retry_after) if retry_after.isascii() and retry_after.isdecimal() else 0.0
        return float(max(own, asked))


NO_RETRIES = Retries(tries=1)


@cache
def _trusted() -> ssl.SSLContext:
    """The authorities of this machine. To read them takes as long as fifty requests, so a process
    does it once."""
    return httpx.create_ssl_context()


class _Base:
    def __init__(self, server: str, token: str, timeout_s: float, retries: Retries) -> None:
        self.server = checked_server(server)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s
        self._retries = retries

    def _arguments(self, call: Call[Any]) -> dict[str, Any]:
        return {
            "method": call.method,
            "url": f"{self.server}{call.path}",
            "params": list(call.query),
            "headers": {"Accept": "application/json", **call.headers, **self._headers},
            "json": call.body,
            "timeout": self._timeout_s + call.wait_s,
        }

    def _again(self, call: Call[Any], tried: int, error: httpx.TransportError) -> float:
        """How long to wait before the next try. UnreachableError: there is none."""
        safe = call.repeatable or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        if not safe or tried >= self._retries.tries:
            why = " ".join(str(error).split()) or type(error).__name__
            raise UnreachableError(f"{self.server}: {why}") from error
        return self._retries.wait_s(tried)

    def _answered(self, call: Call[T], tried: int, answer: httpx.Response) -> float | None:
        """None: it is the answer; or how long to wait. ApiError: it is a problem."""
        if answer.status_code < 300:
            return None
        again = answer.status_code in AGAIN_STATUS and (
            call.repeatable or answer.status_code == 429
        )
        if again and tried < self._retries.tries:
            return self._retries.wait_s(tried, answer.headers.get("retry-after", ""))
        raise problem_in(self.server, answer.status_code, answer.content)


class Client(_Base):
    """Synchronous. `token`: of the API. `timeout_s`: for connecting, and between two bytes."""

    def __init__(
        self,
        server: str,
        token: str = "",
        *,
        timeout_s: float = 30.0,
        retries: Retries = Retries(),
        http: httpx.Client | None = None,
    ) -> None:
        """`http`: with a CA or proxy of its own. ValueError: the token would go in clear."""
        super().__init__(server, token, timeout_s, retries)
        self._http = http or httpx.Client(follow_redirects=False, verify=_trusted())

    def __call__(self, call: Call[T]) -> T:
        """ApiError: a problem was answered; UnreachableError: no answer came."""
        tried = 0
        while True:
            tried += 1
            try:
                answer = self._http.request(**self._arguments(call))
            except httpx.TransportError as error:
                time.sleep(self._again(call, tried, error))
                continue
            wait_s = self._answered(call, tried, answer)
            if wait_s is None:
                return call.parse(answer.content, answer.headers)
            time.sleep(wait_s)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient(_Base):
    """As `Client`, for asyncio."""

    def __init__(
        self,
        server: str,
        token: str = "",
        *,
        timeout_s: float = 30.0,
        retries: Retries = Retries(),
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """`http`: with a CA or proxy of its own. ValueError: the token would go in clear."""
        super().__init__(server, token, timeout_s, retries)
        self._http = http or httpx.AsyncClient(follow_redirects=False, verify=_trusted())

    async def __call__(self, call: Call[T]) -> T:
        """ApiError: a problem was answered; UnreachableError: no answer came."""
        tried = 0
        while True:
            tried += 1
            try:
                answer = await self._http.request(**self._arguments(call))
            except httpx.TransportError as error:
                await asyncio.sleep(self._again(call, tried, error))
                continue
            wait_s = self._answered(call, tried, answer)
            if wait_s is None:
                return call.parse(answer.content, answer.headers)
            await asyncio.sleep(wait_s)

    @asynccontextmanager
    async def frames(
        self, path: str, query: tuple[tuple[str, str], ...], silence_s: float = 45.0
    ) -> AsyncIterator[AsyncIterator[Mapping[str, str]]]:
        """The frames of a server-sent stream, each a map of its fields. Tried once. `silence_s`:
        the stream is given up when nothing came for so long. ApiError, UnreachableError."""
        headers = {**self._headers, "Accept": "text/event-stream"}
        limits = httpx.Timeout(self._timeout_s, read=silence_s)
        try:
            async with self._http.stream(
                "GET", f"{self.server}{path}", params=query, headers=headers, timeout=limits
            ) as answer:
                if answer.status_code != 200:
                    body = await answer.aread()
                    raise problem_in(self.server, answer.status_code, body)
                yield _frames(answer)
        except httpx.TransportError as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise UnreachableError(f"{self.server}: {why}") from error

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


async def _frames(answer: httpx.Response) -> AsyncIterator[Mapping[str, str]]:
    """A frame that was cut off is not given. A comment is an empty frame: the server is there."""
    frame: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if not line:
            yield frame
            frame = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            frame[name] = value.removeprefix(" ")


def problem_in(server: str, status: int, body: bytes) -> ApiError | UnreachableError:
    try:
        problem = json.loads(body)
        detail = problem["detail"]
    except (ValueError, KeyError, TypeError):
        if status not in BY_STATUS:
            return UnreachableError(f"{server}: answered {status}, not as an API of Wharfinger")
        problem, detail = {}, f"{server} answered {status}"
    return BY_STATUS.get(status, ApiError)(status, {**problem, "detail": detail})


def checked_server(server: str) -> str:
    """ValueError: no URL, or one over which a token would go in clear."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise ValueError(f"server: expected https://host:port, got {server!r}")
    if parts.scheme == "http" and not _loopback(host):
        raise ValueError(f"server: expected https:// for {host}: the token would go in clear")
    return server.rstrip("/").removesuffix("/v1")


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
