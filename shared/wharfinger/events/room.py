"""Topic `wharfinger.room`: what fleet shards tell each other.

`RoomTaken`: what a shard has just promised of the room of clusters.
Written by the publisher where a plane has several fleet shards: per round (or merged run of rounds)
of a fleet stream, one item a cluster and class. The others deduct it until the cluster's estimator
has accounted for it, as a shard does with its own decisions. What is given back is credited by the
estimator alone.

`PlanAnswered`: what a shard has decided about its part of a plan that several shards carry out.
"""

from __future__ import annotations

from wharfinger.domain.binding import Component
from wharfinger.domain.ids import ClusterName, EventId, StreamName
from wharfinger.domain.reasons import PlanOutcome
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements

MAX_ITEMS = 500


class RoomItem(Value, frozen=True):
    """`replicas` more of one class in this cluster, decided up to `seq`. `components`: where they
    are whole sets of them."""

    cluster: ClusterName
    seq: int
    replicas: int
    requirements: Requirements = Requirements()
    components: tuple[Component, ...] = ()


class RoomTaken(Value, frozen=True):
    """`first`, `through`: the lowest and the highest seq of `stream` among the decisions that this
    was added up from."""

    stream: StreamName
    first: int
    through: int
    items: tuple[RoomItem, ...]


class PlanAnswered(Value, frozen=True):
    """`stream` has decided this about its part of a plan, by its decision number `through`. `tell`:
    the shards for which the message is."""

    stream: StreamName
    through: int
    plan: EventId
    outcome: PlanOutcome
    tell: tuple[StreamName, ...]
