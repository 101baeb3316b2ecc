"""On which nodes replicas run, read from the ledger without the code of the stages.

Each cluster stream is read from one section of its newest whole snapshot and then from the
decisions since. So the cost grows with the replicas placed now and the decisions since the
snapshot. `current_assignments` reads all assignments of the clusters, from which observers start;
for that it needs the stages' states.
"""

from __future__ import annotations

import msgspec

from wharfinger.events.assignments import Placed, Released
from wharfinger.events.fanout import assignment_items
from wharfinger.events.streams import CLUSTER
from wharfinger.runtime.ledger import Ledger

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


_decode = msgspec.json.Decoder(_HeldBindings).decode


async def replicas_on_nodes(ledger: Ledger) -> dict[tuple[str, str, int], str]:
    """(cluster, binding, ordinal) -> the node on which that replica runs now."""
    nodes: dict[tuple[str, str, int], str] = {}
    cursors: dict[str, int] = {}
    for head in await ledger.heads():
        if not head.stream.startswith(CLUSTER):
            cursors[head.stream] = head.seq  # places nothing on nodes: none of its rows are read
            continue
        snapshot = await ledger.latest_snapshot(head.stream, head.round, [BINDINGS])
        if snapshot is not None:
            cursors[head.stream] = (await ledger.head_at(head.stream, snapshot.round)).seq
            cluster = head.stream.removeprefix(CLUSTER)
            for held in _decode(snapshot.sections[BINDINGS]).held:
                nodes.update(
                    {(cluster, held.binding, one.ordinal): one.node for one in held.placed}
                )
    while rows := await ledger.rows_after(cursors, BATCH):
        for row in rows:
            cursors[row.stream] = row.seq
            if row.accepted is not None or not row.stream.startswith(CLUSTER):
                continue
            for cluster, item in assignment_items(row.seq, str(row.id), row.data()):
                if isinstance(item, Placed):
                    nodes.update(
                        {
                            (cluster, item.binding, o): s.node
                            for s in item.placed
                            for o in s.ordinals
                        }
                    )
                elif isinstance(item, Released):
                    for place, node in [
                        ((cluster, item.binding, o), s.node)
                        for s in item.released
                        for o in s.ordinals
                    ]:
                        if nodes.get(place) == node:  # else it was placed on another node since
                            del nodes[place]
    return nodes
