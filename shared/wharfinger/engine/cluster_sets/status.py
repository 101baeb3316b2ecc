"""Builds the conditions of a placement's status, with Open Cluster Management's reasons and
messages.

The first condition that holds is reported. Without `strict` the message names the real cause; OCM
blames the predicates whenever nothing is selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SATISFIED, MISCONFIGURED = "PlacementSatisfied", "PlacementMisconfigured"


@dataclass(frozen=True, slots=True)
class PlacementCondition:
    """Holds one condition of a placement's status. `status`: the text True or False."""

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
    code: str,
    plugin: str,
    message: str,
    strict: bool,
    standing: int,
) -> tuple[PlacementCondition, ...]:
    """Returns the two conditions of a placement's status: PlacementMisconfigured, then
    PlacementSatisfied.

    `asked_sets`: the cluster sets that the placement names.
    `bindings`: how many cluster sets are bound to the placement's namespace by a
      ManagedClusterSetBinding.
    `eligible`: the bound cluster sets that the placement uses.
    `available`: how many clusters the eligible sets have together.
    `matched`: how many of these clusters pass the predicates; None: the selection did not reach
      this step.
    `passed`: how many pass the predicates and the taints; None: as for `matched`.
    `chosen`: how many clusters this run of the selection selects.
    `unscheduled`: how many clusters `chosen` is below the wanted number.
    `code`: how the selection ended: Success, Warning, Error or Misconfigured.
    `plugin`: the step that reports the code. `message`: its error text.
    `strict`: use OCM's reasons and messages in all cases.
    `standing`: how many clusters the decision before this run has. Without `strict`, an error keeps
      that decision, and the message says this number.
    """
    if code == "Misconfigured":
        wrong = PlacementCondition(MISCONFIGURED, "True", "Misconfigured", f"{plugin}:{message}")
    else:
        wrong = PlacementCondition(
            MISCONFIGURED, "False", "Succeedconfigured", "Placement configurations check pass"
        )
    if not strict and code in ("Misconfigured", "Error"):
        kept = (
            f"{message}; the {standing} clusters decided before are kept" if standing else message
        )
        return wrong, _unsatisfied("NotAllDecisionsScheduled", kept)
    if bindings == 0:
        return wrong, _unsatisfied(
            "NoManagedClusterSetBindings",
            "No valid ManagedClusterSetBindings found in placement namespace",
        )
    if not eligible:
        names = ",".join(asked_sets)
        return wrong, _unsatisfied(
            "NoIntersection",
            f"None of ManagedClusterSets [{names}] is bound to placement namespace",
        )
    if available == 0:
        names = ",".join(eligible)
        return wrong, _unsatisfied(
            "AllManagedClusterSetsEmpty",
            f"All ManagedClusterSets [{names}] have no member ManagedCluster",
        )
    if code == "Error":
        return wrong, _unsatisfied("NotAllDecisionsScheduled", message)
    if chosen == 0:
        said = "No ManagedCluster matches any of the cluster predicate"
        if not strict and matched:
            said = (
                "numberOfClusters is 0"
                if passed
                else f"The taints of all {matched} matching ManagedClusters"
            )
            said += "" if passed else " are not tolerated"
        return wrong, _unsatisfied("NoManagedClusterMatched", said)
    if unscheduled == 0:
        return wrong, PlacementCondition(
            SATISFIED, "True", "AllDecisionsScheduled", "All cluster decisions scheduled"
        )
    return wrong, _unsatisfied(
        "NotAllDecisionsScheduled", f"{unscheduled} cluster decisions unscheduled"
    )


def _unsatisfied(reason: str, message: str) -> PlacementCondition:
    return PlacementCondition(SATISFIED, "False", reason, message)
