"""Answers to descheduling proposals: each named replica is moved to a better node, or stays.

Surge before eviction: a place is found before anything is released. It has to be better by the
strategy's own criterion: an overutilised node is not relieved at the cost of one that would be as
full. Pods that this plane did not place are not moved; a workload that was moved rests for a
cool-down, and does not return to the node it left (`move_cooldown`).

A pod that has finished is removed instead of moved, also one that others placed: it uses nothing of
its node and needs no place. The decision is an intent. It names the uid of each pod. A finished pod
never runs again, so the decision stays right for as long as that pod exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.engine.descheduling.view import ENDED
from wharfinger.engine.nodes.columns import NodeRow
from wharfinger.engine.nodes.occupancy import Replica
from wharfinger.engine.nodes.place import NodeChoice
from wharfinger.events.decisions import PodRemovalDecided
from wharfinger.events.envelope import uuid_of
from wharfinger.events.proposals import DeschedulingProposed, FinishedPod, Unseating
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.explain import cut
from wharfinger.stages.cluster.group_members import group_of
from wharfinger.stages.cluster.move_cooldown import barred, is_worn_out
from wharfinger.stages.cluster.node_search import extenders_of
from wharfinger.stages.cluster.replica_moves import DisruptionAllowance, may_move, moved, place_for
from wharfinger.stages.cluster.state import ClusterStageState, left_alone
from wharfinger.stages.proposal_refusals import declined

THOUSANDTHS = 1000

REMOVAL_US: Micros = 86_400 * 1_000_000
"""For how long the decision to remove a finished pod stands, in microseconds. A pod that still
exists after it is proposed again."""

No = tuple[ProposalRefusal, str]


def answer_descheduling(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Answers the open descheduling proposals, in order of arrival. A proposal names replicas that
    a strategy of the descheduler wants to move to other nodes.

    Each replica that moves gets two decisions: a release and a placement. All replicas of a
    proposal that stay get one refusal together. Before all nodes of the cluster are known, every
    replica stays.
    """
    for id, proposed in list(state.descheduling.items()):
        stays: list[No] = []
        ended: dict[str, list[FinishedPod]] = {}
        budgets, rested = DisruptionAllowance(state), dict(state.rested)
        alone = left_alone(state)
        if alone is not None:
            stays += [alone] * len(proposed.unseatings)
        for unseating in proposed.unseatings if state.book.known and alone is None else ():
            if (pod := unseating.finished) is not None:
                if (no := _why_not_removed(state, unseating.node, pod, ended)) is not None:
                    stays.append(no)
                else:
                    ended.setdefault(unseating.node, []).append(pod)
                continue
            found = _unseated(state, proposed, unseating, budgets, rested, id)
            if isinstance(found, list):
                yield from found
            else:
                stays.append(found)
        for node, pods in sorted(ended.items()):
            yield _removed(state, id, proposed, node, pods, at)
        if stays or not proposed.unseatings or not state.book.known:
            yield _refused(state, id, proposed, stays)
        # of one that was done whole no decision says that it is answered
        state.descheduling.pop(id, None)


def _unseated(
    state: ClusterStageState,
    proposed: DeschedulingProposed,
    unseating: Unseating,
    budgets: DisruptionAllowance,
    rested: dict[str, Micros],
    id: str,
) -> list[Draft] | No:
    """Returns the drafts of the decisions that move one replica to a better node, or (reason,
    sentence) why it stays.

    - `proposed`: the proposal of the descheduler; `id`: its id.
    - `unseating`: the part of the proposal that names the replica.
    - `budgets`: how many evictions each PodDisruptionBudget still allows; reduced if the replica
      moves.
    - `rested`: binding -> end of its cool-down, in which its replicas are not moved. The cool-downs
      are those before this proposal. A proposal may name several replicas of one binding. The move
      of the first replica starts a cool-down, which must not stop the moves of the other replicas.
    """
    binding, ordinal = unseating.binding, unseating.ordinal
    if (no := _why_not(state, unseating, rested)) is not None:
        return no
    if budget := budgets.forbid(state, binding, ordinal):
        return "Protected", f"{binding} #{ordinal}: PodDisruptionBudget {budget} lets none go now"
    if is_worn_out(state, binding, proposed):
        return "Held", f"{binding} was taken off so many nodes lately that it is left where it is"
    replica, away = state.book.held[binding].placed[ordinal], barred(state, unseating)
    better, first = _better(state, proposed, binding, replica), _first(state, proposed.strategy)
    welcome = (
        better if not away else lambda row: row.name not in away and (better is None or better(row))
    )
    place = place_for(state, binding, ordinal, "", welcome, first)
    if place is None:
        but = f", but for {len(away)} where it is not to go back to" if away else ""
        return (
            "NoRoom",
            f"{binding} #{ordinal}: there is no better place than {unseating.node}{but}",
        )
    budgets.go(state, binding, ordinal)
    return moved(state, binding, ordinal, place, proposed.strategy, uuid_of(id))


