"""Every event type, by name and version: the list a newcomer can read aloud.

An event that changes gets a new version here and an upcast in `upcasts`; its old class stays for ever, and so does its
frozen sample in the contract tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.domain.value import Value
from wharfinger.events import (
    acceptance,
    assignments,
    bindings,
    capacity,
    cluster_state,
    clusters,
    dead_letters,
    decisions,
    disruption,
    extenders,
    node_load,
    outcomes,
    placements,
    plans,
    policies,
    proposals,
    provisioning,
    streams,
    ticks,
)
from wharfinger.events.streams import Topic

PREFIX = "io.wharfinger."


@dataclass(frozen=True, slots=True)
class EventType:
    """`name` without version and prefix; `topic` None: never on a topic of its own."""

    name: str
    version: int
    data: type[Value]
    topic: Topic | None

    @property
    def type(self) -> str:
        return f"{PREFIX}{self.name}.v{self.version}"


EVENT_TYPES: tuple[EventType, ...] = (
    EventType("cluster.observed", 1, clusters.ClusterObserved, streams.CLUSTERS),
    EventType("cluster.forgotten", 1, clusters.ClusterForgotten, streams.CLUSTERS),
    EventType("nodes.observed", 1, cluster_state.NodesObserved, streams.CLUSTER_STATE),
    EventType("pods.observed", 1, cluster_state.PodsObserved, streams.CLUSTER_STATE),
    EventType("quotas.observed", 1, cluster_state.QuotasObserved, streams.CLUSTER_STATE),
    EventType("objects.observed", 1, cluster_state.ObjectsObserved, streams.CLUSTER_STATE),
    EventType("workload.observed", 1, cluster_state.WorkloadObserved, streams.CLUSTER_STATE),
    EventType("node-load.observed", 1, node_load.NodeLoadObserved, streams.NODE_LOAD),
    EventType("hot-value.observed", 1, node_load.HotValueObserved, streams.NODE_LOAD),
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
    EventType("assignments.decided", 1, assignments.AssignmentsDecided, streams.ASSIGNMENTS),
    EventType("outcomes.decided", 1, outcomes.OutcomesDecided, streams.OUTCOMES),
    EventType("disruption.proposed", 1, proposals.DisruptionProposed, streams.PROPOSALS),
    EventType("descheduling.proposed", 1, proposals.DeschedulingProposed, streams.PROPOSALS),
    EventType("schedule.decided", 1, decisions.ScheduleDecided, streams.DECISIONS),
    EventType("schedule.refused", 1, decisions.ScheduleRefused, streams.DECISIONS),
    EventType("binding.released", 1, decisions.BindingReleased, streams.DECISIONS),
    EventType("cluster.silenced", 1, decisions.ClusterSilenced, streams.DECISIONS),
    EventType("cluster.recovered", 1, decisions.ClusterRecovered, streams.DECISIONS),
    EventType("failover.held", 1, decisions.FailoverHeld, streams.DECISIONS),
    EventType("failover.resumed", 1, decisions.FailoverResumed, streams.DECISIONS),
    EventType("proposal.refused", 1, decisions.ProposalRefused, streams.DECISIONS),
    EventType("replicas.placed", 1, decisions.ReplicasPlaced, streams.DECISIONS),
    EventType("replicas.refused", 1, decisions.ReplicasRefused, streams.DECISIONS),
    EventType("replicas.released", 1, decisions.ReplicasReleased, streams.DECISIONS),
    EventType("replicas.nominated", 1, decisions.ReplicasNominated, streams.DECISIONS),
    EventType("extender.asked", 1, decisions.ExtenderAsked, streams.DECISIONS),
    EventType("node-removal.decided", 1, decisions.NodeRemovalDecided, streams.DECISIONS),
    EventType("node-claim.requested", 1, provisioning.NodeClaimRequested, streams.DECISIONS),
    EventType("node-claim.ended", 1, provisioning.NodeClaimEnded, streams.DECISIONS),
    EventType("disruption.decided", 1, disruption.DisruptionDecided, streams.DECISIONS),
    EventType("disruption.ended", 1, disruption.DisruptionEnded, streams.DECISIONS),
    EventType("plan.committed", 1, decisions.PlanCommitted, streams.DECISIONS),
    EventType("plan.refused", 1, decisions.PlanRefused, streams.DECISIONS),
    EventType("placement.decided", 1, placements.PlacementDecided, streams.DECISIONS),
    EventType("placement.held", 1, placements.PlacementHeld, streams.DECISIONS),
    EventType("placement.released", 1, placements.PlacementReleased, streams.DECISIONS),
    EventType("message.dead-lettered", 1, dead_letters.MessageDeadLettered, streams.DEAD_LETTERS),
    EventType("message.accepted", 1, acceptance.MessageAccepted, None),
    EventType("tick.fired", 1, ticks.Ticked, None),
    EventType("extender.answered", 1, extenders.ExtenderAnswered, None),
)

BY_TYPE = {e.type: e for e in EVENT_TYPES}

LATEST: dict[type[Value], EventType] = {}
for _event_type in EVENT_TYPES:  # later versions stand below earlier ones, so the last entry of a class wins
    LATEST[_event_type.data] = _event_type

_LATEST_NAMES = {data: event_type.type for data, event_type in LATEST.items()}


def type_of(data: Value) -> str:
    """The full type name under which this data is written today."""
    return _LATEST_NAMES[type(data)]
