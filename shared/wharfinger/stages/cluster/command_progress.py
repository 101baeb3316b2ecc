"""How a decided disruption command is carried out: a state machine that ends with done, or rolled
back.

    decided -> replacements ready -> replicas moved, as many at a time
                                     as budgets allow -> nodes empty -> removal -> done
        |
        +-- timed out, or a node of it is gone -> rolled back: its remaining nodes
                                                  take replicas again

Each round makes the progress that is possible then. The state is folded from decisions and facts,
so the next owner of the stream continues where the last one stopped. After a rollback, moved
replicas stay moved, and a replacement that came is a node like others. Pods that this plane did not
place are not moved here: the provider drains them, and their node is kept until they are no longer
reported. In a joined cluster a replica is a pod that exists: it is released with its uid, which is
the order to evict it, and its successor is placed when it is there (`pod_moves`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from wharfinger.events.decisions import DisruptionEnded, DisruptionOutcome
from wharfinger.events.proposals import DisruptionMethod
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.claims import ended
from wharfinger.stages.cluster.commands import DONE_WITHIN_US, REPLACED_WITHIN_US
from wharfinger.stages.cluster.pod_moves import pods_released
from wharfinger.stages.cluster.removals import removed_draft
from wharfinger.stages.cluster.replica_moves import DisruptionAllowance, may_move, moved, place_for
from wharfinger.stages.cluster.state import ClusterStageState, RunningCommand, places_pods
from wharfinger.stages.pools import goes_with_node

RELEASE_REASONS: Mapping[DisruptionMethod, str] = {
    "emptiness": "Emptied",
    "expiry": "Expired",
    "static-drift": "Drifted",
    "static-scale-down": "ScaledIn",
    "drift": "Drifted",
    "multi-node": "Consolidated",
    "single-node": "Consolidated",
}
"""Method of a command -> the reason with which replicas leave its nodes and the nodes are
removed."""


def carry_out(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Advances all running commands as far as possible now, the oldest first, under one set of
    disruption budgets."""
    if not state.running:
        return
    budgets = DisruptionAllowance(state)
    for command in list(state.running):
        yield from _carry_out(state, command, budgets, at)


def _carry_out(
    state: ClusterStageState, command: str, budgets: DisruptionAllowance, at: Micros
) -> Iterator[Draft]:
    why = _why_over(state, state.running[command], at)
    if not why and _ready(state, state.running[command]):
        why = yield from _emptied(state, command, budgets)
        yield from _removed(state, command)
    running = state.running[command]
    if len(running.removed) == len(running.decided.nodes):
        yield _ended(running, "done", "")
    elif why:
        yield from _rolled_back(state, running, why)


def _why_over(state: ClusterStageState, running: RunningCommand, at: Micros) -> str:
    """Returns why the disruption command has to be rolled back; empty if it can continue.

    There are five reasons: the claim of a replacement node failed; a replacement node disappeared;
    a node that the command has not removed disappeared; the replacements were not ready within 600
    s; the command was not done within 3,600 s.
    """
    book = state.book
    for replacement in running.replacements:
        if replacement.failed:
            return f"replacement {replacement.claim}: {replacement.failed}"
        if replacement.node and replacement.node not in book.nodes:
            return f"replacement {replacement.node} is gone"
    for node in running.decided.nodes:
        if node.name not in running.removed and node.name not in book.nodes:
            return f"node {node.name} has gone by itself"
    if at >= running.at + REPLACED_WITHIN_US and not _ready(state, running):
        return f"the replacements were not ready within {REPLACED_WITHIN_US // 1_000_000} s"
    if at >= running.decided.until_us:
        return f"it was not done within {DONE_WITHIN_US // 1_000_000} s"
    return ""


def _ready(state: ClusterStageState, running: RunningCommand) -> bool:
    """Returns whether every replacement node exists and is initialised."""
    nodes = state.book.nodes
    return all(
        r.node in nodes and state.policies.initialized(state.cluster, nodes[r.node])
        for r in running.replacements
    )


def _emptied(
    state: ClusterStageState, command: str, budgets: DisruptionAllowance
) -> Generator[Draft, None, str]:
    """Drafts the moves of the replicas that may leave the nodes of a disruption command now.
    Returns an empty text at the end, or the reason why the command has to be rolled back.

    A replica stays for now in two cases, and a later round tries again: a PodDisruptionBudget
    allows no eviction, or the replica is going to be released anyway (its binding has more replicas
    than wanted, or all its replicas are being replaced). If a replica may leave and no other node
    is feasible, the function stops and returns the reason for a rollback.

    `budgets`: how many evictions each PodDisruptionBudget still allows in this round; each move
    reduces it.
    """
    running = state.running[command]
    reason = RELEASE_REASONS[running.decided.method]
    if places_pods(state):
        return (yield from pods_released(state, running, budgets, reason))
    targets = {
        (m.binding, m.ordinal): running.node_of(m.target)
        for m in running.decided.moves
        if not m.pod
    }
    for node in running.decided.nodes:
        for binding, ordinal in sorted(state.book.on_node.get(node.name, {})):
            if not may_move(state.book.held[binding], ordinal) or budgets.forbid(
                state, binding, ordinal
            ):
                continue
            place = place_for(state, binding, ordinal, targets.get((binding, ordinal), ""))
            if place is None:
                return f"{binding} #{ordinal} has no place any more"
            budgets.go(state, binding, ordinal)
            yield from moved(state, binding, ordinal, place, reason, running.id)
    return ""


def _removed(state: ClusterStageState, command: str) -> Iterator[Draft]:
    """Decides the removal of the nodes that hold only daemon and static pods."""
    running = state.running[command]
    for node in running.decided.nodes:
        if node.name in running.removed or node.name in state.book.on_node:
            continue
        if any(not goes_with_node(pod) for pod in state.book.pods.get(node.name, ())):
            continue
        reason = RELEASE_REASONS[running.decided.method]
        yield removed_draft(
            state, node.name, f"{reason} by {command}", running.decided.proposal, running.id
        )


def _rolled_back(state: ClusterStageState, running: RunningCommand, why: str) -> Iterator[Draft]:
    """Ends a command: cancels its claims that are still open. Its other nodes are reopened when the
    end is folded."""
    for claim in running.decided.claims:
        if claim in state.pools.claims:
            yield ended(state, state.pools.claims[claim], "cancelled", why, cause=running.id)
    yield _ended(state.running[running.decided.command], "rolled-back", why)


def _ended(running: RunningCommand, outcome: DisruptionOutcome, why: str) -> Draft:
    decided = running.decided
    gone = sum(node.price for node in decided.nodes if node.name in running.removed)
    data = DisruptionEnded(
        decided.cluster,
        decided.command,
        decided.method,
        outcome,
        tuple([node.name for node in decided.nodes]),
        running.removed,
        decided.saving,
        gone - sum(r.price for r in running.replacements),
        running.moved,
        why,
    )
    return Draft(data, decided.command, outcome, running.id)


def next_due(state: ClusterStageState) -> Micros | None:
    dues = [running.decided.until_us for running in state.running.values()]
    for running in state.running.values():
        if not _ready(state, running):
            dues.append(running.at + REPLACED_WITHIN_US)
    return min(dues, default=None)
