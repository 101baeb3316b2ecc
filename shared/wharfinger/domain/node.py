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
    -> `0.65000,2026-03-01T12:00:00Z`. `annotations`: those of Karpenter. `created_us`: 0 where it
    is not known. `ready`: the node says so, or says nothing of it."""

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
