"""Topic `wharfinger.decisions`: the external contract, one CloudEvent a decision. No internal
service reads it.

One module a kind of decision. Its class is the data of one decision as the ledger stores and hashes
it; its event id is the decision's id. Fleet streams write the Schedule*, Binding*, Cluster*,
Failover* and Placement* decisions, cluster streams the Replicas*, Node* and Disruption* ones, both
ProposalRefused and the Plan* ones. `explanation` is the recorded explanation: hashed, published, at
most 2 KiB.
"""

from __future__ import annotations

from typing import cast

from wharfinger.domain.value import Value
from wharfinger.events.decisions.binding_released import BindingReleased
from wharfinger.events.decisions.clock_rebased import ClockRebased
from wharfinger.events.decisions.cluster_recovered import ClusterRecovered
from wharfinger.events.decisions.cluster_silenced import ClusterSilenced
from wharfinger.events.decisions.disruption_decided import DisruptionDecided
from wharfinger.events.decisions.disruption_ended import DisruptionEnded
from wharfinger.events.decisions.effects import (
    BindingEnd,
    ClaimOutcome,
    DecidedGroup,
    DisruptionCommand,
    DisruptionOutcome,
    DisruptionResult,
    Effect,
    HeartbeatEnd,
    NodeClaim,
    NodeClaimResult,
    NodeRemoval,
    PlanEnd,
    PlannedOutcome,
    PricedNode,
    ProposalEnd,
    Rebased,
    ReplicaChange,
    ReplicaMove,
    SelectionCondition,
    SelectionEnd,
    SelectionPart,
    SelectionTrigger,
    TimeCorrection,
)
from wharfinger.events.decisions.explanation import (
    Explanation,
    FailoverSets,
    ScoredCandidate,
    explanation_of,
)
from wharfinger.events.decisions.extender_asked import ExtenderAsked
from wharfinger.events.decisions.failover_held import FailoverHeld
from wharfinger.events.decisions.failover_resumed import FailoverResumed
from wharfinger.events.decisions.kind import (
    About,
    ComparedKind,
    DecisionKind,
    Writer,
    no_effect,
    no_outcome_item,
)
from wharfinger.events.decisions.ledger_went_back import LedgerWentBack
from wharfinger.events.decisions.node_barred import NodeBarred
from wharfinger.events.decisions.node_claim_ended import NodeClaimEnded
from wharfinger.events.decisions.node_claim_requested import NodeClaimRequested
from wharfinger.events.decisions.node_removal_decided import NodeRemovalDecided
from wharfinger.events.decisions.placement_decided import (
    MISCONFIGURED,
    PART_SIZE,
    SATISFIED,
    PlacementDecided,
    joined,
)
from wharfinger.events.decisions.placement_held import PlacementHeld
from wharfinger.events.decisions.placement_released import PlacementReleased
from wharfinger.events.decisions.plan_committed import PlanCommitted
from wharfinger.events.decisions.plan_promised import PlanPromised
from wharfinger.events.decisions.plan_refused import PlanRefused
from wharfinger.events.decisions.pod_removal_decided import PodRemovalDecided
from wharfinger.events.decisions.pods_unplaced import PodsUnplaced
from wharfinger.events.decisions.preemption_decided import PreemptedPod, PreemptionDecided
from wharfinger.events.decisions.preemption_ended import PreemptionEnded
from wharfinger.events.decisions.proposal_refused import ProposalRefused
from wharfinger.events.decisions.replicas_adopted import ReplicasAdopted, WhyAdopted
from wharfinger.events.decisions.replicas_nominated import ReplicasNominated
from wharfinger.events.decisions.replicas_placed import ReplicasPlaced
from wharfinger.events.decisions.replicas_refused import DisplacedReplicas, ReplicasRefused
from wharfinger.events.decisions.replicas_released import ReplicasReleased
from wharfinger.events.decisions.schedule_decided import Leaving, ScheduleDecided
from wharfinger.events.decisions.schedule_refused import ScheduleRefused
from wharfinger.events.node_share import NodeShare

__all__ = [
    "COMPARED",
    "KINDS",
    "MISCONFIGURED",
    "ON_NODES",
    "PART_SIZE",
    "RETURNING",
    "SATISFIED",
    "SETTLING",
    "WITH_EFFECT",
    "BindingEnd",
    "BindingReleased",
    "ClaimOutcome",
    "ClockRebased",
    "ClusterRecovered",
    "ClusterSilenced",
    "ComparedKind",
    "DecidedGroup",
    "DecisionKind",
    "DisplacedReplicas",
    "DisruptionCommand",
    "DisruptionDecided",
    "DisruptionEnded",
    "DisruptionOutcome",
    "DisruptionResult",
    "Effect",
    "Explanation",
    "ExtenderAsked",
    "FailoverHeld",
    "FailoverResumed",
    "FailoverSets",
    "HeartbeatEnd",
    "Leaving",
    "LedgerWentBack",
    "NodeBarred",
    "NodeClaim",
    "NodeClaimEnded",
    "NodeClaimRequested",
    "NodeClaimResult",
    "NodeRemoval",
    "NodeRemovalDecided",
    "NodeShare",
    "NodesAnswer",
    "NodesDecision",
    "PlacementDecided",
    "PlacementHeld",
    "PlacementReleased",
    "PlanAnswer",
    "PlanCommitted",
    "PlanDecision",
    "PlanEnd",
    "PlanPromised",
    "PlanRefused",
    "PlannedOutcome",
    "PodRemovalDecided",
    "PodsUnplaced",
    "PreemptedPod",
    "PreemptionDecided",
    "PreemptionEnded",
    "PricedNode",
    "ProposalEnd",
    "ProposalRefused",
    "Rebased",
    "ReplicaChange",
    "ReplicaMove",
    "ReplicasAdopted",
    "ReplicasNominated",
    "ReplicasPlaced",
    "ReplicasRefused",
    "ReplicasReleased",
    "ScheduleAnswer",
    "ScheduleDecided",
    "ScheduleRefused",
    "ScoredCandidate",
    "SelectionCondition",
    "SelectionEnd",
    "SelectionPart",
    "SelectionTrigger",
    "TimeCorrection",
    "WhyAdopted",
    "Writer",
    "as_decision",
    "decided_by",
    "effect_of",
    "explanation_of",
    "joined",
    "kinds_about",
]

