"""Filter and score for missing replicas: finds nodes with the placer of each binding's profile,
under the present load and reservations.

The functions here make no decisions and leave the node table unchanged on return. A placement is
charged to its node when its decision is folded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.domain.scheduler import DEFAULT_SCHEDULER, Extender
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework import extenders
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeRow, Taken
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.occupancy import HeldBinding, ReplicaKey
from wharfinger.engine.nodes.place import NodeChoice, PlacementContext, Placer
from wharfinger.kernel.decider import Micros
from wharfinger.stages.cluster.explain import RANKED
from wharfinger.stages.cluster.other_pods import reserved_rooms
from wharfinger.stages.cluster.state import ClusterStageState

REPLICAS_MAX = 200_000
"""Maximum number of replicas of one binding in one cluster; more are refused without a search.
Kubernetes itself supports 150,000 pods in a cluster."""

BATCH_MAX = 500
"""Maximum number of bindings that are placed as one batch; a round seldom has more."""


def lacking(held: HeldBinding) -> int:
    return held.desired - len(held.placed)


def placer_of(state: ClusterStageState, binding: str) -> Placer:
    """Returns the placer (the object that filters and scores nodes) for the scheduler profile of
    the binding, ready to use.

    The function gives the placer the present measured loads of the nodes. If the profile scores
    nodes by devices, the placer also gets the most frequent requests of the replicas assigned so
    far. Raises AssertionError if the profile does not exist; callers refuse a binding without a
    profile before they call this function.
    """
    return placer_for(state, state.book.held[binding].cls.requirements.traits.scheduler)


def profile_name(state: ClusterStageState, scheduler: str) -> str:
    """Returns the name of the scheduler profile for pods that name this scheduler. Where waiting
    pods are placed, it is the default profile if none has the name: the cluster's options say that
    these pods are ours."""
    if state.book.places == "pods" and state.profiles.profile(scheduler) is None:
        return DEFAULT_SCHEDULER
    return scheduler


def placer_for(state: ClusterStageState, scheduler: str) -> Placer:
    """Returns the placer as `placer_of` does, for pods that name this scheduler."""
    placer = state.profiles.placer(profile_name(state, scheduler))
    assert placer is not None, "a binding whose scheduler is unknown is not placed"
    if not state.load.idle:
        loads = state.loads.columns(state.book.table, state.at, placer.profile.arguments.dynamic)
        if placer.loads is not loads:
            placer.set_loads(loads)
    elif placer.loads is not None:
        placer.set_loads(None)
    if (
        placer.profile.arguments.devices.strategy
        and placer.devices.workload is not state.demand.workload
    ):
        placer.set_workload(state.demand.workload)
    return placer


def extenders_of(state: ClusterStageState, held: HeldBinding) -> list[Extender]:
    """Returns the extenders that are interested in the pods of this binding, in the order of the
    configuration."""
    wants = held.cls.requirements
    return [
        e
        for e in state.profiles.extenders(wants.traits.scheduler)
        if extenders.interested(e, wants)
    ]


def batch_of(state: ClusterStageState, todo: Sequence[str]) -> list[str]:
    """Returns the longest prefix of `todo` (binding names) that can be placed as one batch, at most
    `BATCH_MAX` (500) bindings. All bindings of a batch have the priority and the scheduler profile
    of the first.

    The prefix ends before a binding that has a pod group, scheduling gates, extenders, or a
    nomination (room reserved on a node for this binding only). If the first binding has a
    nomination, the batch is this binding alone. `todo` must not begin with a binding that has a
    group, gates or extenders; the caller handles such bindings itself.
    """
    held = state.book.held
    first = held[todo[0]]
    if todo[0] in state.nominated:
        return [todo[0]]
    batch: list[str] = []
    for binding in todo[:BATCH_MAX]:
        other = held[binding]
        traits = other.cls.requirements.traits
        alike = (
            other.priority == first.priority
            and traits.scheduler == first.cls.requirements.traits.scheduler
        )
        if (
            not alike
            or traits.group
            or traits.gates
            or binding in state.nominated
            or extenders_of(state, other)
        ):
            break
        batch.append(binding)
    return batch


def planned(
    state: ClusterStageState, wants: Sequence[tuple[str, int]]
) -> list[tuple[list[NodeChoice], PlacementContext | None]]:
    """Chooses nodes for the missing replicas of several bindings, one binding after another.
    Resources that an earlier binding takes are not free for a later one. Makes no decision and
    leaves the nodes unchanged.

    `wants`: (binding, number of replicas); all bindings must have the same priority. Returns one
    pair for each binding. The first value is the chosen nodes, one for each replica; there are
    fewer nodes than wanted replicas if no more fit. The second value is the diagnosis and the node
    scores before the binding was placed; None where they were not recorded.
    """
    found: list[tuple[list[NodeChoice], PlacementContext | None]] = []
    charged: list[tuple[PodClass, list[NodeChoice]]] = []
    with room_kept(state, *(binding for binding, _ in wants)):
        for placer, run in _by_placer(state, wants):
            plan = _batch(state, placer, run, alone=len(wants) == 1)
            found += plan
            if len(found) < len(wants):
                # another profile's placer comes next and must see what this one has taken
                for (binding, _), (choices, _) in zip(run, plan, strict=True):
                    charged.append((state.book.held[binding].cls, choices))
                    _charge(state, *charged[-1], 1)
        for cls, choices in charged:
            _charge(state, cls, choices, -1)
    return found


def _by_placer(
    state: ClusterStageState, wants: Sequence[tuple[str, int]]
) -> Iterator[tuple[Placer, list[tuple[str, int]]]]:
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
    state: ClusterStageState, placer: Placer, run: Sequence[tuple[str, int]], *, alone: bool
) -> list[tuple[list[NodeChoice], PlacementContext | None]]:
    """As `planned`, for bindings of one placer. `alone`: there are no others in the batch. Then
    the explanation of a single replica sees the same room as its placement does."""
    held = state.book.held
    wants = [(held[b].cls, max(0, min(n, REPLICAS_MAX - len(held[b].placed)))) for b, n in run]
    if len(wants) == 1 and wants[0][1] == 1:
        cls = wants[0][0]
        ranked = placer.ranked(cls, 2)  # the second is named in the explanation
        seen = PlacementContext(placer.diagnose(cls), ranked) if alone and ranked else None
        return [(ranked[:1], seen)]
    return placer.place_batch_seen(wants, None, RANKED)


def _charge(
    state: ClusterStageState, cls: PodClass, choices: Sequence[NodeChoice], sign: int
) -> None:
    by_node: dict[str, list[NodeChoice]] = {}
    for choice in choices:
        by_node.setdefault(choice.row.name, []).append(choice)
    for on_node in by_node.values():
        taken = [(index, sign * milli) for choice in on_node for index, milli in choice.devices]
        charge(state, on_node[0].row, cls, sign * len(on_node), taken)


def charge(
    state: ClusterStageState,
    row: NodeRow,
    cls: PodClass,
    times: int,
    taken: Sequence[tuple[int, int]],
) -> None:
    state.book.table.charge(row, cls, times, taken)


# --- what waits


def waits_for(state: ClusterStageState, binding: str, at: Micros) -> int:
    """Returns the number of the binding's replicas that have room reserved on an existing node, or
    for which a node was requested."""
    return waits_for_rooms(state, binding, at) + waits_for_claims(state, binding)


def waits_for_rooms(state: ClusterStageState, binding: str, at: Micros) -> int:
    """Returns the number of the binding's replicas that have unexpired room reserved on existing
    nodes."""
    rooms = state.nominated.get(binding, ())
    return sum(n.replicas for n in rooms if n.until > at and n.node in state.book.nodes)


def waits_for_claims(state: ClusterStageState, binding: str) -> int:
    """Returns the number of the binding's replicas for which a claim is open. Claims of disruption
    commands are not counted."""
    return sum(
        claim.replicas.get(binding, 0) for claim in state.pools.claims.values() if not claim.command
    )


# --- room that is kept


@dataclass(frozen=True, slots=True)
class PendingMove:
    """Describes a move that a running command still has to make: of a replica, or of another
    scheduler's pod (`pod`: its uid; empty for a replica). `source`: the present node. `node`: the
    target; empty if it does not exist yet."""

    binding: str
    ordinal: int
    pod: str
    source: str
    node: str
    requirements: Requirements
    priority: int


def moves_to_come(state: ClusterStageState) -> Iterator[PendingMove]:
    """Yields the moves that the running disruption commands still have to make: replicas, or pods
    of other schedulers, that must leave a node that is to be removed. A move is left out if its
    replica or pod is no longer on the source node. Commands are in the order of their decisions,
    moves in the order of the command."""
    book = state.book
    for running in state.running.values():
        for move in running.decided.moves:
            node = running.node_of(move.target)
            if not move.pod:
                replica = book.on_node.get(move.source, {}).get((move.binding, move.ordinal))
                if replica is not None:
                    wants, priority = replica.cls.requirements, book.held[move.binding].priority
                    yield PendingMove(
                        move.binding, move.ordinal, "", move.source, node, wants, priority
                    )
            elif (
                pod := next((p for p in book.pods.get(move.source, ()) if p.uid == move.pod), None)
            ) is not None:
                yield PendingMove(
                    move.binding,
                    move.ordinal,
                    move.pod,
                    move.source,
                    node,
                    pod.requirements,
                    pod.priority,
                )


@contextmanager
def room_kept(
    state: ClusterStageState,
    *bindings: str,
    moving: ReplicaKey | None = None,
    floor: int | None = None,
    but: Collection[str] = (),
) -> Iterator[None]:
    """Subtracts reserved room from the free resources of nodes while the `with` block runs, and
    adds it again at the end. So the block, which searches nodes for `bindings`, does not use room
    that is reserved for other replicas.

    Reserved room is of three kinds: nominations of other bindings, room for waiting pods of other
    schedulers, and the targets of moves that disruption commands still have to make. Room that is
    reserved for replicas or pods with a lower priority than the highest priority among `bindings`
    is not subtracted.

    `moving`: (binding, ordinal) of a move that is being carried out; its target is not subtracted.
    `floor`: takes the place of the priority of `bindings`, for waiting pods. `but`: names of rooms
    that are kept for these pods themselves, and so are not subtracted (`ReservedRoom.name`).

    No event or decision may be folded inside the block.
    """
    if floor is None:
        floor = _floor(state, bindings)
    kept = list(_kept(state, bindings, floor)) if state.nominated else []
    if state.expected or state.book.waiting.nominated or state.preempting:
        kept += _kept_for_others(state, floor, but)
    if state.running:
        kept += _kept_for_moves(state, floor, moving)
    for row, cls, replicas, devices in kept:
        charge(state, row, cls, replicas, devices)
    try:
        yield
    finally:
        for row, cls, replicas, devices in reversed(kept):
            charge(state, row, cls, -replicas, [(index, -milli) for index, milli in devices])


def _kept(
    state: ClusterStageState, bindings: Sequence[str], floor: int
) -> Iterator[tuple[NodeRow, PodClass, int, Taken]]:
    book = state.book
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


def _kept_for_others(
    state: ClusterStageState, floor: int, but: Collection[str]
) -> Iterator[tuple[NodeRow, PodClass, int, Taken]]:
    book = state.book
    for room in reserved_rooms(state, floor):
        row = book.table.rows.get(room.node)
        if row is not None and room.name not in but:
            cls = book.class_of(room.requirements)
            yield row, cls, room.count, _devices_to_keep(row, cls) * room.count


def _kept_for_moves(
    state: ClusterStageState, floor: int, moving: ReplicaKey | None
) -> Iterator[tuple[NodeRow, PodClass, int, Taken]]:
    book = state.book
    for move in moves_to_come(state):
        row = book.table.rows.get(move.node)
        if row is not None and move.priority >= floor and (move.binding, move.ordinal) != moving:
            cls = book.class_of(move.requirements)
            yield row, cls, 1, _devices_to_keep(row, cls)


def _floor(state: ClusterStageState, bindings: Sequence[str]) -> int:
    held = state.book.held
    return max((held[b].priority for b in bindings if b in held), default=0)


def _devices_to_keep(row: NodeRow, cls: PodClass) -> Taken:
    """Returns the devices to reserve for one replica of the class on a node, as (device index,
    thousandths of the device).

    If enough devices are free, the result has the devices that the replica would get now. Otherwise
    the result has free parts of the devices that are suitable, the device with the most free
    capacity first. Example: one whole device is requested, device 0 has 300 and device 1 has 600
    thousandths free: ((1, 600),).
    """
    if not cls.needs:
        return ()
    whole = take_devices(row, cls.needs)
    if whole is not None:
        return whole
    kept: list[tuple[int, int]] = []
    for need in cls.needs:
        free = sorted(
            (-left, i)
            for i, left in enumerate(row.device_free)
            if row.groups[i] in need.view.groups and left
        )
        kept += [(i, min(need.milli, -left, DEVICE_MILLI)) for left, i in free[: need.count]]
    return tuple(kept)
