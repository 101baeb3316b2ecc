"""Nodes that somebody proposes to take away: closed where nothing is on them, else refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.events.decisions import NodeRemovalDecided, ProposalRefused
from wharfinger.events.envelope import uuid_of
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.kernel.decider import Draft
from wharfinger.stages.cluster.choosing import moves_to_come
from wharfinger.stages.cluster.state import ClusterState


def answer_proposals(state: ClusterState) -> Iterator[Draft]:
    """After placing, so that a node that has just been given replicas is not taken away from under them."""
    for id, proposed in list(state.proposals.items()):
        no, cause = _why_not_remove(state, proposed), state.on_behalf.get(id) or uuid_of(id)
        if no is None:
            removed = NodeRemovalDecided(state.cluster, proposed.node, proposed.reason, id)
            yield Draft(removed, proposed.node, "removed", cause)
        else:
            reason, detail = no
            refused = ProposalRefused(id, "NodeRemovalProposed", proposed.node, reason, detail)
            yield Draft(refused, proposed.node, "refused", cause)


def forget_proposal(state: ClusterState, id: str) -> None:
    state.proposals.pop(id, None)
    state.disruptions.pop(id, None)
    state.descheduling.pop(id, None)
    state.on_behalf.pop(id, None)


def _why_not_remove(state: ClusterState, proposed: NodeRemovalProposed) -> tuple[ProposalRefusal, str] | None:
    book, name = state.book, proposed.node
    if proposed.cluster != state.cluster:
        return "UnknownTarget", "the node is said to be in another cluster"
    if not book.known:
        return "UnknownTarget", "not all nodes of the cluster have been seen yet"
    if name not in book.nodes:
        return "UnknownTarget", "no such node"
    if name in book.closed:
        return "NothingToDo", "the node is closed already"
    if name in book.on_node or name in book.pods:
        return "NodeNotEmpty", f"{len(book.on_node.get(name, {}))} placed, {len(book.pods.get(name, ()))} observed"
    if any(nomination.node == name for several in state.nominated.values() for nomination in several):
        return "NodeNotEmpty", "room is being made on it"
    if any(move.node == name for move in moves_to_come(state)) or name in state.pools.nominated(state.at):
        return "NodeNotEmpty", "it is promised to somebody"
    return None
