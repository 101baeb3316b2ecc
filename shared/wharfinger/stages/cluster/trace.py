"""The tracing twin of a node decision: every node of the cluster, as every plugin of the profile finds it.

Taken from the state on which the decision was made again, before it is folded. The decision itself was made over columns
(`engine.nodes`); here the same question is put to the scheduling framework, plugin by plugin and node by node, and all answers
are kept: each rule that a node fails, in the words users know, and what each plugin scores. For a node that was refused the same
functions are asked with the inputs changed until it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from wharfinger.domain.node import Node
from wharfinger.domain.reasons import NodeReason, ReplicaReason
from wharfinger.domain.workload import Requirements
from wharfinger.engine.changes import Way, size
from wharfinger.engine.framework.cycle import Outcome
from wharfinger.engine.framework.status import Status
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeRow
from wharfinger.engine.nodes.counterfactual import short_of, ways_in
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.events.decisions import ReplicasPlaced, ReplicasRefused
from wharfinger.stages.cluster.choosing import placer_of, room_kept
from wharfinger.stages.cluster.picture import pictured, wanted_pod
from wharfinger.stages.cluster.state import ClusterState

REASONS: Mapping[str, NodeReason] = {
    "NodeUnschedulable": "Unschedulable", "NodeName": "NodeName", "TaintToleration": "TaintToleration",
    "NodeAffinity": "NodeAffinity", "NodePorts": "NodePorts", "NodeResourcesFit": "InsufficientResources",
    "Devices": "InsufficientDevices", "Dynamic": "LoadTooHigh", "VolumeRestrictions": "Volumes",
    "NodeVolumeLimits": "Volumes", "VolumeBinding": "Volumes", "VolumeZone": "Volumes",
    "PodTopologySpread": "PodTopologySpread", "InterPodAffinity": "InterPodAffinity", "DynamicResources": "DynamicResources",
}  # fmt: skip
"""Plugin -> what a node that it refuses is counted under; those not named here are a user's own."""


@dataclass(frozen=True, slots=True)
class PartOfScore:
    """What one plugin says of a node: as it scores it, brought to 0..100, and times its weight."""

    raw: int
    normalised: int
    weighted: int


@dataclass(frozen=True, slots=True)
class NodeTrace:
    """One node. `refused`: every reason against it, the first one first; empty: feasible. `said`: plugin -> its reasons, as users
    of Kubernetes know them. `score`: the sum of what `parts` weigh, by plugin; 0 where it was refused. `devices`: which ones one
    replica would hold. `free`: of what is asked for; `short`: how much of it is missing. `replicas`: how many this decision put
    there. `ways`: what would have let one in, smallest first."""

    name: str
    refused: tuple[NodeReason, ...]
    score: int
    parts: Mapping[str, PartOfScore]
    devices: tuple[tuple[int, int], ...]
    free: Mapping[str, int]
    short: Mapping[str, int]
    replicas: int
    ways: tuple[Way, ...] = ()
    said: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodesTrace:
    """`nodes`: feasible ones first, best score first; then the refused ones, the nearest to being feasible first. `asked`: by one
    replica. `profile`: which plugins were asked. `message`: as users know it, where no node is feasible."""

    cluster: str
    profile: str
    asked: Requirements
    nodes: tuple[NodeTrace, ...]
    message: str = ""

    @property
    def nearest(self) -> NodeTrace | None:
        """The refused node that the smallest change would make feasible."""
        return next((node for node in self.nodes if node.refused and node.ways), None)


def trace(state: ClusterState, data: ReplicasPlaced | ReplicasRefused) -> NodesTrace | None:
    """Of the decision `data`, which is not folded yet. None: no node was looked at."""
    if isinstance(data, ReplicasRefused) and data.reason in get_args(ReplicaReason):
        return None
    held = state.book.held[data.binding]
    placed = {s.node: len(s.ordinals) for s in data.placed} if isinstance(data, ReplicasPlaced) else {}
    framework = state.profiles.framework(held.cls.requirements.traits.scheduler)
    outcome = framework.run(pictured(state, promised_but_to=data.binding), wanted_pod(held, data.binding))
    with room_kept(state, data.binding):
        found = [
            _node(state, row, state.book.nodes[name], held.cls, placed.get(name, 0), outcome)
            for name, row in sorted(state.book.table.rows.items())
        ]
        ranked = placer_of(state, data.binding).ranked(held.cls, len(found))
    ranks = {choice.row.name: at for at, choice in enumerate(ranked)}
    asked = held.cls.requirements
    found.sort(key=lambda n: (bool(n.refused), ranks.get(n.name, 0), _distance(n, asked), n.name))
    return NodesTrace(state.cluster, framework.profile.name, asked, tuple(found), outcome.message)


def _node(state: ClusterState, row: NodeRow, node: Node, cls: PodClass, replicas: int, outcome: Outcome) -> NodeTrace:
    table, name = state.book.table, row.name
    free = {table.resources[code]: row.free[code] for code, _ in cls.amounts if code < len(row.free)}
    refusals = _refusals(outcome, name)
    reasons = tuple(dict.fromkeys(_reason(status, cls) for status in refusals.values()))
    if row.closed:
        reasons = tuple(dict.fromkeys(("Unschedulable", *reasons)))
    if reasons:
        said = {plugin: status.reasons for plugin, status in refusals.items()}
        ways = ways_in(table, row, node, cls)
        return NodeTrace(name, reasons, 0, {}, (), free, short_of(table, row, cls), replicas, ways, said)
    parts = {
        plugin: PartOfScore(s.raw[name], s.normalised[name], s.weight * s.normalised[name])
        for plugin, s in outcome.scores.items()
        if s is not None
    }
    devices = take_devices(row, cls.needs) if cls.needs else ()
    return NodeTrace(name, (), outcome.totals[name], parts, devices or (), free, {}, replicas)


def _reason(status: Status, cls: PodClass) -> NodeReason:
    """Whole devices are counted like resources, and still told apart from them."""
    devices = {f"Insufficient {device.kind}" for device in cls.requirements.devices}
    if status.plugin == "NodeResourcesFit" and devices.issuperset(status.reasons):
        return "InsufficientDevices"
    return REASONS.get(status.plugin, "Plugin")


def _refusals(outcome: Outcome, name: str) -> dict[str, Status]:
    """Plugin -> what it says against the node: the first that a kube-scheduler would have heard, then all others."""
    first = outcome.first.get(name)
    found = {} if first is None else {first.plugin: first}
    if outcome.rejected is not None:
        found.setdefault(outcome.rejected.plugin, outcome.rejected)
    for plugin, by_node in outcome.failures.items():
        if name in by_node:
            found.setdefault(plugin, by_node[name])
    return found


def _distance(node: NodeTrace, asked: Requirements) -> tuple[bool, tuple[int, int, int, str]]:
    """Whether anything would let it in, and how little."""
    return (not node.ways, size(node.ways[0] if node.ways else (), asked))
