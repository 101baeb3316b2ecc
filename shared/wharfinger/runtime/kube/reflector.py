"""One kind of object of one API server, listed once and watched from then on.

    list (a streaming list, else pages) -> watch from its version -> broken: watch from the last
    version seen -> gone: list again

The known objects are replaced only by a complete list, and one object is removed only by an event
of an unbroken watch. A failed connection, a server that is away and a permission that was withdrawn
change nothing in what is known. Before a list is handed over and before each watch the caller may
check that the same cluster still answers (`check`). A server whose storage was set back to an
earlier state would be silent on a version that it has not reached again, so after a broken
connection it is asked first whether it has the version. Resource versions are opaque: they are sent
back to the server and never compared.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import aiohttp
import msgspec

from wharfinger.domain.text import one_line
from wharfinger.domain.value import json_decoder
from wharfinger.runtime.kube.api import UNREADABLE, ApiError, KubeApi, UnreachableError
from wharfinger.runtime.kube.credentials import CredentialsError
from wharfinger.runtime.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

PAGE = 500
"""Objects of a page, where the server has no streaming lists."""

WATCH_S = 300.0
"""The timeout that a watch asks the server for, plus or minus 20 %, so that not all watches end at
the same time."""

WATCH_S_MIN = 1.0
"""A watch that ends sooner and without a change counts as a failure, so that a pause comes before
the next one: a server or proxy may close each connection at once. One that was open for so long
works: nothing has to come on a kind that does not change."""

SILENT_S_MAX = 330.0
"""A watch without data for so long counts as broken. A live server sends a bookmark every minute;
over a half-open connection nothing comes."""

EVENT_BYTES_MAX = 8 * 2**20
"""Of one line of a watch. An API server takes no object of over 3 MiB."""

PAUSE_S_MIN, PAUSE_S_MAX = 0.5, 30.0

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Sink(Protocol[T_contra]):
    """The receiver of the changes. Called from the reflector's task, one call after the other."""

    def replace(self, objects: Sequence[T_contra], version: str) -> None:
        """All objects as of a version. A known object that is not among them is deleted."""
        ...

    def upsert(self, object_: T_contra, version: str) -> None: ...

    def remove(self, object_: T_contra, version: str) -> None:
        """`object_`: its last state."""
        ...

    def alive(self, version: str) -> None:
        """There was no change up to a version: the watch is unbroken. Also called once when a watch
        that was begun has been open for a second."""
        ...

    def broken(self, why: str) -> None:
        """The watch broke, or the list failed. The known objects stay, and their age grows."""
        ...


class Break(StrEnum):
    """Why a list or watch ended."""

    ENDED = "ended"
    EXPIRED = "expired"
    UNREACHABLE = "unreachable"
    FORBIDDEN = "forbidden"
    REFUSED = "refused"
    UNREADABLE = "unreadable"


_REASONS = {410: Break.EXPIRED, 401: Break.FORBIDDEN, 403: Break.FORBIDDEN}
"""HTTP code -> why; any other is REFUSED."""


