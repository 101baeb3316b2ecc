"""The plane as it was at a point of its history: what the stages knew and held, as values.

Clusters, nodes, bindings and their places are read off the states of the stages: what a stage had not taken in by then is not
in the picture, however long it had been told. Policies no stage keeps; they are as the intake was told them.

All streams are cut at one moment. A point that names a round is that moment, and its own stream stands exactly there.
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
from wharfinger.history.points import Point, PointError, moment_of, round_of
from wharfinger.history.states import state_at
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Ledger, trails, wall_clock
from wharfinger.runtime.ledger.heads import selected
from wharfinger.stages.cluster.state import ClusterState
from wharfinger.stages.fleet.state import BindingState, FleetState

WAITING, SCHEDULED, REFUSED = "waiting", "scheduled", "refused"


@dataclass(frozen=True, slots=True)
class Use:
    """What is taken, and what there is: cpu in milli-cores, memory in bytes, devices in thousandths."""

    cpu: int = 0
    cpu_max: int = 0
    memory: int = 0
    memory_max: int = 0
    devices: int = 0
    devices_max: int = 0

    def plus(self, other: Use) -> Use:
        return Use(
            self.cpu + other.cpu, self.cpu_max + other.cpu_max, self.memory + other.memory,
            self.memory_max + other.memory_max, self.devices + other.devices, self.devices_max + other.devices_max,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeAt:
    """`replicas`: binding -> how many of its replicas are on the node. `closed`: it was decided that the node may go."""

    node: Node
    closed: bool
    replicas: Mapping[str, int]
    use: Use


@dataclass(frozen=True, slots=True)
class ClusterAt:
    """`facts` None: only its nodes are known. `assigned`: replicas that the fleet gives it; `nodes`: in order of name."""

    name: str
    facts: Cluster | None = None
    silent_since: Micros | None = None
    assigned: int = 0
    nodes: tuple[NodeAt, ...] = ()

    @property
    def placed(self) -> int:
        return sum(sum(node.replicas.values()) for node in self.nodes)

    @property
    def use(self) -> Use:
        total = Use()
        for node in self.nodes:
            total = total.plus(node.use)
        return total


@dataclass(frozen=True, slots=True)
class BindingAt:
    """`targets`: cluster -> replicas. `reason`: why it was refused. `nodes`: `cluster/node` -> replicas there."""

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
class Picture:
    """All by name. `heads`: where each stream stood."""

    point: Point
    clusters: Mapping[str, ClusterAt]
    bindings: Mapping[str, BindingAt]
    heads: Mapping[str, Head]


async def picture_at(ledger: Ledger, point: Point, stream: str = "") -> Picture:
    """The plane at `point`. `stream`: only what these streams knew, by name or prefix.

    PointError: no such stream, round or time.
    """
    rounds = await _cut(ledger, point, stream)
    fleets: list[FleetState] = []
    books: list[ClusterState] = []
    heads: dict[str, Head] = {}
    for name, number in rounds.items():
        found = await state_at(ledger, name, Point("", name, number))
        heads[name] = found.head
        (fleets if name.startswith(FLEET) else books).append(found.state)
    return Picture(point, _clusters(fleets, books), _bindings(fleets, books), heads)


async def cluster_states_at(ledger: Ledger, point: Point, cluster: str = "") -> list[ClusterState]:
    """The states of the cluster streams at `point`, in order of name; only that of `cluster`, where it is named.

    PointError: no such stream, round or time.
    """
    rounds = await _cut(ledger, point, CLUSTER + cluster if cluster else "")
    names = [name for name in sorted(rounds) if name == CLUSTER + cluster or (not cluster and name.startswith(CLUSTER))]
    return [(await state_at(ledger, name, Point("", name, rounds[name]))).state for name in names]


async def policies_at(ledger: Ledger, point: Point) -> dict[str, Policy]:
    """By key, the policies that had been told and not removed by then. One lookup a key."""
    at = await moment_of(ledger, point)
    await _within(ledger, point, at)
    latest = {fact.key: fact async for fact in ledger.facts(POLICIES.name)}
    if at is None:
        held = {key: fact.event().data for key, fact in latest.items()}
    else:
        until = await ledger.round_at(INTAKE, at) + 1
        told = await trails.told_before(ledger.database, {(key, until) for key in latest})
        held = {key: event.data for (key, _), (event, _) in told.items()}
        # What was told before the history that is kept is known by the fact alone.
        held |= {key: fact.event().data for key, fact in latest.items() if key not in held and fact.at <= at}
    return {key: data.policy for key, data in sorted(held.items()) if isinstance(data, PolicyApplied)}


async def _cut(ledger: Ledger, point: Point, stream: str) -> dict[str, int]:
    """The round of each deciding stream that the point means."""
    heads = {head.stream: head for head in await ledger.heads() if head.stream.startswith((FLEET, CLUSTER))}
    names = selected(list(heads), stream)
    if stream and not names:
        raise PointError(f"no stream of decisions is named {stream} or begins with it")
    if point.round is not None and not point.stream and len(names) == 1:
        return {names[0]: await round_of(ledger, names[0], point)}
    at = await moment_of(ledger, point)
    await _within(ledger, point, at)
    if at is None:
        return {name: heads[name].round for name in names}
    return {
        name: point.round if name == point.stream and point.round is not None else await ledger.round_at(name, at)
        for name in names
    }


async def _within(ledger: Ledger, point: Point, at: Micros | None) -> None:
    """A moment before the first thing that was ever told, or one that has not come, is a mistake and no empty plane."""
    if at is None or point.round is not None:
        return
    if at > max([wall_clock(), *(head.at for head in await ledger.heads())]):
        raise PointError(f"{point.text}: that is still to come")
    if await ledger.round_at(INTAKE, at) == 0:
        raise PointError(f"{point.text}: nothing had been told to this plane by then")


def _clusters(fleets: list[FleetState], books: list[ClusterState]) -> dict[str, ClusterAt]:
    """Facts are the same in every shard, if one has not heard of them later than another; each adds what it assigned."""
    clusters: dict[str, ClusterAt] = {}
    nodes = {state.cluster: _nodes(state) for state in books}
    for state in fleets:
        for name, cluster in state.clusters.items():
            before = clusters.get(name, ClusterAt(name))
            facts = cluster.facts or before.facts
            assigned = sum(state.bindings[b].targets[name] for b in state.by_cluster.get(name, ()))
            clusters[name] = ClusterAt(
                name, facts, cluster.silent_since or before.silent_since, before.assigned + assigned, nodes.get(name, ())
            )  # fmt: skip
    for name, members in nodes.items():
        if members and name not in clusters:
            clusters[name] = ClusterAt(name, nodes=members)
    # Of a cluster that was forgotten a late count of its room may lie about, which makes it no cluster again.
    return {name: c for name, c in sorted(clusters.items()) if c.facts is not None or c.nodes or c.assigned}


def _nodes(state: ClusterState) -> tuple[NodeAt, ...]:
    book = state.book
    found: list[NodeAt] = []
    for name, node in sorted(book.nodes.items()):
        replicas: dict[str, int] = {}
        for binding, _ in book.on_node.get(name, {}):
            replicas[binding] = replicas.get(binding, 0) + 1
        found.append(NodeAt(node, name in book.closed, dict(sorted(replicas.items())), _use(book.table.rows[name])))
    return tuple(found)


def _use(row: NodeRow) -> Use:
    cpu, memory = row.allocatable[CPU], row.allocatable[MEMORY]
    return Use(
        cpu - row.free[CPU], cpu, memory - row.free[MEMORY], memory, sum(row.used), DEVICE_MILLI * len(row.used)
    )  # fmt: skip


def _bindings(fleets: list[FleetState], books: list[ClusterState]) -> dict[str, BindingAt]:
    on_nodes: dict[str, dict[str, int]] = {}
    for state in books:
        for name, held in sorted(state.book.held.items()):
            for replica in held.placed.values():
                place = f"{state.cluster}/{replica.node}"
                places = on_nodes.setdefault(name, {})
                places[place] = places.get(place, 0) + 1
    records = {name: r for state in fleets for name, r in state.bindings.items() if not r.withdrawn}
    return {name: _binding(record, on_nodes.get(name, {})) for name, record in sorted(records.items())}


def _binding(record: BindingState, nodes: dict[str, int]) -> BindingAt:
    outcome = WAITING if record.applied is None else REFUSED if record.refused else SCHEDULED
    targets = dict(sorted(record.targets.items()))
    return BindingAt(record.spec, outcome, targets, record.refused, record.suspect, dict(sorted(nodes.items())))
