"""How decisions of a cluster stream change its state: the occupancy of nodes, claims, commands,
reservations, and pending moves.

A release or placement belongs to the command or descheduling proposal that is its cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from wharfinger.events.decisions import (
    DisruptionDecided,
    DisruptionEnded,
    NodeBarred,
    NodeClaimEnded,
    NodeClaimRequested,
    NodeRemovalDecided,
    NodeShare,
    PodRemovalDecided,
    PodsUnplaced,
    PreemptionDecided,
    PreemptionEnded,
    ReplicasAdopted,
    ReplicasNominated,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
)
from wharfinger.events.fanout import assignment_items
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.folds import DecisionFolds
from wharfinger.stages.cluster import extenders, other_pods
from wharfinger.stages.cluster.barred_nodes import fold_barred
from wharfinger.stages.cluster.displaced import follow_displaced, follow_missing
from wharfinger.stages.cluster.inputs import forget_causes
from wharfinger.stages.cluster.move_cooldown import follow_moved
from wharfinger.stages.cluster.pod_preemption import (
    fold_preemption,
    fold_preemption_ended,
    not_awaited,
)
from wharfinger.stages.cluster.removals import forget_proposal
from wharfinger.stages.cluster.replica_moves import set_in_motion
from wharfinger.stages.cluster.state import (
    ClusterStageState,
    Nomination,
    Replacement,
    RunningCommand,
    touch,
)
from wharfinger.stages.cluster.unplaced_pods import fold_unplaced
from wharfinger.stages.pools import COMES_WITHIN_US, NOMINATED_US

FOLDS = DecisionFolds[ClusterStageState]()
"""The folds of decisions about replicas, nodes, claims and commands."""


def _take(state: ClusterStageState, decision: Decision, at: Micros) -> None:
    """Updates pools and occupancy in the same way as a reader of the assignments topic does for
    this decision."""
    for _, item in assignment_items(decision.seq, str(decision.id), decision.data):
        state.pools.take(state.book, item, at)


# --- replicas


@FOLDS.of(ReplicasPlaced)
def placed(state: ClusterStageState, data: ReplicasPlaced, decision: Decision, at: Micros) -> None:
    _on_nodes(state, data, decision, at)
    extenders.forget(state, data.binding)


@FOLDS.of(ReplicasAdopted)
def adopted(
    state: ClusterStageState, data: ReplicasAdopted, decision: Decision, at: Micros
) -> None:
    _on_nodes(state, data, decision, at)


def _on_nodes(
    state: ClusterStageState, data: ReplicasPlaced | ReplicasAdopted, decision: Decision, at: Micros
) -> None:
    book, binding, shares = state.book, data.binding, data.placed
    state.spent += _replicas(shares) - 1
    book.place(binding, shares, data.requirements, at)
    not_awaited(state, shares)
    _follow_placed(state, decision, binding, shares, at)
    state.loads.came(binding, shares, at)
    state.members.follow(binding, book.held.get(binding))
    follow_missing(state, binding)


@FOLDS.of(ReplicasRefused)
def refused(
    state: ClusterStageState, data: ReplicasRefused, decision: Decision, at: Micros
) -> None:
    state.book.refuse(data.binding, data.assignment, data.count)
    extenders.forget(state, data.binding)
    state.members.follow(data.binding, state.book.held.get(data.binding))
    follow_missing(state, data.binding)


@FOLDS.of(ReplicasReleased)
def released(
    state: ClusterStageState, data: ReplicasReleased, decision: Decision, at: Micros
) -> None:
    book, binding, shares = state.book, data.binding, data.released
    state.spent += _replicas(shares)
    book.release(binding, shares, data.unbound)
    _follow_released(state, decision, binding, shares, at)
    state.loads.left(binding, shares)
    state.members.follow(binding, book.held.get(binding))
    follow_displaced(state, binding, _replicas(shares), data.reason, data.preemptor)
    forget_causes(state)


def _replicas(shares: Sequence[NodeShare]) -> int:
    """Returns the number of replicas in `shares`; the round's bound of work counts them."""
    return sum([len(share.ordinals) for share in shares])


def _follow_placed(
    state: ClusterStageState,
    decision: Decision,
    binding: str,
    placed: Sequence[NodeShare],
    at: Micros,
) -> None:
    if binding in state.nominated:
        _take_up(state, binding, placed)
    if state.pools.quiet_since:
        state.pools.stirred(state.book, [share.node for share in placed], at)
    if decision.cause is not None and (
        _running(state, decision.cause) or str(decision.cause) in state.descheduling
    ):
        set_in_motion(state, binding, placed, at)


def _take_up(state: ClusterStageState, binding: str, placed: Sequence[NodeShare]) -> None:
    """Reduces the nominations of a binding by the replicas that were placed on the nominated nodes.
    A nomination is room on one node that is reserved for a number of replicas. A nomination of 0
    replicas is dropped. Example: 3 replicas nominated on node a, 2 placed there: 1 remains.

    `placed`: the placed replicas by node.
    """
    came = {share.node: len(share.ordinals) for share in placed}
    left: list[Nomination] = []
    for room in state.nominated[binding]:
        taken = min(came.get(room.node, 0), room.replicas)
        if taken:
            came[room.node] -= taken
        if room.replicas > taken:
            left.append(msgspec.structs.replace(room, replicas=room.replicas - taken))
    if left:
        state.nominated[binding] = tuple(left)
    else:
        del state.nominated[binding]


