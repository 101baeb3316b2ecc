"""Audit replay: decide every recorded round again, and compare bytes.

Two things can be wrong, and they look alike until the hash is asked: the rows are no longer what was written, or the code
no longer decides what it decided. Where the rows still make the recorded hash, it is the code; where the replayed round
makes it, it is the rows. `divergence` then says in which step the two parted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Generic

from wharfinger.kernel.decider import Decider, S
from wharfinger.kernel.divergence import Blame, Difference, Divergence, Step, alike, first_difference
from wharfinger.kernel.hashing import round_hash
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Head, InputRef, Round
from wharfinger.kernel.step import step

__all__ = ["Audit", "AuditResult", "Divergence", "EngineResult", "audit"]

EXCHANGED_INPUTS_MAX = 64
"""Of rounds with up to so many inputs every pair is tried, to see whether two were exchanged."""


@dataclass(slots=True)
class EngineResult:
    """The rounds that one version of the engine decided. `differing`: those that today's code decides otherwise."""

    rounds: int = 0
    decisions: int = 0
    differing: int = 0


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
    """One stream being decided again, a round at a time, on a state that stands where `head` does.

    After a divergence the *recorded* history goes on: later rounds are compared from what was recorded. Where the decider
    decided otherwise its state has `parted` from what was recorded; whoever can bring it there by recovery does so and says
    `resume`, else what follows is marked as possibly a consequence. It is never quietly mended.

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
        self.parted = False
        self._of_profile = of_profile
        self._tally = EngineResult()
        self._engine = ""

    def replay(self, recorded: RecordedRound) -> None:
        """Decide the round that follows the head again; the head moves to its end."""
        r, head, result = recorded.round, self.head, self.result
        if r.profile != self.decider.profile:
            self._change_profile(r)
        if r.prev_hash != head.hash:
            self.part(r, "chain", r.prev_hash.hex()[:16], head.hash.hex()[:16])
        if r.at < head.at:
            self.part(r, "time", str(r.at), f"not before {head.at}")
        base = Head(r.stream, r.number - 1, r.first_seq - 1, r.prev_hash, r.epoch, r.at, head.snapshot)
        tally = self._tally if r.engine == self._engine else self._tally_of(r.engine)
        try:
            again = step(self.decider, self.state, base, recorded.events, r.at, r.basis, r.snapshot, r.engine)
        except Exception as error:  # deciders assert what cannot be; a changed record, or a bug, makes it be
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

    def resume(self, state: S) -> None:
        """Go on with `state`, which was recovered to stand where the head does."""
        self.state, self.parted = state, False

    def part(self, r: Round, step: Step, recorded: str, replayed: str) -> None:
        """Note that the round as a whole is not as it must be."""
        self.result.divergences.append(
            Divergence(r.stream, r.number, r.first_seq, step, recorded, replayed, engine=r.engine, follows=self.parted)
        )

    def _change_profile(self, r: Round) -> None:
        """The writer's new settings came with a new process, which loaded its state; so does ours."""
        changed = self._of_profile(r.profile) if self._of_profile is not None else self.decider
        if changed.profile == r.profile:
            self.state = changed.load(r.stream, self.decider.dump(self.state))
            self.decider = changed

    def _tally_of(self, engine: str) -> EngineResult:
        self._engine, self._tally = engine, self.result.engines.setdefault(engine, EngineResult())
        return self._tally

    def _fail(self, r: Round, error: Exception, tally: EngineResult) -> None:
        """Nobody knows what became of the state."""
        blame: Blame = "decider" if _hash_of(r, r.inputs) == r.hash else "record"
        found = f"{type(error).__name__}: {' '.join(str(error).split())}"
        self.result.divergences.append(
            Divergence(
                r.stream, r.number, r.first_seq, "failure", f"{len(r.decisions)} decisions", found, "", blame, r.engine,
                self.parted,
            )
        )  # fmt: skip
        tally.differing += blame == "decider"
        self.parted = True

    def _differ(self, r: Round, again: Round, tally: EngineResult) -> None:
        """Who is to blame decides how it goes on: with the state that the recorded rows, or that the recorded hash speaks of."""
        as_written = _hash_of(r, r.inputs) == r.hash
        blame: Blame = "decider" if as_written else "record"
        found = _found(r, again, as_written)
        self.result.divergences.append(
            Divergence(
                r.stream, r.number, found.seq, found.step, found.recorded, found.replayed, found.subject, blame, r.engine,
                self.parted,
            )
        )  # fmt: skip
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
    return len(r.decisions) == len(again.decisions) and all(map(alike, r.decisions, again.decisions))


def _found(r: Round, again: Round, as_written: bool) -> Difference:
    """What came in is asked first: other inputs make other decisions."""
    if not as_written and again.hash != r.hash and (pair := _exchanged(r, again)) is not None:
        first, second = pair
        a, b = (r.inputs[place].id for place in pair)
        return Difference(0, "", "input order", f"input {first} is {a}, input {second} is {b}", f"{b} before {a}")
    found = first_difference(r.decisions, again.decisions)
    if found is not None:
        return found
    if r.profile != again.profile:
        return Difference(r.first_seq, "", "profile", r.profile, again.profile)
    return Difference(0, "", "hash", r.hash.hex()[:16], again.hash.hex()[:16])


def _exchanged(r: Round, again: Round) -> tuple[int, int] | None:
    """Which two inputs have to be put back for the rows to make the recorded hash; None: no two."""
    if len(r.inputs) > EXCHANGED_INPUTS_MAX:
        return None
    for first, second in combinations(range(len(r.inputs)), 2):
        refs = list(r.inputs)
        refs[first], refs[second] = refs[second], refs[first]
        if r.hash in (_hash_of(r, refs), _hash_of(again, refs)):
            return first, second
    return None


def _hash_of(r: Round, refs: Iterable[InputRef]) -> bytes:
    return round_hash(
        r.prev_hash,
        r.stream,
        r.number,
        r.epoch,
        r.at,
        r.engine,
        r.profile,
        tuple(refs),
        r.basis,
        r.decisions,
        r.snapshot,
    )
