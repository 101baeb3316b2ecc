"""Pods bound a second on a real API server: by a plane, and by kube-scheduler on the same server in
the same run, in turns.

The pods wait before the scheduler begins, and what is timed is from the first to the last pod that
a watch shows on a node. Both bind over the same server to the same nodes, with no limit of requests
of their own. Processor seconds are those of the scheduler, or of all services of the plane with its
broker and database; and those of the cluster's own programs in the same time.

Then pods come one after another, and what is timed is how long each of them waits.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import msgspec
import psutil
from infra.kube.cluster import kube_scheduler

from benchmarks.plane import a_plane
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.joined import SCHEDULER, JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.runtime.kube.reflector import Reflector
from wharfinger.runtime.kube.rights import NAMESPACE

NAME = "bench"
TURNS = 2
RATE_A_SECOND = 20.0
"""Of pods that come one after another."""

SCHEDULER_PART = "scheduler"
"""The name by which processes of the scheduler that is measured are counted."""

_Processes = list[tuple[str, psutil.Process]]
"""Each with the name by which it is counted."""


class _Meta(msgspec.Struct):
    uid: str


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


@dataclass(frozen=True, slots=True)
class Bound:
    """`seconds`: from the first to the last pod on a node. In that time `processor_s` of the
    scheduler, and `servers_s` of the cluster's programs, by name."""

    pods: int
    seconds: float
    processor_s: float
    servers_s: dict[str, float]

    @property
    def a_second(self) -> float:
        return self.pods / self.seconds


