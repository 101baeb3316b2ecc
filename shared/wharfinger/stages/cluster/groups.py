"""Groups of pods that are placed whole or not at all (kube-scheduler's PodGroup).

A group's pods may belong to several bindings of one namespace; it is whole when `min_count` of them are on nodes. While fewer are
assigned to the cluster the group waits for the others, for five minutes at most; when all are there and there is no room for
enough of them, the group is refused at once. What stands on nodes of a group that is not whole is let go: half a group is of no
use and in others' way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wharfinger.domain.reasons import ReplicaReason
from wharfinger.engine.nodes.place import Choice
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.answers import barred, does_not_fit, in_order, placed, refused, released
from wharfinger.stages.cluster.choosing import lacking, may_provision, planned, waits_for
from wharfinger.stages.cluster.members import Group
from wharfinger.stages.cluster.state import ClusterState

GANG_BROKEN = "GangBroken"
"""Why replicas were released."""

WAIT_US: Micros = 300 * 1_000_000
"""How long a group waits for its other members (kube-scheduler's default)."""

INCOMPLETE: ReplicaReason = "GangIncomplete"
DOES_NOT_FIT: ReplicaReason = "GangDoesNotFit"


def is_broken(state: ClusterState, group: Group) -> bool:
    """Nothing of it is open, and it is not whole: a member has become something else."""
    held = [state.book.held[name] for name in state.members.by_group.get(group, ())]
    there = sum(len(h.placed) for h in held)
    open_ = any(not h.settled for h in held)
    return not open_ and 0 < there < max((h.cls.requirements.traits.min_count for h in held), default=0)


def settle_group(
    state: ClusterState, group: Group, at: Micros, handled: set[str], short: dict[str, int]
) -> Iterator[Draft]:
    """All members at once, at the place of the most important one. `short`: who may have nodes made for it, and for how many."""
    book = state.book
    members = in_order(state, dict.fromkeys(sorted(state.members.by_group.get(group, ()))))
    handled.update(members)
    if not members:
        return
    for name in members:
        short.pop(name, None)
    held = [book.held[name] for name in members]
    least = max(h.cls.requirements.traits.min_count for h in held)
    there, wanted = sum(len(h.placed) for h in held), sum(h.desired for h in held)
    if wanted < least:
        if at < state.groups.get(group, at) + WAIT_US:
            yield from _let_go(state, members)
            return
        yield from given_back(state, members, INCOMPLETE, _missing_members(group, least, wanted))
        return
    if (no := next((no for h in held if (no := barred(state, h)) is not None), None)) is not None:
        yield from given_back(state, members, *no)
        return
    wants = [(name, max(0, lacking(h))) for name, h in zip(members, held, strict=True)]
    plan = [choices for choices, _ in planned(state, wants)]
    room = sum(map(len, plan))
    if there + room < least:
        if may_provision(state):
            short.update(_without_place(state, members, at))
        else:
            yield from given_back(state, members, DOES_NOT_FIT, _no_room(group, least, there + room, wanted))
        return
    yield from _placed_whole(state, members, plan, at, short)


def _placed_whole(
    state: ClusterState, members: Sequence[str], plan: Sequence[Sequence[Choice]], at: Micros, short: dict[str, int]
) -> Iterator[Draft]:
    for binding, choices in zip(members, plan, strict=True):
        yield from placed(state, binding, choices)
    if may_provision(state):
        short.update(_without_place(state, members, at))
        return
    for binding in members:
        held = state.book.held.get(binding)
        if held is not None and lacking(held) > 0:
            yield does_not_fit(state, binding, lacking(held))


def _without_place(state: ClusterState, members: Sequence[str], at: Micros) -> dict[str, int]:
    """Those who do not even wait for one."""
    held = state.book.held
    left = {name: lacking(held[name]) - waits_for(state, name, at) for name in members if name in held}
    return {name: count for name, count in left.items() if count > 0}


def given_back(state: ClusterState, members: Sequence[str], reason: ReplicaReason, note: str) -> Iterator[Draft]:
    """The whole group."""
    yield from _let_go(state, members)
    for binding in members:
        yield refused(state, binding, state.book.held[binding].desired, reason, note)


def _let_go(state: ClusterState, members: Sequence[str]) -> Iterator[Draft]:
    for binding in members:
        held = state.book.held[binding]
        yield from released(state, binding, sorted(held.placed), GANG_BROKEN, uuid_of(held.assignment))


def _missing_members(group: Group, least: int, wanted: int) -> str:
    return (
        f"waiting for minCount pods from a gang to appear in scheduling queue: {wanted} of {least} of group {group[1]} "
        f"came within {WAIT_US // 1_000_000} s"
    )


def _no_room(group: Group, least: int, room: int, wanted: int) -> str:
    return f"minCount ({least}) cannot be satisfied: {room} scheduled, {wanted - room} remaining (group {group[1]})"


def waiting_groups(state: ClusterState) -> dict[Group, Micros]:
    """After a round: those that are still not whole, and since when."""
    book = state.book
    asked = state.members.stirred | state.groups.keys()
    found = {g for g in asked if any(name in book.unsettled for name in state.members.by_group.get(g, ()))}
    return {group: state.groups.get(group, state.at) for group in sorted(found)}
