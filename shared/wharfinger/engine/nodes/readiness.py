"""When a new node can be used: it is registered, reports Ready, and its startup taints are removed.

Karpenter records this as a label; for nodes made by others the same is derived from the node.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import INITIALIZED_LABEL
from wharfinger.domain.taints import Taint

NOT_YET = frozenset(
    (
        "karpenter.sh/unregistered",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    )
)
"""Keys of taints that go by themselves once a node is what it shall be."""


def is_initialized(node: Node, startup_taints: Iterable[Taint] = ()) -> bool:
    """Returns whether a new node can be used: it is ready, and has neither startup taints nor
    taints of nodes that are not ready yet, such as node.kubernetes.io/not-ready. If a ready node
    has the label `INITIALIZED_LABEL`, the label is used instead of all these taints: "true" means
    that the node can be used.

    `startup_taints`: startup taints of the node pool; other controllers remove them from the node
    when it is set up.
    """
    if not node.ready:
        return False
    if (said := node.labels.get(INITIALIZED_LABEL)) is not None:
        return said == "true"
    waiting = {(taint.key, taint.effect) for taint in startup_taints}
    return not any(
        taint.key in NOT_YET or (taint.key, taint.effect) in waiting for taint in node.taints
    )