def _why_not(
    state: ClusterStageState, unseating: Unseating, rested: dict[str, Micros]
) -> No | None:
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
    if held.placed[ordinal].pod:
        return "Protected", f"{binding} #{ordinal} is a pod that cannot be placed ahead"
    if extenders_of(state, held):
        return "Protected", f"extenders have a say about {binding} #{ordinal}"
    if group_of(held.cls) is not None:
        return "Protected", f"{binding} #{ordinal} is one of a group, which is placed whole"
    if rested.get(binding, 0) > state.at:
        left = (rested[binding] - state.at) // 1_000_000
        return "Held", f"{binding} was moved lately and is left alone for {left} s"
    return None


# --- finished pods


def _why_not_removed(
    state: ClusterStageState, node: str, pod: FinishedPod, ended: Mapping[str, list[FinishedPod]]
) -> No | None:
    """Returns (reason, sentence) why the removal of a finished pod is not decided; None: it is.
    `ended`: node -> pods of the same proposal whose removal is decided."""
    if pod.phase not in ENDED:
        return "Changed", f"pod {pod} on node {node} has not finished"
    if any(there.uid == pod.uid for there in state.book.pods.get(node, ())):
        return "Changed", f"pod {pod} still runs on node {node}"
    if pod.uid in state.removals or pod in ended.get(node, ()):
        return "NothingToDo", f"pod {pod}: its removal was decided"
    return None


def _removed(
    state: ClusterStageState,
    id: str,
    proposed: DeschedulingProposed,
    node: str,
    pods: Sequence[FinishedPod],
    at: Micros,
) -> Draft:
    """Drafts the removal of finished pods of one node. It stands for a day (`REMOVAL_US`)."""
    decided = PodRemovalDecided(
        state.cluster,
        node,
        tuple(pods),
        proposed.strategy,
        cut(proposed.reason),
        at + REMOVAL_US,
        id,
    )
    return Draft(decided, node, "pods-removed", uuid_of(id))


# --- what is better


def _better(
    state: ClusterStageState, proposed: DeschedulingProposed, binding: str, replica: Replica
) -> Callable[[NodeRow], bool] | None:
    """Returns a function that tells whether a node is better for the replica than its present node,
    by the criterion of the strategy that proposed the move. None: the strategy has no criterion,
    and every other feasible node is good enough. How full a node is means the highest requested
    share over all resources.

    - LowNodeUtilization by requests: the other node with the replica is less full than the present
      node with it. Example: the present node is 80 % full and the other would be 70 % full: better.
    - HighNodeUtilization: the other node with the replica is fuller than the present node with it.
    - RemoveDuplicates: the other node with the replica has fewer replicas of the binding than the
      present node with it.

    LowNodeUtilization by measured usage gets None: then the load plugins of the scheduler profile
    choose the node.
    """
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


def _first(state: ClusterStageState, strategy: str) -> Callable[[NodeChoice], int] | None:
    """Returns a sort key for target nodes, lowest first. HighNodeUtilization: the fullest node
    first. Other strategies: None, and the score decides."""
    return (
        (lambda choice: -_fullness(state, choice.row))
        if strategy == "HighNodeUtilization"
        else None
    )


def _fullness(state: ClusterStageState, row: NodeRow, also: Replica | None = None) -> int:
    """Returns how full the node is by requests, in thousandths: the highest requested share over
    all resources. `also`: a replica whose requests are added; None: no replica. Example: 3 of 4 CPU
    and 1 of 8 GiB requested: 750."""
    asked = {} if also is None else {"pods": 1, **also.cls.requirements.requests}
    shares = [0]
    for resource, code in state.book.table.resource_codes.items():
        if code < len(row.free) and row.allocatable[code] > 0:
            used = row.allocatable[code] - row.free[code] + asked.get(resource, 0)
            shares.append(used * THOUSANDTHS // row.allocatable[code])
    return max(shares)


def _count(state: ClusterStageState, node: str, binding: str) -> int:
    return sum(name == binding for name, _ in state.book.on_node.get(node, ()))


# --- what stays


def _refused(
    state: ClusterStageState, id: str, proposed: DeschedulingProposed, stays: list[No]
) -> Draft:
    """Drafts one refusal for all replicas of a descheduling proposal that stay. It has the reason
    of the first replica, and the sentences of all. Example: `2 of 3 stay: <sentence>; <sentence>`.

    `stays`: (reason, sentence) of each replica that stays. If the nodes of the cluster are not
    known yet, the reason is `UnknownTarget`. If the proposal names no replica, it is `NothingToDo`.
    `id`: the id of the proposal.
    """
    if not state.book.known:
        stays = [("UnknownTarget", "not all nodes of the cluster have been seen yet")]
    reason, _ = stays[0] if stays else ("NothingToDo", "")
    subject = proposed.unseatings[0].node if proposed.unseatings else proposed.strategy
    count = (
        f"{len(stays)} of {len(proposed.unseatings)} stay: " if len(proposed.unseatings) > 1 else ""
    )
    detail = cut(count + "; ".join(sentence for _, sentence in stays))
    return declined(id, "DeschedulingProposed", subject, reason, detail, uuid_of(id))
