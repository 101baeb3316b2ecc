"""Decisions of the feed as they are sent, and those that readers who are behind share.

A reader that has fallen behind goes through pages of the ledger. Many do so at once: all of them
after an outage. So the feed is cut into pages at fixed positions; one that is full never changes,
is read and encoded once, and serves every reader that comes by.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from wharfinger.answers.decisions import short_type
from wharfinger.runtime.decision_event import decision_event
from wharfinger.runtime.ledger.feed import FeedEntry, FeedFilter

PAGE = 500
"""Positions of a page. The first one begins at position 1."""

SHARED_BYTES_MAX = 32 * 1024 * 1024
"""Of all pages that are kept; those that were used longest ago are dropped."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`event`: the CloudEvent, as JSON. `type`: its short type."""

    position: int
    type: str
    event: bytes

    def sse(self) -> bytes:
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (self.position, self.type.encode(), self.event)

    def line(self) -> bytes:
        return self.event + b"\n"


def frame_of(entry: FeedEntry, incarnation: str) -> Frame:
    """Facts are as they were accepted, with their position."""
    accepted = entry.row.accepted
    if accepted is None:
        event = decision_event(entry.row, entry.position, entry.correlation, incarnation)
        return Frame(entry.position, short_type(entry.row.type), event)
    body = accepted.body.rstrip()
    event = body[:-1] + b',"position":"%d"}' % entry.position
    return Frame(entry.position, short_type(accepted.type), event)


class SharedPages:
    """Full pages by filter and number, for filters of the whole feed."""

    def __init__(self) -> None:
        self._pages: OrderedDict[tuple[FeedFilter, int], list[Frame]] = OrderedDict()
        self._loading: dict[tuple[FeedFilter, int], asyncio.Future[list[Frame]]] = {}
        self._bytes = 0

    async def page(
        self, wanted: FeedFilter, number: int, load: Callable[[], Awaitable[list[Frame]]]
    ) -> list[Frame]:
        """`load` reads it where it is not here. Readers that want it meanwhile wait for the same
        read."""
        key = (wanted, number)
        known = self._pages.get(key)
        if known is not None:
            self._pages.move_to_end(key)
            return known
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.ensure_future(load())
            loading.add_done_callback(lambda done: self._loaded(key, done))
        return await asyncio.shield(loading)

    def clear(self) -> None:
        """What is being read now is not kept either."""
        self._pages.clear()
        self._loading.clear()
        self._bytes = 0

    def _loaded(self, key: tuple[FeedFilter, int], done: asyncio.Future[list[Frame]]) -> None:
        failed = done.cancelled() or done.exception() is not None
        if self._loading.get(key) is not done:
            return  # cleared meanwhile
        del self._loading[key]
        if failed:
            return
        self._pages[key] = frames = done.result()
        self._bytes += sum(len(frame.event) for frame in frames)
        while self._bytes > SHARED_BYTES_MAX:
            _, dropped = self._pages.popitem(last=False)
            self._bytes -= sum(len(frame.event) for frame in dropped)
