"""The short form of the hostile records of R6 (`make poison`)."""

from __future__ import annotations

import pytest
from benchmarks.plane import a_plane
from tests.chaos.poisoning import poisoned

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.long]


async def test_hostile_records_on_every_topic_are_counted_and_end_no_process() -> None:
    with a_plane() as plane:
        assert await poisoned(plane, 6, 600, 200_000_000, turns=0, shares=3) == []
