"""Devices: the node must have the individual devices that the pod requests, with their models and
shares; the score prefers the node where the devices are used best.

NodeResourcesFit already counts whole devices by kind. This rule checks what a count cannot: two
free halves on different devices are not one device, models must match, and enough devices may be
free in total while each of them is half used.

The score is that of the profile's strategy (`engine.devices.strategies`). It applies to pods
without devices too: they should not use up the CPU that a node's devices need. Without a strategy
there is no score. Under every strategy the pod gets devices by best fit: the fullest devices that
still have enough free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.resources import DeviceRequest
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices import fit, strategies
from wharfinger.engine.devices.expected_use import Group, PodNeed, bounded, kibibytes_left
from wharfinger.engine.devices.strategies import CostContext, NodeDevices
from wharfinger.engine.devices.workload import DeviceWorkload
from wharfinger.engine.framework.protocols import Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo, Snapshot
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from wharfinger.engine.nodes.fit import NO_DEVICES
from wharfinger.engine.nodes.forms import DeviceColumn


class Devices:
    name = "Devices"
    reason: NodeReason = "InsufficientDevices"
    verdicts = (NO_DEVICES,)

    def __init__(self, arguments: Arguments) -> None:
        """Raise ValueError (one line) for an unknown strategy."""
        self._strategy = strategies.known(arguments.devices.strategy)
        self._fit = arguments.fit

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        cycle.data[self.name] = self._looked_at(pod)
        return None if cycle.data[self.name] else SKIP

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        devices, requests = node.node.devices, cycle.data[self.name]
        if fit.take(devices, fit.free_of(devices, node.pods), requests) is not None:
            return None
        lacking = unschedulable if fit.could_ever(devices, requests) else unresolvable
        return lacking(fit.why_not(devices, requests))

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        if not self._strategy:
            return SKIP
        cycle.data[f"{self.name} score"] = _Measure.of(
            self._strategy, cycle.snapshot, pod, self._looked_at(pod)
        )
        return None

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        """Return the cost of placing the pod on the node under the profile's strategy. Lower is
        better; `normalise` inverts it."""
        measure: _Measure = cycle.data[f"{self.name} score"]
        return strategies.cost(self._strategy, measure.scene, measure.state(node), measure.need)

    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        return strategies.scores(scores)

    def _looked_at(self, pod: Pod) -> tuple[DeviceRequest, ...]:
        """Return the pod's device requests, without the kinds that the profile leaves to another
        component."""
        return tuple(
            r for r in fit.asked(pod.requirements.devices) if not self._fit.ignores(r.kind)
        )

    def hints(self) -> tuple[Hint, ...]:
        return (
            Hint("node/add", _has_them),
            Hint("node/allocatable", _has_them),
            Hint("pod/remove", _held_some),
        )

    def form(self) -> DeviceColumn:
        return DeviceColumn(self._strategy, self._fit.ignores)


@dataclass(frozen=True, slots=True)
class _Measure:
    """Holds the inputs of a pod's device score that are the same on every node. `codes`: (kind,
    model) of a group of devices -> the index of the group."""

    scene: CostContext
    need: PodNeed
    codes: Mapping[Group, int]

    @classmethod
    def of(
        cls, strategy: str, snapshot: Snapshot, pod: Pod, asked: tuple[DeviceRequest, ...]
    ) -> _Measure:
        nodes = [info.node for info in snapshot.nodes.values()]
        groups = tuple(
            dict.fromkeys((device.kind, device.model) for node in nodes for device in node.devices)
        )
        largest = (
            max((node.allocatable.get("cpu", 0) for node in nodes), default=0),
            max((node.allocatable.get("memory", 0) for node in nodes), default=0),
            max((len(node.devices) for node in nodes), default=0),
        )
        workload = _held(snapshot, pod) if snapshot.demand is None else snapshot.demand
        scene = strategies.scene(strategy, workload, groups, largest)
        need = PodNeed.of(Requirements(pod.requirements.requests, asked), groups)
        return cls(scene, need, {group: code for code, group in enumerate(groups)})

    def state(self, node: NodeInfo) -> NodeDevices:
        left = [
            node.allocatable.get(name, 0) - node.requested.get(name, 0)
            for name in ("cpu", "memory")
        ]
        devices = node.node.devices
        return NodeDevices(
            bounded(left[0]),
            kibibytes_left(left[1]),
            tuple(fit.free_of(devices, node.pods)),
            tuple(self.codes[device.kind, device.model] for device in devices),
        )


def _held(snapshot: Snapshot, pod: Pod) -> DeviceWorkload:
    """Return the typical device requests where the snapshot has none: the requests of all pods on
    nodes and of this pod."""
    there = (other.requirements for node in snapshot.nodes.values() for other in node.pods)
    return DeviceWorkload.of((requirements, 1) for requirements in (*there, pod.requirements))


def _has_them(pod: Pod, old: object, new: object) -> bool:
    return not isinstance(new, Node) or fit.could_ever(new.devices, pod.requirements.devices)


def _held_some(pod: Pod, old: object, new: object) -> bool:
    return not isinstance(old, Pod) or bool(old.devices or fit.asked(old.requirements.devices))
