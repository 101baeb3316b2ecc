"""A collector in the loop of a test, and what the ledger then knows, beside what kubectl says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from tests.apps import running
from tests.kube.member import Json, Member

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.events.cluster_state import NodesObserved, PodsObserved, WaitingPodsObserved
from wharfinger.events.codec import decode
from wharfinger.events.streams import TOPICS
from wharfinger.manifests.kubernetes.core import NodeManifest, PodManifest, pod_of, waiting_of
from wharfinger.manifests.model import LIVE
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.joined import JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.settings import Settings
from wharfinger.runtime.topic_setup import partitions, topic_specs
from wharfinger.runtime.topics import ensure_topics
from wharfinger_cli.facts import LatestFacts, known_facts
from wharfinger_collector.app import CollectorService


class Known:
    """What a ledger knows. `name`: under which the cluster was joined."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger = ledger
        self.name = name

    async def facts(self) -> LatestFacts:
        return await known_facts(self.ledger)

    async def clusters(self) -> list[Cluster]:
        return (await self.facts()).clusters

    async def nodes(self) -> dict[str, Node]:
        return {node.name: node for node in (await self.facts()).nodes.get(self.name, ())}

    async def pods(self) -> dict[str, Pod | WaitingPod]:
        """Those on nodes and those that wait."""
        facts = await self.facts()
        there = [pod for pods in facts.pods.values() for pod in pods]
        waiting = [pod for pods in facts.waiting.values() for pod in pods]
        assert all(pod.node for pod in there)
        found: list[Pod | WaitingPod] = [*there, *waiting]
        return {pod.uid: pod for pod in found}

    async def pods_in_facts(self) -> list[str]:
        """Uids, one for each time that the pod is in a fact."""
        facts = await self.facts()
        there = [pod.uid for pods in facts.pods.values() for pod in pods]
        return there + [pod.uid for pods in facts.waiting.values() for pod in pods]


class Collecting(Known):
    def __init__(
        self, service: CollectorService, context: ServiceContext, ledger: Ledger, name: str
    ) -> None:
        super().__init__(ledger, name)
        self.service = service
        self.context = context


@asynccontextmanager
async def collecting(
    backend: Backend,
    ledger: Ledger,
    prefix: str,
    directory: Path,
    member: Member,
    access: Access | None = None,
    settings: Mapping[str, object] | None = None,
    **options: object,
) -> AsyncIterator[Collecting]:
    """`access`: another way to the server, such as through a proxy that breaks connections.
    `settings`: other than the defaults."""
    joined = JoinedCluster(
        member.name,
        access or read_kubeconfig(member.kubeconfig()),
        **options,  # type: ignore[arg-type]
    )
    store_joined(directory, joined)
    chosen = Settings(**{"clusters": directory, **(settings or {})})  # type: ignore[arg-type]
    await ensure_topics(backend, topic_specs(chosen), prefix)
    counts = {topic.name: partitions(topic, chosen) for topic in TOPICS}
    context = ServiceContext(
        chosen, backend, ledger, {topic.name: 1 for topic in TOPICS}, counts, prefix
    )
    service = CollectorService(context)
    async with running(service):
        yield Collecting(service, context, ledger, member.name)


async def assert_never_fewer(ledger: Ledger, nodes: set[str], pods: set[str]) -> None:
    """Once all of these were known, every fact left them known. `nodes`, `pods`: by name, those
    that were there all the time."""
    on: dict[object, set[str]] = {}
    seen: dict[object, set[str]] = {}
    whole = False
    for row in await ledger.rows_after({"intake": 0}, 1_000_000):
        assert row.accepted is not None
        match decode(row.accepted.body).data:
            case NodesObserved(bucket=bucket, nodes=found):
                on[bucket] = {node.name for node in found}
            case PodsObserved(node=name, pods=there):
                seen[name] = {pod.name for pod in there}
            case WaitingPodsObserved(namespace=home, bucket=bucket, pods=left):
                seen[home, bucket] = {pod.name for pod in left}
            case _:
                continue
        known_nodes, known_pods = set().union(*on.values()), set().union(*seen.values())
        whole = whole or (known_nodes >= nodes and known_pods >= pods)
        if whole:
            assert known_nodes >= nodes
            assert known_pods >= pods
    assert whole


def nodes_of(member: Member) -> dict[str, Node]:
    """By the models of manifests, without images: those are facts of their own."""
    return {node.name: node for node in map(_node, member.items("nodes"))}


def _node(found: Json) -> Node:
    found["status"].pop("images", None)
    if not found["status"].get("allocatable") and not found["status"].get("capacity"):
        found["status"]["allocatable"] = {"pods": "0"}
    return NodeManifest.model_validate(found, context=LIVE).to_domain()


def pods_of(member: Member) -> dict[str, Pod | WaitingPod]:
    """Those that are not finished, of all namespaces."""
    models = [
        PodManifest.model_validate(found, context=LIVE)
        for found in member.items("pods", "--all-namespaces")
    ]
    pods = [
        pod_of(model) if model.spec.node_name else waiting_of(model)
        for model in models
        if not model.finished
    ]
    return {pod.uid: pod for pod in pods}


AT_ONCE = 16
"""Requests under way, where many objects are created."""

_PATHS = {"Node": "/api/v1/nodes", "Pod": "/api/v1/namespaces/{}/pods"}


async def created(member: Member, objects: Sequence[Json]) -> None:
    """Nodes or pods that are not there yet: faster than by `Member.apply`."""
    limit = asyncio.Semaphore(AT_ONCE)
    async with KubeApi(read_kubeconfig(member.kubeconfig())) as api:

        async def create(one: Json) -> None:
            path = _PATHS[one["kind"]].format(one["metadata"].get("namespace", ""))
            async with limit:
                await api.request("POST", path, body=msgspec.json.encode(one))

        await asyncio.gather(*map(create, objects))


def node(name: str, **labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "z1"}
            | labels,
        },
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        },
    }


def pod(namespace: str, name: str, on: str = "", **labels: str) -> Json:
    spec: Json = {
        "containers": [
            {
                "name": "main",
                "image": "nginx:1",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            }
        ],
        "terminationGracePeriodSeconds": 0,
    }
    if on:
        spec["nodeName"] = on
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }
