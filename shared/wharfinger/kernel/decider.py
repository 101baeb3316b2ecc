"""What a stage must be to be run, recovered and replayed: a state that only two folds may change, and a `decide` that
reads it.

`fold_input` takes what the world says, `fold_decision` what the stream itself decided. `decide` is a generator: it yields
one draft at a time, and the kernel numbers it and folds it into the state *before* the generator goes on, so that the
next draft sees the effect of the last. Recovery calls the two folds only; it never decides. All three are functions of
their arguments: no clock, no chance, no set order.

States are changed in place (copying columns for every round would cost more than deciding). That is safe because nobody
but the stage reads a state, and a round that does not reach the ledger is followed by dropping the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable
from uuid import UUID

import msgspec

from wharfinger.domain.scheduler import Extender
from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)

Micros = int
"""Microseconds since the epoch, UTC. A round's `at` is the only clock a decision sees."""


class Draft(msgspec.Struct, frozen=True):
    """A decision before it has a number.

    `subject`: binding, node or cluster. `outcome`: one word for people and indexes (`scheduled`, `refused`, ...).
    `cause`: the id of the event or decision that made it necessary; None: the passing of time.
    """

    data: Value
    subject: str
    outcome: str
    cause: UUID | None = None


class Decision(msgspec.Struct, frozen=True):
    """A numbered decision of a stream. `body` is the canonical JSON of `data`: the bytes that are stored and hashed."""

    stream: str
    seq: int
    id: UUID
    type: str
    subject: str
    outcome: str
    cause: UUID | None
    data: Value
    body: bytes


class Ask(Value, frozen=True):
    """A question to an extender: `body` (JSON text) is posted to its `url`/`verb`. `id`: of the decision to ask it, so that no
    answer is taken for that of another question, equal or not."""

    id: str
    extender: Extender
    verb: str
    body: str


class Decider(Protocol[S]):
    """A stage's pure half. `profile` names the settings that reach its decisions; they are hashed with every round."""

    @property
    def profile(self) -> str: ...

    def initial(self, stream: str) -> S: ...

    def fold_input(self, state: S, event: Event[Value], at: Micros) -> None:
        """Take a fact in. Events that say nothing new (already seen seq, unknown subject) change nothing."""
        ...

    def fold_decision(self, state: S, decision: Decision, at: Micros) -> None: ...

    def is_news(self, state: S, event: Event[Value]) -> bool:
        """False when the state has all that the event says already (its seqs were seen): it need not become an input.

        Only a shortcut for redelivery: folding such an event would change nothing.
        """
        ...

    def decide(self, state: S, at: Micros) -> Iterator[Draft]:
        """All that is to be decided now, in a fixed order. Yields nothing when nothing is to be done."""
        ...

    def rest(self, state: S, decisions: int, profile: str) -> None:
        """A round ended, with so many decisions made under `profile`. `decide` does this by itself. Whoever folds recorded
        decisions does it after each round, so that a state that decided and a recovered one look at the same things next.
        """
        ...

    def next_due(self, state: S) -> Micros | None:
        """When time alone will make a decision necessary: the writer then feeds a tick."""
        ...

    def dump(self, state: S) -> dict[str, bytes]:
        """The state as named sections of canonical bytes: equal states, equal bytes. Caches are not part of it."""
        ...

    def load(self, stream: str, sections: Mapping[str, bytes]) -> S:
        """The state whose `dump` gave `sections`; it decides exactly as the original would."""
        ...


@runtime_checkable
class Incremental(Protocol[S_contra]):
    """A decider that can also dump what changed, where dumping the whole state would cost too much to be done often."""

    def note_changes(self, state: S_contra, everything: bool) -> None:
        """Note from now on what changes; `everything`: as if all of the state had just changed."""
        ...

    def changes(self, state: S_contra) -> tuple[dict[str, bytes], dict[str, list[int]]]:
        """What changed since it was last asked: sections, and of those that hold some of many things the hashes of the names
        of all that were touched. A name that is counted and not there is of a thing that is gone."""
        ...


@runtime_checkable
class Asking(Protocol[S_contra]):
    """A decider that cannot go on without answers from outside. That it asks is a decision, what is open is a function of its
    state, and the answer an input (`ExtenderAnswered`): it is asked again after a restart, and never in a replay."""

    def asks(self, state: S_contra) -> Sequence[Ask]:
        """What is to be answered before the next decisions, in a fixed order. The same questions until their answers are folded."""
        ...
