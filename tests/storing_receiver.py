"""Receivers of webhooks, each with a database of its own, in which an event is kept once by its id,
as `docs/consumers.md` says. Some answers are lost after the event was kept."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from aiohttp import web
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from tests.subscribers import TABLE

LOST = 0.002
"""Share of answers that are lost."""


@dataclass(slots=True)
class StoringReceiver:
    """One subscription's. `secret`: the one it is signed with."""

    path: Path
    secret: str
    random: Random
    own: sqlite3.Connection = field(init=False)

    def __post_init__(self) -> None:
        self.own = sqlite3.connect(self.path, isolation_level=None)
        # the process is killed, not the machine: what was committed is the kernel's
        self.own.execute("pragma synchronous = off")
        self.own.execute(TABLE)
        self.own.execute("create unique index if not exists own_id on own (id)")
        self.own.execute("create table if not exists again (id text)")

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            Webhook(self.secret).verify(body, dict(request.headers))
        except WebhookVerificationError:
            return web.Response(status=400)
        event = json.loads(body)
        row = (int(event["position"]), event["id"], event.get("subject", ""))
        kept = self.own.execute("insert or ignore into own values (?, ?, ?)", row).rowcount
        if not kept:
            self.own.execute("insert into again values (?)", (event["id"],))
        if self.random.random() < LOST and request.transport is not None:
            request.transport.close()
        return web.Response(text="ok")


@asynccontextmanager
async def serving_receivers(port: int, all_: Sequence[StoringReceiver]) -> AsyncIterator[None]:
    """On a loopback port; `/NAME` is the one with the database `NAME.db`."""
    application = web.Application()
    for one in all_:
        application.router.add_post(f"/{one.path.stem}", one.take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
    finally:
        await runner.cleanup()
        for one in all_:
            one.own.close()


def came_again(path: Path) -> int:
    """How many deliveries were dropped because the event was there already."""
    with sqlite3.connect(path) as own:
        return int(own.execute("select count(*) from again").fetchone()[0])
