"""ClusterLocality (Karmada): a cluster that already holds replicas of the binding scores higher,
because a move has a cost.

It is the only score of clusters. Clusters are ranked by tier, score, capacity and name
(`engine.fleet.candidates`).
"""

from __future__ import annotations

from collections.abc import Container

LOCALITY = 100


def locality(name: str, held: Container[str]) -> int:
    """Return the locality score of the cluster `name`: 100 if it is in `held`, otherwise 0. `held`:
    the clusters of the current assignment, including those with no replicas yet."""
    return LOCALITY if name in held else 0
