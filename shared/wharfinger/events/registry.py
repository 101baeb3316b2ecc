"""Every event type, by name and version: the list a newcomer can read aloud. `ledger_types` is the
part of it that comes from the ledger.

An event that changes gets a new version here and an upcast in `upcasts`; its old class stays for
ever, and so does its frozen sample in the contract tests.
"""

from __future__ import annotations

from wharfinger.domain.value import Value
from wharfinger.events import (
    bindings,
    capacity,
    cluster_state,
    clusters,
    effects,
    extenders,
    node_load,
    plans,
    policies,
    proposals,
    streams,
    ticks,
)
from wharfinger.events.ledger_types import LEDGER_TYPES
from wharfinger.events.message_codec import EventType

EVENT_TYPES: tuple[EventType, ...] = (
    EventType("cluster.observed", 1, clusters.ClusterObserved, streams.CLUSTERS),
    EventType("cluster.forgotten", 1, clusters.ClusterForgotten, streams.CLUSTERS),
    EventType("fleet.heard", 1, clusters.FleetHeard, streams.CLUSTERS),
    EventType("nodes.observed", 1, cluster_state.NodesObserved, streams.CLUSTER_STATE),
    EventType("node-images.observed", 1, cluster_state.NodeImagesObserved, streams.CLUSTER_STATE),
    EventType("pods.observed", 1, cluster_state.PodsObserved, streams.CLUSTER_STATE),
    EventType("pods.waiting.observed", 1, cluster_state.WaitingPodsObserved, streams.CLUSTER_STATE),
    EventType(
        "pods.finished.observed", 1, cluster_state.FinishedPodsObserved, streams.CLUSTER_STATE
    ),
    EventType("quotas.observed", 1, cluster_state.QuotasObserved, streams.CLUSTER_STATE),
    EventType("objects.observed", 1, cluster_state.ObjectsObserved, streams.CLUSTER_STATE),
    EventType("workload.observed", 1, cluster_state.WorkloadObserved, streams.CLUSTER_STATE),
    EventType("node-load.observed", 1, node_load.NodeLoadObserved, streams.NODE_LOAD),
    EventType("hot-value.observed", 1, node_load.HotValueObserved, streams.NODE_LOAD),
    EventType("effects.observed", 1, effects.EffectsObserved, streams.EFFECTS),
    EventType("policy.applied", 1, policies.PolicyApplied, streams.POLICIES),
    EventType("policy.removed", 1, policies.PolicyRemoved, streams.POLICIES),
    EventType("binding.requested", 1, bindings.BindingRequested, streams.BINDINGS),
    EventType("binding.withdrawn", 1, bindings.BindingWithdrawn, streams.BINDINGS),
    EventType("capacity.estimated", 1, capacity.CapacityEstimated, streams.CAPACITY),
    EventType("failover.proposed", 1, proposals.FailoverProposed, streams.PROPOSALS),
    EventType("eviction.proposed", 1, proposals.EvictionProposed, streams.PROPOSALS),
    EventType("reschedule.proposed", 1, proposals.RescheduleProposed, streams.PROPOSALS),
    EventType("node-removal.proposed", 1, proposals.NodeRemovalProposed, streams.PROPOSALS),
    EventType("plan.requested", 1, plans.PlanRequested, streams.PROPOSALS),
    EventType("disruption.proposed", 1, proposals.DisruptionProposed, streams.PROPOSALS),
    EventType("descheduling.proposed", 1, proposals.DeschedulingProposed, streams.PROPOSALS),
    *LEDGER_TYPES,
    EventType("tick.fired", 1, ticks.Ticked, None),
    EventType("extender.answered", 1, extenders.ExtenderAnswered, None),
    EventType("held-events.laid-aside", 1, ticks.HeldEventsLaidAside, None),
)

BY_TYPE = {e.type: e for e in EVENT_TYPES}

LATEST: dict[type[Value], EventType] = {}
for _event_type in EVENT_TYPES:
    # later versions stand below earlier ones, so the last entry of a class wins
    LATEST[_event_type.data] = _event_type

_LATEST_NAMES = {data: event_type.type for data, event_type in LATEST.items()}


def types_of(*kinds: type) -> tuple[str, ...]:
    """The full type names under which data of these classes is written today."""
    return tuple([_LATEST_NAMES[kind] for kind in kinds])


def versions_of(*kinds: type) -> tuple[str, ...]:
    """The full type names of every version of these classes, also those written in the past."""
    names = {LATEST[kind].name for kind in kinds}
    return tuple([one.type for one in EVENT_TYPES if one.name in names])


def type_of(data: Value) -> str:
    """The full type name under which this data is written today."""
    return _LATEST_NAMES[type(data)]
