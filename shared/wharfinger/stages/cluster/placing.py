"""The main loop of placement: surplus replicas are released, missing ones are placed, what fits
nowhere is refused.

First all releases, then placements by priority and arrival. Bindings of one priority form a batch
and see each other; lower priorities only get what is left. Replicas that fit nowhere preempt others
(`preemption`), wait for their preempted room or for a new node (`provisioning`), or are refused
finally: the fleet stage assigns again when it decides to. A pod group is placed whole or not at all
(`groups`); replicas with extenders are placed when these have answered (`extenders`).

A round may have a bound of work (`ClusterProfile.work`): it then ends between two decisions, and
the next round is due at once. Replicas of one binding may be spread over several rounds, a group
may not. Nodes are requested only in the last round, and only once the batch window of
`ClusterProfile.buying` has closed, since they are packed for everything that is missing. Until then
replicas that fit nowhere are neither placed nor refused.

Changed requirements replace every replica: all are released and placed again in the same round. A
replica that then fits nowhere is refused and does not keep its old place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from wharfinger.stages.cluster.extenders import settle_extended
from wharfinger.stages.cluster.group_members import group_of
from wharfinger.stages.cluster.groups import is_broken, settle_group
from wharfinger.stages.cluster.node_search import (
    batch_of,
    extenders_of,
    lacking,
    planned,
    waits_for,
)
from wharfinger.stages.cluster.preemption import make_room
from wharfinger.stages.cluster.provisioning import provision
from wharfinger.stages.cluster.state import ClusterStageState, may_provision

REQUIREMENTS_CHANGED, SCALED_DOWN = "RequirementsChanged", "ScaledDown"


def settle(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    for binding in in_order(state, state.book.unsettled):
        yield from _let_go(state, binding)
        if state.exhausted:
            return
    if state.gathers(at):
        return
    handled: set[str] = set()
    short: dict[str, int] = {}
    for group in sorted(state.members.stirred):
        if is_broken(state, group) and not state.exhausted:
            yield from settle_group(state, group, at, handled, short)
    while todo := in_order(state, {b: None for b in state.book.unsettled if b not in handled}):
        if state.exhausted:
            return
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
    if not state.gathers_for_nodes(at):
        yield from provision(state, {name: count for name, count in short.items() if count > 0}, at)


def _let_go(state: ClusterStageState, binding: str) -> Iterator[Draft]:
    held = state.book.held[binding]
    cause = uuid_of(held.assignment)
    if held.replace:
        yield from released(state, binding, sorted(held.placed), REQUIREMENTS_CHANGED, cause)
    if len(held.placed) > held.desired:
        surplus = sorted(held.placed)[held.desired :]
        yield from released(state, binding, surplus, SCALED_DOWN, cause)


def _settle_batch(
    state: ClusterStageState,
    batch: Sequence[str],
    at: Micros,
    handled: set[str],
    short: dict[str, int],
) -> Iterator[Draft]:
    """Places the missing replicas of the bindings of a batch, one binding after another.

    Replicas that fit on no node, but have reserved room or a requested node, wait. For the
    remaining replicas that fit on no node, replicas of lower priority are preempted. If that is not
    possible, new nodes are requested (through `short`), or the remaining replicas are refused if
    the cluster cannot create nodes.

    A preemption ends the function. The binding that caused the preemption and the bindings of the
    victims are then removed from `handled`. The round processes these bindings again, and the rest
    of the batch. `handled`: bindings that the round has processed. `short`: binding -> number of
    replicas for which the round requests new nodes. Both are updated here.
    """
    wants = _within(state, [(binding, lacking(state.book.held[binding])) for binding in batch])
    for (binding, wanted), (choices, seen) in zip(wants, planned(state, wants), strict=True):
        held = state.book.held[binding]
        short.pop(binding, None)
        cut_off = wanted < lacking(held) and len(choices) == wanted
        yield from placed(state, binding, choices, seen)
        missing = lacking(held)
        if missing <= 0 or cut_off:
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


def _within(state: ClusterStageState, wants: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Returns the longest prefix of `wants` (binding, number of replicas) that the round may still
    process. A round may have a bound of work, which is a maximum number of replicas. The last entry
    of the prefix may be reduced to the replicas that the round may still process; it has at least
    one replica. Without a bound, all of `wants` is returned. Example: the round may process 5 more
    replicas and `wants` has 3 and 4: returns 3 and 2.
    """
    left = state.work_left
    if left is None:
        return list(wants)
    kept: list[tuple[str, int]] = []
    for binding, wanted in wants:
        kept.append((binding, min(wanted, max(1, left))))
        left -= wanted
        if left <= 0:
            break
    return kept
