"""The input and output types of disruption. The input is one cluster's nodes, pods, pools and
prices, and the disruptions in progress. The output is commands, and a verdict for each node.

The snapshot is built from a cluster's state (`stages.pools`) and is read only. The removal of nodes
is simulated on arrays beside it (`removal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import DisruptionReason, NodeOverlay, NodePoolPolicy
from wharfinger.engine.provisioning.problem import InFlight, NewClaim, SolveOptions, WantedPods
from wharfinger.events.proposals import DisruptionMethod

Method = DisruptionMethod
"""The engine's own name for it."""

REASONS: Mapping[str, DisruptionReason] = {
    "emptiness": "Empty",
    "expiry": "Drifted",
    "static-drift": "Drifted",
    "static-scale-down": "Underutilized",
    "drift": "Drifted",
    "multi-node": "Underutilized",
    "single-node": "Underutilized",
}
"""Method -> for which reason its nodes go, as budgets name it; methods are words in what is
published of them."""

UNBUDGETED: frozenset[Method] = frozenset({"expiry", "static-scale-down"})
"""Methods without a budget: expired nodes are always removed, and the owner of a static pool has
reduced its size on purpose. Their nodes still use up the budgets of other methods. [Karpenter]"""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The state of one cluster at time `at` (microseconds), from which disruption is decided.

    `pods`: all pods on nodes, including placed replicas (with `binding` and `ordinal`).
    `in_flight`: claims without a node yet. `quiet_since`: node -> when a pod last came or left.
    `nominated`: nodes that are reserved for a pod. `closed`: nodes that take no new pods because
    they are to be removed. `disrupting`: node -> the reason for which it is being disrupted.
    `reserved`: promised moves and capacity, as pods on their future nodes. `waiting`: pods without
    a node. `used`: pool -> resource -> amount that counts against its limits. `epsilon`: the
    smallest saving of a command, in billionths of a dollar an hour. `resting`: node -> (why it is
    left alone for now, until when).
    """

    at: int
    nodes: Sequence[Node]
    pods: Sequence[Pod]
    pools: Sequence[NodePoolPolicy]
    types: Mapping[str, Sequence[InstanceType]]
    overlays: Sequence[NodeOverlay] = ()
    objects: ClusterObjects = field(default_factory=ClusterObjects)
    in_flight: Sequence[InFlight] = ()
    quiet_since: Mapping[str, int] = field(default_factory=dict)
    nominated: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    disrupting: Mapping[str, DisruptionReason] = field(default_factory=dict)
    reserved: Sequence[Pod] = ()
    waiting: Sequence[WantedPods] = ()
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sold_out: frozenset[tuple[str, str, str]] = frozenset()
    options: SolveOptions = field(default_factory=SolveOptions)
    epsilon: int = 1_000_000
    resting: Mapping[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodMove:
    """A pod on a node that goes, and where it would go: a node, or `new:<i>` for the command's i-th
    replacement."""

    pod: str
    binding: str
    ordinal: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Command:
    """Nodes that can go together. `saving`: what they cost less what the replacements cost at
    worst, billionths of a dollar an hour. `disruption`: thousandths (`costs`). `arithmetic`: the
    price test in words, with its numbers."""

    method: Method
    nodes: tuple[str, ...]
    replacements: tuple[NewClaim, ...]
    moves: tuple[PodMove, ...]
    saving: int
    disruption: int
    arithmetic: str


@dataclass(frozen=True, slots=True)
class DisruptionVerdict:
    """Why a node stays, or that it goes. `rule`: one word to count by; `until`: when it may be
    otherwise (0: not known, or never by itself)."""

    node: str
    rule: str
    sentence: str
    until: int = 0


@dataclass(frozen=True, slots=True)
class ConsolidationResult:
    """What one pass found: commands that go together within the budgets, each found after those
    before it, and a verdict on every node."""

    commands: tuple[Command, ...]
    verdicts: tuple[DisruptionVerdict, ...]
