"""Shadow beside the real kube-scheduler: it places pods of real manifests, we only read, and on the
same facts each of its choices is one that we score as high as ours. `WHARFINGER_TEST_SHADOW_PODS`
says how many pods there are; with 2,000 the nodes become full. `WHARFINGER_TEST_SHADOW_LIVE_PODS`
says how many a plane of real processes compares."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from benchmarks.plane import a_plane
from infra.kube.cluster import kube_scheduler
from tests.backends import fresh_database
from tests.kube.collecting import Known
from tests.kube.member import Json, Member, namespace
from tests.patience import eventually, until
from tests.told_plane import ToldPlane, a_cluster

from wharfinger.domain.node import Pod
from wharfinger.events.cluster_state import ObjectsObserved, PodsObserved, into_buckets
from wharfinger.history.shadow import ShadowReport, shadow
from wharfinger.manifests.kubernetes.cluster_objects import ServiceManifest
from wharfinger.manifests.kubernetes.core import NodeManifest, PodManifest, pod_of
from wharfinger.manifests.model import OPEN
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.joined import JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import Access, read_kubeconfig
from wharfinger.runtime.kube.reflector import Reflector
from wharfinger.runtime.kube.rights import ACCOUNT, NAMESPACE, collector_rights
from wharfinger.runtime.ledger import Ledger

HOME = "shadowed"
NODES = 60
NODE_NAMES = [f"shadow-{i:02}" for i in range(NODES)]
"""Below a hundred kube-scheduler looks at every node."""
PODS = int(os.environ.get("WHARFINGER_TEST_SHADOW_PODS", "300"))
LIVE_PODS = int(os.environ.get("WHARFINGER_TEST_SHADOW_LIVE_PODS", "40"))
"""With a collector and a plane of real processes."""
READS = ("get", "list", "watch")
RELEASE = (1, 36)
"""Of the programs in infra/kube/go.mod."""
DECODE = msgspec.json.Decoder(dict[str, Any]).decode
DATA = Path(os.environ.get("WHARFINGER_DATA") or Path(__file__).parents[3] / "shared" / "data")


# --- the cluster


def a_node(i: int, chance: Random) -> Json:
    name = f"shadow-{i:02}"
    zone = "abc"[i % 3]
    size = {"cpu": chance.choice(["4", "8", "16"]), "memory": chance.choice(["8Gi", "32Gi"])}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
    if i % 4 == 0:
        labels["disk"] = "ssd"
    taints: list[Json] = []
    if i % 10 == 3:
        taints = [{"key": "dedicated", "value": "lab", "effect": "NoSchedule"}]
    if i % 10 == 6:
        taints = [{"key": "old", "effect": "PreferNoSchedule"}]
    room = {**size, "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": room, "capacity": room},
    }


def templates() -> list[Json]:
    """Pod templates of manifests as projects ship them, without what a cluster alone could give."""
    file = DATA / "k8s_manifests" / "manifests.jsonl"
    if not file.exists():
        pytest.skip(f"manifests not at {file} (set WHARFINGER_DATA)")
    found = [json.loads(line)["object"] for line in file.read_text().splitlines()]
    wanted = {("v1", "Pod"), ("apps/v1", "Deployment"), ("batch/v1", "Job")}
    pods = [_template(o) for o in found if (o["apiVersion"], o["kind"]) in wanted and "spec" in o]
    kept = [pod for pod in pods if not _needs_more(pod["spec"])]
    assert len(kept) >= 15
    return kept


def _template(manifest: Json) -> Json:
    pod: Json = manifest if manifest["kind"] == "Pod" else manifest["spec"]["template"]
    return {"metadata": {"labels": pod.get("metadata", {}).get("labels", {})}, "spec": pod["spec"]}


def _needs_more(spec: Json) -> bool:
    claims = any("persistentVolumeClaim" in volume for volume in spec.get("volumes", ()))
    named = spec.get("schedulerName", "default-scheduler") != "default-scheduler"
    return claims or named or "priorityClassName" in spec or "resourceClaims" in spec


def a_pod(i: int, base: Json, chance: Random) -> Json:
    """One of the templates, with what its users might say of where it goes."""
    pod = deepcopy(base)
    spec, labels = pod["spec"], dict(pod["metadata"]["labels"])
    for key in ("serviceAccountName", "serviceAccount", "nodeName"):
        spec.pop(key, None)
    labels["app"] = app = chance.choice(["web", "db", "batch"])
    for container in spec["containers"]:
        if chance.random() < 0.8:
            container["resources"] = {
                "requests": {
                    "cpu": chance.choice(["50m", "100m", "250m", "700m"]),
                    "memory": chance.choice(["64Mi", "200Mi", "1Gi"]),
                }
            }
    same = {"matchLabels": {"app": app}}
    zone, host = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
    match chance.randrange(8):
        case 0:
            hard = chance.choice(["DoNotSchedule", "ScheduleAnyway"])
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": zone,
                    "whenUnsatisfiable": hard,
                    "labelSelector": same,
                }
            ]
        case 1:
            term = {"weight": 50, "podAffinityTerm": {"topologyKey": zone, "labelSelector": same}}
            spec["affinity"] = {
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
            }
        case 2:
            term = {"weight": 80, "podAffinityTerm": {"topologyKey": host, "labelSelector": same}}
            spec["affinity"] = {
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
            }
        case 3:
            wants = [{"key": "disk", "operator": "In", "values": ["ssd"]}]
            spec["affinity"] = {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 10, "preference": {"matchExpressions": wants}}
                    ]
                }
            }
        case 4:
            spec["nodeSelector"] = {"disk": "ssd"}
        case 5:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        case 6 if chance.random() < 0.3:
            # nothing is so large: it waits for ever
            spec["containers"][0]["resources"] = {"requests": {"cpu": "64"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{i:04}", "namespace": HOME, "labels": labels},
        "spec": spec,
    }


SERVICE: Json = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": HOME},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}


@pytest.fixture(scope="module")
def scheduled(members: Sequence[Member]) -> Iterator[Member]:
    """A cluster with nodes and its own scheduler, which ends with the tests of this file."""
    member = members[-1]
    chance = Random(7)
    member.empty()
    member.apply(*(a_node(i, chance) for i in range(NODES)), namespace(HOME), SERVICE)
    member.apply(*collector_rights())
    with kube_scheduler(member.directory):
        yield member
        member.kubectl("delete", "namespace", HOME, "--wait=false")
        member.kubectl("delete", "node", *NODE_NAMES)
        member.kubectl("delete", "clusterrolebinding,clusterrole", ACCOUNT)


# --- what is read of it


class SeenPods:
    """A sink: the newest state of every pod of the namespace."""

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}

    def replace(self, objects: Sequence[Json], version: str) -> None:
        self.pods = {o["metadata"]["name"]: o for o in objects}

    def upsert(self, object_: Json, version: str) -> None:
        self.pods[object_["metadata"]["name"]] = object_

    def remove(self, object_: Json, version: str) -> None:
        del self.pods[object_["metadata"]["name"]]

    def alive(self, version: str) -> None: ...

    def broken(self, why: str) -> None: ...

    def decided(self, name: str) -> bool:
        """On a node, or said to fit nowhere."""
        pod = self.pods.get(name)
        conditions = {} if pod is None else pod["status"].get("conditions", [])
        return bool(pod and pod["spec"].get("nodeName")) or any(
            c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions
        )

    def facts(self, *nodes: str) -> list[PodsObserved]:
        found: dict[str, list[Pod]] = {node: [] for node in nodes}
        for _, raw in sorted(self.pods.items()):
            node = raw["spec"].get("nodeName", "")
            if node in found:
                model = PodManifest.model_validate(raw, context=OPEN)
                found[node].append(pod_of(model, pending=not node))
        return [PodsObserved("oslo", node, tuple(pods)) for node, pods in found.items()]


@asynccontextmanager
async def watched(access: Access) -> AsyncIterator[SeenPods]:
    seen = SeenPods()
    async with KubeApi(access) as api:
        path = f"/api/v1/namespaces/{HOME}/pods"
        task = asyncio.create_task(Reflector(api, path, DECODE, seen).run())
        try:
            yield seen
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


Tell = Callable[[SeenPods, str], Awaitable[None]]
"""The pods on this node, or those without one, have changed."""


async def lived(member: Member, access: Access, pods: int, tell: Tell) -> set[str]:
    """The pods are created one after the other, as each is decided; some go again. Returns those
    that were on nodes when they were decided, or on the node of a later one: one that waits is
    tried again, and may get its node then."""
    on_nodes: set[str] = set()

    async def changed(node: str) -> None:
        if node:
            on_nodes.update(pod.name for fact in seen.facts(node) for pod in fact.pods)
        await tell(seen, node)

    chance, bases = Random(11), templates()
    async with KubeApi(read_kubeconfig(member.kubeconfig())) as admin, watched(access) as seen:
        path = f"/api/v1/namespaces/{HOME}/pods"
        for i in range(pods):
            pod = a_pod(i, bases[i % len(bases)], chance)
            name = pod["metadata"]["name"]
            await admin.request("POST", path, body=msgspec.json.encode(pod))
            await eventually(lambda name=name: seen.decided(name))
            node = seen.pods[name]["spec"].get("nodeName", "")
            await changed(node)
            if node and chance.random() < 0.05:
                gone = chance.choice(sorted(n for n, p in seen.pods.items() if _node(p)))
                left = _node(seen.pods[gone])
                await admin.request("DELETE", f"{path}/{gone}", {"gracePeriodSeconds": "0"})
                await eventually(lambda gone=gone: gone not in seen.pods)
                await changed(left)
    return on_nodes


async def tell_nodes(member: Member, plane: ToldPlane) -> None:
    there = await asyncio.to_thread(member.await_nodes, NODE_NAMES)
    nodes = [NodeManifest.model_validate(n, context=OPEN).to_domain() for n in there]
    service = ServiceManifest.model_validate(member.items("services", "-n", HOME)[0], context=OPEN)
    await plane.tell(
        a_cluster("oslo"),
        *into_buckets("oslo", nodes, 2),
        ObjectsObserved("oslo", "Service", HOME, (service.to_domain(),)),
    )


def _node(pod: Json) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node


def described(report: ShadowReport) -> Callable[[], str]:
    return lambda: "\n".join(
        f"{one.verdict} {one.name}: {one.theirs} {one.their_score} / {one.ours} {one.our_score}"
        f" {one.plugins} {one.refusals}"
        for one in report.decisions
        if one.verdict not in ("agreed", "equal")
    )


USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"


def reading(member: Member) -> Access:
    """With the printed rights and no other."""
    token = member.kubectl("create", "token", "-n", NAMESPACE, ACCOUNT).strip()
    admin = read_kubeconfig(member.kubeconfig())
    return Access(admin.server, admin.authority, token=token)


async def test_each_choice_of_the_real_scheduler_is_one_of_our_best(
    scheduled: Member, database_server: str, migrated_database: str
) -> None:
    access = reading(scheduled)
    before = len(scheduled.audit(USER))
    with fresh_database(database_server, template=migrated_database) as url:
        plane = await ToldPlane.opened(url)
        try:
            await tell_nodes(scheduled, plane)

            async def tell(seen: SeenPods, node: str) -> None:
                await plane.tell(*seen.facts(node), after_s=0.1)

            on_nodes = len(await lived(scheduled, access, PODS, tell))
            report = await shadow(plane.ledger, "oslo", release=RELEASE)
            again = await shadow(plane.ledger, "oslo", release=RELEASE)
        finally:
            await plane.ledger.close()
    assert report.decisions == again.decisions, "it is made of what was recorded, and of that alone"
    waiting = len([p for p in scheduled.items("pods", "-n", HOME) if not _node(p)])
    assert report.placed == on_nodes >= PODS * 3 // 4
    assert waiting > 0
    counts = dict(report.counts)
    each_ms = report.run_s / report.runs * 1e3
    print(f"{report.placed} placed, {waiting} wait: {counts}, {each_ms:.1f} ms a decision")
    assert counts["refused"] == counts["unplaced"] == 0, described(report)()
    assert counts["better"] == counts["worse"] == 0, described(report)()
    calls = scheduled.audit(USER)[before:]
    assert calls
    assert {call["verb"] for call in calls} <= {"get", "list", "watch"}
    assert not any(call["responseStatus"]["code"] == 403 for call in calls)
    print(f"{len(calls)} requests with our rights, none of them a write")


async def test_a_plane_in_shadow_compares_each_pod_once_and_writes_nothing(
    scheduled: Member,
) -> None:
    """Processes as a user starts them. The next pod comes when the last one is known: facts that
    came later than kube-scheduler had them are listed in docs/deviations.md."""
    scheduled.kubectl("delete", "pods", "--all", "-n", HOME, "--force", "--grace-period=0")
    access, name = reading(scheduled), scheduled.name
    before = len(scheduled.audit(USER))
    with a_plane() as plane:
        store_joined(plane.data_dir / "clusters", JoinedCluster(name, access, "shadow"))
        plane.up()
        until(lambda: len(plane.json("get", "nodes")) == NODES)
        ledger = await Ledger.open(plane.plane()["database_url"], "tests-shadow")
        known = Known(ledger, name)

        async def tell(seen: SeenPods, node: str) -> None:
            async def is_known() -> bool:
                pods = (await known.pods()).values()
                ours = {pod.name for pod in pods if isinstance(pod, Pod) and pod.node == node}
                return ours == {pod.name for fact in seen.facts(node) for pod in fact.pods}

            if node:
                await eventually(is_known)

        try:
            on_nodes = await lived(scheduled, access, LIVE_PODS, tell)
        finally:
            await ledger.close()
        release = ".".join(map(str, RELEASE))
        report = plane.json("shadow", name, "--release", release)
    names = Counter(one["pod"].partition("/")[2] for one in report["decisions"])
    assert {*names} >= on_nodes
    assert set(names.values()) == {1}
    counts = report["counts"]
    print(f"{len(names)} placed: {counts}")
    assert counts["refused"] == counts["unplaced"] == counts["worse"] == 0, report["decisions"]
    calls = scheduled.audit(USER)[before:]
    writes = {(c["verb"], c["objectRef"]["resource"]) for c in calls if c["verb"] not in READS}
    assert writes <= {("create", "selfsubjectaccessreviews")}, "it asks what it may read"
