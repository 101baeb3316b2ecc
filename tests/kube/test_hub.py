"""Hubs of Karmada, Open Cluster Management and Karpenter on a real API server: the ledger knows
what `apply` would make of the same objects, and what is gone is withdrawn."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest
from tests.kube.collecting import Collecting, collecting
from tests.kube.member import Json, Member, namespace
from tests.patience import eventually

from wharfinger.domain.value import Value, canonical
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.hub_facts import read_hub_object
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.kinds import BY_NAME
from wharfinger.manifests.parse import load_files
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.watched import HUB_WATCHED
from wharfinger.runtime.ledger import Ledger

ROOT = Path(__file__).parents[2]
CRDS = Path(__file__).parent / "crds"
EXAMPLES = ("fleet/clusters.yaml", "policies", "karpenter/nodepool.yaml", "karpenter/overlay.yaml")
STATED = (ClusterObserved, PolicyApplied, BindingRequested)
PLACE = "hub"


@pytest.fixture
def hub(members: list[Member]) -> Member:
    """The last of the clusters, with the definitions of all three systems and none of their
    objects."""
    hub = members[-1]
    hub.kubectl("apply", "--server-side", "-f", str(CRDS))
    hub.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    hub.apply(namespace(PLACE))
    for kind in HUB_WATCHED[1:]:
        hub.kubectl("delete", kind.qualified, "--all", "--all-namespaces", "--ignore-not-found")
    return hub


def binding(name: str, replicas: int, **spec: object) -> Json:
    resource = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": PLACE, "name": name}
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"name": f"{name}-deployment", "namespace": PLACE},
        "spec": {
            "resource": resource,
            "replicas": replicas,
            "replicaRequirements": {"resourceRequest": {"cpu": "250m", "memory": "64Mi"}},
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
            **spec,
        },
    }


def stated(hub: Member) -> dict[str, Value]:
    """What the objects state that kubectl lists, by the kind and key of the fact."""
    found: dict[str, Value] = {}
    for watched in HUB_WATCHED[1:]:
        for document in hub.items(watched.qualified, "--all-namespaces"):
            kind = BY_NAME[watched.group_version, watched.kind]
            for fact in read_hub_object(kind, document).facts:
                if isinstance(fact, STATED):
                    found[_key(fact)] = fact
    return found


async def known(collector: Collecting) -> dict[str, Value]:
    facts = (await collector.facts()).latest.values()
    return {_key(told.data): told.data for told in facts if isinstance(told.data, STATED)}


def _key(fact: Value) -> str:
    match fact:
        case ClusterObserved(cluster=cluster):
            return f"cluster {cluster.name}"
        case PolicyApplied(policy=policy):
            return f"policy {policy.key}"
        case BindingRequested(binding=binding):
            return f"binding {binding.name}"
        case _:
            raise AssertionError(fact)


async def agrees(collector: Collecting, hub: Member) -> bool:
    there, here = await asyncio.to_thread(stated, hub), await known(collector)
    return {k: canonical(v) for k, v in there.items()} == {k: canonical(v) for k, v in here.items()}


async def test_the_ledger_knows_what_a_hub_holds(
    hub: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """After the start, after changes, and after a restart during which objects went."""
    documents = _documents(*(ROOT / "examples" / path for path in EXAMPLES))
    _with_namespaces(hub, documents)
    hub.apply(*(binding(f"web-{i}", i + 1) for i in range(8)))
    async with collecting(backend, ledger, topic_prefix, tmp_path, hub, hub=True) as collector:
        await eventually(lambda: agrees(collector, hub))
        kinds = {key.split()[0] for key in await known(collector)}
        assert kinds == {"cluster", "policy", "binding"}
        hub.apply(binding("web-1", 9, clusters=[{"name": "oslo", "replicas": 9}]))
        hub.kubectl("delete", "-n", PLACE, "resourcebinding", "web-2-deployment")
        hub.kubectl("delete", "nodepool", "--all")
        hub.kubectl("label", "clusters.cluster.karmada.io", "--all", "tier=gold", "--overwrite")
        await eventually(lambda: agrees(collector, hub))
        bindings = {b.name: b for b in (await collector.facts()).bindings}
        (target,) = bindings[f"{PLACE}/web-1-deployment"].clusters
        assert (target.cluster, target.replicas) == ("oslo", 9)
    hub.kubectl("delete", "-n", PLACE, "resourcebinding", "web-3-deployment", "web-4-deployment")
    async with collecting(backend, ledger, topic_prefix, tmp_path, hub, hub=True) as collector:
        await eventually(lambda: agrees(collector, hub))


async def test_fields_of_newer_releases_and_objects_that_cannot_be_read(
    hub: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """The former are named in the binding; the latter keep what was known of them."""
    hub.apply(binding("plain", 2), binding("newer", 3, spreadOverPhases={"every": 3}))
    async with collecting(backend, ledger, topic_prefix, tmp_path, hub, hub=True) as collector:
        await eventually(lambda: agrees(collector, hub))
        bindings = {b.name: b for b in (await collector.facts()).bindings}
        assert bindings[f"{PLACE}/newer-deployment"].unacted == ("spec.spreadOverPhases",)
        hub.apply(binding("plain", 5, placement={"replicaScheduling": "all of them"}))
        hub.apply(binding("other", 1))

        async def other() -> bool:
            return any(
                b.name == f"{PLACE}/other-deployment" for b in (await collector.facts()).bindings
            )

        await eventually(other)
        bindings = {b.name: b for b in (await collector.facts()).bindings}
        assert bindings[f"{PLACE}/plain-deployment"].replicas == 2
        hub.apply(binding("plain", 6))
        await eventually(lambda: agrees(collector, hub))


async def test_placements_of_open_cluster_management(
    hub: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """With scores, which are in the status."""
    documents = _documents(ROOT / "examples" / "ocm")
    _with_namespaces(hub, documents)
    for document in documents:
        if status := document.get("status"):
            where = ["-n", _place(document)] if _place(document) else []
            hub.kubectl(
                "patch",
                document["kind"].lower(),
                document["metadata"]["name"],
                *where,
                "--subresource=status",
                "--type=merge",
                "-p",
                json.dumps({"status": status}),
            )
    async with collecting(backend, ledger, topic_prefix, tmp_path, hub, hub=True) as collector:
        await eventually(lambda: agrees(collector, hub))
        assert any(p.kind == "Placement" for p in (await collector.facts()).policies)


def _documents(*paths: Path) -> list[Json]:
    """Of the files, those whose kinds are read of a hub."""
    kinds = {(watched.group_version, watched.kind) for watched in HUB_WATCHED}
    loaded = load_files(paths)
    assert loaded.errors == ()
    return [
        cast(Json, m.raw)
        for m in loaded.manifests
        if (m.kind.api_version, m.kind.kind) in kinds and m.kind.kind != "Namespace"
    ]


def _with_namespaces(hub: Member, documents: list[Json]) -> None:
    hub.apply(*(namespace(place) for place in sorted({_place(d) for d in documents} - {""})))
    hub.apply(*documents)


def _place(document: Json) -> str:
    return str(document["metadata"].get("namespace", ""))
