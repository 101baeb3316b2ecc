"""The client for other programs: every operation of the API, and a consumer that has each event
once in its own database, wherever it is killed."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.api import in_a_thread, serving
from tests.backends import fresh_database, in_a_loop
from tests.feeds import numbered
from tests.integration.test_api import BANK, SHOP, WEB, lived
from tests.patience import eventually
from tests.told_plane import a_binding

from wharfinger_api.app import document
from wharfinger_client import (
    AsyncClient,
    Client,
    Consumer,
    ConsumerError,
    EventFilter,
    NotFoundError,
    PostgresCursors,
    Pull,
    RewindError,
    SqliteCursors,
    Sse,
    UnreachableError,
    api,
)
from wharfinger_client.client import NO_RETRIES, Retries
from wharfinger_client.errors import (
    CursorTakenError,
    FilterChangedError,
    ForbiddenError,
    InvalidError,
    UnauthenticatedError,
)
from wharfinger_client.sources import Source

pytestmark = pytest.mark.integration

HEADERS = {"authorization", "accept", "last-event-id"}


@pytest.fixture(scope="module")
def database(database_server: str, migrated_database: str) -> Iterator[str]:
    async def filled(url: str) -> None:
        plane = await lived(url)
        await numbered(plane.ledger)
        await plane.ledger.close()

    with fresh_database(database_server, template=migrated_database) as url:
        in_a_loop(lambda: filled(url))
        yield url


@pytest.fixture(scope="module")
def served(database: str) -> Iterator[tuple[str, str]]:
    with in_a_thread(database) as (server, secret):
        yield server, secret


@pytest.fixture(scope="module")
def feed(served: tuple[str, str]) -> list[tuple[int, str]]:
    """(position, id) of all decisions and facts, as the API gives them in one batch."""
    with Client(*served) as client:
        found = client(api.events(after="0", facts=True, limit=5000))
    assert len(found.events) > 20
    return [(event.position, event.id) for event in found.events]


# --- operations


async def test_every_operation_of_the_document_has_a_function(database: str) -> None:
    """With every parameter of the query, by its name."""
    async with serving(database) as under_test:
        operations = {
            (method.upper(), path): {
                p["name"]: p["in"] for p in operation.get("parameters", ()) if p["in"] != "header"
            }
            for path, methods in document(under_test.http._transport.app)["paths"].items()  # type: ignore[attr-defined]
            for method, operation in methods.items()
        }
    assert set(operations) == set(api.OPERATIONS)
    for key, parameters in operations.items():
        given = set(inspect.signature(api.OPERATIONS[key]).parameters)
        assert set(parameters) <= given, key


def test_calls_are_answered_and_problems_are_exceptions(served: tuple[str, str]) -> None:
    server, secret = served
    with Client(server, secret) as client:
        assert client(api.healthz()) == {"alive": True}
        assert client(api.readyz())["ready"] is True
        assert "wharfinger_" in client(api.metrics())
        assert client(api.openapi())["openapi"].startswith("3.1")
        assert client(api.whoami())["roles"] == ["viewer"]
        assert client(api.list_tokens())["items"] == []
        page = client(api.bindings(namespace=["shop"], state=["scheduled"], limit=1))
        assert page["items"][0]["name"] == WEB
        assert client(api.clusters(label=["!none"]))["total"] == 2
        assert client(api.nodes(cluster=["oslo"], fields=["name"]))["total"] == 2
        assert client(api.policies(policy=["by-room"]))["total"] == 2
        assert any(head["stream"] == "fleet/0" for head in client(api.streams())["items"])
        name = ("shop", "web-deployment")
        assert client(api.binding(*name))["name"] == WEB
        history = client(api.binding_history(*name, limit=1))
        assert history["total"] >= 1
        assert client(api.binding_lineage(*name))["subject"] == WEB
        assert client(api.binding_explain(*name, every=True))["binding"] == WEB
        one = client(api.decisions(limit=1))["items"][0]
        assert client(api.decision(one["id"])) == one
        made = client(api.new_token("mine", ["viewer"], namespaces=["shop"], lifetime_s=60))
        client(api.delete_token(made["id"]))
        with pytest.raises(NotFoundError, match="no binding is named shop/none"):
            client(api.binding("shop", "none"))
        with pytest.raises(InvalidError, match="state: expected waiting"):
            client(api.bindings(state=["lost"]))
        with pytest.raises(UnauthenticatedError):
            client(api.login("used-before"))
    with Client(server, made["secret"]) as revoked, pytest.raises(UnauthenticatedError):
        revoked(api.whoami())


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: tug, namespace: shop, annotations: {wharfinger.io/placement: any}}
spec: {containers: [{name: tug, image: tug, resources: {requests: {cpu: 10m}}}]}
"""


