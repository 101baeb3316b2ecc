"""The plugins of the scheduling framework, in one list: under which names users configure them, and
where each stands.

The order is that of kube-scheduler's default profile, and it shows: a node is counted under the
first plugin that refuses it. What a plugin does is a class of its name, in `wharfinger.rules.nodes`
where it filters or scores nodes, else in `engine.framework.plugins`; a plugin more is that file and
a line here. Plugins of other distributions come by entry points (`manifests.installed_plugins`)."""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.scheduler import Point
from wharfinger.domain.value import Value

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
"""What a refused node is counted under. Of several that refuse equally many nodes the first is
named. `Plugin`: a plugin that a user added."""


class KnownPlugin(Value, frozen=True):
    """`points`: where it has work. `weight`: of its score in the default profile; `weight_v1beta2`:
    in profiles of a configuration of that version, None: the same. `elsewhere`: where it has work
    in a kube-scheduler and none here, since what it does there (the binding of volumes, the writing
    of claims) is the API server's world: naming it there is right and changes nothing.
    `by_default`: stands in the default profile.

    Of the older Policy files: `predicates`, `priorities` that became this plugin; `always`: no
    Policy can leave it out; `ours`: not kube-scheduler's, so that no Policy can name it."""

    name: str
    points: tuple[Point, ...]
    weight: int = 0
    weight_v1beta2: int | None = None
    elsewhere: tuple[Point, ...] = ()
    by_default: bool = True
    predicates: tuple[str, ...] = ()
    priorities: tuple[str, ...] = ()
    always: bool = False
    ours: bool = False

    @property
    def chooses_nodes(self) -> bool:
        """Whether it filters or scores nodes."""
        return "filter" in self.points or "score" in self.points


BUILT_IN: tuple[KnownPlugin, ...] = (
    # Whether and when a pod is tried at all.
    KnownPlugin("SchedulingGates", ("preEnqueue",)),
    KnownPlugin("PrioritySort", ("queueSort",)),
    # Checks of the node alone, without counting: they are cheap and run first. A node's conditions
    # have been taints since 1.12.
    KnownPlugin(
        "NodeUnschedulable",
        ("filter",),
        predicates=("CheckNodeUnschedulable", "CheckNodeCondition"),
        always=True,
    ),
    KnownPlugin("NodeName", ("filter",), predicates=("GeneralPredicates", "HostName")),
    # What people mean by it weighs most: a preferred taint three times, a preferred node twice what
    # resources do. Up to v1beta2 it weighed no more than they.
    KnownPlugin(
        "TaintToleration",
        ("filter", "preScore", "score"),
        weight=3,
        weight_v1beta2=1,
        always=True,
        predicates=(
            "PodToleratesNodeTaints",
            "CheckNodeCondition",
            "CheckNodeMemoryPressure",
            "CheckNodeDiskPressure",
            "CheckNodePIDPressure",
        ),
        priorities=("TaintTolerationPriority",),
    ),
    KnownPlugin(
        "NodeAffinity",
        ("preFilter", "filter", "preScore", "score"),
        weight=2,
        weight_v1beta2=1,
        predicates=("GeneralPredicates", "MatchNodeSelector"),
        priorities=("NodeAffinityPriority",),
    ),
    KnownPlugin(
        "NodePorts",
        ("preFilter", "filter"),
        predicates=("GeneralPredicates", "PodFitsHostPorts", "PodFitsPorts"),
    ),
    KnownPlugin(
        "NodeResourcesFit",
        ("preFilter", "filter", "preScore", "score"),
        weight=1,
        predicates=("GeneralPredicates", "PodFitsResources"),
        priorities=(
            "LeastRequestedPriority",
            "MostRequestedPriority",
            "RequestedToCapacityRatioPriority",
        ),
    ),
    # After the amounts: which of a node's devices is only a question where there are enough of
    # them.
    KnownPlugin("Devices", ("preFilter", "filter", "preScore", "score"), weight=1, ours=True),
    # After what is requested comes what is measured; a load policy without the plugin would mean
    # nothing. crane's, and its weight.
    KnownPlugin("Dynamic", ("preFilter", "filter", "preScore", "score"), weight=3, ours=True),
    # What volumes allow: looked up per claim, and most pods have none.
    KnownPlugin("VolumeRestrictions", ("preFilter", "filter"), predicates=("NoDiskConflict",)),
    # In-tree volumes are counted as those of the drivers that took them over.
    KnownPlugin(
        "NodeVolumeLimits",
        ("preFilter", "filter"),
        predicates=(
            "MaxCSIVolumeCountPred",
            "MaxEBSVolumeCount",
            "MaxGCEPDVolumeCount",
            "MaxAzureDiskVolumeCount",
            "MaxCinderVolumeCount",
        ),
    ),
    KnownPlugin(
        "VolumeBinding",
        ("preFilter", "filter", "preScore", "score"),
        weight=1,
        elsewhere=("reserve", "preBind"),
        predicates=("CheckVolumeBinding",),
    ),
    KnownPlugin("VolumeZone", ("preFilter", "filter"), predicates=("NoVolumeZoneConflict",)),
    # What all pods of a cluster decide together comes late: it costs most. Replicas of one service
    # apart is what the spread of pods without constraints of their own does today.
    KnownPlugin(
        "PodTopologySpread",
        ("preFilter", "filter", "preScore", "score"),
        weight=2,
        predicates=("EvenPodsSpread", "EvenPodsSpreadPred"),
        priorities=("SelectorSpreadPriority", "ServiceSpreadingPriority", "EvenPodsSpreadPriority"),
    ),
    KnownPlugin(
        "InterPodAffinity",
        ("preFilter", "filter", "preScore", "score"),
        weight=2,
        weight_v1beta2=1,
        predicates=("MatchInterPodAffinity",),
        priorities=("InterPodAffinityPriority",),
    ),
    KnownPlugin(
        "DynamicResources",
        ("preFilter", "filter"),
        elsewhere=("preEnqueue", "postFilter", "reserve", "preBind"),
    ),
    # Where all have refused.
    KnownPlugin("DefaultPreemption", ("postFilter",), elsewhere=("preEnqueue",)),
    # Scores that are about resources again: they part what the ones above leave equal.
    KnownPlugin(
        "NodeResourcesBalancedAllocation",
        ("preScore", "score"),
        weight=1,
        priorities=("BalancedResourceAllocation",),
    ),
    KnownPlugin("ImageLocality", ("score",), weight=1, priorities=("ImageLocalityPriority",)),
    # Waits until the whole group is permitted. It is the last permit plugin, because reservations
    # are held while it waits. The queue gathers the group before it tries any member, because it
    # knows which members exist. A member that waits in vain releases its reservations.
    KnownPlugin("GangScheduling", ("permit",), elsewhere=("preEnqueue", "reserve")),
    KnownPlugin("DefaultBinder", ("bind",)),
)

BY_NAME = {plugin.name: plugin for plugin in BUILT_IN}
