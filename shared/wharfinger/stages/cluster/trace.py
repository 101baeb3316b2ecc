"""The full explanation of a node decision: every node with the result of every plugin.

It is derived from the state on which the decision was taken again, before it is folded. The
decision itself used columns (`engine.nodes`); here the scheduling framework evaluates every plugin
for every node, and all results are kept: each failed rule with its message, and each score. For a
refused node, the same functions are called with changed inputs until it is feasible
(counterfactuals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

import msgspec

from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.reasons import NodeReason, ReplicaReason
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.cycle import CycleOutcome
from wharfinger.engine.framework.protocols import Plugin
from wharfinger.engine.framework.status import Status
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeRow
from wharfinger.engine.nodes.counterfactual import short_of, ways_in
from wharfinger.engine.nodes.fit import take_devices
from wharfinger.engine.nodes.profile_rules import reason_for
from wharfinger.events.decisions import NodesDecision
from wharfinger.rules.changes import ChangeSet, size
from wharfinger.stages.cluster.barred_nodes import barred_now, why_barred, without_barred
from wharfinger.stages.cluster.framework_view import pictured, wanted_pod
from wharfinger.stages.cluster.node_search import placer_for, profile_name, room_kept
from wharfinger.stages.cluster.state import BarredNode, ClusterStageState


@dataclass(frozen=True, slots=True)
class PartOfScore:
    """The score of one plugin for a node: raw, normalised to 0..100, and multiplied by its
    weight."""

    raw: int
    normalised: int
    weighted: int


@dataclass(frozen=True, slots=True)
class NodeTrace:
    """Holds the evaluation of one node.

    `refused`: the reasons against it, the first failed rule first; empty: feasible. `said`: plugin
    -> kube-scheduler's messages. `parts`: plugin -> its weighted score; `score`: their sum, 0 if
    refused. `devices`: (index, thousandths) that one replica would get. `free`: resource -> free
    amount, for the requested resources; `short`: resource -> missing amount. `replicas`: number of
    replicas that this decision placed here. `ways`: changes that would make the node feasible,
    smallest first.
    """

    name: str
    refused: tuple[NodeReason, ...]
    score: int
    parts: Mapping[str, PartOfScore]
    devices: tuple[tuple[int, int], ...]
    free: Mapping[str, int]
    short: Mapping[str, int]
    replicas: int
    ways: tuple[ChangeSet, ...] = ()
    said: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodesTrace:
    """Holds the evaluation of all nodes for one decision. `nodes`: feasible nodes by rank, then
    refused nodes, the smallest change to become feasible first. `asked`: requirements of one
    replica. `profile`: name of the scheduler profile. `message`: kube-scheduler's message if no
    node is feasible."""

    cluster: str
    profile: str
    asked: Requirements
    nodes: tuple[NodeTrace, ...]
    message: str = ""

    @property
    def nearest(self) -> NodeTrace | None:
        """Returns the refused node that becomes feasible with the smallest change; None if there is
        none."""
        return next((node for node in self.nodes if node.refused and node.ways), None)


def trace(state: ClusterStageState, data: NodesDecision) -> NodesTrace | None:
    """Shows how the decision `data` about one binding came about: evaluates every plugin on every
    node, in the state before the decision is folded. Returns for each node its score by plugin, or
    the reasons why plugins refused it.

    The feasible nodes come first, in order of rank (best first). The refused nodes follow. For each
    refused node, changes that would make it feasible are searched; a node that needs a smaller
    change comes before a node that needs a larger change. Nodes for which no change is found come
    last. Returns None if the binding was refused without evaluating nodes.
    """
    if data.refusal() in get_args(ReplicaReason):
        return None
    cls, wanted, waiting = _asked(state, data)
    placed = {s.node: len(s.ordinals) for s in data.placed}
    scheduler = profile_name(state, cls.requirements.traits.scheduler)
    framework = state.profiles.framework(scheduler)
    outcome = framework.run(pictured(state, data.binding, waiting), wanted)
    own = {key for pod in waiting for key in (pod.uid, pod.requirements.pod_key)}
    floor = wanted.priority if waiting else None
    with room_kept(state, data.binding, floor=floor, but=own):
        found = [
            _node(
                state,
                row,
                state.book.nodes[name],
                cls,
                placed.get(name, 0),
                outcome,
                framework.plugins,
            )
            for name, row in sorted(state.book.table.rows.items())
        ]
        ranked = placer_for(state, scheduler).ranked(cls, len(found))
    barred = barred_now(state, data.binding) if waiting else {}
    found = [
        _as_barred(node, barred[node.name]) if node.refused and node.name in barred else node
        for node in found
    ]
    ranks = {choice.row.name: at for at, choice in enumerate(ranked)}
    asked = cls.requirements
    found.sort(key=lambda n: (bool(n.refused), ranks.get(n.name, 0), _distance(n, asked), n.name))
    return NodesTrace(state.cluster, framework.profile.name, asked, tuple(found), outcome.message)


def _asked(
    state: ClusterStageState, data: NodesDecision
) -> tuple[PodClass, Pod, tuple[WaitingPod, ...]]:
    """Returns what the decision is about: the class of its replicas, one of them as a pod, and the
    waiting pods that it is about. The last is empty if it is about replicas without pods; these are
    of the class of their binding."""
    uids = set(data.named_pods)
    waiting = tuple([pod for uid, pod in state.book.waiting.pods.items() if uid in uids])
    if not waiting:
        held = state.book.held[data.binding]
        return held.cls, wanted_pod(held, data.binding), ()
    searched = without_barred(state, data.binding, waiting[0].requirements)
    pod = msgspec.structs.replace(waiting[0].on(""), binding=data.binding, requirements=searched)
    return state.book.class_of(searched), pod, waiting


def _as_barred(node: NodeTrace, bar: BarredNode) -> NodeTrace:
    """A barred node is excluded like one that the affinity of the pod does not match; the real
    reason is shown. No change of node or pod would make it feasible."""
    return replace(node, said={"Barred": (why_barred(bar),)}, ways=())


def _node(
    state: ClusterStageState,
    row: NodeRow,
    node: Node,
    cls: PodClass,
    replicas: int,
    outcome: CycleOutcome,
    rules: Mapping[str, Plugin],
) -> NodeTrace:
    table, name = state.book.table, row.name
    free = {
        table.resources[code]: row.free[code] for code, _ in cls.amounts if code < len(row.free)
    }
    refusals = _refusals(outcome, name)
    reasons = tuple(
        dict.fromkeys(
            reason_for(rules.get(status.plugin), status, cls.requirements)
            for status in refusals.values()
        )
    )
    if row.closed:
        reasons = tuple(dict.fromkeys(("Unschedulable", *reasons)))
    if reasons:
        said = {plugin: status.reasons for plugin, status in refusals.items()}
        ways = ways_in(table, row, node, cls, rules.values())
        return NodeTrace(
            name, reasons, 0, {}, (), free, short_of(table, row, cls), replicas, ways, said
        )
    parts = {
        plugin: PartOfScore(s.raw[name], s.normalised[name], s.weight * s.normalised[name])
        for plugin, s in outcome.scores.items()
        if s is not None
    }
    devices = take_devices(row, cls.needs) if cls.needs else ()
    return NodeTrace(name, (), outcome.totals[name], parts, devices or (), free, {}, replicas)


def _refusals(outcome: CycleOutcome, name: str) -> dict[str, Status]:
    """Returns plugin -> its status against the node. The first entry is the plugin that
    kube-scheduler would report first."""
    first = outcome.first.get(name)
    found = {} if first is None else {first.plugin: first}
    if outcome.rejected is not None:
        found.setdefault(outcome.rejected.plugin, outcome.rejected)
    for plugin, by_node in outcome.failures.items():
        if name in by_node:
            found.setdefault(plugin, by_node[name])
    return found


def _distance(node: NodeTrace, asked: Requirements) -> tuple[bool, tuple[int, int, int, str]]:
    """Returns a sort key of a refused node: nodes that some change makes feasible come first, the
    smallest change first."""
    return (not node.ways, size(node.ways[0] if node.ways else (), asked))
