"""The input of one scheduling cycle: every node with its pods, and the cluster's other objects.

Sums per node are maintained as pods come and go, so that plugins never add up pods. Preemption
works on copies of nodes (`NodeInfo.copy`); the snapshot itself changes only by `Snapshot.add` and
`remove`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.workload import DeviceWorkload
from wharfinger.engine.load.node_loads import LoadView

STAND_IN_CPU_MILLI = 100
STAND_IN_MEMORY = 200 * 2**20
"""In bytes. What a container without a request counts for in resource scores, and only there;
`STAND_IN_CPU_MILLI` is the same for CPU, in milli-CPU."""


def requested(requirements: Requirements) -> dict[str, int]:
    """Return the amounts that the pod requests of a node: its resource requests, its whole devices
    by kind, and 1 of `pods`. Shares of a device are not included (see `engine.devices`)."""
    amounts = dict(requirements.requests)
    for device in requirements.devices:
        if device.milli >= 1000:
            amounts[device.kind] = amounts.get(device.kind, 0) + device.count
    amounts["pods"] = 1
    return amounts


def scored(requirements: Requirements) -> tuple[int, int]:
    """Return (cpu in milli-CPU, memory in bytes) that resource scores assume for the pod. Where the
    pod has no request, the default request counts (`STAND_IN_CPU_MILLI`, `STAND_IN_MEMORY`)."""
    said = requirements.traits.scored or requirements.requests
    return said.get("cpu", STAND_IN_CPU_MILLI), said.get("memory", STAND_IN_MEMORY)


@dataclass(slots=True)
class NodeInfo:
    """A node with its pods and the sums of their requests, updated as pods are added and removed.
    `allocatable`: resource -> amount, including whole devices by kind. `requested`: resource -> sum
    of the pods' requests. `scored_cpu` (milli-CPU), `scored_memory` (bytes): the sums that resource
    scores use, in which a pod without a request counts with a default request. `pods`: in order of
    arrival."""

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
        """Remove the pod with the same uid. Raise KeyError where the node has no such pod."""
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
            self.node,
            self.allocatable,
            list(self.pods),
            dict(self.requested),
            self.scored_cpu,
            self.scored_memory,
        )


@dataclass(slots=True)
class Snapshot:
    """The state of one cluster that a cycle schedules on. `nodes`: name -> node, in order of name.
    `objects`: the cluster's other objects. `load`: measured loads; None: not available. `demand`:
    the typical device requests (see `engine.devices`); None: not available."""

    nodes: dict[str, NodeInfo]
    objects: ClusterObjects = field(default_factory=ClusterObjects)
    load: LoadView | None = None
    demand: DeviceWorkload | None = None

    @classmethod
    def of(
        cls, nodes: Iterable[Node], pods: Iterable[Pod], objects: ClusterObjects | None = None
    ) -> Snapshot:
        """Build a snapshot. A pod without a node, or on an unknown node, is left out."""
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
