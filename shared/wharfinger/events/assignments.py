"""Topic `wharfinger.assignments`: every decision that touches a cluster, in stream order, on that
cluster's partition.

Written by the publisher: one event a round (or merged run of rounds) of a stream and cluster, up to
100 items. `seq` and `decision` of each item name the decision it came from. FIFO of the partition
is what makes `accounted_through` sound.
"""

from __future__ import annotations

from wharfinger.domain.ids import (
    BindingName,
    ClassKey,
    ClusterName,
    FleetDecisionId,
    NodeName,
    PodUid,
    Remark,
    StreamName,
    Word,
    WorkloadUid,
)
from wharfinger.domain.node_pool import PoolRequirement
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.node_share import NodeShare

MAX_ITEMS = 100


class Assigned(Value, frozen=True, tag="assigned"):
    """The binding shall have `replicas` replicas in this cluster in total (0: none any more)."""

    seq: int
    decision: str
    binding: BindingName
    uid: WorkloadUid
    replicas: int
    requirements: Requirements = Requirements()
    priority: int = 0


class Placed(Value, frozen=True, tag="placed"):
    seq: int
    decision: str
    binding: BindingName
    placed: tuple[NodeShare, ...]
    requirements: Requirements = Requirements()


class Refused(Value, frozen=True, tag="refused"):
    seq: int
    decision: str
    binding: BindingName
    assignment: FleetDecisionId
    count: int
    class_key: ClassKey
    reason: Word


class Released(Value, frozen=True, tag="released"):
    """`reason`: why; empty where it was not said, and in what goes to fleet shards."""

    seq: int
    decision: str
    binding: BindingName
    released: tuple[NodeShare, ...] = ()
    unbound: int = 0
    reason: Word = ""


class NodeClosed(Value, frozen=True, tag="node-closed"):
    seq: int
    decision: str
    node: NodeName


class Silenced(Value, frozen=True, tag="silenced"):
    seq: int
    decision: str


class Recovered(Value, frozen=True, tag="recovered"):
    seq: int
    decision: str


class Claimed(Value, frozen=True, tag="claimed"):
    """A node of `pool` was asked for. `others`: key of their requirements -> how many waiting pods
    of other schedulers it is for."""

    seq: int
    decision: str
    claim: str
    pool: str
    instance_types: tuple[str, ...]
    requests: dict[str, int]
    replicas: dict[str, int]
    command: str
    until_us: int
    requirements: tuple[PoolRequirement, ...] = ()
    others: dict[ClassKey, int] = {}


class ClaimEnded(Value, frozen=True, tag="claim-ended"):
    """`instance_type`, `zone`, `capacity_type`: what came, or what could not be had; empty where
    that is not known."""

    seq: int
    decision: str
    claim: str
    pool: str
    outcome: str
    node: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""


class Disrupting(Value, frozen=True, tag="disrupting"):
    """A command began: its nodes take nothing new."""

    seq: int
    decision: str
    command: str
    method: str
    nodes: tuple[str, ...]


class Disrupted(Value, frozen=True, tag="disrupted"):
    """A command ended; `reopened`: the nodes that take replicas again."""

    seq: int
    decision: str
    command: str
    method: str
    outcome: str
    reopened: tuple[str, ...]
    reason: str


class PodsRemoved(Value, frozen=True, tag="pods-removed"):
    """Finished pods may be deleted until `until_us`. They use nothing of their node, so nothing
    becomes free."""

    seq: int
    decision: str
    pods: tuple[PodUid, ...]
    until_us: int


class UnplacedPods(Value, frozen=True, tag="unplaced"):
    """The waiting pods fit on no node at present. `message`: why, as a sentence for people."""

    seq: int
    decision: str
    binding: BindingName
    pods: tuple[PodUid, ...]
    reason: Word
    message: Remark


class PodsPreempted(Value, frozen=True, tag="pods-preempted"):
    """The running pods `victims` are evicted until `until_us`, while the pod `preemptor`, which is
    to be placed on their node, waits without a place."""

    seq: int
    decision: str
    preemptor: PodUid
    victims: tuple[PodUid, ...]
    until_us: int


class PreemptionOver(Value, frozen=True, tag="preemption-over"):
    """Nothing is evicted for the pod `preemptor` any more."""

    seq: int
    decision: str
    preemptor: PodUid


AssignmentItem = (
    Assigned
    | Placed
    | Refused
    | Released
    | NodeClosed
    | Silenced
    | Recovered
    | Claimed
    | ClaimEnded
    | Disrupting
    | Disrupted
    | PodsRemoved
    | UnplacedPods
    | PodsPreempted
    | PreemptionOver
)


class AssignmentsDecided(Value, frozen=True):
    """`stream`: the stream whose decisions these are; `through`: the highest seq among them."""

    cluster: ClusterName
    stream: StreamName
    through: int
    items: tuple[AssignmentItem, ...]
