"""Read events exactly once: the cursor moves in the transaction in which the subscriber writes.

    async with Consumer(SqliteCursors("own.db"), Sse(client), "billing") as consumer:
        async for batch in consumer:
            async with batch.transaction() as tx:
                for event in batch.events:
                    tx.execute("insert into seen values (?)", (event.id,))

Killed at any point, it goes on with the first batch that was not committed. A batch whose
transaction failed is given again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Generic, TypeVar
from uuid import uuid4

from wharfinger_client.cursors import Cursor, CursorStore
from wharfinger_client.errors import ConsumerError, CursorTakenError, FilterChangedError
from wharfinger_client.events import Event, EventFilter
from wharfinger_client.sources import Delivered, Source

Tx = TypeVar("Tx")

LEASE_S = 30.0
BATCH_MAX = 500
_EVERYTHING = EventFilter()


@dataclass(frozen=True, slots=True)
class Batch(Generic[Tx]):
    """`events`: in order of position; from Kafka in order of each partition."""

    events: Sequence[Event]
    _consumer: Consumer[Tx]
    _next: Cursor
    _ahead: Sequence[int]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """The transaction in which the cursor moves over this batch: what is written in it is kept
        together with the cursor, or not at all. CursorTakenError: another copy has taken over."""
        async with self._consumer._moving(self._next, self._ahead) as tx:
            yield tx


class Consumer(Generic[Tx]):
    """Batches of events for one name. Of several copies one works and the others wait."""

    def __init__(
        self,
        cursors: CursorStore[Tx],
        source: Source,
        name: str,
        wanted: EventFilter = _EVERYTHING,
        *,
        start: str = "earliest",
        batch_max: int = BATCH_MAX,
        lease_s: float = LEASE_S,
        accept_new_filter: bool = False,
    ) -> None:
        """`name`: of the cursor. `start`: where a new one begins: `earliest`, `latest`, a position
        or a time. `lease_s`: a copy that is not heard of for so long is taken over."""
        self._cursors = cursors
        self._source = source
        self._name = name
        self._wanted = wanted
        self._start = start
        self._batch_max = batch_max
        self._lease_s = lease_s
        self._accept_new_filter = accept_new_filter
        self._owner = str(uuid4())
        self._extended_at = 0.0
        self._cursor: Cursor | None = None
        self._ahead: set[int] = set()
        self._given: Batch[Tx] | None = None
        self._waiting: asyncio.Task[Delivered] | None = None

    @property
    def position(self) -> int | None:
        """Everything through here was taken. None: not begun."""
        return None if self._cursor is None else self._cursor.position

    def __aiter__(self) -> Consumer[Tx]:
        return self

    async def __anext__(self) -> Batch[Tx]:
        """ConsumerError and its kinds: it cannot go on; nothing was passed over."""
        while True:
            if self._cursor is None:
                await self._begin()
            if self._given is not None:  # its transaction was not committed
                return self._given
            found = await self._delivered()
            if found is None:
                continue
            batch = self._batch(found)
            if batch.events:
                self._given = batch
                return batch
            await self._pass_over(batch)

    async def __aenter__(self) -> Consumer[Tx]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let another copy go on at once."""
        await self._stop_waiting()
        await self._source.close()
        if self._cursor is not None:
            await self._cursors.release(self._name, self._cursor.epoch)
            self._cursor = None

    async def _begin(self) -> None:
        """Take the cursor, waiting for a copy that holds it, and open the source behind it."""
        await self._stop_waiting()
        self._given = None
        await self._cursors.prepare()
        if await self._cursors.load(self._name) is None:
            begun = await self._source.begin(self._start, self._wanted)
            await self._cursors.create(self._name, begun)
        cursor = await self._taken()
        digest = self._wanted.digest()
        if cursor.filter != digest:
            if not self._accept_new_filter:
                await self._cursors.release(self._name, cursor.epoch)
                raise FilterChangedError(
                    f"{self._name}: the cursor was moved under another filter, and what that hid "
                    "up to there would be missing; accept_new_filter=True goes on all the same"
                )
            await self._cursors.change_filter(self._name, cursor.epoch, digest)
            # what was read last may be hidden by the new filter
            cursor = replace(cursor, filter=digest, last_id="", last_position=0)
        self._ahead = await self._cursors.ahead(self._name)
        await self._source.open(cursor, self._wanted)
        self._cursor = cursor

    async def _taken(self) -> Cursor:
        """Waits for a copy that holds it."""
        while True:
            cursor = await self._cursors.take(self._name, self._owner, self._lease_s)
            if cursor is not None:
                self._extended_at = time.monotonic()
                return cursor
            await asyncio.sleep(min(1.0, self._lease_s / 3))

    async def _extend(self) -> bool:
        assert self._cursor is not None, "begun before"
        if time.monotonic() - self._extended_at < self._lease_s / 3:
            return True
        self._extended_at = time.monotonic()
        return await self._cursors.extend(self._name, self._cursor.epoch, self._lease_s)

    async def _delivered(self) -> Delivered | None:
        """None: the cursor was taken by another copy while nothing came."""
        assert self._cursor is not None, "begun before"
        if self._waiting is None:
            self._waiting = asyncio.ensure_future(self._source.next(self._batch_max))
        while True:
            done, _ = await asyncio.wait({self._waiting}, timeout=self._lease_s / 3)
            if done:
                waiting, self._waiting = self._waiting, None
                return waiting.result()
            if not await self._extend():
                self._cursor = None
                return None

    def _batch(self, found: Delivered) -> Batch[Tx]:
        """Without what was taken before."""
        assert self._cursor is not None, "begun before"
        old = self._cursor
        events: list[Event] = []
        seen: set[int] = set()
        for event in found.events:
            if event.position <= old.position or event.position in self._ahead | seen:
                continue
            if found.through is not None and seen and event.position < max(seen):
                raise ConsumerError(
                    f"position {event.position} came after {max(seen)}: this is no feed"
                )
            seen.add(event.position)
            events.append(event)
        last = events[-1] if events else None
        moved = Cursor(
            old.position if found.through is None else max(old.position, found.through),
            old.filter,
            last.position if last else old.last_position,
            last.id if last else old.last_id,
            found.offsets or old.offsets,
            old.epoch,
        )
        ahead = [event.position for event in events] if found.through is None else []
        return Batch(events, self, moved, ahead)

    async def _pass_over(self, batch: Batch[Tx]) -> None:
        """Nothing wanted was there: the cursor moves over what the filter hides."""
        if batch._next == self._cursor:
            if not await self._extend():
                self._cursor = None
        else:
            try:
                async with batch.transaction():
                    pass
            except CursorTakenError:
                self._cursor = None

    @asynccontextmanager
    async def _moving(self, new: Cursor, ahead: Sequence[int]) -> AsyncIterator[Tx]:
        old = self._cursor
        if old is None or new.epoch != old.epoch:
            raise CursorTakenError(f"{self._name}: another copy has taken over")
        try:
            async with self._cursors.transaction() as tx:
                if not await self._cursors.move(tx, self._name, old, new, ahead, self._lease_s):
                    raise CursorTakenError(f"{self._name}: another copy has taken over")
                yield tx
        except BaseException:
            # whether it was committed is not known: what the database says holds
            self._cursor = None
            raise
        self._cursor, self._given = new, None
        self._ahead = {p for p in self._ahead if p > new.position}.union(ahead)

    async def _stop_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