async def test_what_is_changed_is_changed_once(
    database_server: str, migrated_database: str
) -> None:
    """The same call sent again, as after a lost answer, has the first answer; a new one finds
    nothing to do."""
    with fresh_database(database_server, template=migrated_database) as url:
        await (await lived(url)).ledger.close()
        with in_a_thread(url, "operator") as served:
            async with AsyncClient(*served) as client:
                tried = await client(api.apply({"tug.yaml": POD}, dry_run=True))
                assert (tried["dry_run"], tried["accepted"]) == (True, 1)  # would be
                call = api.apply({"tug.yaml": POD}, reason="a tug")
                first = await client(call)
                assert [o["result"] for o in first["objects"]] == ["created"]
                assert await client(call) == first
                again = await client(api.apply({"tug.yaml": POD}))
                assert (again["accepted"], again["unchanged"]) == (0, 1)
                gone = await client(api.delete({"tug.yaml": POD}))
                assert [o["result"] for o in gone["objects"]] == ["deleted"]
                with pytest.raises(InvalidError):
                    await client(api.apply({"wrong.yaml": "kind: ["}))
                with pytest.raises(ForbiddenError):
                    await client(api.post_facts([{}]))


async def test_calls_may_be_awaited(served: tuple[str, str]) -> None:
    async with AsyncClient(*served) as client:
        assert (await client(api.binding("shop", "web-deployment")))["name"] == WEB


def test_no_answer_is_one_error_after_the_tries() -> None:
    with (
        Client("http://127.0.0.1:9", retries=Retries(2, 0.01)) as client,
        pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"),
    ):
        client(api.healthz())
    with pytest.raises(ValueError, match="in clear"):
        Client("http://example.org", "whf_x", retries=NO_RETRIES)


# --- the consumer


class KilledError(Exception):
    """The process ended here."""


SOURCES: tuple[Callable[[AsyncClient], Source], ...] = (Sse, lambda client: Pull(client, 0.2))


@asynccontextmanager
async def reading(
    served: tuple[str, str], cursors: Any, number: int = 0, **options: Any
) -> AsyncIterator[Consumer[Any]]:
    async with AsyncClient(*served) as client:
        source = SOURCES[number % len(SOURCES)](client)
        options = {"batch_max": 4, "wanted": EventFilter(facts=True), **options}
        consumer = Consumer(cursors, source, "tests", **options)
        try:
            yield consumer
        finally:
            await source.close()


class Killing(SqliteCursors):
    """Ends at the statement with the number `at`: before it, or after it where `at` is odd. A
    commit is one of them."""

    def __init__(self, path: Path, at: int) -> None:
        super().__init__(str(path))
        self.connection.execute("create table if not exists own (position integer, id text)")
        self._steps = itertools.count()
        self._at = at

    def step(self) -> None:
        if next(self._steps) == self._at:
            raise KilledError

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[sqlite3.Connection]:
        self.step()
        self.connection.execute("begin immediate")
        self.step()
        yield self.connection
        self.step()
        self.connection.commit()
        self.step()


async def _until_killed(
    served: tuple[str, str], path: Path, at: int, last: int, number: int
) -> bool:
    """Whether all was read before it was killed."""
    cursors = Killing(path, at)
    try:
        async with reading(served, cursors, number, lease_s=0.05) as consumer:
            while (consumer.position or 0) < last:
                batch = await anext(consumer)
                async with batch.transaction() as tx:
                    for event in batch.events:
                        cursors.step()
                        tx.execute("insert into own values (?, ?)", (event.position, event.id))
                        cursors.step()
        return True
    except KilledError:
        return False
    finally:
        cursors.close()  # what was not committed is gone, as when a process ends


async def test_killed_at_any_statement_nothing_is_missing_and_nothing_twice(
    served: tuple[str, str], feed: list[tuple[int, str]], tmp_path: Path
) -> None:
    """One database, one consumer after the other, each killed some statements later than the one
    before, over either way."""
    path = tmp_path / "own.db"
    last = feed[-1][0]
    kills = 0
    for number in itertools.count():
        if await _until_killed(served, path, 5 + number, last, number):
            break
        kills += 1
    with sqlite3.connect(path) as own:
        found = own.execute("select position, id from own order by rowid").fetchall()
    assert found == feed
    assert kills > 30


