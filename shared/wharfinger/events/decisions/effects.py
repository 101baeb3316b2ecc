"""What follows from a decision for its readers, as values that name no kind of decision.

Code that sums decisions up or acts on them (savings, run metrics, a node provider, tables) reads
the effect. So a kind that is added later and also releases replicas needs no change in that code.
Where the data of a kind is its effect, field by field, the kind inherits it from here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from wharfinger.domain.ids import ClassKey, EventId, Meaning, Remark, StreamName, Word
from wharfinger.domain.node_pool import PoolRequirement
from wharfinger.domain.reasons import PlanRefusal, ProposalRefusal
from wharfinger.domain.taints import Taint
from wharfinger.domain.time import Micros
from wharfinger.domain.value import Name, Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.decisions.explanation import Explanation
from wharfinger.events.node_share import NodeShare
from wharfinger.events.proposals import DisruptionMethod


class BindingEnd(Value, frozen=True):
    """The binding is gone, and holds nothing in any cluster."""

    binding: str


class HeartbeatEnd(Value, frozen=True):
    """The heartbeat of the cluster is missing. `since_us`: its last one, in microseconds of the
    epoch."""

    cluster: str
    since_us: Micros


class ReplicaChange(Value, frozen=True):
    """Replicas of a binding come to nodes of a cluster (`placed`, each asks for `requirements`),
    leave nodes (`released`, why: `reason`, empty where the binding gets fewer), or find none
    (`returned` to the fleet). `assignment`: id of the fleet decision that they are for."""

    cluster: str
    binding: str
    assignment: str
    placed: tuple[NodeShare, ...] = ()
    requirements: Requirements = Requirements()
    released: tuple[NodeShare, ...] = ()
    reason: str = ""
    returned: int = 0


class NodeRemoval(Value, frozen=True):
    """The node may be taken away: it holds no replica."""

    cluster: str
    node: str


class NodeClaim(Value, frozen=True):
    """A request for a node of `pool`, of any of `instance_types` (the cheapest first, at most 600)
    that meets `requirements` and costs less than `ceiling` (billionths of a dollar an hour; 0: no
    limit). `price`: of the cheapest offering. `requests`: of the daemons and of the pods intended
    for the node; `replicas`: binding -> how many of its replicas are among those pods; `others`:
    key of their requirements -> how many waiting pods of other schedulers are. `command`: the
    disruption whose nodes this one replaces. The claim expires at `until_us`."""

    cluster: str
    claim: Name
    pool: str
    requirements: tuple[PoolRequirement, ...]
    instance_types: tuple[str, ...]
    requests: dict[str, int]
    replicas: dict[str, int]
    price: int
    until_us: int
    ceiling: int = 0
    command: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    node_class: str = ""
    expire_after_s: int | None = None
    termination_grace_s: int | None = None
    explanation: Explanation = Explanation()
    others: dict[ClassKey, int] = {}


ClaimOutcome = Literal["registered", "timed-out", "failed", "cancelled"]


class NodeClaimResult(Value, frozen=True):
    """`node` and what it is, where one came. `price`: of that very offering; 0: not known."""

    cluster: str
    claim: Name
    pool: str
    outcome: ClaimOutcome
    node: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: int = 0
    reason: str = ""


class PricedNode(Value, frozen=True):
    """`price`: billionths of a dollar an hour of its very offering; 0: not known. `disruption`:
    thousandths."""

    name: Name
    pool: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: int = 0
    disruption: int = 0


class ReplicaMove(Value, frozen=True, array_like=True):
    """`target`: a node, or a claim that is to become one. `pod`: the uid of a pod that this
    scheduler does not manage. Such a pod is not moved here: capacity is only reserved for it."""

    binding: str
    ordinal: int
    source: str
    target: str
    pod: str = ""


class DisruptionCommand(Value, frozen=True):
    """`command`: its name. `claims`: the replacements. `moves`: where every replica goes, as found
    when it was decided; when its turn comes another place will do as well. `saving`: what the nodes
    cost less what the replacements do at most. `proposal`: what this answers. It is given up at
    `until_us`."""

    cluster: str
    command: Name
    method: DisruptionMethod
    nodes: tuple[PricedNode, ...]
    until_us: Micros
    claims: tuple[str, ...] = ()
    moves: tuple[ReplicaMove, ...] = ()
    saving: int = 0
    disruption: int = 0
    reason: str = ""
    proposal: str = ""
    explanation: Explanation = Explanation()


DisruptionOutcome = Literal["done", "rolled-back"]


class DisruptionResult(Value, frozen=True):
    """`nodes`: those of the command; `removed`: those whose removal was decided. `predicted` and
    `realised`: the saving as it was decided, and by what the replacements that came do cost
    (billionths of a dollar an hour). `moved`: replicas that changed their node."""

    cluster: str
    command: Name
    method: DisruptionMethod
    outcome: DisruptionOutcome
    nodes: tuple[str, ...]
    removed: tuple[str, ...] = ()
    predicted: int = 0
    realised: int = 0
    moved: int = 0
    reason: str = ""


SelectionTrigger = Literal[
    "FirstSelection",
    "PlacementChanged",
    "ClustersChanged",
    "SetsChanged",
    "ScoresChanged",
    "TimePassed",
]
"""Why a placement was looked at: it is new, was changed, its clusters were, the sets it may use,
their scores; or a toleration, a score or a window ended."""


class DecidedGroup(Value, frozen=True):
    """A decision group, or the piece of it that is in this part. `scores`: its clusters with their
    totals; in order of name, as groups are."""

    index: int
    name: str = ""
    scores: dict[Name, int] = {}


class SelectionCondition(Value, frozen=True):
    """A condition of the placement's status, in the words of Open Cluster Management."""

    type: str
    status: str
    reason: str
    message: str = ""


