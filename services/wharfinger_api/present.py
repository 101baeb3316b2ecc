"""The fleet of the present, from which lists and single objects of the present are answered.

The first request loads it; while it is used it follows the ledger. Before each answer it is moved
on to what the ledger has, so a reader sees what was committed before it asked. What is not asked
for in `IDLE_S` is forgotten.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from wharfinger.answers.decisions import Plain
from wharfinger.answers.fleet_view import Changed, FleetView
from wharfinger.events.streams import LEDGER
from wharfinger.runtime.ledger import Ledger, LedgerError
from wharfinger.runtime.ledger.at_position import Extent, PastDatabase
from wharfinger.runtime.tasks import end_tasks

IDLE_S = 600.0
FOLLOW_S = 1.0
"""How often it is moved on between requests."""

PAGES_S = 300.0
PAGES_MAX = 20
"""So long, and so many, lists are kept of which a page was given and not the last one."""

GATHER_S = 0.05
"""What comes within this time is shown together to those who watch."""

JOURNAL_MAX = 5_000
"""Changes, each of one look at the ledger, that are known to those who come again."""

ENCODED_MAX = 20_000
"""Items of which the JSON is kept."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The view, which holds until the next `await`. `seqs`: what it has of each stream; `position`:
    it has everything through here of the feed. `version`: rises with every change."""

    view: FleetView
    seqs: Mapping[str, int]
    position: int
    version: int


@dataclass(slots=True)
class _Kept:
    """A list whose next pages may be asked for."""

    items: Sequence[Any]
    until: float


class Present:
    def __init__(self, past: PastDatabase) -> None:
        self._past = past
        self._ledger = Ledger(past.present)
        self._view: FleetView | None = None
        self._looking: asyncio.Task[Moment] | None = None
        self._taking_in = False
        self._used_at = 0.0
        self._following: asyncio.Task[None] | None = None
        self._kept: OrderedDict[tuple[str, frozenset[tuple[str, int]]], _Kept] = OrderedDict()
        self._version = 0
        self._journal: list[Changed] = []
        """Of the latest versions."""
        self._loaded = ""
        self._news = asyncio.Event()
        self._watchers = 0
        self._wakeup = asyncio.Event()
        self._encoded: OrderedDict[tuple[str, str], tuple[object, bytes]] = OrderedDict()

    async def stop(self) -> None:
        await end_tasks([one for one in (self._following, self._looking) if one is not None])

    async def now(self) -> Moment:
        """As the ledger is now. LedgerError: the database is away."""
        self._used_at = time.monotonic()
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(), name="present")
        while True:
            moment = await self._looked()
            if not self._taking_in:  # what is half taken in is no moment
                return moment

    async def _looked(self) -> Moment:
        """By a look at the ledger that began after this was called. All who come during one look
        share the next."""
        looking = self._looking
        if looking is not None and not looking.done():
            with suppress(LedgerError):  # that of others
                await asyncio.shield(looking)
        if self._looking is looking:
            self._looking = asyncio.create_task(self._look(), name="looking")
        assert self._looking is not None, "made just now, or by another one who waited"
        return await asyncio.shield(self._looking)

    async def _look(self) -> Moment:
        extent = await self._past.extent()
        if not self._has(extent):
            self._taking_in = True
            try:
                await self._move_on(extent.went_back)
            finally:
                self._taking_in = False
        assert self._view is not None, "loaded"
        return Moment(self._view, dict(self._view.cursors), extent.position, self._version)

    def _has(self, extent: Extent) -> bool:
        """Whether the view has all of it."""
        view = self._view
        return (
            view is not None
            and view.complete
            and not view.went_back
            and view.cursors.get(LEDGER, 0) == extent.went_back
            and view.decisions >= extent.decisions
        )

    def changed_since(self, version: int) -> list[Changed] | None:
        """What has changed since the moment of that version; None: that is not known any more."""
        first = self._version - len(self._journal)
        return self._journal[version - first :] if first <= version <= self._version else None

    def token(self, version: int) -> str:
        """Names this version to those who come again; it is known by this process only."""
        return f"{self._loaded}.{version}"

    def version_of(self, token: str) -> int | None:
        """None: of another process, or from before the view was loaded again."""
        loaded, _, version = token.partition(".")
        known = loaded == self._loaded and version.isascii() and version.isdecimal()
        return int(version) if known and len(version) < 19 else None

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Inside, the view follows at once what the ledger says."""
        self._watchers += 1
        self._wakeup.set()
        try:
            yield
        finally:
            self._watchers -= 1
            self._used_at = time.monotonic()

    async def news(self, version: int, seconds: float) -> None:
        """Until there is a later version, or so long."""
        if self._version == version:
            news = self._news
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await news.wait()

    def encoded(self, kind: str, key: str, item: object, plain: Callable[[Any], Plain]) -> bytes:
        """The JSON of an item that is shown under this key of its kind."""
        known = self._encoded.get((kind, key))
        if known is not None and known[0] is item:
            self._encoded.move_to_end((kind, key))
            return known[1]
        made = msgspec.json.encode(plain(item))
        self._encoded[kind, key] = item, made
        if len(self._encoded) > ENCODED_MAX:
            self._encoded.popitem(last=False)
        return made

    def keep(self, kind: str, seqs: Mapping[str, int], items: Sequence[Any]) -> None:
        """Pages of this list will be asked for. `seqs`: of which it is."""
        key = kind, _cut(seqs)
        self._kept[key] = _Kept(items, time.monotonic() + PAGES_S)
        self._kept.move_to_end(key)
        while len(self._kept) > PAGES_MAX:
            self._kept.popitem(last=False)

    def kept(self, kind: str, seqs: Mapping[str, int]) -> Sequence[Any] | None:
        found = self._kept.get((kind, _cut(seqs)))
        return found.items if found is not None and found.until > time.monotonic() else None

    # --- following

    async def _follow(self) -> None:
        """While it is used. A database that is away is asked again; those who ask meanwhile are
        answered that it is."""
        listening = asyncio.create_task(
            self._ledger.notifications(self._wakeup), name="present-notifications"
        )
        try:
            while self._watchers or time.monotonic() - self._used_at < IDLE_S:
                if self._watchers:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(FOLLOW_S):
                            await self._wakeup.wait()
                    await asyncio.sleep(GATHER_S)
                    self._wakeup.clear()
                else:
                    await asyncio.sleep(FOLLOW_S)
                used = self._used_at
                with suppress(LedgerError):
                    await self.now()
                self._used_at = used
            # Before anything is awaited: a request that comes then loads it again.
            self._view = None
            self._journal.clear()
            self._kept.clear()
            self._encoded.clear()
        finally:
            await end_tasks([listening])

    async def _move_on(self, went_back: int) -> None:
        view = self._view
        if view is None or view.went_back or view.cursors.get(LEDGER, 0) != went_back:
            view = await self._load()
        changed = Changed()
        try:
            await view.follow(self._ledger, changed)
        finally:  # what was taken in has to be known, also if the rest could not be read
            if changed:
                self._note(changed)

    async def _load(self) -> FleetView:
        self._view = None
        view = await FleetView.load(self._ledger)
        # A later version of which nothing is known: who watches gets the whole list again.
        self._journal.clear()
        self._version += 1
        self._loaded = secrets.token_hex(4)
        self._view = view
        self._say()
        return view

    def _note(self, changed: Changed) -> None:
        self._version += 1
        self._journal.append(changed)
        if len(self._journal) > 2 * JOURNAL_MAX:
            del self._journal[:JOURNAL_MAX]
        self._say()

    def _say(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _cut(seqs: Mapping[str, int]) -> frozenset[tuple[str, int]]:
    return frozenset(one for one in seqs.items() if one[1])
