"""Subscribers of every way over HTTP, while they, their connections and the API are killed: each
has every decision once in its own database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from tests.api import api_process
from tests.backends import fresh_database
from tests.feeds import numbered
from tests.integration.test_api import SHOP, lived
from tests.subscribers import HTTP_WAYS, CuttingProxy, api_port, subscribed, whole_feed
from tests.told_plane import a_binding

from wharfinger.events.streams import INTAKE
from wharfinger.runtime.ledger import DecisionQuery
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.tokens import make_token

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

SEED = 11


async def tokens(database: Database, count: int) -> list[str]:
    """A viewer's, for each subscriber: the limit of requests is for a token."""
    made = [
        await make_token(database, f"reader-{n}", ["viewer"], "tests", lifetime_s=86_400)
        for n in range(count)
    ]
    return [secret for secret, _ in made]


@pytest.mark.long
async def test_nothing_is_missing_and_nothing_twice_over_a_killed_api(
    database_server: str, migrated_database: str, tmp_path: Path
) -> None:
    kills, turns = 1, 6
    with fresh_database(database_server, template=migrated_database) as url:
        plane = await lived(url)
        await numbered(plane.ledger)
        secrets = await tokens(plane.ledger.database, len(HTTP_WAYS))
        process = await asyncio.to_thread(api_process, url, tmp_path)
        try:
            proxy = CuttingProxy(Random(SEED), lambda: api_port(tmp_path))
            async with proxy, subscribed(proxy.url, tmp_path, secrets, HTTP_WAYS, SEED) as all_:
                for kill in range(kills + 1):
                    for turn in range(turns):
                        jobs = [a_binding(f"job-{n}", 1 + turn + kill, SHOP) for n in range(5)]
                        await plane.tell(*jobs)
                        await numbered(plane.ledger)  # as by a publisher that has just begun
                        await asyncio.sleep(0.1)
                    if kill < kills:
                        process.kill()
                        process.wait()
                        process = await asyncio.to_thread(api_process, url, tmp_path)
                direct = f"http://127.0.0.1:{api_port(tmp_path)}"
                feed = await whole_feed(direct, secrets[0])
                await all_.until_read(feed)
        finally:
            process.kill()
            process.wait()
        rows = [row async for row in plane.ledger.decisions(DecisionQuery())]
        decided = [str(row.id) for row in rows if row.stream != INTAKE]
        await plane.ledger.close()
    assert sorted(event.id for event in feed) == sorted(decided)
    assert all_.differences(feed) == []
    assert min(one.lives for one in all_.all) > 1
