"""Prepares a placement for evaluation: turns its selectors into columns and finds its errors once.

A plan is cached with the fleet and rebuilt when the placement or a cluster set changes. It holds
nothing that depends on clusters or time, except the verdicts on taints, which carry their own
expiry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np

from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import DecisionGroup, Selection
from wharfinger.engine.cluster_sets import taints
from wharfinger.engine.cluster_sets.fleet import AnswerColumn, OcmClusterFacts, PlacementFleet
from wharfinger.engine.cluster_sets.scores import Prioritizer, PriorityError, prioritizers
from wharfinger.engine.cluster_sets.selectors import SelectorError
from wharfinger.engine.cluster_sets.taints import TaintVerdict, TolerationError

PREDICATE, TOLERATION = "Predicate", "TaintToleration"
CEL_FAILED = "compilation failed: "


@dataclass(frozen=True, slots=True)
class Trouble:
    """Holds an error of a placement: the plugin that found it, and its message."""

    plugin: str
    message: str


@dataclass(slots=True)
class SelectionPlan:
    """Holds a placement prepared for evaluation, with the errors found in it.

    `predicates`: alternatives, of which one has to match (OR). Each is a list of columns that all
      have to hold (AND). None: every cluster matches.
    `groups`: the decision groups before the first invalid one; `group_trouble`: the error of that
      one.
    `valid`: the existing cluster sets that are bound to the placement's namespace.
    `eligible`: those of them that the placement names; all of them if it names none.
    `members`: for each eligible set, the column that says which clusters are members.
    `verdicts`: the cache of `verdict`.
    """

    policy: Policy
    selection: Selection
    key: str
    epoch: int
    predicates: list[tuple[AnswerColumn, ...]] | None = None
    predicate_trouble: Trouble | None = None
    toleration_trouble: Trouble | None = None
    prioritizers: tuple[Prioritizer, ...] = ()
    priority_trouble: Trouble | None = None
    groups: list[tuple[str, tuple[AnswerColumn, ...]]] = field(default_factory=list)
    group_trouble: Trouble | None = None
    sets_version: int = -1
    valid: tuple[str, ...] = ()
    eligible: tuple[str, ...] = ()
    members: list[AnswerColumn] = field(default_factory=list)
    sets_trouble: str = ""
    verdicts: dict[tuple[int, bool], tuple[int, TaintVerdict]] = field(default_factory=dict)

    def verdict(self, fleet: PlacementFleet, group: int, held: bool, at_ns: int) -> TaintVerdict:
        """Returns whether the placement tolerates the taints of a cluster at the time `at_ns`, and
        until when this is so (`TaintVerdict`).

        `group`: the cluster's taints, as an index into `fleet.taint_groups`, the list of all
          distinct sets of taints.
        `held`: whether the placement selects the cluster at present.
        `at_ns`: nanoseconds since 1970, UTC.

        The result is cached per `group` and `held`. It is computed again from the time on at which
        it may change (`TaintVerdict.changes_ns`).
        """
        known = self.verdicts.get((group, held))
        if known is None or not known[0] <= at_ns < known[1].changes_ns:
            found = taints.verdict(
                fleet.taint_groups[group],
                self.selection.tolerations,
                held,
                at_ns,
                self.selection.strict,
            )
            known = self.verdicts[(group, held)] = (at_ns, found)
        return known[1]


def plan_of(fleet: PlacementFleet, policy: Policy) -> SelectionPlan:
    """Returns the compiled form of a placement (`SelectionPlan`): its predicates, tolerations,
    prioritizers, decision groups and cluster sets, prepared for evaluation. The compiled form is
    cached.

    The placement is compiled again if it has changed, or if the fleet has dropped its columns (the
    cached values to which the compiled form refers). The cluster sets are looked up again if a
    cluster set or a ManagedClusterSetBinding has changed.

    `hysteresis` is by how many points a cluster that is not selected must be better than a selected
    one to replace it. The cache has one compiled form for each value of `hysteresis`, because
    callers evaluate one placement with two values in turn: its own and a larger one.
    """
    key = f"{policy.namespace}/{policy.name}"
    selection = cast(Selection, policy.selection)
    # A placement is also asked as if it were steadier than it is, in turn with the way it is.
    kept = fleet.plans.setdefault(key, {})
    plan = cast(SelectionPlan | None, kept.get(selection.hysteresis))
    if (
        plan is None
        or plan.epoch != fleet.epoch
        or (plan.policy is not policy and plan.policy != policy)
    ):
        plan = kept[selection.hysteresis] = _compiled(fleet, policy, selection, key)
    if plan.sets_version != fleet.sets_version:
        _find_sets(fleet, plan)
    return plan


def _compiled(
    fleet: PlacementFleet, policy: Policy, selection: Selection, key: str
) -> SelectionPlan:
    """Compiles a placement, and returns the compiled form (`SelectionPlan`): its predicates,
    tolerations, prioritizers and decision groups, prepared for evaluation. An error in one of these
    four parts is stored in the result; the other parts are still compiled. The cluster sets of the
    placement are not looked up here.

    `selection`: the selection of `policy`. `key`: the placement, as `namespace/name`.
    """
    plan = SelectionPlan(policy, selection, key, fleet.epoch)
    try:
        plan.predicates = _predicates(fleet, selection)
    except SelectorError as wrong:
        plan.predicate_trouble = Trouble(PREDICATE, str(wrong))
    try:
        taints.check(selection.tolerations)
    except TolerationError as wrong:
        plan.toleration_trouble = Trouble(TOLERATION, str(wrong))
    try:
        plan.prioritizers = prioritizers(selection)
    except PriorityError as wrong:
        plan.priority_trouble = Trouble("", str(wrong))
    try:
        for group in selection.groups:
            plan.groups.append((group.name, _group(fleet, group)))
    except SelectorError as wrong:
        plan.group_trouble = Trouble("", str(wrong))
    return plan


def _predicates(
    fleet: PlacementFleet, selection: Selection
) -> list[tuple[AnswerColumn, ...]] | None:
    if not selection.predicates:
        return None
    out: list[tuple[AnswerColumn, ...]] = []
    for predicate in selection.predicates:
        columns = [
            fleet.matching(predicate.labels, "labels"),
            fleet.matching(predicate.claims, "claims"),
        ]
        columns += [_expression(fleet, text) for text in predicate.expressions]
        out.append(tuple([c for c in columns if c is not None]))
    return out


def _expression(fleet: PlacementFleet, text: str) -> AnswerColumn:
    # only processes that meet an expression load the language
    from wharfinger.engine.cluster_sets import expressions

    try:
        expression = expressions.compiled(text)
    except expressions.ExpressionError as wrong:
        raise SelectorError(f"{CEL_FAILED}{wrong}") from None

    def answer(facts: OcmClusterFacts) -> bool:
        return expression.holds(facts)

    return fleet.column(("expression", text), np.bool_, answer)


def _group(fleet: PlacementFleet, group: DecisionGroup) -> tuple[AnswerColumn, ...]:
    columns = (fleet.matching(group.labels, "labels"), fleet.matching(group.claims, "claims"))
    return tuple([c for c in columns if c is not None])


def _find_sets(fleet: PlacementFleet, plan: SelectionPlan) -> None:
    valid = fleet.bound_sets(plan.policy.namespace, plan.selection.strict)
    asked = plan.selection.cluster_sets
    plan.valid = valid
    plan.eligible = tuple([name for name in valid if name in asked]) if asked else valid
    plan.members, plan.sets_trouble = [], ""
    for name in plan.eligible:
        try:
            if (members := fleet.members(name)) is not None:
                plan.members.append(members)
        except SelectorError as wrong:
            plan.sets_trouble = f'failed to get clusters from ClusterSet "{name}": {wrong}'
            break
    plan.sets_version = fleet.sets_version
