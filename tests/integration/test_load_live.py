"""Measured load on a whole plane: a real Prometheus, the annotator, the topic, the cluster stage,
the explanation."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.integration.test_node_load import (
    CPU,
    MEMORY,
    Machines,
    a_prometheus,
    an_exporter,
    needs_prometheus,
)
from tests.planes import until

pytestmark = [pytest.mark.integration, pytest.mark.long, needs_prometheus]

LOADS = {"10.0.0.1:9100": (0.9, 0.3), "10.0.0.2:9100": (0.3, 0.3), "10.0.0.3:9100": (0.1, 0.3)}
NODES = ("busy", "calm", "idle")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneUnderTest]:
    with (
        an_exporter(Machines(LOADS)) as exporter,
        a_prometheus(tmp_path_factory.mktemp("prometheus"), exporter) as url,
        pytest.MonkeyPatch.context() as environment,
        a_plane() as plane,
    ):
        environment.setitem(os.environ, "WHARFINGER_PROMETHEUS_URL", url)
        plane.up()
        yield plane


def applied(plane: PlaneUnderTest, directory: Path, *manifests: str) -> None:
    path = directory / "manifests.yaml"
    path.write_text("\n---\n".join(manifests))
    plane.command("apply", "-f", str(path))


def a_node(name: str, address: str) -> str:
    return f"""
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{wharfinger.io/cluster: oslo}}}}
status:
  allocatable: {{cpu: "64", memory: 256Gi, pods: "200"}}
  addresses: [{{type: InternalIP, address: {address}}}]"""


CLUSTER = """
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: oslo}"""

POLICIES = f"""
apiVersion: scheduler.policy.crane.io/v1alpha1
kind: DynamicSchedulerPolicy
spec:
  syncPolicy: [{{name: {CPU}, period: 2s}}, {{name: {MEMORY}, period: 2s}}]
  predicate: [{{name: {CPU}, maxLimitPecent: 0.65}}]
  priority: [{{name: {CPU}, weight: 1}}]
  hotValue: [{{timeRange: 5m, count: 5}}, {{timeRange: 1m, count: 2}}]
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {{name: all, namespace: shop}}
spec:
  resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment}}]
  placement: {{}}"""


def a_workload(name: str, replicas: int) -> str:
    return f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: shop}}
spec:
  replicas: {replicas}
  template: {{spec: {{
    containers: [{{name: c, resources: {{requests: {{cpu: 10m, memory: 16Mi}}}}}}]}}}}"""


def measured(plane: PlaneUnderTest) -> dict[str, str]:
    """Node -> what is written of its processor; nothing before the plane knows the cluster."""
    try:
        shown = plane.command("get", "nodeannotations", "--cluster", "oslo", "-o", "json")
    except RuntimeError as missing:
        if "no stream of decisions is named cluster/oslo" not in str(missing):
            raise
        return {}
    found = json.loads(shown)
    said = {node["metadata"]["name"]: node["metadata"]["annotations"] for node in found["items"]}
    return {name: annotations[CPU] for name, annotations in said.items() if CPU in annotations}


def placed(plane: PlaneUnderTest, name: str) -> dict[str, Any]:
    lines = plane.command("decisions", "--stream", "cluster/oslo", "-o", "json").splitlines()
    every = [d for d in map(json.loads, lines) if d["subject"] == f"shop/{name}-deployment"]
    return every[-1]["data"] if every else {}


def nodes_of(plane: PlaneUnderTest, name: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for share in placed(plane, name).get("placed", ()):
        found[share["node"]] += len(share["ordinals"])
    return found


def test_a_hot_node_is_avoided_and_a_burst_is_spread(plane: PlaneUnderTest, tmp_path: Path) -> None:
    nodes = [a_node(name, f"10.0.0.{i + 1}") for i, name in enumerate(NODES)]
    applied(plane, tmp_path, CLUSTER, *nodes, POLICIES)
    until(lambda: len(measured(plane)) == 3)
    assert float(measured(plane)["busy"].partition(",")[0]) > 0.8

    applied(plane, tmp_path, a_workload("web", 16))
    until(lambda: nodes_of(plane, "web").total() == 16)
    web = nodes_of(plane, "web")
    assert web["busy"] == 0
    assert web["calm"] >= 4
    explained = placed(plane, "web")["explanation"]
    assert explained["refused"] == {"LoadTooHigh": 1}