async def test_a_batch_that_failed_comes_again(
    served: tuple[str, str], feed: list[tuple[int, str]], tmp_path: Path
) -> None:
    cursors = SqliteCursors(str(tmp_path / "own.db"))
    async with reading(served, cursors) as consumer:
        first = await anext(consumer)
        again = await anext(consumer)  # its transaction was never begun
        assert again.events == first.events
        with pytest.raises(ZeroDivisionError):
            async with first.transaction():
                raise ZeroDivisionError
        third = await anext(consumer)
        assert third.events[0] == first.events[0]
        async with third.transaction():
            pass
        async with pytest_raises(CursorTakenError), first.transaction():
            pass
    cursors.close()


@asynccontextmanager
async def pytest_raises(kind: type[Exception]) -> AsyncIterator[None]:
    with pytest.raises(kind):
        yield


async def test_one_copy_works_and_the_other_takes_over(
    served: tuple[str, str], feed: list[tuple[int, str]], database_server: str
) -> None:
    """In PostgreSQL. The first copy stands still for longer than its lease: what it does later is
    not kept."""
    create_pool: Any = asyncpg.create_pool
    with fresh_database(database_server) as url:
        async with create_pool(url.replace("+asyncpg", ""), min_size=1, max_size=4) as pool:
            await pool.execute("create table own (position bigint primary key, id text)")
            cursors = PostgresCursors(pool)
            async with (
                reading(served, cursors, 0, lease_s=0.3) as one,
                reading(served, cursors, 1, lease_s=0.3) as two,
            ):
                stuck = await anext(one)
                last = feed[-1][0]
                while (two.position or 0) < last:
                    batch = await anext(two)
                    async with batch.transaction() as tx:
                        rows = [(event.position, event.id) for event in batch.events]
                        await tx.executemany("insert into own values ($1, $2)", rows)
                with pytest.raises(CursorTakenError):
                    async with stuck.transaction() as tx:
                        await tx.execute("insert into own values (-1, 'late')")
            found = await pool.fetch("select position, id from own order by position")
    assert [tuple(row) for row in found] == feed


async def test_a_filter_is_kept_with_the_cursor(served: tuple[str, str], tmp_path: Path) -> None:
    cursors = SqliteCursors(str(tmp_path / "own.db"))
    shop = EventFilter(namespaces=["shop"], types=["schedule.decided"])
    async with reading(served, cursors, wanted=shop) as consumer:
        batch = await anext(consumer)
        assert {event.subject.partition("/")[0] for event in batch.events} == {"shop"}
        assert {event.short_type for event in batch.events} == {"schedule.decided"}
        async with batch.transaction():
            pass
        await consumer.aclose()
    async with reading(served, cursors) as other:
        with pytest.raises(FilterChangedError, match="accept_new_filter"):
            await anext(other)
    async with reading(served, cursors, accept_new_filter=True) as other:
        assert (await anext(other)).events
        await other.aclose()
    cursors.close()


async def test_a_plane_that_was_set_back_is_noticed(
    served: tuple[str, str], feed: list[tuple[int, str]], tmp_path: Path
) -> None:
    cursors = SqliteCursors(str(tmp_path / "own.db"))
    async with reading(served, cursors) as consumer:
        batch = await anext(consumer)
        async with batch.transaction() as tx:
            pass
        await consumer.aclose()
    tx.execute("update wharfinger_cursor set last_id = 'another'")
    async with reading(served, cursors) as consumer:
        with pytest.raises(RewindError, match="set back"):
            await anext(consumer)
    tx.execute("update wharfinger_cursor set last_id = '', position = 1000000000, owned_until = 0")
    for number in range(2):
        async with reading(served, cursors, number) as consumer:
            with pytest.raises(RewindError, match="behind this cursor"):
                await anext(consumer)
        tx.execute("update wharfinger_cursor set owned_until = 0")
    assert issubclass(RewindError, ConsumerError)
    cursors.close()


async def test_what_is_decided_later_is_seen(
    database_server: str, migrated_database: str, tmp_path: Path
) -> None:
    """From `latest`, over a server that is gone for a while."""
    with fresh_database(database_server, template=migrated_database) as url:
        plane = await lived(url)
        await numbered(plane.ledger)
        cursors = SqliteCursors(str(tmp_path / "own.db"))
        with in_a_thread(url) as served:
            async with reading(served, cursors, start="latest", wanted=EventFilter()) as consumer:
                waiting = asyncio.ensure_future(anext(consumer))
                await eventually(lambda: consumer.position is not None)
                await plane.tell(a_binding("web", 1, SHOP), a_binding("ledger", 5, BANK))
                await numbered(plane.ledger)
                batch = await waiting
                assert {event.subject for event in batch.events} <= {WEB, "bank/ledger-deployment"}
                async with batch.transaction():
                    pass
        cursors.close()
        await plane.ledger.close()
