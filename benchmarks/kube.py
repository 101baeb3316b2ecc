"""Reading a real API server: list and watch as raw bytes, beside what the collector makes of them,
and how long a plane takes from joining the cluster to its last fact in the ledger. Then binding:
`benchmarks.kube_binds`.

    make bench-kube
    WHARFINGER_TEST_KUBE=DIR python -m benchmarks.kube --nodes 1000 --pods 5000

Needs a control plane that runs (`infra.kube.local`), which it fills. Processor seconds are those of
this process; the server's are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
from infra.kube.local import VARIABLE

from benchmarks import kube_binds
from benchmarks.plane import a_plane
from wharfinger.domain.cluster import Cluster
from wharfinger.events.streams import CLUSTER_STATE
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.joined import JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig
from wharfinger.runtime.kube.reflector import Reflector
from wharfinger.runtime.ledger import Ledger
from wharfinger.stages.collector import ObservedCluster
from wharfinger_cli.facts import known_facts
from wharfinger_collector.sighting import LiveDecoder, PodSink

T = TypeVar("T")

AT_ONCE = 16
NAMESPACE = "bench"
NAME = "bench"


@dataclass(slots=True)
class _Counting:
    """A sink that only counts."""

    listed: asyncio.Event = field(default_factory=asyncio.Event)
    count: int = 0

    def replace(self, objects: Sequence[object], version: str) -> None:
        self.count = len(objects)
        self.listed.set()

    def upsert(self, object_: object, version: str) -> None:
        self.count += 1

    def remove(self, object_: object, version: str) -> None:
        self.count -= 1

    def alive(self, version: str) -> None: ...

    def broken(self, why: str) -> None:
        print(f"broken: {why}", file=sys.stderr)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="How fast a real API server is read.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--binds", type=int, default=1000, help="pods to bind; 0: none")
    parser.add_argument("--bind-nodes", type=int, default=100, help="nodes to bind them to")
    parser.add_argument("--steadily", type=int, default=400, help="pods one by one; 0: none")
    options = parser.parse_args(arguments)
    directory = os.environ.get(VARIABLE)
    if not directory:
        print(f"kube: {VARIABLE} names no directory of clusters: make bench-kube", file=sys.stderr)
        return 2
    (cluster, *_) = sorted(path.parent for path in Path(directory).glob("*/cluster.json"))
    access = read_kubeconfig(cluster / "admin.kubeconfig")
    if options.binds or options.steadily:
        asyncio.run(_bind(cluster, access, options))
    if options.pods:
        asyncio.run(_measure(access, options))
    return 0


async def _bind(cluster: Path, access: Access, options: argparse.Namespace) -> None:
    """Before the cluster is filled, so that the nodes and their number are these."""
    async with KubeApi(access) as api:
        await _fill(api, options.bind_nodes, 0)
    if options.binds:
        await kube_binds.measure(cluster, access, options.binds)
    if options.steadily:
        await kube_binds.measure_steadily(cluster, access, options.steadily)


async def _measure(access: Access, options: argparse.Namespace) -> None:
    async with KubeApi(access) as api:
        began = time.perf_counter()
        await _fill(api, options.nodes, options.pods)
        print(f"filled in {time.perf_counter() - began:.1f} s")
        cpu, began = time.process_time(), time.perf_counter()
        body = await api.request("GET", "/api/v1/pods", {"resourceVersion": "0"})
        _say("pods, list, raw bytes", options.pods, began, cpu, f"{len(body) / 1e6:.1f} MB")
        await _list(api, "pods, streaming list, raw bytes", lambda raw: bytes(raw), options.pods)
        await _list(api, "pods, streaming list, domain values", LiveDecoder().pod, options.pods)
        await _take(api, options.pods)
    await _plane(access, options)


async def _list(api: KubeApi, name: str, decode: Callable[[msgspec.Raw], T], count: int) -> None:
    sink = _Counting()
    reflector: Reflector[T] = Reflector(api, "/api/v1/pods", decode, sink)
    cpu, began = time.process_time(), time.perf_counter()
    task = asyncio.create_task(reflector.run())
    await sink.listed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sink.count >= count
    _say(name, sink.count, began, cpu)


async def _take(api: KubeApi, count: int) -> None:
    """Values into the state of a cluster, and its facts out of it."""
    facts = ObservedCluster(Cluster(NAME))
    facts.list_nodes((), 0)
    listed = asyncio.Event()
    sink = PodSink(facts, lambda: 0, listed.set)
    reflector = Reflector(api, "/api/v1/pods", LiveDecoder().pod, sink)
    cpu, began = time.process_time(), time.perf_counter()
    task = asyncio.create_task(reflector.run())
    await listed.wait()
    sent = facts.due(1 << 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    _say("pods, streaming list to facts", count, began, cpu, f"{len(sent)} facts")


async def _plane(access: Access, options: argparse.Namespace) -> None:
    with a_plane() as plane:
        plane.up()
        ledger = await Ledger.open(plane.plane()["database_url"], "bench-kube")
        began = time.perf_counter()
        store_joined(plane.data_dir / "clusters", JoinedCluster(NAME, access))
        begun = 0.0
        while True:
            await asyncio.sleep(0.1)
            count = sum([1 async for _ in ledger.facts(CLUSTER_STATE.name)])
            if count and not begun:
                begun = time.perf_counter()
            if count < options.nodes:  # one fact a node with pods, at least
                continue
            facts = await known_facts(ledger)
            nodes = len(facts.nodes.get(NAME, ()))
            pods = sum(len(pods) for pods in facts.pods.values())
            if nodes >= options.nodes and pods >= options.pods:
                break
        ended = time.perf_counter()
        await ledger.close()
        print(
            f"joined to all facts in the ledger: {ended - began:.1f} s"
            f" (from the first fact: {ended - begun:.1f} s), {nodes} nodes, {pods} pods"
        )
        plane.down()


def _say(name: str, count: int, began: float, cpu: float, more: str = "") -> None:
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    rate = f"{count / used:>9,.0f} a second of a core"
    print(f"{name:<40} {rate}   {wall:.2f} s, {used:.2f} s of CPU   {more}".rstrip())


async def _fill(api: KubeApi, nodes: int, pods: int) -> None:
    """What is there already stays."""
    await kube_binds.create(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    while True:  # pods are refused before the namespace has its account
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        try:
            await api.request("GET", accounts)
            break
        except ApiError:
            await asyncio.sleep(0.1)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(path: str, body: dict[str, object]) -> None:
        async with gate:
            await kube_binds.create(api, path, body)

    await asyncio.gather(*(one("/api/v1/nodes", _node(i)) for i in range(nodes)))
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    await asyncio.gather(*(one(path, _pod(i, i % nodes)) for i in range(pods)))


def _node(i: int) -> dict[str, object]:
    size = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": f"n{i}", "topology.kubernetes.io/zone": f"z{i % 3}"}
    return {
        "metadata": {"name": f"n{i}", "labels": labels},
        "status": {"allocatable": size, "capacity": size},
    }


def _pod(i: int, node: int) -> dict[str, object]:
    resources = {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
    return {
        "metadata": {"name": f"p{i}", "labels": {"app": f"a{i % 50}", "tier": "web"}},
        "spec": {
            "nodeName": f"n{node}",
            "containers": [{"name": "main", "image": "nginx:1.27", "resources": resources}],
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
