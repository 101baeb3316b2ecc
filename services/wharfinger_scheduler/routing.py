"""Which stream an event is for. Partitions of the consumer groups are the groups of streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved, PodsObserved
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.plans import PlanRequested
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import (
    DeschedulingProposed,
    DisruptionProposed,
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.streams import CLUSTER, FLEET, cluster_stream, fleet_stream
from wharfinger.runtime.stage_loop import Message

ASKED = (
    FailoverProposed | EvictionProposed | RescheduleProposed | NodeRemovalProposed | PlanRequested | DisruptionProposed
    | DeschedulingProposed
)  # fmt: skip
"""What is asked of the one stream that it names."""


class FleetRouting:
    """Stream `fleet/<shard>`, shard = partition. Broadcast facts are for every shard."""

    prefix = FLEET

    def group_of(self, stream: str) -> int:
        return int(stream.removeprefix(FLEET))

    def standing(self, group: int) -> Sequence[str]:
        return (fleet_stream(group),)

    def addressed(self, message: Message) -> Sequence[str] | None:
        match message.event.data:
            case BindingRequested() | BindingWithdrawn() | OutcomesDecided():
                return (fleet_stream(message.partition),)
            case proposal if isinstance(proposal, ASKED):
                return (proposal.stream,) if _is_shard(proposal.stream) else ()
            case _:
                return None


class ClusterRouting:
    """Stream `cluster/<name>`, group = the partition the cluster's name falls on. Streams begin with their first event. Policies
    are for every cluster."""

    prefix = CLUSTER

    def __init__(self, cluster_partition: Callable[[str], int]) -> None:
        self._cluster_partition = cluster_partition

    def group_of(self, stream: str) -> int:
        return self._cluster_partition(stream.removeprefix(CLUSTER))

    def standing(self, group: int) -> Sequence[str]:
        return ()

    def addressed(self, message: Message) -> Sequence[str] | None:
        match message.event.data:
            case (
                NodesObserved(cluster=cluster) | PodsObserved(cluster=cluster) | ObjectsObserved(cluster=cluster)
                | NodeLoadObserved(cluster=cluster) | HotValueObserved(cluster=cluster)
            ):  # fmt: skip
                return (cluster_stream(cluster),)
            case PolicyApplied() | PolicyRemoved():
                return None
            case AssignmentsDecided(cluster=cluster, stream=stream):
                # What the cluster's own stream decided it knows already.
                return () if stream.startswith(CLUSTER) else (cluster_stream(cluster),)
            case proposal if isinstance(proposal, ASKED):
                return (proposal.stream,) if proposal.stream.startswith(CLUSTER) else ()
            case _:
                return ()


def _is_shard(stream: str) -> bool:
    number = stream.removeprefix(FLEET)
    return number.isascii() and number.isdecimal() and fleet_stream(int(number)) == stream
