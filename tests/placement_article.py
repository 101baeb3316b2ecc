"""The three worked examples of Open Cluster Management's guide to placement, as manifests to apply
and what must come of each step.

Three clusters are there, then a fourth comes with as much memory as the largest, then it has
clearly more. The examples differ in what memory and steadiness weigh. Memory is in GiB; totals are
of the clusters that are selected.
"""

from __future__ import annotations

from dataclasses import dataclass

NAMESPACE = "ns1"

_SET = f"""\
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata:
  name: global
spec:
  clusterSelector:
    selectorType: LabelSelector
    labelSelector: {{}}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata:
  name: global
  namespace: {NAMESPACE}
spec:
  clusterSet: global
"""

_CLUSTER = """\
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata:
  name: {name}
spec:
  hubAcceptsClient: true
status:
  allocatable:
    memory: {gi}Gi
  capacity:
    memory: {gi}Gi
"""

_PLACEMENT = """\
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata:
  name: {name}
  namespace: {namespace}
spec:
  numberOfClusters: 2
  prioritizerPolicy:
    configurations:
{configurations}"""

_MEMORY, _STEADY = "ResourceAllocatableMemory", "Steady"


def cluster(name: str, gi: int) -> str:
    return _CLUSTER.format(name=name, gi=gi)


def placement(name: str, **weights: int) -> str:
    configurations = "".join(
        (
            f"      - weight: {weight}\n        scoreCoordinate:\n          type: BuiltIn\n"
            f"          builtIn: {builtin}\n"
        )
        for builtin, weight in weights.items()
    )
    return _PLACEMENT.format(name=name, namespace=NAMESPACE, configurations=configurations)


@dataclass(frozen=True)
class Step:
    """`files`: to be applied one after the other; what is in one comes in any order. `totals`: of
    the clusters that are selected from then on; None: nothing may be decided."""

    says: str
    files: tuple[str, ...]
    totals: dict[str, int] | None


@dataclass(frozen=True)
class Example:
    name: str
    steps: tuple[Step, ...]

    @property
    def key(self) -> str:
        return f"{NAMESPACE}/{self.name}"


def _example(
    name: str,
    weights: dict[str, int],
    first: dict[str, int],
    equal: dict[str, int] | None,
    more: dict[str, int] | None,
) -> Example:
    fleet = "---\n".join(
        [_SET, *(cluster(f"cluster{i}", gi) for i, gi in ((1, 60), (2, 80), (3, 100)))]
    )
    return Example(
        name,
        (
            Step("three clusters", (fleet, placement(name, **weights)), first),
            Step("a fourth with as much as the third", (cluster("cluster4", 100),), equal),
            Step("the fourth has clearly more", (cluster("cluster4", 150),), more),
        ),
    )


EXAMPLES = (
    _example(
        "memory",
        {_MEMORY: 1},
        {"cluster2": 100, "cluster3": 200},
        None,
        {"cluster3": 189, "cluster4": 200},
    ),
    _example(
        "memory-first",
        {_MEMORY: 3},
        {"cluster2": 100, "cluster3": 400},
        {"cluster3": 500, "cluster4": 400},
        None,
    ),
    _example(
        "steady-first", {_MEMORY: 1, _STEADY: 3}, {"cluster2": 100, "cluster3": 200}, None, None
    ),
)
