"""Why a cluster, a node or a request was refused. One typed reason a refusal; the sentence is for people.

The list is ordered as the engine checks: the first reason that holds is the one recorded.
"""

from __future__ import annotations

from typing import Literal

FleetReason = Literal[
    "ClusterDeleting",
    "ClusterSilent",
    "ClusterAffinity",
    "TaintToleration",
    "APIEnablement",
    "SpreadConstraint",
    "WorkloadAffinity",
    "WorkloadAntiAffinity",
    "Evicted",
    "NoCapacity",
]

NodeReason = Literal[
    "Unschedulable",
    "NodeAffinity",
    "TaintToleration",
    "InsufficientResources",
    "InsufficientDevices",
    "LoadTooHigh",
    "NodeName",
    "NodePorts",
    "Volumes",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "Plugin",
]
"""What speaks against one node. `Plugin`: a plugin that a user added."""

ReplicaReason = Literal["UnknownScheduler", "Gated", "GangIncomplete", "GangDoesNotFit", "Extender"]
"""Why replicas were refused without a look at single nodes, or although some had room: no profile has the name they ask
for, they are not to be placed yet, others of their group are missing or have no room, or a service of the user said no."""

Trigger = Literal[
    "FirstSchedule",
    "ReconcileSchedule",
    "ScaleSchedule",
    "FailoverSchedule",
    "AvoidSchedule",
]
"""Why a fleet decision was taken, in the words of Karmada's community. AvoidSchedule is never written: nothing to do."""

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
"""`ReplicasDiffer` and the four that follow are for proposals that name their targets: what is asked for now is
another number of replicas, a target is not feasible, has no room, the targets together break the spread, or are no
better by the objective that was stated (which a disruption may not be, either). The last four are of what would be
disrupted: it is not what it was when that was proposed, its pool allows no more at present, it may not be disrupted
at all, or what is known of the cluster is too old to go by."""

PlanRefusal = Literal["InputChanged", "OutcomeDiffers", "NotPlannable"]
"""What the plan would replace was replaced meanwhile; the same steps would lead elsewhere now; or the stream cannot take such
steps at all."""
