"""The input of provisioning and disruption for a cluster stream (`stages.cluster_snapshots`),
including all that the stream has reserved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wharfinger.engine.disruption.cluster_snapshot import ClusterSnapshot
from wharfinger.engine.provisioning.problem import Problem, WantedPods
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.framework_view import (
    moving_pods,
    nominated_pods,
    other_reserved_pods,
)
from wharfinger.stages.cluster.node_search import lacking, moves_to_come
from wharfinger.stages.cluster.other_pods import in_need, reserved_rooms
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.cluster_snapshots import problem_of, scene_of


def scene(state: ClusterStageState, at: Micros) -> ClusterSnapshot:
    """Builds the input of disruption for this cluster: nodes, pods, node claims, policies and
    prices, and the replicas without a node. Room that is reserved on nodes for replicas is included
    as pods on those nodes. So disruption does not use the reserved room.

    `at`: now. It has to be equal to `state.at`, which decides which reservations have expired.
    """
    book = state.book
    waiting = {name: lacking(book.held[name]) for name in sorted(book.unsettled)}
    return scene_of(
        book,
        state.policies,
        state.pools,
        state.cluster,
        at,
        (*nominated_pods(state), *moving_pods(state), *other_reserved_pods(state)),
        promised_nodes(state),
        (
            *wanted(state, {name: count for name, count in waiting.items() if count > 0}),
            *in_need(state),
        ),
    )


def problem(
    state: ClusterStageState,
    at: Micros,
    short: Mapping[str, int],
    others: Sequence[WantedPods] = (),
) -> Problem:
    """Builds the input of Solve (provisioning) for this stream, with all reservations included.
    `short`: binding -> number of its replicas that are without a node. `others`: waiting pods of
    other schedulers."""
    reserved = (*nominated_pods(state), *moving_pods(state), *other_reserved_pods(state))
    pods = (*wanted(state, short), *others)
    return problem_of(state.book, state.policies, state.pools, state.cluster, at, pods, reserved)


def wanted(state: ClusterStageState, short: Mapping[str, int]) -> tuple[WantedPods, ...]:
    """Converts binding -> number of replicas into the pods that Solve has to place. The age of a
    pod is the arrival number of its binding."""
    held = state.book.held
    return tuple(
        [
            WantedPods(
                name, held[name].cls.requirements, count, held[name].priority, held[name].arrival
            )
            for name, count in short.items()
        ]
    )


def promised_nodes(state: ClusterStageState) -> frozenset[str]:
    """Returns the nodes on which room is reserved: nominated nodes whose nomination has not
    expired, targets of pending moves, and nodes that are kept for pods of other schedulers."""
    nominated = {
        n.node for several in state.nominated.values() for n in several if n.until > state.at
    }
    others = {room.node for room in reserved_rooms(state)}
    moves = {move.node for move in moves_to_come(state) if move.node}
    return frozenset(nominated | moves | others)
