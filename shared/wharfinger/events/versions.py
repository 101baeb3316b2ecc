"""Which of two facts about the same thing is the older one.

A fact is the whole state of its key at one moment. A collector may state which version of the key
it saw: `epoch.version` in the CloudEvents extension `factversion`. The version grows with every
change of the key (a Kubernetes resourceVersion); the epoch grows when another writer takes over, so
that facts of a writer that was replaced without noticing count as older. So two collectors of one
cluster, or a refill during live writes, cannot set a key back: a fact that is older than the one a
stream has for its key is refused and counted. A fact without a version is not compared: it applies
in the order in which it arrives.

Pure. A stage keeps a `Versions` in its state, because what it refused must be refused again in a
replay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from wharfinger.domain.ids import (
    BindingName,
    ClusterName,
    MetricName,
    NamespaceName,
    NodeName,
    PolicyKey,
    Word,
)
from wharfinger.domain.time import Micros
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
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
from wharfinger.events.envelope import NO_VERSION, Event, FactVersion
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved

DAY_US = 86_400_000_000
ENDED_KEPT_US = 8 * DAY_US
"""For how long the version of an ended key is kept: longer than any topic of facts keeps a message
of the key (7 days)."""

ENDINGS = ClusterForgotten | BindingWithdrawn | PolicyRemoved


class FactKey(Value, frozen=True):
    """What a fact is the state of. `what` names the kind of fact; the other members that are set
    say of which one."""

    what: Word
    cluster: ClusterName = ""
    binding: BindingName = ""
    policy: PolicyKey = ""
    node: NodeName = ""
    namespace: NamespaceName = ""
    object_kind: Word = ""
    metric: MetricName = ""
    bucket: int = 0
    collector: Word = ""


class SavedVersion(Value, frozen=True):
    """One entry of a `Versions`. `ended_at`: the round that took in the end of the key; 0: the key
    has not ended."""

    key: FactKey
    epoch: int
    version: int
    ended_at: Micros = 0


def fact_key(data: Value) -> FactKey | None:
    """None: not a fact (a proposal, an answer, a decision)."""
    match data:
        case BindingRequested(binding=binding):
            return FactKey("binding", binding=binding.name)
        case BindingWithdrawn(name=name):
            return FactKey("binding", binding=name)
        case ClusterObserved(cluster=cluster):
            return FactKey("cluster", cluster=cluster.name)
        case ClusterForgotten(name=name):
            return FactKey("cluster", cluster=name)
        case FleetHeard(collector=collector):
            return FactKey("heard", collector=collector)
        case PolicyApplied(policy=policy):
            return FactKey("policy", policy=policy.key)
        case PolicyRemoved(kind=kind, namespace=namespace, name=name):
            return FactKey("policy", policy=f"{kind}/{namespace}/{name}")
        case NodesObserved(cluster=name, bucket=bucket):
            return FactKey("nodes", name, bucket=bucket)
        case NodeImagesObserved(cluster=name, bucket=bucket):
            return FactKey("images", name, bucket=bucket)
        case PodsObserved(cluster=name, node=node):
            return FactKey("pods", name, node=node)
        case FinishedPodsObserved(cluster=name, node=node):
            return FactKey("finished", name, node=node)
        case ObjectsObserved(cluster=name, kind=kind, namespace=namespace):
            return FactKey("objects", name, namespace=namespace, object_kind=kind)
        case QuotasObserved(cluster=name, namespace=namespace):
            return FactKey("quotas", name, namespace=namespace)
        case WorkloadObserved(cluster=name, binding=binding_name):
            return FactKey("workload", name, binding=binding_name)
        case CapacityEstimated(cluster=name):
            return FactKey("capacity", name)
        case NodeLoadObserved(cluster=name, metric=metric):
            return FactKey("load", name, metric=metric)
        case HotValueObserved(cluster=name):
            return FactKey("hot", name)
        case _:
            return None


@dataclass(slots=True)
class Versions:
    """The newest version taken in of each key that has one. `refused`: facts that were older, since
    the state was made."""

    newest: dict[FactKey, FactVersion] = field(default_factory=dict)
    ended: dict[FactKey, int] = field(default_factory=dict)
    """Ended keys in the order they ended -> when."""
    refused: int = 0

    def admits(self, event: Event[Value], at: int) -> bool:
        """Whether the fact may be folded; its version is noted then. `at`: microseconds, the
        round's time."""
        if event.version == NO_VERSION:
            return True
        key = fact_key(event.data)
        if key is None:
            return True
        if event.version < self.newest.get(key, NO_VERSION):
            self.refused += 1
            return False
        self._note(key, event.version, at if isinstance(event.data, ENDINGS) else 0)
        while (
            self.ended
            and (oldest := next(iter(self.ended)))
            and self.ended[oldest] < at - ENDED_KEPT_US
        ):
            del self.ended[oldest], self.newest[oldest]
        return True

    def copy(self) -> Versions:
        return Versions(self.newest.copy(), self.ended.copy(), self.refused)

    def saved(self) -> tuple[SavedVersion, ...]:
        """Equal versions, equal values: in order of key, ended keys last in the order they
        ended."""
        running = sorted((k for k in self.newest if k not in self.ended), key=_order)
        return tuple(
            [
                SavedVersion(key, *self.newest[key], self.ended.get(key, 0))
                for key in (*running, *self.ended)
            ]
        )

    @classmethod
    def loaded(cls, saved: Iterable[SavedVersion]) -> Versions:
        versions = cls()
        for one in saved:
            versions._note(one.key, (one.epoch, one.version), one.ended_at)
        return versions

    def _note(self, key: FactKey, version: FactVersion, ended_at: int) -> None:
        self.newest[key] = version
        self.ended.pop(key, None)
        if ended_at:
            self.ended[key] = ended_at


def _order(key: FactKey) -> tuple[str | int, ...]:
    return (
        key.what,
        key.cluster,
        key.binding,
        key.policy,
        key.node,
        key.namespace,
        key.object_kind,
        key.metric,
        key.bucket,
        key.collector,
    )
