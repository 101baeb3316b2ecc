"""NodeResourcesFit: the pod's requests must be free on the node; the score prefers the least or
most allocated node, or follows a shape function. [kube-scheduler]

All resources that are short are reported. Where the request exceeds what the node has in total,
preemption cannot help. The profile can ignore a resource that another component manages, by name or
by the prefix before the slash.

The score uses other amounts than the filter: containers without a cpu or memory request count with
a small default (`snapshot.scored`). A resource that the node does not have is left out of the mean,
and so is an extended resource that the pod does not request.

Example, LeastAllocated over cpu and memory: a node of 4 cores and 32 GiB, of which 1 core and 8 GiB
are requested with the pod on it, scores (75 + 75) / 2 = 75.

In arrays a request is a row: column of the table, requested amount, verdict where the node has less
(`engine.nodes.resources`). The changes that undo a refusal (a smaller request, or more free
resources) are computed there too, because they are the same for all resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.resources import is_of_nodes
from wharfinger.domain.scheduler import Arguments, FitArgs, WeightedResource
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework import formulas
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo, requested, scored
from wharfinger.engine.framework.status import Status, unresolvable, unschedulable
from wharfinger.engine.nodes.forms import AmountFit
from wharfinger.engine.nodes.verdicts import NodeVerdict, RefusedNodes

TOO_MANY_PODS = "Too many pods"

SHAPE_UNIT = 10
"""The scores of a shape are 0..10; this factor scales them to 0..100."""

_FIRST = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Lack:
    """A resource that a node is short of. `hopeless`: the request exceeds the node's total amount,
    so eviction cannot help; never set for `pods`."""

    resource: str
    hopeless: bool = False

    @property
    def reason(self) -> str:
        return TOO_MANY_PODS if self.resource == "pods" else f"Insufficient {self.resource}"


def sentences(refused: RefusedNodes) -> dict[str, int]:
    """Return message -> number of nodes, for the refused nodes: how many of them have less of a
    resource free than the pod requests. A node that is short of several resources is counted for
    each of them. Resources that the profile does not check are left out. `refused`: the refused
    nodes with their free amounts, as arrays.
    Example: 3 nodes are short of CPU, and one of them also of memory: "Insufficient cpu" -> 3,
    "Insufficient memory" -> 1."""
    table, cls, slots = refused.table, refused.cls, refused.slots
    found: Counter[str] = Counter()
    for code, amount in cls.amounts:
        if code in refused.checked:
            found[Lack(table.resources[code]).reason] += int(
                (table.free[code][slots] < amount).sum()
            )
    for kind, amount in cls.wholes:
        if -1 - kind in refused.checked:
            found[Lack(table.kinds[kind]).reason] += int(
                (table.whole_left[kind][slots] < amount).sum()
            )
    return {text: count for text, count in found.items() if count}


SHORT = NodeVerdict("InsufficientResources", words=sentences)
SHORT_OF_DEVICES = NodeVerdict("InsufficientDevices", words=sentences)


class NodeResourcesFit:
    name = "NodeResourcesFit"
    reason: NodeReason = "InsufficientResources"
    verdicts = (SHORT, SHORT_OF_DEVICES)

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments.fit
        self._scorer = scorer(arguments.fit)

    def pre_filter(self, cycle: Cycle, pod: Pod) -> None:
        cycle.data[self.name] = looked_at(pod, self._arguments)

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        lacks = list(lacking(cycle.data[self.name], node))
        if not lacks:
            return None
        refused = unresolvable if any(lack.hopeless for lack in lacks) else unschedulable
        return refused(*(lack.reason for lack in lacks))

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> None:
        cpu, memory = scored(pod.requirements)
        cycle.data[f"{self.name} score"] = requested(pod.requirements) | {
            "cpu": cpu,
            "memory": memory,
        }

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        asked = cycle.data[f"{self.name} score"]
        wanted: list[int] = []
        whole: list[int] = []
        for resource in self._arguments.resources:
            amount, allocatable = scored_amounts(resource.name, asked, node)
            wanted.append(amount)
            whole.append(allocatable)
        return self._scorer(wanted, whole)

    def hints(self) -> tuple[Hint, ...]:
        return (
            Hint("node/add", self._has_enough),
            Hint("node/allocatable", self._has_enough),
            Hint("pod/remove"),
            Hint("pod/scale-down"),
        )

    def reason_for(self, status: Status, asked: Requirements) -> NodeReason:
        """Return the typed reason of a refusal: InsufficientDevices where the node is short of
        devices only, otherwise InsufficientResources."""
        devices = {Lack(device.kind).reason for device in asked.devices}
        return (
            "InsufficientDevices" if devices.issuperset(status.reasons) else "InsufficientResources"
        )

    def form(self) -> AmountFit:
        fit = self._arguments
        return AmountFit(
            SHORT,
            SHORT_OF_DEVICES,
            fit.ignores if fit.ignored_groups or fit.ignored_resources else None,
            fit.strategy,
            fit.resources,
            tuple(zip(*shape_points(fit), strict=True)),
        )

    def _has_enough(self, pod: Pod, old: object, new: object) -> bool:
        """Return whether the pod would fit on the node if the node were empty."""
        if not isinstance(new, Node):
            return True
        return not any(
            lack.hopeless for lack in lacking(looked_at(pod, self._arguments), NodeInfo.of(new))
        )


# The filter.


def looked_at(pod: Pod, arguments: FitArgs) -> dict[str, int]:
    """Return resource -> amount that the filter checks: `pods` first, then cpu, memory,
    ephemeral-storage, then the others by name. Left out are resources that the profile ignores,
    resources that nodes do not have, and amounts of 0."""
    taken = requested(pod.requirements)
    others = sorted(name for name in taken if name not in ("pods", *_FIRST))
    return {
        name: taken[name]
        for name in ("pods", *_FIRST, *others)
        if _counts(name, taken.get(name, 0), arguments)
    }


def _counts(name: str, amount: int, arguments: FitArgs) -> bool:
    return amount > 0 and is_of_nodes(name) and not arguments.ignores(name)


def lacking(taken: dict[str, int], node: NodeInfo) -> Iterator[Lack]:
    """Yield the resources of `taken` (resource -> requested amount) of which the node has too
    little free, in order. A node without an allocatable number of `pods` takes any number of pods.
    """
    for name, amount in taken.items():
        whole = node.allocatable.get(name, 0)
        if name == "pods":
            if name in node.allocatable and len(node.pods) + 1 > whole:
                yield Lack(name)
        elif amount > whole - node.requested.get(name, 0):
            yield Lack(name, amount > whole)


# The score.


def scored_amounts(resource: str, asked: dict[str, int], node: NodeInfo) -> tuple[int, int]:
    """Return the amounts of one resource by which a node is scored: (requested by the pods on the
    node and the new pod, allocatable). For CPU and memory, a pod that requests nothing counts with
    a default amount; `asked` (resource -> amount that the new pod requests) includes this default.

    (0, 0): the resource is not scored, for one of these reasons:
    - The node has none of it.
    - It is the number of pods.
    - It is not CPU, memory or ephemeral storage; and the pod does not request it, or it is a
      resource that nodes do not report, such as `storage`.

    Example: the pods on a node request 1000m of 4000m CPU, and the new pod 500m: (1500, 4000).
    """
    whole = node.allocatable.get(resource, 0)
    match resource:
        case "cpu":
            used = node.scored_cpu
        case "memory":
            used = node.scored_memory
        case "pods":
            return 0, 0
        case "ephemeral-storage":
            used = node.requested.get(resource, 0)
        case _ if not asked.get(resource) or not is_of_nodes(resource):
            return 0, 0
        case _:
            used = node.requested.get(resource, 0)
    return (used + asked.get(resource, 0), whole) if whole else (0, 0)


Scorer = Callable[[Sequence[int], Sequence[int]], int]
"""(requested amounts including the pod, allocatable amounts) -> score 0..100. Both sequences have
one element for each resource of the strategy."""


def scorer(arguments: FitArgs) -> Scorer:
    """Return the scoring strategy of a profile as a function of requested and
    allocatable amounts."""
    weights = [resource.weight for resource in arguments.resources]
    match arguments.strategy:
        case "LeastAllocated":
            return _weighted(weights, formulas.least_allocated)
        case "MostAllocated":
            return _weighted(weights, formulas.most_allocated)
        case "RequestedToCapacityRatio":
            return _shaped(arguments.resources, *shape_points(arguments))


def shape_points(arguments: FitArgs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the points of the profile's shape: (utilizations in percent, scores 0..100)."""
    shape = arguments.shape
    return tuple(p.utilization for p in shape), tuple(p.score * SHAPE_UNIT for p in shape)


