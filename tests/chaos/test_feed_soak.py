"""The short form of `make feed-soak`."""

from __future__ import annotations

import pytest
from benchmarks.plane import a_plane
from infra.soak.feed import Wanted, soak
from tests.subscribers import ALL_WAYS

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.long]

VICTIMS = ("publisher", "api", "broker", "subscribers")


async def test_subscribers_of_every_way_have_every_decision_once_while_processes_are_killed() -> (
    None
):
    wanted = Wanted(
        decisions=500,
        subscribers=len(ALL_WAYS),
        kills=1,
        processes=2,
        seed=4,
        life_s=15.0,
        cut=0.1,
        bindings=40,
        victims=VICTIMS,
    )
    with a_plane() as plane:
        found = await soak(plane, wanted)
    assert found.broken == []
    assert found.decisions >= 500
    assert found.kills == dict.fromkeys(VICTIMS, 1)
    assert found.ways == dict.fromkeys(ALL_WAYS, 1)
