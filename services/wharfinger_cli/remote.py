"""Commands over the HTTP API of a plane (`--server URL --token-file FILE`) instead of its
database.

A command gets the same values as from the ledger (`answers.typed`), and so prints the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httpx
import msgspec

from wharfinger.answers import typed
from wharfinger.domain.value import json_decoder
from wharfinger.history.names import meant
from wharfinger.runtime.ledger import LedgerRow
from wharfinger.runtime.ledger.decision_rows import row_in
from wharfinger_cli.failures import DIFFERENCE, FAILURE, CommandError
from wharfinger_cli.request import Request

TIMEOUT_S = 60.0
PAGE = 1000
DETAIL_MAX = 2000
BUSY_TRIES = 5
BUSY_WAIT_S = 30.0
"""How often and how long a command waits at most, when it is answered that it asks too often."""


class Remote:
    """One server, asked as the holder of one token."""

    def __init__(self, server: str, token_file: Path | None, timeout_s: float = TIMEOUT_S) -> None:
        """`timeout_s`: of a request; with less than usual no busy server is waited for."""
        self._server = _checked(server)
        self._token = _token(token_file)
        self._timeout_s = timeout_s
        self._busy_tries = BUSY_TRIES if timeout_s == TIMEOUT_S else 0

    @classmethod
    def of(cls, request: Request) -> Remote:
        return cls(request.server, request.token_file)

    def value(self, path: str, **parameters: object) -> Any:
        """A value of `wharfinger.history` or `wharfinger.answers`. CommandError: as `_answer`, or
        the server is of another version."""
        answer = self._answer(path, parameters, typed.MEDIA_TYPE)
        try:
            return typed.decoded(answer.content)
        except typed.TypedError as error:
            raise CommandError(f"{self._server}: {error}") from error

    def get(self, path: str, **parameters: object) -> Any:
        """JSON. CommandError: as `_answer`."""
        return msgspec.json.decode(self._answer(path, parameters).content)

    def begin(
        self, path: str, body: Mapping[str, object] | None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """The operation that does it, as JSON. Sent again after a broken connection under the same
        key. CommandError: as `_answer`."""
        given = {
            "Accept": "application/json",
            "Prefer": "respond-async",
            "Idempotency-Key": str(uuid4()),
            "Content-Type": "application/json",
            **(headers or {}),
        }
        encoded = None if body is None else msgspec.json.encode(body)
        return msgspec.json.decode(self._sent("POST", path, encoded, given, tries=2).content)

    def change(self, path: str, body: Mapping[str, object]) -> Any:
        """What came of it. Sent again after a broken connection under the same key, so that it
        happens once. CommandError: every line that is wrong, or as `_answer`."""
        key = {"Idempotency-Key": str(uuid4()), "Content-Type": "application/json"}
        encoded = msgspec.json.encode(body)
        answer = self._sent("POST", path, encoded, key, tries=2)
        try:
            return typed.decoded(answer.content)
        except typed.TypedError as error:
            raise CommandError(f"{self._server}: {error}") from error

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Once. The answer as JSON, None where it is empty. CommandError: as `_answer`."""
        given = {"Accept": "application/json", **(headers or {})}
        if body is not None:
            given["Content-Type"] = "application/json"
        encoded = None if body is None else msgspec.json.encode(body)
        answer = self._sent(method, path, encoded, given)
        return msgspec.json.decode(answer.content) if answer.content else None

    def binding(self, name: str, *, there: bool = False) -> str:
        """The path of the binding that is meant. `there`: it is the full name of one."""
        if not there and ("/" not in name or not self._there(_path(name))):
            name = meant(name, self.listed("/v1/bindings", "name"))
        return _path(name)

    def decisions(self, **parameters: object) -> Iterator[LedgerRow]:
        """In order of time, page by page. `limit`: of all pages together."""
        wanted = parameters.pop("limit", None)
        left = int(str(wanted)) if wanted is not None else None
        after = ""
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = _page(
                self._answer("/v1/decisions", {**parameters, "limit": size, "after": after}).content
            )
            for item in page.items:
                yield row_in(item)
            if not page.next:
                return
            after = page.next
            left = None if left is None else left - len(page.items)

    def listed(self, path: str, field: str, **parameters: object) -> list[str]:
        """One member of every item of a list, page by page. CommandError: as `_answer`."""
        found: list[str] = []
        after = ""
        while True:
            asked = {**parameters, "fields": field, "limit": PAGE, "after": after}
            page = msgspec.json.decode(self._answer(path, asked).content)
            found += [item[field] for item in page["items"]]
            if not page["next"]:
                return found
            after = page["next"]

    def _there(self, path: str) -> bool:
        try:
            self._answer(path, {})
        except CommandError as error:
            if error.code != DIFFERENCE:
                raise
            return False
        return True

    def _answer(
        self, path: str, parameters: Mapping[str, object], accept: str = "application/json"
    ) -> httpx.Response:
        """CommandError: the server's one line, with 1 where the thing does not exist."""
        given = {
            name: list(map(str, value)) if isinstance(value, list | tuple) else str(value)
            for name, value in parameters.items()
            if value not in ("", None, (), [])
        }
        return self._sent("GET", path, None, {"Accept": accept}, given)

    def _sent(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        parameters: Mapping[str, str | list[str]] | None = None,
        tries: int = 1,
    ) -> httpx.Response:
        """CommandError: there is no answer, or it is a problem."""
        why = ""
        waits = self._busy_tries
        while tries > 0:
            try:
                answer = httpx.request(
                    method,
                    f"{self._server}{path}",
                    params=parameters,
                    content=body,
                    headers={
                        "Authorization": f"Bearer {self._token}",
                        "Accept": typed.MEDIA_TYPE,
                        **headers,
                    },
                    timeout=self._timeout_s,
                    follow_redirects=False,
                )
            except httpx.HTTPError as error:
                why = " ".join(str(error).split()) or type(error).__name__
                tries -= 1
                continue
            if answer.status_code == 429 and waits > 0:
                waits -= 1
                time.sleep(_asked_to_wait_s(answer))
                continue
            if answer.status_code not in (200, 201, 202, 204):
                raise CommandError(
                    *_details(self._server, answer),
                    code=DIFFERENCE if answer.status_code == 404 else FAILURE,
                )
            return answer
        raise CommandError(f"{self._server}: {why}")


