"""The plane at a point of its history: the states of the stages at that time, as values.

Clusters, nodes, bindings and their targets are read from the states of the stages. A fact that a
stage had not folded by then is not included, even if the intake had accepted it long before. No
stage keeps policies: they are read from the intake.

All streams are cut at the same moment. If the point names a round, the moment is that of the round,
and the stream of the round is cut exactly after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.policy import Policy
from wharfinger.domain.resources import DEVICE_MILLI
from wharfinger.engine.nodes.columns import CPU, MEMORY, NodeRow
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.streams import CLUSTER, FLEET, INTAKE, POLICIES
from wharfinger.history.outcomes import REFUSED, SCHEDULED, WAITING
from wharfinger.history.points import (
    HistoryPoint,
    PointError,
    UnknownPointError,
    moment_of,
    round_of,
)
from wharfinger.history.states import state_at
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Ledger, causality, wall_clock
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.ledger.heads import selected
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.fleet.state import BindingState, FleetState


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """What is taken, and what there is: cpu in milli-cores, memory in bytes, devices in
    thousandths."""

    cpu: int = 0
    cpu_max: int = 0
    memory: int = 0
    memory_max: int = 0
    devices: int = 0
    devices_max: int = 0

    def plus(self, other: ResourceUse) -> ResourceUse:
        return ResourceUse(
            self.cpu + other.cpu,
            self.cpu_max + other.cpu_max,
            self.memory + other.memory,
            self.memory_max + other.memory_max,
            self.devices + other.devices,
            self.devices_max + other.devices_max,
        )


@dataclass(frozen=True, slots=True)
class NodeAt:
    """`replicas`: binding -> how many of its replicas are on the node. `closed`: it was decided
    that the node may go."""

    node: Node
    closed: bool
    replicas: Mapping[str, int]
    use: ResourceUse


@dataclass(frozen=True, slots=True)
class ClusterAt:
    """`facts` None: only its nodes are known. `assigned`: replicas that the fleet gives it;
    `nodes`: in order of name."""

    name: str
    facts: Cluster | None = None
    silent_since: Micros | None = None
    assigned: int = 0
    nodes: tuple[NodeAt, ...] = ()

    @property
    def placed(self) -> int:
        return sum(sum(node.replicas.values()) for node in self.nodes)

    @property
    def use(self) -> ResourceUse:
        total = ResourceUse()
        for node in self.nodes:
            total = total.plus(node.use)
        return total


@dataclass(frozen=True, slots=True)
class BindingAt:
    """`targets`: cluster -> replicas. `reason`: why it was refused. `nodes`: `cluster/node` ->
    replicas there."""

    spec: Binding
    outcome: str
    targets: Mapping[str, int]
    reason: str = ""
    suspect: tuple[str, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)

    @property
    def placed(self) -> int:
        return sum(self.nodes.values())

    @property
    def target_clusters(self) -> tuple[TargetCluster, ...]:
        return tuple(TargetCluster(cluster, n) for cluster, n in sorted(self.targets.items()))


@dataclass(frozen=True, slots=True)
class PlaneSnapshot:
    """All by name. `heads`: where each stream stood."""

    point: HistoryPoint
    clusters: Mapping[str, ClusterAt]
    bindings: Mapping[str, BindingAt]
    heads: Mapping[str, Head]


async def plane_at(ledger: Ledger, point: HistoryPoint, stream: str = "") -> PlaneSnapshot:
    """The plane at `point`. `stream`: only what these streams knew, by name or prefix.

    PointError: no such stream, round or time.
    """
    rounds = await _cut(ledger, point, stream)
    fleets: list[FleetState] = []
    books: list[ClusterStageState] = []
    heads: dict[str, Head] = {}
    for name, number in rounds.items():
        found = await state_at(ledger, name, HistoryPoint("", name, number))
        heads[name] = found.head
        (fleets if name.startswith(FLEET) else books).append(found.state)
    return PlaneSnapshot(point, _clusters(fleets, books), _bindings(fleets, books), heads)


async def cluster_states_at(
    ledger: Ledger, point: HistoryPoint, cluster: str = ""
) -> list[ClusterStageState]:
    """The states of the cluster streams at `point`, in order of name; only that of `cluster`, where
    it is named.

    PointError: no such stream, round or time.
    """
    rounds = await _cut(ledger, point, CLUSTER + cluster if cluster else "")
    names = [
        name
        for name in sorted(rounds)
        if name == CLUSTER + cluster or (not cluster and name.startswith(CLUSTER))
    ]
    return [
        (await state_at(ledger, name, HistoryPoint("", name, rounds[name]))).state for name in names
    ]


async def policies_at(ledger: Ledger, point: HistoryPoint) -> dict[str, Policy]:
    """By key, the policies that had been applied and not removed by then. One lookup a key."""
    at = await moment_of(ledger, point)
    await _within(ledger, point, at)
    latest = {fact.key: fact async for fact in ledger.facts(POLICIES.name)}
    if at is None:
        held = {key: event_of(fact).data for key, fact in latest.items()}
    else:
        until = await ledger.round_at(INTAKE, at) + 1
        told = await causality.told_before(ledger.database, {(key, until) for key in latest})
        held = {key: event.data for (key, _), (event, _) in told.items()}
        # A policy from before the history that is kept is known only as the current fact.
        held |= {
            key: event_of(fact).data
            for key, fact in latest.items()
            if key not in held and fact.at <= at
        }
    return {
        key: data.policy for key, data in sorted(held.items()) if isinstance(data, PolicyApplied)
    }


async def _cut(ledger: Ledger, point: HistoryPoint, stream: str) -> dict[str, int]:
    """The round of each deciding stream that the point means."""
    heads = {
        head.stream: head
        for head in await ledger.heads()
        if head.stream.startswith((FLEET, CLUSTER))
    }
    names = selected(list(heads), stream)
    if stream and not names:
        raise UnknownPointError(f"no stream of decisions is named {stream} or begins with it")
    if point.round is not None and not point.stream and len(names) == 1:
        return {names[0]: await round_of(ledger, names[0], point)}
    at = await moment_of(ledger, point)
    await _within(ledger, point, at)
    if at is None:
        return {name: heads[name].round for name in names}
    return {
        name: point.round
        if name == point.stream and point.round is not None
        else await ledger.round_at(name, at)
        for name in names
    }


async def _within(ledger: Ledger, point: HistoryPoint, at: Micros | None) -> None:
    """PointError: the moment is in the future, or before the first event in the intake. Either is a
    mistake, and not an empty plane."""
    if at is None or point.round is not None:
        return
    if at > max([wall_clock(), *(head.at for head in await ledger.heads())]):
        raise PointError(f"{point.text}: that is still to come")
    if await ledger.round_at(INTAKE, at) == 0:
        raise PointError(f"{point.text}: nothing had been told to this plane by then")


def _clusters(fleets: list[FleetState], books: list[ClusterStageState]) -> dict[str, ClusterAt]:
    """The facts are taken from the first shard that has them: all shards receive the same facts,
    though perhaps at different times. The assigned replicas are the sum over all shards."""
    clusters: dict[str, ClusterAt] = {}
    nodes = {state.cluster: _nodes(state) for state in books}
    for state in fleets:
        for name, cluster in state.clusters.items():
            before = clusters.get(name, ClusterAt(name))
            facts = cluster.facts or before.facts
            assigned = sum(state.bindings[b].targets[name] for b in state.by_cluster.get(name, ()))
            clusters[name] = ClusterAt(
                name,
                facts,
                cluster.silent_since or before.silent_since,
                before.assigned + assigned,
                nodes.get(name, ()),
            )
    for name, members in nodes.items():
        if members and name not in clusters:
            clusters[name] = ClusterAt(name, nodes=members)
    # A late estimate may still be stored for a cluster that was removed; it does not make it a
    # cluster again.
    return {
        name: c
        for name, c in sorted(clusters.items())
        if c.facts is not None or c.nodes or c.assigned
    }


def _nodes(state: ClusterStageState) -> tuple[NodeAt, ...]:
    book = state.book
    found: list[NodeAt] = []
    for name, node in sorted(book.nodes.items()):
        replicas: dict[str, int] = {}
        for binding, _ in book.on_node.get(name, {}):
            replicas[binding] = replicas.get(binding, 0) + 1
        found.append(
            NodeAt(
                node,
                name in book.closed,
                dict(sorted(replicas.items())),
                _use(book.table.rows[name]),
            )
        )
    return tuple(found)


def _use(row: NodeRow) -> ResourceUse:
    cpu, memory = row.allocatable[CPU], row.allocatable[MEMORY]
    return ResourceUse(
        cpu - row.free[CPU],
        cpu,
        memory - row.free[MEMORY],
        memory,
        sum(row.used),
        DEVICE_MILLI * len(row.used),
    )


def _bindings(fleets: list[FleetState], books: list[ClusterStageState]) -> dict[str, BindingAt]:
    on_nodes: dict[str, dict[str, int]] = {}
    for state in books:
        for name, held in sorted(state.book.held.items()):
            for replica in held.placed.values():
                place = f"{state.cluster}/{replica.node}"
                places = on_nodes.setdefault(name, {})
                places[place] = places.get(place, 0) + 1
    records = {name: r for state in fleets for name, r in state.bindings.items() if not r.withdrawn}
    return {
        name: _binding(record, on_nodes.get(name, {})) for name, record in sorted(records.items())
    }


def _binding(record: BindingState, nodes: dict[str, int]) -> BindingAt:
    outcome = WAITING if record.applied is None else REFUSED if record.refused else SCHEDULED
    targets = dict(sorted(record.targets.items()))
    return BindingAt(
        record.spec, outcome, targets, record.refused, record.suspect, dict(sorted(nodes.items()))
    )
