"""On which nodes replicas run, read from the ledger without the code of the stages.

Each cluster stream is read from one section of its newest whole snapshot and then from the
decisions since. So the cost grows with the replicas placed now and the decisions since the
snapshot. `current_assignments` reads all assignments of the clusters, from which observers start;
for that it needs the stages' states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TypeVar

import msgspec

from wharfinger.domain.value import json_decoder
from wharfinger.events.assignments import Placed, Released
from wharfinger.events.fanout import assignment_items
from wharfinger.events.streams import CLUSTER
from wharfinger.runtime.ledger import Ledger, LedgerRow

K = TypeVar("K")

BATCH = 5000
BINDINGS = "bindings"
"""The section of a cluster stream's snapshot that holds the replicas placed in the cluster."""


class _Placed(msgspec.Struct, array_like=True):
    ordinal: int
    node: str


class _Held(msgspec.Struct):
    binding: str
    placed: tuple[_Placed, ...] = ()


class _HeldBindings(msgspec.Struct):
    """The fields of the section that are needed here; `stages.cluster.state` has all of them."""

    held: tuple[_Held, ...] = ()


_decode = json_decoder(_HeldBindings).decode


class PlacedReplicas:
    """(cluster, binding, ordinal) -> the node on which that replica runs, moved on by the rows of
    cluster streams. Rows may be taken again, if all that follow them are."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[str, str, int], str] = {}
        self._of_binding: Counter[str] = Counter()
        self._on_node: Counter[tuple[str, str]] = Counter()

    async def load(self, ledger: Ledger, streams: Collection[str] | None = None) -> None:
        """As they run now: of these cluster streams, of all where none are given."""
        cursors: dict[str, int] = {}
        for head in await ledger.heads():
            wanted = head.stream.startswith(CLUSTER) and (streams is None or head.stream in streams)
            if not wanted:
                cursors[head.stream] = head.seq  # none of its rows are read
                continue
            snapshot = await ledger.latest_snapshot(head.stream, head.round, [BINDINGS])
            if snapshot is not None:
                cursors[head.stream] = (await ledger.head_at(head.stream, snapshot.round)).seq
                cluster = head.stream.removeprefix(CLUSTER)
                for held in _decode(snapshot.sections[BINDINGS]).held:
                    for one in held.placed:
                        self._put((cluster, held.binding, one.ordinal), one.node)
        while rows := await ledger.rows_after(cursors, BATCH):
            for row in rows:
                cursors[row.stream] = row.seq
                if row.accepted is None and row.stream.startswith(CLUSTER):
                    self.take(row)

    def take(self, row: LedgerRow) -> list[tuple[str, str, str]]:
        """A row of a cluster stream: the (binding, cluster, node) of replicas that it has put or
        taken away."""
        touched: list[tuple[str, str, str]] = []
        for cluster, item in assignment_items(row.seq, str(row.id), row.data()):
            if isinstance(item, Placed):
                for one in item.placed:
                    touched.append((item.binding, cluster, one.node))
                    for ordinal in one.ordinals:
                        before = self._put((cluster, item.binding, ordinal), one.node)
                        if before is not None and before != one.node:
                            touched.append((item.binding, cluster, before))
            elif isinstance(item, Released):
                for one in item.released:
                    touched.append((item.binding, cluster, one.node))
                    for ordinal in one.ordinals:
                        place = cluster, item.binding, ordinal
                        if self.nodes.get(place) == one.node:  # else it is on another one since
                            self._remove(place, one.node)
        return touched

    def of_binding(self, binding: str) -> int:
        return self._of_binding[binding]

    def on_node(self, cluster: str, node: str) -> int:
        return self._on_node[cluster, node]

    def _put(self, place: tuple[str, str, int], node: str) -> str | None:
        """The node on which it was before."""
        before = self.nodes.get(place)
        if before is not None:
            self._remove(place, before)
        self.nodes[place] = node
        self._of_binding[place[1]] += 1
        self._on_node[place[0], node] += 1
        return before

    def _remove(self, place: tuple[str, str, int], node: str) -> None:
        del self.nodes[place]
        _count_down(self._of_binding, place[1])
        _count_down(self._on_node, (place[0], node))


def _count_down(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


async def replicas_on_nodes(
    ledger: Ledger, streams: Collection[str] | None = None
) -> dict[tuple[str, str, int], str]:
    """(cluster, binding, ordinal) -> the node on which that replica runs now. `streams`: as
    `PlacedReplicas.load`."""
    placed = PlacedReplicas()
    await placed.load(ledger, streams)
    return placed.nodes
