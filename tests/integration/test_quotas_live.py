"""Quotas of clusters on a whole plane, by the commands a user has: what a namespace may ask for is
kept, freed and explained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.planes import assert_whole, settled, until

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def plane() -> Iterator[PlaneUnderTest]:
    with a_plane() as plane:
        plane.up()
        yield plane


def a_cluster(name: str, cpu: int = 16) -> str:
    return f"""
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
---
apiVersion: v1
kind: Node
metadata: {{name: {name}-n1, labels: {{wharfinger.io/cluster: {name}}}}}
status: {{allocatable: {{cpu: "{cpu}", memory: 64Gi, pods: "110"}}}}
---"""


def a_quota(cluster: str, cpu: int, used: int = 0) -> str:
    return f"""
apiVersion: v1
kind: ResourceQuota
metadata: {{name: compute, namespace: shop, labels: {{wharfinger.io/cluster: {cluster}}}}}
spec: {{hard: {{requests.cpu: "{cpu}"}}}}
status: {{hard: {{requests.cpu: "{cpu}"}}, used: {{requests.cpu: "{used}"}}}}
---"""


def a_federated_quota(cluster: str, cpu: int) -> str:
    return f"""
apiVersion: policy.karmada.io/v1alpha1
kind: FederatedResourceQuota
metadata: {{name: all, namespace: shop}}
spec:
  overall: {{cpu: "100"}}
  staticAssignments: [{{clusterName: {cluster}, hard: {{cpu: "{cpu}"}}}}]
---"""


POLICY = """
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: spread, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement:
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference: {dynamicWeight: AvailableReplicas}
---"""


def a_workload(name: str, replicas: int) -> str:
    return f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: shop}}
spec:
  replicas: {replicas}
  template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: "1"}}}}}}]}}}}
---"""


def tell(plane: PlaneUnderTest, directory: Path, verb: str, *texts: str) -> None:
    path = directory / "manifests.yaml"
    path.write_text("".join(texts).strip().removesuffix("---"))
    plane.command(verb, "-f", str(path))


def last(plane: PlaneUnderTest, binding: str) -> dict[str, Any]:
    lines = plane.command("decisions", "--stream", "fleet", "-o", "json").splitlines()
    every = [json.loads(line) for line in lines]
    return next(
        (d for d in reversed(every) if d["subject"] == binding), {"outcome": "", "data": {}}
    )


def targets(plane: PlaneUnderTest, binding: str) -> dict[str, int]:
    return {t["cluster"]: t["replicas"] for t in last(plane, binding)["data"].get("targets", [])}


def test_what_a_namespace_may_ask_for_in_a_cluster_is_kept(
    plane: PlaneUnderTest, tmp_path: Path
) -> None:
    tell(plane, tmp_path, "apply", a_cluster("oslo"), a_cluster("bergen"))
    tell(plane, tmp_path, "apply", a_quota("oslo", 5, used=2), a_federated_quota("bergen", 4))
    settled(plane)
    tell(plane, tmp_path, "apply", POLICY, a_workload("web", 6))
    until(lambda: sum(targets(plane, "shop/web-deployment").values()) == 6)
    web = targets(plane, "shop/web-deployment")
    assert web["oslo"] <= 3
    assert web["bergen"] <= 4
    settled(plane)
    tell(plane, tmp_path, "apply", a_workload("db", 2))
    until(lambda: last(plane, "shop/db-deployment")["outcome"] == "refused")
    explained = plane.command("explain", "shop/db-deployment", "--all")
    assert "left of the quota shop/" in explained
    tell(plane, tmp_path, "apply", a_federated_quota("bergen", 9))
    until(lambda: sum(targets(plane, "shop/db-deployment").values()) == 2)
    settled(plane)
    assert_whole(plane)
