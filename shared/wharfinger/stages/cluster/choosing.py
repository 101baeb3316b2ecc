"""Nodes for what is missing, by the placer of each binding's profile, and what the placers are told first: how loaded the nodes are
now, and which room is kept for somebody else.

Nothing here decides: the table is left as it was, and what is decided is charged when the decision is folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.scheduler import Extender
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework import extenders
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeRow, Taken
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.occupancy import Held, ReplicaKey
from wharfinger.engine.nodes.place import Choice, Placer, Seen
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.explain import NAMED
from wharfinger.stages.cluster.state import ClusterState

REPLICAS_MAX = 200_000
"""Replicas of one binding in one cluster; Kubernetes itself supports 150,000 pods a cluster. More are refused untried."""

BATCH_MAX = 500
"""Bindings placed in sight of each other; a round seldom has more."""


def lacking(held: Held) -> int:
    return held.desired - len(held.placed)


def placer_of(state: ClusterState, binding: str) -> Placer:
    """Told of the load and of what is typically asked for. The binding's profile is there."""
    placer = state.profiles.placer(state.book.held[binding].cls.requirements.traits.scheduler)
    assert placer is not None, "a binding whose scheduler is unknown is not placed"
    if not state.load.idle:
        loads = state.loads.columns(state.book.table, state.at, placer.profile.arguments.dynamic)
        if placer.loads is not loads:
            placer.set_loads(loads)
    elif placer.loads is not None:
        placer.set_loads(None)
    if placer.profile.arguments.devices.strategy and placer.devices.workload is not state.demand.workload:
        placer.set_workload(state.demand.workload)
    return placer


def extenders_of(state: ClusterState, held: Held) -> list[Extender]:
    """Those that have a say about such a replica, in order."""
    wants = held.cls.requirements
    return [e for e in state.profiles.extenders(wants.traits.scheduler) if extenders.interested(e, wants)]


def batch_of(state: ClusterState, todo: Sequence[str]) -> list[str]:
    """The first of `todo` and those right behind it that are placed like it: of its priority, by its profile. Who has room made
    for it is placed alone, since that room is kept from all others; so is what extenders have a say about."""
    held = state.book.held
    first = held[todo[0]]
    if todo[0] in state.nominated:
        return [todo[0]]
    batch: list[str] = []
    for binding in todo[:BATCH_MAX]:
        other = held[binding]
        traits = other.cls.requirements.traits
        alike = other.priority == first.priority and traits.scheduler == first.cls.requirements.traits.scheduler
        if not alike or traits.group or traits.gates or binding in state.nominated or extenders_of(state, other):
            break
        batch.append(binding)
    return batch


def planned(state: ClusterState, wants: Sequence[tuple[str, int]]) -> list[tuple[list[Choice], Seen | None]]:
    """Nodes for (binding, how many) each, chosen in sight of each other; fewer than asked for where no more fit. All of one
    priority. With each what there was when those before it were placed, where that was seen on the way."""
    found: list[tuple[list[Choice], Seen | None]] = []
    charged: list[tuple[PodClass, list[Choice]]] = []
    with room_kept(state, *(binding for binding, _ in wants)):
        for placer, run in _by_placer(state, wants):
            plan = _batch(state, placer, run)
            found += plan
            if len(found) < len(wants):  # another profile's placer comes next and must see what this one has taken
                for (binding, _), (choices, _) in zip(run, plan, strict=True):
                    charged.append((state.book.held[binding].cls, choices))
                    _charge(state, *charged[-1], 1)
        for cls, choices in charged:
            _charge(state, cls, choices, -1)
    return found


def _by_placer(state: ClusterState, wants: Sequence[tuple[str, int]]) -> Iterator[tuple[Placer, list[tuple[str, int]]]]:
    run: list[tuple[str, int]] = []
    of_run: Placer | None = None
    for binding, wanted in wants:
        placer = placer_of(state, binding)
        if of_run is not None and placer is not of_run:
            yield of_run, run
            run = []
        of_run = placer
        run.append((binding, wanted))
    if of_run is not None:
        yield of_run, run


def _batch(
    state: ClusterState, placer: Placer, run: Sequence[tuple[str, int]]
) -> list[tuple[list[Choice], Seen | None]]:
    held = state.book.held
    wants = [(held[b].cls, max(0, min(n, REPLICAS_MAX - len(held[b].placed)))) for b, n in run]
    if len(wants) == 1 and wants[0][1] == 1:
        return [(placer.ranked(wants[0][0], NAMED + 1)[:1], None)]  # the next best are named in the explanation
    return placer.place_batch_seen(wants, None, NAMED + 1)


def _charge(state: ClusterState, cls: PodClass, choices: Sequence[Choice], sign: int) -> None:
    by_node: dict[str, list[Choice]] = {}
    for choice in choices:
        by_node.setdefault(choice.row.name, []).append(choice)
    for on_node in by_node.values():
        taken = [(index, sign * milli) for choice in on_node for index, milli in choice.devices]
        charge(state, on_node[0].row, cls, sign * len(on_node), taken)


