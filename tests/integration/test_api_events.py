"""Decisions over HTTP by position: nothing is missing and nothing comes twice, in every form, over
cuts of the connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.api import in_a_thread, serving
from tests.backends import fresh_database, in_a_loop
from tests.feeds import numbered
from tests.integration.test_api import BANK, SHOP, WEB, lived
from tests.patience import PATIENCE_S
from tests.told_plane import a_binding

pytestmark = pytest.mark.integration

BATCH = "application/cloudevents-batch+json"


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
def served(database: str) -> Iterator[tuple[str, dict[str, str]]]:
    with in_a_thread(database) as (server, secret):
        yield server, {"Authorization": f"Bearer {secret}"}


def events_of(
    server: str, headers: dict[str, str], parameters: str, last: int
) -> list[dict[str, str]]:
    """Frames of the stream, until one has the id `last`; closed there without a word."""
    frames: list[dict[str, str]] = []
    with httpx.stream(
        "GET",
        f"{server}/v1/events?{parameters}",
        headers={**headers, "Accept": "text/event-stream"},
        timeout=PATIENCE_S,
    ) as answer:
        assert answer.status_code == 200
        frame: dict[str, str] = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(":")
                frame[name] = value.strip()
                continue
            frames.append(frame)
            if int(frame.get("id", -1)) >= last:
                break
            frame = {}
    return frames


def whole_feed(server: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    answer = httpx.get(f"{server}/v1/events?after=0&facts=true&limit=5000", headers=headers)
    assert answer.headers["content-type"] == BATCH
    found: list[dict[str, Any]] = answer.json()
    assert int(answer.headers["wharfinger-position"]) == len(found)
    return found


def test_every_form_has_every_position_once(served: tuple[str, dict[str, str]]) -> None:
    server, headers = served
    feed = whole_feed(server, headers)
    positions = [int(event["position"]) for event in feed]
    assert positions == list(range(1, len(feed) + 1))
    frames = events_of(server, headers, "after=0&facts=true", len(feed))
    opened, *rest = frames
    assert opened["event"] == "opened"
    assert "id" not in opened
    assert json.loads(opened["data"])["head"] == len(feed)
    assert [int(frame["id"]) for frame in rest] == positions
    assert [json.loads(frame["data"]) for frame in rest] == feed
    lines = httpx.get(
        f"{server}/v1/events?after=0&facts=true&limit={len(feed)}",
        headers={**headers, "Accept": "application/x-ndjson"},
    )
    assert [json.loads(line) for line in lines.text.splitlines()] == feed


def test_a_reader_that_is_cut_anywhere_resumes_without_gap_or_repetition(
    served: tuple[str, dict[str, str]],
) -> None:
    server, headers = served
    feed = whole_feed(server, headers)
    seen: list[int] = []
    while len(seen) < len(feed):
        last = seen[-1] if seen else 0
        resumed = {**headers, "Last-Event-ID": str(last)}
        frames = events_of(server, resumed, "after=earliest&facts=true", last + 3)
        seen += [int(frame["id"]) for frame in frames if "id" in frame]
        if last + 3 > len(feed):
            break
        if len(feed) - seen[-1] < 3:
            frames = (
                events_of(server, headers, f"after={seen[-1]}&facts=true", len(feed))
                if (seen[-1] < len(feed))
                else []
            )
            seen += [int(frame["id"]) for frame in frames if "id" in frame]
    assert seen == list(range(1, len(feed) + 1))


def test_a_filter_shows_what_it_says_and_moves_the_cursor(
    served: tuple[str, dict[str, str]],
) -> None:
    server, headers = served
    feed = whole_feed(server, headers)
    answer = httpx.get(f"{server}/v1/events?after=0&binding={WEB}&limit=100", headers=headers)
    assert [event["id"] for event in answer.json()] == [
        event["id"]
        for event in feed
        if event["subject"] == WEB and event["source"] != "/wharfinger/command-line"
    ]
    assert answer.json()
    assert int(answer.headers["wharfinger-position"]) == len(feed)


@pytest.mark.parametrize("after", ["99999", "soon", "-1"])
def test_a_position_that_is_not_there_is_refused(
    served: tuple[str, dict[str, str]], after: str
) -> None:
    server, headers = served
    answer = httpx.get(f"{server}/v1/events?after={after}", headers=headers)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_tenant_reads_only_its_namespaces(database: str) -> None:
    async with serving(database) as api:
        tenant = await api.as_("viewer", namespaces=["shop"])
        answer = await tenant.get("/v1/events?after=0&facts=true&limit=5000")
        assert answer.json()
        assert BANK.policy.namespace not in answer.text
        asked = await tenant.get("/v1/events?after=0&namespace=bank&limit=5000")
        assert asked.json() == []


async def test_a_position_is_a_place_in_history(
    database_server: str, migrated_database: str
) -> None:
    with fresh_database(database_server, template=migrated_database) as url:
        plane = await lived(url)
        await numbered(plane.ledger)
        async with serving(url) as api:
            viewer = await api.as_("viewer")
            paths = ["/v1/bindings", "/v1/clusters", f"/v1/bindings/{WEB}/history"]
            then = {path: await viewer.get(path) for path in paths}
            position = then["/v1/bindings"].headers["wharfinger-position"]
            assert int(position) > 0
            await plane.tell(a_binding("web", 1, SHOP))
            await numbered(plane.ledger)
            for path, answer in then.items():
                assert (await viewer.get(path)).content != answer.content or "clusters" in path
                again = await viewer.get(f"{path}?at=position:{position}")
                assert again.content == answer.content
                assert again.headers["wharfinger-position"] == position
            beyond = await viewer.get("/v1/bindings?at=position:99999")
            assert beyond.status_code == 400
        await plane.ledger.close()