KINDS: tuple[type[DecisionKind], ...] = (
    # fleet streams, about bindings
    ScheduleDecided,  # the answer to a request, and every later change of its clusters
    ScheduleRefused,  # the other answer: each request gets exactly one
    # a withdrawn binding ends with a decision, so that clusters release its replicas
    BindingReleased,
    # fleet streams, about clusters
    # a missing heartbeat is recorded, since failover depends on it and a replay has no clock
    ClusterSilenced,
    ClusterRecovered,  # and its end, which stops failover from that cluster
    FailoverHeld,  # the fault is more likely ours: the record says why nothing moves
    FailoverResumed,
    # any stream, as the answer to a proposal
    ProposalRefused,  # a proposal that is accepted is answered by the decision it leads to
    # cluster streams, about replicas
    ReplicasPlaced,
    ReplicasRefused,  # returns replicas to the fleet stage
    ReplicasReleased,  # also part of every move between nodes
    ReplicasAdopted,  # what runs already is counted and explained, and not placed again
    PodsUnplaced,  # a pod shows why it waits, and an explanation has something to begin at
    NodeBarred,  # an answer of the API server has an effect with an end, which a replay reproduces
    ReplicasNominated,  # keeps a node while room is made on it
    PreemptionDecided,  # room for a waiting pod: which pods go, with an end
    PreemptionEnded,  # they did not go: the pod waits, and it is known why
    # a call to an extender is a decision, its answer an input: so a replay needs no extender
    ExtenderAsked,
    # cluster streams, about nodes
    NodeRemovalDecided,  # the last step before a node is taken away: it is empty
    NodeClaimRequested,
    NodeClaimEnded,
    DisruptionDecided,  # a consolidation command, decided as a whole
    DisruptionEnded,
    PodRemovalDecided,  # an intent: the objects are deleted by uid, and not by a stage
    # any stream, as the answer to a plan request
    PlanCommitted,
    PlanRefused,
    PlanPromised,  # so that of several shards all carry it out, or none
    # the stream fleet/0, about placements of Open Cluster Management
    PlacementDecided,
    PlacementHeld,  # an intended change waits for its stabilisation window
    PlacementReleased,
    # the stream `ledger`
    LedgerWentBack,  # also an input of every other stream: decision ids depend on it
    ClockRebased,  # also an input of the streams it names: their times depend on it
)
"""Every kind of decision. The registry of event types lists the kinds in this order, the docs
too."""

COMPARED: tuple[type[ComparedKind], ...] = (
    ScheduleDecided,
    ScheduleRefused,
    BindingReleased,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ReplicasAdopted,
)
"""By which two runs are compared: those that say where the replicas of a binding are."""

ScheduleAnswer = ScheduleDecided | ScheduleRefused
"""The two answers of a fleet stream to a request for a binding: both hold the resulting targets."""

NodesAnswer = ReplicasPlaced | ReplicasRefused
"""The two answers of a cluster stream to an assignment."""

NodesDecision = NodesAnswer | PodsUnplaced
"""What a cluster stream decides about nodes for a binding: its trace shows every node."""

PlanAnswer = PlanCommitted | PlanRefused
"""The two answers of a stream to a plan. A promise is none yet."""

PlanDecision = PlanCommitted | PlanRefused | PlanPromised
"""What a stream decides about its part of a plan."""

SETTLING: tuple[type[ComparedKind], ...] = (ScheduleDecided, ScheduleRefused, BindingReleased)
"""After which it is known where a binding is: the newest of them says so."""

RETURNING: tuple[type[DecisionKind], ...] = tuple(
    kind for kind in KINDS if kind.outcome_item is not no_outcome_item
)
"""Of which the fleet shard of the binding is sent something back."""

ON_NODES: tuple[type[ComparedKind], ...] = tuple(
    kind for kind in COMPARED if "cluster" in kind.WRITERS
)
"""Those that say what a binding has on nodes."""

WITH_EFFECT: tuple[type[DecisionKind], ...] = tuple(
    kind for kind in KINDS if kind.effect is not no_effect
)
"""From which something follows for readers."""

_KINDS: frozenset[type] = frozenset(KINDS)


def as_decision(data: Value) -> DecisionKind:
    """The data of an event as the decision it is. TypeError: it is no decision."""
    if type(data) in _KINDS or isinstance(data, KINDS):
        return cast(DecisionKind, data)
    raise TypeError(f"{type(data).__name__} is no kind of decision")


def decided_by(writer: Writer) -> tuple[type[DecisionKind], ...]:
    """The kinds that streams of this writer decide, in the order of `KINDS`."""
    return tuple(kind for kind in KINDS if writer in kind.WRITERS)


def kinds_about(*about: About) -> tuple[type[DecisionKind], ...]:
    """The kinds that are about one of these, in the order of `KINDS`."""
    return tuple(kind for kind in KINDS if kind.ABOUT in about)


def effect_of(data: Value) -> Effect | None:
    """What follows from a decision with this data. TypeError: it is no decision."""
    return as_decision(data).effect()
