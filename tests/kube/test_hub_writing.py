"""Decisions of the fleet are written to a hub of Karmada and Open Cluster Management, and what
others write there is never lost. Strict validation is on in each request."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.kube.acting import Audit, a_plane, grant, join_hub
from tests.kube.member import Json, Member, namespace
from tests.kube.replaying import replayed_without_server
from tests.kube.test_hub import CRDS, binding
from tests.patience import eventually

from wharfinger.domain.actuation import Verb
from wharfinger.history.fleet_shadow import fleet_shadow
from wharfinger.manifests.ocm import DISABLED
from wharfinger.manifests.wharfinger.options import DRIFT, SCHEDULER
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.rights import actuator_rules, own_rules
from wharfinger.runtime.kube.watched import HUB_WATCHED
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.stages.actuator.hub import APPLIED_PLACEMENT

PLACE = "hub"
OURS = "wharfinger"
VERBS: tuple[Verb, ...] = ("karmada", "ocm")


@pytest.fixture
def hub(members: list[Member]) -> Member:
    """The last of the clusters, with the definitions of both systems and none of their objects."""
    hub = members[-1]
    hub.kubectl("apply", "--server-side", "-f", str(CRDS))
    hub.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    hub.apply(namespace(PLACE))
    kinds = [kind.qualified for kind in HUB_WATCHED[1:]]
    for kind in [*kinds, "placementdecisions.cluster.open-cluster-management.io"]:
        hub.kubectl("delete", kind, "--all", "--all-namespaces", "--ignore-not-found")
    return hub


def member_clusters() -> list[Json]:
    """As Karmada and OCM register them: one of each."""
    found: list[Json] = []
    for name in ("north", "south"):
        found.append(
            {
                "apiVersion": "cluster.karmada.io/v1alpha1",
                "kind": "Cluster",
                "metadata": {"name": name},
                "spec": {"syncMode": "Push"},
            }
        )
    return found


def a_binding(name: str, replicas: int, scheduler: str = OURS) -> Json:
    return binding(
        name,
        replicas,
        schedulerName=scheduler,
        placement={
            "clusterAffinity": {"clusterNames": ["north", "south"]},
            "replicaScheduling": {
                "replicaSchedulingType": "Divided",
                "replicaDivisionPreference": "Weighted",
                "weightPreference": {
                    "staticWeightList": [
                        {"targetCluster": {"clusterNames": ["north"]}, "weight": 1},
                        {"targetCluster": {"clusterNames": ["south"]}, "weight": 1},
                    ]
                },
            },
        },
    )


def of_the_whole_cluster() -> Json:
    """An object without namespace and replicas: it goes to all clusters."""
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "reader"}
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ClusterResourceBinding",
        "metadata": {"name": "reader-clusterrole"},
        "spec": {
            "resource": kind,
            "schedulerName": OURS,
            "placement": {"clusterAffinity": {"clusterNames": ["north", "south"]}},
        },
    }


def _everywhere(hub: Member) -> bool:
    (one,) = hub.items("clusterresourcebindings")
    named = {target["name"] for target in one["spec"].get("clusters", [])}
    conditions = one.get("status", {}).get("conditions", [])
    return named == {"north", "south"} and [c["status"] for c in conditions] == ["True"]


def the_binding(hub: Member, name: str) -> Json:
    found: Json = json.loads(
        hub.kubectl("get", "resourcebinding", f"{name}-deployment", "-n", PLACE, "-o", "json")
    )
    return found


def targets(hub: Member, name: str) -> dict[str, int]:
    spec = the_binding(hub, name)["spec"]
    return {one["name"]: one.get("replicas", 0) for one in spec.get("clusters", [])}


def patch(hub: Member, name: str, body: Json, *arguments: str) -> None:
    hub.kubectl(
        "patch",
        "resourcebinding",
        f"{name}-deployment",
        "-n",
        PLACE,
        "--type=merge",
        "-p",
        json.dumps(body),
        *arguments,
    )


def scheduled(hub: Member, name: str) -> bool:
    """By all that Karmada's controllers look at."""
    one = the_binding(hub, name)
    status = one.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    return (
        conditions.get("Scheduled") == "True"
        and status.get("schedulerObservedGeneration") == one["metadata"]["generation"]
    )


