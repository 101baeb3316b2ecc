"""Answers to proposed disruption commands: each is validated against the present cluster, and
decided as a whole or refused.

First the pods of the nodes are compared with those at the time of the proposal (by digest). Then
the method that found the command checks it again (`engine.disruption.methods.check`): candidates,
budgets, prices, and a place for all pods that move. `command_progress` carries out a decided
command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
)
from wharfinger.domain.pod_workload import controller_of
from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.engine.disruption import methods
from wharfinger.engine.disruption.cluster_snapshot import Command, DisruptionVerdict, PodMove
from wharfinger.events.decisions import DisruptionDecided, Explanation, PricedNode, ReplicaMove
from wharfinger.events.envelope import uuid_of
from wharfinger.events.proposals import DisruptionProposed
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.claims import in_words, name_of, price_of, requested
from wharfinger.stages.cluster.cluster_snapshot import scene
from wharfinger.stages.cluster.explain import cut
from wharfinger.stages.cluster.node_search import extenders_of
from wharfinger.stages.cluster.state import ClusterStageState, left_alone
from wharfinger.stages.cluster_snapshots import contents_of
from wharfinger.stages.proposal_refusals import declined

DONE_WITHIN_US: Micros = 3600 * 1_000_000
"""A command that takes longer is rolled back (one hour, in microseconds)."""

REPLACED_WITHIN_US: Micros = 600 * 1_000_000
"""A command whose replacement nodes are not ready within this time is rolled back."""

REFUSALS: Mapping[str, ProposalRefusal] = {
    "NotManaged": "UnknownTarget",
    "Disrupting": "NothingToDo",
    "Closed": "NothingToDo",
    "PodDoNotDisrupt": "Protected",
    "NoOwner": "Protected",
    "Unknown": "Protected",
    "PodDisruptionBudget": "Protected",
    "DoNotDisrupt": "Protected",
    "Static": "Protected",
    "Never": "Protected",
    "WhenEmpty": "Protected",
    "BudgetSpent": "BudgetSpent",
    "NoRoom": "NoRoom",
    "PriceUnknown": "NotBetter",
    "NotCheaper": "NotBetter",
    "Unbalanced": "NotBetter",
    "NothingToSave": "NotBetter",
}
"""Rule by which a node stays -> the reason with which the proposal is refused. For every other rule
the reason is `Changed`: the rule did not apply when the node was proposed."""

No = tuple[ProposalRefusal, str]


def answer_disruptions(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Answers the open disruption proposals in order of arrival. The stage checks each proposal
    against the state after its decisions on the earlier ones."""
    for id, proposed in list(state.disruptions.items()):
        found = _why_not(state, proposed, at) or _checked(state, proposed, at)
        if isinstance(found, Command):
            yield from _decided(state, id, proposed, found, at)
            continue
        reason, detail = found
        target = proposed.nodes[0] if proposed.nodes else proposed.cluster
        yield declined(id, "DisruptionProposed", target, reason, cut(detail), uuid_of(id))


def _why_not(state: ClusterStageState, proposed: DisruptionProposed, at: Micros) -> No | None:
    book = state.book
    if proposed.cluster != state.cluster:
        return "UnknownTarget", "the nodes are said to be in another cluster"
    if not book.known:
        return "UnknownTarget", "not all nodes of the cluster have been seen yet"
    if (alone := left_alone(state)) is not None:
        return alone
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
                (
                    f"no node of pool {new.pool} could be had, none is asked for for "
                    f"{(away[new.pool] - at) // 1_000_000} s"
                ),
            )
    return _extended(state, proposed.nodes)


def _extended(state: ClusterStageState, nodes: Sequence[str]) -> No | None:
    """Refuses a command if a replica on its nodes cannot be moved: extenders are interested in it,
    so that placing it takes several rounds, or it is a pod that exists and pods may not be evicted
    in this cluster, or no controller makes another one. None: there is no such replica."""
    for name in nodes:
        bare = {
            pod.uid for pod in state.book.pods.get(name, ()) if not any(controller_of(pod) or ())
        }
        for (binding, ordinal), replica in sorted(
            state.book.on_node.get(name, {}).items(), key=lambda item: item[0]
        ):
            if replica.pod and not state.book.evicts:
                return (
                    "Protected",
                    f"{binding} #{ordinal} on node {name} is a pod, and none may be evicted here",
                )
            if replica.pod in bare:
                return (
                    "Protected",
                    f"{binding} #{ordinal} on node {name} is a pod that nothing makes again",
                )
            if extenders_of(state, state.book.held[binding]):
                return (
                    "Protected",
                    f"extenders have a say about {binding} #{ordinal} on node {name}",
                )
    return None


def _checked(state: ClusterStageState, proposed: DisruptionProposed, at: Micros) -> Command | No:
    found = methods.check(scene(state, at), proposed.method, proposed.nodes, proposed.replacements)
    if isinstance(found, DisruptionVerdict):
        return REFUSALS.get(found.rule, "Changed"), f"node {found.node}: {found.sentence}"
    return found


def _decided(
    state: ClusterStageState, id: str, proposed: DisruptionProposed, found: Command, at: Micros
) -> Iterator[Draft]:
    """Drafts the decision to carry out a disruption command (nodes to remove, with their
    replacements) that passed all checks, and after it one node claim for each replacement.

    `id`: the id of the proposal. `proposed`: the proposal. `found`: the command as the check
    computed it. If the command saves money, a replacement has a price ceiling: its highest possible
    price plus the saving. Example: a price of at most $0.50 and a saving of $0.20: the node must
    cost less than $0.70. Otherwise there is no ceiling.
    """
    command = name_of(state, "disruption")
    claims = [name_of(state, new.pool, 1 + i) for i, new in enumerate(found.replacements)]
    cause = uuid_of(id)
    data = DisruptionDecided(
        state.cluster,
        command,
        found.method,
        _priced(state, found),
        at + DONE_WITHIN_US,
        tuple(claims),
        tuple([_move(move, claims) for move in found.moves]),
        found.saving,
        found.disruption,
        cut(found.arithmetic),
        id,
        Explanation(note=cut(found.arithmetic), why=cut(proposed.reason, 300)),
    )
    yield Draft(data, command, "disrupting", cause)
    for name, new in zip(claims, found.replacements, strict=True):
        ceiling = new.worst_price + found.saving if found.saving > 0 else 0
        note = f"{in_words(new)}; replaces {', '.join(found.nodes)}"
        yield requested(state, new, name, at + REPLACED_WITHIN_US, cause, note, command, ceiling)


def _priced(state: ClusterStageState, found: Command) -> tuple[PricedNode, ...]:
    priced: list[PricedNode] = []
    for name in found.nodes:
        node = state.book.nodes[name]
        labels, pool = node.labels, node.labels.get(POOL_LABEL, "")
        priced.append(
            PricedNode(
                name,
                pool,
                labels.get(INSTANCE_TYPE_LABEL, ""),
                labels.get(ZONE_LABEL, ""),
                labels.get(CAPACITY_TYPE_LABEL, ""),
                price_of(state, node, pool),
            )
        )
    return tuple(priced)


def _move(move: PodMove, claims: Sequence[str]) -> ReplicaMove:
    new = move.target.removeprefix("new:")
    target = claims[int(new)] if new != move.target else move.target
    ours = bool(move.binding) and move.ordinal >= 0
    return ReplicaMove(move.binding, move.ordinal, move.source, target, "" if ours else move.pod)
