"""One replica from its node to another, whole: let go there and placed here in the same round, or left where it is.

A place is sought first, as if the replica were gone from where it is, and with all room kept that is promised to others. No
disruption budget is broken: what was moved and has not been seen where it went counts as disrupted, in clusters that tell of the
binding's pods until they tell of that one, elsewhere for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from wharfinger.domain.cluster_objects import DisruptionBudget
from wharfinger.engine.framework import budgets as pod_budgets
from wharfinger.engine.nodes.columns import NodeRow
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.occupancy import Held, Replica, sane, shares_of
from wharfinger.engine.nodes.place import Choice, Diagnosis
from wharfinger.events.decisions import NodeShare, ReplicasPlaced, ReplicasReleased
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.choosing import charge, placer_of, room_kept
from wharfinger.stages.cluster.explain import NAMED, cut, explained
from wharfinger.stages.cluster.state import ClusterState, Motion
from wharfinger.stages.scenes import pods_of, replica_pod

SEEN_WITHIN_US: Micros = 900 * 1_000_000
UNSEEN_US: Micros = 30 * 1_000_000
"""How long a moved replica counts as disrupted at most: where its binding's pods are told of, and where they are not."""


# --- a place


@dataclass(frozen=True, slots=True)
class Place:
    """Where a replica can go. `looked_at`: how the nodes fared; `next_best`: others it could have gone to."""

    choice: Choice
    looked_at: Diagnosis
    next_best: tuple[Choice, ...]


def place_for(
    state: ClusterState,
    binding: str,
    ordinal: int,
    prefer: str = "",
    welcome: Callable[[NodeRow], bool] | None = None,
    order: Callable[[Choice], int] | None = None,
) -> Place | None:
    """Anywhere but where it is; `prefer` where that will do. `welcome`: which nodes may have it, `order`: which of them first (the
    lowest), as the placer has them among equals. None: there is none."""
    held = state.book.held[binding]
    replica = held.placed[ordinal]
    placer = placer_of(state, binding)
    with room_kept(state, binding, moving=(binding, ordinal)), _lifted(state, replica):
        looked_at = placer.diagnose(held.cls)
        ranked = placer.ranked(held.cls, len(state.book.table.rows)) if looked_at.feasible else []
        found = [c for c in ranked if c.row.name != replica.node and (welcome is None or welcome(c.row))]
        if order is not None:
            found.sort(key=order)
        best = next((c for c in found if c.row.name == prefer), found[0] if found else None)
        if best is None:
            return None
        devices = take_devices(best.row, held.cls.needs) if held.cls.needs else ()
        assert devices is not None, "a feasible node has the devices"
        others = tuple([c for c in found if c is not best][:NAMED])
        return Place(Choice(best.row, best.score, devices), looked_at, others)


@contextmanager
def _lifted(state: ClusterState, replica: Replica) -> Iterator[None]:
    """While the replica is not where it is. Nothing may be folded meanwhile."""
    row = state.book.table.rows.get(replica.node)
    if row is None:
        yield
        return
    taken = sane(replica.devices)
    charge(state, row, replica.cls, -1, [(index, -milli) for index, milli in taken])
    try:
        yield
    finally:
        charge(state, row, replica.cls, 1, taken)


def may_move(held: Held, ordinal: int) -> bool:
    """Not what goes or is replaced anyway."""
    return ordinal in held.placed and not held.replace and len(held.placed) <= held.desired


def moved(
    state: ClusterState, binding: str, ordinal: int, place: Place, reason: str, cause: UUID | None
) -> list[Draft]:
    """Let go and placed. Both keep the replica's number."""
    held = state.book.held[binding]
    replica, choice = held.placed[ordinal], place.choice
    gone = ReplicasReleased(
        state.cluster, binding, held.assignment, shares_of(held.placed, (ordinal,)), reason=reason
    )  # fmt: skip
    share = NodeShare(choice.row.name, (ordinal,), (choice.devices,) if choice.devices else ())
    note = cut(f"moved from {replica.node}: {reason}", 600)
    why = explained(place.looked_at, [choice], place.next_best, note)
    come = ReplicasPlaced(state.cluster, binding, held.assignment, (share,), held.cls.requirements, why)
    return [Draft(gone, binding, "released", cause), Draft(come, binding, "placed", cause)]


# --- budgets of pods


class Budgets:
    """How many pods may go now, budget by budget."""

    def __init__(self, state: ClusterState) -> None:
        self._budgets = state.book.objects.budgets
        self._left = dict(pod_budgets.allowed(self._budgets, pods_of(state.book))) if self._budgets else {}
        for binding, of_binding in sorted(state.motion.items()) if self._budgets else ():
            held = state.book.held.get(binding)
            for ordinal, motion in sorted(of_binding.items()):
                if motion.until > state.at and _is_at(held, ordinal, motion.node):
                    self.go(state, binding, ordinal)

    def forbid(self, state: ClusterState, binding: str, ordinal: int) -> str:
        """The first budget that lets this replica go no more; empty: none does."""
        for budget in self._of(state, binding, ordinal):
            if self._left[(budget.namespace, budget.name)] <= 0:
                return f"{budget.namespace}/{budget.name}"
        return ""

    def go(self, state: ClusterState, binding: str, ordinal: int) -> None:
        for budget in self._of(state, binding, ordinal):
            self._left[(budget.namespace, budget.name)] -= 1

    def _of(self, state: ClusterState, binding: str, ordinal: int) -> list[DisruptionBudget]:
        if not self._budgets:
            return []
        held = state.book.held[binding]
        pod = replica_pod(held.priority, binding, ordinal, held.placed[ordinal])
        return [budget for budget in self._budgets if pod_budgets.covers(budget, pod)]


def set_in_motion(state: ClusterState, placed: ReplicasPlaced, at: Micros) -> None:
    """What was moved counts as disrupted from now on."""
    told = state.book.tells_of(placed.binding)
    until = at + (SEEN_WITHIN_US if told else UNSEEN_US)
    of_binding = state.motion.setdefault(placed.binding, {})
    for share in placed.placed:
        for ordinal in share.ordinals:
            of_binding[ordinal] = Motion(share.node, until)


def forget_motion(state: ClusterState) -> None:
    """What has ended by itself: its time is over, or the replica is not there any more."""
    held = state.book.held
    for binding, of_binding in list(state.motion.items()):
        left = {o: m for o, m in of_binding.items() if m.until > state.at and _is_at(held.get(binding), o, m.node)}
        if left:
            state.motion[binding] = left
        else:
            del state.motion[binding]


def _is_at(held: Held | None, ordinal: int, node: str) -> bool:
    return held is not None and ordinal in held.placed and held.placed[ordinal].node == node


def motion_due(state: ClusterState) -> Micros | None:
    return min((m.until for of_binding in state.motion.values() for m in of_binding.values()), default=None)
