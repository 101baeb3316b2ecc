"""Pods of other schedulers that wait in this cluster: the nodes that they need, and the room that
is kept for them.

They are not placed here. But nodes are requested for those that no node can take, in the same
solution as for replicas of this plane (as Karpenter does). Room that their scheduler keeps for one
(`status.nominatedNodeName`), and the new node that was requested for it, is not free for replicas
of lower priority (as kube-scheduler counts nominated pods).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from wharfinger.domain.ids import ClassKey
from wharfinger.domain.node import Node, WaitingPod
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.problem import WantedPods
from wharfinger.events.cluster_state import WaitingPodsObserved
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.state import ClusterStageState, Nomination, may_provision
from wharfinger.stages.cluster_snapshots import (
    counts,
    others_in_need,
    others_of_class,
    others_reserved,
)

RETRY_US: Micros = 60 * 1_000_000
"""After this time nodes are requested again for pods that could not be helped, in microseconds."""


@dataclass(frozen=True, slots=True)
class ReservedRoom:
    """Room on `node` for `count` waiting pods of another scheduler. `name`: names the room."""

    name: str
    node: str
    requirements: Requirements
    priority: int
    count: int = 1


def observe(state: ClusterStageState, event: WaitingPodsObserved, at: Micros) -> None:
    """Folds the waiting pods of a bucket. A pod that was not known opens the time in which pods are
    collected for which nodes are requested together."""
    known = state.book.waiting.pods
    new = [pod for pod in event.pods if pod.uid not in known]
    changed = state.book.observe_waiting(event)
    if changed and may_provision(state) and any(counts(state.book, pod) for pod in new):
        look_again(state, at + state.buying.idle_us)


def pools_changed(state: ClusterStageState, at: Micros) -> None:
    """Requests nodes for the pods that wait already, now that the pools are others."""
    if may_provision(state) and in_need(state):
        look_again(state, at)


def look_again(state: ClusterStageState, at: Micros) -> None:
    """Requests nodes for the waiting pods of other schedulers at `at`, or earlier where that was
    intended."""
    if state.others_due is None or at < state.others_due:
        state.others_due = at


def looked(state: ClusterStageState, at: Micros) -> None:
    """Records that nodes were requested for all pods that the pools can help, at the end of a round
    in which that was due."""
    if state.others_due is not None and state.others_due <= at:
        state.others_due = at + RETRY_US if may_provision(state) and in_need(state) else None
    if state.expected:
        kept = {
            key: tuple([room for room in rooms if room.until > at])
            for key, rooms in state.expected.items()
            if key in state.book.waiting.by_class
        }
        state.expected = {key: rooms for key, rooms in kept.items() if rooms}


def in_need(state: ClusterStageState) -> list[WantedPods]:
    """Returns the waiting pods of other schedulers for which a node may have to be requested."""
    reserved: dict[ClassKey, int] = {}
    for room in expected_rooms(state):
        reserved[room.name] = reserved.get(room.name, 0) + room.count
    for uid in state.preempting:
        if (pod := state.book.waiting.pods.get(uid)) is not None:
            key = pod.requirements.pod_key
            reserved[key] = reserved.get(key, 0) + 1
    return others_in_need(state.book, state.pools, reserved)


def others_to_help(state: ClusterStageState, at: Micros, together: bool) -> list[WantedPods]:
    """Returns the waiting pods of other schedulers for which nodes are requested at `at`. Empty if
    that is not due and nodes are not requested for replicas of this plane either (`together`)."""
    if not may_provision(state):
        return []
    is_due = state.others_due is not None and state.others_due <= at
    return in_need(state) if is_due or together else []


def expect(
    state: ClusterStageState, node: Node, others: Mapping[ClassKey, int], until: Micros
) -> None:
    """Reserves room on a new node for the pods for which it was requested, until `until`."""
    for key, count in sorted(others.items()):
        room = Nomination(node.name, count, until)
        state.expected[key] = (*state.expected.get(key, ()), room)
    if others:
        look_again(state, until)


def expected_rooms(state: ClusterStageState) -> Iterator[ReservedRoom]:
    """Yields the rooms on new nodes that are reserved for waiting pods of other schedulers; `name`
    is the key of their requirements. For no more pods than wait."""
    for key, rooms in sorted(state.expected.items()):
        pods = [p for p in others_of_class(state.book, key) if not others_reserved(state.book, p)]
        for room in rooms:
            count = min(room.replicas, len(pods))
            if count > 0 and room.until > state.at and room.node in state.book.nodes:
                yield ReservedRoom(key, room.node, pods[0].requirements, pods[0].priority, count)
                del pods[:count]


def others_without_room(state: ClusterStageState, key: ClassKey) -> int:
    """Returns the number of waiting pods of other schedulers with these requirements for which no
    room on a node is kept."""
    pods = [p for p in others_of_class(state.book, key) if not others_reserved(state.book, p)]
    return len(pods) - sum(room.count for room in expected_rooms(state) if room.name == key)


def reserved_rooms(state: ClusterStageState, floor: int | None = None) -> Iterator[ReservedRoom]:
    """Yields all room that is kept for waiting pods of other schedulers: by their schedulers, in
    order of uid, then on new nodes. Last comes the room that is made for waiting pods of this
    scheduler by preemption, in order of uid. `floor`: only for pods of this priority or a higher
    one; None: for all."""
    for uid, pod in sorted(state.book.waiting.nominated.items()):
        if _keeps_room(state, pod) and (floor is None or pod.priority >= floor):
            yield ReservedRoom(uid, pod.nominated, pod.requirements, pod.priority)
    for room in expected_rooms(state):
        if floor is None or room.priority >= floor:
            yield room
    for uid, preemption in sorted(state.preempting.items()):
        waits = state.book.waiting.pods.get(uid)
        if waits is None or uid in state.book.replica_of or preemption.until <= state.at:
            continue
        if floor is None or waits.priority >= floor:
            yield ReservedRoom(uid, preemption.node, waits.requirements, waits.priority)


def _keeps_room(state: ClusterStageState, pod: WaitingPod) -> bool:
    return counts(state.book, pod) and others_reserved(state.book, pod)


def due(state: ClusterStageState) -> Micros | None:
    """Returns when nodes are requested for waiting pods of other schedulers; None: not without
    news."""
    if state.others_due is None:
        return None
    return max(state.others_due, state.at)


def shorten(state: ClusterStageState, ready: set[str], until: Micros) -> None:
    """Shortens the reservations on nodes that have just been initialised."""
    for key, rooms in state.expected.items():
        state.expected[key] = tuple(
            [
                msgspec.structs.replace(r, until=min(r.until, until)) if r.node in ready else r
                for r in rooms
            ]
        )
