"""What a cluster stream has placed, read off its state: the items an observer would have folded from the beginning."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.occupancy import Held, shares_of
from wharfinger.events.assignments import Claimed, Disrupting, NodeClosed, Placed
from wharfinger.events.decisions import NodeShare
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.step import decision_id
from wharfinger.stages.cluster.state import ClusterState, Running

Standing = Placed | NodeClosed | Claimed | Disrupting


def standing(state: ClusterState, seq: int) -> Iterator[Standing]:
    """Every replica on a node, the claims and commands that are open, and the nodes closed to new replicas. `seq`: the stream's
    last."""
    return (item for _, item in standing_at(state, seq))


def standing_at(state: ClusterState, seq: int) -> Iterator[tuple[Micros, Standing]]:
    """The same with the times at which they were placed, in order of time; one item a binding, requirement class and time.
    Claims and nodes come last, nodes of commands after them: when that was said is not in the state, and 0 says so.

    Which decision placed what is not in the state either; the items take the last numbers of the stream, which are enough,
    since every one of them came of a decision of its own.
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
    number = seq - len(placed) - len(pools.claims) - len(closed) - len(pools.commands)
    for at, name, shares, requirements in placed:
        number += 1
        yield at, Placed(number, str(decision_id(state.stream, number)), name, shares, requirements)
    for _, claim in sorted(pools.claims.items()):
        number += 1
        yield 0, Claimed(
            number, str(decision_id(state.stream, number)), claim.claim, claim.pool, claim.instance_types, claim.requests,
            claim.replicas, claim.command, claim.until_us, claim.requirements,
        )  # fmt: skip
    for node in closed:
        number += 1
        yield 0, NodeClosed(number, str(decision_id(state.stream, number)), node)
    for _, command in sorted(pools.commands.items()):
        number += 1
        decision = str(decision_id(state.stream, number))
        yield 0, Disrupting(number, decision, command.command, command.method, command.nodes)


def _still_there(running: Running) -> Iterator[str]:
    """Nodes of a command whose removal was not decided yet."""
    return (node.name for node in running.decided.nodes if node.name not in running.removed)


def _parts(held: Held) -> Iterator[tuple[Micros, Requirements, tuple[NodeShare, ...]]]:
    ordinals: dict[tuple[Micros, str], list[int]] = {}
    requirements: dict[str, Requirements] = {}
    for ordinal, replica in sorted(held.placed.items()):
        ordinals.setdefault((replica.at, replica.cls.pod_key), []).append(ordinal)
        requirements[replica.cls.pod_key] = replica.cls.requirements
    for (at, key), of_part in sorted(ordinals.items()):
        yield at, requirements[key], shares_of(held.placed, of_part)
