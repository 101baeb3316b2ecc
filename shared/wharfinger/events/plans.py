"""The request that a plan be carried out, on topic `wharfinger.proposals`.

A plan is made beside the plane and writes nothing. Carrying it out is asked of each stream it
concerns, by one `PlanRequested` a stream. The stream goes through the steps on a copy of its state,
in the round in which it would commit them: when what it finds is what the plan expects, all of it
happens in that round, else nothing does. Every request gets exactly one answer (`PlanCommitted` or
`PlanRefused`).

Fleet shards carry out a plan together or not at all (`stages.fleet.joint_plans`): all but the first
promise their parts (`PlanPromised`), the first one decides for all, and what they decide they tell
each other by `PlanAnswered`, on topic `wharfinger.room`.
"""

from __future__ import annotations

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.ids import BindingName, Bounded, ClusterName, EventId, Remark, StreamName
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.decisions import PlannedOutcome
from wharfinger.events.proposals import (
    EvictionProposed,
    FailoverProposed,
    NodeRemovalProposed,
    RescheduleProposed,
)
from wharfinger.events.room import RoomItem

StepData = (
    ClusterObserved
    | ClusterForgotten
    | NodesObserved
    | BindingRequested
    | BindingWithdrawn
    | FailoverProposed
    | EvictionProposed
    | RescheduleProposed
    | NodeRemovalProposed
)
"""What a plan may consist of: facts that shall hold, and what is proposed on top of them."""


class Step(Value, frozen=True):
    """One step of a plan; exactly one field is set. Use `step_of` to make one and `data` to read
    it."""

    cluster: Cluster | None = None
    forgotten: Bounded[ClusterName] = ""
    nodes: NodesObserved | None = None
    binding: Binding | None = None
    withdrawn: Bounded[BindingName] = ""
    failover: FailoverProposed | None = None
    eviction: EvictionProposed | None = None
    reschedule: RescheduleProposed | None = None
    removal: NodeRemovalProposed | None = None

    @property
    def empty(self) -> bool:
        return not any(getattr(self, name) for name in self.__struct_fields__)

    @property
    def data(self) -> StepData:
        """The step as the event it stands for."""
        if self.cluster is not None:
            return ClusterObserved(self.cluster)
        if self.binding is not None:
            return BindingRequested(self.binding)
        if self.withdrawn:
            return BindingWithdrawn(self.withdrawn)
        if self.forgotten:
            return ClusterForgotten(self.forgotten)
        other = self.nodes or self.failover or self.eviction or self.reschedule or self.removal
        if other is None:
            raise ValueError("a step without anything in it")
        return other


def step_of(data: StepData) -> Step:
    match data:
        case ClusterObserved(cluster=cluster):
            return Step(cluster=cluster)
        case ClusterForgotten(name=name):
            return Step(forgotten=name)
        case NodesObserved():
            return Step(nodes=data)
        case BindingRequested(binding=binding):
            return Step(binding=binding)
        case BindingWithdrawn(name=name):
            return Step(withdrawn=name)
        case FailoverProposed():
            return Step(failover=data)
        case EvictionProposed():
            return Step(eviction=data)
        case RescheduleProposed():
            return Step(reschedule=data)
        case NodeRemovalProposed():
            return Step(removal=data)


class PlanRequested(Value, frozen=True):
    """`stream` shall carry out `steps`, in order, if what comes of them is what is `expected`.

    `plan`: the plan's id. `seq`: of the stream's last decision when the plan was made. `basis`:
    what the plan looked at (`cluster/oslo facts`, `cluster/oslo capacity`, `binding/shop/web`, ...)
    -> a digest of it, so that a refusal can name what has changed.

    `shards`: the fleet streams that carry out the plan together, where there are several; the first
    decides for all. `taken`: the room that the parts of the shards before this one take, which is
    deducted where this part is tried.
    """

    stream: Bounded[StreamName]
    plan: EventId
    steps: tuple[Step, ...]
    expected: tuple[PlannedOutcome, ...] = ()
    seq: int = 0
    basis: dict[Remark, Remark] = {}
    shards: tuple[StreamName, ...] = ()
    taken: tuple[RoomItem, ...] = ()

    @property
    def others(self) -> tuple[str, ...]:
        """The other shards of a plan that several carry out together; empty: it is no such plan."""
        if self.stream not in self.shards:
            return ()
        return tuple([shard for shard in self.shards if shard != self.stream])

    @property
    def coordinator(self) -> str:
        """The shard that decides for all."""
        return self.shards[0] if self.shards else self.stream
