"""The estimator: how much more fits into each cluster, counted node by node. It observes, and decides nothing.

`cluster` is what it knows of one cluster and how that becomes a number, `observer` which event goes where and when there is
something new to say.
"""

from wharfinger.stages.estimator.observer import EstimatorObserver, EstimatorState

__all__ = ["EstimatorObserver", "EstimatorState"]
