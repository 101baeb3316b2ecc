"""Why Karmada schedules a binding: its causes in its order, and which bindings it looks at.

What is compared with: a plane looks at whatever is applied, and the fleet stage decides about what
differs from its last decision (`stages.fleet.queue.trigger_of`).

A steady binding is left alone, however much the fleet around it changes. Duplicated bindings and
objects without replicas are always looked at: they go wherever they may."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from wharfinger.domain.binding import Binding
from wharfinger.domain.placement import Placement
from wharfinger.engine.fleet.trigger import ours, placement_changed

CLAIMS = (
    "propagationpolicy.karmada.io/permanent-id",
    "clusterpropagationpolicy.karmada.io/permanent-id",
    "binding.karmada.io/managed-by",
)
"""Labels of a Karmada binding that say who made it. One that nobody made is none of a scheduler's
business."""

Cause = Literal[
    "deleting",
    "placementChanged",
    "replicasChanged",
    "rescheduleRequested",
    "duplicatedOrNonWorkload",
    "targetClusterTerminating",
    "none",
]
"""Why a binding is scheduled, the first that holds; `deleting` and `none`: it is not."""


def claimed(binding: Binding) -> bool:
    """Whether somebody made it."""
    return any(binding.labels.get(label) for label in CLAIMS)


def taken_up(binding: Binding) -> bool:
    """Whether a binding as Karmada's control plane keeps it is to be looked at: ours, not
    suspended, and made by somebody."""
    return claimed(binding) and ours(binding.scheduler) and not binding.suspended


def cause_of(
    applied: Placement | None,
    placement: Placement,
    observed: str,
    held: Mapping[str, int],
    replicas: int,
    *,
    counted: bool,
    strategy: bool = True,
    rescheduled: bool = False,
    leaving: Collection[str] = (),
) -> Cause:
    """`applied`: the placement of the last success (None: never). `strategy` False: the placement
    names none, which is Duplicated whose counts nobody compares. `rescheduled`: a fresh decision
    was asked for and not given. `leaving`: clusters being deleted."""
    if applied is None or placement_changed(applied, placement, observed):
        return "placementChanged"
    duplicated = placement.replicas.type == "Duplicated"
    if strategy and replicas_changed(held, replicas, duplicated=duplicated):
        return "replicasChanged"
    if rescheduled:
        return "rescheduleRequested"
    if duplicated or not counted:
        return "duplicatedOrNonWorkload"
    if any(name in leaving for name in held):
        return "targetClusterTerminating"
    return "none"


def replicas_changed(held: Mapping[str, int], replicas: int, *, duplicated: bool) -> bool:
    """Divided: what is held does not sum to what is wanted. Duplicated: some cluster does not hold
    all of it."""
    if duplicated:
        return any(n != replicas for n in held.values())
    return sum(held.values()) != replicas
