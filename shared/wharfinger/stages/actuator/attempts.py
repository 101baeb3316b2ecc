"""When an open effect is sent, and when it is sent again.

This is all that an actuator remembers of what it sent. It only spares requests: without it the same
requests would be sent sooner, and their preconditions would answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from wharfinger.domain.actuation import Verb
from wharfinger.domain.time import SECOND, Micros
from wharfinger.stages.actuator.answers import ApiAnswer, Outcome, outcome_of
from wharfinger.stages.actuator.effects import EffectObject

FACT_S = 10.0
"""So long a fact may take after an answer; then the effect is looked at again."""

ACCEPTED_S_MAX = 300.0
"""The longest pause where each request is accepted and the object is as it was: a webhook of the
cluster may undo it, or a field that the server does not know is dropped."""

BLOCKED_S_MIN, BLOCKED_S_MAX = 5.0, 60.0
UNKNOWN_S_MIN, UNKNOWN_S_MAX = 0.5, 30.0
SLOWED_S_MAX = 60.0
"""The longest pause that a server may ask for: a proxy may name a day."""

REFUSED_S = 300.0
"""After this a refused effect is tried again: what refused it may have been changed."""

FORBIDDEN_S = 300.0
"""Of all effects in this cluster that need the right."""

MINUTE_US = 60 * SECOND
EVICTIONS_A_MINUTE = 10
"""Of running pods in one cluster. Of one workload one is evicted at a time."""

CHANGES_MAX = 5
"""An object that changes under us so many times in a row counts as refused."""

_MAY_BE_DONE = (Outcome.SENT, Outcome.UNKNOWN)

Key = tuple[str, EffectObject, str]


@dataclass(slots=True)
class RequestAttempt:
    """`count`: requests with this outcome in a row. `since`: when the first one of any outcome was
    answered. `due`: when the next one may be sent."""

    outcome: Outcome
    answer: ApiAnswer
    count: int
    since: Micros
    due: Micros


class Sendable(Protocol):
    """What may be sent. `right`: what is stopped where it is forbidden. `key`: by which attempts at
    the same are known; `workload`: as of an effect."""

    @property
    def verb(self) -> Verb: ...

    @property
    def right(self) -> str: ...

    @property
    def key(self) -> Key: ...

    @property
    def workload(self) -> str: ...


T = TypeVar("T", bound=Sendable)


@dataclass(slots=True)
class Attempts:
    made: dict[Key, RequestAttempt] = field(default_factory=dict)
    stopped: dict[str, Micros] = field(default_factory=dict)
    """Right -> until when nothing that needs it is sent, because it is missing."""
    evicted_at: list[Micros] = field(default_factory=list)
    """When evictions of running pods were accepted, or may have been, in the last minute."""

    def due(self, effects: Iterable[T], at: Micros, evicted: Collection[str] = ()) -> list[T]:
        """Of the open effects those that may be sent now. What is not open any more is forgotten.
        `evicted`: workloads of which an evicted pod is still terminating."""
        found = list(effects)
        self._forget({effect.key for effect in found})
        busy = {*evicted}
        unknown: dict[str, Key] = {}
        for effect in found:
            if not effect.workload or (made := self.made.get(effect.key)) is None:
                continue
            if made.outcome is Outcome.SENT and made.due > at:  # its fact may still come
                busy.add(effect.workload)
            elif made.outcome is Outcome.UNKNOWN:
                unknown.setdefault(effect.workload, effect.key)
        self.evicted_at = [when for when in self.evicted_at if at - when < MINUTE_US]
        left = EVICTIONS_A_MINUTE - len(self.evicted_at)
        due: list[T] = []
        for effect in found:
            made = self.made.get(effect.key)
            if self.stopped.get(effect.right, 0) > at or (made is not None and made.due > at):
                continue
            if effect.workload:
                if effect.workload in busy or left <= 0:
                    continue
                # It may have been carried out: no other one of the workload before that is known.
                if unknown.get(effect.workload, effect.key) != effect.key:
                    continue
                busy.add(effect.workload)
                left -= 1
            due.append(effect)
        return due

    def next_due(self, at: Micros) -> Micros | None:
        """When an effect that waits may be sent again."""
        dues = [*(made.due for made in self.made.values()), *self.stopped.values()]
        return min((due for due in dues if due > at), default=None)

    def answered(self, effect: Sendable, answer: ApiAnswer, at: Micros) -> RequestAttempt:
        return self.settled(effect, outcome_of(effect.verb, answer), answer, at)

    def settled(
        self, effect: Sendable, outcome: Outcome, answer: ApiAnswer, at: Micros
    ) -> RequestAttempt:
        before = self.made.get(effect.key)
        count = before.count + 1 if before is not None and before.outcome is outcome else 1
        if outcome is Outcome.CHANGED and count > CHANGES_MAX:
            outcome = Outcome.REFUSED
        if outcome is Outcome.FORBIDDEN:
            self.stopped[effect.right] = at + int(FORBIDDEN_S * SECOND)
        counted = before is not None and before.outcome in _MAY_BE_DONE
        if effect.workload and outcome in _MAY_BE_DONE and not counted:
            self.evicted_at.append(at)
        since = at if before is None else before.since
        due = at + int(_pause_s(outcome, count, answer.retry_after_s) * SECOND)
        made = RequestAttempt(outcome, answer, count, since, due)
        self.made[effect.key] = made
        return made

    def _forget(self, still_open: Collection[Key]) -> None:
        for key in [key for key in self.made if key not in still_open]:
            del self.made[key]


def _pause_s(outcome: Outcome, count: int, asked_s: float) -> float:
    match outcome:
        case Outcome.CHANGED:
            return 0.0
        case Outcome.BLOCKED:
            return asked_s or _doubled(BLOCKED_S_MIN, count, BLOCKED_S_MAX)
        case Outcome.SLOWED:
            asked_s = min(asked_s, SLOWED_S_MAX)
            return max(asked_s, _doubled(UNKNOWN_S_MIN, count, UNKNOWN_S_MAX))
        case Outcome.UNKNOWN:
            asked_s = min(asked_s, UNKNOWN_S_MAX)
            return max(asked_s, _doubled(UNKNOWN_S_MIN, count, UNKNOWN_S_MAX))
        case Outcome.REFUSED | Outcome.FORBIDDEN:
            return REFUSED_S
        case Outcome.SENT:
            return _doubled(FACT_S, count, ACCEPTED_S_MAX)
        case Outcome.REPEATED | Outcome.SUPERSEDED:
            return FACT_S


def _doubled(first: float, count: int, longest: float) -> float:
    return min(longest, first * 2.0 ** min(count - 1, 10))
