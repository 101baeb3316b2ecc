"""What a request asks for: a place in history, a page, filters; and the answer with its headers.

Every read is answered from the ledger as of a cut (`runtime.ledger.at_position`), also one of the
present. So the same request for that cut has the same answer later.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from wharfinger.answers import typed
from wharfinger.history.points import HistoryPoint, PointError, moment_of, point_of, time_in
from wharfinger.runtime.ledger import Ledger, feed
from wharfinger.runtime.ledger.at_position import LedgerCut, PastDatabase, StreamCut
from wharfinger_api.access import Principal
from wharfinger_api.problems import Problem

LIMIT_MAX = 1000
NOW = "now"
POSITION = "position:"


@dataclass(frozen=True, slots=True)
class Answering:
    """`principal`: who asks. `position`: the answer has everything through here of the feed."""

    request: Request
    principal: Principal
    position: int

    @property
    def typed(self) -> bool:
        """Whether a command of ours asks, which prints the value itself."""
        return typed.MEDIA_TYPE in self.request.headers.get("accept", "")

    def value(self, found: Any, plain: Callable[[Any], object]) -> Response:
        """A value in the form that was asked for; `plain`: its JSON for programs."""
        if self.typed:
            return Response(
                typed.encoded(found), 200, {"Cache-Control": "no-store"}, typed.MEDIA_TYPE
            )
        return self.answer(plain(found))

    def answer(self, body: object, *, headers: Mapping[str, str] | None = None) -> Response:
        """JSON; 304 where the client has it already."""
        encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
        etag = etag_of(encoded)
        found = {
            "ETag": etag,
            "Wharfinger-Position": str(self.position),
            "Cache-Control": "private, no-cache",
            "Vary": "Authorization, Accept",
            **(headers or {}),
        }
        if matches(self.request.headers.get("if-none-match", ""), etag):
            return Response(status_code=304, headers=found)
        return Response(encoded, 200, found, "application/json")


@dataclass(frozen=True, slots=True)
class Asked(Answering):
    """`ledger`: as of `cut`."""

    cut: LedgerCut
    ledger: Ledger


def etag_of(encoded: bytes) -> str:
    return f'W/"{hashlib.sha256(encoded).hexdigest()[:24]}"'


def matches(given: str, etag: str) -> bool:
    """Whether a list of tags, as `If-Match` has it, names this one."""
    return any(
        tag.strip() == "*" or tag.strip().removeprefix("W/") == etag.removeprefix("W/")
        for tag in given.split(",")
        if tag.strip()
    )


async def cut_of(past: PastDatabase, at: str) -> LedgerCut:
    """The cut that `at` means: now, a time, an age such as 2h, `stream@round`, or a position of the
    feed as `position:12`. Problem: it means none."""
    if at.startswith(POSITION):
        return await past.cut_by_position(await checked_position(past, at.removeprefix(POSITION)))
    heads = await past.heads()
    if not at or at == NOW:
        return heads
    point = point_in(at)
    present = Ledger(past.present)
    moment = await moment_of(present, point)
    if moment is None:
        return heads
    if moment > time.time_ns() // 1000:
        raise Problem("invalid", f"at: {at} is still to come")
    cut = await past.cut_by_time(moment)
    if point.round is None or point.stream not in cut.places:
        return cut
    head = await present.head_at(point.stream, point.round)
    exact = StreamCut(cut.places[point.stream].id, point.round, head.seq)
    return LedgerCut({**cut.places, point.stream: exact})


async def checked_position(past: PastDatabase, text: str) -> int:
    """Problem: the feed has no such position, or no longer."""
    head = await feed.head(past.present)
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
    if not 0 <= number <= head.position:
        raise Problem(
            "invalid", f"position: expected a number up to {head.position}, got {text[:40]!r}"
        )
    if number + 1 < head.earliest:
        raise Problem(
            "retired",
            f"position {number} was retired; the earliest is {head.earliest}",
            more={"earliest": head.earliest},
        )
    return number


def point_in(at: str) -> HistoryPoint:
    """Problem: `at` names no place in history."""
    stream, separator, number = at.rpartition("@")
    text = f"{stream}:{number}" if separator else at.removeprefix("-")
    try:
        return point_of(text, time.time_ns() // 1000)
    except (PointError, ValueError, OverflowError):
        raise Problem(
            "invalid",
            "at: expected a time such as 2026-11-21T05:00:00Z, an age such as 2h, or a round such "
            f"as fleet/0@12; got {at[:80]!r}",
            errors=[{"pointer": "query/at", "expected": "a place in history", "got": at[:80]}],
        ) from None


async def known_parameters(request: Request) -> None:
    """Problem: a parameter that the route does not have, or one given twice that may be given
    once."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = {str(field.alias): field for field in _query_fields(route)}
    for name, _ in request.query_params.multi_items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            expected = ", ".join(sorted(known)) or "no parameter"
            raise Problem(
                "invalid",
                f"{name[:40]}: unknown parameter{hint}",
                errors=[{"pointer": f"query/{name[:40]}", "expected": expected, "got": name[:40]}],
            )
    for name, field in known.items():
        if len(request.query_params.getlist(name)) > 1 and not _repeated(field):
            raise Problem("invalid", f"{name}: expected once")


