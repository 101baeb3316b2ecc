"""What is known of a node and of the pods on it."""

from __future__ import annotations

from wharfinger.domain.ids import (
    Address,
    AmountText,
    BindingName,
    Bounded,
    LabelKey,
    LabelText,
    MetricName,
    NodeName,
    PodName,
    PodUid,
    ResourceName,
    Token,
    Word,
)
from wharfinger.domain.pod_upkeep import PodUpkeep
from wharfinger.domain.resources import Device
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements


class Node(Value, frozen=True):
    """A node's facts. `allocatable`: see `domain.resources` for units; devices are apart, in device
    order.

    `addresses`: under which others know it (IPs, DNS names, without port); by them measured series
    find their node. `images`: name -> size in bytes of what lies there already. `measured`:
    annotations by which crane's annotator says how loaded the node is, as they stand there: metric
    -> `0.65000,2026-03-01T12:00:00Z`. `annotations`: those of Karpenter, and the one
    by which the actuator closed it. `created_us`: 0 where it is not known. `ready`: the node says
    so, or says nothing of it."""

    name: Bounded[NodeName]
    allocatable: dict[ResourceName, int]
    devices: tuple[Device, ...] = ()
    labels: dict[LabelKey, LabelText] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    addresses: tuple[Address, ...] = ()
    images: dict[Token, int] = {}
    measured: dict[MetricName, AmountText] = {}
    annotations: dict[LabelKey, LabelText] = {}
    created_us: int = 0
    ready: bool = True


class Pod(Value, frozen=True):
    """A pod seen in a cluster. `binding` and `ordinal` say which assigned replica it is, when it is
    one of ours.

    `devices`: (device index, thousandths) for each device it holds, in the node's device order.
    `started_us`: when it started, 0: not known. `terminating`: its deletion has begun. Namespace
    and labels are among its requirements' traits. `upkeep`: by which it is decided whether it may
    be taken off its node; None: nothing is known of that."""

    uid: PodUid
    name: Bounded[PodName]
    requirements: Requirements
    node: Bounded[NodeName] = ""
    binding: Bounded[BindingName] = ""
    ordinal: int = -1
    devices: tuple[tuple[int, int], ...] = ()
    priority: int = 0
    started_us: int = 0
    terminating: bool = False
    upkeep: PodUpkeep | None = None


class WaitingPod(Value, frozen=True):
    """A pod that has no node yet. Its scheduler, scheduling gates, namespace and labels are among
    its requirements' traits.

    `binding`: by the chain of its controllers; empty: a pod of no binding. `index`: its own number
    in a StatefulSet or an indexed Job; -1: it has none. `created_us`: 0 where it is not known.
    `nominated`: the node on which its scheduler keeps room for it (`status.nominatedNodeName`).
    `condition`: the reason of its condition PodScheduled while that is false (`Unschedulable`,
    `SchedulingGated`), empty before its scheduler has looked at it; `since_us`: since when."""

    uid: PodUid
    name: Bounded[PodName]
    requirements: Requirements
    binding: Bounded[BindingName] = ""
    index: int = -1
    priority: int = 0
    created_us: int = 0
    nominated: NodeName = ""
    condition: Word = ""
    since_us: int = 0

    def on(self, node: str) -> Pod:
        """The pod as it would be on `node`; empty: as one without a node."""
        return Pod(self.uid, self.name, self.requirements, node, priority=self.priority)