class _DecisionPage(msgspec.Struct):
    items: tuple[msgspec.Raw, ...]
    next: str | None = None


_page = json_decoder(_DecisionPage).decode


def _asked_to_wait_s(answer: httpx.Response) -> float:
    text = answer.headers.get("retry-after", "")
    return min(float(text), BUSY_WAIT_S) if text.isascii() and text.isdecimal() else 1.0


def _path(binding: str) -> str:
    namespace, _, name = binding.partition("/")
    return f"/v1/bindings/{quote(namespace, safe='')}/{quote(name, safe='')}"


def _details(server: str, answer: httpx.Response) -> list[str]:
    """The lines that the command over the database prints, or the one line of the problem."""
    try:
        body = answer.json()
        lines = body.get("lines") or [body["detail"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [f"{server}: answered {answer.status_code}, and not as the API of a plane does"]
    return [_line(line) for line in lines]


def _line(text: object) -> str:
    line = " ".join(str(text).split())[:DETAIL_MAX]
    return "".join(character for character in line if character.isprintable())


def _checked(server: str) -> str:
    """CommandError: no URL, or one over which a token would go in clear."""
    try:
        parts = urlsplit(server)
        host = parts.hostname or ""
    except ValueError:
        host = ""
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise CommandError(f"--server: expected https://host:port, got {server!r}")
    if parts.scheme == "http" and not _loopback(host):
        raise CommandError(
            f"--server: expected https:// for {host}: the token would go over the network in clear"
        )
    return server.rstrip("/").removesuffix("/v1")


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(file: Path | None) -> str:
    """CommandError: there is none, or others may read it."""
    if file is None:
        raise CommandError("--server: expected --token-file FILE beside it")
    try:
        with file.open() as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:
                raise CommandError(
                    f"--token-file: {file} can be read by others; expected mode 0600"
                )
            token = opened.read(16_384).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--token-file: {file}: {getattr(error, 'strerror', error)}") from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CommandError(f"--token-file: {file}: expected one token and nothing else")
    return token
