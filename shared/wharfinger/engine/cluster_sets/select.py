"""Selects the clusters of a placement and records why: filter, score, rank, take the first ones,
divide into groups.

A pure function of the fleet and a time; it returns a `SelectionResult`. The caller passes in the
present decisions beforehand (`PlacementFleet.decided`) and records the new ones. With `strict` the
rules are exactly Open Cluster Management's. Otherwise four rules differ:

* an invalid placement, or one whose cluster sets are invalid, keeps its present decision
  (`SelectionResult.keeps`) instead of being emptied, and is reported as invalid even while it has
  no candidates;
* a PreferNoSelect taint that is not tolerated ranks a cluster last: it loses `DISLIKED` points. A
  cluster that is selected already keeps its points, so that a preference never moves running
  workloads;
* a new cluster replaces a selected one only when its score is better by more than
  `Selection.hysteresis` points;
* with `expired_scores: unknown`, a cluster without a valid score gets the worst score of the other
  clusters instead of 0, because 0 is better than any negative score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

import numpy as np

from wharfinger.domain.policy import Policy
from wharfinger.engine.cluster_sets import groups as grouping
from wharfinger.engine.cluster_sets.fleet import Bools, Ints, Names, PlacementFleet
from wharfinger.engine.cluster_sets.groups import ClusterGroup, GroupError
from wharfinger.engine.cluster_sets.plans import TOLERATION, SelectionPlan, Trouble, plan_of
from wharfinger.engine.cluster_sets.scores import STEADY, Scores, ordered, scored, summed
from wharfinger.engine.cluster_sets.selectors import NAME_LENGTH_MAX, value_problem
from wharfinger.engine.cluster_sets.status import PlacementCondition, conditions
from wharfinger.engine.cluster_sets.taints import NEVER_NS

Micros = int
Code = Literal["Success", "Warning", "Error", "Misconfigured"]

PLACEMENT_LABEL = "cluster.open-cluster-management.io/placement"
DISLIKED = 1_000_000
"""Points that a new cluster loses for a PreferNoSelect taint that is not tolerated. More than 500
prioritizers of full weight can give."""


@dataclass(frozen=True, slots=True)
class SelectionStatus:
    """Holds the status of a selection. `plugin`: the step that reports it."""

    code: Code = "Success"
    plugin: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        return self.code in ("Error", "Misconfigured")


@dataclass(frozen=True)
class SelectionResult:
    """Holds one selection with its intermediate results. Positions refer to `names`, all clusters
    in order of name.

    `key`: the placement, as `namespace/name`.
    `skipped`: nothing was evaluated, because the placement is being deleted or is disabled.
    `keeps`: the present decision stays; `selected` and `groups` are empty then.
    `valid_bindings`: the cluster sets bound to the namespace. `eligible_sets`: those that the
      placement uses. `sets_trouble`: the error of a cluster set.
    `available`, `matched`, `passed`: the clusters left after the cluster sets, the predicates and
      the taints, in order of name. None: the selection did not reach that step.
    `scores`, `totals`: of the clusters in `passed`; None after an error.
    `chosen`: the selected clusters, best first.
    `unscheduled`: how many fewer clusters than wanted are selected.
    `group_trouble`: the error of the decision groups; the group with the error and all later ones
      are missing.
    `requeue_at`: the time at which the result may change without any event, in microseconds since
      the epoch; None: never.
    """

    key: str
    names: Names
    skipped: bool = False
    keeps: bool = False
    strict: bool = False
    valid_bindings: tuple[str, ...] = ()
    eligible_sets: tuple[str, ...] = ()
    sets_trouble: str = ""
    available: Ints | None = None
    matched: Ints | None = None
    passed: Ints | None = None
    scores: tuple[Scores, ...] | None = None
    totals: Ints | None = None
    chosen: Ints | None = None
    unscheduled: int = 0
    status: SelectionStatus = SelectionStatus()
    group_trouble: str = ""
    groups: tuple[ClusterGroup, ...] = ()
    requeue_at: Micros | None = None
    conditions: tuple[PlacementCondition, ...] = ()

    @cached_property
    def selected(self) -> tuple[str, ...]:
        """Returns the names of the selected clusters, best first."""
        return () if self.chosen is None else tuple(self.names[self.chosen].tolist())

    @cached_property
    def total_of(self) -> Mapping[str, int]:
        """Returns cluster -> total score for all clusters that passed the filters, in order of
        name."""
        if self.passed is None or self.totals is None:
            return {}
        return dict(zip(self.named(self.passed), self.totals.tolist(), strict=True))

    def named(self, positions: Ints | None) -> list[str]:
        return [] if positions is None else cast(list[str], self.names[positions].tolist())

    def scores_of(self, scores: Scores) -> dict[str, int]:
        """Returns cluster -> score for all clusters that the prioritizer gave a score, in order of
        name."""
        assert self.passed is not None, "scores are of clusters that passed"
        passed, values = self.passed, scores.values
        if scores.shown is not None:
            passed, values = passed[scores.shown], values[scores.shown]
        return dict(zip(self.named(passed), values.tolist(), strict=True))

    @property
    def status_trouble(self) -> SelectionStatus:
        """Returns the error of the decision groups if there is one, otherwise the status of the
        selection."""
        return (
            SelectionStatus("Misconfigured", "", self.group_trouble)
            if self.group_trouble
            else self.status
        )


def choose(fleet: PlacementFleet, placement: Policy, at: Micros) -> SelectionResult:
    """Selects clusters for `placement` at the time `at`, in microseconds since the epoch. The
    placement must have a `selection`. First frees cached columns of the fleet if there are too many
    (`make_room`)."""
    fleet.make_room()
    plan = plan_of(fleet, placement)
    if plan.selection.deleting or plan.selection.disabled:
        return SelectionResult(
            plan.key, fleet.names(), skipped=True, keeps=True, strict=plan.selection.strict
        )
    return _SelectionRun(fleet, plan, at).choice()


@dataclass(slots=True)
class _Ranked:
    """Holds the results of filtering and scoring. A field is None if its step was not reached."""

    status: SelectionStatus
    matched: Ints | None = None
    passed: Ints | None = None
    scores: tuple[Scores, ...] | None = None
    totals: Ints | None = None
    order: Ints | None = None


class _SelectionRun:
    """Holds the state of one selection while it runs."""

    def __init__(self, fleet: PlacementFleet, plan: SelectionPlan, at: Micros) -> None:
        self.fleet, self.plan, self.at = fleet, plan, at
        self.selection, self.strict = plan.selection, plan.selection.strict
        self.names = fleet.names()
        self.held_ranks = fleet.held_ranks(plan.key)
        self.held: Bools = np.zeros(len(self.names), np.bool_)
        self.held[self.held_ranks] = True
        self.disliked: Ints | None = None
        self.requeue_ns = NEVER_NS

    def choice(self) -> SelectionResult:
        """Runs the selection of one placement and returns its result. The steps are: find errors,
        filter, score, rank, take the first clusters, divide them into decision groups.

        Without `strict`, a placement with any error keeps its present decision. With `strict`, it
        does so only if one of its cluster sets is invalid or the number of clusters is negative;
        after any other error the result is what OCM decides, for example no cluster.
        """
        if self.plan.sets_trouble:
            return self._without_sets()
        if (trouble := self._trouble()) is not None:
            return self._kept(trouble)
        available = self._available()
        ranked = self._ranked(available)
        chosen, unscheduled = self._taken(ranked)
        groups, group_trouble = self._groups(chosen)
        status = (
            SelectionStatus("Misconfigured", "", group_trouble) if group_trouble else ranked.status
        )
        if status.failed and not self.strict:
            return self._kept(status)
        if ranked.order is not None:
            self._find_requeue(ranked)
        return SelectionResult(
            self.plan.key,
            self.names,
            strict=self.strict,
            valid_bindings=self.plan.valid,
            eligible_sets=self.plan.eligible,
            available=available,
            matched=ranked.matched,
            passed=ranked.passed,
            scores=ranked.scores,
            totals=ranked.totals,
            chosen=chosen,
            unscheduled=unscheduled,
            status=ranked.status,
            group_trouble=group_trouble,
            groups=groups,
            requeue_at=None if self.requeue_ns >= NEVER_NS else -(-self.requeue_ns // 1000),
            conditions=self._conditions(len(available), len(chosen), unscheduled, status, ranked),
        )

    # Stages.

    def _available(self) -> Ints:
        """Returns the clusters that are a member of an eligible cluster set and are not being
        deleted, as positions in order of name."""
        if not self.plan.members:
            return _NONE
        members = self.fleet.ranked(self.plan.members[0])
        for column in self.plan.members[1:]:
            members = members | self.fleet.ranked(column)
        return np.flatnonzero(members & self.fleet.ranked(self.fleet.alive()))

    def _ranked(self, available: Ints) -> _Ranked:
        """Filters, scores and ranks the clusters of the placement's cluster sets. Returns the
        result of each step: the clusters that match the predicates (`matched`), those of them whose
        taints are tolerated (`passed`), the scores and the total scores of the clusters in
        `passed`, and the same clusters in rank order, best first.

        An error in the placement stops this function: then the status names the error, and the
        results of the later steps are None.

        `available`: the clusters, as positions among all clusters in order of name.
        """
        plan = self.plan
        if len(available) and plan.predicate_trouble is not None:
            return _Ranked(_misconfigured(plan.predicate_trouble))
        matched = self._matched(available)
        if len(matched) and plan.toleration_trouble is not None:
            return _Ranked(_misconfigured(plan.toleration_trouble), matched)
        passed = self._tolerated(matched)
        if plan.priority_trouble is not None:
            return _Ranked(_misconfigured(plan.priority_trouble), matched, passed)
        if (error := self._name_trouble()) and any(p.name == STEADY for p in plan.prioritizers):
            return _Ranked(SelectionStatus("Error", STEADY, error), matched, passed)
        held = self.held[passed]
        scores = tuple(
            [scored(self.fleet, plan.key, p, passed, held, self.at) for p in plan.prioritizers]
        )
        unknown = not self.strict and self.selection.expired_scores == "unknown"
        if unknown:
            scores = tuple([_as_unknown(s) for s in scores])
        if self.disliked is not None:
            dislike = np.where(np.isin(passed, self.disliked), -DISLIKED, 0)
            scores = (*scores, Scores(TOLERATION, 1, dislike))
        totals = summed(scores, len(passed), unknown)
        order = passed[self._order(totals, held)]
        return _Ranked(
            self._warned(scores, passed, unknown), matched, passed, scores, totals, order
        )

    def _matched(self, available: Ints) -> Ints:
        if not self.plan.predicates:
            return available
        ranked = self.fleet.ranked
        matches: Bools | None = None
        for columns in self.plan.predicates:
            if not columns:
                return available
            all_hold = ranked(columns[0])
            for column in columns[1:]:
                all_hold = all_hold & ranked(column)
            matches = all_hold if matches is None else matches | all_hold
        assert matches is not None, "there is a predicate"
        return available[matches[available]]

    def _tolerated(self, matched: Ints) -> Ints:
        """Removes the clusters that have a NoSelect or NoSelectIfNew taint which the placement does
        not tolerate, and returns the rest. NoSelectIfNew is ignored for clusters that the placement
        selects at present.

        `matched`: the clusters, as positions among all clusters in order of name; so is the result.

        Without `strict`, two more results are stored. `disliked`: the clusters of `matched` that
        are not selected at present and have an untolerated PreferNoSelect taint. `requeue_ns`:
        lowered to the earliest time at which the toleration of a taint of these clusters expires.
        """
        groups = self.fleet.ranked(self.fleet.taints())[matched]
        if not groups.any():
            return matched
        borne: Bools = np.ones(len(matched), np.bool_)
        disliked: Bools = np.zeros(len(matched), np.bool_)
        held = self.held[matched]
        for group in np.unique(groups).tolist():
            if not group:
                continue
            here = groups == group
            for is_held in (False, True):
                of = here & (held == is_held)
                if not of.any():
                    continue
                verdict = self.plan.verdict(self.fleet, group, is_held, self.at * 1000)
                borne[of] = verdict.borne
                disliked[of] = verdict.disliked and not is_held
                if not self.strict:
                    self.requeue_ns = min(self.requeue_ns, verdict.changes_ns)
        if not self.strict and disliked.any():
            self.disliked = matched[disliked]
        return matched[borne]

    def _order(self, totals: Ints, held: Bools) -> Ints:
        """Returns the indexes of the clusters by total score, highest first. Without `strict`, a
        cluster that is selected at present gets `hysteresis` extra points and, if these are not 0,
        wins ties."""
        if self.strict or not self.selection.hysteresis:
            return ordered(totals)
        mine = held.astype(np.int64)
        return ordered(totals + mine * self.selection.hysteresis, mine)

    def _taken(self, ranked: _Ranked) -> tuple[Ints, int]:
        wanted = self.selection.wanted
        if ranked.order is None:
            return _NONE, 0
        if wanted is None:
            return ranked.order, 0
        taken = ranked.order[:wanted]
        return taken, wanted - len(taken)

    def _groups(self, chosen: Ints) -> tuple[tuple[ClusterGroup, ...], str]:
        plan = self.plan
        try:
            length = grouping.length(self.selection.per_group, len(chosen), self.strict)
        except GroupError as wrong:
            return (), str(wrong)
        named = [(name, self._all_hold(columns)) for name, columns in plan.groups]
        if plan.group_trouble is not None:
            return grouping.divided(
                self.names, chosen, named, length, len(named)
            ), plan.group_trouble.message
        return grouping.divided(self.names, chosen, named, length), ""

    def _all_hold(self, columns: Sequence[object]) -> Bools | None:
        out: Bools | None = None
        for column in columns:
            values = self.fleet.ranked(column)  # type: ignore[arg-type]
            out = values if out is None else out & values
        return out

    # What is wrong.

    def _trouble(self) -> SelectionStatus | None:
        """Returns the first error in the placement's spec, as a status; None: no error.

        A negative number of clusters is always an error, because it would crash OCM. With `strict`
        nothing else is checked here: OCM finds other errors only after it has acted on part of the
        placement. Without `strict` the predicates, the tolerations, the priorities and the length
        of the placement's name are checked too, in this order.
        """
        if self.selection.wanted is not None and self.selection.wanted < 0:
            return SelectionStatus(
                "Misconfigured",
                "",
                f"numberOfClusters must not be negative: {self.selection.wanted}",
            )
        if self.strict:
            return None
        for trouble in (
            self.plan.predicate_trouble,
            self.plan.toleration_trouble,
            self.plan.priority_trouble,
        ):
            if trouble is not None:
                return _misconfigured(trouble)
        if error := self._name_trouble():
            return SelectionStatus("Misconfigured", "", error)
        return None

    def _name_trouble(self) -> str:
        """Returns what is wrong with the placement's name as a label value, or an empty text. The
        placement's decisions are found by this label."""
        name = self.plan.policy.name
        return value_problem(PLACEMENT_LABEL, name) if len(name.encode()) > NAME_LENGTH_MAX else ""

    def _warned(self, scores: Sequence[Scores], passed: Ints, unknown: bool) -> SelectionStatus:
        for one in scores:
            if one.expired is not None:
                resource = one.name.split("/")[1]
                expired = sorted(
                    f"{name}/{resource}" for name in self.names[passed[one.expired]].tolist()
                )
                return SelectionStatus(
                    "Warning", one.name, f"AddOnPlacementScores {' '.join(expired)} expired"
                )
        return SelectionStatus()

    # Outcomes without a set.

    def _without_sets(self) -> SelectionResult:
        status = SelectionStatus(
            "Misconfigured" if not self.strict else "Error", "", self.plan.sets_trouble
        )
        return SelectionResult(
            self.plan.key,
            self.names,
            keeps=True,
            strict=self.strict,
            valid_bindings=self.plan.valid,
            eligible_sets=self.plan.eligible,
            sets_trouble=self.plan.sets_trouble,
            status=status,
            conditions=() if self.strict else self._conditions(0, 0, 0, status, None),
        )

    def _kept(self, status: SelectionStatus) -> SelectionResult:
        available = self._available()
        return SelectionResult(
            self.plan.key,
            self.names,
            keeps=True,
            valid_bindings=self.plan.valid,
            eligible_sets=self.plan.eligible,
            available=available,
            status=status,
            conditions=self._conditions(len(available), 0, 0, status, None),
        )

    def _conditions(
        self,
        available: int,
        chosen: int,
        unscheduled: int,
        status: SelectionStatus,
        ranked: _Ranked | None,
    ) -> tuple[PlacementCondition, ...]:
        return conditions(
            asked_sets=self.selection.cluster_sets,
            bindings=len(self.plan.valid),
            eligible=self.plan.eligible,
            available=available,
            matched=None if ranked is None or ranked.matched is None else len(ranked.matched),
            passed=None if ranked is None or ranked.passed is None else len(ranked.passed),
            chosen=chosen,
            unscheduled=unscheduled,
            code=status.code,
            plugin=status.plugin,
            message=status.message,
            strict=self.strict,
            standing=len(self.held_ranks),
        )

    def _find_requeue(self, ranked: _Ranked) -> None:
        """Sets `requeue_ns`: the time at which the result may change without any event, in
        nanoseconds since 1970, UTC.

        Without `strict`, `requeue_ns` is lowered to the time at which the next add-on score
        expires. The filter step (`_tolerated`) has lowered it before to the earliest time at which
        the toleration of a taint expires for a cluster that the predicates match. With `strict`, as
        in OCM, it is the earliest time at which a toleration expires for a cluster that the
        placement selects at present.

        `ranked`: the scores to look at.
        """
        if not self.strict:
            for one in ranked.scores or ():
                if one.next_expiry_us is not None:
                    self.requeue_ns = min(self.requeue_ns, _after(one.next_expiry_us))
            return
        if not self.selection.tolerations:
            return
        groups = self.fleet.ranked(self.fleet.taints())[self.held_ranks]
        for group in np.unique(groups).tolist():
            if group:
                verdict = self.plan.verdict(self.fleet, group, True, self.at * 1000)
                self.requeue_ns = min(self.requeue_ns, verdict.until_ns)


_NONE: Ints = np.zeros(0, np.int64)
_FAR_US = 2**61


def _after(us: Micros) -> int:
    """Returns the first moment after the time `us`, in nanoseconds. `us` is in microseconds."""
    return NEVER_NS if us >= _FAR_US else (us + 1) * 1000


def _misconfigured(trouble: Trouble) -> SelectionStatus:
    return SelectionStatus("Misconfigured", trouble.plugin, trouble.message)


def _as_unknown(scores: Scores) -> Scores:
    """Returns the scores of one prioritizer, changed so that explanations list only the clusters
    with a known score. Without the change, explanations list the other clusters with the score 0.
    The values stay the same."""
    if scores.known is None or scores.known.all():
        return scores
    return Scores(
        scores.name,
        scores.weight,
        scores.values,
        scores.known,
        scores.known,
        scores.expired,
        scores.next_expiry_us,
    )
