"""Which clusters a placement selects, and why: filter, score, rank, take, group.

Pure: reads the fleet and a time, returns a `Choice`. What stands is told to the fleet beforehand (`PlacementFleet.decided`), and
writing down what changes is somebody else's business. Open Cluster Management's rules are followed to the letter where `strict` is
said. Otherwise four things are better:

* a placement that is wrong, or whose cluster sets are, keeps what stands (`Choice.keeps`) instead of being emptied, and is found
  wrong even while it has no candidates;
* a PreferNoSelect taint that is not tolerated puts a cluster behind all others: it loses `DISLIKED` points. One that is held keeps
  its points, as NoSelectIfNew keeps its place: a soft wish moves nothing that runs;
* a newcomer takes the place of a held cluster only when it is better by more than `Selection.hysteresis` points;
* with `expired_scores: unknown`, who has no score counts as the worst of those who have one, not as 0, which beats every negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

import numpy as np

from wharfinger.domain.policy import Policy
from wharfinger.engine.placement import groups as grouping
from wharfinger.engine.placement.fleet import Bools, Ints, Names, PlacementFleet
from wharfinger.engine.placement.groups import Group, GroupError
from wharfinger.engine.placement.plans import TOLERATION, Plan, Trouble, plan_of
from wharfinger.engine.placement.scores import STEADY, Scores, ordered, scored, summed
from wharfinger.engine.placement.selectors import NAME_LENGTH_MAX, value_problem
from wharfinger.engine.placement.status import StatusCondition, conditions
from wharfinger.engine.placement.taints import NEVER_NS

Micros = int
Code = Literal["Success", "Warning", "Error", "Misconfigured"]

PLACEMENT_LABEL = "cluster.open-cluster-management.io/placement"
DISLIKED = 1_000_000
"""Points that an untolerated PreferNoSelect taint takes from a new cluster: more than 500 prioritizers of full weight can give."""


@dataclass(frozen=True, slots=True)
class Status:
    """How scheduling went. `plugin`: who says so."""

    code: Code = "Success"
    plugin: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        return self.code in ("Error", "Misconfigured")


@dataclass(frozen=True)
class Choice:
    """One decision with everything that led to it. Positions are into `names`, all clusters in order of name.

    `key`: `namespace/name`. `skipped`: it is being deleted or disabled, so nothing was looked at. `keeps`: it could not be decided,
    and what stands is to stay; `selected` and `groups` are empty then. `sets_trouble`: a cluster set that could not be read.
    `available`, `matched`, `passed`: after the sets, the predicates, the taints, in order of name; None where it did not come to
    that. `scores`, `totals`: of those that passed; None after an error. `chosen`: best first. `group_trouble`: what is wrong with
    the groups, which are cut short by it. `requeue_at`: when time alone may change the choice; None: never.
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
    status: Status = Status()
    group_trouble: str = ""
    groups: tuple[Group, ...] = ()
    requeue_at: Micros | None = None
    conditions: tuple[StatusCondition, ...] = ()

    @cached_property
    def selected(self) -> tuple[str, ...]:
        """Best first."""
        return () if self.chosen is None else tuple(self.names[self.chosen].tolist())

    @cached_property
    def total_of(self) -> Mapping[str, int]:
        """Cluster -> total, of all that passed the filters, in order of name."""
        if self.passed is None or self.totals is None:
            return {}
        return dict(zip(self.named(self.passed), self.totals.tolist(), strict=True))

    def named(self, positions: Ints | None) -> list[str]:
        return [] if positions is None else cast(list[str], self.names[positions].tolist())

    def scores_of(self, scores: Scores) -> dict[str, int]:
        """Cluster -> score, of all that were given one, in order of name."""
        assert self.passed is not None, "scores are of clusters that passed"
        passed, values = self.passed, scores.values
        if scores.shown is not None:
            passed, values = passed[scores.shown], values[scores.shown]
        return dict(zip(self.named(passed), values.tolist(), strict=True))

    @property
    def status_trouble(self) -> Status:
        """The status with what the groups say of it."""
        return Status("Misconfigured", "", self.group_trouble) if self.group_trouble else self.status


def choose(fleet: PlacementFleet, placement: Policy, at: Micros) -> Choice:
    """Decides `placement`, whose selection must be there, at the time `at`."""
    fleet.make_room()
    plan = plan_of(fleet, placement)
    if plan.selection.deleting or plan.selection.disabled:
        return Choice(plan.key, fleet.names(), skipped=True, keeps=True, strict=plan.selection.strict)
    return _Run(fleet, plan, at).choice()


@dataclass(slots=True)
class _Ranked:
    """What came out of filtering and scoring, as far as it went."""

    status: Status
    matched: Ints | None = None
    passed: Ints | None = None
    scores: tuple[Scores, ...] | None = None
    totals: Ints | None = None
    order: Ints | None = None


