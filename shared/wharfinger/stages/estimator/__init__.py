"""The estimator: how many more replicas fit into each cluster, counted node by node. It observes
and decides nothing.

`cluster` computes the estimates of one cluster, `observer` routes events to clusters and decides
when to publish.
"""

from wharfinger.stages.estimator.observer import (
    EstimatorObserver,
    EstimatorState,
    placements_follow,
)

__all__ = ["EstimatorObserver", "EstimatorState", "placements_follow"]
