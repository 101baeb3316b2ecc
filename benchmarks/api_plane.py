"""A plane of real processes that is full of bindings, its HTTP API, and the events that change
them."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp
import psutil

from benchmarks.latency import a_binding, a_fleet
from benchmarks.plane import PlaneUnderTest, service_of
from benchmarks.processor import processor_seconds, used_between
from benchmarks.subscriber import Subscriber
from wharfinger.events.streams import INTAKE
from wharfinger.runtime.ledger import Ledger, Submission, feed
from wharfinger.runtime.ledger.tokens import make_token
from wharfinger.runtime.process_status import ProcessCard, process_cards

API = "api"
BATCH = 500
"""Submissions of one transaction."""
NAMESPACES = 20
TOKENS = 8
TOKEN_S = 86_400
DECIDED_TIMEOUT_S = 1800.0
READ_TIMEOUT_S = 120.0
FETCH_WAIT_MS = 200
"""A broker that is loaded, and has a long topic, gives nothing within ten."""
QUIET_S = 2.0
"""The plane stands still when its feed has not grown for so long."""
IDLE_SHARE = 0.05
"""Of a core: an API that uses less is idle."""

_SSE_CLIENTS = re.compile(r"^wharfinger_sse_clients (\S+)$", re.MULTILINE)
_DECISIONS = """
select coalesce(sum(least(f.first_position + f.count - 1, $2) - greatest(f.first_position, $1 + 1)
    + 1), 0)::bigint
from feed f join stream s on s.id = f.stream
where s.name <> $3 and f.first_position <= $2 and f.first_position + f.count - 1 > $1
"""


@dataclass(slots=True)
class ApiUnderTest:
    """`names`: of the bindings. `secrets`: of tokens that may do everything that is measured."""

    plane: PlaneUnderTest
    ledger: Ledger
    http: aiohttp.ClientSession
    names: tuple[str, ...]
    secrets: tuple[str, ...]
    _changes: Counter[str] = field(default_factory=Counter)

    @property
    def bootstrap(self) -> str:
        return str(self.plane.plane()["bootstrap"])

    @property
    def card(self) -> ProcessCard:
        """Of the process of the API."""
        card = self.found_card()
        if card is None:
            raise RuntimeError("the API does not run")
        return card

    def found_card(self) -> ProcessCard | None:
        """Also that of a process that was killed, until another one has started."""
        cards = process_cards(self.plane.data_dir)
        return next((card for path, card in cards if path.stem == API), None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.card.http_port}"

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets[0]}"}

    async def sse_clients(self) -> int:
        """How many readers of the event stream the API counts."""
        async with self.http.get(f"{self.url}/metrics") as answer:
            found = _SSE_CLIENTS.search(await answer.text())
        return int(float(found.group(1))) if found else 0

    async def head(self) -> int:
        return (await feed.head(self.ledger.database)).position

    async def decisions(self, after: int, through: int) -> int:
        """How many have a position beyond `after` and up to `through`, by the ledger's tables."""
        async with self.ledger.database.reading() as raw:
            row = await raw.fetchrow(_DECISIONS, after, through, INTAKE)
        assert row is not None, "a sum has a row"
        return int(row[0])

    async def settled(self) -> int:
        """The head of the feed, once it has stood still for `QUIET_S`."""
        position, since = await self.head(), time.monotonic()
        while time.monotonic() - since < QUIET_S:
            await asyncio.sleep(0.1)
            found = await self.head()
            if found != position:
                position, since = found, time.monotonic()
        return position

    async def rested(self) -> None:
        """Once the API has nothing left to do of requests whose clients gave up."""
        until, process = time.monotonic() + READ_TIMEOUT_S, psutil.Process(self.card.pid)
        while time.monotonic() < until:
            before = process.cpu_times()
            await asyncio.sleep(1.0)
            after = process.cpu_times()
            if after.user + after.system - before.user - before.system < IDLE_SHARE:
                return

    async def fill(self, clusters: int, nodes: int) -> None:
        """A fleet and all bindings; returns when every binding is decided and the plane stands
        still."""
        await self.accept(a_fleet(clusters, nodes))
        await self.settled()
        await self.decided([a_binding(name) for name in self.names], self.names)
        await self.settled()

    async def accept(self, submissions: Sequence[Submission]) -> None:
        for start in range(0, len(submissions), BATCH):
            await self.ledger.accept(submissions[start : start + BATCH])

    async def decided(self, submissions: Sequence[Submission], names: Sequence[str]) -> float:
        """Accept new bindings. Seconds until all of them were decided for nodes, and published."""
        known = await self.decisions(0, await self.head())
        async with Subscriber(self.bootstrap, FETCH_WAIT_MS) as subscriber:
            if not await subscriber.until(lambda s: len(s.ids) >= known, READ_TIMEOUT_S):
                raise RuntimeError(
                    f"{len(subscriber.seen.ids)} of {known} decisions were on the topic after "
                    f"{READ_TIMEOUT_S:.0f} s"
                )
            wanted = set(names)
            began = time.time()
            await self.accept(submissions)
            first = subscriber.seen.first_node
            if not await subscriber.until(lambda _: wanted <= first.keys(), DECIDED_TIMEOUT_S):
                missing = len(wanted - first.keys())
                raise RuntimeError(
                    f"{missing} of {len(wanted)} bindings had no node decision after "
                    f"{DECIDED_TIMEOUT_S:.0f} s"
                )
            return max(first[name] for name in wanted) - began

    async def change(self, names: Sequence[str]) -> None:
        """Each asks for another number of replicas."""
        changes = []
        for name in names:
            self._changes[name] += 1
            number = self._changes[name]
            changes.append(a_binding(name, 1 + number % 3, number))
        await self.accept(changes)

    @asynccontextmanager
    async def changing(self, rate: float) -> AsyncIterator[None]:
        """So many bindings a second are changed meanwhile. Open loop: what is due is accepted,
        whether or not the plane has kept up."""
        task = asyncio.create_task(self._change_steadily(rate))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task  # raises what it ended with

    async def _change_steadily(self, rate: float) -> None:
        names = self._round()
        began, done = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began) * rate) - done
            if due:
                await self.change([next(names) for _ in range(min(due, len(self.names)))])
                done += due
            await asyncio.sleep(max(0.0, began + (done + 1) / rate - time.monotonic()))

    def _round(self) -> Iterator[str]:
        while True:
            yield from self.names


