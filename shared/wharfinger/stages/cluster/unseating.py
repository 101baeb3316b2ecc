"""Replicas that should be somewhere else by a descheduling strategy: each is moved where there is a place for it, or stays.

A place is found before anything is let go (surge before eviction), and it has to be a better one by what the strategy is
about: a node that was said to be too full is not relieved at the cost of one that would be as full. Pods of others are not ours
to move, a workload that was moved is left alone for a while, and it does not come back (`staying_away`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.engine.nodes.columns import NodeRow
from wharfinger.engine.nodes.occupancy import Replica
from wharfinger.engine.nodes.place import Choice
from wharfinger.events.decisions import ProposalRefused
from wharfinger.events.envelope import uuid_of
from wharfinger.events.proposals import DeschedulingProposed, Unseating
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.choosing import extenders_of
from wharfinger.stages.cluster.explain import cut
from wharfinger.stages.cluster.members import group_of
from wharfinger.stages.cluster.moving import Budgets, may_move, moved, place_for
from wharfinger.stages.cluster.state import ClusterState
from wharfinger.stages.cluster.staying_away import barred, is_worn_out

THOUSANDTHS = 1000

No = tuple[ProposalRefusal, str]


def answer_descheduling(state: ClusterState, at: Micros) -> Iterator[Draft]:
    """In the order in which they came. What was moved is told by releases and placings; what stays by one refusal."""
    for id, proposed in list(state.descheduling.items()):
        stays: list[No] = []
        budgets, rested = Budgets(state), dict(state.rested)
        for unseating in proposed.unseatings if state.book.known else ():
            found = _unseated(state, proposed, unseating, budgets, rested, id)
            if isinstance(found, list):
                yield from found
            else:
                stays.append(found)
        if stays or not proposed.unseatings or not state.book.known:
            yield _refused(state, id, proposed, stays)
        state.descheduling.pop(id, None)  # of one that was done whole no decision says that it is answered


def _unseated(
    state: ClusterState, proposed: DeschedulingProposed, unseating: Unseating, budgets: Budgets,
    rested: dict[str, Micros], id: str,
) -> list[Draft] | No:  # fmt: skip
    """`rested`: as it was before this proposal: several replicas of one binding may be in it."""
    binding, ordinal = unseating.binding, unseating.ordinal
    if (no := _why_not(state, unseating, rested)) is not None:
        return no
    if budget := budgets.forbid(state, binding, ordinal):
        return "Protected", f"{binding} #{ordinal}: PodDisruptionBudget {budget} lets none go now"
    if is_worn_out(state, binding, proposed):
        return "Held", f"{binding} was taken off so many nodes lately that it is left where it is"
    replica, away = state.book.held[binding].placed[ordinal], barred(state, unseating)
    better, first = _better(state, proposed, binding, replica), _first(state, proposed.strategy)
    welcome = better if not away else lambda row: row.name not in away and (better is None or better(row))
    place = place_for(state, binding, ordinal, "", welcome, first)
    if place is None:
        but = f", but for {len(away)} where it is not to go back to" if away else ""
        return "NoRoom", f"{binding} #{ordinal}: there is no better place than {unseating.node}{but}"
    budgets.go(state, binding, ordinal)
    return moved(state, binding, ordinal, place, proposed.strategy, uuid_of(id))


def _why_not(state: ClusterState, unseating: Unseating, rested: dict[str, Micros]) -> No | None:
    binding, ordinal, node = unseating.binding, unseating.ordinal, unseating.node
    held = state.book.held.get(binding)
    if not binding or ordinal < 0:
        return "Protected", f"pod {unseating.pod} on node {node} is not ours to move"
    if held is None or ordinal not in held.placed or held.placed[ordinal].node != node:
        return "Changed", f"{binding} #{ordinal} is not on node {node}"
    if node not in state.book.nodes or node in state.book.closed:
        return "NothingToDo", f"{binding} #{ordinal}: node {node} goes anyway"
    if not may_move(held, ordinal):
        return "NothingToDo", f"{binding} #{ordinal} goes anyway"
    if extenders_of(state, held):
        return "Protected", f"extenders have a say about {binding} #{ordinal}"
    if group_of(held.cls) is not None:
        return "Protected", f"{binding} #{ordinal} is one of a group, which is placed whole"
    if rested.get(binding, 0) > state.at:
        left = (rested[binding] - state.at) // 1_000_000
        return "Held", f"{binding} was moved lately and is left alone for {left} s"
    return None


# --- what is better


def _better(
    state: ClusterState, proposed: DeschedulingProposed, binding: str, replica: Replica
) -> Callable[[NodeRow], bool] | None:
    """Which nodes are better than where it is, by what the strategy is about. None: every other node where it may be. Where a node
    is too full by what is measured, the placer's own plugins for load say which others are."""
    source = state.book.table.rows[replica.node]
    match proposed.strategy:
        case "LowNodeUtilization" if not proposed.measured:
            before = _fullness(state, source)
            return lambda row: _fullness(state, row, replica) < before
        case "HighNodeUtilization":
            before = _fullness(state, source)
            return lambda row: _fullness(state, row, replica) > before
        case "RemoveDuplicates":
            there = _count(state, replica.node, binding)
            return lambda row: _count(state, row.name, binding) + 1 < there
        case _:
            return None


def _first(state: ClusterState, strategy: str) -> Callable[[Choice], int] | None:
    """Which of the better nodes first. To empty nodes is to fill others, whatever the profile would rather do."""
    return (lambda choice: -_fullness(state, choice.row)) if strategy == "HighNodeUtilization" else None


def _fullness(state: ClusterState, row: NodeRow, also: Replica | None = None) -> int:
    """In thousandths, of the resource that is requested the most of what there is. `also`: as if it were there, too."""
    asked = {} if also is None else {"pods": 1, **also.cls.requirements.requests}
    shares = [0]
    for resource, code in state.book.table.resource_codes.items():
        if code < len(row.free) and row.allocatable[code] > 0:
            used = row.allocatable[code] - row.free[code] + asked.get(resource, 0)
            shares.append(used * THOUSANDTHS // row.allocatable[code])
    return max(shares)


def _count(state: ClusterState, node: str, binding: str) -> int:
    return sum(name == binding for name, _ in state.book.on_node.get(node, ()))


# --- what stays


def _refused(state: ClusterState, id: str, proposed: DeschedulingProposed, stays: list[No]) -> Draft:
    """One word for all: that of the first."""
    if not state.book.known:
        stays = [("UnknownTarget", "not all nodes of the cluster have been seen yet")]
    reason, _ = stays[0] if stays else ("NothingToDo", "")
    subject = proposed.unseatings[0].node if proposed.unseatings else proposed.strategy
    count = f"{len(stays)} of {len(proposed.unseatings)} stay: " if len(proposed.unseatings) > 1 else ""
    detail = cut(count + "; ".join(sentence for _, sentence in stays))
    return Draft(ProposalRefused(id, "DeschedulingProposed", subject, reason, detail), subject, "refused", uuid_of(id))
