"""Topic `wharfinger.clusters`: the facts of member clusters.

State model: key = cluster name; each ClusterObserved is the whole state of its key and, by
arriving, renews the lease. ClusterForgotten ends it.

A collector sends a ClusterObserved when the facts of a cluster change. The leases of all its
clusters are renewed by one FleetHeard a period; its key is the name of the collector.
"""

from __future__ import annotations

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.ids import Bounded, ClusterName, Word
from wharfinger.domain.value import Value


class ClusterObserved(Value, frozen=True):
    cluster: Cluster


class ClusterForgotten(Value, frozen=True):
    name: Bounded[ClusterName]


class FleetHeard(Value, frozen=True):
    """The heartbeat of several clusters. `collector`: its sender; of two collectors that run at the
    same time each has a name of its own. `period_s`: seconds until the next one. `heard`: the
    clusters whose API servers have answered since the message before it, in order of name. It says
    nothing else about them: whether their facts are fresh is a condition of the cluster, and a
    cluster without ClusterObserved stays unknown."""

    collector: Word
    period_s: int
    heard: tuple[Bounded[ClusterName], ...]
