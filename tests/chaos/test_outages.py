"""The short forms of the outages of R5 and of the freezes of R4 (`make chaos`)."""

from __future__ import annotations

from random import Random

import pytest
from benchmarks.plane import a_plane
from tests.chaos.campaign import campaign, faults_of, outages_of
from tests.chaos.outages import NoDiskError

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.long]


@pytest.mark.parametrize(
    "victims",
    [("database frozen", "database refused"), ("broker refused", "broker frozen")],
    ids=["database", "broker"],
)
async def test_services_outlast_a_backend_that_is_away(victims: tuple[str, ...]) -> None:
    with a_plane() as plane:
        found = await campaign(plane, 5, outages_of(victims, 8.0), 100, rate=20)
    assert found.broken == []
    assert found.figures["accepted events"] > 100


async def test_services_outlast_a_full_disk_of_the_database() -> None:
    try:
        with a_plane() as plane:
            found = await campaign(plane, 6, outages_of(["database full"], 15.0), 100, rate=100)
    except NoDiskError as error:
        pytest.skip(str(error))
    assert found.broken == []
    assert any("could not" in name for name in found.figures), found.figures


async def test_nothing_is_written_late_by_what_was_frozen() -> None:
    """Two copies of scheduler and publisher; those that work are frozen until the others have taken
    over."""
    faults = faults_of(Random(7), freezes=4, freeze_s=25.0, together=True)
    with a_plane() as plane:
        found = await campaign(plane, 7, faults, 200, copies=True)
    assert found.broken == []
    assert found.figures["publishers that were replaced"] == 2
