"""When a node that was made is one to count on: it is registered, says that it is ready, and its startup taints are gone.

Karpenter writes what it found as a label; where another makes the nodes, the same is read off the node.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import INITIALIZED_LABEL
from wharfinger.domain.taints import Taint

NOT_YET = frozenset((
    "karpenter.sh/unregistered", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable",
    "node.cloudprovider.kubernetes.io/uninitialized",
))  # fmt: skip
"""Keys of taints that go by themselves once a node is what it shall be."""


def is_initialized(node: Node, startup_taints: Iterable[Taint] = ()) -> bool:
    """`startup_taints`: of the node's pool, which somebody takes off when what they wait for is done."""
    if not node.ready:
        return False
    if (said := node.labels.get(INITIALIZED_LABEL)) is not None:
        return said == "true"
    waiting = {(taint.key, taint.effect) for taint in startup_taints}
    return not any(taint.key in NOT_YET or (taint.key, taint.effect) in waiting for taint in node.taints)
