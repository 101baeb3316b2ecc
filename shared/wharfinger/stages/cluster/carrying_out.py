"""A command that was decided, until it is over: done, or rolled back.

    decided ─► replacements ready ─► replicas moved, as many at a time as budgets allow ─► nodes empty: their removal ─► done
        └───────────── too late, or something of it is gone ─────────────► rolled back: the nodes that are left take replicas again

Each round does what can be done then, and all that is known of a command is folded from decisions and facts: whoever
takes the stream up again goes on where it stopped. What was moved stays moved; a replacement that came is a node like others.
Pods of others are not moved here: who removes nodes drains them, and their node is waited for until they are seen no more.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from wharfinger.events.decisions import NodeRemovalDecided
from wharfinger.events.disruption import DisruptionEnded, DisruptionOutcome
from wharfinger.events.proposals import DisruptionMethod
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.claims import ended
from wharfinger.stages.cluster.commands import DONE_WITHIN_US, REPLACED_WITHIN_US
from wharfinger.stages.cluster.moving import Budgets, may_move, moved, place_for
from wharfinger.stages.cluster.state import ClusterState, Running
from wharfinger.stages.pools import goes_with_node

RELEASE_REASONS: Mapping[DisruptionMethod, str] = {
    "emptiness": "Emptied", "expiry": "Expired", "static-drift": "Drifted", "static-scale-down": "ScaledIn",
    "drift": "Drifted", "multi-node": "Consolidated", "single-node": "Consolidated",
}  # fmt: skip
"""Why replicas leave a node of a command, and why it is removed."""


def carry_out(state: ClusterState, at: Micros) -> Iterator[Draft]:
    """All commands, the oldest first."""
    if not state.running:
        return
    budgets = Budgets(state)
    for command in list(state.running):
        yield from _carry_out(state, command, budgets, at)


def _carry_out(state: ClusterState, command: str, budgets: Budgets, at: Micros) -> Iterator[Draft]:
    why = _why_over(state, state.running[command], at)
    if not why and _ready(state, state.running[command]):
        why = yield from _emptied(state, command, budgets)
        yield from _removed(state, command)
    running = state.running[command]
    if len(running.removed) == len(running.decided.nodes):
        yield _ended(running, "done", "")
    elif why:
        yield from _rolled_back(state, running, why)


def _why_over(state: ClusterState, running: Running, at: Micros) -> str:
    """Why it cannot go on; empty: it can."""
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


def _ready(state: ClusterState, running: Running) -> bool:
    """Every replacement is there and can be counted on."""
    nodes = state.book.nodes
    return all(
        r.node in nodes and state.policies.initialized(state.cluster, nodes[r.node]) for r in running.replacements
    )


def _emptied(state: ClusterState, command: str, budgets: Budgets) -> Generator[Draft, None, str]:
    """Move what may be moved now. Why the command cannot be carried out, if a replica has no place any more."""
    running = state.running[command]
    reason = RELEASE_REASONS[running.decided.method]
    targets = {(m.binding, m.ordinal): running.node_of(m.target) for m in running.decided.moves if not m.pod}
    for node in running.decided.nodes:
        for binding, ordinal in sorted(state.book.on_node.get(node.name, {})):
            if not may_move(state.book.held[binding], ordinal) or budgets.forbid(state, binding, ordinal):
                continue
            place = place_for(state, binding, ordinal, targets.get((binding, ordinal), ""))
            if place is None:
                return f"{binding} #{ordinal} has no place any more"
            budgets.go(state, binding, ordinal)
            yield from moved(state, binding, ordinal, place, reason, running.id)
    return ""


def _removed(state: ClusterState, command: str) -> Iterator[Draft]:
    """Nodes that hold nothing any more but what goes with them."""
    running = state.running[command]
    for node in running.decided.nodes:
        if node.name in running.removed or node.name in state.book.on_node:
            continue
        if any(not goes_with_node(pod) for pod in state.book.pods.get(node.name, ())):
            continue
        reason = RELEASE_REASONS[running.decided.method]
        data = NodeRemovalDecided(state.cluster, node.name, f"{reason} by {command}", running.decided.proposal)
        yield Draft(data, node.name, "removed", running.id)


def _rolled_back(state: ClusterState, running: Running, why: str) -> Iterator[Draft]:
    """Replacements that have not come are not waited for any more."""
    for claim in running.decided.claims:
        if claim in state.pools.claims:
            yield ended(state, state.pools.claims[claim], "cancelled", why, cause=running.id)
    yield _ended(state.running[running.decided.command], "rolled-back", why)


def _ended(running: Running, outcome: DisruptionOutcome, why: str) -> Draft:
    decided = running.decided
    gone = sum(node.price for node in decided.nodes if node.name in running.removed)
    data = DisruptionEnded(
        decided.cluster, decided.command, decided.method, outcome, tuple([node.name for node in decided.nodes]),
        running.removed, decided.saving, gone - sum(r.price for r in running.replacements), running.moved, why,
    )  # fmt: skip
    return Draft(data, decided.command, outcome, running.id)


def next_due(state: ClusterState) -> Micros | None:
    dues = [running.decided.until_us for running in state.running.values()]
    for running in state.running.values():
        if not _ready(state, running):
            dues.append(running.at + REPLACED_WITHIN_US)
    return min(dues, default=None)
