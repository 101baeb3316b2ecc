"""What nodes use, as a metrics API says it: on a real API server that serves the API's objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest_asyncio
from tests.apps import standing_on
from tests.kube.collecting import collecting, node
from tests.kube.member import Json, Member
from tests.patience import eventually

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.events.codec import decode
from wharfinger.events.node_load import NodeLoadObserved
from wharfinger.events.streams import NODE_LOAD
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.ledger import Ledger, wall_clock
from wharfinger.stages.collector import ObservedCluster
from wharfinger_collector.metrics_api import MetricsApi
from wharfinger_collector.watched_kinds import watched_kinds

CPU, MEMORY = "cpu_usage_avg_5m", "mem_usage_avg_5m"

DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "nodes.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "scope": "Cluster",
        "names": {"plural": "nodes", "singular": "nodemetrics", "kind": "NodeMetrics"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest_asyncio.fixture
async def served(member: Member) -> AsyncIterator[None]:
    """The server has the metrics API while the test runs."""
    member.apply(DEFINITION)
    await eventually(lambda: _serves(member))
    yield
    member.kubectl("delete", "crd", "nodes.metrics.k8s.io")


def _serves(member: Member) -> bool:
    try:
        member.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
    except RuntimeError:
        return False
    return True


def metrics(name: str, measured: str, cpu: str, memory: str) -> Json:
    return {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "NodeMetrics",
        "metadata": {"name": name},
        "timestamp": measured,
        "window": "15s",
        "usage": {"cpu": cpu, "memory": memory},
    }


class Loads:
    """Takes what is sent; the latest of each metric."""

    def __init__(self) -> None:
        self.sent: list[NodeLoadObserved] = []

    async def __call__(self, loads: Sequence[NodeLoadObserved]) -> None:
        self.sent += loads

    def of(self, metric: str) -> dict[str, int]:
        return next((dict(one.loads) for one in reversed(self.sent) if one.metric == metric), {})


async def test_the_mean_of_what_nodes_use_becomes_their_load(
    member: Member, api: KubeApi, served: None
) -> None:
    member.apply(
        metrics("m0", "2026-03-01T12:00:00Z", "2000000000n", "4194304Ki"),
        metrics("m1", "2026-03-01T12:00:00Z", "250m", "1Gi"),
        metrics("strange", "2026-03-01T12:00:00Z", "many", "1Gi"),
        metrics("unknown", "2026-03-01T12:00:00Z", "1", "1Gi"),
    )
    facts = ObservedCluster(Cluster(member.name))
    size = {"cpu": 8000, "memory": 32 << 30}
    facts.list_nodes([Node("m0", size), Node("m1", size), Node("strange", size)], 1)
    facts.list_pods([], 1)
    loads = Loads()
    asking = asyncio.create_task(MetricsApi(api, facts, wall_clock, loads, 0.05, 0).run())
    try:
        await eventually(lambda: loads.of(CPU) == {"m0": 25_000, "m1": 3_125})
        assert loads.of(MEMORY) == {"m0": 12_500, "m1": 3_125}
        member.apply(metrics("m0", "2026-03-01T12:00:15Z", "4", "8Gi"))
        await eventually(lambda: loads.of(CPU) == {"m0": 37_500, "m1": 3_125})
        assert loads.of(MEMORY)["m0"] == 18_750
        await _asked_once_more(loads)
        assert loads.of(CPU) == {"m0": 37_500, "m1": 3_125}, "the same value was counted twice"
        member.kubectl("delete", "nodes.metrics.k8s.io", "--all")
        await _asked_once_more(loads)
        assert loads.of(CPU) == {"m0": 37_500, "m1": 3_125}, "silence is not idleness"
        assert not asking.done()
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def _asked_once_more(loads: Loads) -> None:
    before = len(loads.sent)
    await eventually(lambda: len(loads.sent) >= before + 4)


async def test_a_collector_sends_the_loads_of_a_joined_cluster(
    member: Member,
    api: KubeApi,
    backend: Backend,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
    served: None,
) -> None:
    member.kubectl("delete", "nodes", "--all")
    member.apply(node("m0"), metrics("m0", "2026-03-01T12:00:00Z", "2", "16Gi"))
    assert "NodeMetrics" not in await watched_kinds(api), "it has no watch"
    async with collecting(backend, ledger, topic_prefix, tmp_path, member) as collector:

        async def there() -> bool:
            return len(await standing_on(collector.context, NODE_LOAD)) >= 2

        await eventually(there)
        found = await standing_on(collector.context, NODE_LOAD)
    sent = {record.key: decode(record.value or b"").data for record in found}
    for metric, load in ((CPU, 25_000), (MEMORY, 50_000)):
        told = sent[f"{member.name}/{metric}".encode()]
        assert isinstance(told, NodeLoadObserved)
        assert (told.cluster, told.metric, told.loads) == (member.name, metric, {"m0": load})
