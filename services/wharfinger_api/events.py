"""Decisions as they come: server-sent events, lines of JSON, or batches, by one cursor.

A reader goes on from a position and has no queue here. While it keeps up it is served from a ring
of encoded frames that all readers of the same filter share; one that falls behind reads pages of
the ledger by position until it has caught up. A reader that takes nothing for `connections.SLOW_S`
is cut, and resumes with its last id.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from wharfinger.kernel.incarnations import incarnation_at
from wharfinger.runtime.decision_event import incarnation_text
from wharfinger.runtime.ledger import LedgerError, WentBack, feed
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.feed import FeedEntry, FeedFilter, FeedHead
from wharfinger.runtime.ledger.incarnations import of_stream, went_back
from wharfinger.runtime.logs import get_logger
from wharfinger_api.connections import ended_as_slow
from wharfinger_api.feed_frames import PAGE, Frame, SharedPages, frame_of
from wharfinger_api.figures import SSE_CLIENTS, SSE_CLOSED, SSE_DELIVERED

SSE = "text/event-stream"
LINES = "application/x-ndjson"
BATCH = "application/cloudevents-batch+json"

HEARTBEAT_S = 15.0
BOOKMARK_S = 10.0
HIDDEN_MAX = 1000
"""Positions that a filter may hide before the reader's cursor is moved by a bookmark."""

LIFE_S = 3600.0
LIFE_JITTER = 0.2
RETRY_MS = 2000
RETRY_JITTER = 0.5
CHECK_S = 4.0
"""So often it is looked whether the reader's credential still holds."""

RING = 20_000
PART = 100
"""Frames of one part, at most: it is written whole, and kept for a reader that does not take it."""

PARTS_KEPT = 16
"""Joined parts of a filter. Readers come by them in turn."""

FILTERS_MAX = 200
AGAIN_S = 0.5
GATHER_S_A_READER = 0.0001
GATHER_MAX_S = 0.1
"""Sending a part to a reader takes half as long as it is waited for each: with 1,000 readers half a
core is left for everything else, and what they get is a tenth of a second old."""
LOOK_S = 5.0
"""So often it is looked whether the ledger went back."""

log = get_logger(__name__)


class Channel:
    """The frames of one filter: the last `RING`, all beyond `start` up to `through`."""

    def __init__(self, wanted: FeedFilter, start: int) -> None:
        self.wanted = wanted
        self.start = start
        self.through = start
        self.used_at = time.monotonic()
        self.readers = 0
        """Who are waiting for more."""
        self._frames: list[Frame] = []
        self._dropped = 0
        """Frames before those, which are gone."""
        self._joined: OrderedDict[tuple[int, int, bool], bytes] = OrderedDict()
        self._news = asyncio.Event()

    def add(self, frames: Sequence[Frame], through: int) -> None:
        self._frames.extend(frames)
        self.through = through
        surplus = len(self._frames) - RING
        if surplus > PAGE:  # each time costs as much as there are frames
            self.start = self._frames[surplus - 1].position
            del self._frames[:surplus]
            self._dropped += surplus
        self._news.set()
        self._news = asyncio.Event()

    def beyond(self, position: int, limit: int = PART) -> tuple[list[Frame], int]:
        """The next frames, at most `limit`, and through which position there are no others.
        `position` is at least `start`. Parts end at the same frames for all readers, so that one
        that has fallen behind gets the parts of the others again."""
        self.used_at = time.monotonic()
        if position >= self.through:
            return [], position
        begin = bisect_right(self._frames, position, key=_position)
        end = begin + limit - (self._dropped + begin) % limit
        if end >= len(self._frames):
            return self._frames[begin:], self.through
        return self._frames[begin:end], self._frames[end - 1].position

    def joined(self, frames: Sequence[Frame], lines: bool) -> bytes:
        """These frames, as they are sent."""
        key = (frames[0].position, frames[-1].position, lines)
        known = self._joined.get(key)
        if known is None:
            known = self._joined[key] = joined(frames, lines)
            if len(self._joined) > PARTS_KEPT:
                self._joined.popitem(last=False)
        return known

    async def wait(self, seconds: float) -> None:
        """Until there is more, or so long."""
        news = self._news
        self.readers += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await news.wait()
        finally:
            self.readers -= 1


def joined(frames: Sequence[Frame], lines: bool) -> bytes:
    return b"".join(frame.line() if lines else frame.sse() for frame in frames)


def _position(frame: Frame) -> int:
    return frame.position


