"""The current assignments of a cluster stream, read from its state: the items that an observer
would have folded since the beginning."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.ids import PodUid
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.occupancy import HeldBinding, shares_of
from wharfinger.events.assignments import (
    Claimed,
    Disrupting,
    NodeClosed,
    Placed,
    PodsPreempted,
    PodsRemoved,
    UnplacedPods,
)
from wharfinger.events.decisions import NodeShare
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.step import decision_id
from wharfinger.stages.cluster.state import ClusterStageState, RunningCommand, said_of_pods

Standing = Placed | NodeClosed | Claimed | Disrupting | PodsRemoved | UnplacedPods | PodsPreempted


def current_items(state: ClusterStageState, seq: int) -> Iterator[Standing]:
    """Returns one item for every replica on a node, every open claim and command, every node closed
    to new replicas, the removals of finished pods, what was said of pods that fit nowhere, and the
    preemptions for them. `seq`: the number of the last decision in the stream."""
    return (item for _, item in current_items_at(state, seq))


def current_items_at(state: ClusterStageState, seq: int) -> Iterator[tuple[Micros, Standing]]:
    """Yields the current assignments of the cluster as items, each with the time of its placement
    in microseconds, oldest first. Replicas of one binding with equal requirements and equal time
    form one item. Open node claims, nodes closed to new replicas, disruption commands,
    removals of finished pods, what was said of pods that fit nowhere, and preemptions come last, in
    this order.
    They have time 0, because the state does not hold their time.

    An item also has the number of its decision. The state does not hold which decision placed a
    replica, so the items get the last numbers up to `seq`. Example: 3 items and `seq` 100: the
    items get 98, 99 and 100. There are enough numbers, because each item came from its own
    decision.
    """
    book = state.book
    placed = sorted(
        (
            (at, name, shares, requirements)
            for name, held in book.held.items()
            for at, requirements, shares in _parts(held)
        ),
        key=lambda part: part[:2],
    )
    going = {name for running in state.running.values() for name in _still_there(running)}
    closed = sorted(book.closed - going)
    pools = state.pools
    removals: dict[Micros, list[str]] = {}
    for uid, until in sorted(state.removals.items()):
        removals.setdefault(until, []).append(uid)
    number = seq - len(placed) - len(pools.claims) - len(closed) - len(pools.commands)
    said: dict[tuple[str, str, str], list[PodUid]] = {}
    for what, pods in said_of_pods(state):
        said.setdefault((what.binding, what.reason, what.message), []).extend(pods)
    number -= len(removals) + len(said) + len(state.preempting)
    for at, name, shares, requirements in placed:
        number += 1
        yield at, Placed(number, str(decision_id(state.stream, number)), name, shares, requirements)
    for _, claim in sorted(pools.claims.items()):
        number += 1
        yield (
            0,
            Claimed(
                number,
                str(decision_id(state.stream, number)),
                claim.claim,
                claim.pool,
                claim.instance_types,
                claim.requests,
                claim.replicas,
                claim.command,
                claim.until_us,
                claim.requirements,
                claim.others,
            ),
        )
    for node in closed:
        number += 1
        yield 0, NodeClosed(number, str(decision_id(state.stream, number)), node)
    for _, command in sorted(pools.commands.items()):
        number += 1
        decision = str(decision_id(state.stream, number))
        yield 0, Disrupting(number, decision, command.command, command.method, command.nodes)
    for until, uids in sorted(removals.items()):
        number += 1
        yield 0, PodsRemoved(number, str(decision_id(state.stream, number)), tuple(uids), until)
    for (binding, reason, message), pods in said.items():
        number += 1
        decision = str(decision_id(state.stream, number))
        yield 0, UnplacedPods(number, decision, binding, tuple(pods), reason, message)
    for uid, running in sorted(state.preempting.items()):
        number += 1
        decision = str(decision_id(state.stream, number))
        yield 0, PodsPreempted(number, decision, uid, running.victims, running.until)


def _still_there(running: RunningCommand) -> Iterator[str]:
    """Returns the nodes of a command whose removal is not decided yet."""
    return (node.name for node in running.decided.nodes if node.name not in running.removed)


def _parts(held: HeldBinding) -> Iterator[tuple[Micros, Requirements, tuple[NodeShare, ...]]]:
    ordinals: dict[tuple[Micros, str], list[int]] = {}
    requirements: dict[str, Requirements] = {}
    for ordinal, replica in sorted(held.placed.items()):
        ordinals.setdefault((replica.at, replica.cls.pod_key), []).append(ordinal)
        requirements[replica.cls.pod_key] = replica.cls.requirements
    for (at, key), of_part in sorted(ordinals.items()):
        yield at, requirements[key], shares_of(held.placed, of_part)
