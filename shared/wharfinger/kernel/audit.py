"""Audit replay: decides every recorded round again and compares the bytes.

Two faults are possible: the rows are no longer what was written, or the code decides differently.
The hash shows which of them it is. If the rows give the recorded hash, the code differs; if the
replayed round gives it, the rows were changed. `divergence` then names the first step that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Generic

from wharfinger.kernel.decider import Decider, S
from wharfinger.kernel.divergence import (
    Blame,
    Divergence,
    RoundDifference,
    Step,
    alike,
    reworded,
    round_difference,
)
from wharfinger.kernel.hashing import hash_of
from wharfinger.kernel.rebase import rebase_of, rebase_round, rebased
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.round import ENGINE, Head, Round
from wharfinger.kernel.step import step

__all__ = ["Audit", "AuditResult", "Divergence", "EngineResult", "audit"]

EXCHANGED_INPUTS_MAX = 64
"""Of rounds with up to so many inputs every pair is tried, to see whether two were exchanged."""


@dataclass(slots=True)
class EngineResult:
    """The rounds that one version of the engine decided. `differing`: those that today's code
    decides otherwise. `reworded`: of another version, those with the same decisions and other
    explanations."""

    rounds: int = 0
    decisions: int = 0
    differing: int = 0
    reworded: int = 0


@dataclass(slots=True)
class AuditResult:
    """What was gone through so far; it grows while the audit goes on."""

    stream: str
    rounds: int = 0
    decisions: int = 0
    inputs: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    engines: dict[str, EngineResult] = field(default_factory=dict)


class Audit(Generic[S]):
    """The replay of one stream, round by round, on a state that corresponds to `head`.

    After a divergence the *recorded* history continues: later rounds are compared with what was
    recorded. When the decider's state has `parted` from the history, the caller can restore it by
    recovery and call `resume`; otherwise later differences are marked as possible consequences. It
    is never repaired silently.

    `of_profile`: returns the decider of a recorded profile, because the writer may have run with
    other settings. Without it, or for an unknown profile, `decider` continues and the difference is
    a divergence.
    """

    def __init__(
        self,
        decider: Decider[S],
        state: S,
        head: Head,
        of_profile: Callable[[str], Decider[S]] | None = None,
    ) -> None:
        self.decider = decider
        self.state = state
        self.head = head
        self.result = AuditResult(head.stream)
        self.parted = False
        self._of_profile = of_profile
        self._tally = EngineResult()
        self._engine = ""

    def replay(self, recorded: RecordedRound) -> None:
        """Repeats the round after the head, compares the result with the record, and moves the head
        to the round's end.

        Checked are the profile, the chain of hashes, the order of times, and the decisions. Every
        difference is added to `result`; exceptions of the decider are differences too.
        """
        r, head, result = recorded.round, self.head, self.result
        if r.profile != self.decider.profile:
            self._change_profile(r)
        if r.prev_hash != head.hash:
            self.part(r, "chain", r.prev_hash.hex()[:16], head.hash.hex()[:16])
        rebasing = rebase_of(recorded.events) is not None
        if r.at < head.at and not rebasing:
            self.part(r, "time", str(r.at), f"not before {head.at}")
        base = Head(
            r.stream, r.number - 1, r.first_seq - 1, r.prev_hash, r.epoch, r.at, head.snapshot
        )
        tally = self._tally if r.engine == self._engine else self._tally_of(r.engine)
        try:
            if rebasing:
                self.state = rebased(
                    self.decider, self.state, r.stream, recorded.events, r.at, self.decider.profile
                )
                again = rebase_round(
                    base, recorded.events, r.at, r.basis, self.decider.profile, r.snapshot, r.engine
                )
            else:
                again = step(
                    self.decider,
                    self.state,
                    base,
                    recorded.events,
                    r.at,
                    r.basis,
                    r.snapshot,
                    r.engine,
                )
        except Exception as error:
            # deciders assert what cannot be; a changed record, or a bug, makes it be
            self._fail(r, error, tally)
        else:
            # The hash says what was decided then; the rows beside it could have been changed since.
            if again.hash != r.hash or not _same(r, again):
                self._differ(r, again, tally)
        tally.rounds += 1
        tally.decisions += len(r.decisions)
        result.rounds += 1
        result.inputs += len(r.inputs)
        result.decisions += len(r.decisions)
        self.head = r.head()

    def fold(self, recorded: RecordedRound) -> None:
        """Folds the round after the head as recorded, without deciding again or comparing."""
        r = recorded.round
        if r.profile != self.decider.profile:
            self._change_profile(r)
        self.state = recover(self.decider, self.state, (recorded,))
        self.head = r.head()

    def resume(self, state: S) -> None:
        """Continues with `state`, which must have been recovered up to the head."""
        self.state, self.parted = state, False

    def part(self, r: Round, step: Step, recorded: str, replayed: str) -> None:
        """Adds a divergence of the round as a whole."""
        self.result.divergences.append(
            Divergence(
                r.stream,
                r.number,
                r.first_seq,
                step,
                recorded,
                replayed,
                engine=r.engine,
                follows=self.parted,
            )
        )

    def _change_profile(self, r: Round) -> None:
        """Continues with the decider of the round's profile, if it is known; the state is dumped
        and loaded, as at the restart of a writer with other settings."""
        changed = self._of_profile(r.profile) if self._of_profile is not None else self.decider
        if changed.profile == r.profile:
            self.state = changed.load(r.stream, self.decider.dump(self.state))
            self.decider = changed

    def _tally_of(self, engine: str) -> EngineResult:
        self._engine, self._tally = engine, self.result.engines.setdefault(engine, EngineResult())
        return self._tally

    def _fail(self, r: Round, error: Exception, tally: EngineResult) -> None:
        """Adds the exception as a divergence. The state counts as parted from the history, because
        it may have been changed in part."""
        blame: Blame = "decider" if hash_of(r) == r.hash else "record"
        found = f"{type(error).__name__}: {' '.join(str(error).split())}"
        self.result.divergences.append(
            Divergence(
                r.stream,
                r.number,
                r.first_seq,
                "failure",
                f"{len(r.decisions)} decisions",
                found,
                "",
                blame,
                r.engine,
                self.parted,
            )
        )
        tally.differing += blame == "decider"
        self.parted = True

    def _differ(self, r: Round, again: Round, tally: EngineResult) -> None:
        """Adds the first difference between the round and its replay.

        If the recorded rows still match the recorded hash, the decider is to blame, and the state
        counts as parted if the decisions differ. Other explanations by another version of the
        engine are only counted. Otherwise the record was changed later, and the replay continues
        with its own state.
        """
        as_written = hash_of(r) == r.hash
        if as_written and r.engine != ENGINE and reworded(r.decisions, again.decisions):
            tally.reworded += 1
            return
        blame: Blame = "decider" if as_written else "record"
        found = _found(r, again, as_written)
        self.result.divergences.append(
            Divergence(
                r.stream,
                r.number,
                found.seq,
                found.step,
                found.recorded,
                found.replayed,
                found.subject,
                blame,
                r.engine,
                self.parted,
            )
        )
        if as_written:
            tally.differing += 1
            self.parted = self.parted or not _same(r, again)


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


def _same(r: Round, again: Round) -> bool:
    return len(r.decisions) == len(again.decisions) and all(
        map(alike, r.decisions, again.decisions)
    )


def _found(r: Round, again: Round, as_written: bool) -> RoundDifference:
    """What came in is asked first: other inputs make other decisions."""
    if not as_written and again.hash != r.hash and (pair := _exchanged(r, again)) is not None:
        first, second = pair
        a, b = (r.inputs[place].id for place in pair)
        return RoundDifference(
            0, "", "input order", f"input {first} is {a}, input {second} is {b}", f"{b} before {a}"
        )
    found = round_difference(r.decisions, again.decisions)
    if found is not None:
        return found
    if r.profile != again.profile:
        return RoundDifference(r.first_seq, "", "profile", r.profile, again.profile)
    return RoundDifference(0, "", "hash", r.hash.hex()[:16], again.hash.hex()[:16])


def _exchanged(r: Round, again: Round) -> tuple[int, int] | None:
    """Which two inputs have to be put back for the rows to make the recorded hash; None: no two."""
    if len(r.inputs) > EXCHANGED_INPUTS_MAX:
        return None
    for first, second in combinations(range(len(r.inputs)), 2):
        refs = list(r.inputs)
        refs[first], refs[second] = refs[second], refs[first]
        if r.hash in (hash_of(r, refs), hash_of(again, refs)):
            return first, second
    return None
