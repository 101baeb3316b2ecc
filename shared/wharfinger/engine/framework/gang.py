"""Gang scheduling: a PodGroup is placed with at least `min_count` pods or not at all.

The scheduler does not try a group before `min_count` of its pods exist (`GATHERING`, `WAIT_S`). It
places a group only if the group becomes complete together with its pods that run already
(`feasible`).

Pods of one group may belong to several workloads; a group is identified by namespace and name. The
terms are kube-scheduler's (1.35 and later).
"""

from __future__ import annotations

from wharfinger.domain.node import Pod
from wharfinger.engine.framework.status import Status, unschedulable

WAIT_S = 300
"""How long a pod waits for the other pods of its group, in seconds (kube-scheduler's default)."""

GATHERING = "waiting for minCount pods from a gang to appear in scheduling queue"

Group = tuple[str, str]
"""Namespace and name."""


def group_of(pod: Pod) -> Group | None:
    """Return the gang that the pod belongs to. None: the pod is scheduled alone."""
    traits = pod.requirements.traits
    return (traits.home, traits.group) if traits.group and traits.min_count > 0 else None


def feasible(min_count: int, scheduled: int, remaining: int) -> Status | None:
    """Check whether a gang can get `min_count` pods. `scheduled`: its pods that have a node.
    `remaining`: its pods that have none yet. None: the scheduled pods are enough. Status Wait: the
    remaining pods can complete the gang. Status Unschedulable: they cannot."""
    if scheduled >= min_count:
        return None
    if scheduled + remaining < min_count:
        return unschedulable(never_whole(min_count, scheduled, remaining))
    numbers = f"{scheduled} scheduled, {remaining} remaining"
    return Status("Wait", (f"minCount ({min_count}) is not yet satisfied: {numbers}",))


def never_whole(min_count: int, scheduled: int, remaining: int) -> str:
    """Return the reason for a gang that its remaining pods cannot complete."""
    return (
        f"minCount ({min_count}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"
    )
