"""What strategies may not do again so soon: take a binding back to a node they took it off, or move it at all.

The descheduler minds both when it looks for what should move, but it only has what it saw itself, and forgets that when it ends;
and it names who shall leave, while the place is sought here. So it is here that the two are certain: what was moved, and for how
long that counts, is folded from proposals and releases as everything else is, lies in snapshots, and outlives every process. The
proposal that moved something says for how long; whoever proposes next is held to it.

By binding, not by replica, for replicas are alike: two that change places come to the same as one that goes back. Nothing is
forgotten to make room before its time: a binding that was taken off very many nodes is left alone instead. Strategies are bound by
this and nobody else: what is placed anew, and what a node that goes has to let go of, may come to any node. How often a binding
was moved before, by which the descheduler leaves it alone for longer each time, is not kept here: after a restart it may be moved
again after one cool-down, to a node where it has not been.
"""

from __future__ import annotations

from wharfinger.events.decisions import ReplicasReleased
from wharfinger.events.proposals import DeschedulingProposed, Unseating
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.state import ClusterState

RESTED_US: Micros = 300 * 1_000_000
"""A binding of which something was moved is left alone by strategies for so long at least."""

LEFT_MAX = 256
"""So many nodes that one binding was taken off are kept in mind."""

SPAN_MAX_S = 10**8


def follow_moved(state: ClusterState, released: ReplicasReleased, proposed: DeschedulingProposed, at: Micros) -> None:
    """A replica was let go for the proposal."""
    state.rested[released.binding] = at + max(RESTED_US, _span(proposed.cooldown_s))
    until = at + _span(proposed.return_s)
    if until > at:
        left = state.left.setdefault(released.binding, {})
        for share in released.released:
            left[share.node] = max(until, left.get(share.node, 0))


def barred(state: ClusterState, unseating: Unseating) -> frozenset[str]:
    """Nodes it does not go to."""
    return frozenset(unseating.avoid).union(_left_lately(state, unseating.binding))


def is_worn_out(state: ClusterState, binding: str, proposed: DeschedulingProposed) -> bool:
    """Nothing more could be kept in mind of it."""
    return proposed.return_s > 0 and len(_left_lately(state, binding)) >= LEFT_MAX


def tidy(state: ClusterState, at: Micros) -> None:
    """Forget what holds no more, and of whom nothing is left. Done when somebody proposes, not in every round."""
    kept = {b: {n: t for n, t in left.items() if t > at} for b, left in state.left.items() if b in state.book.held}
    state.left = {binding: left for binding, left in kept.items() if left}


def _left_lately(state: ClusterState, binding: str) -> list[str]:
    return [node for node, until in state.left.get(binding, {}).items() if until > state.at]


def _span(seconds: int) -> Micros:
    return min(max(0, seconds), SPAN_MAX_S) * 1_000_000
