"""A fact that is submitted to the intake, with its topic and its keys. Only this module knows the
keys of the intake's topics.

The fact has no id yet: the code that accepts it assigns one.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.binding import range_key
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
    WorkloadObserved,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved, FleetHeard
from wharfinger.events.envelope import NO_VERSION, FactVersion
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import Topic

Fact = (
    ClusterObserved
    | ClusterForgotten
    | FleetHeard
    | NodesObserved
    | NodeImagesObserved
    | PodsObserved
    | FinishedPodsObserved
    | QuotasObserved
    | ObjectsObserved
    | WorkloadObserved
    | PolicyApplied
    | PolicyRemoved
    | BindingRequested
    | BindingWithdrawn
)


@dataclass(frozen=True, slots=True)
class Accepted:
    """`key`: the record's key, whose latest value compaction keeps; `partition_key`: what chooses
    the partition. `version`: which state of its key the fact is (`events.versions`)."""

    data: Value
    subject: str
    key: str
    partition_key: str
    version: FactVersion = NO_VERSION

    @property
    def topic(self) -> Topic:
        topic = LATEST[type(self.data)].topic
        assert topic is not None, "every fact has a topic"
        return topic


def accepted(data: Fact) -> Accepted:
    """The fact under its keys, as the table of topics says."""
    match data:
        case ClusterObserved(cluster=cluster):
            return _keyed(data, cluster.name)
        case ClusterForgotten(name=name):
            return _keyed(data, name)
        case FleetHeard(collector=collector):
            return _keyed(data, collector)
        case BindingWithdrawn(name=name):
            return _of_binding(data, name)
        case NodesObserved(cluster=name, bucket=bucket):
            return Accepted(data, name, f"{name}/nodes/{bucket}", name)
        case NodeImagesObserved(cluster=name, bucket=bucket):
            return Accepted(data, name, f"{name}/images/{bucket}", name)
        case PodsObserved(cluster=name, node=node):
            return Accepted(data, name, f"{name}/pods/{node}", name)
        case FinishedPodsObserved(cluster=name, node=node):
            return Accepted(data, name, f"{name}/finished/{node}", name)
        case QuotasObserved(cluster=name, namespace=namespace):
            return Accepted(data, name, f"{name}/quotas/{namespace}", name)
        case ObjectsObserved(cluster=name, kind=kind, namespace=namespace):
            return Accepted(data, name, f"{name}/objects/{kind}/{namespace}", name)
        case WorkloadObserved(cluster=name, binding=binding_name):
            return Accepted(data, name, f"{name}/workloads/{binding_name}", name)
        case PolicyApplied(policy=policy):
            return _keyed(data, policy.key)
        case PolicyRemoved(kind=kind, namespace=namespace, name=name):
            return _keyed(data, f"{kind}/{namespace}/{name}")
        case BindingRequested(binding=binding):
            return _of_binding(data, binding.name)


def _of_binding(data: Value, name: str) -> Accepted:
    """All bindings of a namespace go to one fleet shard."""
    return Accepted(data, name, name, range_key(name))


def _keyed(data: Value, key: str) -> Accepted:
    return Accepted(data, key, key, key)
