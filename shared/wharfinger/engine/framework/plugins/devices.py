"""Devices: a pod's devices must be there one by one, with the models and the shares it asks for; and among the nodes
where they are, the one is preferred where they are spent best.

NodeResourcesFit has counted whole devices by kind already. What it cannot see is asked here: shares, of which no two
on different devices make one, models, and devices that are whole in number but each half held.

The score follows the profile's strategy (`engine.devices.strategies`) and is there for every pod: one without devices
should not sit where its cpu is what the devices need. Without a strategy nothing is scored. Which of a node's devices
the pod gets is best fit whatever the strategy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices import fit, strategies
from wharfinger.engine.devices.outlook import Group, Need, bounded, kibibytes_left
from wharfinger.engine.devices.strategies import Scene, State
from wharfinger.engine.devices.workload import Workload
from wharfinger.engine.framework.plugins.node_resources_fit import is_ignored
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo, Snapshot
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable

NOT_ENOUGH_LEFT = "node(s) had no devices with enough left"
NOT_THERE = "node(s) didn't have the requested devices"


class Devices:
    name = "Devices"

    def __init__(self, arguments: Arguments) -> None:
        """Raises ValueError, one line, for a strategy that is not there."""
        self._strategy = strategies.known(arguments.devices.strategy)
        self._fit = arguments.fit

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        cycle.data[self.name] = self._looked_at(pod)
        return None if cycle.data[self.name] else SKIP

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        devices, requests = node.node.devices, cycle.data[self.name]
        if fit.take(devices, fit.free_of(devices, node.pods), requests) is not None:
            return None
        return unschedulable(NOT_ENOUGH_LEFT) if fit.could_ever(devices, requests) else unresolvable(NOT_THERE)

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        if not self._strategy:
            return SKIP
        cycle.data[f"{self.name} score"] = _Measure.of(self._strategy, cycle.snapshot, pod, self._looked_at(pod))
        return None

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        """The cost: lower is better until it is normalised."""
        measure: _Measure = cycle.data[f"{self.name} score"]
        return strategies.cost(self._strategy, measure.scene, measure.state(node), measure.need)

    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        return strategies.scores(scores)

    def _looked_at(self, pod: Pod) -> tuple[DeviceRequest, ...]:
        """Without what the profile leaves to somebody else."""
        return tuple(r for r in fit.asked(pod.requirements.devices) if not is_ignored(r.kind, self._fit))

    def hints(self) -> tuple[Hint, ...]:
        return (
            Hint("node/add", _has_them),
            Hint("node/allocatable", _has_them),
            Hint("pod/remove", _held_some),
        )


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a pod is measured by on every node. `codes`: of the sorts of devices."""

    scene: Scene
    need: Need
    codes: Mapping[Group, int]

    @classmethod
    def of(cls, strategy: str, snapshot: Snapshot, pod: Pod, asked: tuple[DeviceRequest, ...]) -> _Measure:
        nodes = [info.node for info in snapshot.nodes.values()]
        groups = tuple(dict.fromkeys((device.kind, device.model) for node in nodes for device in node.devices))
        largest = (
            max((node.allocatable.get("cpu", 0) for node in nodes), default=0),
            max((node.allocatable.get("memory", 0) for node in nodes), default=0),
            max((len(node.devices) for node in nodes), default=0),
        )
        workload = _held(snapshot, pod) if snapshot.demand is None else snapshot.demand
        scene = strategies.scene(strategy, workload, groups, largest)
        need = Need.of(Requirements(pod.requirements.requests, asked), groups)
        return cls(scene, need, {group: code for code, group in enumerate(groups)})

    def state(self, node: NodeInfo) -> State:
        left = [node.allocatable.get(name, 0) - node.requested.get(name, 0) for name in ("cpu", "memory")]
        devices = node.node.devices
        return State(
            bounded(left[0]),
            kibibytes_left(left[1]),
            tuple(fit.free_of(devices, node.pods)),
            tuple(self.codes[device.kind, device.model] for device in devices),
        )


def _held(snapshot: Snapshot, pod: Pod) -> Workload:
    """Where nobody has counted what was asked for: what the pods ask that are there, and this one."""
    there = (other.requirements for node in snapshot.nodes.values() for other in node.pods)
    return Workload.of((requirements, 1) for requirements in (*there, pod.requirements))


def _has_them(pod: Pod, old: object, new: object) -> bool:
    return not isinstance(new, Node) or fit.could_ever(new.devices, pod.requirements.devices)


def _held_some(pod: Pod, old: object, new: object) -> bool:
    return not isinstance(old, Pod) or bool(old.devices or fit.asked(old.requirements.devices))
