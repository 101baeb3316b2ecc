"""The steps that a decision tells are those that made it: without a told reason, weight or estimate
the outcome is another.

Every decision of generated fleets is asked for once more with full detail, at the moment when it is
taken, and its steps are held against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from tests.fleets import a_fleet

from wharfinger.engine.fleet import webster as seats
from wharfinger.engine.fleet.assign import ReplicaDivision, Unassignable
from wharfinger.engine.fleet.decide import Solution, Steps, decide, decide_term
from wharfinger.engine.fleet.division import Shares, names_descend
from wharfinger.engine.fleet.question import Detail, Question, Term
from wharfinger.engine.fleet.webster import webster
from wharfinger.events.decisions import Explanation
from wharfinger.rules.clusters.admission import admission
from wharfinger.rules.clusters.filters import first_refusal
from wharfinger.stages.fleet import columns, explain, solve
from wharfinger.stages.fleet.solve import SolveResult
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.suggestions import Suggestions


class Tally(Counter[str]):
    """How often each law had something to say."""


@pytest.mark.parametrize("arrays", [False, True], ids=["lists", "arrays"])
@pytest.mark.parametrize("first", range(0, 6, 3))
def test_what_is_told_is_what_decided(
    first: int, arrays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if arrays:
        monkeypatch.setattr(columns, "FEW", 0)
        monkeypatch.setattr(seats, "FEW", 0)
    seen = Tally()
    verdict_of = solve._verdict

    def told(state: FleetState, question: Question, solution: Solution) -> SolveResult:
        record = next(one for one in state.bindings.values() if one.spec.uid == question.uid)
        full = decide(question, Detail.FULL)
        if [s.term.affinity for s in full.steps] == [s.term.affinity for s in solution.steps]:
            assert _plain(full) == _plain(solution)
        for steps in full.steps:
            _filtered_as_told(question, steps, seen)
            _divided_as_told(question, steps, seen)
            _suggested_as_it_is(state, record, question, steps, seen)
        verdict = verdict_of(state, question, solution)
        if solution.decisive is not None:
            _recorded_as_decided(question, verdict.explanation, solution.decisive, seen)
        return verdict

    monkeypatch.setattr(solve, "_verdict", told)
    for number in range(first, first + 3):
        a_fleet(number, happenings=40, quotas=number == 1)
    assert (
        min(
            seen[law]
            for law in ("refused", "divided", "weighed", "estimated", "suggested", "recorded")
        )
        > 0
    ), seen


def _plain(solution: Solution) -> object:
    outcomes = [
        s.outcome.replicas if isinstance(s.outcome, ReplicaDivision) else s.outcome
        for s in solution.steps
    ]
    return solution.answer, [s.answer for s in solution.steps], outcomes


def _filtered_as_told(question: Question, steps: Steps, seen: Tally) -> None:
    """Excluded are exactly those with a reason, and with their reasons undone they are not."""
    fit, full = steps.term.feasible, steps.full
    assert full is not None
    query, clusters = steps.term.asked()
    assert [facts for facts, _ in full.refusals] == list(clusters)
    assert [reasons[0] if reasons else None for _, reasons in full.refusals] == fit.verdicts
    assert [facts.name for facts, reasons in full.refusals if not reasons] == fit.names
    assert Counter(reasons[0] for _, reasons in full.refusals if reasons) == fit.refused
    if not steps.answer.reason:
        assert set(steps.answer.targets) <= set(fit.names)
    for facts, reasons in full.refusals:
        if reasons:
            seen["refused"] += 1
            existing = facts.name in question.held
            found = admission(query, facts, existing)
            assert found is None or (
                found.way and first_refusal(found.query, found.cluster, existing) is None
            )


def _divided_as_told(question: Question, steps: Steps, seen: Tally) -> None:
    outcome, term = steps.outcome, steps.term
    if isinstance(outcome, Unassignable):
        assert steps.answer.reason == outcome.reason
        return
    if outcome is None or not question.counted:
        return
    for shares in outcome.shares:
        seen["divided"] += 1
        assert sum(shares.replicas.values()) == sum(shares.kept.values()) + shares.seats * (
            len(shares.among) if shares.case == "duplicated" else 1
        )
        if shares.case == "within room":
            _within_room_as_told(question, term, shares)
        elif shares.case not in ("duplicated", "equal") and not question.placement.replicas.bounded:
            _weighed_as_told(question, shares, seen)
    if [shares.case for shares in outcome.shares] in (["first"], ["scale up"]):
        (shares,) = outcome.shares
        told = [int(term.estimates[term.feasible.at(name)]) for name in shares.among]
        assert told == [int(n) for n in shares.by]
        if shares.seats:
            seen["estimated"] += 1
            nothing = msgspec.structs.replace(term, estimates=[0] * len(term.feasible))
            alone = msgspec.structs.replace(question, new_nodes=None)
            assert decide_term(alone, nothing).answer.reason, (
                "without what was told to fit there is no such division"
            )


def _within_room_as_told(question: Question, term: Term, shares: Shares) -> None:
    """No cluster gets more than it has room for, and what none gets fits nowhere."""
    beyond = question.beyond if question.beyond and not question.retry else lambda _: 0
    room = {
        name: question.held.get(name, 0)
        + max(0, int(term.estimates[term.feasible.at(name)]))
        + beyond(name)
        for name in shares.among
    }
    assert all(n <= room[name] for name, n in shares.replicas.items())
    if sum(shares.replicas.values()) < question.replicas and len(term.affinity.overflow) == 0:
        weighed = zip(shares.among, shares.by, strict=True)
        assert all(shares.replicas.get(name, 0) == room[name] for name, w in weighed if w > 0)


def _weighed_as_told(question: Question, shares: Shares, seen: Tally) -> None:
    """The told weights give the told seats, and the largest winner without its weight gets none."""
    names, weights = list(shares.among), [int(n) for n in shares.by]
    given = _seats(question, names, weights, shares.seats)
    told = {name: shares.replicas.get(name, 0) - shares.kept.get(name, 0) for name in names}
    assert dict(zip(names, given, strict=True)) == told
    if shares.seats and sum(n > 0 for n in weights) > 1:
        seen["weighed"] += 1
        best = max(range(len(names)), key=given.__getitem__)
        weights[best] = 0
        assert _seats(question, names, weights, shares.seats)[best] == 0 < given[best]


def _seats(
    question: Question, names: Sequence[str], weights: Sequence[int], count: int
) -> list[int]:
    return webster(names, weights, count, names_descend(question.uid))


def _suggested_as_it_is(
    state: FleetState, record: BindingState, question: Question, steps: Steps, seen: Tally
) -> None:
    """Of a binding that is refused, fewer replicas are suggested only where they are placed, and
    one more of them is not."""
    if not isinstance(steps.outcome, Unassignable) or question.replicas < 1:
        return
    for way in Suggestions(state, record, question, steps).for_all():
        if [change.kind for change in way] == ["replicas"]:
            seen["suggested"] += 1
            count = question.replicas - way[0].amount
            fewer, more = (
                msgspec.structs.replace(question, replicas=n) for n in (count, count + 1)
            )
            assert not decide_term(fewer, steps.term).answer.reason
            assert decide_term(more, steps.term).answer.reason


def _recorded_as_decided(
    question: Question, recorded: Explanation, steps: Steps, seen: Tally
) -> None:
    fit = steps.term.feasible
    assert (recorded.candidates, recorded.feasible) == (len(fit.verdicts), len(fit))
    assert {k: n for k, n in recorded.refused.items() if k != "NoCapacity"} == fit.refused
    assert recorded.refused.get("NoCapacity", 0) == steps.exhausted
    if not isinstance(steps.outcome, ReplicaDivision):
        assert recorded.best == {}
        return
    estimates = dict(zip(fit.names, map(int, steps.term.estimates), strict=True))
    targets = steps.answer.targets
    best: dict[str, int] = {}
    for part in (
        [n for n in fit.names if n in targets],
        [n for n in fit.names if n not in targets],
    ):
        if part:
            first = max(part, key=lambda name: (name in question.held, estimates[name]))
            best[first] = min(estimates[first], explain.MAX_SHOWN)
    assert recorded.best == best
    seen["recorded"] += len(best)
