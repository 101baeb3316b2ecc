"""Damping of strategies: after a move, the binding rests for a cool-down and does not return to the
node it left.

The descheduler applies the same rules when it searches, but only to what it saw itself, and it
loses that when it ends; and it names only the replica, while the target is chosen here. So the
rules are enforced here: moves are folded from proposals and releases, are part of snapshots, and
survive every process. The proposal that moved a binding states the duration, and later proposals
are bound by it.

By binding, not by replica: replicas are identical, so two that swap nodes are the same as one that
returns. Nothing is dropped early to save memory; a binding that left very many nodes is not moved
at all instead. The rules bind strategies only: other placements, and replicas from nodes being
removed, may go to any node. The doubling of the cool-down with repeated moves is kept only in the
descheduler: after its restart a binding may move again after a single cool-down, to a node where it
has not been.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.events.decisions import NodeShare
from wharfinger.events.proposals import DeschedulingProposed, Unseating
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.state import ClusterStageState

RESTED_US: Micros = 300 * 1_000_000
"""Minimum time for which strategies do not move a binding again after a move."""

LEFT_MAX = 256
"""Number of nodes that a binding may have left before strategies do not move it at all."""

SPAN_MAX_S = 10**8


def follow_moved(
    state: ClusterStageState,
    binding: str,
    released: Iterable[NodeShare],
    proposed: DeschedulingProposed,
    at: Micros,
) -> None:
    """Records that replicas of a binding were moved for a descheduling proposal.

    The binding gets a cool-down: no strategy moves its replicas for `proposed.cooldown_s` seconds,
    at least five minutes. For `proposed.return_s` seconds (0: no limit) no strategy moves its
    replicas back to the nodes that the replicas left. Example: `cooldown_s` 60 and `return_s` 3600:
    no move for 300 seconds, no return for an hour. `released`: the released replicas by node.
    """
    state.rested[binding] = at + max(RESTED_US, _span(proposed.cooldown_s))
    until = at + _span(proposed.return_s)
    if until > at:
        left = state.left.setdefault(binding, {})
        for share in released:
            left[share.node] = max(until, left.get(share.node, 0))


def barred(state: ClusterStageState, unseating: Unseating) -> frozenset[str]:
    """Returns the nodes to which a strategy may not move this replica: the nodes that the proposal
    excludes, and the nodes that its binding left lately."""
    return frozenset(unseating.avoid).union(_left_lately(state, unseating.binding))


def is_worn_out(state: ClusterStageState, binding: str, proposed: DeschedulingProposed) -> bool:
    """Returns whether the binding has left so many nodes lately (`LEFT_MAX`) that strategies may
    not move it at all."""
    return proposed.return_s > 0 and len(_left_lately(state, binding)) >= LEFT_MAX


def tidy(state: ClusterStageState, at: Micros) -> None:
    """Drops expired entries of left nodes, and all entries of bindings that no longer exist. The
    stage calls it when a proposal arrives, not in every round."""
    kept = {
        b: {n: t for n, t in left.items() if t > at}
        for b, left in state.left.items()
        if b in state.book.held
    }
    state.left = {binding: left for binding, left in kept.items() if left}


def _left_lately(state: ClusterStageState, binding: str) -> list[str]:
    return [node for node, until in state.left.get(binding, {}).items() if until > state.at]


def _span(seconds: int) -> Micros:
    return min(max(0, seconds), SPAN_MAX_S) * 1_000_000
