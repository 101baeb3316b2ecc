"""The cluster of a stream as provisioning and disruption look at it (`stages.scenes`), with all that the stream has promised."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.engine.disruption.scene import Scene
from wharfinger.engine.provisioning.problem import Problem, Wanted
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.choosing import lacking, moves_to_come
from wharfinger.stages.cluster.picture import moving_pods, nominated_pods
from wharfinger.stages.cluster.state import ClusterState
from wharfinger.stages.scenes import problem_of, scene_of


def scene(state: ClusterState, at: Micros) -> Scene:
    """`at`: also that of the state, by which it is known which promises have run out."""
    book = state.book
    waiting = {name: lacking(book.held[name]) for name in sorted(book.unsettled)}
    return scene_of(
        book,
        state.policies,
        state.pools,
        state.cluster,
        at,
        (*nominated_pods(state), *moving_pods(state)),
        promised_nodes(state),
        wanted(state, {name: count for name, count in waiting.items() if count > 0}),
    )


def problem(state: ClusterState, at: Micros, short: Mapping[str, int]) -> Problem:
    """`short`: binding -> how many of its replicas are without a place."""
    reserved = (*nominated_pods(state), *moving_pods(state))
    return problem_of(state.book, state.policies, state.pools, state.cluster, at, wanted(state, short), reserved)


def wanted(state: ClusterState, short: Mapping[str, int]) -> tuple[Wanted, ...]:
    """Age is the order of arrival."""
    held = state.book.held
    return tuple([
        Wanted(name, held[name].cls.requirements, count, held[name].priority, held[name].arrival)
        for name, count in short.items()
    ])  # fmt: skip


def promised_nodes(state: ClusterState) -> frozenset[str]:
    """On which room is kept for somebody."""
    nominated = {n.node for several in state.nominated.values() for n in several if n.until > state.at}
    return frozenset(nominated | {move.node for move in moves_to_come(state) if move.node})