class _Run:
    """One decision."""

    def __init__(self, fleet: PlacementFleet, plan: Plan, at: Micros) -> None:
        self.fleet, self.plan, self.at = fleet, plan, at
        self.selection, self.strict = plan.selection, plan.selection.strict
        self.names = fleet.names()
        self.held_ranks = fleet.held_ranks(plan.key)
        self.held: Bools = np.zeros(len(self.names), np.bool_)
        self.held[self.held_ranks] = True
        self.disliked: Ints | None = None
        self.requeue_ns = NEVER_NS

    def choice(self) -> Choice:
        if self.plan.sets_trouble:
            return self._without_sets()
        if (trouble := self._trouble()) is not None:
            return self._kept(trouble)
        available = self._available()
        ranked = self._ranked(available)
        chosen, unscheduled = self._taken(ranked)
        groups, group_trouble = self._groups(chosen)
        status = Status("Misconfigured", "", group_trouble) if group_trouble else ranked.status
        if status.failed and not self.strict:
            return self._kept(status)
        if ranked.order is not None:
            self._find_requeue(ranked)
        return Choice(
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
        """Live members of any eligible set."""
        if not self.plan.members:
            return _NONE
        members = self.fleet.ranked(self.plan.members[0])
        for column in self.plan.members[1:]:
            members = members | self.fleet.ranked(column)
        return np.flatnonzero(members & self.fleet.ranked(self.fleet.alive()))

    def _ranked(self, available: Ints) -> _Ranked:
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
            return _Ranked(Status("Error", STEADY, error), matched, passed)
        held = self.held[passed]
        scores = tuple([scored(self.fleet, plan.key, p, passed, held, self.at) for p in plan.prioritizers])
        unknown = not self.strict and self.selection.expired_scores == "unknown"
        if unknown:
            scores = tuple([_as_unknown(s) for s in scores])
        if self.disliked is not None:
            dislike = np.where(np.isin(passed, self.disliked), -DISLIKED, 0)
            scores = (*scores, Scores(TOLERATION, 1, dislike))
        totals = summed(scores, len(passed), unknown)
        order = passed[self._order(totals, held)]
        return _Ranked(self._warned(scores, passed, unknown), matched, passed, scores, totals, order)

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

    def _groups(self, chosen: Ints) -> tuple[tuple[Group, ...], str]:
        plan = self.plan
        try:
            length = grouping.length(self.selection.per_group, len(chosen), self.strict)
        except GroupError as wrong:
            return (), str(wrong)
        named = [(name, self._all_hold(columns)) for name, columns in plan.groups]
        if plan.group_trouble is not None:
            return grouping.divided(self.names, chosen, named, length, len(named)), plan.group_trouble.message
        return grouping.divided(self.names, chosen, named, length), ""

    def _all_hold(self, columns: Sequence[object]) -> Bools | None:
        out: Bools | None = None
        for column in columns:
            values = self.fleet.ranked(column)  # type: ignore[arg-type]
            out = values if out is None else out & values
        return out

    # What is wrong.

    def _trouble(self) -> Status | None:
        """What OCM would only find out, and act upon, half way; and what it would die of."""
        if self.selection.wanted is not None and self.selection.wanted < 0:
            return Status("Misconfigured", "", f"numberOfClusters must not be negative: {self.selection.wanted}")
        if self.strict:
            return None
        for trouble in (self.plan.predicate_trouble, self.plan.toleration_trouble, self.plan.priority_trouble):
            if trouble is not None:
                return _misconfigured(trouble)
        if error := self._name_trouble():
            return Status("Misconfigured", "", error)
        return None

    def _name_trouble(self) -> str:
        """The decisions of a placement are found by a label with its name."""
        name = self.plan.policy.name
        return value_problem(PLACEMENT_LABEL, name) if len(name.encode()) > NAME_LENGTH_MAX else ""

    def _warned(self, scores: Sequence[Scores], passed: Ints, unknown: bool) -> Status:
        for one in scores:
            if one.expired is not None:
                resource = one.name.split("/")[1]
                expired = sorted(f"{name}/{resource}" for name in self.names[passed[one.expired]].tolist())
                return Status("Warning", one.name, f"AddOnPlacementScores {' '.join(expired)} expired")
        return Status()

    # Outcomes without a set.

    def _without_sets(self) -> Choice:
        status = Status("Misconfigured" if not self.strict else "Error", "", self.plan.sets_trouble)
        return Choice(
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

    def _kept(self, status: Status) -> Choice:
        available = self._available()
        return Choice(
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
        self, available: int, chosen: int, unscheduled: int, status: Status, ranked: _Ranked | None
    ) -> tuple[StatusCondition, ...]:
        return conditions(
            asked_sets=self.selection.cluster_sets,
            bindings=len(self.plan.valid),
            eligible=self.plan.eligible,
            available=available,
            matched=None if ranked is None or ranked.matched is None else len(ranked.matched),
            passed=None if ranked is None or ranked.passed is None else len(ranked.passed),
            chosen=chosen,
            unscheduled=unscheduled,
            wanted=self.selection.wanted,
            code=status.code,
            plugin=status.plugin,
            message=status.message,
            strict=self.strict,
            standing=len(self.held_ranks),
        )

    def _find_requeue(self, ranked: _Ranked) -> None:
        """OCM looks at the clusters that stand decided, whatever has become of them. We have looked at every candidate already,
        and look at the scores that will expire."""
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
    """The first moment past it, in nanoseconds."""
    return NEVER_NS if us >= _FAR_US else (us + 1) * 1000


def _misconfigured(trouble: Trouble) -> Status:
    return Status("Misconfigured", trouble.plugin, trouble.message)


def _as_unknown(scores: Scores) -> Scores:
    """Without an entry for whom nothing is known."""
    if scores.known is None or scores.known.all():
        return scores
    return Scores(
        scores.name, scores.weight, scores.values, scores.known, scores.known, scores.expired, scores.next_expiry_us
    )
