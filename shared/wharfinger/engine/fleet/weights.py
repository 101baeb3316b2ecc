"""Computes the static weights of clusters from the rules of a policy."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.rules.clusters.affinity import matcher, matches

MAX_WEIGHT = 2**31
"""Weights above this are kept in a list, not in an array."""


def static_weights(placement: Placement, clusters: Sequence[Cluster]) -> list[int]:
    """Returns the static weight of each cluster: the highest weight among the entries of the
    policy's weight list (`staticWeightList`) whose target matches the cluster; 0 if no entry
    matches.

    Example: the entries are region X with weight 2 and cluster A with weight 3. A in region X gets
    3, B in region X gets 2, C in region Y gets 0.
    """
    rules = placement.replicas.static
    if len(clusters) == 1 or any(rule.weight < 0 for rule in rules):
        return [
            max((rule.weight for rule in rules if matches(rule.target, c)), default=0)
            for c in clusters
        ]
    weights = [0] * len(clusters)
    for rule in sorted(rules, key=lambda rule: -rule.weight):
        within = matcher(msgspec.structs.replace(rule.target, overflow=()))
        for i, cluster in enumerate(clusters):
            if not weights[i] and within(cluster):
                weights[i] = rule.weight
    return weights
