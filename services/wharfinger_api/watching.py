"""A list that is watched: what is there, `synced`, and then what changes.

Frames are server-sent events. `item` is one of the list as it is at the beginning; after `synced`
the list is whole. Then `changed` has an item as it is since, and `removed` says which one is not in
the list any more. A reader who comes again with the id of the last frame gets what has changed
since, without the list, as long as that is known here. `opened` says which of both follows.
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

    async def parts(self, after: str) -> AsyncGenerator[bytes, None]:
        """`after`: the id of the last frame that the reader has had."""
        lasting = Lasting(self.valid)
        async with self.present.watched():
            moment = await self.present.now()
            seen = self.present.version_of(after)
            missed = None if seen is None else self.present.changed_since(seen)
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
            yield self._told("synced", moment)
            said = told = time.monotonic()
            while not await lasting.over():
                await self.present.news(moment.version, min(HEARTBEAT_S, CHECK_S))
                before = moment
                try:
                    moment = await self.present.now()
                except LedgerError:
                    continue
                now = time.monotonic()
                changed = self.present.changed_since(before.version)
                if changed is None:
                    return  # the reader comes again, and gets the list
                if part := self._changes(moment, self._keys(changed), inside):
                    said = told = now
                    yield part + self._told("bookmark", moment)
                elif moment.position > before.position and now - told > BOOKMARK_S:
                    said = told = now
                    yield self._told("bookmark", moment)
                elif now - said > HEARTBEAT_S:
                    said = now
                    yield b": \n\n"

    def _told(self, event: str, moment: Moment) -> bytes:
        """How far the reader has come."""
        head = b"id: %s\n" % self.present.token(moment.version).encode()
        return head + _frame(event, {"position": moment.position})

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


def _frame(event: str, data: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event.encode(), msgspec.json.encode(data))
