"""Targets and nodes as text, for the sentences of decisions and for the code that shows targets or
nodes next to such a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.text import some
from wharfinger.events.node_share import NodeShare


def targets_text(targets: Iterable[TargetCluster] | Mapping[str, int]) -> str:
    """`oslo 3, bergen 2`; of a workload without a count only the cluster: `oslo`."""
    pairs = (
        targets.items()
        if isinstance(targets, Mapping)
        else ((t.cluster, t.replicas) for t in targets)
    )
    return some(f"{name} {n}" if n else name for name, n in pairs)


def shares_text(nodes: Iterable[NodeShare]) -> str:
    """`node-1 ×2, node-7`"""
    return some(f"{s.node} ×{len(s.ordinals)}" if len(s.ordinals) > 1 else s.node for s in nodes)
