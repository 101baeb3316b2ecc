"""Gang scheduling in a cluster stream: pod groups (kube-scheduler's PodGroup) are placed whole or
not at all.

A group's pods may belong to several bindings of one namespace; it is complete when `min_count` of
them are on nodes. While fewer are assigned to the cluster, the group waits up to five minutes for
the others. When enough are assigned and there is no room for `min_count`, it is refused at once.
Placed replicas of an incomplete group are released, because they block capacity without being of
use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wharfinger.domain.reasons import ReplicaReason
from wharfinger.engine.framework.gang import GATHERING, WAIT_S, feasible, never_whole
from wharfinger.engine.nodes.place import NodeChoice
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.answers import (
    barred,
    does_not_fit,
    in_order,
    placed,
    refused,
    released,
)
from wharfinger.stages.cluster.group_members import Group
from wharfinger.stages.cluster.node_search import lacking, planned, waits_for
from wharfinger.stages.cluster.state import ClusterStageState, may_provision

GANG_BROKEN = "GangBroken"
"""Reason of a release: the group is incomplete."""

WAIT_US: Micros = WAIT_S * 1_000_000
"""How long a group waits for its other members, in microseconds."""

INCOMPLETE: ReplicaReason = "GangIncomplete"
DOES_NOT_FIT: ReplicaReason = "GangDoesNotFit"


def is_broken(state: ClusterStageState, group: Group) -> bool:
    """Returns whether the group is incomplete: some of its members are placed, but fewer than its
    minimum, and no binding of it has open work."""
    held = [state.book.held[name] for name in state.members.by_group.get(group, ())]
    there = sum(len(h.placed) for h in held)
    open_ = any(not h.settled for h in held)
    return not open_ and 0 < there < max(
        (h.cls.requirements.traits.min_count for h in held), default=0
    )


def settle_group(
    state: ClusterStageState, group: Group, at: Micros, handled: set[str], short: dict[str, int]
) -> Iterator[Draft]:
    """Places the replicas of a pod group if at least `min_count` of them have room, else none of
    them (gang scheduling). A group has one or several bindings; the bindings are its members. The
    round reaches the group together with its member of the highest priority.

    - Fewer replicas than `min_count` are assigned to this cluster: placed replicas are released,
      and the group waits up to `WAIT_US` (5 minutes) for more. After that it is refused.
    - A member has to be refused in any case, for example because of scheduling gates: the group is
      refused.
    - Fewer than `min_count` replicas are placed or fit: the group gets new nodes (through `short`),
      or is refused if the cluster cannot create nodes.
    - Otherwise all replicas that fit are placed. Example: `min_count` 3, 5 replicas, 4 fit: 4 are
      placed.

    `handled`: bindings that the round has processed; the members are added. `short`: binding ->
    number of replicas for which the round requests new nodes; updated here.
    """
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
    if feasible(least, there + room, 0) is not None:
        if may_provision(state):
            short.update(_without_place(state, members, at))
        else:
            yield from given_back(
                state, members, DOES_NOT_FIT, _no_room(group, least, there + room, wanted)
            )
        return
    yield from _placed_whole(state, members, plan, at, short)


def _placed_whole(
    state: ClusterStageState,
    members: Sequence[str],
    plan: Sequence[Sequence[NodeChoice]],
    at: Micros,
    short: dict[str, int],
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


def _without_place(state: ClusterStageState, members: Sequence[str], at: Micros) -> dict[str, int]:
    """Returns member -> number of its missing replicas that have neither reserved room nor a claim.
    Members without such replicas are left out."""
    held = state.book.held
    left = {
        name: lacking(held[name]) - waits_for(state, name, at) for name in members if name in held
    }
    return {name: count for name, count in left.items() if count > 0}


def given_back(
    state: ClusterStageState, members: Sequence[str], reason: ReplicaReason, note: str
) -> Iterator[Draft]:
    """Releases all placed replicas of the group and refuses all its members."""
    yield from _let_go(state, members)
    for binding in members:
        yield refused(state, binding, state.book.held[binding].desired, reason, note)


def _let_go(state: ClusterStageState, members: Sequence[str]) -> Iterator[Draft]:
    for binding in members:
        held = state.book.held[binding]
        yield from released(
            state, binding, sorted(held.placed), GANG_BROKEN, uuid_of(held.assignment)
        )


def _missing_members(group: Group, least: int, wanted: int) -> str:
    return (
        f"{GATHERING}: {wanted} of {least} of group {group[1]} came within {WAIT_US // 1_000_000} s"
    )


def _no_room(group: Group, least: int, room: int, wanted: int) -> str:
    return f"{never_whole(least, room, wanted - room)} (group {group[1]})"


def waiting_groups(state: ClusterStageState) -> dict[Group, Micros]:
    """Returns the groups that still have open work after a round, each with the time since when."""
    book = state.book
    asked = state.members.stirred | state.groups.keys()
    found = {
        g
        for g in asked
        if any(name in book.unsettled for name in state.members.by_group.get(g, ()))
    }
    return {group: state.groups.get(group, state.at) for group in sorted(found)}