def _weighted(weights: Sequence[int], share: Callable[[int, int], int]) -> Scorer:
    def score(taken: Sequence[int], allocatable: Sequence[int]) -> int:
        total = divisor = 0
        for weight, amount, whole in zip(weights, taken, allocatable, strict=True):
            if whole:
                total += weight * share(amount, whole)
                divisor += weight
        return formulas.truncated_mean(total, divisor)

    return score


def _shaped(
    resources: Sequence[WeightedResource], utilizations: Sequence[int], scores: Sequence[int]
) -> Scorer:
    """Return the score function of the strategy RequestedToCapacityRatio. The function gets the
    requested and the allocatable amount of each resource. It returns the weighted mean of the
    resources' scores. The score of a resource is the value of the profile's shape at the
    resource's utilization; the shape has the points (`utilizations[i]` percent, `scores[i]`).
    A resource with score 0 is left out of the mean, together with its weight, as in kube-scheduler.
    Example: scores 60 and 20 with weights 1 and 3 give 30; scores 60 and 0 give 60."""

    def score(taken: Sequence[int], allocatable: Sequence[int]) -> int:
        total = divisor = 0
        for resource, amount, whole in zip(resources, taken, allocatable, strict=True):
            if whole and (height := formulas.shaped(amount, whole, utilizations, scores)) > 0:
                total += resource.weight * height
                divisor += resource.weight
        return formulas.rounded_mean(total, divisor)

    return score
