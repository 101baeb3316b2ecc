"""Where what is open in the book goes: what has to go is released, what is missing is placed, what fits nowhere is refused.

First everything that has to go, then, by priority and then by arrival, what is to be placed. Bindings of one priority are placed as
one batch, in sight of each other; a lower priority only sees what the higher left. What fits nowhere may make room for itself
(`preempting`), waits for its room or for a node that is made for it (`provisioning`), or is refused, once and for good: the fleet
stage asks again when it wants to. A group of pods is placed whole or not at all (`groups`), and a replica that extenders have a
say about when they have had it (`extending`).

Requirements that changed replace every replica: all are released, then placed anew in the same round; a replica whose new
shape fits nowhere is refused, it does not keep its old place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.answers import barred, does_not_fit, in_order, placed, refused, released
from wharfinger.stages.cluster.choosing import batch_of, extenders_of, lacking, may_provision, planned, waits_for
from wharfinger.stages.cluster.extending import settle_extended
from wharfinger.stages.cluster.groups import is_broken, settle_group
from wharfinger.stages.cluster.members import group_of
from wharfinger.stages.cluster.preempting import make_room
from wharfinger.stages.cluster.provisioning import provision
from wharfinger.stages.cluster.state import ClusterState

REQUIREMENTS_CHANGED, SCALED_DOWN = "RequirementsChanged", "ScaledDown"


def settle(state: ClusterState, at: Micros) -> Iterator[Draft]:
    for binding in in_order(state, state.book.unsettled):
        yield from _let_go(state, binding)
    if state.gathering is not None and state.window.ends(*state.gathering) > at:
        return
    handled: set[str] = set()
    short: dict[str, int] = {}
    for group in sorted(state.members.stirred):
        if is_broken(state, group):
            yield from settle_group(state, group, at, handled, short)
    while todo := in_order(state, {b: None for b in state.book.unsettled if b not in handled}):
        first = state.book.held[todo[0]]
        whole = group_of(first.cls)
        if whole is not None:
            yield from settle_group(state, whole, at, handled, short)
        elif (no := barred(state, first)) is not None:
            handled.add(todo[0])
            yield refused(state, todo[0], lacking(first), *no)
        elif extenders_of(state, first):
            yield from settle_extended(state, todo[0], at, handled, short)
        else:
            yield from _settle_batch(state, batch_of(state, todo), at, handled, short)
    yield from provision(state, {name: count for name, count in short.items() if count > 0}, at)


def _let_go(state: ClusterState, binding: str) -> Iterator[Draft]:
    held = state.book.held[binding]
    cause = uuid_of(held.assignment)
    if held.replace:
        yield from released(state, binding, sorted(held.placed), REQUIREMENTS_CHANGED, cause)
    if len(held.placed) > held.desired:
        surplus = sorted(held.placed)[held.desired :]
        yield from released(state, binding, surplus, SCALED_DOWN, cause)


def _settle_batch(
    state: ClusterState, batch: Sequence[str], at: Micros, handled: set[str], short: dict[str, int]
) -> Iterator[Draft]:
    """Stops where room was made: then what is left is looked at afresh."""
    plan = planned(state, [(binding, lacking(state.book.held[binding])) for binding in batch])
    for binding, (choices, seen) in zip(batch, plan, strict=True):
        held = state.book.held[binding]
        short.pop(binding, None)
        yield from placed(state, binding, choices, seen)
        missing = lacking(held)
        if missing <= 0:
            continue
        waiting = waits_for(state, binding, at)
        room = make_room(state, binding, missing - waiting, at)
        if room:
            yield from room
            handled.difference_update([draft.subject for draft in room])
            return
        handled.add(binding)
        if missing > waiting and may_provision(state):
            short[binding] = missing - waiting
        elif missing > waiting:
            yield does_not_fit(state, binding, missing - waiting)
