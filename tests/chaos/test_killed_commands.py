"""kill -9 of the scheduler in every step of a command that takes a node away: it is carried to its
end, and nothing of it twice.

One big node holds what a small one would. The budget of the workload lets one replica go at a time
and no kubelet tells of any, so that between two moves there is time to be killed in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.planes import assert_whole, kill, ledger_decisions, until

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.long]

TYPES = """\
instance_type,arch,cpu,memory,pods,overhead_cpu,overhead_memory,zone,capacity_type,price_per_hour
small,amd64,2,8Gi,58,0,0,a,on-demand,0.1
big,amd64,8,32Gi,110,0,0,a,on-demand,0.38
"""

CLUSTER = """\
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: dock}
spec: {syncMode: Pull}
status:
  kubernetesVersion: v1.34.1
  apiEnablements:
    - groupVersion: v1
      resources: [{name: pods, kind: Pod}]
    - groupVersion: apps/v1
      resources: [{name: deployments, kind: Deployment}]
---
apiVersion: v1
kind: Node
metadata:
  name: big-0
  labels:
    wharfinger.io/cluster: dock
    kubernetes.io/hostname: big-0
    kubernetes.io/arch: amd64
    karpenter.sh/nodepool: berths
    karpenter.sh/capacity-type: on-demand
    karpenter.sh/initialized: "true"
    node.kubernetes.io/instance-type: big
    topology.kubernetes.io/zone: a
status:
  allocatable: {cpu: "8", memory: 32Gi, pods: "110"}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: web
  namespace: shop
  labels: {wharfinger.io/cluster: dock}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app: web}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: shop}
spec:
  resourceSelectors:
    - {apiVersion: apps/v1, kind: Deployment}
  placement:
    clusterAffinity: {clusterNames: [dock]}
    replicaScheduling: {replicaSchedulingType: Duplicated}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  replicas: 4
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
        - name: main
          image: registry.example.com/web:1
          resources:
            requests: {cpu: 450m, memory: 1Gi}
"""

POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: berths
  annotations: {wharfinger.io/instance-types: dock}
spec:
  template:
    spec:
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
  disruption:
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: 0s
    budgets:
      - {nodes: 100%}
"""

REPLICAS = 4

Decided = dict[str, list[dict[str, Any]]]


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlaneUnderTest]:
    monkeypatch.setenv("WHARFINGER_DISRUPTION_POLL_S", "1")
    monkeypatch.setenv("WHARFINGER_DISRUPTION_VALIDATION_S", "1")
    with a_plane() as plane:
        plane.up("--processes", "each")
        yield plane


def decided(plane: PlaneUnderTest) -> Decided:
    """By kind."""
    found: Decided = defaultdict(list)
    for decision in ledger_decisions(plane):
        found[decision["type"].removeprefix("io.wharfinger.").removesuffix(".v1")].append(
            decision["data"]
        )
    return found


def kill_the_scheduler(plane: PlaneUnderTest) -> None:
    def pid() -> int:
        return int(plane.json("status")["processes"].get("scheduler", {}).get("pid") or 0)

    until(lambda: pid() and psutil.pid_exists(pid()))
    kill(pid())


def moved(known: Decided) -> int:
    return sum(d["reason"] == "Consolidated" for d in known["replicas.released"])


def test_a_command_is_carried_to_its_end_over_the_death_of_its_scheduler_in_every_step(
    plane: PlaneUnderTest, tmp_path: Path
) -> None:
    (tmp_path / "types.csv").write_text(TYPES)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "pool.yaml").write_text(POOL)
    plane.command("import", "instance-types", str(tmp_path / "types.csv"), "--name", "dock")
    plane.command("apply", "-f", str(tmp_path / "cluster.yaml"))
    until(lambda: decided(plane)["replicas.placed"])
    plane.command("apply", "-f", str(tmp_path / "pool.yaml"))

    until(lambda: decided(plane)["disruption.decided"])
    kill_the_scheduler(plane)  # decided, and its replacement has not come
    plane.command("provide", "--delay", "0", "--once")
    until(lambda: moved(decided(plane)) >= 1)
    assert moved(decided(plane)) < REPLICAS
    kill_the_scheduler(plane)  # some of it has moved
    until(lambda: moved(decided(plane)) == REPLICAS)
    kill_the_scheduler(plane)  # all of it has, and the node may go
    until(lambda: decided(plane)["disruption.ended"])
    kill_the_scheduler(plane)  # and it is over
    plane.command("provide", "--delay", "0", "--once")

    known = decided(plane)
    (command,), (end,) = known["disruption.decided"], known["disruption.ended"]
    assert (end["command"], end["outcome"], end["moved"]) == (command["command"], "done", REPLICAS)
    assert end["realised"] == 280_000_000
    assert [d["node"] for d in known["node-removal.decided"]] == ["big-0"]
    (claim,) = known["node-claim.requested"]
    placed = [
        (share["node"], o)
        for d in known["replicas.placed"]
        for share in d["placed"]
        for o in share["ordinals"]
    ]
    assert sorted(placed) == sorted(
        (node, o) for node in ("big-0", claim["claim"]) for o in range(REPLICAS)
    )
    assert_whole(plane)
