"""The plugins of the scheduling framework, in one list: under which names users configure them, and where each
stands.

The order is that of kube-scheduler's default profile, and it shows: a node is counted under the first plugin that
refuses it. What a plugin does is a class of its name in `engine.framework.plugins`; a plugin more is that file and a
line here. Plugins of other distributions come by entry points (`manifests.installed_plugins`)."""

from __future__ import annotations

from wharfinger.domain.scheduler import Point
from wharfinger.domain.value import Value


class KnownPlugin(Value, frozen=True):
    """`points`: where it has work. `elsewhere`: where it has work in a kube-scheduler and none here, since what it
    does there (the binding of volumes, the writing of claims) is the API server's world: naming it there is right and
    changes nothing. `weight`: of its score in the default profile. `by_default`: stands in the default profile."""

    name: str
    points: tuple[Point, ...]
    weight: int = 0
    elsewhere: tuple[Point, ...] = ()
    by_default: bool = True


BUILT_IN: tuple[KnownPlugin, ...] = (
    # Whether and when a pod is tried at all.
    KnownPlugin("SchedulingGates", ("preEnqueue",)),
    KnownPlugin("PrioritySort", ("queueSort",)),
    # What one look at the node tells, for any pod: it comes before all that counts.
    KnownPlugin("NodeUnschedulable", ("filter",)),
    KnownPlugin("NodeName", ("filter",)),
    # What people mean by it weighs most: a preferred taint three times, a preferred node twice what resources do.
    KnownPlugin("TaintToleration", ("filter", "preScore", "score"), weight=3),
    KnownPlugin("NodeAffinity", ("preFilter", "filter", "preScore", "score"), weight=2),
    KnownPlugin("NodePorts", ("preFilter", "filter")),
    KnownPlugin("NodeResourcesFit", ("preFilter", "filter", "preScore", "score"), weight=1),
    # After the amounts: which of a node's devices is only a question where there are enough of them. Ours.
    KnownPlugin("Devices", ("preFilter", "filter", "preScore", "score"), weight=1),
    # After what is requested comes what is measured; a load policy without the plugin would mean nothing. crane's, and its weight.
    KnownPlugin("Dynamic", ("preFilter", "filter", "preScore", "score"), weight=3),
    # What volumes allow: looked up per claim, and most pods have none.
    KnownPlugin("VolumeRestrictions", ("preFilter", "filter")),
    KnownPlugin("NodeVolumeLimits", ("preFilter", "filter")),
    KnownPlugin(
        "VolumeBinding", ("preFilter", "filter", "preScore", "score"), weight=1, elsewhere=("reserve", "preBind")
    ),
    KnownPlugin("VolumeZone", ("preFilter", "filter")),
    # What all pods of a cluster decide together comes late: it costs most.
    KnownPlugin("PodTopologySpread", ("preFilter", "filter", "preScore", "score"), weight=2),
    KnownPlugin("InterPodAffinity", ("preFilter", "filter", "preScore", "score"), weight=2),
    KnownPlugin("DynamicResources", ("preFilter", "filter"), elsewhere=("preEnqueue", "postFilter", "reserve", "preBind")),
    # Where all have refused.
    KnownPlugin("DefaultPreemption", ("postFilter",), elsewhere=("preEnqueue",)),
    # Scores that are about resources again: they part what the ones above leave equal.
    KnownPlugin("NodeResourcesBalancedAllocation", ("preScore", "score"), weight=1),
    KnownPlugin("ImageLocality", ("score",), weight=1),
    # Waits until the whole group may go; the last that permits, since its wait holds the others' reservations. That a group gathers
    # before any of it is tried is done by the queue, which knows who is there; what was reserved is given back by whoever waits.
    KnownPlugin("GangScheduling", ("permit",), elsewhere=("preEnqueue", "reserve")),
    KnownPlugin("DefaultBinder", ("bind",)),
)  # fmt: skip

BY_NAME = {plugin.name: plugin for plugin in BUILT_IN}
