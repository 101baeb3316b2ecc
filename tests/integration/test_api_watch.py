"""A watched list is at last what a request for it answers, however often its reader is cut off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
from tests.api import in_a_thread
from tests.backends import fresh_database, in_a_loop
from tests.feeds import numbered
from tests.integration.test_fleet_view import CLUSTERS, POLICIES, some_nodes, something
from tests.patience import PATIENCE_S, eventually
from tests.told_plane import ToldPlane, a_binding, a_cluster

from wharfinger.events.accepted import Fact
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger_client import AsyncClient, api
from wharfinger_client.api import Call
from wharfinger_client.watching import Watch

pytestmark = pytest.mark.integration

LISTS: Mapping[str, Call[Any]] = {
    "all bindings": api.bindings(),
    "refused bindings": api.bindings(state=["refused"]),
    "bindings in oslo": api.bindings(cluster=["oslo"], fields=["name", "targets", "placed"]),
    "clusters": api.clusters(),
    "silent clusters": api.clusters(state=["silent"]),
    "nodes of bergen": api.nodes(cluster=["bergen"]),
    "policies": api.policies(),
}


@asynccontextmanager
async def watching(watch: Watch[Any]) -> AsyncIterator[None]:
    async def read() -> None:
        async for _ in watch.changes():
            pass

    task = asyncio.create_task(read())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def a_fleet(url: str, chance: random.Random) -> ToldPlane:
    plane = await ToldPlane.opened(url)
    told: list[Fact] = [a_cluster(name) for name in CLUSTERS]
    for name in CLUSTERS:
        told += some_nodes(chance, name)
    await plane.tell(*told, *POLICIES)
    await numbered(plane.ledger)
    return plane


@pytest.mark.parametrize("seed", range(2))
def test_every_watched_list_is_at_last_the_list(
    database_server: str, migrated_database: str, seed: int
) -> None:
    async def watched(url: str, server: str, secret: str) -> None:
        chance = random.Random(seed)
        plane = await a_fleet(url, chance)
        async with AsyncClient(server, secret) as client:
            watches = {name: Watch(client, call) for name, call in LISTS.items()}
            for _ in range(5):  # each time their readers are cut off, and go on
                async with cut_off_together([*watches.values()]):
                    for _ in range(6):
                        await plane.tell(*something(chance), after_s=chance.choice([1, 1, 90]))
                        if chance.random() < 0.5:
                            await numbered(plane.ledger)  # others are seen before their position
                await plane.tell(*something(chance))  # between two readers
            await numbered(plane.ledger)
            async with cut_off_together([*watches.values()]):
                for name, watch in watches.items():
                    page = await client(LISTS[name])
                    items = [dict(item) for item in page["items"]]

                    def same(watch: Watch[Any] = watch, items: Any = items) -> bool:
                        return watch.synced.is_set() and [*shown(watch)] == items

                    await eventually(same, lambda: [shown(watch) for watch in watches.values()])
        await plane.ledger.close()

    with (
        fresh_database(database_server, template=migrated_database) as url,
        in_a_thread(url) as (server, secret),
    ):
        in_a_loop(lambda: watched(url, server, secret))


def shown(watch: Watch[Any]) -> list[dict[str, Any]]:
    return [dict(item) for _, item in sorted(watch.items.items())]


@asynccontextmanager
async def cut_off_together(watches: list[Watch[Any]]) -> AsyncIterator[None]:
    readers = [watching(watch) for watch in watches]
    for reader in readers:
        await reader.__aenter__()
    try:
        yield
    finally:
        for reader in readers:
            await reader.__aexit__(None, None, None)


async def frames_until(
    client: AsyncClient, call: Call[Any], event: str, after: str = ""
) -> list[tuple[str, str]]:
    """(event, data) of each frame up to the first of this kind, and that one's id."""
    query = (*call.query, *((("after", after),) if after else ()))
    found: list[tuple[str, str]] = []
    async with client.frames(call.path, query) as frames:
        async for frame in frames:
            if frame.get("event"):
                found.append((frame["event"], frame["data"]))
            if frame.get("event") == event:
                return [*found, ("id", frame["id"])]
    raise AssertionError(f"the stream ended before {event}: {found}")


def test_an_empty_list_is_synced_and_a_reader_who_comes_again_gets_no_list(
    database_server: str, migrated_database: str
) -> None:
    async def read(url: str, server: str, secret: str) -> None:
        plane = await a_fleet(url, random.Random(1))
        async with AsyncClient(server, secret) as client:
            empty = await frames_until(client, api.bindings(), "synced")
            assert [event for event, _ in empty] == ["opened", "synced", "id"]
            await plane.tell(a_binding("web", 2, POLICIES[0]), a_binding("api", 1, POLICIES[0]))
            position = await numbered(plane.ledger)
            assert position
            first = await frames_until(client, api.bindings(), "synced")
            assert [event for event, _ in first] == ["opened", "item", "item", "synced", "id"]
            await plane.tell(BindingWithdrawn("shop/api-deployment"))
            await numbered(plane.ledger)
            again = await frames_until(client, api.bindings(), "synced", first[-1][1])
            assert '"resumed":true' in again[0][1]
            assert ("removed", '{"name":"shop/api-deployment"}') in again
            assert "item" not in [event for event, _ in again]
            unknown = await frames_until(client, api.bindings(), "synced", "of.another")
            assert '"resumed":false' in unknown[0][1]
        await plane.ledger.close()

    with (
        fresh_database(database_server, template=migrated_database) as url,
        in_a_thread(url) as (server, secret),
    ):
        in_a_loop(lambda: read(url, server, secret))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("at=2h", "at: a list of the past, or of groups, is not watched"),
        ("group_by=namespace", "group_by: a list of the past, or of groups, is not watched"),
        ("state=lost", "state: expected waiting"),
        ("fields=colour", "fields: expected some of"),
    ],
)
def test_what_cannot_be_watched_is_one_problem(
    database_server: str, migrated_database: str, query: str, said: str
) -> None:
    with (
        fresh_database(database_server, template=migrated_database) as url,
        in_a_thread(url) as (server, secret),
    ):
        answer = httpx.get(
            f"{server}/v1/bindings?{query}",
            headers={"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"},
            timeout=PATIENCE_S,
        )
    assert answer.status_code == 400
    assert said in answer.json()["detail"]


def test_a_reader_of_one_namespace_is_shown_that_one(
    database_server: str, migrated_database: str
) -> None:
    async def read(url: str, server: str, secret: str) -> None:
        plane = await a_fleet(url, random.Random(2))
        async with AsyncClient(server, secret) as client:
            watch = Watch(client, api.bindings(namespace=["bank"]))
            async with watching(watch):
                await asyncio.wait_for(watch.synced.wait(), PATIENCE_S)
                await plane.tell(a_binding("web", 2, POLICIES[0]))
                await numbered(plane.ledger)
                page = await client(api.bindings())
                assert [item["name"] for item in page["items"]] == ["shop/web-deployment"]
            assert watch.items == {}
        await plane.ledger.close()

    with (
        fresh_database(database_server, template=migrated_database) as url,
        in_a_thread(url) as (server, secret),
    ):
        in_a_loop(lambda: read(url, server, secret))
