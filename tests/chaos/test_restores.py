"""The short form of R11: the broker is lost and the database put back (`make chaos`). Topics are
deleted on a real Kafka only: the embedded broker mixes old records with new ones."""

from __future__ import annotations

from random import Random

import pytest
from benchmarks.plane import a_plane
from tests.chaos.campaign import campaign, faults_of

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.long]


async def test_what_was_lost_is_rebuilt() -> None:
    faults = faults_of(Random(8), backend_kills=1, put_backs=2)
    with a_plane() as plane:
        found = await campaign(plane, 8, faults, 300)
    assert found.broken == []
    assert found.figures["records of other streams"] > 0, "of the history that was lost"
