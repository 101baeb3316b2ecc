"""The cluster as the input of the scheduling framework: every node with its pods, from the
occupancy.

A placed replica counts as a pod of its binding, whether or not it was observed; any other observed
pod counts as reported (`stages.cluster_snapshots.pods_of`). Closed nodes are marked unschedulable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from weakref import ref

import msgspec

from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.load.node_loads import LoadView
from wharfinger.engine.nodes.occupancy import HeldBinding
from wharfinger.stages.cluster.node_search import lacking, moves_to_come
from wharfinger.stages.cluster.other_pods import reserved_rooms
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.cluster_snapshots import pods_of, replica_pod, reserved_pod, uid_of


def pictured(
    state: ClusterStageState,
    promised_but_to: str | None = None,
    pods: Sequence[WaitingPod] = (),
    present: Iterable[Pod] | None = None,
) -> Snapshot:
    """Builds the snapshot of the cluster for the scheduling plugins: nodes with their pods, objects
    such as volumes, the measured load, and the most frequent requests of the replicas assigned so
    far.

    `promised_but_to`: the name of a binding. The snapshot then also has room that is reserved on
    nodes for replicas, as pods on those nodes. Room reserved for this binding by nominations is
    left out, because the binding may use it, and so is room for pods of other schedulers with a
    lower priority. None: no reserved room is included. `pods`: the waiting pods that are placed as
    replicas of this binding; their priority counts, and no room is kept from them for themselves.
    `present`: the pods on nodes; None: those of the occupancy.
    """
    book = state.book
    nodes = [_told(node, name in book.closed) for name, node in book.nodes.items()]
    here = (*pods_of(book), *_besides(state)) if present is None else present
    snapshot = Snapshot.of(nodes, here, state.objects.all)
    if promised_but_to is not None:
        for pod in _promised(state, promised_but_to, pods):
            snapshot.add(pod)
    snapshot.demand = state.demand.workload
    if not state.load.idle:
        snapshot.load = LoadView(state.load, state.at)
    return snapshot


def seeing(state: ClusterStageState) -> ClusterStageState:
    """Connects the placers of the state to the framework's snapshot, which some plugins need, and
    returns the state. The placers belong to the state and do not keep it: a state that is dropped
    is freed at once."""
    weak = ref(state)

    def picture() -> Snapshot:
        known = weak()
        assert known is not None, "the placers of a state are used with it"
        return pictured(known)

    state.profiles.snapshot = picture
    return state


def _told(node: Node, closed: bool) -> Node:
    return msgspec.structs.replace(node, unschedulable=True) if closed else node


def _besides(state: ClusterStageState) -> Iterator[Pod]:
    """Yields the replicas that a reduced state knows beside its own binding, as pods of priority 0.
    Their priority is not known, and only preemption uses it."""
    for binding, ordinal, replica in state.besides():
        yield replica_pod(0, binding, ordinal, replica)


def _promised(state: ClusterStageState, but: str, waiting: Sequence[WaitingPod]) -> Iterator[Pod]:
    yield from nominated_pods(state, but)
    yield from moving_pods(state)
    if waiting:
        own = {pod.uid for pod in waiting} | {pod.requirements.pod_key for pod in waiting}
        yield from other_reserved_pods(state, max(pod.priority for pod in waiting), own)
    else:
        yield from other_reserved_pods(state, state.book.held[but].priority)


def nominated_pods(state: ClusterStageState, but: str = "") -> Iterator[Pod]:
    """Yields reserved room as pods: for each unexpired nomination, one pod on the nominated node
    for each replica. A nomination is room on a node that is reserved for a number of replicas of a
    binding.

    A binding gets at most as many pods as it has missing replicas. Example: 3 replicas are missing,
    2 are nominated on node a and 2 on node b: 2 pods on a and 1 pod on b. The pods have negative
    ordinals, because the replicas have no ordinals yet. `but`: the name of a binding whose
    nominations are left out.
    """
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


def moving_pods(state: ClusterStageState) -> Iterator[Pod]:
    """Yields one pod on the target node for each pending move of a command. Moves whose target node
    does not exist yet are left out."""
    for move in moves_to_come(state):
        if move.node in state.book.nodes:
            name = f"{move.binding or move.pod}-{move.ordinal} from {move.source}"
            yield reserved_pod(move.requirements, name, move.node, move.priority)


def other_reserved_pods(
    state: ClusterStageState, floor: int | None = None, but: Collection[str] = ()
) -> Iterator[Pod]:
    """Yields the room that is kept for waiting pods of other schedulers, as pods on its nodes.
    `floor`: only for pods of this priority or a higher one; None: for all. `but`: names of rooms
    that are left out."""
    for room in reserved_rooms(state, floor):
        for number in range(0 if room.name in but else room.count):
            yield reserved_pod(room.requirements, f"{room.name} {number}", room.node, room.priority)


def wanted_pod(held: HeldBinding, binding: str, ordinal: int = -1) -> Pod:
    """Returns a replica that has no node yet as a pod."""
    return Pod(
        uid_of(binding, ordinal),
        f"{binding}-{ordinal}",
        held.cls.requirements,
        binding=binding,
        ordinal=ordinal,
        priority=held.priority,
    )


def is_placed(state: ClusterStageState, pod: Pod) -> bool:
    """Returns whether the pod represents a replica that this stage has placed."""
    held = state.book.held.get(pod.binding)
    return (
        held is not None
        and pod.ordinal in held.placed
        and pod.uid == uid_of(pod.binding, pod.ordinal)
    )


def observed(state: ClusterStageState, node: str, binding: str, ordinal: int) -> bool:
    """Returns whether a pod of that replica is still reported on the node."""
    return any(
        pod.binding == binding and pod.ordinal == ordinal for pod in state.book.pods.get(node, ())
    )
