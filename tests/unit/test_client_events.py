"""What the client makes of records: filters, events in parts, waits."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wharfinger_client
from wharfinger.events.parts import divided
from wharfinger_client import AsyncClient, Event, EventFilter, Kafka, Retries, Sse
from wharfinger_client.errors import ConsumerError


def members(position: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": f"id-{position}",
        "source": "/wharfinger/fleet/0",
        "type": "io.wharfinger.schedule.decided.v1",
        "subject": "shop/web",
        "time": "2026-11-21T05:00:00.000000Z",
        "sequence": "3",
        "position": str(position),
        "data": {},
        **more,
    }


class Record(NamedTuple):
    offset: int
    value: bytes | None


def record(offset: int, event: Mapping[str, Any]) -> Record:
    return Record(offset, json.dumps(event).encode())


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (EventFilter(), True),
        (EventFilter(types=["schedule.decided"]), True),
        (EventFilter(types=["io.wharfinger.schedule.decided.v1"]), True),
        (EventFilter(types=["schedule.refused"]), False),
        (EventFilter(namespaces=["shop"], bindings=["shop/web"]), True),
        (EventFilter(namespaces=["sho"]), False),
        (EventFilter(streams=["fleet/1"]), False),
    ],
)
def test_records_are_filtered_as_the_server_does(wanted: EventFilter, taken: bool) -> None:
    assert wanted.takes(Event.of(members())) is taken


def test_a_filter_that_records_cannot_answer_is_an_error() -> None:
    with pytest.raises(ValueError, match="Kafka has no others"):
        EventFilter(clusters=["oslo"]).takes(Event.of(members()))


def test_the_digest_of_a_filter_does_not_depend_on_order() -> None:
    one, other = EventFilter(types=["a", "b"]), EventFilter(types=("b", "a"))
    assert one.digest() == other.digest()
    assert one.digest() != EventFilter(types=["a"]).digest()


@given(st.integers(900, 3000), st.integers(0, 5), st.integers(0, 20))
def test_an_event_in_parts_is_joined_wherever_its_writer_stopped(
    limit: int, stopped: int, restart: int
) -> None:
    """The writer stops after some parts and sends all again; other records stand between. Until
    the last part has come the offset stays before the first."""
    large = members(9, data={"text": "x" * 5000})
    parts = divided(json.dumps(large).encode(), limit)
    stopped = min(stopped, len(parts) - 1)
    sent = [*parts[:stopped], *parts]
    reader = Kafka("nowhere:1")
    found: list[Event] = []
    for offset, value in enumerate(sent):
        event = reader._whole(0, Record(offset, value))
        if event is not None:
            found.append(event)
        if not found:
            first = stopped if offset >= stopped else 0
            assert reader._read_through(0, offset) < max(first, 1)
        small = reader._whole(1, record(offset, members(restart)))
        assert small is not None
        assert reader._read_through(1, offset) == offset
    assert [(e.position, e.data) for e in found] == [(9, large["data"])]
    assert reader._read_through(0, len(sent)) == len(sent)


def test_parts_of_a_writer_that_never_came_back_are_given_up() -> None:
    parts = divided(json.dumps(members(9, data={"text": "x" * 5000})).encode(), 1000)
    reader = Kafka("nowhere:1")
    reader._whole(0, Record(10, parts[0]))
    assert reader._read_through(0, 500) == 9
    assert reader._read_through(0, 1500) == 1500


@pytest.mark.parametrize("value", [b"nonsense", b"[]", b"{}", b'{"position": "x"}'])
def test_a_record_that_is_no_event_is_one_line(value: bytes) -> None:
    with pytest.raises(ConsumerError, match=r"wharfinger\.decisions: partition 2, offset 5: "):
        Kafka("nowhere:1")._whole(2, Record(5, value))


def test_waits_grow_and_the_server_may_ask_for_more() -> None:
    retries = Retries(first_s=0.1, longest_s=1.0)
    assert 0.05 <= retries.wait_s(1) <= 0.1
    assert 0.5 <= retries.wait_s(9) <= 1.0
    assert retries.wait_s(1, "30") == 30.0
    assert retries.wait_s(1, "tomorrow") <= 0.1


def test_the_client_imports_nothing_of_the_library() -> None:
    allowed = {*sys.stdlib_module_names, "wharfinger_client", "httpx", "asyncpg", "aiokafka"}
    home = Path(wharfinger_client.__file__).parent
    imported = {
        name.partition(".")[0]
        for path in home.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - allowed == set()


class Streams(AsyncClient):
    """Each stream has one event, and then fails in a way that no server should."""

    @asynccontextmanager
    async def frames(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[Mapping[str, str]]]:
        async def one() -> AsyncIterator[Mapping[str, str]]:
            yield {"id": "7", "data": json.dumps(members(7))}
            raise UnicodeError("no text")

        yield one()


async def test_what_a_stream_cannot_go_on_for_is_raised_each_time_and_not_waited_for() -> None:
    async with Streams("http://127.0.0.1:1") as client:
        source = Sse(client)
        for _ in range(2):  # the second time over another connection
            assert (await source.next(1)).through == 7
            with pytest.raises(UnicodeError):
                await source.next(1)
