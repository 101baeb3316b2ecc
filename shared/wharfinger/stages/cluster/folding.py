"""What decisions about pools leave behind: claims and commands as they stand, promises, and who is on the move.

The book is written by the decider; here is what follows besides. A release or placing belongs to a command, or to a proposal of
descheduling, when that is its cause.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from wharfinger.events.decisions import NodeRemovalDecided, ReplicasNominated, ReplicasPlaced, ReplicasReleased
from wharfinger.events.disruption import DisruptionDecided, DisruptionEnded
from wharfinger.events.fanout import assignment_items
from wharfinger.events.provisioning import NodeClaimEnded
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.stages.cluster.moving import set_in_motion
from wharfinger.stages.cluster.state import ClusterState, Nomination, Replacement, Running
from wharfinger.stages.cluster.staying_away import follow_moved
from wharfinger.stages.pools import COMES_WITHIN_US, NOMINATED_US


def _take(state: ClusterState, decision: Decision, at: Micros) -> None:
    """As the assignments topic will tell it."""
    for _, item in assignment_items(decision.seq, str(decision.id), decision.data):
        state.pools.take(state.book, item, at)


# --- replicas


def follow_placed(state: ClusterState, decision: Decision, placed: ReplicasPlaced, at: Micros) -> None:
    if placed.binding in state.nominated:
        _take_up(state, placed)
    if state.pools.quiet_since:
        state.pools.stirred(state.book, [share.node for share in placed.placed], at)
    if decision.cause is not None and (_running(state, decision.cause) or str(decision.cause) in state.descheduling):
        set_in_motion(state, placed, at)


def _take_up(state: ClusterState, placed: ReplicasPlaced) -> None:
    """Who has come to where room was kept for it waits for that room no more."""
    came = {share.node: len(share.ordinals) for share in placed.placed}
    left: list[Nomination] = []
    for room in state.nominated[placed.binding]:
        taken = min(came.get(room.node, 0), room.replicas)
        if taken:
            came[room.node] -= taken
        if room.replicas > taken:
            left.append(msgspec.structs.replace(room, replicas=room.replicas - taken))
    if left:
        state.nominated[placed.binding] = tuple(left)
    else:
        del state.nominated[placed.binding]


def follow_released(state: ClusterState, decision: Decision, released: ReplicasReleased, at: Micros) -> None:
    if state.pools.quiet_since:
        state.pools.stirred(state.book, [share.node for share in released.released], at)
    if decision.cause is None:
        return
    running = _running(state, decision.cause)
    if running is not None:
        count = sum(len(share.ordinals) for share in released.released)
        _replace(state, msgspec.structs.replace(running, moved=running.moved + count))
    elif (proposed := state.descheduling.get(str(decision.cause))) is not None:
        follow_moved(state, released, proposed, at)


def follow_nominated(state: ClusterState, nominated: ReplicasNominated) -> None:
    """Room on a node, or on one that was asked for: then that claim is for these replicas, too."""
    claim = state.pools.claims.get(nominated.node)
    if claim is None:
        room = Nomination(nominated.node, nominated.replicas, nominated.until_us)
        state.nominated[nominated.binding] = (*state.nominated.get(nominated.binding, ()), room)
        return
    replicas = {**claim.replicas, nominated.binding: claim.replicas.get(nominated.binding, 0) + nominated.replicas}
    state.pools.claims[claim.claim] = msgspec.structs.replace(claim, replicas=replicas)


# --- claims


def follow_claimed(state: ClusterState, decision: Decision, at: Micros) -> None:
    _take(state, decision, at)
    state.named += 1


def follow_claim_ended(state: ClusterState, decision: Decision, ended: NodeClaimEnded, at: Micros) -> None:
    """Whom a node was made for is promised it until it can be counted on, and a little longer."""
    claim = state.pools.claims.get(ended.claim)
    _take(state, decision, at)
    if claim is None:
        return
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


# --- commands


def follow_decided(state: ClusterState, decision: Decision, decided: DisruptionDecided, at: Micros) -> None:
    for node in decided.nodes:
        state.book.close(node.name)
    _take(state, decision, at)
    replacements = tuple([Replacement(claim) for claim in decided.claims])
    state.running[decided.command] = Running(decided, decision.id, at, replacements)
    state.disruptions.pop(decided.proposal, None)
    state.named += 1


def follow_removed(state: ClusterState, decision: Decision, removed: NodeRemovalDecided, at: Micros) -> None:
    _take(state, decision, at)
    running = None if decision.cause is None else _running(state, decision.cause)
    if running is not None:
        _replace(state, msgspec.structs.replace(running, removed=(*running.removed, removed.node)))


def follow_ended(state: ClusterState, decision: Decision, over: DisruptionEnded, at: Micros) -> None:
    """What is left of its nodes takes replicas again."""
    for name in over.nodes:
        if name not in over.removed:
            state.book.reopen(name)
    _take(state, decision, at)
    state.running.pop(over.command, None)


def _running(state: ClusterState, cause: UUID) -> Running | None:
    return next((running for running in state.running.values() if running.id == cause), None)


def _replace(state: ClusterState, running: Running) -> None:
    state.running[running.decided.command] = running
