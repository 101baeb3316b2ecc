"""Where a fact belongs: the subject, the record key and the partition key of each event people may send.

One table for every importer and generator, so that two writers of the same key cannot disagree about its partition.
"""

from __future__ import annotations

from wharfinger.domain.value import Value
from wharfinger.events.accepted import Accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved


def addressed(data: Value) -> Accepted:
    """`data` with its address. TypeError for data that does not come from outside: decisions, estimates, proposals."""
    match data:
        case ClusterObserved(cluster=cluster):
            return _by(data, cluster.name)
        case ClusterForgotten(name=name) | BindingWithdrawn(name=name):
            return _by(data, name)
        case NodesObserved(cluster=cluster_name, bucket=bucket):
            return Accepted(data, cluster_name, f"{cluster_name}/nodes/{bucket}", cluster_name)
        case PodsObserved(cluster=cluster_name, node=node):
            return Accepted(data, cluster_name, f"{cluster_name}/pods/{node}", cluster_name)
        case PolicyApplied(policy=policy):
            return _by(data, policy.key)
        case PolicyRemoved():
            return _by(data, f"{data.kind}/{data.namespace}/{data.name}")
        case BindingRequested(binding=binding):
            return _by(data, binding.name)
        case _:
            raise TypeError(f"{type(data).__name__} is not accepted from outside")


def _by(data: Value, name: str) -> Accepted:
    return Accepted(data, subject=name, key=name, partition_key=name)
