"""What one scheduling cycle reads: every node with the pods on it, and the cluster's other objects.

Sums per node are kept as pods come and go, so that a plugin never adds up pods. A copy of a node (`NodeInfo.copy`) is what
preemption tries things on; the snapshot itself changes only by `Snapshot.add` and `remove`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.workload import Workload
from wharfinger.engine.load.book import LoadView

STAND_IN_CPU_MILLI = 100
STAND_IN_MEMORY = 200 * 2**20
"""What a container counts for that requests none, in the scoring of resources and nowhere else."""


def requested(requirements: Requirements) -> dict[str, int]:
    """What the pod takes of a node: its requests, its whole devices by kind (a share of a device is none of it: see
    `engine.devices`), and one of `pods`."""
    amounts = dict(requirements.requests)
    for device in requirements.devices:
        if device.milli >= 1000:
            amounts[device.kind] = amounts.get(device.kind, 0) + device.count
    amounts["pods"] = 1
    return amounts


def scored(requirements: Requirements) -> tuple[int, int]:
    """cpu (milli) and memory (bytes) as the scoring of resources counts them."""
    said = requirements.traits.scored or requirements.requests
    return said.get("cpu", STAND_IN_CPU_MILLI), said.get("memory", STAND_IN_MEMORY)


@dataclass(slots=True)
class NodeInfo:
    """One node. `allocatable`: amounts, whole devices by kind among them. `requested`: what its pods take of those; `scored_cpu`,
    `scored_memory`: the same as scoring counts it. `pods` in order of arrival."""

    node: Node
    allocatable: dict[str, int]
    pods: list[Pod] = field(default_factory=list)
    requested: dict[str, int] = field(default_factory=dict)
    scored_cpu: int = 0
    scored_memory: int = 0

    @classmethod
    def of(cls, node: Node, pods: Iterable[Pod] = ()) -> NodeInfo:
        allocatable = dict(node.allocatable)
        for device in node.devices:
            allocatable[device.kind] = allocatable.get(device.kind, 0) + 1
        info = cls(node, allocatable)
        for pod in pods:
            info.add(pod)
        return info

    @property
    def name(self) -> str:
        return self.node.name

    def add(self, pod: Pod) -> None:
        self.pods.append(pod)
        self._count(pod, 1)

    def remove(self, pod: Pod) -> None:
        """By uid. Raises KeyError where no such pod is here."""
        at = next((i for i, p in enumerate(self.pods) if p.uid == pod.uid), None)
        if at is None:
            raise KeyError(pod.uid)
        self._count(self.pods.pop(at), -1)

    def _count(self, pod: Pod, sign: int) -> None:
        for name, amount in requested(pod.requirements).items():
            self.requested[name] = self.requested.get(name, 0) + sign * amount
        cpu, memory = scored(pod.requirements)
        self.scored_cpu += sign * cpu
        self.scored_memory += sign * memory

    def copy(self) -> NodeInfo:
        return NodeInfo(
            self.node, self.allocatable, list(self.pods), dict(self.requested), self.scored_cpu, self.scored_memory
        )


@dataclass(slots=True)
class Snapshot:
    """`nodes` in order of name. `load`: what is measured of them, None: nothing is. `demand`: what is typically asked
    for, None: nobody has counted (see `engine.devices`)."""

    nodes: dict[str, NodeInfo]
    objects: ClusterObjects = field(default_factory=ClusterObjects)
    load: LoadView | None = None
    demand: Workload | None = None

    @classmethod
    def of(cls, nodes: Iterable[Node], pods: Iterable[Pod], objects: ClusterObjects | None = None) -> Snapshot:
        """Pods on no node, or on one that is not there, are left out."""
        infos = {node.name: NodeInfo.of(node) for node in sorted(nodes, key=lambda n: n.name)}
        for pod in pods:
            if pod.node in infos:
                infos[pod.node].add(pod)
        return cls(infos, objects or ClusterObjects())

    def add(self, pod: Pod) -> None:
        self.nodes[pod.node].add(pod)
        if self.load is not None:
            self.load.came(pod.node)

    def remove(self, pod: Pod) -> None:
        self.nodes[pod.node].remove(pod)
        if self.load is not None:
            self.load.came(pod.node, -1)

    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        return {n.name: n.labels for n in self.objects.namespaces}
