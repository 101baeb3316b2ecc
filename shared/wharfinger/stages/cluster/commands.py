"""Nodes that can go: what is proposed is held against the cluster as it is, and decided whole or refused.

First what the nodes hold is compared with what they held when it was proposed; then everything is found again by the same
methods that found it (`engine.disruption.methods.check`): candidates, budgets, prices, and a place for all that has to move. How a
command that was decided is carried out is `carrying_out`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL, POOL_LABEL, ZONE_LABEL
from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.engine.disruption import methods
from wharfinger.engine.disruption.scene import Command, Move, Verdict
from wharfinger.events.decisions import Explanation, ProposalRefused
from wharfinger.events.disruption import DisruptionDecided, PricedNode, ReplicaMove
from wharfinger.events.envelope import uuid_of
from wharfinger.events.proposals import DisruptionProposed
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.choosing import extenders_of
from wharfinger.stages.cluster.claims import in_words, name_of, price_of, requested
from wharfinger.stages.cluster.explain import cut
from wharfinger.stages.cluster.scene import scene
from wharfinger.stages.cluster.state import ClusterState
from wharfinger.stages.scenes import contents_of

DONE_WITHIN_US: Micros = 3600 * 1_000_000
"""A command that is not done by then is rolled back."""

REPLACED_WITHIN_US: Micros = 600 * 1_000_000
"""So is one whose replacements are not ready by then."""

REFUSALS: Mapping[str, ProposalRefusal] = {
    "NotManaged": "UnknownTarget", "Disrupting": "NothingToDo", "Closed": "NothingToDo", "PodDoNotDisrupt": "Protected",
    "NoOwner": "Protected", "Unknown": "Protected", "PodDisruptionBudget": "Protected", "DoNotDisrupt": "Protected",
    "Static": "Protected", "Never": "Protected", "WhenEmpty": "Protected", "BudgetSpent": "BudgetSpent",
    "NoRoom": "NoRoom", "PriceUnknown": "NotBetter", "NotCheaper": "NotBetter", "Unbalanced": "NotBetter",
    "NothingToSave": "NotBetter",
}  # fmt: skip
"""Rule by which a node stays -> what that is to who proposed that it goes. Whatever else speaks against it now did not then."""

No = tuple[ProposalRefusal, str]


def answer_disruptions(state: ClusterState, at: Micros) -> Iterator[Draft]:
    """In the order in which they came; each sees what was decided of those before it."""
    for id, proposed in list(state.disruptions.items()):
        found = _why_not(state, proposed, at) or _checked(state, proposed, at)
        if isinstance(found, Command):
            yield from _decided(state, id, proposed, found, at)
            continue
        reason, detail = found
        target = proposed.nodes[0] if proposed.nodes else proposed.cluster
        refused = ProposalRefused(id, "DisruptionProposed", target, reason, cut(detail))
        yield Draft(refused, target, "refused", uuid_of(id))


def _why_not(state: ClusterState, proposed: DisruptionProposed, at: Micros) -> No | None:
    book = state.book
    if proposed.cluster != state.cluster:
        return "UnknownTarget", "the nodes are said to be in another cluster"
    if not book.known:
        return "UnknownTarget", "not all nodes of the cluster have been seen yet"
    if not proposed.nodes or len(set(proposed.nodes)) < len(proposed.nodes):
        return "UnknownTarget", "no node is named, or one twice"
    for name in proposed.nodes:
        if name not in book.nodes:
            return "UnknownTarget", f"no node {name}"
        if name in book.closed:
            return "NothingToDo", f"node {name} is closed already"
        if contents_of(book, name) != proposed.contents.get(name):
            return "Changed", f"node {name} holds something else than when this was proposed"
    away = state.pools.backing_off(at)
    for new in proposed.replacements:
        if new.pool in away:
            return (
                "Held",
                f"no node of pool {new.pool} could be had, none is asked for for {(away[new.pool] - at) // 1_000_000} s",
            )
    return _extended(state, proposed.nodes)


def _extended(state: ClusterState, nodes: Sequence[str]) -> No | None:
    """A replica that others have a say about is placed in steps, and cannot be let go and placed in one round."""
    for name in nodes:
        for binding, ordinal in sorted(state.book.on_node.get(name, {})):
            if extenders_of(state, state.book.held[binding]):
                return "Protected", f"extenders have a say about {binding} #{ordinal} on node {name}"
    return None


def _checked(state: ClusterState, proposed: DisruptionProposed, at: Micros) -> Command | No:
    found = methods.check(scene(state, at), proposed.method, proposed.nodes, proposed.replacements)
    if isinstance(found, Verdict):
        return REFUSALS.get(found.rule, "Changed"), f"node {found.node}: {found.sentence}"
    return found


def _decided(state: ClusterState, id: str, proposed: DisruptionProposed, found: Command, at: Micros) -> Iterator[Draft]:
    """The command, then what replaces its nodes."""
    command = name_of(state, "disruption")
    claims = [name_of(state, new.pool, 1 + i) for i, new in enumerate(found.replacements)]
    cause = uuid_of(id)
    data = DisruptionDecided(
        state.cluster, command, found.method, _priced(state, found), at + DONE_WITHIN_US, tuple(claims),
        tuple([_move(move, claims) for move in found.moves]), found.saving, found.disruption,
        cut(found.arithmetic), id, Explanation(note=cut(found.arithmetic), why=cut(proposed.reason, 300)),
    )  # fmt: skip
    yield Draft(data, command, "disrupting", cause)
    for name, new in zip(claims, found.replacements, strict=True):
        ceiling = new.worst_price + found.saving if found.saving > 0 else 0
        note = f"{in_words(new)}; replaces {', '.join(found.nodes)}"
        yield requested(state, new, name, at + REPLACED_WITHIN_US, cause, note, command, ceiling)


def _priced(state: ClusterState, found: Command) -> tuple[PricedNode, ...]:
    priced: list[PricedNode] = []
    for name in found.nodes:
        node = state.book.nodes[name]
        labels, pool = node.labels, node.labels.get(POOL_LABEL, "")
        priced.append(
            PricedNode(
                name, pool, labels.get(INSTANCE_TYPE_LABEL, ""), labels.get(ZONE_LABEL, ""),
                labels.get(CAPACITY_TYPE_LABEL, ""), price_of(state, node, pool),
            )
        )  # fmt: skip
    return tuple(priced)


def _move(move: Move, claims: Sequence[str]) -> ReplicaMove:
    new = move.target.removeprefix("new:")
    target = claims[int(new)] if new != move.target else move.target
    ours = bool(move.binding) and move.ordinal >= 0
    return ReplicaMove(move.binding, move.ordinal, move.source, target, "" if ours else move.pod)
