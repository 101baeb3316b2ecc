"""Decides where a binding goes: filter clusters, estimate capacity, select by the spread
constraints, divide the replicas.

`decide` is a pure function from a `Question` to an answer with its steps. The stage asks for brief
steps, which cost nothing beyond the decision. Explanations, plans and suggestions call the same
function for full ones, so no reason is computed a second way.

Affinity terms are alternatives: the active one is tried first, then those after it. Terms before
the active one are tried only in a fresh decision. If all fail, the refusal reports the first one
tried, because that is the preferred one.

A refused binding keeps its replicas and waits. Karmada (`Placement.strict`) removes them where no
cluster is feasible, and does not retry; an error in a policy then stops running workloads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import SpreadConstraint
from wharfinger.domain.reasons import FleetReason, ScheduleRefusal
from wharfinger.engine.fleet.assign import Offer, ReplicaDivision, Unassignable, divide, ranked
from wharfinger.engine.fleet.new_nodes import Raised, assign_on_new_nodes
from wharfinger.engine.fleet.question import Detail, Question, Term
from wharfinger.engine.fleet.room import cut_to_room, exceeds
from wharfinger.engine.fleet.select import ClusterCandidate, groups_by, homes_of
from wharfinger.rules.clusters.filters import all_refusals


class Answer(msgspec.Struct, frozen=True):
    """Holds the targets of a binding, or the reason why it is refused.

    `targets`: cluster -> replicas. For a refusal, the replicas that the binding keeps, or gets
      although others do not fit.
    `affinity`: the name of the affinity term.
    `reason`: the reason of the refusal; empty: `targets` hold all replicas that are wanted.
    `note`: a sentence for people: why the binding is refused, or how many replicas wait for new
      nodes, and where. May be empty.
    """

    targets: dict[str, int]
    affinity: str
    reason: ScheduleRefusal | Literal[""] = ""
    note: str = ""


class GroupStep(msgspec.Struct, frozen=True):
    """Holds one group of a spread constraint, with its score. `by`: region, zone, provider or a
    label. `members`: names of clusters, best first. A cluster in several zones is a member of the
    one zone that it counts for; with `Placement.strict` it is a member of each."""

    by: str
    name: str
    score: int
    members: tuple[str, ...]
    chosen: bool


class FullSteps(msgspec.Struct, frozen=True):
    """Holds the parts of an explanation that only a full answer computes.

    `refusals`: every cluster with all reasons why it is not feasible, in the order of the filters.
      The first reason is the recorded one. A feasible cluster has none.
    `ranking`: the feasible clusters, best first; empty if no clusters were selected.
    `groups`: the groups of every spread constraint except the one by cluster.
    """

    refusals: tuple[tuple[Cluster, tuple[FleetReason, ...]], ...]
    ranking: tuple[ClusterCandidate, ...] = ()
    groups: tuple[GroupStep, ...] = ()


class Steps(msgspec.Struct, frozen=True):
    """Holds the intermediate results of the decision for one affinity term.

    `term`: the feasible clusters and the estimates that the division used, including nodes that can
      be provisioned.
    `outcome`: the selection and division, or why they were not possible; None: no cluster is
      feasible.
    `answer`: the outcome, limited to the capacity of the clusters.
    """

    term: Term
    answer: Answer
    outcome: ReplicaDivision | Unassignable | None = None
    full: FullSteps | None = None

    @property
    def exhausted(self) -> int:
        """Returns how many feasible clusters cannot take one more replica. 0 unless the decision
        failed because too few replicas fit."""
        if not isinstance(self.outcome, Unassignable) or self.outcome.reason != "Unschedulable":
            return 0
        estimates = self.term.estimates
        return (
            int((estimates <= 0).sum())
            if isinstance(estimates, np.ndarray)
            else sum([n <= 0 for n in estimates])
        )


class Solution(msgspec.Struct, frozen=True):
    """Holds the answer, and the steps of each affinity term that was tried, in order. No steps: the
    request alone gives the answer (`settled_by_itself`), and no cluster was considered."""

    answer: Answer
    steps: tuple[Steps, ...] = ()

    @property
    def decisive(self) -> Steps | None:
        """Returns the steps that led to the answer; None: there are no steps."""
        for steps in self.steps:
            if steps.answer is self.answer:
                return steps
        return None


def decide(question: Question, detail: Detail = Detail.BRIEF) -> Solution:
    """Decides where the wanted replicas go. Tries the affinity terms in order and returns the first
    full assignment. If there is none, returns the answer of the first term that was tried."""
    if settled := settled_by_itself(question):
        return Solution(settled)
    tried: list[Steps] = []
    for place in range(first_term(question), len(question.terms)):
        steps = decide_term(question, question.terms[place], detail)
        tried.append(steps)
        if not steps.answer.reason:
            return Solution(steps.answer, tuple(tried))
    return Solution(tried[0].answer, tuple(tried))


def settled_by_itself(question: Question) -> Answer | None:
    """Returns the answer to a question that can be answered without looking at clusters. Returns
    None if the clusters are needed for a decision.

    - Negative replicas, or an error in the placement: the refusal InvalidPlacement. The binding
      keeps the replicas it holds.
    - Zero replicas of a workload: an answer without target clusters. An object without replicas
      (`counted` False) still needs a decision.
    """
    problem = (
        f"{question.replicas} replicas cannot be placed"
        if question.replicas < 0
        else question.problem
    )
    if problem:
        return Answer(dict(question.held), question.observed, "InvalidPlacement", problem)
    if question.replicas == 0 and question.counted:
        return Answer({}, question.observed, note="scaled to zero")
    return None


def first_term(question: Question) -> int:
    """Returns the index of the affinity term that is tried first: the active term
    (`Question.observed`). Returns 0 in a fresh decision, and if no term is active or the placement
    no longer has the active one."""
    terms = question.placement.affinities
    if question.fresh or len(terms) <= 1:
        return 0
    return next((i for i, term in enumerate(terms) if term.name == question.observed), 0)


def decide_term(question: Question, term: Term, detail: Detail = Detail.BRIEF) -> Steps:
    """Decides the binding under one affinity term: assigns the replicas to clusters and limits the
    result to capacity. If existing capacity does not suffice, nodes that node pools could create
    count as capacity too. Returns the answer together with the intermediate results.

    If no cluster is feasible, the answer is the refusal NoClusterFit. The binding then keeps the
    replicas it holds; with `strict` it loses these replicas.

    `term`: the affinity term with its feasible clusters, and how many more replicas fit into each.
    `detail`: BRIEF returns only what the decision itself computes. FULL also computes `Steps.full`,
      which is needed to explain the decision.
    """
    if not term.feasible.names:
        kept = {} if question.placement.strict else dict(question.held)
        answer = Answer(kept, term.affinity.name, "NoClusterFit", "no cluster is feasible")
        steps = Steps(term, answer)
    else:
        found = assign_on_new_nodes(question, term)
        steps = Steps(found.term, _answer(question, found), found.outcome)
    return (
        steps
        if detail is Detail.BRIEF
        else msgspec.structs.replace(steps, full=_in_full(question, steps))
    )


def _answer(question: Question, found: Raised) -> Answer:
    outcome, affinity = found.outcome, found.term.affinity.name
    if isinstance(outcome, Unassignable):
        return Answer(dict(question.held), affinity, outcome.reason, outcome.note)
    targets, short = within_room(question, found.term, outcome.replicas)
    if short:
        return Answer(targets, affinity, "Unschedulable", short)
    return Answer(targets, affinity, note=found.note(targets, question.held))


# Limiting a division to capacity, for the strategies that divide without it


def within_room(
    question: Question, term: Term, targets: dict[str, int]
) -> tuple[dict[str, int], str]:
    """Limits the targets to the capacity of the clusters, where the strategy did not consider
    capacity. Returns two parts: cluster -> replicas to assign now, and a sentence that says how
    many replicas wait (empty: none).

    `targets`: cluster -> replicas, as the strategy divided them.

    The capacity of a cluster is the number of replicas that it holds plus the number that still
    fit. What is limited:

    - Static weights and Duplicated, without `strict`: every cluster.
    - Static weights and Duplicated, with `strict`: as in Karmada, all targets are assigned even if
      they do not fit, with two exceptions. In a retry (a decision after clusters refused replicas)
      no cluster gets more than its capacity. Otherwise a cluster would get the replicas again that
      it has just refused. Under static weights, a silent cluster gets no more than it holds.
    - Component sets: only in a retry. Clusters that hold no set and have no capacity for one are
      dropped from the targets.
    - Other strategies: nothing, because these strategies divide within capacity.
    - Objects without replicas: nothing.

    Example: Duplicated, 5 replicas for A and for B, and only 3 fit into B. The result is A 5, B 3,
    and the sentence says that 2 replicas wait.
    """
    static = question.placement.replicas.weighed
    if question.sets and question.retry:
        return _sets_with_room(question, term, targets)
    looks = not question.counted or not (static or question.placement.replicas.type == "Duplicated")
    if looks:
        return targets, ""
    if not question.placement.strict:
        return _cut(question, term, targets)
    if not (question.retry or (static and question.silent)):
        return targets, ""
    out = (
        _without_growth_where_silent(question, term, targets)
        if static and question.silent
        else dict(targets)
    )
    if question.retry:
        out = _grown_by_what_fits(question, term, out)
    missing = sum(targets.values()) - sum(out.values())
    return out, f"{missing} replicas wait for room in their clusters" if missing > 0 else ""


def _cut(question: Question, term: Term, targets: dict[str, int]) -> tuple[dict[str, int], str]:
    """Limits the targets of a placement that is not strict to the capacity of the clusters. Returns
    two parts: cluster -> replicas to assign now, and a sentence that says how many replicas wait
    (empty: none).

    `targets`: cluster -> replicas, as static weights or Duplicated divided them.

    The capacity of a cluster is the number of replicas that it holds plus the number that still
    fit. `question.beyond` may allow more, for example where replicas of a lower priority could be
    preempted; it is not asked in a retry (a decision after clusters refused replicas).

    If `targets` are fewer than the replicas that are wanted and some clusters are silent, this
    comes first: each silent cluster is limited to what it holds, and the remaining replicas are
    divided again over the other clusters. Then the limit by capacity is applied. Replicas in no
    target wait.

    Example: Duplicated, 5 replicas for A and for B, and only 3 fit into B. The result is A 5, B 3,
    and 2 replicas wait.
    """
    fit, wanted = term.feasible, sum(targets.values())
    if question.placement.replicas.weighed:
        wanted = max(wanted, question.replicas)
        if sum(targets.values()) < wanted and question.silent:
            growing = {n: question.replicas for n in fit.names if n in question.silent}
            targets = _without_growth_where_silent(question, term, {**targets, **growing})
    if exceeds(question, fit.names, term.estimates, targets):
        targets = cut_to_room(question, fit.names, term.estimates, targets)
    missing = wanted - sum(targets.values())
    return targets, f"{missing} replicas wait for room in their clusters" if missing > 0 else ""


def _sets_with_room(
    question: Question, term: Term, targets: Mapping[str, int]
) -> tuple[dict[str, int], str]:
    """Drops, in a retry, the target clusters that hold no component set and have no capacity for
    one. Otherwise a set would go back to the cluster that has just refused it. Returns the
    remaining targets, and a sentence that says how many sets wait."""
    out = {n: 0 for n in targets if n in question.held or _estimate(term, n) > 0}
    missing = len(targets) - len(out)
    return out, f"{missing} sets wait for room in their clusters" if missing else ""


def _without_growth_where_silent(
    question: Question, term: Term, targets: Mapping[str, int]
) -> dict[str, int]:
    """Limits the target of each silent cluster to the number of replicas that the cluster holds.
    Returns all targets after the change: cluster -> replicas.

    The other replicas of the binding are divided again over all feasible clusters whose targets
    were not limited. This is repeated until no silent cluster gets more replicas than it holds. If
    a division fails, the clusters that were not limited keep their targets, so some replicas are in
    no target.

    `targets`: cluster -> replicas.

    Example: `targets` are A 3 and B 3; B is silent and holds 1. The result is A 5, B 1.
    """
    held, fit = question.held, term.feasible
    now, pinned = dict(targets), dict[str, int]()
    # a division without the limited clusters may raise another silent cluster
    while growing := {
        n: held.get(n, 0)
        for n, replicas in now.items()
        if n in question.silent and n not in pinned and replicas > held.get(n, 0)
    }:
        pinned |= growing
        others = [i for i, name in enumerate(fit.names) if name not in pinned]
        rest = msgspec.structs.replace(
            question, held={n: r for n, r in held.items() if n not in pinned}
        )
        offer = Offer(fit.clusters, fit.names, term.estimates).only(others)
        shares = divide(rest, offer, question.replicas - sum(pinned.values())) if others else None
        if shares is None or isinstance(shares, Unassignable):
            return {**now, **pinned}
        now = {n: r for n, r in {**shares.replicas, **pinned}.items() if r > 0}
    return now


def _grown_by_what_fits(
    question: Question, term: Term, targets: Mapping[str, int]
) -> dict[str, int]:
    """Limits each target, in a retry, to the replicas that the cluster holds plus those that fit.
    Clusters that are left with no replicas are removed."""
    held = question.held
    out = {
        name: min(n, held.get(name, 0) + max(0, _estimate(term, name)))
        for name, n in targets.items()
    }
    return {name: n for name, n in out.items() if n > 0}


def _estimate(term: Term, name: str) -> int:
    return int(term.estimates[term.feasible.at(name)])


# In full


def _in_full(question: Question, steps: Steps) -> FullSteps:
    query, clusters = steps.term.asked()
    refusals = tuple(
        [(c, tuple(all_refusals(query, c, c.name in question.held))) for c in clusters]
    )
    outcome = steps.outcome
    if outcome is None or outcome.chosen is None:
        return FullSteps(refusals)
    order = ranked(question, steps.term)
    names = [c.name for c in outcome.chosen]
    return FullSteps(refusals, tuple(order), _groups(question, order, names))


def _groups(
    question: Question, order: Sequence[ClusterCandidate], chosen: Sequence[str]
) -> tuple[GroupStep, ...]:
    placement = question.placement
    cluster = next((c for c in placement.spread if c.field == "cluster"), SpreadConstraint())
    found: list[GroupStep] = []
    for constraint in placement.spread:
        if constraint.field == "cluster":
            continue
        home = dict(zip([c.name for c in order], homes_of(order, constraint), strict=True))
        for group in groups_by(
            order, constraint, cluster, question.replicas, placement.replicas.type == "Divided"
        ):
            members = tuple(
                c.name for c in group.members if placement.strict or home[c.name] == group.name
            )
            if members:
                by = constraint.field or constraint.label
                used = any(name in chosen for name in members)
                found.append(GroupStep(by, group.name, group.score, members, used))
    return tuple(found)
