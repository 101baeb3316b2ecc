"""Subscribers of every way, whose connections are cut and who are killed, each with a database of
its own; and what each must have in it at the end."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
from tests.patience import PATIENCE_S, eventually

from wharfinger_client import (
    AsyncClient,
    Consumer,
    Event,
    EventFilter,
    Kafka,
    Pull,
    SqliteCursors,
    Sse,
    api,
)
from wharfinger_client.sources import Source

HTTP_WAYS = ("sse", "pull", "ndjson", "http-turns", "filtered")
ALL_WAYS = (*HTTP_WAYS, "kafka", "turns", "webhook")
"""`turns`: pull, server-sent events and Kafka one after the other, with the same cursor."""
BY_KEY = ("kafka", "turns", "webhook")
"""What these get is in order for each subject, not over all of them."""
FILTER = EventFilter(types=["schedule.decided"])
LIFE_S = 4.0
"""A subscriber lives for at most so long before it is killed."""
CUT = 0.3
"""Share of connections that are cut."""
CUT_BYTES = 40_000
"""After so many bytes of the answer at most."""


TABLE = "create table if not exists own (position integer, id text, subject text)"
"""Of the subscriber's own database: one row for each event, as often as it was taken."""


class Row(NamedTuple):
    position: int
    id: str
    subject: str

    def __str__(self) -> str:
        return f"position {self.position}, id {self.id}, about {self.subject}"


class Difference(NamedTuple):
    """Of one subscriber. `gaps`: events that it has not. `repeated`: rows that it has once more.
    `foreign`: rows that are no events for it. `disordered`: rows that came before an earlier one.
    `first`: the first of them, in words; empty where there is none."""

    gaps: int
    repeated: int
    foreign: int
    disordered: int
    first: str


def difference(way: str, stored: Sequence[Row], expected: Sequence[Row]) -> Difference:
    """Between what a subscriber of that way has written, in that order, and what it had to."""
    times, wanted = Counter(stored), set(expected)
    gaps = [row for row in expected if row not in times]
    repeated = [row for row, count in times.items() if count > 1]
    foreign = [row for row in times if row not in wanted]
    disordered = list(_disordered(way, list(times)))  # a repetition is counted as one
    ordered = sorted(
        [(row.position, "missing", row) for row in gaps]
        + [(row.position, "repeated", row) for row in repeated]
        + [(row.position, "not in the feed", row) for row in foreign]
        + [(row.position, "out of order", row) for row in disordered]
    )
    first = f"{ordered[0][1]}: {ordered[0][2]}" if ordered else ""
    again = sum(times[row] - 1 for row in repeated)
    return Difference(len(gaps), again, len(foreign), len(disordered), first)


def _disordered(way: str, rows: Sequence[Row]) -> Iterator[Row]:
    last: dict[str, int] = {}
    for row in rows:
        key = row.subject if way in BY_KEY else ""
        if row.position < last.get(key, 0):
            yield row
        last[key] = max(row.position, last.get(key, 0))


def api_port(data_dir: Path) -> int | None:
    """Of the API that runs, or that ran last."""
    try:
        return int(json.loads((data_dir / "run" / "api.json").read_text())["http_port"])
    except (FileNotFoundError, json.JSONDecodeError):
        return None  # it is on its way up