@dataclass(slots=True)
class _Seen:
    """A sink: the pods that are there, and those that are on a node."""

    pods: set[str] = field(default_factory=set)
    bound: dict[str, float] = field(default_factory=dict)
    """Each with the time at which it was seen on a node first."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.changed.clear()
            await self.changed.wait()

    def replace(self, objects: Sequence[_Pod], version: str) -> None:
        for pod in objects:
            self.upsert(pod, version)

    def upsert(self, pod: _Pod, version: str) -> None:
        self.pods.add(pod.metadata.uid)
        if pod.spec.node_name:
            self.bound.setdefault(pod.metadata.uid, time.perf_counter())
        self.changed.set()

    def remove(self, pod: _Pod, version: str) -> None:
        self.pods.discard(pod.metadata.uid)
        self.bound.pop(pod.metadata.uid, None)
        self.changed.set()

    def alive(self, version: str) -> None: ...

    def broken(self, why: str) -> None:
        print(f"broken: {why}")


async def measure(cluster: Path, access: Access, pods: int) -> None:
    """Prints a line for each scheduler. `cluster`: the control plane's directory. Its nodes are
    there already, with room for `pods` of 100m and 64Mi."""
    found: dict[str, list[Bound]] = {"kube-scheduler": [], "wharfinger": []}
    async with KubeApi(access) as api:
        await create(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for turn in range(TURNS):
            home = f"binds-theirs-{turn}"
            async with _waiting(api, home, pods, "default-scheduler") as seen:
                with _theirs(cluster) as running:
                    found["kube-scheduler"].append(await _bound(seen, pods, running))
            home = f"binds-ours-{turn}"
            async with _waiting(api, home, pods, SCHEDULER) as seen:
                with _ours(cluster, access) as running:
                    found["wharfinger"].append(await _bound(seen, pods, running))
    for name, turns in found.items():
        rates = ", ".join(f"{one.a_second:.0f}" for one in turns)
        each = median(one.processor_s / one.pods * 1000 for one in turns)
        rate = median(one.a_second for one in turns)
        print(f"bound by {name:<15} {rate:>5.0f} pods/s ({rates}), {each:.1f} ms of processor each")
        for server in sorted(turns[0].servers_s):
            each = median(one.servers_s.get(server, 0.0) / one.pods * 1000 for one in turns)
            if each >= 0.1:
                print(f"  {server:<22} {each:>5.1f} ms of processor each")


async def _bound(seen: _Seen, pods: int, found: Callable[[], _Processes]) -> Bound:
    """`found`: looks for the processes of the scheduler (named `SCHEDULER_PART`) and of the
    cluster. That takes long, so in the time that is measured those are read that were found
    before; one that is younger counts from its start."""
    known = found()
    await seen.until(lambda: bool(seen.bound))
    first, began = len(seen.bound), time.perf_counter()
    before = _seconds(known)
    await seen.until(lambda: len(seen.bound) >= pods)
    seconds = time.perf_counter() - began
    spent: dict[str, float] = {}
    for (name, pid), used in _seconds(found()).items():
        spent[name] = spent.get(name, 0.0) + used - before.get((name, pid), 0.0)
    return Bound(pods - first, seconds, spent.pop(SCHEDULER_PART, 0.0), spent)


async def measure_steadily(
    cluster: Path, access: Access, pods: int, rate: float = RATE_A_SECOND
) -> None:
    """Pods are created at `rate` a second, one by one. Prints for each scheduler how long it took
    from the answer to their creation to their place on a node, as a watch shows it."""
    async with KubeApi(access) as api:
        await create(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for name, scheduler in (("kube-scheduler", "default-scheduler"), ("wharfinger", SCHEDULER)):
            home = f"steadily-{name}"
            started = _theirs(cluster) if name == "kube-scheduler" else _ours(cluster, access)
            # One pod to begin with: the scheduler reads the cluster first.
            async with _waiting(api, home, 1, scheduler) as seen:
                with started:
                    await seen.until(lambda seen=seen: bool(seen.bound))  # type: ignore[misc]
                    waits = await _waits(api, home, seen, scheduler, pods, rate)
            print(
                f"{rate:g} pods/s, {name:<15} on a node after {median(waits) * 1000:.0f} ms (p50), "
                f"{quantiles(waits, n=100)[-1] * 1000:.0f} ms (p99)"
            )


async def _waits(
    api: KubeApi, home: str, seen: _Seen, scheduler: str, pods: int, rate: float
) -> list[float]:
    """Seconds, one for each pod. Due times do not wait for the scheduler."""
    created: dict[str, float] = {}
    path, template = f"/api/v1/namespaces/{home}/pods", _template(scheduler)
    began = time.perf_counter()
    for number in range(pods):
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
        pod = {**template, "metadata": {"name": f"one-{number}"}}
        body = await api.request("POST", path, body=json.dumps(pod).encode())
        created[msgspec.json.decode(body, type=_Pod).metadata.uid] = time.perf_counter()
    await seen.until(lambda: created.keys() <= seen.bound.keys())
    waits = [max(0.0, seen.bound[uid] - at) for uid, at in created.items()]
    await api.request("DELETE", path)
    return waits


def _seconds(processes: _Processes) -> dict[tuple[str, int], float]:
    """Processor seconds so far of each."""
    found: dict[tuple[str, int], float] = {}
    for name, process in processes:
        with suppress(psutil.Error):
            found[name, process.pid] = sum(process.cpu_times()[:2])
    return found


def _servers(cluster: Path) -> _Processes:
    """The programs that run for the cluster, by name."""
    found: _Processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cwd() == str(cluster) or str(cluster) in " ".join(process.cmdline()):
                found.append((process.name(), process))
    return found


@asynccontextmanager
async def _waiting(api: KubeApi, home: str, pods: int, scheduler: str) -> AsyncIterator[_Seen]:
    """A Deployment whose pods all exist and wait; they are gone afterwards."""
    await create(api, "/api/v1/namespaces", {"metadata": {"name": home}})
    await create(api, f"/apis/apps/v1/namespaces/{home}/deployments", _deployment(pods, scheduler))
    seen = _Seen()
    path, decode = f"/api/v1/namespaces/{home}/pods", msgspec.json.Decoder(_Pod).decode
    reflector: Reflector[_Pod] = Reflector(api, path, decode, seen)
    watch = asyncio.create_task(reflector.run())
    try:
        await seen.until(lambda: len(seen.pods) >= pods)
        yield seen
        await api.request("DELETE", f"/apis/apps/v1/namespaces/{home}/deployments/web")
        await seen.until(lambda: not seen.pods)
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


@contextmanager
def _theirs(cluster: Path) -> Iterator[Callable[[], _Processes]]:
    with kube_scheduler(cluster, requests_a_second=10_000) as process:
        yield lambda: [
            (SCHEDULER_PART if one.pid == process.pid else name, one)
            for name, one in _servers(cluster)
        ]


@contextmanager
def _ours(cluster: Path, access: Access) -> Iterator[Callable[[], _Processes]]:
    with a_plane() as plane:
        plane.up()
        joined = JoinedCluster(NAME, access, "act", verbs=("bind",), write_access=access)
        store_joined(plane.data_dir / "clusters", joined)
        yield lambda: [
            *((SCHEDULER_PART, process) for _, process in plane.processes()),
            *_servers(cluster),
        ]


async def create(api: KubeApi, path: str, body: dict[str, object]) -> None:
    """What is there already stays."""
    try:
        await api.request("POST", path, body=json.dumps(body).encode())
    except ApiError as error:
        if error.code != 409:
            raise


def _deployment(pods: int, scheduler: str) -> dict[str, object]:
    template = {"metadata": {"labels": {"app": "web"}}, **_template(scheduler)}
    selector = {"matchLabels": {"app": "web"}}
    return {
        "metadata": {"name": "web"},
        "spec": {"replicas": pods, "selector": selector, "template": template},
    }


def _template(scheduler: str) -> dict[str, object]:
    requests = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "main", "image": "nginx:1.27", "resources": {"requests": requests}}
    spec = {
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {"spec": spec}
