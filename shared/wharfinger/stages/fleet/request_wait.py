"""Why a request is not answered yet, and when it is answered at the latest.

A request that waits has no decision that could be explained. But all that made it wait is in the
state after the round: `wait_of` asks `certainty` once more what the request waits for, and then at
each of its time limits, until it would be decided. For explanations only: a decision never depends
on what is said here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from wharfinger.engine.fleet.decide import decide
from wharfinger.engine.fleet.question import Question
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.certainty import Awaited, next_limit, uncertain, uncounted
from wharfinger.stages.fleet.drafts import present
from wharfinger.stages.fleet.groups import grouped
from wharfinger.stages.fleet.state import BindingState, FleetState

WaitsFor = Awaited | Literal["nodes", "requests", "round", "reading"]
"""`nodes`: replicas that a cluster accepted are on no node yet. `requests`: other requests, which
come before it and wait, or got in the same round what it waited for. `round`: the last round ended
at its bound of work before it. `reading`: the stage has not read it yet, as far as is recorded."""


@dataclass(frozen=True, slots=True)
class RequestWait:
    """Why a request waits. `clusters`: those that must be counted, where it waits for counts, or
    must place, where it waits for nodes. `since`: when it was taken in. `due`: when it is decided
    without what it waits for, unless other requests make it wait longer. `until`: when it is
    decided at the latest. Both are None where it is decided in the next round, which is due at
    once. Times are in microseconds."""

    awaits: WaitsFor
    clusters: tuple[str, ...]
    since: Micros
    due: Micros | None = None
    until: Micros | None = None


def wait_of(
    state: FleetState, record: BindingState, patience_us: Micros, *, full: bool = False
) -> RequestWait | None:
    """Return why the request of the binding `record` was not answered in the last round, and when
    it will be answered at the latest. None: the binding has no open request.
    `state`: the state after that round. `patience_us`: how long a request may wait for capacity
    reports, in microseconds. `full`: the round ended because it had decided as many bindings as one
    round may. The questions and the clock of `state` are the same after the call as before."""
    if not record.asked or record.withdrawn or record.left_alone:
        return None
    since, questions, clock = record.asked_at, state.questions, state.clock
    state.patience_us = patience_us
    try:
        awaited, question = _awaited(state, record)
        if question is None or not awaited:
            if full or not patience_us:
                return RequestWait("round", (), since)
            again = next_limit(record.asked_at, clock, patience_us)
            return RequestWait("requests", (), since, again, since + patience_us)
        clusters = tuple(dict.fromkeys(_clusters(state, record, question, awaited)))
        due, until = _due(state, record, patience_us), since + patience_us
    finally:
        state.questions, state.clock = questions, clock
    if awaited == "counts" and due < until:
        late = tuple([name for name in clusters if _has_unplaced(state, record, name)])
        return RequestWait("nodes", late, since, due, until)
    return RequestWait(awaited, clusters, since, due, until)


def needs_others(record: BindingState) -> bool:
    """Whether what its request waits for cannot be told without the other bindings: its group
    excludes clusters, or it may preempt others."""
    return grouped(record.spec) or record.spec.priority > 0


def _awaited(
    state: FleetState, record: BindingState
) -> tuple[Awaited | Literal[""], Question | None]:
    """What the request waits for by itself, and the question that was asked. No question: it is
    decided without one."""
    if record.only_pod_metadata_changed:
        return "", None
    state.questions = []
    fresh = record.applied is not None and record.applied_token != record.spec.reschedule
    verdict = present(state, record, fresh=fresh)
    return verdict.waits, state.questions[-1]


def _clusters(
    state: FleetState, record: BindingState, question: Question, awaited: Awaited
) -> Iterable[str]:
    match awaited:
        case "clusters":
            return ()
        case "first-counts":
            return uncounted(state, decide(question))
        case "counts":
            return uncertain(state, record, question)


def _has_unplaced(state: FleetState, record: BindingState, name: str) -> bool:
    counted = state.clusters[name].capacity
    return counted is not None and counted.unplaced.get(record.class_key, 0) > 0


def _due(state: FleetState, record: BindingState, patience_us: Micros) -> Micros:
    """The first of its time limits at which it would not wait any more."""
    last = record.asked_at + patience_us
    while state.clock < last:
        state.clock = next_limit(record.asked_at, state.clock, patience_us)
        if not _awaited(state, record)[0]:
            break
    return state.clock
