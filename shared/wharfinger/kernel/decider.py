"""The interface of a stage: a state that only two folds may change, and a `decide` that reads it.

`fold_input` applies an event from outside, `fold_decision` a decision of the stream itself.
`decide` is a generator: it yields one draft at a time, and the kernel numbers it and folds it into
the state *before* the generator continues, so that the next draft sees the effect of the last.
Recovery calls the two folds only; it never decides. All three are functions of their arguments: no
clock, no randomness, no set order.

States are mutable, because copying columns for every round would cost more than deciding. That is
safe because only the stage reads a state, and it is dropped when its round does not reach the
ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable
from uuid import UUID

import msgspec

from wharfinger.domain.time import Micros as Micros
from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


class Draft(msgspec.Struct, frozen=True):
    """A decision before it has a number.

    `subject`: binding, node or cluster. `outcome`: one word for people and indexes (`scheduled`,
    `refused`, ...). `cause`: the id of the event or decision that made it necessary; None: the
    passing of time.
    """

    data: Value
    subject: str
    outcome: str
    cause: UUID | None = None


class Decision(msgspec.Struct, frozen=True):
    """A numbered decision of a stream. `body` is the canonical JSON of `data`: the bytes that are
    stored and hashed."""

    stream: str
    seq: int
    id: UUID
    type: str
    subject: str
    outcome: str
    cause: UUID | None
    data: Value
    body: bytes


class Decider(Protocol[S]):
    """The pure part of a stage. `profile` names the settings that reach its decisions; they are
    hashed with every round."""

    @property
    def profile(self) -> str: ...

    def initial(self, stream: str) -> S: ...

    def fold_input(self, state: S, event: Event[Value], at: Micros) -> None:
        """Apply a fact to the state as the inputs before it left it. Here, and only here, it is
        decided whether the fact changes anything: an event that repeats what the state holds
        changes nothing."""
        ...

    def fold_decision(self, state: S, decision: Decision, at: Micros) -> None: ...

    def is_redelivery(self, state: S, event: Event[Value]) -> bool:
        """True when the stream has had every sequence number in the event before: it need not
        become an input.

        A question of identity, never of content. It is asked before the batch is folded, so the
        answer must not depend on what else the batch holds: once true, it stays true. "The state
        says the same already" is no reason, because an event earlier in the batch may be about to
        change that state.
        """
        ...

    def outdated(self, state: S) -> int:
        """How many facts were refused because the state has a newer version of their key, since the
        state was made or loaded."""
        ...

    def decide(self, state: S, at: Micros) -> Iterator[Draft]:
        """All that is to be decided now, in a fixed order. Yields nothing when nothing is to be
        done."""
        ...

    def end_round(self, state: S, decisions: int, profile: str) -> None:
        """Records in the state that a round with so many decisions under `profile` ended. `decide`
        does this itself. Call it after each round when folding recorded decisions, so that a
        recovered state evaluates the same next as one that decided."""
        ...

    def next_due(self, state: S) -> Micros | None:
        """When time alone will make a decision necessary: the writer then feeds a tick."""
        ...

    def dump(self, state: S) -> dict[str, bytes]:
        """The state as named sections of canonical bytes: equal states, equal bytes. Caches are not
        part of it."""
        ...

    def load(self, stream: str, sections: Mapping[str, bytes]) -> S:
        """The state whose `dump` gave `sections`; it decides exactly as the original would."""
        ...


@runtime_checkable
class HoldsBack(Protocol[S_contra]):
    """A decider that may take in an event now and apply it later. An event that it fails on then
    is named by an input, `HeldEventsLaidAside`, which must keep it from being applied."""

    def held_back(self, state: S_contra) -> Sequence[Event[Value]]:
        """The events that `fold_input` applies before the next input, in their order. Empty where
        none is held back, or all stay so."""
        ...


@runtime_checkable
class Incremental(Protocol[S_contra]):
    """A decider that can also dump what changed, where dumping the whole state would cost too much
    to be done often."""

    def note_changes(self, state: S_contra, everything: bool) -> None:
        """Note from now on what changes; `everything`: as if all of the state had just changed."""
        ...

    def changes(self, state: S_contra) -> tuple[dict[str, bytes], dict[str, list[int]]]:
        """What changed since it was last asked: sections, and of those that hold some of many
        things the hashes of the names of all that were touched. A name that is counted and not
        there is of a thing that is gone."""
        ...
