"""Audit replay: decide every recorded round again, and compare bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from wharfinger.kernel.decider import Decider, Decision, S
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import step


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a replay and the history part: the first difference of a round.

    `what`: `decision`, `count`, `hash` or `chain`. `recorded` and `replayed` show both values, shortened.
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


def audit(decider: Decider[S], state: S, head: Head, rounds: Iterable[RecordedRound]) -> AuditResult:
    """Replay `rounds`, which follow `head`, on `state`. After a divergence the *recorded* history goes on: later rounds are
    compared from what was decided, and a state that has parted is said to have parted, never quietly mended."""
    result = AuditResult(head.stream)
    for recorded in rounds:
        r = recorded.round
        if r.prev_hash != head.hash:
            result.divergences.append(
                Divergence(r.stream, r.number, r.first_seq, "chain", r.prev_hash.hex()[:16], head.hash.hex()[:16])
            )
        base = Head(r.stream, r.number - 1, r.first_seq - 1, r.prev_hash, r.epoch, head.at, head.snapshot)
        again = step(decider, state, base, recorded.events, r.at, r.basis, r.snapshot, r.engine)
        if again.hash != r.hash:
            result.divergences.append(
                _first_difference(r.decisions, again.decisions, r.stream, r.number, r.hash, again.hash)
            )
        result.rounds += 1
        result.inputs += len(r.inputs)
        result.decisions += len(r.decisions)
        head = r.head()
    return result


def _first_difference(
    recorded: tuple[Decision, ...],
    replayed: tuple[Decision, ...],
    stream: str,
    number: int,
    recorded_hash: bytes,
    replayed_hash: bytes,
) -> Divergence:
    for a, b in zip(recorded, replayed, strict=False):
        if (a.type, a.subject, a.outcome, a.cause, a.body) != (b.type, b.subject, b.outcome, b.cause, b.body):
            return Divergence(stream, number, a.seq, "decision", _show(a), _show(b))
    if len(recorded) != len(replayed):
        longer = recorded if len(recorded) > len(replayed) else replayed
        extra = longer[min(len(recorded), len(replayed))]
        return Divergence(
            stream, number, extra.seq, "count", f"{len(recorded)} decisions", f"{len(replayed)} decisions"
        )
    return Divergence(stream, number, 0, "hash", recorded_hash.hex()[:16], replayed_hash.hex()[:16])


def _show(d: Decision) -> str:
    return f"{d.type} {d.subject} {d.outcome}: {d.body.decode(errors='replace')[:400]}"
