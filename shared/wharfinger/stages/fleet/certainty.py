"""Decides within certain capacity, or lets a request wait for the next capacity count.

Between two counts of a cluster, the stream knows how much other classes took in total, but not on
which nodes. So an estimate can be too high. A decision that needs more than fits for certain
(`Estimates.certain`) is therefore taken within certain capacity, perhaps in other clusters. Where
certain capacity does not suffice, but the estimates would, the request waits for a count that
includes the latest decisions. It waits for at most `FleetDecider.patience_s`. After that it is
decided on the estimates, and the cluster makes the final decision. For replicas that a cluster has
accepted but not bound to nodes it waits a third of that time, because they may wait for something
else. Requests of a lower priority wait with it, so that they do not take the capacity.

In its first `EARLY_S` seconds a request waits while no cluster is known, or while a feasible
cluster has not reported its capacity: the stream may read bindings before clusters and counts.
Otherwise the clusters whose counts are read first would get all replicas of a new fleet.

Clusters whose pools can add nodes count as certain: what does not fit there waits for its node. A
decision over more than `CLUSTERS_MAX` clusters is not checked: its share of each is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from wharfinger.domain.time import SECOND
from wharfinger.engine.fleet.decide import Solution, decide
from wharfinger.engine.fleet.question import Question, Term, Terms
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.columns import MANY, Array
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.state.pending import Positions
from wharfinger.stages.fleet.state.quotas import EXCEEDED

CLUSTERS_MAX = 256
"""A decision over more clusters than this is taken on the estimates."""

EARLY_S = 3
"""For how many seconds a request waits that arrives before the facts about clusters, within the
patience."""

Awaited = Literal["clusters", "first-counts", "counts"]
"""What a request waits for: a cluster, while none is known; the first count of a cluster; a count
that includes the latest decisions."""


def decide_surely(
    state: FleetState, record: BindingState, question: Question
) -> tuple[Question, Solution, Awaited | Literal[""]]:
    """Decide the question and prefer capacity that is certain. An estimate may be too high, because
    it is not known which nodes recently decided replicas will use. The certain capacity of a
    cluster is a lower bound of what fits there.

    - If the request is only a few seconds old, the binding waits for feasible clusters that have
      not reported yet.
    - If the answer on the estimates needs no more than certain capacity, use that answer. An answer
      with more than 256 clusters is always used.
    - Otherwise decide again with each estimate lowered to certain capacity. If that finds a place,
      use it. Example: cluster a has estimate 10, of which 4 are certain; in cluster b 8 are
      certain. On the estimates, 6 replicas go to a. On certain capacity, they may go to b.
    - Otherwise the binding waits for the next capacity report, if it has not waited too long. After
      that, use the answer on the estimates; for a binding that lost replicas, use the refusal on
      certain capacity.

    Strict placements, bindings with components, objects without replicas, and streams without a
    waiting time (`patience_us` is 0) are decided on the estimates only.

    Return (question that was answered, its solution, what the binding should wait for instead of
    being decided now; empty: nothing). The question is `question` itself, or a copy with lowered
    estimates.
    """
    solution = decide(question)
    looks = state.patience_us and question.counted and not record.sets
    if not looks or question.placement.strict:
        return question, solution, ""
    if early := _awaited_early(state, record, solution):
        return question, solution, early
    certain = CertainCapacity(state, record)
    if _is_sure(certain, question, solution.answer.targets):
        return question, solution, ""
    within = msgspec.structs.replace(
        question, terms=SureTerms(certain, question.terms), new_nodes=None, beyond=None
    )
    sure = decide(within)
    if not sure.answer.reason:
        return within, sure, ""
    if waits_for_count(state, record):
        return question, solution, "counts"
    return (within, sure, "") if record.shrunk else (question, solution, "")


def _awaited_early(
    state: FleetState, record: BindingState, solution: Solution
) -> Awaited | Literal[""]:
    """Return what a new request waits for, because its answer would be premature: the first
    cluster, while the stream knows none, or the first count of a feasible cluster that has not
    reported its capacity. Empty: nothing."""
    if not record.asked or not _is_younger(state, record, EARLY_S * SECOND):
        return ""
    if not state.order:
        return "clusters"
    if not state.cluster_index.uncounted:
        return ""
    return "first-counts" if any(True for _ in uncounted(state, solution)) else ""


def uncounted(state: FleetState, solution: Solution) -> Iterator[str]:
    """Yield the feasible clusters that have not reported their capacity, term by term."""
    for steps in solution.steps:
        for name in steps.term.feasible.names:
            if name in state.cluster_index.uncounted:
                yield name


def uncertain(state: FleetState, record: BindingState, question: Question) -> Iterator[str]:
    """Yield the feasible clusters whose guaranteed capacity is below their estimate, term by term.
    The request waits for the next counts of these clusters."""
    certain = CertainCapacity(state, record)
    for place in range(len(question.terms)):
        term = question.terms[place]
        sure_of = certain.at(_positions(term))
        for name, fits, sure in zip(term.feasible.names, term.estimates, sure_of, strict=True):
            if fits > 0 and sure < fits:
                yield name


def waits_for_count(state: FleetState, record: BindingState) -> bool:
    """Return whether the binding may wait for the next capacity count. It may while its request is
    younger than the patience; without an open request, it may while it waits for capacity anyway. A
    binding that was refused because of its quota, or that lost replicas, may not wait."""
    if record.asked:
        return _is_younger(state, record, state.patience_us)
    return record.refused not in ("", EXCEEDED) and not record.shrunk


def next_limit(asked_at: Micros, clock: Micros, patience_us: Micros) -> Micros:
    """Return the next time after `clock` at which a time limit of a request ends that was made at
    `asked_at` and waits, in microseconds. Its limits are `EARLY_S`, a third of the patience, and
    the patience. Where all of them are over, return the last one."""
    limits = (EARLY_S * SECOND, patience_us // 3, patience_us)
    ends = [asked_at + min(limit, patience_us) for limit in limits]
    return next((end for end in sorted(ends) if end > clock), ends[-1])


def _is_younger(state: FleetState, record: BindingState, limit_us: Micros) -> bool:
    return state.clock < record.asked_at + min(limit_us, state.patience_us)


def _is_sure(certain: CertainCapacity, question: Question, targets: Mapping[str, int]) -> bool:
    if len(targets) > CLUSTERS_MAX:
        return True
    held, state = question.held, certain.state
    more = {name: n - held.get(name, 0) for name, n in targets.items() if n > held.get(name, 0)}
    if not more:
        return True
    positions: Positions = [state.clusters[name].position for name in more]
    if len(more) >= MANY and state.estimates.wide:
        positions = np.array(positions, np.int64)
    return all(
        n <= fits or _gives_way(state, certain.record, question, name, n)
        for (name, n), fits in zip(more.items(), certain.at(positions), strict=True)
    )


def _gives_way(
    state: FleetState, record: BindingState, question: Question, name: str, more: int
) -> bool:
    """Return whether the `more` replicas, which exceed certain capacity, may fit if the cluster
    preempts replicas of a lower priority. The cluster decides that."""
    if question.retry or question.beyond is None or state.clusters[name].room is None:
        return False
    return more > state.fits(record, state.clusters[name]) and question.beyond(name) > 0


class CertainCapacity:
    """How many more of the binding's replicas certainly fit in each cluster."""

    def __init__(self, state: FleetState, record: BindingState) -> None:
        self.state, self.record = state, record

    def at(self, positions: Positions) -> Sequence[int] | Array:
        """Of the clusters at these positions; a list for a list, an array for an array."""
        state, record = self.state, self.record
        young = bool(record.asked) and _is_younger(state, record, state.patience_us // 3)
        if state.estimates.wide:
            return state.estimates.certain(record, positions, young=young)
        everywhere = state.estimates.certain_everywhere(record, young=young)
        return [everywhere[i] for i in positions]


class SureTerms:
    """The affinity terms of a question, with the estimate of each cluster lowered to the capacity
    that is certain. Computed per term when it is read."""

    def __init__(self, certain: CertainCapacity, terms: Terms) -> None:
        self._certain, self._terms = certain, terms

    def __len__(self) -> int:
        return len(self._terms)

    def __getitem__(self, place: int, /) -> Term:
        term = self._terms[place]
        estimates, certain = term.estimates, self._certain.at(_positions(term))
        if isinstance(estimates, np.ndarray):
            lowered = np.where(estimates > 0, np.minimum(estimates, certain), estimates)
            return msgspec.structs.replace(term, estimates=lowered)
        some = [
            min(fits, sure) if fits > 0 else fits
            for fits, sure in zip(estimates, certain, strict=True)
        ]
        return msgspec.structs.replace(term, estimates=some)


def _positions(term: Term) -> Positions:
    """Return the positions of the feasible clusters, as a list where the estimates are one."""
    positions = term.feasible.positions
    if isinstance(term.estimates, np.ndarray) or isinstance(positions, list):
        return positions
    found: list[int] = positions.tolist()
    return found
