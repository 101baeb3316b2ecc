"""What a cluster stream has placed, read off its state: the items an observer would have folded from the beginning."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.occupancy import Held, shares_of
from wharfinger.events.assignments import NodeClosed, Placed
from wharfinger.events.decisions import NodeShare
from wharfinger.kernel.step import decision_id
from wharfinger.stages.cluster.state import ClusterState


def standing(state: ClusterState, seq: int) -> Iterator[Placed | NodeClosed]:
    """Every replica on a node, one item a binding and requirement class, and the nodes closed to new ones.

    `seq`: the stream's last. Which decision placed what is not in the state; the items take the last numbers of the
    stream, which are enough, since every one of them came of a decision of its own.
    """
    book = state.book
    placed = [
        (name, requirements, shares)
        for name, held in sorted(book.held.items())
        for requirements, shares in _by_class(held)
    ]
    closed = sorted(book.closed)
    at = seq - len(placed) - len(closed)
    for name, requirements, shares in placed:
        at += 1
        yield Placed(at, str(decision_id(state.stream, at)), name, shares, requirements)
    for node in closed:
        at += 1
        yield NodeClosed(at, str(decision_id(state.stream, at)), node)


def _by_class(held: Held) -> Iterator[tuple[Requirements, tuple[NodeShare, ...]]]:
    ordinals: dict[str, list[int]] = {}
    requirements: dict[str, Requirements] = {}
    for ordinal, replica in sorted(held.placed.items()):
        ordinals.setdefault(replica.cls.key, []).append(ordinal)
        requirements[replica.cls.key] = replica.cls.requirements
    for key, of_class in sorted(ordinals.items()):
        yield requirements[key], shares_of(held.placed, of_class)
