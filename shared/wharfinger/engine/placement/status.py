"""The conditions of a placement's status, in Open Cluster Management's words.

The first that holds is told. Where a placement is not strict, a message says what is the case and not what is often the case: OCM
blames the predicates whenever nothing is selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SATISFIED, MISCONFIGURED = "PlacementSatisfied", "PlacementMisconfigured"


@dataclass(frozen=True, slots=True)
class StatusCondition:
    """`status`: True or False, as text."""

    type: str
    status: str
    reason: str
    message: str


def conditions(
    *,
    asked_sets: Sequence[str],
    bindings: int,
    eligible: Sequence[str],
    available: int,
    matched: int | None,
    passed: int | None,
    chosen: int,
    unscheduled: int,
    wanted: int | None,
    code: str,
    plugin: str,
    message: str,
    strict: bool,
    standing: int,
) -> tuple[StatusCondition, ...]:
    """Both conditions, in order of type. Numbers are of clusters; `standing`: how many are decided already."""
    if code == "Misconfigured":
        wrong = StatusCondition(MISCONFIGURED, "True", "Misconfigured", f"{plugin}:{message}")
    else:
        wrong = StatusCondition(MISCONFIGURED, "False", "Succeedconfigured", "Placement configurations check pass")
    if not strict and code in ("Misconfigured", "Error"):
        kept = f"{message}; the {standing} clusters decided before are kept" if standing else message
        return wrong, _unsatisfied("NotAllDecisionsScheduled", kept)
    if bindings == 0:
        return wrong, _unsatisfied(
            "NoManagedClusterSetBindings", "No valid ManagedClusterSetBindings found in placement namespace"
        )
    if not eligible:
        names = ",".join(asked_sets)
        return wrong, _unsatisfied(
            "NoIntersection", f"None of ManagedClusterSets [{names}] is bound to placement namespace"
        )
    if available == 0:
        names = ",".join(eligible)
        return wrong, _unsatisfied(
            "AllManagedClusterSetsEmpty", f"All ManagedClusterSets [{names}] have no member ManagedCluster"
        )
    if code == "Error":
        return wrong, _unsatisfied("NotAllDecisionsScheduled", message)
    if chosen == 0:
        said = "No ManagedCluster matches any of the cluster predicate"
        if not strict and matched:
            said = "numberOfClusters is 0" if passed else f"The taints of all {matched} matching ManagedClusters"
            said += "" if passed else " are not tolerated"
        return wrong, _unsatisfied("NoManagedClusterMatched", said)
    if unscheduled == 0:
        return wrong, StatusCondition(SATISFIED, "True", "AllDecisionsScheduled", "All cluster decisions scheduled")
    return wrong, _unsatisfied("NotAllDecisionsScheduled", f"{unscheduled} cluster decisions unscheduled")


def _unsatisfied(reason: str, message: str) -> StatusCondition:
    return StatusCondition(SATISFIED, "False", reason, message)
