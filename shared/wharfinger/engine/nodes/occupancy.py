"""The book of one cluster: its nodes, the pods seen on them, and which binding holds which replicas where.

What is free on a node is a function of four facts only: its allocatable, its pods, the replicas placed on it, and whether
it is closed. So the order in which facts arrive cannot matter, and a state that was stored and loaded is the same state.
Placing and releasing adjust the columns directly; every other fact writes the node's row anew from the book.

One replica is counted once on its way: *assigned* (wanted here, on no node yet), *placed* (charged to its node), *observed*
(a pod with the same binding and ordinal on the same node is that replica, and is not charged again; the devices it says
it holds count, not those it was meant to get). A pod of a released replica goes on being charged until it is seen no more.

A pod that asks for devices without saying which it holds is charged to the devices it would best fit on, after
all that is known: a reservation, made anew with each change of its node.

The cluster stage and the estimator keep the same book from different sources: the one from its own decisions, the other from
the assignments topic. Neither decides anything here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.taints import Taint
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.classes import DeviceNeed, PodClass, compile_class
from wharfinger.engine.nodes.columns import NodeRow, NodeTable, Taken, Ties
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.decisions import NodeShare

_CLASSES_KNOWN = 4096

ReplicaKey = tuple[str, int]
"""Binding and ordinal."""


class Replica(msgspec.Struct, frozen=True):
    """A placed replica. `at`: when, in the round's microseconds."""

    node: str
    cls: PodClass
    devices: Taken
    at: int


class Held(msgspec.Struct):
    """What a binding shall have here (`desired`, of class `cls`) and what it has (`placed`, by ordinal).

    `assignment`: the id of the fleet decision that last said so; refusals refer to it. `replace`: what is placed belongs to other
    requirements or another incarnation of the binding and has to go. `arrival`: order among equals.
    """

    cls: PodClass
    uid: str = ""
    assignment: str = ""
    desired: int = 0
    priority: int = 0
    arrival: int = 0
    replace: bool = False
    placed: dict[int, Replica] = {}
    counted_unbound: int = 0

    @property
    def settled(self) -> bool:
        return self.desired == len(self.placed) and not self.replace