@dataclass(slots=True)
class Hub:
    """Follows the feed once for each filter that readers of this process have."""

    database: Database
    _went_back: tuple[WentBack, ...] = ()
    _looked_at: float = float("-inf")
    _pages: SharedPages = field(default_factory=SharedPages)
    _known_through: float = math.inf
    """Where the feed ended when that was read last: only a page before it is looked for among those
    that are shared."""
    _channels: OrderedDict[FeedFilter, Channel] = field(default_factory=OrderedDict)
    _task: asyncio.Task[None] | None = None
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow(), name="feed")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def channel(self, wanted: FeedFilter) -> Channel:
        """That of a filter; a new one begins at the end of the feed."""
        self.start()
        found = self._channels.get(wanted)
        if found is None:
            known = await feed.head(self.database)
            found = self._channels.setdefault(wanted, Channel(wanted, known.position))
            self._forget()
        return found

    async def page(self, after: int, limit: int, wanted: FeedFilter) -> tuple[list[Frame], int]:
        """At most `limit` frames of the ledger beyond `after`, and through which position it was
        looked. FeedRetiredError: something beyond `after` was retired."""
        if time.monotonic() - self._looked_at > LOOK_S:
            found = tuple(await went_back(self.database))
            if found != self._went_back:
                self._pages.clear()  # frames name the incarnation
            self._went_back, self._looked_at = found, time.monotonic()
        if replace(wanted, facts=True).hides:
            return await self._read(after, limit, wanted)
        known: FeedHead | None = None
        frames: list[Frame] = []
        through = after
        while len(frames) < limit and through - after < feed.SCAN_MAX:
            number = through // PAGE
            last = (number + 1) * PAGE
            if known is None and last <= self._known_through:
                known = await feed.head(self.database)
                self._known_through = known.position
            if known is None or number * PAGE + 1 < known.earliest or last > known.position:
                more, through = await self._read(through, limit - len(frames), wanted)
                return frames + more, through
            page = await self._pages.page(wanted, number, partial(self._whole, number, wanted))
            frames += page[bisect_right(page, through, key=_position) :]
            through = last
        if len(frames) > limit:
            del frames[limit:]
            through = frames[-1].position
        return frames, through

    async def _read(self, after: int, limit: int, wanted: FeedFilter) -> tuple[list[Frame], int]:
        found = await feed.page(self.database, after, limit, wanted)
        self._known_through = found.head.position
        return self._frames(found.entries), found.through

    async def _whole(self, number: int, wanted: FeedFilter) -> list[Frame]:
        """The page, which is full."""
        found = await feed.page(self.database, number * PAGE, PAGE, wanted, scan_max=PAGE)
        return self._frames(found.entries)

    def _frames(self, entries: Sequence[FeedEntry]) -> list[Frame]:
        return [
            frame_of(entry, self._incarnation(entry.row.stream, entry.row.seq)) for entry in entries
        ]

    def _incarnation(self, stream: str, seq: int) -> str:
        return incarnation_text(incarnation_at(of_stream(self._went_back, stream), seq))

    def _forget(self) -> None:
        """Filters without a reader."""
        old = time.monotonic() - 2 * HEARTBEAT_S
        for wanted, channel in list(self._channels.items()):
            if channel.used_at < old or len(self._channels) > FILTERS_MAX:
                del self._channels[wanted]

    async def _follow(self) -> None:
        # who reads a page loads nothing that writes
        from wharfinger.runtime.ledger.notifications import Listener

        listening = asyncio.create_task(feed.news(Listener(self.database), self._wakeup))
        try:
            while True:
                try:
                    self._wakeup.clear()
                    readers = sum(channel.readers for channel in self._channels.values())
                    for channel in list(self._channels.values()):
                        await self._advance(channel)
                    self._forget()
                    # What comes meanwhile goes to each of them in one part.
                    await asyncio.sleep(min(GATHER_MAX_S, readers * GATHER_S_A_READER))
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(AGAIN_S):
                            await self._wakeup.wait()
                except LedgerError as error:
                    log.warning("feed.away", why=str(error))
                    await asyncio.sleep(AGAIN_S)
        finally:
            listening.cancel()

    async def _advance(self, channel: Channel) -> None:
        while True:
            frames, through = await self.page(channel.through, PAGE, channel.wanted)
            if through == channel.through:
                return
            channel.add(frames, through)


Valid = Callable[[], Awaitable[bool]]
"""Whether the reader's credential still holds."""