def _query_fields(route: APIRoute) -> Iterable[Any]:
    pending = [route.dependant]
    while pending:
        dependant = pending.pop()
        yield from dependant.query_params
        pending += dependant.dependencies


def _repeated(field: Any) -> bool:
    return "list" in str(field.field_info.annotation)


def cursor_text(seqs: Mapping[str, int], place: object) -> str:
    """An opaque text that names both: every page of a list is of one cut, after these decisions of
    each stream. The same cut has the same text."""
    begun = {name: seq for name, seq in sorted(seqs.items()) if seq}
    # Made for every first page: the level that costs least, for texts a fiftieth longer.
    packed = zlib.compress(msgspec.json.encode([begun, place]), level=1)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def cursor_in(text: str) -> tuple[dict[str, int], Any]:
    """Problem: it is no text of ours."""
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(packed, 1 << 20)
        if not unpacker.eof:
            raise ValueError
        seqs, place = json.loads(plain)
        found = {str(name): int(seq) for name, seq in seqs.items()}
        if not all(0 < seq < 1 << 62 for seq in found.values()):
            raise ValueError
        return found, place
    except (ValueError, TypeError, AttributeError, OverflowError, zlib.error):
        raise Problem(
            "invalid",
            "after: expected what an earlier page gave as next",
            errors=[{"pointer": "query/after", "expected": "a cursor", "got": text[:40]}],
        ) from None


def none_given() -> list[str]:
    """For parameters that may be given several times. Not `list`: pydantic looks at the signature
    of a default factory in every request, and that of a class written in C it reads from a
    text."""
    return []


def own_namespaces(principal: Principal, namespaces: list[str]) -> list[str]:
    """Those of the namespaces asked for that the principal sees; none asked for means all."""
    if principal.everywhere:
        return namespaces
    seen = sorted(principal.namespaces)
    # a namespace that cannot exist, where none of those asked for is seen: empty would mean all
    return [n for n in namespaces if n in seen] or [""] if namespaces else seen


def moment_in(name: str, text: str) -> int | None:
    if not text:
        return None
    with suppress(ValueError, OverflowError):
        found = time_in(text, time.time_ns() // 1000)
        if found is not None and 0 <= found < 1 << 62:
            return found
    raise Problem(
        "invalid",
        f"{name}: expected a time such as 2026-11-21T05:00:00Z or an age such as 10m, "
        f"got {text[:64]!r}",
    )


async def start_position(past: PastDatabase, text: str) -> int:
    """Beyond which position reading begins. Problem: the text names none, or it was retired."""
    head = await feed.head(past.present)
    if text == "latest":
        return head.position
    if text == "earliest":
        return head.earliest - 1
    if text.isascii() and text.isdecimal():
        return await checked_position(past, text)
    moment = moment_in("after", text)
    return head.position if moment is None else await feed.position_at(past.present, moment)
