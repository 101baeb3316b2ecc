"""Nodes that become smaller under their replicas: the replicas that no longer fit are released.

A node's allocatable amounts fall when more of it is reserved for the system, and its devices when
one fails or its plugin stops. The kubelet then rejects pods, and the fleet would count replicas
that cannot run. So the stage releases them first, the least important ones, and places them on
other nodes in the same round.

Only a node that shrank is examined, and only the resources of which it has less. A node that is
overcommitted because another scheduler placed pods on it keeps its replicas, since their pods run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wharfinger.domain.node import Node
from wharfinger.domain.reasons import Displacement
from wharfinger.domain.resources import DEVICE_MILLI, is_of_nodes
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.columns import Taken, clamped
from wharfinger.engine.nodes.occupancy import ReplicaKey, sane, shares_of
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft
from wharfinger.stages.cluster.answers import in_order, released_draft
from wharfinger.stages.cluster.state import ClusterStageState, Shrunk

NODE_SHRANK: Displacement = "NodeShrank"


def follow_size(state: ClusterStageState, old: Node, new: Node | None, event: str) -> None:
    """Records that a node which holds replicas has less of a resource than before. `event`: id of
    the event that showed the node as `new`; None: the node is gone, which is not recorded here."""
    if new is None:
        state.shrunk.pop(old.name, None)
        return
    less = {name for name, n in old.allocatable.items() if new.allocatable.get(name, 0) < n}
    less -= {"pods"} if "pods" not in new.allocatable else set()  # no longer limited
    less |= {"pods"} if "pods" in new.allocatable and "pods" not in old.allocatable else set()
    kinds = _devices_of(old)
    less |= {kind for kind, indices in kinds.items() if indices - _devices_of(new).get(kind, set())}
    if less:
        before = state.shrunk.get(new.name)
        known = set() if before is None else set(before.resources)
        state.shrunk[new.name] = Shrunk(event, tuple(sorted(less | known)))


def _devices_of(node: Node) -> dict[str, set[int]]:
    """Returns kind -> the indices of the node's devices of this kind."""
    kinds: dict[str, set[int]] = {}
    for index, device in enumerate(node.devices):
        kinds.setdefault(device.kind, set()).add(index)
    return kinds


def release_from_shrunk(state: ClusterStageState) -> Iterator[Draft]:
    """Drafts the releases of replicas that nodes in `state.shrunk` no longer hold, one decision for
    each node and binding, the binding of the lowest priority first. The decision says by how much
    the pods of the node requested more than it has."""
    for name in sorted(state.shrunk):
        if name not in state.book.on_node or name not in state.book.nodes:
            continue
        shrunk = state.shrunk[name]
        going, short = too_much(state, name, shrunk.resources)
        of: dict[str, list[int]] = {}
        for binding, ordinal in going:
            of.setdefault(binding, []).append(ordinal)
        for binding in reversed(in_order(state, dict.fromkeys(of))):
            shares = shares_of(state.book.held[binding].placed, sorted(of[binding]))
            yield released_draft(
                state, binding, shares, NODE_SHRANK, uuid_of(shrunk.event), short=short
            )


def too_much(
    state: ClusterStageState, name: str, resources: Iterable[str]
) -> tuple[list[ReplicaKey], dict[str, int]]:
    """Returns (the replicas that do not fit on the node any more, resource -> by how much the pods
    of the node request more than it has). Only `resources` are examined.

    Pods of other schedulers stay, except those that are being deleted. A pod of a replica that was
    released is leaving and does not count. The replicas are added by priority, highest first, then
    by time of placement, oldest first; each one that does not fit beside those before it is
    returned. So no replica is returned that would fit beside all that stay.
    """
    book, node = state.book, state.book.nodes[name]
    here = book.on_node[name]
    amounts = _Amounts(node, resources)
    own = {(pod.binding, pod.ordinal): pod for pod in book.pods.get(name, ()) if pod.binding}
    for pod in book.pods.get(name, ()):
        if not pod.binding and not pod.terminating:
            amounts.add(pod.requirements, pod.devices)

    def importance(key: ReplicaKey) -> tuple[int, int, str, int]:
        return -book.held[key[0]].priority, here[key].at, *key

    going: list[ReplicaKey] = []
    wanted = amounts.copy()
    for key in sorted(here, key=importance):
        replica, reported = here[key], own.get(key)
        devices = (reported.devices if reported else ()) or replica.devices
        wanted.add(replica.cls.requirements, devices)
        if amounts.holds(replica.cls.requirements, devices):
            amounts.add(replica.cls.requirements, devices)
        else:
            going.append(key)
    return going, wanted.excess() if going else {}


class _Amounts:
    """Adds up what pods request of the examined resources of one node. `used`: resource -> amount.
    `held`: (index, kind) of a device -> thousandths."""

    def __init__(self, node: Node, resources: Iterable[str]) -> None:
        self.node, self.resources = node, frozenset(resources)
        self.used: dict[str, int] = {}
        self.held: dict[tuple[int, str], int] = {}

    def copy(self) -> _Amounts:
        other = _Amounts(self.node, self.resources)
        other.used, other.held = dict(self.used), dict(self.held)
        return other

    def add(self, requirements: Requirements, devices: Taken) -> None:
        for name, amount in self._asked(requirements).items():
            self.used[name] = self.used.get(name, 0) + amount
        for device, milli in self._taken(requirements, devices):
            self.held[device] = self.held.get(device, 0) + milli

    def holds(self, requirements: Requirements, devices: Taken) -> bool:
        """Returns whether a pod with these requests still fits beside those that were added."""
        return all(
            self.used.get(name, 0) + amount <= self.node.allocatable.get(name, 0)
            for name, amount in self._asked(requirements).items()
        ) and all(
            self.held.get(device, 0) + milli <= self._milli(device)
            for device, milli in self._taken(requirements, devices)
        )

    def excess(self) -> dict[str, int]:
        """Returns resource -> by how much the added pods request more than the node has. For
        devices: how many of them are missing or requested more than once."""
        found = {
            name: clamped(amount - self.node.allocatable.get(name, 0))
            for name, amount in self.used.items()
            if amount > self.node.allocatable.get(name, 0)
        }
        for device, milli in self.held.items():
            if milli > self._milli(device):
                found[device[1]] = found.get(device[1], 0) + 1
        return found

    def _milli(self, device: tuple[int, str]) -> int:
        """Returns how many thousandths the node has of a device; 0: it has no such device."""
        index, kind = device
        devices = self.node.devices
        return DEVICE_MILLI if index < len(devices) and devices[index].kind == kind else 0

    def _asked(self, requirements: Requirements) -> dict[str, int]:
        asked = {
            name: amount
            for name, amount in requirements.requests.items()
            if amount > 0 and name in self.resources and is_of_nodes(name)
        }
        if "pods" in self.resources and "pods" not in requirements.requests:
            asked["pods"] = 1
        return asked

    def _taken(
        self, requirements: Requirements, devices: Taken
    ) -> list[tuple[tuple[int, str], int]]:
        """Returns (device, thousandths) of each examined device that a pod has. Its kind is the
        only one that the pod requests, or else that of the node's device with this index."""
        kinds = sorted({request.kind for request in requirements.devices})
        here = self.node.devices
        found: list[tuple[tuple[int, str], int]] = []
        for index, milli in sane(devices):
            if len(kinds) == 1 or (kinds and index >= len(here)):
                kind = kinds[0]
            else:
                kind = here[index].kind if index < len(here) else ""
            if kind in self.resources:
                found.append(((index, kind), milli))
        return found
