"""A copy of a fleet state for trials, independent of the original.

Saving and loading would copy it too, but takes seconds for a hundred thousand bindings, and a plan
is tried within a round. So mutable parts are copied field by field, and immutable ones (facts,
placements, counts) are shared. Columns of estimates are not copied; the copy computes those it
needs.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import replace

from wharfinger.engine.fleet.estimate import Room
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.state.clusters import ClusterState


def fork(state: FleetState) -> FleetState:
    """Return an independent copy of the state. The copy and the original decide exactly the same,
    and a change of one never changes the other. As a side effect, the clusters of the original are
    sorted by name if they are not sorted yet."""
    state.estimates.settle()  # the clusters copied below have their positions by then
    other = FleetState(
        stream=state.stream,
        clusters={name: _cluster(c) for name, c in state.clusters.items()},
        bindings={name: copy(b) for name, b in state.bindings.items()},
        proposals=state.proposals.fork(),
        joint=state.joint.fork(),
        outcomes=state.outcomes.copy(),
        incarnations=state.incarnations,
        arrivals=state.arrivals,
        held=state.held,
        retry_cause=state.retry_cause,
        unfinished=state.unfinished,
        quotas=state.quotas.copy(),
        moves=state.moves.copy(),
        rebalancing=state.rebalancing.copy(),
        tainting=state.tainting.copy(),
        versions=state.versions.copy(),
        parsed=state.parsed.copy(),
        classed=state.classed.copy(),
        kinds=state.kinds.copy(),
        clock=state.clock,
        touched=None if state.touched is None else state.touched.copy(),
        questions=None if state.questions is None else state.questions.copy(),
    )
    other.selections = None if state.selections is None else state.selections.fork()
    other.cluster_index = state.cluster_index.fork(other.clusters)
    other.binding_index = state.binding_index.fork(other.bindings)
    other.estimates = state.estimates.fork(other.clusters, other.cluster_index)
    other.waiting = state.waiting.fork(
        other.bindings, other.binding_index, other.estimates, other.quotas, other.moves
    )
    return other


def _cluster(cluster: ClusterState) -> ClusterState:
    return replace(
        cluster,
        tainted_at=cluster.tainted_at.copy(),
        pending=deque(cluster.pending),
        promised={other: deque(entries) for other, entries in cluster.promised.items()},
        closed=cluster.closed.copy(),
        doubt=cluster.doubt.copy(),
        _room=None if cluster.room is None else _room(cluster.room),
        _taken=cluster.taken.copy(),
        _quotas=cluster.quotas.copy(),
        _deducted=len(cluster.pending),
    )


def _room(room: Room) -> Room:
    return Room(room.left.copy(), room.devices, room.whole_only, room.taken_milli.copy())
