"""Why a cluster, a node or a request was refused. One typed reason a refusal; the sentence is for
people.

Lists are ordered as the engine checks: the first reason that holds is the one recorded.
"""

from __future__ import annotations

from typing import Literal, NewType

from wharfinger.domain.scheduler_plugins import NodeReason as NodeReason

FleetReason = NewType("FleetReason", str)
"""Why a cluster is not used for a binding: the `reason` of a filter in
`rules.clusters.filters.FILTERS`, or `NO_CAPACITY`."""

NO_CAPACITY = FleetReason("NoCapacity")
"""The cluster is feasible, and not one more replica fits."""

ReplicaReason = Literal["UnknownScheduler", "Gated", "GangIncomplete", "GangDoesNotFit", "Extender"]
"""Why replicas were refused without a look at single nodes, or although some had room: no profile
has the name they ask for, they are not to be placed yet, others of their group are missing or have
no room, or a service of the user said no."""

Displacement = Literal["Preempted", "NodeGone", "NoExecuteTaint", "NodeShrank"]
"""Why replicas lost the node that they had, although they are still wanted in the cluster."""

Trigger = Literal[
    "FirstSchedule", "ReconcileSchedule", "ScaleSchedule", "FailoverSchedule", "AvoidSchedule"
]
"""Why a fleet decision was taken, in the words of Karmada's community. AvoidSchedule is never
written: nothing to do."""

ProposalRefusal = Literal[
    "UnknownTarget",
    "NothingToDo",
    "TargetRecovered",
    "TolerationNotEnded",
    "FleetHeld",
    "NodeNotEmpty",
    "Unschedulable",
    "ReplicasDiffer",
    "ClusterInfeasible",
    "NoRoom",
    "SpreadConstraint",
    "NotBetter",
    "Changed",
    "BudgetSpent",
    "Protected",
    "Held",
]
"""`ReplicasDiffer` and the four that follow are for proposals that name their targets: what is
asked for now is another number of replicas, a target is not feasible, has no room, the targets
together break the spread, or are no better by the objective that was stated (which a disruption may
not be, either). The last four are of what would be disrupted: it is not what it was when that was
proposed, its pool allows no more at present, it may not be disrupted at all, or what is known of
the cluster is too old to go by."""

PlanRefusal = Literal[
    "InputChanged", "OutcomeDiffers", "NotPlannable", "RefusedElsewhere", "NoPromise"
]
"""What the plan would replace was replaced meanwhile; the same steps would lead elsewhere now; or
the stream cannot take such steps at all. Of a plan over several fleet shards: another shard has
refused its part, or has not promised it in time."""

PlanOutcome = Literal["promised", "committed", "refused"]
"""What a stream has decided about its part of a plan."""

ScheduleRefusal = Literal[
    "NoClusterFit",
    "Unschedulable",
    "SpreadConstraint",
    "InvalidPlacement",
    "QuotaExceeded",
    "NoCapacity",
]
"""Why the fleet stage found no (further) place for a binding. `NoCapacity` is never written: it is
in recorded events."""

ReplicasRefusal = NodeReason | ReplicaReason
"""Why a cluster stage returned replicas to the fleet: the reason that most nodes were refused for,
or one of the request."""

Refusal = (
    ScheduleRefusal | ReplicasRefusal | Displacement | ProposalRefusal | PlanRefusal | Literal[""]
)
"""Of any decision; empty: it refuses nothing. A `Displacement`: replicas are given back that had a
node."""