def _follow_released(
    state: ClusterStageState,
    decision: Decision,
    binding: str,
    released: Sequence[NodeShare],
    at: Micros,
) -> None:
    if state.pools.quiet_since:
        state.pools.stirred(state.book, [share.node for share in released], at)
    if decision.cause is None:
        return
    running = _running(state, decision.cause)
    if running is not None:
        count = sum(len(share.ordinals) for share in released)
        _replace(state, msgspec.structs.replace(running, moved=running.moved + count))
    elif (proposed := state.descheduling.get(str(decision.cause))) is not None:
        follow_moved(state, binding, released, proposed, at)


@FOLDS.of(ReplicasNominated)
def nominated(
    state: ClusterStageState, data: ReplicasNominated, decision: Decision, at: Micros
) -> None:
    """Folds a nomination. On an existing node it is added to the nominations of the binding. If the
    name is that of an open claim, the replicas are added to the claim's count instead."""
    claim = state.pools.claims.get(data.node)
    if claim is None:
        room = Nomination(data.node, data.replicas, data.until_us)
        state.nominated[data.binding] = (*state.nominated.get(data.binding, ()), room)
        return
    replicas = {**claim.replicas, data.binding: claim.replicas.get(data.binding, 0) + data.replicas}
    state.pools.claims[claim.claim] = msgspec.structs.replace(claim, replicas=replicas)


@FOLDS.of(PreemptionDecided)
def preempting(
    state: ClusterStageState, data: PreemptionDecided, decision: Decision, at: Micros
) -> None:
    fold_preemption(state, data)


@FOLDS.of(PreemptionEnded)
def not_preempted(
    state: ClusterStageState, data: PreemptionEnded, decision: Decision, at: Micros
) -> None:
    fold_preemption_ended(state, data)


@FOLDS.of(PodsUnplaced)
def unplaced(state: ClusterStageState, data: PodsUnplaced, decision: Decision, at: Micros) -> None:
    fold_unplaced(state, data, at)


@FOLDS.of(NodeBarred)
def barred(state: ClusterStageState, data: NodeBarred, decision: Decision, at: Micros) -> None:
    fold_barred(state, data)


# --- claims


@FOLDS.of(NodeClaimRequested)
def claimed(
    state: ClusterStageState, data: NodeClaimRequested, decision: Decision, at: Micros
) -> None:
    _take(state, decision, at)
    state.named += 1


@FOLDS.of(NodeClaimEnded)
def claim_ended(
    state: ClusterStageState, ended: NodeClaimEnded, decision: Decision, at: Micros
) -> None:
    """Folds the end of a node claim into the state. `ended.outcome`: registered, failed, timed-out
    or cancelled. The claim is removed from the open claims.

    If the claim is a replacement of a running disruption command, the outcome is recorded with that
    command. Otherwise, if the outcome is `registered`, room on the new node is reserved (nominated)
    for the replicas for which the node was requested: for 20 seconds if the node is initialized,
    else for 15 minutes. A binding that has all its replicas gets no reservation.
    """
    claim = state.pools.claims.get(ended.claim)
    _take(state, decision, at)
    if claim is None:
        return
    if claim.others and ended.outcome != "registered":
        other_pods.look_again(state, at)
    if claim.command in state.running:
        failed = "" if ended.outcome == "registered" else ended.reason or ended.outcome
        told = Replacement(ended.claim, ended.node, ended.price, failed)
        running = state.running[claim.command]
        replaced = tuple([told if r.claim == ended.claim else r for r in running.replacements])
        _replace(state, msgspec.structs.replace(running, replacements=replaced))
        return
    node = state.book.nodes.get(ended.node)
    if ended.outcome == "registered" and node is not None:
        ready = state.policies.initialized(state.cluster, node)
        until = at + (NOMINATED_US if ready else COMES_WITHIN_US)
        for binding, count in sorted(claim.replicas.items()):
            if binding in state.book.unsettled and count > 0:
                room = Nomination(ended.node, count, until)
                state.nominated[binding] = (*state.nominated.get(binding, ()), room)
        other_pods.expect(state, node, claim.others, until)


# --- finished pods


@FOLDS.of(PodRemovalDecided)
def pods_removed(
    state: ClusterStageState, data: PodRemovalDecided, decision: Decision, at: Micros
) -> None:
    state.removals.update({pod.uid: data.until_us for pod in data.pods})


# --- commands


@FOLDS.of(DisruptionDecided)
def disrupting(
    state: ClusterStageState, decided: DisruptionDecided, decision: Decision, at: Micros
) -> None:
    for node in decided.nodes:
        state.book.close(node.name)
        touch(state, (node.name,))
    _take(state, decision, at)
    replacements = tuple([Replacement(claim) for claim in decided.claims])
    state.running[decided.command] = RunningCommand(decided, decision.id, at, replacements)
    state.disruptions.pop(decided.proposal, None)
    state.named += 1


@FOLDS.of(NodeRemovalDecided)
def removed(
    state: ClusterStageState, data: NodeRemovalDecided, decision: Decision, at: Micros
) -> None:
    state.book.close(data.node)
    touch(state, (data.node,))
    _take(state, decision, at)
    running = None if decision.cause is None else _running(state, decision.cause)
    if running is not None:
        _replace(state, msgspec.structs.replace(running, removed=(*running.removed, data.node)))
    forget_proposal(state, data.proposal)


@FOLDS.of(DisruptionEnded)
def disrupted(
    state: ClusterStageState, over: DisruptionEnded, decision: Decision, at: Micros
) -> None:
    """Folds the end of a command. The nodes that it did not remove accept replicas again."""
    for name in over.nodes:
        if name not in over.removed:
            state.book.reopen(name)
    _take(state, decision, at)
    state.running.pop(over.command, None)


def _running(state: ClusterStageState, cause: UUID) -> RunningCommand | None:
    return next((running for running in state.running.values() if running.id == cause), None)


def _replace(state: ClusterStageState, running: RunningCommand) -> None:
    state.running[running.decided.command] = running