class SelectionPart(Value, frozen=True):
    """The placement selects exactly the clusters of `groups`, over all parts of the generation.

    `generation` rises with every change of clusters or groups; a decision of the same generation as
    the one before only changes conditions. `unscheduled`: how many clusters are missing from the
    number asked for. `added`, `removed`: against the set before, each named in one part.
    """

    placement: Name
    trigger: SelectionTrigger
    generation: int
    groups: tuple[DecidedGroup, ...] = ()
    part: int = 1
    parts: int = 1
    complete: bool = True
    unscheduled: int = 0
    added: tuple[Name, ...] = ()
    removed: tuple[Name, ...] = ()
    conditions: tuple[SelectionCondition, ...] = ()
    explanation: Explanation = Explanation()


class SelectionEnd(Value, frozen=True):
    """The placement selects nothing any more."""

    placement: str


class PlannedOutcome(Value, frozen=True):
    """What a stream decides about a subject, and where that leaves it.

    `outcome`: the decision's own word (`scheduled`, `placed`, `refused`, ...). `places`: of a
    binding, cluster -> replicas in a fleet stream, node -> replicas in a cluster stream. `reason`:
    of a refusal.
    """

    subject: Name
    outcome: Word
    places: dict[str, int] = {}
    reason: Word = ""


class PlanEnd(Value, frozen=True):
    """The plan is out of date and nothing of it happened. `subject`: of the first difference, or
    the shard that refused or did not promise; `expected` and `found`: what was to come of it and
    what would, None: nothing. `changed`: which inputs are not what the plan was made from, the
    nearest first. `tell`: the other shards of the plan that have to know."""

    plan: str
    reason: PlanRefusal
    subject: str = ""
    expected: PlannedOutcome | None = None
    found: PlannedOutcome | None = None
    changed: tuple[str, ...] = ()
    tell: tuple[StreamName, ...] = ()


class ProposalEnd(Value, frozen=True):
    """`proposal`: the event id of what was proposed."""

    proposal: EventId
    kind: Word
    target: Annotated[str, Meaning.SUBJECT]
    reason: ProposalRefusal
    detail: Remark = ""


class Rebased(Value, frozen=True):
    """Of one stream: the number of its round that begins the right time, the time of the round
    before, and the first time that it noted under the wrong clock. Every moment in its state that
    is not earlier than `since_us` is moved."""

    round: int
    from_us: Micros
    since_us: Micros


class TimeCorrection(Value, frozen=True):
    """The time of some streams was ahead, because a clock was wrong, and was set right at `to_us`.

    A decision of the stream `ledger`, and the only input of the round that it names of each other
    stream but the intake. That round decides nothing. It is the only round that may be earlier than
    the one before it. `by_us`: what is added to a moment, negative.
    """

    to_us: Micros
    by_us: int
    streams: dict[StreamName, Rebased]
    reason: Remark = ""


Effect = (
    BindingEnd
    | HeartbeatEnd
    | ReplicaChange
    | NodeRemoval
    | NodeClaim
    | NodeClaimResult
    | DisruptionCommand
    | DisruptionResult
    | SelectionPart
    | SelectionEnd
    | ProposalEnd
    | PlanEnd
    | TimeCorrection
)
"""Closed: a `match` over it ends with `assert_never`, so that a new effect is a type error where
it is not considered."""
