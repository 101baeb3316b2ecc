"""Clusters and nodes that everything is to leave, and the way back."""

from __future__ import annotations

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.taints import Taint

DRAIN = Taint("wharfinger.io/drain", "NoExecute")
"""The taint of a drained cluster or node. Remove it to undo the drain."""


def drained_cluster(cluster: Cluster) -> Cluster:
    return (
        cluster
        if DRAIN in cluster.taints
        else msgspec.structs.replace(cluster, taints=(*cluster.taints, DRAIN))
    )


def drained_node(node: Node) -> Node:
    taints = node.taints if DRAIN in node.taints else (*node.taints, DRAIN)
    return msgspec.structs.replace(node, taints=taints, unschedulable=True)


def undrained_cluster(cluster: Cluster) -> Cluster:
    return msgspec.structs.replace(
        cluster, taints=tuple(taint for taint in cluster.taints if taint != DRAIN)
    )


def undrained_node(node: Node) -> Node:
    """Also one that was only cordoned takes replicas again."""
    taints = tuple(taint for taint in node.taints if taint != DRAIN)
    return msgspec.structs.replace(node, taints=taints, unschedulable=False)
