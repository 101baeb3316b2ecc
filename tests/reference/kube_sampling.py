"""How many nodes a kube-scheduler looks at. What is compared with: a plane looks at all of them."""

from __future__ import annotations

NODES_MIN = 100
"""So many are always looked at, and below so many all are."""
PERCENT_MIN = 5
PERCENT_BASE = 50
NODES_PER_PERCENT = 125
"""The adaptive share falls from 50 % by one for every 125 nodes, to 5 %."""


def feasible_nodes_wanted(nodes: int, percentage: int, of_profile: int | None = None) -> int:
    """After how many feasible nodes out of `nodes` the search stops. `percentage`: the
    configuration's, 0: adaptive; the profile's own wins. [kube-scheduler numFeasibleNodesToFind]"""
    share = percentage if of_profile is None else of_profile
    if nodes < NODES_MIN or share >= 100:
        return nodes
    if share == 0:
        share = max(PERCENT_MIN, PERCENT_BASE - nodes // NODES_PER_PERCENT)
    return max(NODES_MIN, nodes * share // 100)
