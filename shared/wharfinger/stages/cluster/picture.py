"""The cluster as the scheduling framework sees it: every node with the pods on it, made from the book.

A placed replica is a pod of its binding, whether or not it was observed already; an observed pod that is no placed replica of ours
counts as what it was observed to be (`stages.scenes.pods_of`). Nodes that are closed to new replicas are told as unschedulable.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from wharfinger.domain.node import Node, Pod
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.load.book import LoadView
from wharfinger.engine.nodes.occupancy import Held
from wharfinger.stages.cluster.choosing import lacking, moves_to_come
from wharfinger.stages.cluster.state import ClusterState
from wharfinger.stages.scenes import pods_of, replica_pod, reserved_pod, uid_of


def pictured(state: ClusterState, promised_but_to: str | None = None) -> Snapshot:
    """Every node and pod, with what is known of load. `promised_but_to`: replicas that room is being made for stand there already,
    but for those of this binding."""
    book = state.book
    nodes = [_told(node, name in book.closed) for name, node in book.nodes.items()]
    snapshot = Snapshot.of(nodes, (*pods_of(state.book), *_besides(state)), state.objects.all)
    if promised_but_to is not None:
        for pod in _promised(state, promised_but_to):
            snapshot.add(pod)
    snapshot.demand = state.demand.workload
    if not state.load.idle:
        snapshot.load = LoadView(state.load, state.at)
    return snapshot


def seeing(state: ClusterState) -> ClusterState:
    """The state, whose placers see the cluster as the framework does where they have to."""
    state.profiles.snapshot = partial(pictured, state)
    return state


def _told(node: Node, closed: bool) -> Node:
    return msgspec.structs.replace(node, unschedulable=True) if closed else node


def _besides(state: ClusterState) -> Iterator[Pod]:
    """Whose priorities are not known; nothing but preemption asks for them."""
    for binding, ordinal, replica in state.besides():
        yield replica_pod(0, binding, ordinal, replica)


def _promised(state: ClusterState, but: str) -> Iterator[Pod]:
    yield from nominated_pods(state, but)
    yield from moving_pods(state)


def nominated_pods(state: ClusterState, but: str = "") -> Iterator[Pod]:
    """Who has room made for it, where that room is; those of the binding `but` left out."""
    book = state.book
    for binding, rooms in sorted(state.nominated.items()):
        held = book.held.get(binding)
        if binding == but or held is None:
            continue
        missing = lacking(held)
        for at, room in enumerate(rooms):
            if room.until <= state.at or room.node not in book.nodes:
                continue
            for i in range(max(0, min(room.replicas, missing))):
                pod = wanted_pod(held, binding, -1 - i - 1000 * at)
                yield msgspec.structs.replace(pod, node=room.node)
            missing -= room.replicas


def moving_pods(state: ClusterState) -> Iterator[Pod]:
    """Who is to be moved, where it goes, as far as that is there."""
    for move in moves_to_come(state):
        if move.node in state.book.nodes:
            name = f"{move.binding or move.pod}-{move.ordinal} from {move.source}"
            yield reserved_pod(move.requirements, name, move.node, move.priority)


def wanted_pod(held: Held, binding: str, ordinal: int = -1) -> Pod:
    """One replica that is on no node yet."""
    return Pod(
        uid_of(binding, ordinal), f"{binding}-{ordinal}", held.cls.requirements, binding=binding, ordinal=ordinal,
        priority=held.priority,
    )  # fmt: skip


def is_placed(state: ClusterState, pod: Pod) -> bool:
    """Whether the pod stands for a replica that this stage has placed."""
    held = state.book.held.get(pod.binding)
    return held is not None and pod.ordinal in held.placed and pod.uid == uid_of(pod.binding, pod.ordinal)


def observed(state: ClusterState, node: str, binding: str, ordinal: int) -> bool:
    """Whether a pod of that replica is still seen on the node."""
    return any(pod.binding == binding and pod.ordinal == ordinal for pod in state.book.pods.get(node, ()))
