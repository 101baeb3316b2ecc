"""A cluster in which pods run already is taken over: its mode becomes `act`. Every pod of our
scheduler is adopted where it is, none is evicted or moved, and what is free on each node is what
`kubectl describe nodes` says. `WHARFINGER_TEST_BROWNFIELD_PODS` says how many pods run."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tests.apps import standing_on
from tests.kube.acting import Audit, a_plane, decided, grant, join_for_writing
from tests.kube.collecting import node, pod, pods_of
from tests.kube.member import Json, Member, namespace
from tests.kube.replaying import replayed_without_server
from tests.patience import eventually

from wharfinger.domain.actuation import Verb
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.codec import decode
from wharfinger.events.decisions import ReplicasAdopted, ReplicasPlaced
from wharfinger.events.streams import CAPACITY
from wharfinger.history.states import state_at
from wharfinger.manifests.amounts import amounts
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.joined import JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import read_kubeconfig
from wharfinger.runtime.ledger import DecisionQuery, Ledger
from wharfinger.runtime.service import ServiceContext
from wharfinger_cli.facts import known_facts

HOME = "brownfield"
PODS = int(os.environ.get("WHARFINGER_TEST_BROWNFIELD_PODS", "300"))
ON_A_NODE = 15
"""Pods on a node of eight cores, at 0.5 cores at most."""
AT_ONCE = 8
VERBS: tuple[Verb, ...] = ("bind", "evict", "nodes")
RESOURCES = ("cpu", "memory", "pods")


# --- the cluster


def workload(kind: str, name: str, replicas: int, cpu: str) -> Json:
    """Deployment, StatefulSet or Job, whose pods wait for our scheduler."""
    labels = {"app": name}
    container = {
        "name": "main",
        "image": "nginx:1",
        "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}},
    }
    pods: Json = {"schedulerName": "wharfinger", "containers": [container]}
    template: Json = {"metadata": {"labels": labels}, "spec": pods}
    spec: Json = {"template": template}
    if kind == "Job":
        pods["restartPolicy"] = "Never"
        spec |= {"completions": replicas, "parallelism": replicas}
    else:
        spec |= {"replicas": replicas, "selector": {"matchLabels": labels}}
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": HOME},
        "spec": spec,
    }


def nodes() -> list[str]:
    return [f"{HOME}-{i:03}" for i in range(-(-PODS // ON_A_NODE) + 1)]


async def filled(member: Member) -> None:
    """Seven pods of ten are of Deployments, two of StatefulSets. The rest are on nodes from the
    beginning: half of them for our scheduler, half for another. A Job has finished."""
    member.empty()
    names = nodes()
    member.apply(namespace(HOME), *(node(name) for name in names))
    sets = PODS // 100
    member.apply(
        *(workload("Deployment", f"web-{i}", 70, f"{100 + 50 * (i % 9)}m") for i in range(sets)),
        *(workload("StatefulSet", f"db-{i}", 20, "250m") for i in range(sets)),
        workload("Job", "batch", 10, "100m"),
    )
    bare = [pod(HOME, f"bare-{i}", names[i % len(names)]) for i in range(PODS // 10)]
    for one in bare[::2]:
        one["spec"]["schedulerName"] = "wharfinger"
    for start in range(0, len(bare), 100):
        member.apply(*bare[start : start + 100])
    await eventually(lambda: len(_of_home(member)) == sets * 90 + len(bare) + 10)
    waiting = [one for one in _of_home(member) if not one["spec"].get("nodeName")]
    async with KubeApi(read_kubeconfig(member.kubeconfig())) as api:
        await _bound_by_others(api, waiting, names)
    await eventually(lambda: Counter(_phases(member)) == {"Running": sets * 100, "Succeeded": 10})


def _of_home(member: Member) -> list[Json]:
    return member.items("pods", "-n", HOME)


def _phases(member: Member) -> list[str]:
    return [one["status"]["phase"] for one in _of_home(member)]


async def _bound_by_others(api: KubeApi, pods: Sequence[Json], names: Sequence[str]) -> None:
    """As another scheduler does, on one node after the other."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def bind(number: int, one: Json) -> None:
        name = one["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": names[number % len(names)]}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": target,
        }
        path = f"/api/v1/namespaces/{HOME}/pods/{name}/binding"
        async with limit:
            await api.request("POST", path, body=msgspec.json.encode(binding))

    await asyncio.gather(*(bind(i, one) for i, one in enumerate(pods)))


def placed_by_kubectl(member: Member) -> dict[str, str]:
    """uid -> node, of all pods, finished ones too."""
    return {one["metadata"]["uid"]: one["spec"].get("nodeName", "") for one in _of_home(member)}


def to_adopt(member: Member) -> dict[str, str]:
    """uid -> node, of the running pods of our scheduler."""
    return {
        one["metadata"]["uid"]: one["spec"]["nodeName"]
        for one in _of_home(member)
        if one["spec"]["schedulerName"] == "wharfinger" and one["status"]["phase"] == "Running"
    }


# --- what kubectl says is free


def described(member: Member) -> dict[str, dict[str, int]]:
    """Node -> resource -> allocatable less requests, in our units, of `kubectl describe nodes`."""
    text = member.kubectl("describe", "nodes", "--show-events=false")
    return dict(map(_free, re.split(r"^(?=Name: )", text, flags=re.MULTILINE)[1:]))


