"""A list of the plane that is kept as it is there: bindings, clusters, nodes or policies.

async with AsyncClient(server, token) as client:
    watch = Watch(client, api.bindings(namespace=["shop"]))
    async for change in watch.changes():
        print(change.key, change.item)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from wharfinger_client.api import Call
from wharfinger_client.client import AsyncClient
from wharfinger_client.models import Page
from wharfinger_client.sources import PATIENT, TRANSIENT

T = TypeVar("T", bound=Mapping[str, Any])

Key = tuple[str, ...]

KEYS: Mapping[str, Key] = {
    "/v1/bindings": ("name",),
    "/v1/clusters": ("name",),
    "/v1/nodes": ("cluster", "name"),
    "/v1/policies": ("key",),
}
"""The members that say which item it is."""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """`item`: as it is now; None: it is not in the list any more."""

    key: Key
    item: T | None


class Watch(Generic[T]):
    """`items`: the list, by key, whole once `synced` is set. `position`: it has everything through
    here of the feed; None: that is not known yet.

    `call`: of a list, without `at`, `after`, `limit` and `group_by`. With `fields`, the members
    that say which item it is have to be among them. ValueError: it is no such call."""

    def __init__(self, client: AsyncClient, call: Call[Page[T]]) -> None:
        names = KEYS.get(call.path)
        query = dict(call.query)
        fields = [value for name, value in call.query if name == "fields"]
        if names is None or query.keys() & {"at", "after", "limit", "group_by"}:
            raise ValueError(f"watch: expected one of the lists {', '.join(KEYS)}, from its start")
        if fields and not {*names} <= {*fields}:
            raise ValueError(f"fields: {' and '.join(names)} must be among them")
        self._client = client
        self._call = call
        self._names = names
        self.items: dict[Key, T] = {}
        self.synced = asyncio.Event()
        self.position: int | None = None
        self._last_id = ""

    async def changes(self) -> AsyncIterator[Change[T]]:
        """What changes, after it was taken into `items`; first all that there is. Connections that
        are lost are made again. ApiError: the server refuses the request."""
        failed = 0
        while True:
            try:
                async for change in self._connected():
                    failed = 0
                    yield change
            except TRANSIENT:
                failed += 1
            await asyncio.sleep(PATIENT.wait_s(min(failed, 10)) if failed else 0.0)

    async def _connected(self) -> AsyncIterator[Change[T]]:
        after = (("after", self._last_id),) if self._last_id else ()
        query = (*self._call.query, *after)
        found: dict[Key, T] | None = None
        async with self._client.frames(self._call.path, query) as frames:
            async for frame in frames:
                event, data = frame.get("event", ""), frame.get("data", "")
                if event == "opened":
                    found = None if json.loads(data)["resumed"] else {}
                elif event in ("item", "changed"):
                    item = cast(T, json.loads(data))
                    key = self._key(item)
                    if found is not None:
                        found[key] = item
                    if self.items.get(key) != item:
                        self.items[key] = item
                        yield Change(key, item)
                elif event == "removed":
                    key = self._key(json.loads(data))
                    if self.items.pop(key, None) is not None:
                        yield Change(key, None)
                elif event == "synced":
                    if found is not None:
                        for key in [key for key in self.items if key not in found]:
                            del self.items[key]
                            yield Change(key, None)
                        found = None
                    self.synced.set()
                if "id" in frame:
                    self._last_id, self.position = frame["id"], json.loads(data)["position"]

    def _key(self, item: Mapping[str, Any]) -> Key:
        return tuple(str(item[name]) for name in self._names)