class CuttingProxy:
    """Passes connections on to the port that `port` names then. Some are cut in the middle."""

    def __init__(self, random: Random, port: Callable[[], int | None], share: float = CUT) -> None:
        """`share`: of connections that are cut."""
        self._random = random
        self._port = port
        self._share = share
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.cut = 0

    @property
    def url(self) -> str:
        assert self._server is not None, "it is entered"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None, "it is entered"
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass_on(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._port()
        there: asyncio.StreamWriter | None = None
        try:
            if port is None:
                return
            answers, there = await asyncio.open_connection("127.0.0.1", port)
            cut = self._random.random() < self._share
            left = self._random.randrange(CUT_BYTES) if cut else sys.maxsize
            ways = {
                asyncio.ensure_future(_copy(reader, there, sys.maxsize)),
                asyncio.ensure_future(_copy(answers, writer, left)),
            }
            try:
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                self.cut += any(not way.exception() and way.result() for way in done)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the server is away
        finally:
            for one in (writer, there):
                if one is not None:
                    one.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> bool:
    """Whether it ended because no byte more may pass."""
    while data := await reader.read(65_536):
        writer.write(data[:left])
        await writer.drain()
        left -= len(data)
        if left <= 0:
            return True
    return False


@dataclass(slots=True)
class Subscriber:
    """`rows`: how many are in its database. `lives`: how often it began."""

    way: str
    path: Path
    secret: str
    random: Random
    rows: int = 0
    lives: int = 0

    @property
    def wanted(self) -> EventFilter:
        return FILTER if self.way == "filtered" else EventFilter()

    def stored(self) -> list[Row]:
        """In the order in which they were written."""
        with sqlite3.connect(self.path) as own:
            found = own.execute("select position, id, subject from own order by rowid").fetchall()
        return [Row(*row) for row in found]


@dataclass(slots=True)
class Subscribers:
    """All of them, at the HTTP API at `url`. `bootstrap`: of the broker now. `life_s`: one is
    killed after at most so long."""

    url: str
    all: Sequence[Subscriber]
    bootstrap: Callable[[], str] = lambda: ""
    life_s: float = LIFE_S
    _running: list[asyncio.Task[None]] = field(default_factory=list)

    async def until_read(self, events: Sequence[Event]) -> None:
        """Everyone has as many rows as there are events for them. What ended one is raised."""

        wanted = [(one, len(rows_for(one, events))) for one in self.all]

        def read() -> bool:
            for task in self._running:
                if task.done():
                    task.result()
            return all(one.rows >= count for one, count in wanted)

        await eventually(read, lambda: [(one.way, one.rows, count) for one, count in wanted])

    async def ended(self) -> None:
        """Returns never: what ended one of them is raised."""
        for task in asyncio.as_completed(self._running):
            await task

    def differences(self, events: Sequence[Event]) -> list[str]:
        """One line for each subscriber that has not every event once, in order."""
        found: list[str] = []
        for one in self.all:
            seen = difference(one.way, one.stored(), rows_for(one, events))
            if seen.first:
                found.append(f"{one.way} {one.path.name}: {seen}")
        return found

    async def run(self, one: Subscriber) -> None:
        """One life after the other, each ended as by a kill."""
        while True:
            way = _way(one)
            one.lives += 1
            life = asyncio.ensure_future(self._life(one, way))
            seconds = one.random.uniform(0.2, self.life_s)
            try:
                await asyncio.wait({life}, timeout=seconds)
                if life.done():
                    life.result()  # it does not end by itself
            finally:
                life.cancel()
                await asyncio.gather(life, return_exceptions=True)

    async def _life(self, one: Subscriber, way: str) -> None:
        cursors = SqliteCursors(str(one.path))
        own = cursors.connection
        try:
            # a process is killed, not the machine: what was committed is the kernel's
            own.execute("pragma synchronous = off")
            own.execute(TABLE)
            if way == "ndjson":
                await self._lines(one, own)
            else:
                await self._consume(one, way, cursors)
        finally:
            cursors.close()  # what was not committed is gone, as when a process ends

    async def _consume(self, one: Subscriber, way: str, cursors: SqliteCursors) -> None:
        size = one.random.randint(1, 200)
        async with AsyncClient(self.url, one.secret) as client:
            source = self._source(way, client)
            options: dict[str, Any] = {"batch_max": size, "lease_s": 0.3}
            async with Consumer(cursors, source, "mixed", one.wanted, **options) as consumer:
                async for batch in consumer:
                    async with batch.transaction() as tx:
                        for event in batch.events:
                            row = (event.position, event.id, event.subject)
                            tx.execute("insert into own values (?, ?, ?)", row)
                            await asyncio.sleep(0)  # it may be killed here
                    one.rows += len(batch.events)

    def _source(self, way: str, client: AsyncClient) -> Source:
        match way:
            case "sse":
                return Sse(client)
            case "kafka":
                return Kafka(self.bootstrap())
            case _:
                return Pull(client, 5.0)

    async def _lines(self, one: Subscriber, own: sqlite3.Connection) -> None:
        """Without the client: the position moves in the transaction of what was read."""
        own.execute("create table if not exists place (position integer)")
        headers = {"Authorization": f"Bearer {one.secret}", "Accept": "application/x-ndjson"}
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_S) as http:
            while True:
                row = own.execute("select max(position) from place").fetchone()
                path = f"/v1/events?after={row[0] or 0}"
                try:
                    async with http.stream("GET", path, headers=headers) as answer:
                        if answer.status_code == 200:
                            await self._take_lines(one, own, answer)
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.2)

    async def _take_lines(
        self, one: Subscriber, own: sqlite3.Connection, answer: httpx.Response
    ) -> None:
        async for line in answer.aiter_lines():
            if not line:
                continue  # nothing has happened for a while
            event: dict[str, Any] = json.loads(line)
            if "position" not in event:
                continue
            position = int(event["position"])
            own.execute("begin immediate")
            row = (position, event["id"], event.get("subject", ""))
            own.execute("insert into own values (?, ?, ?)", row)
            await asyncio.sleep(0)
            own.execute("insert into place values (?)", (position,))
            own.execute("commit")
            one.rows += 1


def _way(one: Subscriber) -> str:
    match one.way:
        case "http-turns":
            return ("pull", "sse")[one.lives % 2]
        case "turns":
            return ("pull", "kafka", "sse")[one.lives % 3]
        case "filtered":
            return "sse"
        case way:
            return way


def rows_for(one: Subscriber, events: Sequence[Event]) -> list[Row]:
    """What it must have of the whole feed."""
    return [Row(e.position, e.id, e.subject) for e in events if one.wanted.takes(e)]


@asynccontextmanager
async def subscribed(
    url: str, directory: Path, secrets: Sequence[str], ways: Sequence[str], seed: int
) -> AsyncIterator[Subscribers]:
    """One subscriber for each secret, who live while the context is open."""
    everyone = [
        Subscriber(ways[n % len(ways)], directory / f"{n}.db", secret, Random(f"{seed}/{n}"))
        for n, secret in enumerate(secrets)
    ]
    async with living(Subscribers(url, everyone)) as found:
        yield found


@asynccontextmanager
async def living(found: Subscribers) -> AsyncIterator[Subscribers]:
    """They live while the context is open."""
    found._running += [asyncio.ensure_future(found.run(one)) for one in found.all]
    try:
        yield found
    finally:
        for task in found._running:
            task.cancel()
        await asyncio.gather(*found._running, return_exceptions=True)


async def whole_feed(url: str, secret: str) -> list[Event]:
    """All decisions in order of position, as the API gives them now."""
    found: list[Event] = []
    async with AsyncClient(url, secret, timeout_s=PATIENCE_S) as client:
        position = 0
        while True:
            page = await client(api.events_after(EventFilter(), str(position), limit=500))
            found += page.events
            if not page.events:
                return found
            position = page.through
