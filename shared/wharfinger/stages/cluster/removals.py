"""Proposed removals of empty nodes: the node is closed if it is empty, otherwise the proposal is
refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.events.decisions import NodeRemovalDecided
from wharfinger.events.envelope import uuid_of
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.kernel.decider import Draft
from wharfinger.stages.cluster.node_search import moves_to_come
from wharfinger.stages.cluster.state import ClusterStageState, left_alone
from wharfinger.stages.proposal_refusals import declined


def answer_proposals(state: ClusterStageState) -> Iterator[Draft]:
    """Answers the open proposals to remove an empty node, in order of arrival. The stage calls it
    after placing, so that it does not remove a node that has just received replicas."""
    for id, proposed in list(state.proposals.items()):
        no, cause = _why_not_remove(state, proposed), state.on_behalf.get(id) or uuid_of(id)
        if no is None:
            yield removed_draft(state, proposed.node, proposed.reason, id, cause)
        else:
            reason, detail = no
            yield declined(id, "NodeRemovalProposed", proposed.node, reason, detail, cause)


def removed_draft(
    state: ClusterStageState, node: str, reason: str, proposal: str, cause: UUID | None
) -> Draft:
    """Drafts the decision to remove a node. `proposal`: id of the proposal that it answers;
    `cause`: the event or decision that led to it."""
    data = NodeRemovalDecided(state.cluster, node, reason, proposal)
    return Draft(data, node, "removed", cause)


def forget_proposal(state: ClusterStageState, id: str) -> None:
    state.proposals.pop(id, None)
    state.disruptions.pop(id, None)
    state.descheduling.pop(id, None)
    state.on_behalf.pop(id, None)


def _why_not_remove(
    state: ClusterStageState, proposed: NodeRemovalProposed
) -> tuple[ProposalRefusal, str] | None:
    book, name = state.book, proposed.node
    if proposed.cluster != state.cluster:
        return "UnknownTarget", "the node is said to be in another cluster"
    if not book.known:
        return "UnknownTarget", "not all nodes of the cluster have been seen yet"
    if (alone := left_alone(state)) is not None:
        return alone
    if name not in book.nodes:
        return "UnknownTarget", "no such node"
    if name in book.closed:
        return "NothingToDo", "the node is closed already"
    if name in book.on_node or name in book.pods:
        return (
            "NodeNotEmpty",
            f"{len(book.on_node.get(name, {}))} placed, {len(book.pods.get(name, ()))} observed",
        )
    if any(
        nomination.node == name for several in state.nominated.values() for nomination in several
    ):
        return "NodeNotEmpty", "room is being made on it"
    if any(move.node == name for move in moves_to_come(state)) or name in state.pools.nominated(
        state.at
    ):
        return "NodeNotEmpty", "it is promised to somebody"
    return None
