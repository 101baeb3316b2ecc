"""One cluster as descheduling looks at it: nodes, what is on them, and what is measured.

Whoever has a book of a cluster makes a `ClusterView`; it is read only, and pods and nodes are taken in the order in
which they are listed there. `Cluster` is what a pass makes of it once: pods by node, by owner and by namespace,
budgets and priorities looked up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.selectors import LabelSelector
from wharfinger.engine.framework.snapshot import requested
from wharfinger.engine.load.book import LoadBook

NOTHING_KNOWN = PodUpkeep()
ENDED = ("Succeeded", "Failed")
"""Phases of pods that run no more: they take nothing of their node."""

BINDING = "Binding"
"""The kind of owner that a replica of ours has, where its cluster has not told of another."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What nodes and pods really use. `nodes`: node -> milli-cpu and bytes; `pods`: the same by uid; `shares`: query
    -> node -> the part of the whole that is used, 0..1. What is missing is not known."""

    nodes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """`pods`: all that are on nodes, placed replicas of ours among them (`binding` and `ordinal` say so).
    `priority_classes`: name -> value. `measured`: None: nothing is. `load`: the load book of the cluster, for crane's
    watermarks, and for what is measured where `measured` does not say it. `held`: uid -> why this pod is let go by
    nobody at present. `at`: microseconds."""

    at: int
    nodes: Sequence[Node]
    pods: Sequence[Pod]
    objects: ClusterObjects = field(default_factory=ClusterObjects)
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    measured: Measured | None = None
    load: LoadBook | None = None
    held: Mapping[str, str] = field(default_factory=dict)


def upkeep(pod: Pod) -> PodUpkeep:
    return pod.upkeep or NOTHING_KNOWN


def owners(pod: Pod) -> tuple[Owner, ...]:
    """Who made it and would make it again. A replica of ours always has somebody: its binding."""
    told = upkeep(pod).owners
    if told or not pod.binding:
        return told
    return (Owner(BINDING, pod.binding, pod.binding),)


def workload(pod: Pod) -> str:
    """One name for all pods that do the same work: the binding, the first owner, or the pod itself."""
    if pod.binding:
        return f"{BINDING}/{pod.binding}"
    for owner in upkeep(pod).owners[:1]:
        return f"{owner.kind}/{pod.requirements.traits.home}/{owner.name}"
    return f"Pod/{pod.uid}"


Group = tuple[str, tuple[tuple[str, str], ...]]
"""Namespace and labels: selectors see no difference between pods with equal ones."""


def group_of(pod: Pod) -> Group:
    traits = pod.requirements.traits
    return traits.home, tuple(sorted(traits.labels.items()))


def ended(pod: Pod) -> bool:
    return upkeep(pod).phase in ENDED


def allocatable(node: Node) -> dict[str, int]:
    """Amounts, whole devices by kind among them."""
    amounts = dict(node.allocatable)
    for device in node.devices:
        amounts[device.kind] = amounts.get(device.kind, 0) + 1
    return amounts


QUALITY = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


def quality(pod: Pod) -> int:
    """0 best-effort, 1 burstable, 2 guaranteed. Where nobody says: burstable, if anything is requested."""
    said = QUALITY.get(upkeep(pod).quality)
    return said if said is not None else int(not pod.requirements.empty)


@dataclass(slots=True)
class Cluster:
    """`nodes`: the ready ones. `running`: node -> its pods that have not ended; `lying`: with those that have.
    `requests`: uid -> what the pod takes of its node."""

    view: ClusterView
    nodes: list[Node]
    running: dict[str, list[Pod]]
    lying: dict[str, list[Pod]]
    requests: dict[str, dict[str, int]]
    owned: dict[str, int]
    namespaces: dict[str, Mapping[str, str]]

    @classmethod
    def of(cls, view: ClusterView, selector: LabelSelector | None = None) -> Cluster:
        """`selector`: only nodes that it matches are looked at, as sources and as targets."""
        nodes = [node for node in view.nodes if node.ready and (selector is None or selector.matches(node.labels))]
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
        labels: dict[str, Mapping[str, str]] = {n.name: n.labels for n in view.objects.namespaces}
        return cls(view, nodes, running, lying, requests, owned, labels)

    def on(self, node: Node, ended_too: bool = False) -> list[Pod]:
        return self.lying[node.name] if ended_too else self.running[node.name]

    def everywhere(self) -> list[Pod]:
        """Running pods of all nodes, node by node."""
        return [pod for node in self.nodes for pod in self.running[node.name]]
