"""Requests to an HTTP server at a steady rate, from a process of their own.

Open loop: a request is due every 1/rate seconds whether or not the ones before were answered, and
its latency begins when it is due. So a stall counts for all requests that waited behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import aiohttp

CONNECTIONS = 64
GIVE_UP_S = 30.0
"""A request without an answer for so long has failed."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`paths` are requested in turn. `conditional`: with the `ETag` of the answer before as
    `If-None-Match`."""

    name: str
    paths: tuple[str, ...]
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Requests:
    """`rate`: a second, in equal shares of the kinds."""

    url: str
    token: str
    kinds: tuple[Kind, ...]
    rate: float
    seconds: float


@dataclass(slots=True)
class Answers:
    """Of one kind. `seconds`: from when each was due to the end of its answer. `size`: bytes of all
    bodies. `codes`: status -> how many; 0: no answer."""

    seconds: list[float] = field(default_factory=list)
    size: int = 0
    codes: Counter[int] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        return sum(count for code, count in self.codes.items() if code not in (200, 304))


def client(pipe: Connection) -> None:
    """Answers each `Requests` with the `Answers` by kind."""
    while True:
        try:
            requests = pipe.recv()
        except EOFError:
            return
        pipe.send(asyncio.run(answers(requests)))


async def answers(requests: Requests) -> dict[str, Answers]:
    found = {kind.name: Answers() for kind in requests.kinds}
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    timeout = aiohttp.ClientTimeout(total=GIVE_UP_S)
    headers = {"Authorization": f"Bearer {requests.token}"}
    async with aiohttp.ClientSession(
        requests.url, connector=connector, timeout=timeout, headers=headers
    ) as session:
        shares = [_Share(session, kind, found[kind.name]) for kind in requests.kinds]
        await _in_turns(shares, requests)
    return found


async def _in_turns(shares: Sequence[_Share], requests: Requests) -> None:
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(round(requests.rate * requests.seconds)):
            due = began + number / requests.rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            turn, share = divmod(number, len(shares))
            tasks.create_task(shares[share].request(turn, due))


@dataclass(slots=True)
class _Share:
    """The requests of one kind."""

    session: aiohttp.ClientSession
    kind: Kind
    answers: Answers
    etag: str = ""

    async def request(self, turn: int, due: float) -> None:
        path = self.kind.paths[turn % len(self.kind.paths)]
        headers = {"If-None-Match": self.etag} if self.kind.conditional and self.etag else {}
        try:
            async with self.session.get(path, headers=headers) as answer:
                body = await answer.read()
                self.answers.size += len(body)
                self.etag = answer.headers.get("ETag", "")
                code = answer.status
        except (aiohttp.ClientError, TimeoutError):
            code = 0
        self.answers.codes[code] += 1
        self.answers.seconds.append(time.perf_counter() - due)
