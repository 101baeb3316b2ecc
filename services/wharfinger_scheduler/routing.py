"""Which stream an event is for. Partitions of the consumer groups are the groups of streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import (
    NodeImagesObserved,
    NodesObserved,
    ObjectsObserved,
    PodsObserved,
    WaitingPodsObserved,
)
from wharfinger.events.effects import EffectsObserved
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.plans import PlanRequested
from wharfinger.events.policies import (
    PolicyApplied,
    PolicyRemoved,
    concerns_every_shard,
    concerns_nodes,
)
from wharfinger.events.proposals import (
    DeschedulingProposed,
    DisruptionProposed,
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.room import PlanAnswered, RoomTaken
from wharfinger.events.streams import CLUSTER, FLEET, cluster_stream, fleet_stream
from wharfinger.runtime.messages import Message

ASKED = (
    FailoverProposed
    | EvictionProposed
    | RescheduleProposed
    | NodeRemovalProposed
    | PlanRequested
    | DisruptionProposed
    | DeschedulingProposed
)
"""What is asked of the one stream that it names."""


class FleetRouting:
    """Stream `fleet/<shard>`, shard = partition. Broadcast facts are for every shard, but for
    policies that only the first one needs, room that a shard took, which is for the others, and
    answers to plans, which name whom they are for."""

    prefix = FLEET

    def __init__(self, shards: int) -> None:
        self._shards = tuple(map(fleet_stream, range(shards)))

    def group_of(self, stream: str) -> int:
        return int(stream.removeprefix(FLEET))

    def permanent_streams(self, group: int) -> Sequence[str]:
        return (fleet_stream(group),)

    def addressed(self, message: Message) -> Sequence[str] | None:
        match message.event.data:
            case BindingRequested() | BindingWithdrawn() | OutcomesDecided():
                return (fleet_stream(message.partition),)
            case proposal if isinstance(proposal, ASKED):
                return (proposal.stream,) if _is_shard(proposal.stream) else ()
            case RoomTaken(stream=stream):
                return tuple([shard for shard in self._shards if shard != stream])
            case PlanAnswered(tell=tell):
                return tuple([shard for shard in self._shards if shard in tell])
            case PolicyApplied() | PolicyRemoved() as policy if not concerns_every_shard(policy):
                return (fleet_stream(0),)
            case _:
                return None


class ClusterRouting:
    """Stream `cluster/<name>`, group = the partition the cluster's name falls on. Streams begin
    with their first event. Policies that concern nodes are for every cluster."""

    prefix = CLUSTER

    def __init__(self, cluster_partition: Callable[[str], int]) -> None:
        self._cluster_partition = cluster_partition

    def group_of(self, stream: str) -> int:
        return self._cluster_partition(stream.removeprefix(CLUSTER))

    def permanent_streams(self, group: int) -> Sequence[str]:
        return ()

    def addressed(self, message: Message) -> Sequence[str] | None:
        match message.event.data:
            case (
                NodesObserved(cluster=cluster)
                | NodeImagesObserved(cluster=cluster)
                | PodsObserved(cluster=cluster)
                | WaitingPodsObserved(cluster=cluster)
                | ObjectsObserved(cluster=cluster)
                | NodeLoadObserved(cluster=cluster)
                | HotValueObserved(cluster=cluster)
            ):
                return (cluster_stream(cluster),)
            case EffectsObserved(cluster=cluster) as answered:
                # What was carried out as decided changes no decision, and is no input.
                return (cluster_stream(cluster),) if answered.against_decision else ()
            case PolicyApplied() | PolicyRemoved() as policy:
                return None if concerns_nodes(policy) else ()
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
