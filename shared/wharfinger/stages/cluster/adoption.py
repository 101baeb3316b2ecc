"""Pods that have a node without a decision of this stage become replicas of their binding.

Such pods ran before the cluster was taken over, or others bound them: a person, another scheduler,
the kubelet. They use their node in any case. As replicas they are also counted for their binding, a
waiting pod does not get their ordinal, and `explain` knows them. No pod is moved by it, whether it
fits or not.

A pod belongs to the binding of its workload if that is known here, else to the workload's binding
of its own (`local_binding`) if it names our scheduler. Pods of other schedulers whose workload the
fleet did not assign, pods that belong to their node (of a DaemonSet, static), and pods that are
being deleted are no replicas. Nor are those on a node that a running command empties: they were
released to be evicted, and become replicas again if the command is rolled back.

When the fleet assigns a workload whose pods are replicas of the workload's own binding, they become
replicas of the assigned one and keep their nodes, whether they are bound already or not. So the
assignment is satisfied by the pods that there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec

from wharfinger.domain.ids import BindingName, NodeName, PodUid
from wharfinger.domain.node import Pod
from wharfinger.domain.pod_workload import number_of
from wharfinger.domain.scheduler import DEFAULT_SCHEDULER
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.columns import Taken
from wharfinger.engine.nodes.occupancy import shares_of
from wharfinger.events.decisions import NodeShare, ReplicasAdopted, WhyAdopted
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft
from wharfinger.stages.cluster.answers import released_in_place
from wharfinger.stages.cluster.state import ClusterStageState

PODS_MAX = 2_000
"""Maximum number of pods in one decision, so that it fits into one message with their uids."""

ASSIGNED = "WorkloadAssigned"
"""Reason of a release: the replicas become those of the binding that the fleet assigned."""


_OnNode = tuple[Pod, NodeName]


@dataclass(slots=True)
class _Adopted:
    """Pods of one binding with equal requirements, each with its node, in order of uid."""

    requirements: Requirements
    pods: list[_OnNode] = field(default_factory=list)


def local_binding(workload: BindingName, cluster: str) -> BindingName:
    """Returns the name of the binding of a workload that the fleet does not know:
    `<namespace>/<name>-<kind>@<cluster>`."""
    return f"{workload}@{cluster}"


def adopt_pods(state: ClusterStageState, elsewhere: Collection[PodUid]) -> Iterator[Draft]:
    """Decides which pods become replicas. `elsewhere`: those that were replicas on other nodes
    until this round."""
    yield from _reassign(state)
    found: dict[tuple[BindingName, WhyAdopted, str], _Adopted] = {}
    for pod, node, binding in _strangers(state):
        why: WhyAdopted = "bound-elsewhere" if pod.uid in elsewhere else "already-there"
        key = binding, why, pod.requirements.pod_key
        found.setdefault(key, _Adopted(pod.requirements)).pods.append((pod, node))
    for (binding, why, _), adopted in sorted(found.items()):
        for start in range(0, len(adopted.pods), PODS_MAX):
            part = _within(state, adopted.pods[start : start + PODS_MAX])
            if part:
                shares = _shares(part, _ordinals(state, binding, part))
                yield _adopted(state, binding, shares, adopted.requirements, why)


def _strangers(state: ClusterStageState) -> Iterator[tuple[Pod, NodeName, BindingName]]:
    """Yields the pods to adopt with their nodes and bindings, in order of workload and uid."""
    book = state.book
    ours = book.scheduler or DEFAULT_SCHEDULER
    going = {node.name for running in state.running.values() for node in running.decided.nodes}
    # most workloads of a cluster may be of others: only those that are adopted are sorted
    found = [
        (workload, scheduler)
        for workload, scheduler in book.strangers
        if workload in book.held or (scheduler or DEFAULT_SCHEDULER) == ours
    ]
    for workload, scheduler in sorted(found):
        known = workload in book.held
        binding = workload if known else local_binding(workload, state.cluster)
        for uid, node in sorted(book.strangers[workload, scheduler].items()):
            # one that is still to be released from another node, or reported on two nodes
            if uid in book.replica_of or book.node_of.get(uid) != node or node not in book.nodes:
                continue
            if node in going:
                continue
            yield next(pod for pod in book.pods[node] if pod.uid == uid), node, binding


def _within(state: ClusterStageState, pods: list[_OnNode]) -> list[_OnNode]:
    return pods if state.work_left is None else pods[: state.work_left]


def _ordinals(state: ClusterStageState, binding: BindingName, pods: list[_OnNode]) -> list[int]:
    held = state.book.held.get(binding)
    return free_ordinals(() if held is None else held.placed, [number_of(pod) for pod, _ in pods])


def _shares(pods: list[_OnNode], ordinals: list[int]) -> tuple[NodeShare, ...]:
    """Groups pods by node, in order of name, with the devices that they report."""
    by_node: dict[str, list[tuple[int, Taken, PodUid]]] = {}
    for (pod, node), ordinal in zip(pods, ordinals, strict=True):
        by_node.setdefault(node, []).append((ordinal, pod.devices, pod.uid))
    return tuple(
        [
            NodeShare(
                node,
                tuple([ordinal for ordinal, _, _ in here]),
                tuple([taken for _, taken, _ in here]) if any(t for _, t, _ in here) else (),
                tuple([uid for _, _, uid in here]),
            )
            for node, here in sorted(by_node.items())
        ]
    )


def _adopted(
    state: ClusterStageState,
    binding: BindingName,
    shares: tuple[NodeShare, ...],
    requirements: Requirements,
    why: WhyAdopted,
) -> Draft:
    held = state.book.held.get(binding)
    assignment = "" if held is None else held.assignment
    data = ReplicasAdopted(state.cluster, binding, assignment, shares, requirements, why)
    return Draft(data, binding, "adopted", uuid_of(assignment))


def _reassign(state: ClusterStageState) -> Iterator[Draft]:
    """Gives the replicas of workloads' own bindings to the bindings that the fleet assigned."""
    book = state.book
    names = [b for b in book.unsettled if local_binding(b, state.cluster) in book.held]
    for binding in sorted(names):
        own = local_binding(binding, state.cluster)
        if not book.held[binding].desired:
            continue
        parts: dict[str, list[int]] = {}
        for ordinal, replica in sorted(book.held[own].placed.items()):
            if replica.pod:
                parts.setdefault(replica.cls.pod_key, []).append(ordinal)
        for _, ordinals in sorted(parts.items()):
            for start in range(0, len(ordinals), PODS_MAX):
                if state.exhausted:
                    return
                yield from _give(state, own, binding, ordinals[start : start + PODS_MAX])


