"""The tracing twin of a node decision: every node of the cluster, as the placing found it.

Taken from the state on which the decision was made again, before it is folded. Verdicts, scores and devices come from the
functions that place; for a node that was refused the same functions are asked with the inputs changed until it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wharfinger.domain.node import Node
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.workload import Requirements
from wharfinger.engine.changes import Way, size
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeRow
from wharfinger.engine.nodes.counterfactual import refusals, short_of, ways_in
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.score import score_parts, score_row
from wharfinger.events.decisions import ReplicasPlaced, ReplicasRefused
from wharfinger.stages.cluster.state import ClusterState


@dataclass(frozen=True, slots=True)
class NodeTrace:
    """One node. `refused`: every reason against it, the first one first; empty: feasible. `score`: the mean of `parts`, 0 where it
    was refused. `devices`: which ones one replica would hold. `free`: of what is asked for; `short`: how much of it is missing.
    `replicas`: how many this decision put there. `ways`: what would have let one in, smallest first."""

    name: str
    refused: tuple[NodeReason, ...]
    score: int
    parts: Mapping[str, int]
    devices: tuple[tuple[int, int], ...]
    free: Mapping[str, int]
    short: Mapping[str, int]
    replicas: int
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class NodesTrace:
    """`nodes`: feasible ones first, best score first; then the refused ones, the nearest to being feasible first. `asked`: by one
    replica. `strategy`: which nodes are preferred."""

    cluster: str
    strategy: str
    asked: Requirements
    nodes: tuple[NodeTrace, ...]

    @property
    def nearest(self) -> NodeTrace | None:
        """The refused node that the smallest change would make feasible."""
        return next((node for node in self.nodes if node.refused and node.ways), None)


def trace(state: ClusterState, data: ReplicasPlaced | ReplicasRefused) -> NodesTrace:
    """Of the decision `data`, which is not folded yet."""
    held = state.book.held[data.binding]
    placed = {s.node: len(s.ordinals) for s in data.placed} if isinstance(data, ReplicasPlaced) else {}
    found = [
        _node(state, row, state.book.nodes[name], held.cls, placed.get(name, 0))
        for name, row in sorted(state.book.table.rows.items())
    ]
    ranks = {choice.row.name: at for at, choice in enumerate(state.placer.ranked(held.cls, len(found)))}
    asked = held.cls.requirements
    found.sort(key=lambda n: (n.name not in ranks, ranks.get(n.name, 0), _distance(n, asked), n.name))
    return NodesTrace(state.cluster, state.placer.strategy, asked, tuple(found))


def _node(state: ClusterState, row: NodeRow, node: Node, cls: PodClass, replicas: int) -> NodeTrace:
    table, strategy = state.book.table, state.placer.strategy
    reasons = refusals(table, row, cls)
    free = {table.resources[code]: row.free[code] for code, _ in cls.amounts if code < len(row.free)}
    if reasons:
        ways = ways_in(table, row, node, cls)
        return NodeTrace(row.name, reasons, 0, {}, (), free, short_of(table, row, cls), replicas, ways)
    parts = score_parts(row, cls, strategy, table.kinds)
    devices = take_devices(row, cls.needs) if cls.needs else ()
    return NodeTrace(row.name, (), score_row(row, cls, strategy), parts, devices or (), free, {}, replicas)


def _distance(node: NodeTrace, asked: Requirements) -> tuple[bool, tuple[int, int, int, str]]:
    """Whether anything would let it in, and how little."""
    return (not node.ways, size(node.ways[0] if node.ways else (), asked))
