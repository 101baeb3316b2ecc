"""Audit replay: decide every recorded round again, and compare bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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

    `of_profile`: the decider of a recorded profile, for a writer may have been started with other settings since. Without
    it, and where it knows no such profile, `decider` goes on and the difference is a divergence.
    """

    def __init__(
        self, decider: Decider[S], state: S, head: Head, of_profile: Callable[[str], Decider[S]] | None = None
    ) -> None:
        self.decider = decider
        self.state = state
        self.head = head
        self.result = AuditResult(head.stream)
        self._of_profile = of_profile

    def replay(self, recorded: RecordedRound) -> None:
        """Decide the round that follows the head again; the head moves to its end."""
        r, head, result = recorded.round, self.head, self.result
        if r.profile != self.decider.profile:
            self._change_profile(r)
        if r.prev_hash != head.hash:
            self._part(r, "chain", r.prev_hash.hex()[:16], head.hash.hex()[:16])
        if r.at < head.at:
            self._part(r, "time", str(r.at), f"not before {head.at}")
        base = Head(r.stream, r.number - 1, r.first_seq - 1, r.prev_hash, r.epoch, r.at, head.snapshot)
        again = step(self.decider, self.state, base, recorded.events, r.at, r.basis, r.snapshot, r.engine)
        # The hash says what was decided then; the rows beside it could have been changed since.
        if again.hash != r.hash or not _same(r.decisions, again.decisions):
            result.divergences.append(_first_difference(r, again))
        result.rounds += 1
        result.inputs += len(r.inputs)
        result.decisions += len(r.decisions)
        self.head = r.head()

    def _change_profile(self, r: Round) -> None:
        """The writer's new settings came with a new process, which loaded its state; so does ours."""
        changed = self._of_profile(r.profile) if self._of_profile is not None else self.decider
        if changed.profile == r.profile:
            self.state = changed.load(r.stream, self.decider.dump(self.state))
            self.decider = changed

    def _part(self, r: Round, what: str, recorded: str, replayed: str) -> None:
        self.result.divergences.append(Divergence(r.stream, r.number, r.first_seq, what, recorded, replayed))


def audit(
    decider: Decider[S],
    state: S,
    head: Head,
    rounds: Iterable[RecordedRound],
    of_profile: Callable[[str], Decider[S]] | None = None,
) -> AuditResult:
    """Replay `rounds`, which follow `head`, on `state`."""
    auditing = Audit(decider, state, head, of_profile)
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
