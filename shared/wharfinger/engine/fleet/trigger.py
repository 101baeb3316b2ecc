"""Whether a binding is to be scheduled at all: the rules by which Karmada finds that something has changed.

A steady binding is left alone, however much the fleet around it changes. Duplicated bindings and objects without replicas are
always looked at: they go wherever they may.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.placement import ClusterAffinity, Placement

ANY_CLUSTER = ClusterAffinity()

SCHEDULER = "default-scheduler"
"""The name under which bindings are ours; no name is the same."""

CLAIMS = (
    "propagationpolicy.karmada.io/permanent-id",
    "clusterpropagationpolicy.karmada.io/permanent-id",
    "binding.karmada.io/managed-by",
)
"""Labels of a Karmada binding that say who made it. One that nobody made is none of a scheduler's business."""

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


def ours(scheduler: str) -> bool:
    return scheduler in ("", SCHEDULER)


def taken_up(binding: Binding) -> bool:
    """Whether a binding as Karmada's control plane keeps it is to be looked at: ours, not suspended, and made by somebody."""
    claimed = any(binding.labels.get(label) for label in CLAIMS)
    return claimed and ours(binding.scheduler) and not binding.suspended


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
    """`applied`: the placement of the last success (None: never). `strategy` False: the placement names none, which is Duplicated
    whose counts nobody compares. `rescheduled`: a fresh decision was asked for and not given. `leaving`: clusters being deleted."""
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


def observed_term(placement: Placement, observed: str) -> ClusterAffinity | None:
    """The affinity in force: the one named `observed` where there are several, the only one where there is one.

    None: the named one is gone, so the placement has changed.
    """
    if not placement.affinities:
        return ANY_CLUSTER
    if len(placement.affinities) == 1 and not placement.affinities[0].name:
        return placement.affinities[0]
    return next((a for a in placement.affinities if a.name == observed), None)


def placement_changed(applied: Placement, placement: Placement, observed: str) -> bool:
    """Of alternatives, only the one in force counts: editing or reordering the others moves nothing."""
    if applied == placement:
        return False
    before, after = observed_term(applied, observed), observed_term(placement, observed)
    if before is None or after is None or before != after:
        return True
    if not (_alternatives(applied) and _alternatives(placement)) and applied.affinities != placement.affinities:
        return True
    return _where(applied) != _where(placement)


def _where(placement: Placement) -> Placement:
    """What of it says where replicas go, besides the affinities: not how they leave what has failed."""
    return msgspec.structs.replace(placement, affinities=(), application=None, cluster_purge="Directly")


def _alternatives(placement: Placement) -> bool:
    return any(term.name for term in placement.affinities)


def replicas_changed(held: Mapping[str, int], replicas: int, *, duplicated: bool) -> bool:
    """Divided: what is held does not sum to what is wanted. Duplicated: some cluster does not hold all of it."""
    if duplicated:
        return any(n != replicas for n in held.values())
    return sum(held.values()) != replicas
