"""A copy of a fleet state to try something on, while the original stays as it is.

Saving and loading would make one too, but takes seconds for a hundred thousand bindings, and a plan is tried within a round.
So what changes in place is copied field by field, and what is only ever replaced (facts, placements, counts) is shared. Columns
of estimates are left behind: the copy counts those it needs.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import fields, replace

from wharfinger.engine.fleet.estimate import Room
from wharfinger.stages.fleet.clusters import ClusterState
from wharfinger.stages.fleet.state import BindingState, FleetState, Waiting


def fork(state: FleetState) -> FleetState:
    """Decides as the original would from here on; whatever becomes of it, the original does not notice."""
    order = state.order
    other = copy(state)
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, dict | list):
            setattr(other, field.name, value.copy())
    other.clusters = {name: _cluster(c) for name, c in state.clusters.items()}
    other._order = [other.clusters[c.name] for c in order]
    other.bindings = {name: _binding(b) for name, b in state.bindings.items()}
    other.waiting = {
        key: Waiting(w.names.copy(), w.values, w.made, w.facts, w.choices) for key, w in state.waiting.items()
    }
    other.by_cluster = {name: names.copy() for name, names in state.by_cluster.items()}
    other.suspected = {name: names.copy() for name, names in state.suspected.items()}
    other.outgoing = {name: names.copy() for name, names in state.outgoing.items()}
    other.leases, other.pauses, other.graces = state.leases.copy(), state.pauses.copy(), state.graces.copy()
    other.quotas, other.tainting, other.moves = state.quotas.copy(), state.tainting.copy(), state.moves.copy()
    other.columns, other.rooms = {}, None
    other.selections = None if state.selections is None else state.selections.fork()
    return other


def _cluster(cluster: ClusterState) -> ClusterState:
    return replace(
        cluster, tainted_at=cluster.tainted_at.copy(), pending=deque(cluster.pending), closed=cluster.closed.copy(),
        doubt=cluster.doubt.copy(), _room=None if cluster.room is None else _room(cluster.room),
        _taken=cluster.taken.copy(), _quotas=cluster.quotas.copy(), _deducted=len(cluster.pending),
    )  # fmt: skip


def _room(room: Room) -> Room:
    return Room(room.left.copy(), room.devices, room.whole_only, room.taken_milli.copy())


def _binding(record: BindingState) -> BindingState:
    other = copy(record)
    other.targets, other.before = record.targets.copy(), record.before.copy()
    other.assigned_by = record.assigned_by.copy()
    other.extra, other.evicted = record.extra.copy(), record.evicted.copy()
    other.leaving, other.barred = record.leaving.copy(), record.barred.copy()
    return other
