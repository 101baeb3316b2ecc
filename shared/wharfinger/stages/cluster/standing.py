"""What a cluster stream has placed, read off its state: the items an observer would have folded from the beginning."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.occupancy import Held, shares_of
from wharfinger.events.assignments import NodeClosed, Placed
from wharfinger.events.decisions import NodeShare
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.step import decision_id
from wharfinger.stages.cluster.state import ClusterState


def standing(state: ClusterState, seq: int) -> Iterator[Placed | NodeClosed]:
    """Every replica on a node, and the nodes closed to new ones. `seq`: the stream's last."""
    return (item for _, item in standing_at(state, seq))


def standing_at(state: ClusterState, seq: int) -> Iterator[tuple[Micros, Placed | NodeClosed]]:
    """The same with the times at which they were placed, in order of time; one item a binding, requirement class and time.
    Nodes come last: when they were closed is not in the state, and 0 says so.

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
    closed = sorted(book.closed)
    number = seq - len(placed) - len(closed)
    for at, name, shares, requirements in placed:
        number += 1
        yield at, Placed(number, str(decision_id(state.stream, number)), name, shares, requirements)
    for node in closed:
        number += 1
        yield 0, NodeClosed(number, str(decision_id(state.stream, number)), node)


def _parts(held: Held) -> Iterator[tuple[Micros, Requirements, tuple[NodeShare, ...]]]:
    ordinals: dict[tuple[Micros, str], list[int]] = {}
    requirements: dict[str, Requirements] = {}
    for ordinal, replica in sorted(held.placed.items()):
        ordinals.setdefault((replica.at, replica.cls.pod_key), []).append(ordinal)
        requirements[replica.cls.pod_key] = replica.cls.requirements
    for (at, key), of_part in sorted(ordinals.items()):
        yield at, requirements[key], shares_of(held.placed, of_part)
