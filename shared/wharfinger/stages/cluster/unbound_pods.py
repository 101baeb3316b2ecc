"""Pods that have a place and are not bound yet: they lose it when their node does not take them any
more.

Between a decision and its binding others work on the same nodes: another scheduler or a person
binds pods there, a node is cordoned, tainted or relabelled, a node becomes smaller. That takes long
where the actuator is paused or the API server is down. A binding is not checked by the API server,
so the kubelet would reject the pod, or the node would be overcommitted by this plane.

So a node is examined when its facts have changed. Of the pods that wait for it, those are released
that the profile of their scheduler refuses there now, by what is known of the node alone: cordons,
taints, labels and names (`FactVerdicts`), and amounts and devices. They are decided about in the
same round, as all pods that wait. The reason of the release is the one of that rule.

Pods that are observed on the node are charged first, ours and those of others. The waiting ones are
added by priority, highest first, then by time of placement, oldest first; each one that does not
fit beside those before it goes. Example: a node has 4 cores, and pods of 1, 2 and 2 cores wait for
it. Another scheduler binds a pod of 1 core. The last of the three goes.

A released pod does not come back to the node by itself: a rule that refuses it here also refuses it
when it is placed. A node that was not changed needs no second look, since no decision places a pod
where these rules refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wharfinger.domain.ids import BindingName, NodeName, ResourceName
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeRow, NodeTable, Taken, clamped
from wharfinger.engine.nodes.occupancy import Replica, ReplicaKey, sane, shares_of
from wharfinger.engine.nodes.verdicts import DETAIL
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft
from wharfinger.stages.cluster.answers import released_in_place
from wharfinger.stages.cluster.node_search import placer_for
from wharfinger.stages.cluster.state import ClusterStageState

SHORT: NodeReason = "InsufficientResources"
SHORT_OF_DEVICES: NodeReason = "InsufficientDevices"
_SHORTAGES = (SHORT, SHORT_OF_DEVICES)

Unbound = tuple[ReplicaKey, Replica]


def release_refused(state: ClusterStageState) -> Iterator[Draft]:
    """Drafts the releases of waiting pods from changed nodes that refuse them now. A release for
    lack of amounts is one of a single node, and says by how much that is short."""
    found: dict[tuple[NodeName, NodeReason, BindingName], list[int]] = {}
    short: dict[NodeName, dict[ResourceName, int]] = {}
    for name in sorted(state.touched):
        for (binding, ordinal), reason in _refused(state, name):
            of_node = name if reason in _SHORTAGES else ""
            found.setdefault((of_node, reason, binding), []).append(ordinal)
            short.setdefault(of_node, _excess(state, name) if of_node else {})
    for (of_node, reason, binding), ordinals in sorted(found.items()):
        if state.exhausted:
            return  # the rest in the next round
        held = state.book.held[binding]
        cause = uuid_of(held.assignment)
        shares = shares_of(held.placed, sorted(ordinals))
        yield released_in_place(state, binding, shares, reason, cause, short[of_node])
    state.touched.clear()


def _refused(state: ClusterStageState, name: NodeName) -> list[tuple[ReplicaKey, NodeReason]]:
    """Returns the replicas on the node whose pods wait and are refused by it now, with the reason
    of each."""
    row = state.book.table.rows.get(name)
    unbound = _unbound(state, name)
    if row is None or not unbound:
        return []
    going = [(key, reason) for key, replica in unbound if (reason := _fact(state, row, replica))]
    if _overcommitted(row) or any(replica.devices for _, replica in unbound):
        left = {key for key, _ in going}
        staying = [one for one in unbound if one[0] not in left]
        going += _without_room(state, name, row, unbound, staying)
    return going


def _unbound(state: ClusterStageState, name: NodeName) -> list[Unbound]:
    """Returns the replicas on the node whose pods wait, the most important first."""
    book, waiting = state.book, state.book.waiting.pods
    found = [
        (key, replica)
        for key, replica in book.on_node.get(name, {}).items()
        if replica.pod in waiting and replica.pod not in book.node_of
    ]

    def importance(one: Unbound) -> tuple[int, int, ReplicaKey]:
        key, replica = one
        return -waiting[replica.pod].priority, replica.at, key

    return sorted(found, key=importance)


def _fact(state: ClusterStageState, row: NodeRow, replica: Replica) -> NodeReason | None:
    """Returns why the facts of the node refuse the pod; None: they do not."""
    placer = placer_for(state, replica.cls.requirements.traits.scheduler)
    encoded = int(placer.facts.of(replica.cls).verdicts[row.slot])
    verdict = placer.rules.codes.by_detail[encoded % DETAIL]
    return None if verdict is None else verdict.reason


def _overcommitted(row: NodeRow) -> bool:
    return min(row.free) < 0 or any(left < 0 for left in row.whole_left.values())


def _without_room(
    state: ClusterStageState,
    name: NodeName,
    row: NodeRow,
    unbound: Sequence[Unbound],
    staying: Sequence[Unbound],
) -> list[tuple[ReplicaKey, NodeReason]]:
    """Returns those of `staying` that do not fit beside the pods that are on the node and those
    before them. `unbound`: all replicas whose pods wait, which are charged to the row."""
    left = _NodeRoomLeft(row, state.book.table)
    for _, replica in unbound:
        left.add(replica.cls, -1)
    if any(replica.devices for _, replica in staying):
        for devices in _devices_on(state, name):
            left.hold(devices)
    going: list[tuple[ReplicaKey, NodeReason]] = []
    for key, replica in staying:
        placer = placer_for(state, replica.cls.requirements.traits.scheduler)
        asks = placer.resources.of(replica.cls).asks
        lack = left.lack(asks) or left.lack_of_devices(replica)
        if lack is not None:
            going.append((key, lack))
            continue
        left.add(replica.cls, 1)
        left.hold(replica.devices)
    return going


def _devices_on(state: ClusterStageState, name: NodeName) -> Iterator[Taken]:
    """Yields the devices of the pods that are observed on the node: those that they report, else
    those that were planned for them. Of other pods it is not known."""
    here = state.book.on_node.get(name, {})
    for pod in state.book.pods.get(name, ()):
        replica = here.get((pod.binding, pod.ordinal))
        yield pod.devices or (() if replica is None else replica.devices)


def _excess(state: ClusterStageState, name: NodeName) -> dict[ResourceName, int]:
    """Returns resource -> by how much the pods of the node, and those that wait for it, request
    more than it has."""
    table, row = state.book.table, state.book.table.rows[name]
    found = {table.resources[code]: clamped(-n) for code, n in enumerate(row.free) if n < 0}
    found |= {table.kinds[kind]: clamped(-n) for kind, n in row.whole_left.items() if n < 0}
    return dict(sorted(found.items()))


class _NodeRoomLeft:
    """What is left of one node. `free`: by column of a resource; `wholes`: number of whole devices
    by kind; `held`: index of a device -> thousandths of it that pods have."""

    def __init__(self, row: NodeRow, table: NodeTable) -> None:
        self._row, self._table = row, table
        self.free = list(row.free)
        self.wholes = dict(row.whole_left)
        self.held: dict[int, int] = {}

    def add(self, cls: PodClass, times: int) -> None:
        for code, amount in cls.amounts:
            self.free[code] -= times * amount
        for kind, count in cls.wholes:
            self.wholes[kind] = self.wholes.get(kind, 0) - times * count

    def hold(self, devices: Taken) -> None:
        for index, milli in sane(devices):
            self.held[index] = self.held.get(index, 0) + milli

    def lack(self, asks: Sequence[tuple[int, ...]]) -> NodeReason | None:
        """Returns what of the requests is not there. `asks`: as in `ResourceRows`; a request
        without a verdict is not checked by the profile."""
        for code, amount, verdict in asks:
            if not verdict:
                continue
            if code >= 0 and self.free[code] < amount:
                return SHORT
            if code < 0 and self.wholes.get(-1 - code, 0) < amount:
                return SHORT_OF_DEVICES
        return None

    def lack_of_devices(self, replica: Replica) -> NodeReason | None:
        """Returns whether one of the devices that were planned for the pod is gone or taken."""
        allowed = {group for need in replica.cls.needs for group in need.view.groups}
        for index, milli in sane(replica.devices):
            gone = index >= len(self._row.groups) or self._row.groups[index] not in allowed
            if gone or self.held.get(index, 0) + milli > DEVICE_MILLI:
                return SHORT_OF_DEVICES
        return None