class Occupancy:
    """`known`: all buckets of nodes have been seen. `version`: raised by every change that shows in columns or unbound counts.

    `lost`: nodes that hold replicas and are not there (any more). `unbound`: class key -> replicas assigned, on no node.
    `ties`: see `NodeTable`.
    """

    def __init__(self, ties: Ties | None = None) -> None:
        self.table = NodeTable(ties=ties)
        self.version = 0
        self.buckets: dict[int, dict[str, Node]] = {}
        self.bucket_count = 0
        self.incoming: dict[int, dict[str, Node]] = {}
        self.incoming_count = 0
        self.nodes: dict[str, Node] = {}
        self.closed: set[str] = set()
        self.taint_since: dict[str, dict[str, int]] = {}
        self.pods: dict[str, tuple[Pod, ...]] = {}
        self.held: dict[str, Held] = {}
        self.on_node: dict[str, dict[ReplicaKey, Replica]] = {}
        self.objects = ClusterObjects()
        self.lost: set[str] = set()
        self.unsettled: dict[str, None] = {}
        self.unbound: dict[str, int] = {}
        self.arrivals = 0
        self._unbound_classes: dict[str, PodClass] = {}
        self._classes: dict[tuple[str, bool], PodClass] = {}
        self._in_buckets: dict[str, set[int]] = {}
        self._own_pods: dict[str, dict[ReplicaKey, Pod]] = {}
        self._floating: set[str] = set()
        self._seen: dict[str, dict[int | str, int]] = {}

    @property
    def known(self) -> bool:
        return self.bucket_count > 0 and len(self.buckets) == self.bucket_count

    def class_of(self, requirements: Requirements, terminating: bool = False) -> PodClass:
        """One class for all pods that are interchangeable on every node. `terminating`: about to end."""
        key = (requirements.pod_key, terminating)
        cls = self._classes.get(key)
        if cls is None:
            if len(self._classes) >= _CLASSES_KNOWN:
                self._classes.clear()  # replicas keep their own; this is only where equal ones meet
            cls = self._classes[key] = compile_class(
                self.table, requirements, requirements.class_key, key[0], terminating
            )
        return cls

    def observe_objects(self, objects: ClusterObjects) -> bool:
        """Take the cluster's other objects, all of them; True when anything changed."""
        if objects == self.objects:
            return False
        self.objects = self.table.objects = objects
        self.version += 1
        return True

    def unbound_classes(self) -> list[tuple[PodClass, int]]:
        """Each class that has replicas assigned but on no node, and how many, in order of key."""
        return [(self._unbound_classes[key], n) for key, n in sorted(self.unbound.items())]

    def tells_of(self, binding: str) -> bool:
        """Whether pods of the binding are seen at all: then a replica whose pod is not seen does not run yet."""
        return binding in self._seen

    # --- facts: nodes

    def observe_nodes(self, event: NodesObserved, at: int) -> bool:
        """Take one bucket; True when anything changed. A bucket outside its own count says nothing."""
        if not 0 <= event.bucket < event.buckets:
            return False
        nodes: dict[str, Node] = {}
        for node in event.nodes:
            nodes.setdefault(node.name, node)
        if self.bucket_count in (0, event.buckets):
            self.bucket_count = event.buckets
            before = self.buckets.get(event.bucket)
            if before == nodes:
                return False
            self._take_bucket(event.bucket, nodes)
            self._merge({*(before or ()), *nodes}, at)
            return True
        return self._observe_rebucketed(event, nodes, at)

    def _observe_rebucketed(self, event: NodesObserved, nodes: dict[str, Node], at: int) -> bool:
        """The number of buckets changed: the old set stands until the new one is whole, for half a set would look like
        half a cluster lost."""
        if event.buckets != self.incoming_count:
            self.incoming.clear()
            self.incoming_count = event.buckets
        elif self.incoming.get(event.bucket) == nodes:
            return False
        self.incoming[event.bucket] = nodes
        if len(self.incoming) < event.buckets:
            return True
        names = set(self.nodes)
        self.buckets, self.bucket_count = {}, event.buckets
        self._in_buckets.clear()
        for bucket, said in sorted(self.incoming.items()):
            self._take_bucket(bucket, said)
            names.update(said)
        self.incoming.clear()
        self.incoming_count = 0
        self._merge(names, at)
        return True

    def _take_bucket(self, bucket: int, nodes: dict[str, Node]) -> None:
        for name in self.buckets.get(bucket, ()):
            sayers = self._in_buckets[name]
            sayers.discard(bucket)
            if not sayers:
                del self._in_buckets[name]
        self.buckets[bucket] = nodes
        for name in nodes:
            self._in_buckets.setdefault(name, set()).add(bucket)

    def _merge(self, names: set[str], at: int) -> None:
        """Bring `names` to what the buckets say. A name in two buckets belongs to the lowest, in one bucket twice to the
        first: a rule about facts, not about arrival."""
        for name in sorted(names):
            sayers = self._in_buckets.get(name)
            if sayers is None:
                self._forget_node(name)
                continue
            node = self.buckets[min(sayers)][name]
            if self.nodes.get(name) != node:
                self._take_node(node, at)
        if self.known:
            self.closed.intersection_update(self.nodes)

    def _take_node(self, node: Node, at: int) -> None:
        self.nodes[node.name] = node
        since = self.taint_since.pop(node.name, {})
        now = {taint_name(t): since.get(taint_name(t), at) for t in node.taints if t.effect == "NoExecute"}
        if now:
            self.taint_since[node.name] = now
        self.table.put(node, node.name in self.closed)
        self.lost.discard(node.name)
        self._write(node.name)

    def _forget_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is None:
            return
        self.taint_since.pop(name, None)
        self.closed.discard(name)
        self.table.drop(name)
        if name in self.on_node:
            self.lost.add(name)
        self.version += 1

    def close(self, name: str) -> None:
        """No new replicas on this node until it has gone from the facts."""
        if name in self.closed or (self.known and name not in self.nodes):
            return
        self.closed.add(name)
        node = self.nodes.get(name)
        if node is not None:
            self.table.put(node, True)
            self._write(name)

    def reopen(self, name: str) -> None:
        """The node takes new replicas again, as far as it says so itself."""
        if name not in self.closed:
            return
        self.closed.discard(name)
        node = self.nodes.get(name)
        if node is not None:
            self.table.put(node, False)
            self._write(name)

    # --- facts: pods

    def observe_pods(self, event: PodsObserved) -> bool:
        """Take the pods of one node; True when anything changed. Pods on no node hold nothing here."""
        name = event.node
        if not name:
            return False
        # One pod a uid, in order of uid: in which order they are reported says nothing.
        pods = tuple(sorted({pod.uid: pod for pod in event.pods}.values(), key=lambda pod: pod.uid))
        before = self.pods.get(name, ())
        if before == pods:
            return False
        for pod in before:
            self._unsee(pod)
        if pods:
            self.pods[name] = pods
        else:
            del self.pods[name]
        own = {(pod.binding, pod.ordinal): pod for pod in pods if pod.binding and pod.ordinal >= 0}
        if own:
            self._own_pods[name] = own
        else:
            self._own_pods.pop(name, None)
        for pod in pods:
            self._see(pod)
        for binding in sorted({pod.binding for pod in (*before, *pods) if pod.binding}):
            self._settle(binding)
        self._write(name)
        return True

    def _see(self, pod: Pod) -> None:
        if pod.binding:
            seen = self._seen.setdefault(pod.binding, {})
            key: int | str = pod.ordinal if pod.ordinal >= 0 else pod.uid
            seen[key] = seen.get(key, 0) + 1

    def _unsee(self, pod: Pod) -> None:
        if pod.binding:
            seen = self._seen[pod.binding]
            key: int | str = pod.ordinal if pod.ordinal >= 0 else pod.uid
            seen[key] -= 1
            if not seen[key]:
                del seen[key]
            if not seen:
                del self._seen[pod.binding]

    # --- the book

    def assign(
        self, binding: str, uid: str, assignment: str, replicas: int, requirements: Requirements, priority: int
    ) -> None:
        """`binding` shall have `replicas` here, all told. Other requirements or another uid replace what is placed."""
        replicas = max(0, replicas)
        held = self.held.get(binding)
        if held is None:
            if not replicas:
                return
            held = self.held[binding] = Held(self.class_of(requirements), uid)
        elif replicas:
            cls = self.class_of(requirements)
            if cls.key != held.cls.key or uid != held.uid:
                held.replace = bool(held.placed)
                self._uncount(held)
                held.cls, held.uid = cls, uid
            elif cls is not held.cls:
                self._relabel(binding, held, cls)
        else:
            held.replace = False  # all of it goes anyway
        held.assignment, held.desired, held.priority = assignment, replicas, priority
        self.arrivals += 1
        held.arrival = self.arrivals
        self._settle(binding)

    def _relabel(self, binding: str, held: Held, cls: PodClass) -> None:
        """As many fit as before, but others see them otherwise: what is placed stays and is of the new class."""
        self._uncount(held)
        held.cls = cls
        for ordinal, replica in list(held.placed.items()):
            new = msgspec.structs.replace(replica, cls=cls)
            held.placed[ordinal] = self.on_node[replica.node][(binding, ordinal)] = new
            row = self.table.rows.get(replica.node)
            if row is None:
                continue
            if replica.node in self._floating or replica.node in self._own_pods:
                self._write(replica.node)
            else:
                self.table.charge(row, replica.cls, -1, ())
                self.table.charge(row, cls, 1, ())
                self.version += 1

    def restore(
        self, binding: str, requirements: Requirements, uid: str, assignment: str, desired: int, priority: int,
        arrival: int, replace: bool,
    ) -> None:  # fmt: skip
        """A binding as it was stored, its replicas already placed."""
        cls = self.class_of(requirements)
        held = self.held.setdefault(binding, Held(cls))
        self._uncount(held)
        held.cls, held.uid, held.assignment = cls, uid, assignment
        held.desired, held.priority, held.arrival, held.replace = desired, priority, arrival, replace
        self._settle(binding)

    def refuse(self, binding: str, assignment: str, count: int) -> None:
        """Give `count` replicas back, unless the fleet has assigned anew meanwhile: the new word then stands whole."""
        held = self.held.get(binding)
        if held is not None and held.assignment == assignment and count > 0:
            held.desired = max(0, held.desired - count)
            self._settle(binding)

    def place(self, binding: str, shares: Iterable[NodeShare], requirements: Requirements, at: int) -> None:
        held = self.held.get(binding)
        if held is None:
            held = self.held[binding] = Held(self.class_of(requirements))
            cls = held.cls
        elif requirements is held.cls.requirements or requirements == held.cls.requirements:
            cls = held.cls
        else:
            cls = self.class_of(requirements)
        for share in shares:
            self._place_share(binding, held, share, cls, at)
        self._settle(binding)

    def _place_share(self, binding: str, held: Held, share: NodeShare, cls: PodClass, at: int) -> None:
        devices: dict[int, Taken] = {}
        for i, ordinal in enumerate(share.ordinals):
            devices.setdefault(ordinal, share.devices[i] if i < len(share.devices) else ())
            if ordinal in held.placed:  # placed anew: it leaves its old node first
                self._remove(binding, held, ordinal)
        if not devices:
            return
        here = self.on_node.setdefault(share.node, {})
        for ordinal, taken in devices.items():
            held.placed[ordinal] = here[(binding, ordinal)] = Replica(share.node, cls, taken, at)
        row = self.table.rows.get(share.node)
        if row is None:
            self.lost.add(share.node)
        elif share.node in self._floating or share.node in self._own_pods:
            self._write(share.node)
        else:
            charged = [pair for taken in devices.values() for pair in sane(taken)] if share.devices else ()
            self.table.charge(row, cls, len(devices), charged)
            self.version += 1

    def release(self, binding: str, shares: Iterable[NodeShare], unbound: int = 0) -> None:
        """Let go the named ordinals, where they are on the named nodes, and `unbound` wanted ones."""
        held = self.held.get(binding)
        if held is None:
            return
        for share in shares:
            for ordinal in share.ordinals:
                replica = held.placed.get(ordinal)
                if replica is not None and replica.node == share.node:
                    self._remove(binding, held, ordinal)
        if unbound > 0:
            held.desired = max(0, held.desired - unbound)
        if not held.placed:
            held.replace = False
        self._settle(binding)

    def _remove(self, binding: str, held: Held, ordinal: int) -> None:
        replica = held.placed.pop(ordinal)
        here = self.on_node[replica.node]
        del here[(binding, ordinal)]
        if not here:
            del self.on_node[replica.node]
            self.lost.discard(replica.node)
        row = self.table.rows.get(replica.node)
        if row is None:
            return
        if replica.node in self._floating or replica.node in self._own_pods:
            self._write(replica.node)
        else:
            self.table.charge(row, replica.cls, -1, [(i, -milli) for i, milli in sane(replica.devices)])
            self.version += 1

    def _settle(self, binding: str) -> None:
        """Bring what is derived from a binding up to date: unbound count, whether work is left, whether it exists at all."""
        held = self.held.get(binding)
        if held is None:
            return
        placed, desired = held.placed, held.desired
        bound = len(placed)
        seen = self._seen.get(binding)
        if seen:
            bound += sum(1 for key in seen if key not in placed)
        if held.counted_unbound:
            self._uncount(held)
        if desired > bound:
            held.counted_unbound = desired - bound
            key = held.cls.key
            self.unbound[key] = self.unbound.get(key, 0) + desired - bound
            self._unbound_classes[key] = held.cls
        if desired == len(placed) and not held.replace:  # `settled`, which is asked for every change there is
            self.unsettled.pop(binding, None)
            if not desired:
                del self.held[binding]
        else:
            self.unsettled[binding] = None
        self.version += 1

    def _uncount(self, held: Held) -> None:
        if held.counted_unbound:
            left = self.unbound[held.cls.key] - held.counted_unbound
            held.counted_unbound = 0
            if left:
                self.unbound[held.cls.key] = left
            else:
                del self.unbound[held.cls.key], self._unbound_classes[held.cls.key]

    # --- one node's row, from the book

    def _write(self, name: str) -> None:
        row = self.table.rows.get(name)
        self._floating.discard(name)
        if row is None:
            return
        held: dict[PodClass, int] = {}
        devices = [0] * len(row.groups)
        own = self._own_pods.get(name, {})
        here = self.on_node.get(name, {})
        for key, replica in here.items():
            held[replica.cls] = held.get(replica.cls, 0) + 1
            pod = own.get(key)
            _hold(devices, pod.devices if pod is not None and pod.devices else replica.devices)
        floating: list[PodClass] = []
        for pod in self.pods.get(name, ()):
            key = (pod.binding, pod.ordinal)
            if key in here and own[key].uid == pod.uid:
                continue  # of two pods that claim one replica, one is it and the other is charged
            cls = self.class_of(pod.requirements, pod.terminating)
            held[cls] = held.get(cls, 0) + 1
            _hold(devices, pod.devices)
            if cls.needs and not pod.devices:
                floating.append(cls)
        if floating:
            self._floating.add(name)
            for cls in floating:
                for need in cls.needs:
                    _reserve(row, devices, need)
        self.table.set_usage(row, held, devices)
        self.version += 1


