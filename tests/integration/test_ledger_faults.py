"""The connection breaks while rounds are committed.

A proxy between us and the server cuts the line either before the statement that commits reaches the
server or before its answer reaches us. From outside the two look the same, and in both every round
must be in the ledger exactly once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.backends import Commits
from tests.counter import Writer, withdrawn
from tests.patience import PATIENCE_S

from wharfinger.events.streams import BINDINGS, INTAKE
from wharfinger.runtime.ledger import Ledger, Submission, Transient, audit_verify

pytestmark = pytest.mark.integration

Cut = Literal["before", "after"]

KILLS = 30


@dataclass
class Proxy:
    """Passes bytes on. `cuts`: what to do with the next commits, first one first."""

    url: str
    cuts: list[Cut] = field(default_factory=list)
    made: int = 0
    cutting: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def proxy_to(database_url: str) -> AsyncIterator[Proxy]:
    parts = urlsplit(database_url)
    directory = parse_qs(parts.query).get("host", [""])[0]
    tasks: set[asyncio.Task[None]] = set()

    async def upstream() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if directory:
            return await asyncio.open_unix_connection(f"{directory}/.s.PGSQL.{parts.port or 5432}")
        return await asyncio.open_connection(parts.hostname, parts.port or 5432)

    async def answers(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, muted: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if muted.is_set():
                return
            writer.write(data)
            await writer.drain()
        writer.close()  # the server has hung up, so we do

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await upstream()
        muted, commits = asyncio.Event(), Commits()
        back = asyncio.create_task(answers(server_reader, writer, muted))
        try:
            while data := await reader.read(65536):
                cut = proxy.cuts.pop(0) if commits.next(data) and proxy.cuts else None
                if cut is not None:
                    proxy.made += 1
                    proxy.cutting.set()
                    muted.set()
                if cut == "before":
                    return
                server_writer.write(data)
                await server_writer.drain()
                if cut == "after":
                    # the server has answered: the transaction is committed, and we never say so
                    await back
                    return
        except ConnectionError:
            pass
        finally:
            back.cancel()
            writer.transport.abort()
            server_writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    user = parts.netloc.rpartition("@")[0]
    proxy = Proxy(f"{parts.scheme}://{user}@127.0.0.1:{port}{parts.path}")
    try:
        yield proxy
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()


@pytest.mark.parametrize(
    "cuts", [["before"], ["after"], ["before", "after"], ["after", "before", "before"]]
)
async def test_a_round_whose_commit_was_cut_off_is_there_once(
    database_url: str, cuts: list[Cut]
) -> None:
    async with proxy_to(database_url) as proxy:
        ledger = await Ledger.open(proxy.url, "tests-cut")
        try:
            await ledger.ensure_streams(["fleet/0"])
            writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
            for number in range(3):
                proxy.cuts.extend(cuts)
                result = await ledger.commit([writer.step([withdrawn(number)])], writer.events)
                assert result.committed == {"fleet/0"}
                proxy.cuts.clear()
            assert proxy.made >= 3  # cut indeed
            assert await ledger.heads("fleet/") == [writer.head]
            assert (await audit_verify(ledger)).ok
        finally:
            await ledger.close()


async def test_a_cut_commit_of_a_writer_who_was_overtaken_is_fenced(database_url: str) -> None:
    async with proxy_to(database_url) as proxy:
        ledger, other = (
            await Ledger.open(proxy.url, "tests-cut"),
            await Ledger.open(database_url, "tests-other"),
        )
        try:
            await ledger.ensure_streams(["fleet/0"])
            writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
            await ledger.commit([writer.step([withdrawn(0)])], writer.events)
            proxy.cuts.append("before")
            committing = asyncio.create_task(
                ledger.commit([writer.step([withdrawn(1)])], writer.events)
            )
            await proxy.cutting.wait()
            await other.raise_epoch(["fleet/0"])
            result = await committing
            # Either our second attempt came before the new owner, or it was fenced; never anything
            # else.
            head = (await other.heads("fleet/"))[0]
            assert (head.round, head.epoch) == (2 if result.committed else 1, 2)
            assert (await audit_verify(other)).ok
        finally:
            await ledger.close()
            await other.close()


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_accepting_tells_new_from_known_even_when_cut_off(
    database_url: str, cut: Cut
) -> None:
    async with proxy_to(database_url) as proxy:
        ledger = await Ledger.open(proxy.url, "tests-cut")
        try:
            events = [withdrawn(n) for n in range(3)]
            proxy.cuts.append(cut)
            result = await ledger.accept(
                [Submission(e, BINDINGS.name, e.subject, e.subject) for e in events]
            )
            assert result.new == tuple(e.id for e in events)
            assert result.known == ()
            assert proxy.made == 1
            assert (await ledger.heads(INTAKE))[0].seq == 3
        finally:
            await ledger.close()


async def test_nothing_is_lost_or_doubled_while_backends_are_killed(database_url: str) -> None:
    """Three writers and the intake at work, while every few milliseconds one of their backends is
    terminated."""
    ledger, killer = (
        await Ledger.open(database_url, "tests-victim"),
        await Ledger.open(database_url, "tests-killer"),
    )
    chance = random.Random(20261121)
    done = asyncio.Event()
    kills = accepted = 0

    async def again_until_done(writer: Writer, first: int) -> None:
        number = 0
        while kills < KILLS or number <= 10:
            # on a busy machine the kills come quicker than the rounds
            number += 1
            round_ = writer.step([withdrawn(first + number * 2), withdrawn(first + number * 2 + 1)])
            while True:
                try:
                    assert (await ledger.commit([round_], writer.events)).committed == {
                        writer.head.stream
                    }
                    break
                except Transient as error:
                    await asyncio.sleep(error.retry_after_s)

    async def accept_until_done() -> None:
        nonlocal accepted
        while kills < KILLS:
            accepted += 1
            number = accepted
            event = withdrawn(1_000_000 + number)
            while True:
                try:
                    await ledger.accept(
                        [Submission(event, BINDINGS.name, event.subject, event.subject)]
                    )
                    break
                except Transient as error:
                    await asyncio.sleep(error.retry_after_s)

    async def kill() -> None:
        nonlocal kills
        async with killer.database.reading() as raw:
            while not done.is_set():
                found = await raw.fetch(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = current_database() and application_name = 'tests-victim' "
                    "and (state <> 'idle' or random() < 0.2) order by random() limit 1"
                )
                kills += len(found)
                await asyncio.sleep(0.02 + chance.random() * 0.06)

    writers = []
    for number in range(3):
        stream = f"fleet/{number}"
        await ledger.ensure_streams([stream])
        writers.append(Writer((await ledger.raise_epoch([stream]))[stream]))
    killing = asyncio.create_task(kill())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(
                accept_until_done(),
                *(again_until_done(w, n * 100_000) for n, w in enumerate(writers)),
            )
    finally:
        done.set()
        await killing
        heads = {h.stream: h for h in await killer.heads()}
        verified = await audit_verify(killer)
        await ledger.close()
        await killer.close()
    assert min(w.head.round for w in writers) > 10
    assert verified.first_bad is None
    assert [heads[w.head.stream] for w in writers] == [w.head for w in writers]
    assert heads[INTAKE].seq == accepted