def _free(block: str) -> tuple[str, dict[str, int]]:
    name = re.findall(r"^Name: +(\S+)", block)[0]
    room = block.partition("\nAllocatable:\n")[2].partition("\nSystem Info:")[0]
    allocatable = amounts(dict(re.findall(r"^  (\S+): +(\S+)$", room, flags=re.MULTILINE)))
    used = amounts(
        dict(
            re.findall(
                r"^  (cpu|memory) +(\S+) \(",
                block.partition("\nAllocated resources:\n")[2],
                flags=re.MULTILINE,
            )
        )
    )
    used["pods"] = int(re.findall(r"^Non-terminated Pods: +\((\d+) in total\)", block, re.M)[0])
    return name, {resource: allocatable[resource] - used[resource] for resource in RESOURCES}


async def free_by_stage(ledger: Ledger, member: Member) -> dict[str, dict[str, int]]:
    """The same of the cluster stage."""
    table = (await state_at(ledger, f"cluster/{member.name}")).state.book.table
    return {
        name: {
            resource: row.free[code]
            for code, resource in enumerate(table.resources)
            if resource in RESOURCES
        }
        for name, row in table.rows.items()
    }


async def free_by_estimator(context: ServiceContext, member: Member) -> dict[str, int]:
    """The totals of the last estimate; empty before the first."""
    said = [
        data
        for record in await standing_on(context, CAPACITY)
        if isinstance(data := decode(record.value or b"").data, CapacityEstimated)
    ]
    latest = [one for one in said if one.cluster == member.name][-1:]
    return dict(latest[0].free) if latest else {}


# --- the test


async def test_what_runs_already_is_adopted_where_it_is(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    await filled(member)
    grant(member, VERBS)
    joined, stream = tmp_path / "joined", f"cluster/{member.name}"
    joined.mkdir()
    access = read_kubeconfig(member.kubeconfig())
    store_joined(joined, JoinedCluster(member.name, access, "observe", lease_s=16))
    running = set(pods_of(member))
    before, wanted, audit = placed_by_kubectl(member), to_adopt(member), Audit(member)
    async with a_plane(backend, database_url, topic_prefix, joined) as context:

        async def known() -> bool:
            facts = await known_facts(ledger)
            return {pod.uid for pods in facts.pods.values() for pod in pods} == running

        await eventually(known)
        assert await adopted(ledger, stream) == {}, "nothing is decided where we only observe"
        join_for_writing(joined, member, VERBS)

        async def all_adopted() -> bool:
            return await adopted(ledger, stream) == wanted

        await eventually(all_adopted)
        # The services run in this loop, and kubectl takes long.
        free = await asyncio.to_thread(described, member)
        assert await free_by_stage(ledger, member) == free
        totals = {resource: sum(room[resource] for room in free.values()) for resource in RESOURCES}

        async def is_estimated() -> bool:
            said = await free_by_estimator(context, member)
            return {resource: said.get(resource) for resource in RESOURCES} == totals

        await eventually(is_estimated)
        # The plane goes on from there: what waits from now on is placed and bound.
        await asyncio.to_thread(member.apply, workload("Deployment", "later", 1, "100m"))
        await eventually(lambda: asyncio.to_thread(_later_is_bound, member))
        rows = [row async for row in ledger.decisions(DecisionQuery(stream=stream))]
        assert {row.outcome for row in rows} == {"adopted", "placed"}
    assert {uid: on for uid, on in placed_by_kubectl(member).items() if uid in before} == before
    (new,) = _new(member, before).items()
    assert await placed(ledger, stream) == dict([new])
    binds = [code for _, _, code in audit.writes("pods/binding")]
    assert binds == [201]
    assert {verb for verb, _, _ in audit.writes()} == {"create"}
    assert audit.writes("pods/eviction") == audit.writes("nodes") == []
    decisions = replayed_without_server(member, database_url, tmp_path)
    rows = await decided(ledger, stream, "adopted")
    print(
        f"{len(before):,} pods on {len(nodes()):,} nodes, {len(wanted):,} adopted by {len(rows):,}"
        f" decisions; {decisions:,} replayed"
    )
    member.kubectl("delete", "namespace", HOME, "--wait=false")
    member.kubectl("delete", "node", *nodes())


def _later_is_bound(member: Member) -> bool:
    found = member.items("pods", "-n", HOME, "-l", "app=later")
    return bool(found) and all(one["spec"].get("nodeName") for one in found)


def _new(member: Member, before: dict[str, str]) -> dict[str, str]:
    return {uid: on for uid, on in placed_by_kubectl(member).items() if uid not in before}


async def adopted(ledger: Ledger, stream: str) -> dict[str, str]:
    """uid -> node, of all adoptions; a pod that is adopted twice is an error."""
    found: dict[str, str] = {}
    for row in await decided(ledger, stream, "adopted"):
        data = row.data()
        assert isinstance(data, ReplicasAdopted)
        assert data.why == "already-there"
        for share in data.placed:
            for uid in share.pods:
                assert uid not in found
                found[uid] = share.node
    return found


async def placed(ledger: Ledger, stream: str) -> dict[str, str]:
    """uid -> node, of all that was placed."""
    rows = [row.data() for row in await decided(ledger, stream, "placed")]
    return {
        uid: share.node
        for data in rows
        if isinstance(data, ReplicasPlaced)
        for share in data.placed
        for uid in share.pods
    }
