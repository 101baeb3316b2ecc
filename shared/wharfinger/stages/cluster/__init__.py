"""The cluster stage: which nodes the replicas assigned to one cluster go to. One stream a cluster, `cluster/<name>`.

It owns the capacity of its cluster: it places what fits and refuses the rest, so that fleet shards can never over-commit a
cluster. It never chooses clusters and never waits for room: what does not fit is given back at once, because waiting
belongs to the fleet stage, which knows other clusters.

`profile` holds the settings that reach decisions, `state` the book and its stored form, `decider` the rules, `explain` the
recorded explanation within its bounds.
"""

from wharfinger.stages.cluster.decider import ClusterDecider
from wharfinger.stages.cluster.profile import ClusterProfile
from wharfinger.stages.cluster.state import ClusterState

__all__ = ["ClusterDecider", "ClusterProfile", "ClusterState"]
