"""Topic `wharfinger.node-load`: measured load, one event a cluster and metric, holding all its
nodes.

State model: key = cluster/metric, the latest wins. Loads are integers in hundred-thousandths of the
whole (65000 is 65 %), because a decision must not depend on the order in which floats are added. A
node absent from `loads` is unknown: not zero, not infinite.
"""

from __future__ import annotations

from wharfinger.domain.ids import ClusterName, MetricName, NodeName
from wharfinger.domain.value import Value


class NodeLoadObserved(Value, frozen=True):
    """`period_s`: how often this metric is measured; `measured_at_us`: the clock of who asked (the
    annotator, or a collector that asks the cluster's metrics API), at the question."""

    cluster: ClusterName
    metric: MetricName
    period_s: int
    measured_at_us: int
    loads: dict[NodeName, int]


class HotValueObserved(Value, frozen=True):
    """How hot each node's recent bindings make it (crane's hot value, whole numbers); absent is
    0."""

    cluster: ClusterName
    measured_at_us: int
    hot: dict[NodeName, int]
