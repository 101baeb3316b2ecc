"""A placement made ready to be asked of a fleet: selectors turned into columns, and what is wrong with it found once.

A plan is kept with the fleet and made anew when the placement, or a cluster set, changes. What depends on clusters or time is never
in it, save the verdicts on taints, which say themselves how long they hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np

from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import DecisionGroup, Selection
from wharfinger.engine.placement import taints
from wharfinger.engine.placement.fleet import Column, Facts, PlacementFleet
from wharfinger.engine.placement.scores import Prioritizer, PriorityError, prioritizers
from wharfinger.engine.placement.selectors import SelectorError
from wharfinger.engine.placement.taints import TolerationError, Verdict

PREDICATE, TOLERATION = "Predicate", "TaintToleration"
CEL_FAILED = "compilation failed: "


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a placement: who found it, and what."""

    plugin: str
    message: str


@dataclass(slots=True)
class Plan:
    """`predicates`: alternatives, each the columns that all have to hold; None: every cluster. `groups`: as far as they could be
    made ready, `group_trouble`: why not further. `members`: the columns of the eligible sets."""

    policy: Policy
    selection: Selection
    key: str
    epoch: int
    predicates: list[tuple[Column, ...]] | None = None
    predicate_trouble: Trouble | None = None
    toleration_trouble: Trouble | None = None
    prioritizers: tuple[Prioritizer, ...] = ()
    priority_trouble: Trouble | None = None
    groups: list[tuple[str, tuple[Column, ...]]] = field(default_factory=list)
    group_trouble: Trouble | None = None
    sets_version: int = -1
    valid: tuple[str, ...] = ()
    eligible: tuple[str, ...] = ()
    members: list[Column] = field(default_factory=list)
    sets_trouble: str = ""
    verdicts: dict[tuple[int, bool], tuple[int, Verdict]] = field(default_factory=dict)

    def verdict(self, fleet: PlacementFleet, group: int, held: bool, at_ns: int) -> Verdict:
        """On clusters with the taints `fleet.taint_groups[group]`."""
        known = self.verdicts.get((group, held))
        if known is None or not known[0] <= at_ns < known[1].changes_ns:
            found = taints.verdict(
                fleet.taint_groups[group], self.selection.tolerations, held, at_ns, self.selection.strict
            )
            known = self.verdicts[(group, held)] = (at_ns, found)
        return known[1]


def plan_of(fleet: PlacementFleet, policy: Policy) -> Plan:
    """The placement's plan, with the sets as they are now."""
    key = f"{policy.namespace}/{policy.name}"
    selection = cast(Selection, policy.selection)
    # A placement is also asked as if it were steadier than it is, in turn with the way it is.
    kept = fleet.plans.setdefault(key, {})
    plan = cast(Plan | None, kept.get(selection.hysteresis))
    if plan is None or plan.epoch != fleet.epoch or (plan.policy is not policy and plan.policy != policy):
        plan = kept[selection.hysteresis] = _compiled(fleet, policy, selection, key)
    if plan.sets_version != fleet.sets_version:
        _find_sets(fleet, plan)
    return plan


def _compiled(fleet: PlacementFleet, policy: Policy, selection: Selection, key: str) -> Plan:
    plan = Plan(policy, selection, key, fleet.epoch)
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


def _predicates(fleet: PlacementFleet, selection: Selection) -> list[tuple[Column, ...]] | None:
    if not selection.predicates:
        return None
    out: list[tuple[Column, ...]] = []
    for predicate in selection.predicates:
        columns = [fleet.matching(predicate.labels, "labels"), fleet.matching(predicate.claims, "claims")]
        columns += [_expression(fleet, text) for text in predicate.expressions]
        out.append(tuple([c for c in columns if c is not None]))
    return out


def _expression(fleet: PlacementFleet, text: str) -> Column:
    from wharfinger.engine.placement import expressions  # only processes that meet an expression load the language

    try:
        expression = expressions.compiled(text)
    except expressions.ExpressionError as wrong:
        raise SelectorError(f"{CEL_FAILED}{wrong}") from None

    def answer(facts: Facts) -> bool:
        return expression.holds(facts)

    return fleet.column(("expression", text), np.bool_, answer)


def _group(fleet: PlacementFleet, group: DecisionGroup) -> tuple[Column, ...]:
    columns = (fleet.matching(group.labels, "labels"), fleet.matching(group.claims, "claims"))
    return tuple([c for c in columns if c is not None])


def _find_sets(fleet: PlacementFleet, plan: Plan) -> None:
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
