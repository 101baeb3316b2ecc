"""A list that is watched: what is there, `synced`, and then what changes.

Frames are server-sent events. `item` is one of the list as it is at the beginning; after `synced`
the list is whole. Then `changed` has an item as it is since, and `removed` says which one is not in
the list any more. The id of a frame is a position: a reader who comes again with the last one gets
what has changed since, without the list, as long as that is known here. `opened` says which of both
follows. A change may be repeated; what is said last of an item holds.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from wharfinger.answers.fleet_view import Changed
from wharfinger.runtime.ledger import LedgerError
from wharfinger_api.access import Principal
from wharfinger_api.events import BOOKMARK_S, CHECK_S, HEARTBEAT_S, Lasting, Valid, opened
from wharfinger_api.lists import ListKind, with_fields
from wharfinger_api.present import Moment, Present

T = TypeVar("T")

ITEMS = 200
"""Of one part of the answer."""


@dataclass(slots=True)
class Watch(Generic[T]):
    """`chosen`: which of some items are in the list. `fields`: the members that are shown; none
    given: all."""

    present: Present
    kind: ListKind[T]
    principal: Principal
    chosen: Callable[[Sequence[T]], Sequence[T]]
    fields: Sequence[str]
    valid: Valid

    async def parts(self, after: int | None) -> AsyncGenerator[bytes, None]:
        """`after`: the position of the last frame that the reader has had."""
        lasting = Lasting(self.valid)
        async with self.present.watched():
            moment = await self.present.now()
            missed = None if after is None else self.present.changed_after(after)
            yield opened({"resumed": missed is not None, "position": moment.position})
            shown = self._shown(moment)
            inside = {self.kind.key(item) for item in shown}
            if missed is None:
                async for part in self._items(shown):
                    yield part
            else:
                # What it has from before is not known here: what is not in the list is removed.
                keys = self._keys(missed)
                yield self._changes(moment, keys, inside | keys)
            yield _frame("synced", {"position": moment.position}, moment.position)
            said = bookmarked = time.monotonic()
            told = moment.position
            while not await lasting.over():
                await self.present.news(moment.version, min(HEARTBEAT_S, CHECK_S))
                before = moment.version
                try:
                    moment = await self.present.now()
                except LedgerError:
                    continue
                now = time.monotonic()
                changed = self.present.changed_since(before)
                if changed is None:
                    return  # the reader comes again, and gets what it missed or the list
                if changed and (part := self._changes(moment, self._keys(changed), inside)):
                    told, said = moment.position, now
                    yield part + _position(told)
                elif moment.position > told and now - bookmarked > BOOKMARK_S:
                    told, said, bookmarked = moment.position, now, now
                    yield _frame("bookmark", {"position": told}, told)
                elif now - said > HEARTBEAT_S:
                    said = now
                    yield b": \n\n"

    def _shown(self, moment: Moment) -> Sequence[T]:
        return self.chosen(self.kind.now(moment, self.principal))

    async def _items(self, shown: Sequence[T]) -> AsyncGenerator[bytes, None]:
        for begin in range(0, len(shown), ITEMS):
            yield b"".join(
                b"event: item\ndata: %s\n\n" % self._json(item)
                for item in shown[begin : begin + ITEMS]
            )

    def _keys(self, changes: Iterable[Changed]) -> set[str]:
        return {key for changed in changes for key in self.kind.changed(changed)}

    def _changes(self, moment: Moment, keys: Iterable[str], inside: set[str]) -> bytes:
        """`inside`: the keys that the reader may have; afterwards those that it has."""
        frames: list[bytes] = []
        for key in sorted(keys):
            item = self.kind.one(moment, self.principal, key)
            if item is not None and self.chosen([item]):
                inside.add(key)
                frames.append(b"event: changed\ndata: %s\n\n" % self._json(item))
            elif key in inside:
                inside.remove(key)
                frames.append(_frame("removed", self.kind.identity(key)))
        return b"".join(frames)

    def _json(self, item: T) -> bytes:
        if self.fields:
            return msgspec.json.encode(with_fields(self.kind.plain(item), self.fields))
        return self.present.encoded(self.kind.name, self.kind.key(item), item, self.kind.plain)


def _position(position: int) -> bytes:
    """A frame that says nothing but how far the reader has come."""
    return _frame("bookmark", {"position": position}, position)


def _frame(event: str, data: object, id: int | None = None) -> bytes:
    head = b"" if id is None else b"id: %d\n" % id
    return head + b"event: %s\ndata: %s\n\n" % (event.encode(), msgspec.json.encode(data))
