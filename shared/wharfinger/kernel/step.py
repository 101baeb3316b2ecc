"""One step of a stream: inputs in, round out, the state moved on.

This is the only place where decisions get their numbers and where live and replay meet: both call `step`, and what differs
is only where the inputs and the time come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from wharfinger import __version__
from wharfinger.domain.value import Value, canonical
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id, named_id
from wharfinger.events.registry import type_of
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Decider, Decision, Draft, Micros, S
from wharfinger.kernel.hashing import genesis, round_hash
from wharfinger.kernel.round import Basis, Head, InputRef, Round

ENGINE = f"wharfinger/{__version__}"


def empty_head(stream: str, epoch: int = 0) -> Head:
    return Head(stream, 0, 0, genesis(stream), epoch)


def decision_id(stream: str, seq: int) -> UUID:
    """As `derived_id(stream, seq)`."""
    return named_id(f"{stream}\x00{seq}")


def tick(stream: str, due: Micros, after: int = 0) -> Event[Value]:
    """Time as an input: the event that says `due` has come. `after`: the stream's last round; where more is due at once, or a
    clock stands still, one moment comes more than once, and a stream takes an event in once."""
    id = derived_id("tick", stream, due, after) if after else derived_id("tick", stream, due)
    return made(Ticked(stream, due), id=id, source=f"/wharfinger/{stream}", subject=stream)


def step(
    decider: Decider[S],
    state: S,
    head: Head,
    inputs: Sequence[Event[Value]],
    at: Micros,
    basis: Basis,
    snapshot: bytes = b"",
    engine: str = ENGINE,
) -> Round:
    """Fold `inputs`, decide, and close the round. Changes `state` in place.

    `at` must not lie before the head's. `snapshot` is the digest of the newest snapshot of the stream known to the writer.
    """
    if at < head.at:
        raise ValueError(f"{head.stream}: a round at {at} cannot follow one at {head.at}")
    for event in inputs:
        decider.fold_input(state, event, at)
    decisions: list[Decision] = []
    seq = head.seq
    for draft in decider.decide(state, at):
        seq += 1
        decision = number(draft, head.stream, seq)
        decider.fold_decision(state, decision, at)
        decisions.append(decision)
    refs = tuple([InputRef(e.id, e.sha256) for e in inputs])
    snapshot = snapshot or head.snapshot
    profile = decider.profile
    return Round(
        head.stream, head.round + 1, head.epoch, at, engine, profile, refs, basis, tuple(decisions), snapshot, head.hash,
        round_hash(
            head.hash, head.stream, head.round + 1, head.epoch, at, engine, profile, refs, basis, decisions, snapshot
        ),
        head.seq + 1,
    )  # fmt: skip


def number(draft: Draft, stream: str, seq: int) -> Decision:
    return Decision(
        stream, seq, decision_id(stream, seq), type_of(draft.data), draft.subject, draft.outcome, draft.cause, draft.data,
        canonical(draft.data),
    )  # fmt: skip
