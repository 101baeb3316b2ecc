"""One cluster as the input of descheduling: nodes, pods and measurements.

The caller makes a `ClusterView`; it is read only, and pods and nodes are processed in its order.
`DeschedulingCluster` is the index that a pass builds from it: pods by node, owner and namespace,
with budgets and priorities resolved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.selectors import LabelSelector
from wharfinger.engine.framework.snapshot import requested
from wharfinger.engine.load.node_loads import LoadBook

NOTHING_KNOWN = PodUpkeep()
ENDED = ("Succeeded", "Failed")
"""Phases of pods that have ended: they use no resources of their node."""

BINDING = "Binding"
"""The owner kind of a replica of ours for which the cluster reports no owner."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Holds the measured usage of nodes and pods. `nodes`: node -> resource -> milli-CPU or bytes;
    `pods`: the same by pod uid; `shares`: query -> node -> used part of the capacity, 0..1. A
    missing entry means that the value is not known."""

    nodes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Holds one cluster as the input of descheduling.

    `pods`: all pods on nodes; our placed replicas have `binding` and `ordinal`. `priority_classes`:
    name -> value. `measured`: None if nothing is measured. `load`: the load book of the cluster,
    used by crane's watermarks, and for measured usage where `measured` has none. `held`: pod uid ->
    why no strategy may evict this pod at present. `finished`: pods that have ended and still exist
    as objects, besides those of `pods`. They use nothing of their nodes, so an eviction only
    removes the object. `at`: now, in microseconds.
    """

    at: int
    nodes: Sequence[Node]
    pods: Sequence[Pod]
    objects: ClusterObjects = field(default_factory=ClusterObjects)
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    measured: Measured | None = None
    load: LoadBook | None = None
    held: Mapping[str, str] = field(default_factory=dict)
    finished: Sequence[Pod] = ()


def upkeep(pod: Pod) -> PodUpkeep:
    return pod.upkeep or NOTHING_KNOWN


def owners(pod: Pod) -> tuple[Owner, ...]:
    """Returns the owners of the pod, which would recreate it. A replica of ours without a reported
    owner gets its binding as the owner."""
    told = upkeep(pod).owners
    if told or not pod.binding:
        return told
    return (Owner(BINDING, pod.binding, pod.binding),)


def workload(pod: Pod) -> str:
    """Returns one name for all pods of the same workload: the binding, the first owner, or else the
    pod itself."""
    if pod.binding:
        return f"{BINDING}/{pod.binding}"
    for owner in upkeep(pod).owners[:1]:
        return f"{owner.kind}/{pod.requirements.traits.home}/{owner.name}"
    return f"Pod/{pod.uid}"


Group = tuple[str, tuple[tuple[str, str], ...]]
"""Namespace and labels. A selector matches all pods with equal ones or none of them."""


def group_of(pod: Pod) -> Group:
    traits = pod.requirements.traits
    return traits.home, tuple(sorted(traits.labels.items()))


def ended(pod: Pod) -> bool:
    return upkeep(pod).phase in ENDED


def allocatable(node: Node) -> dict[str, int]:
    """Returns the allocatable amounts of a node, including the number of devices of each kind."""
    amounts = dict(node.allocatable)
    for device in node.devices:
        amounts[device.kind] = amounts.get(device.kind, 0) + 1
    return amounts


QUALITY = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


def quality(pod: Pod) -> int:
    """Returns the rank of the pod's QoS class: 0 BestEffort, 1 Burstable, 2 Guaranteed. If the
    class is not reported: 1 if the pod requests anything, else 0."""
    said = QUALITY.get(upkeep(pod).quality)
    return said if said is not None else int(not pod.requirements.empty)


@dataclass(slots=True)
class DeschedulingCluster:
    """Indexes a `ClusterView` for the strategies of one pass.

    `nodes`: the ready nodes that the policy selects. `running`: node -> its pods that have not
    ended; `lying`: node -> all its pods, the finished ones last. `finished`: uid -> finished pod,
    of `ClusterView.finished`. `requests`: pod uid -> resource -> requested amount.
    `owned`: owner uid -> number of its pods. `namespaces`: name -> labels.
    """

    view: ClusterView
    nodes: list[Node]
    running: dict[str, list[Pod]]
    lying: dict[str, list[Pod]]
    requests: dict[str, dict[str, int]]
    owned: dict[str, int]
    namespaces: dict[str, Mapping[str, str]]
    finished: dict[str, Pod] = field(default_factory=dict)

    @classmethod
    def of(cls, view: ClusterView, selector: LabelSelector | None = None) -> DeschedulingCluster:
        """Builds the index that strategies read: the ready nodes, the pods on each of them, the
        requests of each pod, and the number of pods of each owner. Takes one loop over the pods of
        `view`.

        `selector`: only ready nodes with matching labels are in the index, so pods leave and enter
          only these nodes; None: all ready nodes. The number of pods per owner counts the pods of
          all nodes.
        """
        nodes = [
            node
            for node in view.nodes
            if node.ready and (selector is None or selector.matches(node.labels))
        ]
        lying: dict[str, list[Pod]] = {node.name: [] for node in nodes}
        owned: dict[str, int] = defaultdict(int)
        sizes: dict[int, dict[str, int]] = {}
        requests: dict[str, dict[str, int]] = {}
        for pod in view.pods:
            for owner in owners(pod):
                owned[owner.uid] += 1
            if pod.node not in lying:
                continue
            lying[pod.node].append(pod)
            size = sizes.get(id(pod.requirements))
            if size is None:  # pods of a workload share one value, and a view outlives its pass
                size = sizes[id(pod.requirements)] = requested(pod.requirements)
            requests[pod.uid] = size
        running = {name: [pod for pod in pods if not ended(pod)] for name, pods in lying.items()}
        finished = {pod.uid: pod for pod in view.finished if pod.node in lying}
        for pod in finished.values():
            lying[pod.node].append(pod)
        labels: dict[str, Mapping[str, str]] = {n.name: n.labels for n in view.objects.namespaces}
        return cls(view, nodes, running, lying, requests, owned, labels, finished)

    def on(self, node: Node, ended_too: bool = False) -> list[Pod]:
        return self.lying[node.name] if ended_too else self.running[node.name]

    def everywhere(self) -> list[Pod]:
        """Returns the running pods of all nodes, node by node."""
        return [pod for node in self.nodes for pod in self.running[node.name]]
