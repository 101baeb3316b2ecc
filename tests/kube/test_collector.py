"""The collector against a real API server: the ledger knows what kubectl says, and never less."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

from tests.kube.breaking import Breaking
from tests.kube.collecting import (
    Collecting,
    Known,
    assert_never_fewer,
    collecting,
    node,
    nodes_of,
    pod,
    pods_of,
)
from tests.kube.member import Json, Member, namespace
from tests.patience import eventually

from wharfinger.domain.cluster_objects import NamespaceLabels
from wharfinger.events.cluster_state import NodeImagesObserved
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger

NODES, PODS = 40, 120


def filled(member: Member, place: str, nodes: int = NODES, pods: int = PODS) -> None:
    member.empty()
    member.apply(namespace(place), *(node(f"{place}-n{i}") for i in range(nodes)))
    member.apply(
        *(pod(place, f"p{i}", f"{place}-n{i % nodes}", app=f"a{i % 5}") for i in range(pods))
    )


async def agrees(collector: Known, member: Member) -> bool:
    nodes, pods = await asyncio.to_thread(lambda: (nodes_of(member), pods_of(member)))
    return await collector.nodes() == nodes and await collector.pods() == pods


def changed(member: Member, place: str, chance: Random, times: int) -> None:
    for _ in range(times):
        name = f"{place}-n{chance.randrange(NODES)}"
        match chance.randrange(6):
            case 0:
                member.kubectl("label", "node", name, f"round={chance.random()}", "--overwrite")
            case 1:
                member.kubectl("taint", "node", name, "k=v:NoSchedule", "--overwrite")
            case 2:
                member.kubectl("cordon", name)
            case 3:
                member.kubectl("uncordon", name)
            case 4:
                which = f"p{chance.randrange(PODS)}"
                member.kubectl(
                    "delete", "pod", "-n", place, which, "--ignore-not-found", "--grace-period=0"
                )
            case _:
                which = f"x{chance.randrange(10_000)}"
                member.apply(pod(place, which, name if chance.random() < 0.7 else ""))


async def test_the_ledger_knows_what_kubectl_says(
    member: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """After the start, and again after changes of every kind."""
    place = "facts"
    await asyncio.to_thread(filled, member, place)
    async with collecting(backend, ledger, topic_prefix, tmp_path, member) as collector:
        await eventually(lambda: agrees(collector, member))
        await eventually(collector.clusters)
        (cluster,) = await collector.clusters()
        assert cluster.name == member.name
        assert cluster.zones == ("z1",)
        assert cluster.conditions == {"Ready": "True"}
        await asyncio.to_thread(changed, member, place, Random(1), 40)
        await eventually(lambda: agrees(collector, member))


async def test_broken_connections_never_make_a_cluster_smaller(
    member: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """While connections break and the server is away, every fact has the nodes and pods that were
    there all the time."""
    place = "breaks"
    await asyncio.to_thread(filled, member, place)
    async with (
        Breaking(member) as door,
        collecting(
            backend, ledger, topic_prefix, tmp_path, member, access=door.access
        ) as collector,
    ):
        await eventually(lambda: agrees(collector, member))
        before = set(nodes_of(member))
        for turn in range(6):
            door.cut()
            if turn % 2:
                door.close()
                await asyncio.sleep(0.5)
                door.open()
            await asyncio.to_thread(member.apply, pod(place, f"turn-{turn}", f"{place}-n{turn}"))
        member.restart("kube-apiserver")
        await eventually(lambda: agrees(collector, member))
        await assert_never_fewer(ledger, before, {f"p{i}" for i in range(PODS)})


async def test_a_collector_that_starts_again_takes_back_what_is_gone(
    member: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """A node went while nothing looked: it and its pods are gone from the ledger, too."""
    place = "again"
    await asyncio.to_thread(filled, member, place, 10, 20)
    async with collecting(backend, ledger, topic_prefix, tmp_path, member) as collector:
        await eventually(lambda: agrees(collector, member))
    member.kubectl("delete", "node", f"{place}-n3")
    for which in ("p3", "p13"):
        member.kubectl(
            "delete", "pod", "-n", place, which, "--ignore-not-found", "--grace-period=0", "--force"
        )
    async with collecting(backend, ledger, topic_prefix, tmp_path, member) as collector:
        await eventually(lambda: agrees(collector, member))


async def test_another_cluster_under_the_name_is_said_and_not_read(
    members: list[Member], backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    member = members[0]
    async with collecting(
        backend, ledger, topic_prefix, tmp_path, member, uid="another"
    ) as collector:
        await eventually(lambda: _replaced(collector))
        assert await collector.nodes() == {}


async def _replaced(collector: Collecting) -> bool:
    clusters = await collector.clusters()
    return bool(clusters) and clusters[0].conditions == {"Replaced": "True"}


async def test_quotas_and_other_objects_are_known_as_kubectl_has_them(
    member: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """With what changes and goes. A kind whose last object of a namespace went is told empty."""
    place = "objects"
    await asyncio.to_thread(filled, member, place, 2, 4)
    member.apply(*objects(place))
    async with collecting(backend, ledger, topic_prefix, tmp_path, member) as collector:
        await eventually(lambda: objects_agree(collector, member))
        (quota,) = [q for qs in (await collector.facts()).quotas.values() for q in qs]
        assert quota.hard["requests.cpu"] == 8000
        member.kubectl("delete", "pdb,service", "--all", "-n", place)
        member.kubectl("label", "namespace", place, "tier=gold")
        await eventually(lambda: objects_agree(collector, member))
        facts = await collector.facts()
        assert facts.objects[member.name, "PodDisruptionBudget", place] == ()


async def test_images_on_nodes_are_known_apart_from_the_nodes(
    member: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    place = "images"
    await asyncio.to_thread(filled, member, place, 3, 3)
    image = {"names": ["registry.example/web@sha256:1", "registry.example/web"], "sizeBytes": 7}
    for name in (f"{place}-n0", f"{place}-n2"):
        patch = json.dumps({"status": {"images": [image]}})
        member.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)
    async with collecting(backend, ledger, topic_prefix, tmp_path, member) as collector:
        await eventually(lambda: agrees(collector, member))

        async def known() -> bool:
            facts = (await collector.facts()).of(NodeImagesObserved)
            return {
                image.name: (image.bytes, image.nodes) for f in facts for image in f.images
            } == dict.fromkeys(
                ("registry.example/web@sha256:1", "registry.example/web:latest"),
                (7, (f"{place}-n0", f"{place}-n2")),
            )

        await eventually(known)
        assert not any(node.images for node in (await collector.nodes()).values())


async def objects_agree(collector: Collecting, member: Member) -> bool:
    facts = await collector.facts()
    for kind in ("Namespace", "Service", "PodDisruptionBudget", "StorageClass", "ReplicaSet"):
        listed = {
            (o["metadata"].get("namespace", ""), o["metadata"]["name"])
            for o in await asyncio.to_thread(member.items, kind, "--all-namespaces")
        }
        known = {
            (namespace, found.name)
            for (_, of_kind, namespace), drawer in facts.objects.items()
            if of_kind == kind
            for found in drawer
        }
        if known != listed:
            return False
    labels = {
        found.name: found.labels
        for (_, kind, _), drawer in facts.objects.items()
        if kind == "Namespace"
        for found in drawer
        if isinstance(found, NamespaceLabels)
    }
    told = await asyncio.to_thread(member.items, "namespaces")
    return bool(facts.quotas) and labels == {
        o["metadata"]["name"]: o["metadata"]["labels"] for o in told
    }


def objects(place: str) -> list[Json]:
    def of(api_version: str, kind: str, name: str, spec: Json) -> Json:
        metadata = {"name": name, "namespace": place}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    selector = {"matchLabels": {"app": "a1"}}
    return [
        of("v1", "ResourceQuota", "limits", {"hard": {"requests.cpu": "8"}}),
        of("policy/v1", "PodDisruptionBudget", "keep", {"minAvailable": 1, "selector": selector}),
        of("v1", "Service", "web", {"selector": {"app": "a1"}, "ports": [{"port": 80}]}),
    ]
