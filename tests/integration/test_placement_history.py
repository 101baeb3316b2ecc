"""Placements asked of a real ledger: what they select, what they selected, why, and as which
objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from tests.scenarios.placement_plane import (
    GLOBAL,
    MEMORY,
    a_managed,
    a_placement,
    bound,
    no_placement,
)
from tests.told_plane import ToldPlane

from wharfinger.domain.cluster import ManagedTaint
from wharfinger.events.accepted import accepted
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.decisions import PART_SIZE, PlacementDecided
from wharfinger.history.explain import explain
from wharfinger.history.export import export, replay_file
from wharfinger.history.lineage import lineage_of_binding
from wharfinger.history.object_kinds import DECISIONS, PLACEMENTS
from wharfinger.history.objects import ObjectFilter, rendered
from wharfinger.history.plan_making import make_plan
from wharfinger.history.plan_records import SelectionMove
from wharfinger.history.points import HistoryPoint
from wharfinger.history.redaction import RedactionError
from wharfinger.history.timeline import timeline
from wharfinger.runtime.health import HealthServer
from wharfinger.runtime.ledger import DecisionQuery, LedgerRow
from wharfinger.runtime.observability import Metrics
from wharfinger.runtime.topics import shard_for
from wharfinger.stages.fleet.selection_trace import SelectionsTrace
from wharfinger.stages.world import World
from wharfinger_publisher.pages import pages

pytestmark = pytest.mark.integration

SUBJECT = "placement/apps/demo"


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    """Three clusters; the placement takes the two largest, then another two."""
    told = await ToldPlane.opened(database_url)
    await told.tell(
        GLOBAL,
        bound("apps"),
        a_managed("bergen", 60),
        a_managed("genoa", 80),
        a_managed("oslo", 100),
    )
    await told.tell(a_placement(wanted=2, priorities=(MEMORY,), mode="Exact"))
    await told.tell(a_managed("izmir", 150))
    yield told
    await told.ledger.close()


async def rows(plane: ToldPlane) -> list[LedgerRow]:
    return [row async for row in plane.ledger.decisions(DecisionQuery("fleet/0", subject=SUBJECT))]


async def clusters(plane: ToldPlane, point: HistoryPoint | None = None) -> list[str]:
    decisions = await rendered(plane.ledger, DECISIONS, point=point)
    return [entry["clusterName"] for one in decisions for entry in one["status"]["decisions"]]


async def test_what_it_selects_and_what_it_selected(plane: ToldPlane) -> None:
    assert await clusters(plane) == ["izmir", "oslo"]
    before = (await rows(plane))[-1].round - 1
    assert await clusters(plane, HistoryPoint("then", "fleet/0", before)) == ["genoa", "oslo"]
    (placement,) = await rendered(plane.ledger, PLACEMENTS)
    assert placement["status"]["numberOfSelectedClusters"] == 2
    assert placement["metadata"]["annotations"]["wharfinger.io/generation"] == "2"


async def test_now_and_the_present_moment_show_the_same(plane: ToldPlane) -> None:
    for what in (DECISIONS, PLACEMENTS):
        assert await rendered(plane.ledger, what) == await rendered(
            plane.ledger, what, point=HistoryPoint("now")
        )


async def test_what_was_released_selects_nothing(plane: ToldPlane) -> None:
    await plane.tell(no_placement())
    assert await rendered(plane.ledger, DECISIONS) == []
    assert await rendered(plane.ledger, PLACEMENTS) == []
    # of the same name, and nothing is decided about it
    await plane.tell(a_placement(wanted=1, disabled=True))
    assert await rendered(plane.ledger, DECISIONS) == []
    assert len(await rendered(plane.ledger, PLACEMENTS)) == 1


async def test_a_set_in_parts_is_shown_whole(plane: ToldPlane) -> None:
    size = 2 * PART_SIZE + 50
    await plane.tell(*[a_managed(f"c{i:04d}", 1) for i in range(size)])
    await plane.tell(a_placement())
    last = (await rows(plane))[-1].data()
    assert isinstance(last, PlacementDecided)
    assert (last.part, last.parts) == (3, 3)
    decisions = await rendered(plane.ledger, DECISIONS)
    assert len(await clusters(plane)) == size + 4
    assert {one["metadata"]["annotations"]["wharfinger.io/slices"] for one in decisions} == {
        str(len(decisions))
    }
    assert await clusters(plane, HistoryPoint("now")) == await clusters(plane)


async def test_a_decision_is_taken_again_and_shows_whom_it_asked(plane: ToldPlane) -> None:
    await plane.tell(a_managed("oslo", 100, ManagedTaint("gone", "NoSelect")))
    found = await explain(plane.ledger, SUBJECT)
    assert found.decision.again.same
    trace = found.decision.trace
    assert isinstance(trace, SelectionsTrace)
    assert [(c.name, c.fell, c.place, c.held) for c in trace.candidates] == [
        ("izmir", "", 1, True),
        ("genoa", "", 2, False),
        ("bergen", "", 0, False),
        ("oslo", "TaintToleration", 0, True),
    ]
    assert trace.weights == {"ResourceAllocatableMemory": 1}
    for row in await rows(plane):
        assert (await explain(plane.ledger, SUBJECT, decision=row.id)).decision.again.same


async def test_on_several_shards_a_placement_is_shown_explained_and_planned_as_on_one(
    database_url: str,
) -> None:
    told = await ToldPlane.opened(database_url)
    told.world = World(
        shards=8, shard_of=partial(shard_for, shards=8), recorded=True, at=told.world.at
    )
    try:
        await told.tell(GLOBAL, bound("apps"), a_managed("bergen", 60), a_managed("oslo", 100))
        await told.tell(a_placement(wanted=1, priorities=(MEMORY,), mode="Exact"))
        assert await clusters(told) == await clusters(told, HistoryPoint("now")) == ["oslo"]
        assert (await explain(told.ledger, SUBJECT)).decision.again.same
        plan = await make_plan(told.ledger, [accepted(a_managed("oslo", 10))])
        assert [part.stream for part in plan.parts] == [f"fleet/{n}" for n in range(8)]
        assert plan.selections == (SelectionMove("apps/demo", (("oslo",),), (("bergen",),)),)
    finally:
        await told.ledger.close()


async def test_its_history_tells_what_made_each_decision_necessary(plane: ToldPlane) -> None:
    told = await timeline(plane.ledger, SUBJECT)
    assert [
        type(entry.cause.event.data).__name__ for entry in told.entries if entry.cause.event
    ] == ["PolicyApplied", "ClusterObserved"]
    assert (await timeline(plane.ledger, "demo")).binding == SUBJECT
    assert (await lineage_of_binding(plane.ledger, SUBJECT)).roots


async def test_an_export_repeats_it_and_one_without_names_refuses_it(
    plane: ToldPlane, tmp_path: Path
) -> None:
    await plane.tell(ClusterForgotten("oslo"), no_placement())
    whole = replay_file((await export(plane.ledger, tmp_path / "plain")).path).result
    assert whole.divergences == ()
    with pytest.raises(RedactionError, match="chooses clusters by texts"):
        await export(plane.ledger, tmp_path / "hidden", key=b"a key")
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]  # noqa: ASYNC240  (nobody else waits for this loop)


async def test_the_publisher_shows_the_same_over_http(plane: ToldPlane) -> None:
    await plane.tell(a_placement("all"), bound("dock"), a_placement("demo", "dock", wanted=1))
    server = HealthServer(list, Metrics(CollectorRegistry()), pages(plane.ledger))
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        answer = await client.get(
            "/placementdecisions", params={"namespace": "apps", "placement": "demo"}
        )
        assert (answer.status_code, answer.json()["kind"]) == (200, "List")
        assert answer.json()["items"] == await rendered(
            plane.ledger, DECISIONS, ObjectFilter("", "apps", "demo")
        )
        assert len(answer.json()["items"]) == 1
        assert len((await client.get("/placements")).json()["items"]) == 3
        assert (await client.get("/resourcebindings")).json()["items"] == []
        refused = await client.get("/placements", params={"label": "x"})
        assert (refused.status_code, refused.json()["error"]) == (
            400,
            "/placements: expected name, namespace, got 'label'",
        )
        assert (await client.post("/placements")).status_code == 405
    await server.stop()