async def test_bindings_and_placements_are_written_where_they_are_ours(
    hub: Member, backend: Backend, database_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    grant(hub, VERBS)
    theirs = a_binding("theirs", 4, scheduler="default-scheduler")
    hub.apply(*member_clusters())
    for name in ("north", "south"):
        room = {"allocatable": {"cpu": "100", "memory": "400Gi", "pods": "1000"}}
        status = json.dumps({"status": {"resourceSummary": room}})
        arguments = ("--subresource=status", "--type=merge", "-p", status)
        hub.kubectl("patch", "clusters.cluster.karmada.io", name, *arguments)
    hub.apply(a_binding("web", 4), theirs, of_the_whole_cluster())
    join_hub(tmp_path, hub, VERBS)
    audit = Audit(hub)
    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        await eventually(lambda: targets(hub, "web") == {"north": 2, "south": 2})
        await eventually(lambda: scheduled(hub, "web"))
        await eventually(lambda: _everywhere(hub))
        one = the_binding(hub, "web")
        applied = one["metadata"]["annotations"][APPLIED_PLACEMENT]
        assert json.loads(applied) == one["spec"]["placement"]
        await _others(hub)
        await _placements(hub)
        assert targets(hub, "theirs") == {}
        assert "status" not in the_binding(hub, "theirs")
        await _shadow(hub, database_url)
    # Nothing is written again and again: a decision takes a write of the spec and one of the
    # status, and a conflict one more.
    assert max(Counter(audit.writes()).values()) <= 12
    refused = [call for call in audit.calls() if call["responseStatus"]["code"] in (403, 422, 400)]
    assert refused == []
    assert audit.unused([*actuator_rules(VERBS), *own_rules()]) == []
    assert replayed_without_server(hub, database_url, tmp_path) > 1


async def _others(hub: Member) -> None:
    """Conditions and annotations of others stay; a change of the clusters is accepted until the
    next decision, or undone where the binding says so."""
    condition = {"type": "FullyApplied", "status": "True", "reason": "Applied", "message": ""}
    ours = the_binding(hub, "web")["status"]["conditions"]
    patch(hub, "web", {"status": {"conditions": [*ours, condition]}}, "--subresource=status")
    patch(hub, "web", {"metadata": {"annotations": {"team": "shop"}}})
    patch(hub, "web", {"spec": {"replicas": 6}})
    await eventually(lambda: targets(hub, "web") == {"north": 3, "south": 3})
    await eventually(lambda: scheduled(hub, "web"))
    # Somebody else takes a cluster away.
    body = {"spec": {"clusters": [{"name": "north", "replicas": 6}]}}
    patch(hub, "web", body)
    await asyncio.sleep(1.0)
    assert targets(hub, "web") == {"north": 6}
    patch(hub, "web", {"metadata": {"annotations": {DRIFT: "restore"}}})
    await eventually(lambda: targets(hub, "web") == {"north": 3, "south": 3})
    await eventually(lambda: scheduled(hub, "web"))
    one = the_binding(hub, "web")
    assert "FullyApplied" in {c["type"] for c in one["status"]["conditions"]}
    assert one["metadata"]["annotations"]["team"] == "shop"


PLACEMENT = {
    "apiVersion": "cluster.open-cluster-management.io/v1beta1",
    "kind": "Placement",
    "metadata": {
        "name": "everywhere",
        "namespace": PLACE,
        "annotations": {DISABLED: "true", SCHEDULER: "wharfinger"},
    },
    "spec": {},
}


def managed(name: str) -> list[Json]:
    version = "cluster.open-cluster-management.io"
    return [
        {
            "apiVersion": f"{version}/v1",
            "kind": "ManagedCluster",
            "metadata": {"name": name, "labels": {f"{version}/clusterset": "fleet"}},
            "spec": {"hubAcceptsClient": True},
        }
    ]


def slices(hub: Member) -> dict[str, list[str]]:
    found = hub.items("placementdecisions.cluster.open-cluster-management.io", "-n", PLACE)
    return {
        one["metadata"]["name"]: [
            said["clusterName"] for said in one.get("status", {}).get("decisions", [])
        ]
        for one in found
    }


async def _placements(hub: Member) -> None:
    version = "cluster.open-cluster-management.io"
    undecided: Json = {**PLACEMENT, "metadata": {"name": "theirs", "namespace": PLACE}}
    stray: Json = {
        "apiVersion": f"{version}/v1beta1",
        "kind": "PlacementDecision",
        "metadata": {
            "name": "everywhere-decision-9",
            "namespace": PLACE,
            "labels": {f"{version}/placement": "everywhere"},
        },
    }
    hub.apply(
        {
            "apiVersion": f"{version}/v1beta2",
            "kind": "ManagedClusterSet",
            "metadata": {"name": "fleet"},
            "spec": {},
        },
        {
            "apiVersion": f"{version}/v1beta2",
            "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "fleet", "namespace": PLACE},
            "spec": {"clusterSet": "fleet"},
        },
        *managed("east"),
        stray,
        PLACEMENT,
        undecided,
    )
    await eventually(lambda: slices(hub) == {"everywhere-decision-1": ["east"]})
    hub.apply(*managed("west"))
    await eventually(lambda: slices(hub) == {"everywhere-decision-1": ["east", "west"]})
    await eventually(lambda: _satisfied(hub))


async def _shadow(hub: Member, database_url: str) -> None:
    """What the schedulers of the hub write is compared with what is decided here, and stays."""
    patch(hub, "theirs", {"spec": {"clusters": [{"name": "north", "replicas": 4}]}})
    labels = {"cluster.open-cluster-management.io/placement": "theirs"}
    one: Json = {
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "PlacementDecision",
        "metadata": {"name": "theirs-decision-1", "namespace": PLACE, "labels": labels},
    }
    hub.apply(one)
    chosen = [{"clusterName": name, "reason": ""} for name in ("west", "east")]
    said = json.dumps({"status": {"decisions": chosen}})
    arguments = ("-n", PLACE, "--subresource=status", "--type=merge", "-p", said)
    hub.kubectl("patch", "placementdecision", "theirs-decision-1", *arguments)

    async def verdicts() -> dict[str, str]:
        try:
            report = await fleet_shadow(ledger, "hub")
        except LedgerError:
            return {}
        return {one.name: one.verdict for one in report.decisions}

    ledger = await Ledger.open(database_url, "tests-shadow")
    try:
        expected = {"theirs-deployment": "better", "theirs": "agreed"}
        await eventually(lambda: _are(verdicts, expected))
    finally:
        await ledger.close()
    assert targets(hub, "theirs") == {"north": 4}
    assert slices(hub)["theirs-decision-1"] == ["west", "east"]


async def _are(verdicts: Callable[[], Awaitable[dict[str, str]]], expected: dict[str, str]) -> bool:
    return await verdicts() == expected


def _satisfied(hub: Member) -> bool:
    found = json.loads(hub.kubectl("get", "placement", "everywhere", "-n", PLACE, "-o", "json"))
    status = found.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    return (
        status.get("numberOfSelectedClusters") == 2
        and conditions.get("PlacementSatisfied") == "True"
    )