class Lasting:
    """When an answer without an end ends, or has to say something."""

    def __init__(self, valid: Valid) -> None:
        self._valid = valid
        self._began = self._checked = time.monotonic()
        self._life_s = LIFE_S * random.uniform(1 - LIFE_JITTER, 1 + LIFE_JITTER)

    async def over(self) -> bool:
        now = time.monotonic()
        if now - self._began > self._life_s:
            return True
        if now - self._checked > CHECK_S:
            self._checked = now
            return not await self._valid()
        return False


class StreamedAnswer(Response):
    """An answer without an end. `parts`: its body as it comes."""

    media_type = SSE

    def __init__(self, parts: AsyncGenerator[bytes, None], position: int, media_type: str) -> None:
        self.status_code = 200
        self.background = None
        self.media_type = media_type
        self.init_headers(
            {
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
                "Wharfinger-Position": str(position),
            }
        )
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        SSE_CLIENTS.inc()
        why = "gone"
        gone = asyncio.create_task(_disconnected(receive))
        sending = asyncio.create_task(self._send(send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()  # raises what it ended with
                why = "ended"
            elif ended_as_slow(scope):
                why = "slow"
        finally:
            SSE_CLIENTS.dec()
            SSE_CLOSED.labels(why).inc()
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with contextlib.aclosing(self._parts) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def event_stream(
    hub: Hub,
    wanted: FeedFilter,
    after: int,
    head: FeedHead,
    valid: Valid,
    *,
    lines: bool = False,
    limit: int | None = None,
) -> StreamedAnswer:
    """Events of the feed beyond `after`."""
    feed_ = _FeedParts(hub, wanted, after, head, valid, lines, limit)
    return StreamedAnswer(feed_.parts(), head.position, LINES if lines else SSE)


@dataclass(frozen=True, slots=True)
class _FeedParts:
    _hub: Hub
    _wanted: FeedFilter
    _after: int
    _head: FeedHead
    _valid: Valid
    _lines: bool
    _limit: int | None

    async def parts(self) -> AsyncGenerator[bytes, None]:
        position = self._after
        left = self._limit
        told = position  # the last that the reader can resume from
        bookmarked = said = time.monotonic()
        lasting = Lasting(self._valid)
        if not self._lines:
            yield self._opened()
        channel = await self._hub.channel(self._wanted)
        while left is None or left > 0:
            now = time.monotonic()
            if await lasting.over():
                return
            followed = position >= channel.start and left is None
            if position >= channel.start:
                frames, through = channel.beyond(position)
            else:
                try:
                    frames, through = await self._hub.page(position, PAGE, self._wanted)
                except feed.FeedRetiredError:
                    return
                except LedgerError:
                    frames, through = [], position
            if left is not None:
                frames = frames[:left]
                left -= len(frames)
            position = through
            if frames:
                SSE_DELIVERED.inc(len(frames))
                told, said = frames[-1].position, now
                if followed:
                    yield channel.joined(frames, self._lines)
                else:
                    yield joined(frames, self._lines)
                if left == 0:
                    return
            hidden = position - told
            if not self._lines and (
                hidden > HIDDEN_MAX or (hidden and now - bookmarked > BOOKMARK_S)
            ):
                told, bookmarked, said = position, now, now
                yield b'id: %d\nevent: bookmark\ndata: {"position":%d}\n\n' % (position, position)
            if now - said > HEARTBEAT_S:
                said = now
                yield b"\n" if self._lines else b": \n\n"
            if position >= channel.through:
                channel = await self._hub.channel(self._wanted)
                await channel.wait(min(HEARTBEAT_S, CHECK_S))

    def _opened(self) -> bytes:
        return opened(
            {
                "from": self._after,
                "earliest": self._head.earliest,
                "head": self._head.position,
                "filter": self._wanted.digest(),
            }
        )


def opened(said: Mapping[str, object]) -> bytes:
    """The first frame of a stream, with the time after which its reader is to come again."""
    retry = int(RETRY_MS * random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER))
    return b"retry: %d\nevent: opened\ndata: %s\n\n" % (retry, msgspec.json.encode(said))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def batch(
    hub: Hub, wanted: FeedFilter, after: int, limit: int, wait_s: float
) -> tuple[list[Frame], int]:
    """At most `limit` frames beyond `after`; where there are none, those that come within
    `wait_s`. And through which position it was looked."""
    until = time.monotonic() + wait_s
    channel = await hub.channel(wanted)
    while True:
        frames, through = await hub.page(after, limit, wanted)
        left = until - time.monotonic()
        if frames or left <= 0:
            return frames, through
        after = through
        if through >= channel.through:
            await channel.wait(left)
