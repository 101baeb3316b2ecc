"""Correction of a stream whose time is ahead because of a wrong clock.

Its head is ahead, and no round may be earlier than the one before, with one exception: a round
whose only input is a `Rebase`. It shifts all times in the state that were taken from the wrong
clock by the same amount, and decides nothing; so it can be made from the head alone. Afterwards a
lease, a pause or a window has as much left as before.

The shifted state is loaded from its sections, so that derived times (queues of due times) are
derived again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from wharfinger.domain.time import moved
from wharfinger.domain.value import Value, canonical, json_decoder
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Decider, Micros, S
from wharfinger.kernel.hashing import following
from wharfinger.kernel.round import Basis, Head, InputRef, Round
from wharfinger.kernel.step import ENGINE


@runtime_checkable
class Timed(Protocol):
    """A decider whose states have moments in them. `section_types`: what each section of a dump
    holds."""

    @property
    def section_types(self) -> Mapping[str, Any]: ...


class Rebase(Protocol):
    """The event that says so: its class has a true `REBASES_TIME`. `by_us`: what is added to a
    moment; `streams`: name -> the first moment that the stream noted under the wrong clock."""

    @property
    def by_us(self) -> int: ...
    @property
    def streams(self) -> Mapping[str, WrongSince]: ...


class WrongSince(Protocol):
    @property
    def since_us(self) -> Micros: ...


def rebase_of(events: Sequence[Event[Value]]) -> Rebase | None:
    """Returns the time correction among the inputs of a round; None: there is none."""
    for event in events:
        if getattr(event.data, "REBASES_TIME", False):
            return cast(Rebase, event.data)
    return None


def rebased(
    decider: Decider[S],
    state: S,
    stream: str,
    events: Sequence[Event[Value]],
    at: Micros,
    profile: str,
) -> S:
    """Returns the state after the round with these inputs, one of which is a `Rebase`.

    The state is dumped, its times are shifted where the event names the stream, and it is loaded
    again. `state` must not be used any more.
    """
    data = rebase_of(events)
    assert data is not None, "asked for such a round"
    sections = decider.dump(state)
    if isinstance(decider, Timed) and (own := data.streams.get(stream)) is not None:
        sections = move_moments(decider.section_types, sections, own.since_us, data.by_us)
    fresh = decider.load(stream, sections)
    for event in events:
        decider.fold_input(fresh, event, at)
    decider.end_round(fresh, 0, profile)
    return fresh


def rebase_round(
    head: Head,
    events: Sequence[Event[Value]],
    at: Micros,
    basis: Basis,
    profile: str,
    snapshot: bytes,
    engine: str = ENGINE,
) -> Round:
    """The round behind `head` that takes `events` in and decides nothing. `at` may be earlier than
    the head's."""
    refs = [InputRef(event.id, event.sha256) for event in events]
    return following(head, at, engine, profile, refs, (), basis, snapshot)


def move_moments(
    types: Mapping[str, Any], sections: Mapping[str, bytes], since: Micros, by: int
) -> dict[str, bytes]:
    """Sections of a dump, with each moment in them that is not earlier than `since` moved `by`
    microseconds."""
    return {
        name: canonical(moved(json_decoder(types[name]).decode(body), types[name], since, by))
        for name, body in sections.items()
    }
