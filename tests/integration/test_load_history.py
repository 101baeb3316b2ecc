"""Load asked of a real ledger: what a plane measured, as the annotations that crane's scheduler
reads."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from tests.told_plane import ToldPlane, a_cluster, nodes

from wharfinger.domain.policy import LoadLimit, LoadPolicy, Policy, SyncPeriod
from wharfinger.events.node_load import NodeLoadObserved
from wharfinger.events.policies import PolicyApplied
from wharfinger.history.object_kinds import LOADS
from wharfinger.history.objects import ObjectFilter, rendered
from wharfinger.history.points import HistoryPoint
from wharfinger.runtime.health import HealthServer
from wharfinger.runtime.observability import Metrics
from wharfinger_publisher.pages import pages

pytestmark = pytest.mark.integration

CPU = "cpu_usage_avg_5m"
POLICY = Policy(
    "DynamicSchedulerPolicy",
    "default",
    load=LoadPolicy((SyncPeriod(CPU, 60),), (LoadLimit(CPU, 65_000),)),
)


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    """Two clusters, of one of which something is measured."""
    told = await ToldPlane.opened(database_url)
    await told.tell(a_cluster("oslo"), a_cluster("bergen"), PolicyApplied(POLICY))
    await told.tell(*nodes("oslo", "a", "b"), *nodes("bergen", "a"))
    await told.hear(NodeLoadObserved("oslo", CPU, 60, told.time.at, {"a": 12_345}))
    yield told
    await told.ledger.close()


async def test_what_was_measured_is_written_as_crane_writes_it(plane: ToldPlane) -> None:
    shown = await rendered(plane.ledger, LOADS, ObjectFilter(cluster="oslo"))
    found = {one["metadata"]["name"]: one["metadata"]["annotations"] for one in shown}
    assert found.keys() == {"a", "b"}
    assert found["a"][CPU].startswith("0.12345,20")
    assert CPU not in found["b"]
    assert found["b"]["node_hot_value"].startswith("0,20")
    everywhere = await rendered(plane.ledger, LOADS)
    assert [one["metadata"]["annotations"]["wharfinger.io/cluster"] for one in everywhere] == [
        "bergen",
        "oslo",
        "oslo",
    ]


async def test_then_as_well_as_now(plane: ToldPlane) -> None:
    (head,) = [head for head in await plane.ledger.heads() if head.stream == "cluster/oslo"]
    (node, _) = await rendered(
        plane.ledger, LOADS, ObjectFilter(cluster="oslo"), HistoryPoint("now")
    )
    assert CPU in node["metadata"]["annotations"]
    then = await rendered(
        plane.ledger,
        LOADS,
        ObjectFilter(cluster="oslo"),
        HistoryPoint("then", "cluster/oslo", head.round - 1),
    )
    assert all(CPU not in one["metadata"]["annotations"] for one in then)


async def test_the_publisher_shows_the_same_over_http(plane: ToldPlane) -> None:
    server = HealthServer(list, Metrics(CollectorRegistry()), pages(plane.ledger))
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        shown = (
            await client.get("/nodeannotations", params={"cluster": "oslo", "name": "a"})
        ).json()
        refused = await client.get("/nodeannotations", params={"namespace": "x"})
    await server.stop()
    (node,) = shown["items"]
    assert node["kind"] == "Node"
    assert node["metadata"]["annotations"][CPU].startswith("0.12345,")
    assert refused.status_code == 400
