"""A plane that has nothing to do asks its broker next to nothing. It is counted, not timed: a busy
machine makes counts smaller."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from benchmarks.idle import place
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.patience import PATIENCE_S
from tests.planes import settled

pytestmark = pytest.mark.integration

READERS = 10
"""Five services read topics, each with two consumers: of its partitions, and of what every process
must know."""
WATCHED_S = 10
FETCHES_A_SECOND_MAX = 3
"""Of one reader. At rest it asks once in two seconds, in the first seconds of rest more often;
without pauses it asks eighty times, and ten times where it waits in the broker for 100 ms."""


@pytest.fixture(scope="module")
def plane() -> Iterator[PlaneUnderTest]:
    with a_plane() as plane:
        plane.up()
        yield plane


def fetches(plane: PlaneUnderTest) -> float:
    """Requests for records so far, of all services."""
    found: list[str] = []
    for port in plane.plane()["http_ports"].values():
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
            found += re.findall(
                r"^wharfinger_fetches_total\{.*\} (\S+)$", answer.read().decode(), re.MULTILINE
            )
    return sum(map(float, found))


@pytest.mark.long
def test_an_idle_plane_seldom_asks_for_records(plane: PlaneUnderTest) -> None:
    asyncio.run(place(plane))
    settled(plane, quiet_s=5.0)
    before = fetches(plane)
    time.sleep(WATCHED_S)
    asked = fetches(plane) - before
    assert READERS < asked < READERS * WATCHED_S * FETCHES_A_SECOND_MAX
