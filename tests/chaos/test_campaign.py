"""The short form of `make chaos`."""

from __future__ import annotations

from random import Random

import pytest
from benchmarks.plane import a_plane
from tests.chaos.campaign import campaign, faults_of

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.long]


async def test_under_load_and_faults_every_event_has_an_effect_or_a_reason() -> None:
    faults = faults_of(Random(3), kills=1, backend_kills=1, freezes=1, freeze_s=5.0, poison=1)
    with a_plane() as plane:
        found = await campaign(plane, 3, faults, 600)
    assert found.broken == []
    assert found.figures["accepted events"] == 600 + len(faults)
    assert found.figures["decided"] > 200
