"""Audit replay: decide every recorded round again, and compare bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from wharfinger.kernel.decider import Decider, Decision, S
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Head, Round
from wharfinger.kernel.step import step


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a replay and the history part: the first difference of a round.

    `what`: `decision`, `count`, `profile`, `hash`, `time` or `chain`. `recorded` and `replayed` show both, shortened.
    """

    stream: str
    round: int
    seq: int
    what: str
    recorded: str
    replayed: str


@dataclass(slots=True)
class AuditResult:
    stream: str
    rounds: int = 0
    decisions: int = 0
    inputs: int = 0
    divergences: list[Divergence] = field(default_factory=list)


class Audit(Generic[S]):
    """One stream being decided again, a round at a time, on a state that stands where `head` does.

    After a divergence the *recorded* history goes on: later rounds are compared from what was recorded, and a state that
    has parted is said to have parted, never quietly mended.
    """

    def __init__(self, decider: Decider[S], state: S, head: Head) -> None:
        self.state = state
        self.head = head
        self.result = AuditResult(head.stream)
        self._decider = decider

    def replay(self, recorded: RecordedRound) -> None:
        """Decide the round that follows the head again; the head moves to its end."""
        r, head, result = recorded.round, self.head, self.result
        if r.prev_hash != head.hash:
            self._part(r, "chain", r.prev_hash.hex()[:16], head.hash.hex()[:16])
        if r.at < head.at:
            self._part(r, "time", str(r.at), f"not before {head.at}")
        base = Head(r.stream, r.number - 1, r.first_seq - 1, r.prev_hash, r.epoch, r.at, head.snapshot)
        again = step(self._decider, self.state, base, recorded.events, r.at, r.basis, r.snapshot, r.engine)
        # The hash says what was decided then; the rows beside it could have been changed since.
        if again.hash != r.hash or not _same(r.decisions, again.decisions):
            result.divergences.append(_first_difference(r, again))
        result.rounds += 1
        result.inputs += len(r.inputs)
        result.decisions += len(r.decisions)
        self.head = r.head()

    def _part(self, r: Round, what: str, recorded: str, replayed: str) -> None:
        self.result.divergences.append(Divergence(r.stream, r.number, r.first_seq, what, recorded, replayed))


def audit(decider: Decider[S], state: S, head: Head, rounds: Iterable[RecordedRound]) -> AuditResult:
    """Replay `rounds`, which follow `head`, on `state`."""
    auditing = Audit(decider, state, head)
    for recorded in rounds:
        auditing.replay(recorded)
    return auditing.result


def _same(recorded: Sequence[Decision], replayed: Sequence[Decision]) -> bool:
    return len(recorded) == len(replayed) and all(map(_alike, recorded, replayed))


def _alike(a: Decision, b: Decision) -> bool:
    """`data` is left out: it is what `body` says, and comparing bytes is what an audit is for."""
    return (
        a.body == b.body
        and a.subject == b.subject
        and a.outcome == b.outcome
        and a.cause == b.cause
        and a.type == b.type
        and a.seq == b.seq
        and a.id == b.id
    )


def _first_difference(r: Round, again: Round) -> Divergence:
    for a, b in zip(r.decisions, again.decisions, strict=False):
        if not _alike(a, b):
            return Divergence(r.stream, r.number, a.seq, "decision", _show(a), _show(b))
    recorded, replayed = len(r.decisions), len(again.decisions)
    if recorded != replayed:
        first_extra = r.first_seq + min(recorded, replayed)
        return Divergence(r.stream, r.number, first_extra, "count", f"{recorded} decisions", f"{replayed} decisions")
    if r.profile != again.profile:
        return Divergence(r.stream, r.number, r.first_seq, "profile", r.profile, again.profile)
    return Divergence(r.stream, r.number, 0, "hash", r.hash.hex()[:16], again.hash.hex()[:16])


def _show(d: Decision) -> str:
    return f"{d.type} {d.subject} {d.outcome}: {d.body.decode(errors='replace')[:400]}"
