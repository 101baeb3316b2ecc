"""The short form of R11: topics deleted, the broker lost, the database put back (`make chaos`)."""

from __future__ import annotations

from random import Random

import pytest
from benchmarks.plane import a_plane
from tests.chaos.campaign import campaign, faults_of

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.long]


async def test_what_was_deleted_lost_or_put_back_is_rebuilt() -> None:
    faults = faults_of(Random(8), backend_kills=1, put_backs=1, deletions=3)
    with a_plane() as plane:
        found = await campaign(plane, 8, faults, 300)
    assert found.broken == []
    assert found.figures["records of other streams"] > 0, "of the history that was lost"
