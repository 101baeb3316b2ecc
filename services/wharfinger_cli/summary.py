"""One decision in a few words, for tables. Everything a program needs is in the data; this is for people."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.instance_types import dollars
from wharfinger.domain.value import Value
from wharfinger.events.decisions import (
    BindingReleased,
    ClusterRecovered,
    ClusterSilenced,
    ExtenderAsked,
    FailoverHeld,
    FailoverResumed,
    NodeRemovalDecided,
    NodeShare,
    PlanCommitted,
    PlanRefused,
    ProposalRefused,
    ReplicasNominated,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.disruption import DisruptionDecided, DisruptionEnded
from wharfinger.events.placements import MISCONFIGURED, PlacementDecided, PlacementHeld, PlacementReleased
from wharfinger.events.provisioning import NodeClaimEnded, NodeClaimRequested
from wharfinger_cli.output import as_clock, count

SHOWN_MAX = 4


def summary(data: Value) -> str:
    match data:
        case ScheduleDecided():
            leaving = [one.cluster for one in data.leaving]
            silent = [name for name in data.suspect if name not in leaving]
            return (
                _change(data.previous, data.targets)
                + (f"; silent: {', '.join(silent)}" if silent else "")
                + (f"; on its way out of {', '.join(leaving)}" if leaving else "")
            )
        case ScheduleRefused():
            kept = f"; keeps {targets(data.targets)}" if data.targets else ""
            return f"{data.reason}{kept}"
        case BindingReleased():
            return f"gave back {targets(data.previous)}"
        case ReplicasPlaced():
            return f"on {shares(data.placed)}"
        case ReplicasRefused():
            return f"{count(data.count, 'replica')} given back: {data.reason}"
        case ReplicasReleased():
            unbound = f", {data.unbound} not yet bound" if data.unbound else ""
            reason = f": {data.reason}" if data.reason else ""
            return f"let go on {shares(data.released) or 'no node'}{unbound}{reason}"
        case ExtenderAsked():
            return f"{data.verb} of {data.extender} about {count(len(data.nodes), 'node')}"
        case ReplicasNominated():
            return f"room for {count(data.replicas, 'replica')} is being made on {data.node} until {as_clock(data.until_us)}"
        case NodeRemovalDecided():
            return f"{data.cluster}: {data.reason}"
        case NodeClaimRequested():
            ceiling = f", for less than {dollars(data.ceiling)}" if data.ceiling else ""
            held = count(sum(data.replicas.values()), "replica")
            return f"{data.pool}: {some(data.instance_types)} from {dollars(data.price)}{ceiling}, for {held}"
        case NodeClaimEnded():
            made = f": {data.node}, {data.instance_type} at {dollars(data.price)}" if data.node else ""
            return f"{data.outcome}{made or f': {data.reason}'}"
        case DisruptionDecided():
            return f"{data.method} of {some(node.name for node in data.nodes)}: {data.reason}"
        case DisruptionEnded(outcome="done"):
            gone = count(len(data.removed), "node")
            saves = f"{dollars(data.realised)} ({dollars(data.predicted)} predicted)"
            return f"{gone} removed, {count(data.moved, 'replica')} moved; saves {saves}"
        case DisruptionEnded():
            return f"rolled back: {data.reason}"
        case ClusterSilenced():
            return f"nothing heard since {as_clock(data.silent_since_us)}"
        case ClusterRecovered():
            return "heard again"
        case FailoverHeld() | FailoverResumed():
            return f"{data.silent} of {data.clusters} clusters silent"
        case ProposalRefused():
            detail = f" ({data.detail})" if data.detail else ""
            return f"{data.kind} of {data.target}: {data.reason}{detail}"
        case PlanCommitted():
            return f"{count(data.steps, 'step')} as planned"
        case PlanRefused():
            about = f" for {data.subject}" if data.subject else ""
            changed = f"; changed: {', '.join(data.changed)}" if data.changed else ""
            return f"{data.reason}{about}{changed}"
        case PlacementDecided():
            return _selection(data)
        case PlacementHeld(until_us=0):
            return "nothing would move any more"
        case PlacementHeld():
            return f"held until {as_clock(data.until_us)}: {some(data.better)} would come, {some(data.worse)} go"
        case PlacementReleased():
            return f"{count(data.clusters, 'cluster')} let go"
        case _:
            return ""


def _selection(data: PlacementDecided) -> str:
    """`2 clusters (generation 3): +genoa -oslo; 1 unscheduled`; a part says which it is."""
    clusters = sum(len(group.scores) for group in data.groups)
    part = f", part {data.part} of {data.parts}" if data.parts > 1 else ""
    changes = [*(f"+{name}" for name in data.added), *(f"-{name}" for name in data.removed)]
    moved = f": {some(changes)}" if changes else ""
    missing = f"; {data.unscheduled} unscheduled" if data.unscheduled else ""
    wrong = next((f"; {c.message}" for c in data.conditions if c.type == MISCONFIGURED and c.status == "True"), "")
    return f"{count(clusters, 'cluster')} (generation {data.generation}{part}){moved}{missing}{wrong}"


def targets(clusters: Iterable[TargetCluster]) -> str:
    """`oslo 3, bergen 2`; a workload without a count goes as it is: `oslo`."""
    return some(f"{t.cluster} {t.replicas}" if t.replicas else t.cluster for t in clusters)


def shares(nodes: Iterable[NodeShare]) -> str:
    """`node-1 ×2, node-7`"""
    return some(f"{s.node} ×{len(s.ordinals)}" if len(s.ordinals) > 1 else s.node for s in nodes)


def some(parts: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    whole = list(parts)
    more = f" and {len(whole) - SHOWN_MAX} more" if len(whole) > SHOWN_MAX else ""
    return ", ".join(whole[:SHOWN_MAX]) + more


def _change(before: tuple[TargetCluster, ...], after: tuple[TargetCluster, ...]) -> str:
    now = targets(after) or "nowhere"
    return f"{now} (was {targets(before)})" if before and before != after else now