@dataclass(slots=True)
class Counts:
    """Of one reflector, for metrics. `breaks`: by reason."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    breaks: dict[Break, int] = field(default_factory=dict)


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Meta


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _UnknownEventError(Exception):
    """An event of a type that no release of Kubernetes has had."""


class Reflector(Generic[T]):
    """`path`: of the collection, such as `/api/v1/pods`. `decode`: what one object of it is to the
    sink; DecodeError ends the list or watch. `selector`: parameters such as `fieldSelector`.
    `chance`: 0 <= x < 1, spreads pauses and watches. `check`: awaited before a complete list is
    handed over and before a watch begins; what it raises is a failure like any other, and an
    exception that is none of the API ends `run`."""

    def __init__(
        self,
        api: KubeApi,
        path: str,
        decode: Callable[[msgspec.Raw], T],
        sink: Sink[T],
        *,
        selector: dict[str, str] | None = None,
        chance: Callable[[], float] = random.random,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._api = api
        self._path = path
        self._sink = sink
        self._selector = selector or {}
        self._chance = chance
        self._decode = decode
        self._check = check
        self._doubted = False
        """The connection broke: the server may have been set back meanwhile."""
        self._asked_s = 0.0
        """The pause that the server asked for with its last error."""
        self._version = ""
        self._streaming = True
        self._pausing: asyncio.Task[None] | None = None
        self._worked = False
        """The watch of this turn was open for `WATCH_S_MIN`."""
        self.counts = Counts()

    async def run(self) -> None:
        """List and watch until cancelled. Every failure is reported to the sink, and a retry
        follows after a pause."""
        failures = 0
        while True:
            version, self._asked_s, self._worked = self._version, 0.0, False
            try:
                await self._turn()
                self._count(Break.ENDED)
                if self._worked or self._version != version:
                    failures = 0
                    continue
            except (
                UnreachableError,
                CredentialsError,
                aiohttp.ClientError,
                TimeoutError,
                OSError,
            ) as error:
                self._doubted = True
                self._failed(Break.UNREACHABLE, one_line(error))
            except ApiError as error:
                why = Break.EXPIRED if error.ahead else _REASONS.get(error.code, Break.REFUSED)
                if why is Break.EXPIRED:  # list again
                    self._version = ""
                self._asked_s = error.retry_after_s
                self._failed(why, str(error))
            except (_UnknownEventError, *UNREADABLE) as error:
                self._failed(Break.UNREADABLE, one_line(error))
            worked = self._worked or (self._version != version and bool(self._version))
            failures = 0 if worked else failures + 1
            await self._rest(max(self._pause(failures), min(self._asked_s, PAUSE_S_MAX)))

    def retry(self) -> None:
        """End the pause after a failure, if there is one: the reason for the failure is gone."""
        if self._pausing is not None:
            self._pausing.cancel()

    async def _rest(self, seconds: float) -> None:
        self._pausing = asyncio.create_task(asyncio.sleep(seconds))
        try:
            await asyncio.wait([self._pausing])
        finally:
            self._pausing.cancel()
            self._pausing = None

    async def _turn(self) -> None:
        if self._version:
            await self._watch()
        elif self._streaming:
            await self._stream()
        else:
            await self._pages()

    # --- lists

    async def _stream(self) -> None:
        """A list that comes as a watch: all objects, a bookmark that says that these were all, then
        what changes."""
        self.counts.lists += 1
        parameters = {
            **self._watching(),
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "resourceVersion": "",
        }
        known: dict[str, T] | None = {}
        try:
            async for event in self._events(parameters):
                if known is None:
                    self._take(event)
                elif (version := self._begins(event, known)) is not None:
                    await self._checked()
                    self._sink.replace(list(known.values()), version)
                    self._version, known = version, None
        except ApiError as error:
            if known is not None and error.code in (400, 422):
                # a server older than 1.32, or with the feature switched off
                self._streaming = False
                return
            raise
        if known is not None:
            raise UnreachableError("the list broke off")

    def _begins(self, event: _Event, known: dict[str, T]) -> str | None:
        """The version of the list, once it is complete."""
        if event.type == "BOOKMARK":
            meta = json_decoder(_Object).decode(event.object).metadata
            return meta.resource_version if INITIAL_EVENTS_END in (meta.annotations or {}) else None
        key = _identity(event.object)
        if event.type == "DELETED":
            known.pop(key, None)
        else:
            known[key] = self._decode(event.object)
        return None

    async def _pages(self) -> None:
        self.counts.lists += 1
        objects: list[T] = []
        parameters = {**self._selector, "limit": str(PAGE)}
        while True:
            page = await self._api.get(self._path, _List, parameters)
            objects += [self._decode(item) for item in page.items or ()]
            if not page.metadata.continue_:
                break
            parameters["continue"] = page.metadata.continue_
        await self._checked()
        self._sink.replace(objects, page.metadata.resource_version)
        self._version = page.metadata.resource_version

    # --- watches

    async def _watch(self) -> None:
        self.counts.watches += 1
        await self._checked()
        if self._doubted:
            await self._reached()
            self._doubted = False
        parameters = {**self._watching(), "resourceVersion": self._version}
        async for event in self._events(parameters, self._works):
            self._take(event)

    def _works(self) -> None:
        """A watch that was broken is whole again before the next change or bookmark says so, which
        takes up to a minute."""
        self._worked = True
        self._sink.alive(self._version)

    async def _reached(self) -> None:
        """ApiError (`ahead`) if the server has not reached our version: it waits a few seconds for
        it, then says so. Selects no object, so the answer is small."""
        await self._api.get(
            self._path,
            _List,
            {"fieldSelector": "metadata.name=-", "resourceVersion": self._version},
        )

    async def _checked(self) -> None:
        if self._check is not None:
            await self._check()

    def _watching(self) -> dict[str, str]:
        seconds = WATCH_S * (0.8 + 0.4 * self._chance())
        return {
            **self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(seconds)),
        }

    def _take(self, event: _Event) -> None:
        self.counts.events += 1
        version = json_decoder(_Object).decode(event.object).metadata.resource_version
        # A bookmark carries an object that is empty but for its version: told apart before it is
        # read as one of a kind.
        if event.type == "BOOKMARK":
            self._sink.alive(version)
        elif event.type == "DELETED":
            self._sink.remove(self._decode(event.object), version)
        elif event.type in ("ADDED", "MODIFIED"):
            self._sink.upsert(self._decode(event.object), version)
        else:
            raise _UnknownEventError(f"unknown type of event {event.type!r}")
        self._version = version

    async def _events(
        self, parameters: dict[str, str], works: Callable[[], None] = lambda: None
    ) -> AsyncIterator[_Event]:
        """ApiError also for an error that comes as an event. `works`: called when the server has
        kept the answer open for `WATCH_S_MIN`."""
        decode = json_decoder(_Event).decode
        silent_s = SILENT_S_MAX
        async with self._api.answer("GET", self._path, parameters, silent_s=silent_s) as response:
            working = asyncio.get_running_loop().call_later(WATCH_S_MIN, works)
            try:
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                    if len(rest) > EVENT_BYTES_MAX:
                        raise UnreachableError(f"an event of more than {EVENT_BYTES_MAX >> 20} MiB")
                    for event in map(decode, filter(None, lines)):
                        if event.type == "ERROR":
                            raise ApiError.of(event.object)
                        yield event
                if rest.strip():
                    raise UnreachableError("the watch broke off within an event")
            finally:
                working.cancel()

    # --- failures

    def _failed(self, why: Break, line: str) -> None:
        self._count(why)
        log.info("kube.watch_broken", path=self._path, why=str(why), error=line)
        self._sink.broken(line)

    def _count(self, why: Break) -> None:
        self.counts.breaks[why] = self.counts.breaks.get(why, 0) + 1

    def _pause(self, failures: int) -> float:
        """Doubled with each failure in a row, and spread over its upper half."""
        longest: float = min(PAUSE_S_MAX, PAUSE_S_MIN * 2 ** min(failures, 10))
        return longest * (0.5 + 0.5 * self._chance())


class _Named(msgspec.Struct):
    name: str
    namespace: str = ""


class _WithName(msgspec.Struct):
    metadata: _Named


def _identity(raw: msgspec.Raw) -> str:
    meta = json_decoder(_WithName).decode(raw).metadata
    return f"{meta.namespace}/{meta.name}"
