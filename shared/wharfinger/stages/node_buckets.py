"""The nodes of one cluster as an observer knows them, assembled from the buckets in which they are
reported.

A node that is missing from its bucket was deleted. The set is complete once every bucket was
received. When the number of buckets changes, the old set is kept until the new one is complete,
because an incomplete set would look like lost nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.domain.node import Node
from wharfinger.events.cluster_state import NodesObserved


@dataclass(frozen=True, slots=True)
class BucketChange:
    """What a bucket changed: `seen` are the bucket's nodes, `gone` the names that are in no bucket
    any more."""

    seen: tuple[Node, ...] = ()
    gone: tuple[str, ...] = ()


_NOWHERE = (-1, None)


@dataclass(slots=True)
class NodeBuckets:
    """`nodes`: name -> (bucket, facts). A name in two buckets belongs to the one reported last.
    `reported`: bucket -> its names. `carried`: names of the old set while a new one is being
    reported."""

    buckets: int = 0
    reported: dict[int, tuple[str, ...]] = field(default_factory=dict)
    nodes: dict[str, tuple[int, Node]] = field(default_factory=dict)
    carried: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        return self.buckets > 0 and len(self.reported) == self.buckets

    def fold(self, event: NodesObserved) -> BucketChange:
        if not 0 <= event.bucket < event.buckets:
            return BucketChange()
        if event.buckets != self.buckets:
            self.buckets = event.buckets
            self.reported.clear()
            self.carried |= set(self.nodes)
        present = {node.name: node for node in event.nodes}
        before = self.reported.get(event.bucket, ())
        gone = [
            name
            for name in before
            if name not in present and self.nodes.get(name, _NOWHERE)[0] == event.bucket
        ]
        for name in gone:
            del self.nodes[name]
        for name, node in present.items():
            self.nodes[name] = (event.bucket, node)
            self.carried.discard(name)
        self.reported[event.bucket] = tuple(present)
        if self.carried and self.complete:
            left = sorted(self.carried)
            self.carried.clear()
            for name in left:
                del self.nodes[name]
            gone += left
        return BucketChange(tuple(present.values()), tuple(gone))