def taint_name(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}"


def shares_of(placed: Mapping[int, Replica], ordinals: Iterable[int]) -> tuple[NodeShare, ...]:
    """Placed ordinals as node shares: nodes in order of first ordinal."""
    by_node: dict[str, list[int]] = {}
    for ordinal in ordinals:
        by_node.setdefault(placed[ordinal].node, []).append(ordinal)
    return tuple(
        NodeShare(node, tuple(own), _devices([placed[o].devices for o in own])) for node, own in by_node.items()
    )


def _devices(taken: list[Taken]) -> tuple[Taken, ...]:
    return tuple(taken) if any(taken) else ()


def sane(devices: Taken) -> list[tuple[int, int]]:
    """What of said thousandths is charged to a node."""
    return [(index, min(milli, DEVICE_MILLI)) for index, milli in devices if milli > 0]


def _hold(devices: list[int], taken: Taken) -> None:
    for index, milli in sane(taken):
        if 0 <= index < len(devices):
            devices[index] += milli


def _reserve(row: NodeRow, devices: list[int], need: DeviceNeed) -> None:
    """Charge a need to the devices it would best fit on; where none has room, to the emptiest, so that it is not forgotten."""
    milli = min(need.milli, DEVICE_MILLI)
    allowed = [i for i, group in enumerate(row.groups) if group in need.view.groups]
    fitting = sorted((-devices[i], i) for i in allowed if devices[i] + milli <= DEVICE_MILLI)
    # Best fit is the fullest that still has room; sorted by -held that is the front.
    chosen = [i for _, i in fitting][: need.count]
    if len(chosen) < need.count:
        rest = sorted((devices[i], i) for i in allowed if i not in chosen)
        chosen += [i for _, i in rest[: need.count - len(chosen)]]
    for index in chosen:
        devices[index] += milli