class Meter:
    """Processor time of the plane from here on, by part: the API is one of its own."""

    def __init__(self, plane: PlaneUnderTest) -> None:
        self._plane = plane
        self._before = self._seconds()

    def used(self, units: int) -> dict[str, float]:
        """Microseconds a unit."""
        return used_between(self._before, self._seconds(), units)

    def _seconds(self) -> dict[tuple[str, int], float]:
        return processor_seconds(self._plane, part_of)


def part_of(part: str, process: psutil.Process) -> str:
    return API if service_of(part, process) == API else part


def said(used: dict[str, float], unit: str) -> str:
    """`services`: those beside the API."""
    api, others = used.get(API, 0.0), used.get("services", 0.0)
    return f"API {api:,.0f}, other services {others:,.0f} µs of processor a {unit}"


@asynccontextmanager
async def a_full_plane(
    plane: PlaneUnderTest, bindings: int, clusters: int, nodes: int
) -> AsyncIterator[ApiUnderTest]:
    """`plane` runs, and is empty."""
    ledger = await Ledger.open(plane.plane()["database_url"], "wharfinger-bench")
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as http:
            names = tuple(f"bench-{i % NAMESPACES:02d}/b{i:05d}" for i in range(bindings))
            api = ApiUnderTest(plane, ledger, http, names, await _tokens(ledger))
            await api.fill(clusters, nodes)
            yield api
    finally:
        await ledger.close()


async def _tokens(ledger: Ledger) -> tuple[str, ...]:
    """Several, because limits are for a token."""
    made = [
        await make_token(
            ledger.database, f"bench-{i}", ("viewer", "operator"), "local:bench", lifetime_s=TOKEN_S
        )
        for i in range(TOKENS)
    ]
    return tuple(secret for secret, _ in made)
