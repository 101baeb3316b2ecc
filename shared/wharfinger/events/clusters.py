"""Topic `wharfinger.clusters`: the facts of member clusters.

State model: key = cluster name; each ClusterObserved is the whole state of its key and, by
arriving, renews the lease. ClusterForgotten ends it.
"""

from __future__ import annotations

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.ids import Bounded, ClusterName
from wharfinger.domain.value import Value


class ClusterObserved(Value, frozen=True):
    cluster: Cluster


class ClusterForgotten(Value, frozen=True):
    name: Bounded[ClusterName]