def _give(
    state: ClusterStageState, own: BindingName, binding: BindingName, ordinals: list[int]
) -> Iterator[Draft]:
    placed = state.book.held[own].placed
    requirements = placed[ordinals[0]].cls.requirements
    shares = shares_of(placed, ordinals)
    cause = uuid_of(state.book.held[binding].assignment)
    yield released_in_place(state, own, shares, ASSIGNED, cause)
    wanted = [ordinal for share in shares for ordinal in share.ordinals]
    numbers = iter(free_ordinals(state.book.held[binding].placed, wanted))
    taken = tuple(
        [
            msgspec.structs.replace(share, ordinals=tuple([next(numbers) for _ in share.ordinals]))
            for share in shares
        ]
    )
    yield _adopted(state, binding, taken, requirements, "reassigned")


def free_ordinals(taken: Collection[int], wanted: Sequence[int]) -> list[int]:
    """Returns an ordinal for each replica: the one that it wants if that is free, else the lowest
    free one. -1: it wants none in particular."""
    own = {number for number in wanted if number >= 0 and number not in taken}
    free = (number for number in count() if number not in taken and number not in own)
    left = set(own)
    found: list[int] = []
    for number in wanted:
        if number in left:
            left.discard(number)
            found.append(number)
        else:
            found.append(next(free))
    return found