def charge(state: ClusterState, row: NodeRow, cls: PodClass, times: int, taken: Sequence[tuple[int, int]]) -> None:
    state.book.table.charge(row, cls, times, taken)


# --- what waits


def may_provision(state: ClusterState) -> bool:
    """Whether nodes may be made for what fits nowhere."""
    return state.policies.known(state.cluster)


def waits_for(state: ClusterState, binding: str, at: Micros) -> int:
    """How many of its replicas room is still being made for, or a node."""
    return waits_for_rooms(state, binding, at) + waits_for_claims(state, binding)


def waits_for_rooms(state: ClusterState, binding: str, at: Micros) -> int:
    """How many of its replicas room is still being made for, on nodes that are there."""
    rooms = state.nominated.get(binding, ())
    return sum(n.replicas for n in rooms if n.until > at and n.node in state.book.nodes)


def waits_for_claims(state: ClusterState, binding: str) -> int:
    """How many of its replicas nodes were asked for that have not come."""
    return sum(claim.replicas.get(binding, 0) for claim in state.pools.claims.values() if not claim.command)


# --- room that is kept


@dataclass(frozen=True, slots=True)
class Move:
    """What a command still has to move: a replica of ours (`pod` empty), or what another scheduler will place anew. `node`:
    where it goes; empty: that is not there yet."""

    binding: str
    ordinal: int
    pod: str
    source: str
    node: str
    requirements: Requirements
    priority: int


def moves_to_come(state: ClusterState) -> Iterator[Move]:
    """In the order in which commands were decided, and then as they say."""
    book = state.book
    for running in state.running.values():
        for move in running.decided.moves:
            node = running.node_of(move.target)
            if not move.pod:
                replica = book.on_node.get(move.source, {}).get((move.binding, move.ordinal))
                if replica is not None:
                    wants, priority = replica.cls.requirements, book.held[move.binding].priority
                    yield Move(move.binding, move.ordinal, "", move.source, node, wants, priority)
            elif (pod := next((p for p in book.pods.get(move.source, ()) if p.uid == move.pod), None)) is not None:
                yield Move(move.binding, move.ordinal, move.pod, move.source, node, pod.requirements, pod.priority)


@contextmanager
def room_kept(state: ClusterState, *bindings: str, moving: ReplicaKey | None = None) -> Iterator[None]:
    """While `bindings` are placed, who has room made for it and is as important as they are holds that room, and so does who is
    to be moved, `moving` apart, which is being moved now. Nothing may be folded meanwhile."""
    kept = list(_kept(state, bindings)) if state.nominated else []
    if state.running:
        kept += _kept_for_moves(state, bindings, moving)
    for row, cls, replicas, devices in kept:
        charge(state, row, cls, replicas, devices)
    try:
        yield
    finally:
        for row, cls, replicas, devices in reversed(kept):
            charge(state, row, cls, -replicas, [(index, -milli) for index, milli in devices])


def _kept(state: ClusterState, bindings: Sequence[str]) -> Iterator[tuple[NodeRow, PodClass, int, Taken]]:
    book = state.book
    floor = _floor(state, bindings)
    for binding, nominations in sorted(state.nominated.items()):
        held = book.held.get(binding)
        if binding in bindings or held is None or held.priority < floor:
            continue
        missing = lacking(held)  # who has come takes no more room
        for nomination in nominations:
            row = book.table.rows.get(nomination.node)
            replicas = min(nomination.replicas, missing)
            if row is not None and nomination.until > state.at and replicas > 0:
                missing -= replicas
                devices = _devices_to_keep(row, held.cls) * replicas
                yield row, held.cls, replicas, devices


def _kept_for_moves(
    state: ClusterState, bindings: Sequence[str], moving: ReplicaKey | None
) -> Iterator[tuple[NodeRow, PodClass, int, Taken]]:
    book = state.book
    floor = _floor(state, bindings)
    for move in moves_to_come(state):
        row = book.table.rows.get(move.node)
        if row is not None and move.priority >= floor and (move.binding, move.ordinal) != moving:
            cls = book.class_of(move.requirements)
            yield row, cls, 1, _devices_to_keep(row, cls)


def _floor(state: ClusterState, bindings: Sequence[str]) -> int:
    held = state.book.held
    return max((held[b].priority for b in bindings if b in held), default=0)


def _devices_to_keep(row: NodeRow, cls: PodClass) -> Taken:
    """Those it would get, where they are free already; of what is not free yet, as much as is."""
    if not cls.needs:
        return ()
    whole = take_devices(row, cls.needs)
    if whole is not None:
        return whole
    kept: list[tuple[int, int]] = []
    for need in cls.needs:
        free = sorted(
            (-left, i) for i, left in enumerate(row.device_free) if row.groups[i] in need.view.groups and left
        )
        kept += [(i, min(need.milli, -left, DEVICE_MILLI)) for left, i in free[: need.count]]
    return tuple(kept)
