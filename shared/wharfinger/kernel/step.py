"""One step of a stream: folds inputs, decides, and returns the round.

This is the only place where decisions get their numbers. Live operation and replay both call
`step`; they differ only in where inputs and time come from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from wharfinger.domain.value import Value, canonical
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.registry import type_of
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Decider, Decision, Draft, Micros, S
from wharfinger.kernel.hashing import empty_head as empty_head
from wharfinger.kernel.hashing import following
from wharfinger.kernel.incarnations import FIRST, incarnation_at
from wharfinger.kernel.incarnations import decision_id as decision_id
from wharfinger.kernel.round import ENGINE as ENGINE
from wharfinger.kernel.round import Basis, Head, InputRef, Round


def tick(stream: str, due: Micros, after: int = 0) -> Event[Value]:
    """Time as an input: the event that says `due` has come. `after`: the stream's last round; where
    more is due at once, or a clock stands still, one moment comes more than once, and a stream
    takes an event in once."""
    id = derived_id("tick", stream, due, after) if after else derived_id("tick", stream, due)
    return made(Ticked(stream, due), id=id, source=f"/wharfinger/{stream}", subject=stream)


def fresh_inputs(
    decider: Decider[S], state: S, events: Iterable[Event[Value]], known: Collection[UUID] = ()
) -> list[Event[Value]]:
    """The events of a batch that become inputs of the next round, in order, without duplicates.

    Dropped are ids in `known` (inputs of an earlier round), repeated ids within the batch, and
    sequence numbers that the state has seen. The content of an event is not considered: whether it
    changes anything is known only when it is folded, after the events before it. So the state after
    a history does not depend on how the history was split into batches.
    """
    seen = set(known)
    fresh: list[Event[Value]] = []
    for event in events:
        if event.id not in seen and not decider.is_redelivery(state, event):
            seen.add(event.id)
            fresh.append(event)
    return fresh


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
    """Folds `inputs`, decides, and returns the round. Changes `state` in place.

    ValueError if `at` is earlier than the head's time. `snapshot`: digest of the newest snapshot of
    the stream known to the writer, empty if there is none.
    """
    if at < head.at:
        raise ValueError(f"{head.stream}: a round at {at} cannot follow one at {head.at}")
    for event in inputs:
        decider.fold_input(state, event, at)
    decisions: list[Decision] = []
    seq = head.seq
    # of an `Identifying` state; to ask whether it is one takes longer than this
    incarnation = incarnation_at(getattr(state, "incarnations", ()), seq + 1)
    for draft in decider.decide(state, at):
        seq += 1
        decision = number(draft, head.stream, seq, incarnation)
        decider.fold_decision(state, decision, at)
        decisions.append(decision)
    refs = [InputRef(e.id, e.sha256) for e in inputs]
    return following(head, at, engine, decider.profile, refs, decisions, basis, snapshot or None)


def number(draft: Draft, stream: str, seq: int, incarnation: int = FIRST) -> Decision:
    return Decision(
        stream,
        seq,
        decision_id(stream, seq, incarnation),
        type_of(draft.data),
        draft.subject,
        draft.outcome,
        draft.cause,
        draft.data,
        canonical(draft.data),
    )
