"""One cluster as disruption looks at it: nodes, what is on them, pools and prices, and what is going on already.

Whoever has a book of a cluster makes one (`stages.pools`). It is read only; what would be without some nodes is an overlay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import DisruptionReason, NodeOverlay, NodePoolPolicy
from wharfinger.engine.provisioning.problem import InFlight, NewClaim, Options, Wanted
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
"""Method -> for which reason its nodes go, as budgets name it; methods are words in what is published of them."""

UNBUDGETED: frozenset[Method] = frozenset({"expiry", "static-scale-down"})
"""Methods that budgets do not bind: what has expired goes whatever they say, and of what is too many the owner said so. Their
nodes count as gone for the others all the same. [Karpenter]"""


@dataclass(frozen=True, slots=True)
class Scene:
    """`pods`: all that are on nodes, placed replicas among them (`binding` and `ordinal` say so). `quiet_since`: node
    -> when a pod last came to it or left it. `nominated`: nodes that somebody is promised. `disrupting`: node -> the
    reason it is being disrupted for. `reserved`: moves and room that are promised already, as pods on the nodes they
    will go to. `waiting`: pods without a place. `epsilon`: a command saves at least so much an hour (billionths of a
    dollar), or it is none. `resting`: node -> why it is left alone for now, and until when. `at`: microseconds."""

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
    waiting: Sequence[Wanted] = ()
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sold_out: frozenset[tuple[str, str, str]] = frozenset()
    options: Options = field(default_factory=Options)
    epsilon: int = 1_000_000
    resting: Mapping[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Move:
    """A pod on a node that goes, and where it would go: a node, or `new:<i>` for the command's i-th replacement."""

    pod: str
    binding: str
    ordinal: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Command:
    """Nodes that can go together. `saving`: what they cost less what the replacements cost at worst, billionths of a
    dollar an hour. `disruption`: thousandths (`costs`). `arithmetic`: the price test in words, with its numbers."""

    method: Method
    nodes: tuple[str, ...]
    replacements: tuple[NewClaim, ...]
    moves: tuple[Move, ...]
    saving: int
    disruption: int
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a node stays, or that it goes. `rule`: one word to count by; `until`: when it may be otherwise (0: not
    known, or never by itself)."""

    node: str
    rule: str
    sentence: str
    until: int = 0


@dataclass(frozen=True, slots=True)
class Survey:
    """What one pass found: commands that go together within the budgets, each found after those before it, and a verdict on
    every node."""

    commands: tuple[Command, ...]
    verdicts: tuple[Verdict, ...]
