"""Atomic move of one replica to another node: released there and placed here in the same round, or
left where it is.

The target is searched first, as if the replica were gone from its node, with all reservations kept.
No disruption budget is violated: a moved replica counts as disrupted until it is observed at its
target, in clusters that report the binding's pods; elsewhere for a fixed time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from wharfinger.domain.cluster_objects import DisruptionBudget
from wharfinger.domain.node import Pod
from wharfinger.domain.scheduler import same_scheduler
from wharfinger.engine.framework import budgets as pod_budgets
from wharfinger.engine.nodes.columns import NodeRow
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.occupancy import HeldBinding, Replica, sane, shares_of
from wharfinger.engine.nodes.place import Diagnosis, NodeChoice
from wharfinger.events.decisions import NodeShare
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.answers import placed_draft, released_draft
from wharfinger.stages.cluster.explain import cut, explained
from wharfinger.stages.cluster.node_search import charge, placer_of, room_kept
from wharfinger.stages.cluster.state import ClusterStageState, Motion, places_pods
from wharfinger.stages.cluster_snapshots import pods_of, replica_pod
from wharfinger.stages.pools import goes_with_node

SEEN_WITHIN_US: Micros = 900 * 1_000_000
UNSEEN_US: Micros = 30 * 1_000_000
"""The longest time for which a moved replica counts as disrupted, in microseconds: `SEEN_WITHIN_US`
where the cluster reports the pods of its binding, else `UNSEEN_US`."""


# --- a place


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """Holds the target of a move. `looked_at`: how many nodes were refused, and why. `next_best`:
    the next nodes in the ranking, for the explanation."""

    choice: NodeChoice
    looked_at: Diagnosis
    next_best: tuple[NodeChoice, ...]


def place_for(
    state: ClusterStageState,
    binding: str,
    ordinal: int,
    prefer: str = "",
    welcome: Callable[[NodeRow], bool] | None = None,
    order: Callable[[NodeChoice], int] | None = None,
) -> ReplicaPlace | None:
    """Returns the best other node for the replica `ordinal` of `binding`: of all feasible nodes
    except the replica's present node, the one with the highest score. Returns None if there is no
    such node.

    During the search, the resources that the replica uses on its present node count as free. Room
    that is reserved by nominations and by other pending moves does not count as free.

    - `prefer`: name of a node that is chosen before all other nodes if it is feasible and allowed
      by `welcome`; empty: none.
    - `welcome`: returns whether a node may be chosen; None: every node may.
    - `order`: returns a sort key of a node. The node with the lowest key is chosen; the score
      decides only between equal keys. None: only the score decides.

    The result also holds the diagnosis (how many nodes were refused, and why) and the next nodes in
    the ranking.
    """
    held = state.book.held[binding]
    replica = held.placed[ordinal]
    placer = placer_of(state, binding)
    with room_kept(state, binding, moving=(binding, ordinal)), lifted(state, replica):
        looked_at = placer.diagnose(held.cls)
        ranked = placer.ranked(held.cls, len(state.book.table.rows)) if looked_at.feasible else []
        found = [
            c for c in ranked if c.row.name != replica.node and (welcome is None or welcome(c.row))
        ]
        if order is not None:
            found.sort(key=order)
        best = next((c for c in found if c.row.name == prefer), found[0] if found else None)
        if best is None:
            return None
        devices = take_devices(best.row, held.cls.needs) if held.cls.needs else ()
        assert devices is not None, "a feasible node has the devices"
        others = tuple([c for c in found if c is not best][:1])
        return ReplicaPlace(NodeChoice(best.row, best.score, devices), looked_at, others)


@contextmanager
def lifted(state: ClusterStageState, replica: Replica) -> Iterator[None]:
    """Frees the resources of `replica` on its node while the `with` block runs, and takes these
    resources again at the end of the block. Does nothing if the node is not known. No event or
    decision may be folded inside the block."""
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


def may_move(held: HeldBinding, ordinal: int) -> bool:
    """Returns whether the replica is placed and stays: its binding has no surplus and is not being
    replaced."""
    return ordinal in held.placed and not held.replace and len(held.placed) <= held.desired


def moved(
    state: ClusterStageState,
    binding: str,
    ordinal: int,
    place: ReplicaPlace,
    reason: str,
    cause: UUID | None,
) -> list[Draft]:
    """Returns the two drafts (decisions that have no seq yet) that move one replica. The first
    releases the replica from its present node. The second puts it on the node in `place`, with the
    same ordinal. `place`: the target node with its diagnosis. `reason`: why the replica moves; the
    text is stored in both decisions. `cause`: the event or decision that led to the move."""
    held = state.book.held[binding]
    replica, choice = held.placed[ordinal], place.choice
    gone = released_draft(state, binding, shares_of(held.placed, (ordinal,)), reason, cause)
    share = NodeShare(choice.row.name, (ordinal,), (choice.devices,) if choice.devices else ())
    note = cut(f"moved from {replica.node}: {reason}", 600)
    why = explained(place.looked_at, [choice], place.next_best, note)
    return [gone, placed_draft(state, binding, (share,), why, cause)]


# --- budgets of pods


class DisruptionAllowance:
    """Tracks how many more pods each PodDisruptionBudget of the cluster allows to disrupt now. A
    replica that was moved and has not been observed at its target already counts as disrupted."""

    def __init__(self, state: ClusterStageState) -> None:
        self._budgets = state.book.objects.budgets
        self._left = (
            dict(pod_budgets.allowed(self._budgets, pods_of(state.book))) if self._budgets else {}
        )
        for binding, of_binding in sorted(state.motion.items()) if self._budgets else ():
            held = state.book.held.get(binding)
            for ordinal, motion in sorted(of_binding.items()):
                if motion.until > state.at and _is_at(held, ordinal, motion.node):
                    self.go(state, binding, ordinal)
        for pod in leaving_pods(state) if self._budgets else ():
            for budget in self._budgets:
                if pod_budgets.covers(budget, pod):
                    self._left[(budget.namespace, budget.name)] -= 1

    def forbid(self, state: ClusterStageState, binding: str, ordinal: int) -> str:
        """Returns the first budget that forbids to disrupt this replica now, as `namespace/name`;
        empty if none does."""
        for budget in self._of(state, binding, ordinal):
            if self._left[(budget.namespace, budget.name)] <= 0:
                return f"{budget.namespace}/{budget.name}"
        return ""

    def go(self, state: ClusterStageState, binding: str, ordinal: int) -> None:
        for budget in self._of(state, binding, ordinal):
            self._left[(budget.namespace, budget.name)] -= 1

    def _of(self, state: ClusterStageState, binding: str, ordinal: int) -> list[DisruptionBudget]:
        if not self._budgets:
            return []
        held = state.book.held[binding]
        pod = replica_pod(held.priority, binding, ordinal, held.placed[ordinal])
        return [budget for budget in self._budgets if pod_budgets.covers(budget, pod)]


def leaving_pods(state: ClusterStageState) -> Iterator[Pod]:
    """Yields the pods of our scheduler that were released from nodes of running commands, to be
    evicted, and are still there."""
    book = state.book
    for running in state.running.values() if places_pods(state) else ():
        for node in running.decided.nodes:
            for pod in book.pods.get(node.name, ()):
                ours = same_scheduler(pod.requirements.traits.scheduler, book.scheduler)
                if pod.uid not in book.replica_of and ours and not goes_with_node(pod):
                    yield pod


def set_in_motion(
    state: ClusterStageState, binding: str, shares: Iterable[NodeShare], at: Micros
) -> None:
    """Marks moved replicas as disrupted until they are observed at their target: for at most 15
    minutes if the cluster reports the pods of the binding, otherwise for 30 seconds."""
    told = state.book.tells_of(binding)
    until = at + (SEEN_WITHIN_US if told else UNSEEN_US)
    of_binding = state.motion.setdefault(binding, {})
    for share in shares:
        for ordinal in share.ordinals:
            of_binding[ordinal] = Motion(share.node, until)


def forget_motion(state: ClusterStageState) -> None:
    """Deletes the records of finished moves from `state.motion`. A record counts a moved replica as
    disrupted until the replica is observed on its target node. A record is deleted if its time
    limit has passed, or if the replica is no longer placed on the target node."""
    held = state.book.held
    for binding, of_binding in list(state.motion.items()):
        left = {
            o: m
            for o, m in of_binding.items()
            if m.until > state.at and _is_at(held.get(binding), o, m.node)
        }
        if left:
            state.motion[binding] = left
        else:
            del state.motion[binding]


def _is_at(held: HeldBinding | None, ordinal: int, node: str) -> bool:
    return held is not None and ordinal in held.placed and held.placed[ordinal].node == node


def motion_due(state: ClusterStageState) -> Micros | None:
    return min(
        (m.until for of_binding in state.motion.values() for m in of_binding.values()), default=None
    )
