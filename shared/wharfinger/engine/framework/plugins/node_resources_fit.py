"""NodeResourcesFit: what the pod requests must be left on the node, and of the nodes where it is those are preferred that then have
the most left, or the least, or as a shape says.

Every resource that lacks is told. Where the pod asks more than the node has altogether, no eviction will help. A resource that
something else than the scheduler looks after can be ignored, by name or by the part before the slash.

The score counts other amounts than the filter does: containers that request no cpu or memory count a little all the same
(`snapshot.scored`). A resource that the node has none of is left out of the mean, and so is one beyond cpu and memory that the pod
does not ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.resources import is_of_nodes
from wharfinger.domain.scheduler import Arguments, FitArgs, WeightedResource
from wharfinger.engine.framework import formulas
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo, requested, scored
from wharfinger.engine.framework.status import Status, unresolvable, unschedulable

TOO_MANY_PODS = "Too many pods"

SHAPE_UNIT = 10
"""A shape's scores are 0..10."""

_FIRST = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Lack:
    """`hopeless`: the node would not have it if it were empty."""

    resource: str
    hopeless: bool = False

    @property
    def reason(self) -> str:
        return TOO_MANY_PODS if self.resource == "pods" else f"Insufficient {self.resource}"


class NodeResourcesFit:
    name = "NodeResourcesFit"

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
        cycle.data[f"{self.name} score"] = requested(pod.requirements) | {"cpu": cpu, "memory": memory}

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

    def _has_enough(self, pod: Pod, old: object, new: object) -> bool:
        """Whether the node would take the pod if it were empty."""
        if not isinstance(new, Node):
            return True
        return not any(lack.hopeless for lack in lacking(looked_at(pod, self._arguments), NodeInfo.of(new)))


# The filter.


def looked_at(pod: Pod, arguments: FitArgs) -> dict[str, int]:
    """What the pod takes of a node, without what is ignored and what no node has; one of `pods` among it, first."""
    taken = requested(pod.requirements)
    others = sorted(name for name in taken if name not in ("pods", *_FIRST))
    return {name: taken[name] for name in ("pods", *_FIRST, *others) if _counts(name, taken.get(name, 0), arguments)}


def _counts(name: str, amount: int, arguments: FitArgs) -> bool:
    return amount > 0 and is_of_nodes(name) and not is_ignored(name, arguments)


def is_ignored(name: str, arguments: FitArgs) -> bool:
    """Whether the profile leaves the resource to somebody else. Kubernetes' own cannot be left."""
    if "/" not in name or "kubernetes.io/" in name:
        return False
    return name in arguments.ignored_resources or name.partition("/")[0] in arguments.ignored_groups


def lacking(taken: dict[str, int], node: NodeInfo) -> Iterator[Lack]:
    """What of `taken` is not left on the node. One that names no `pods` takes any number."""
    for name, amount in taken.items():
        whole = node.allocatable.get(name, 0)
        if name == "pods":
            if name in node.allocatable and len(node.pods) + 1 > whole:
                yield Lack(name)
        elif amount > whole - node.requested.get(name, 0):
            yield Lack(name, amount > whole)


# The score.


def scored_amounts(resource: str, asked: dict[str, int], node: NodeInfo) -> tuple[int, int]:
    """What is taken of the resource with the pod, as scoring counts it, and what there is; (0, 0): it does not count.

    `asked`: by the pod, cpu and memory with their stand-ins."""
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
"""(taken with the pod, allocatable), both one a resource of the strategy -> 0..100."""


def scorer(arguments: FitArgs) -> Scorer:
    """The strategy of a profile as a function."""
    weights = [resource.weight for resource in arguments.resources]
    match arguments.strategy:
        case "LeastAllocated":
            return _weighted(weights, formulas.least_allocated)
        case "MostAllocated":
            return _weighted(weights, formulas.most_allocated)
        case "RequestedToCapacityRatio":
            return _shaped(arguments.resources, *shape_points(arguments))


def shape_points(arguments: FitArgs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Utilizations in percent, and scores 0..100."""
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


def _shaped(resources: Sequence[WeightedResource], utilizations: Sequence[int], scores: Sequence[int]) -> Scorer:
    """A resource at which the shape is 0 takes its weight out of the mean, too: so the rule has it."""

    def score(taken: Sequence[int], allocatable: Sequence[int]) -> int:
        total = divisor = 0
        for resource, amount, whole in zip(resources, taken, allocatable, strict=True):
            if whole and (height := formulas.shaped(amount, whole, utilizations, scores)) > 0:
                total += resource.weight * height
                divisor += resource.weight
        return formulas.rounded_mean(total, divisor)

    return score
