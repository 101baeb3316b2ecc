"""What a cluster stream remembers: the book of its cluster, how far it has read each fleet stream, and open proposals.

Stored are facts and the book, never columns or caches: those follow from the book, and a loaded state builds them anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.columns import Taken, Ties
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.place import Placer
from wharfinger.engine.nodes.score import Strategy
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.decisions import NodeShare
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import NodeRemovalProposed
from wharfinger.events.streams import CLUSTER


@dataclass(slots=True)
class ClusterState:
    """`seen`: fleet stream -> highest seq taken in. `proposals`: event id -> what is still to be answered, in order.

    `causes`: node -> the event that last said something of it, kept for nodes whose replicas it may drive away. `requested`: plans
    to be answered, by the id of the event that asked. `on_behalf`: proposal of a plan -> the commitment it came with, which is
    the cause of its answer; both stand in one round, so this is never stored.
    """

    stream: str
    book: Occupancy
    placer: Placer
    seen: dict[str, int] = field(default_factory=dict)
    proposals: dict[str, NodeRemovalProposed] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    requested: dict[UUID, PlanRequested] = field(default_factory=dict)
    on_behalf: dict[str, UUID] = field(default_factory=dict)

    @property
    def cluster(self) -> str:
        return self.stream.removeprefix(CLUSTER)


def empty_state(stream: str, strategy: Strategy, ties: Ties | None = None) -> ClusterState:
    book = Occupancy(ties)
    return ClusterState(stream, book, Placer(book.table, strategy))


# --- the stored form


class _Nodes(Value, frozen=True):
    bucket_count: int
    buckets: tuple[tuple[int, tuple[Node, ...]], ...]
    incoming_count: int
    incoming: tuple[tuple[int, tuple[Node, ...]], ...]
    closed: tuple[str, ...]
    taint_since: dict[str, dict[str, int]]


class _Pods(Value, frozen=True):
    by_node: dict[str, tuple[Pod, ...]]


class _Placed(Value, frozen=True, array_like=True):
    ordinal: int
    node: str
    class_key: str
    at: int
    devices: Taken


class SavedHeld(Value, frozen=True):
    binding: str
    class_key: str
    uid: str
    assignment: str
    desired: int
    priority: int
    arrival: int
    replace: bool
    placed: tuple[_Placed, ...]


class _Bindings(Value, frozen=True):
    arrivals: int
    classes: dict[str, Requirements]
    held: tuple[SavedHeld, ...]


class _Stream(Value, frozen=True):
    seen: dict[str, int]
    proposals: tuple[tuple[str, NodeRemovalProposed], ...]
    causes: dict[str, str]
    plans: tuple[tuple[UUID, PlanRequested], ...] = ()


SECTIONS: dict[str, type[Value]] = {"nodes": _Nodes, "pods": _Pods, "bindings": _Bindings, "stream": _Stream}
"""What each section holds."""


def dump(state: ClusterState) -> dict[str, bytes]:
    book = state.book
    classes: dict[str, Requirements] = {}
    held: list[SavedHeld] = []
    for name, h in sorted(book.held.items()):
        classes[h.cls.key] = h.cls.requirements
        placed: list[_Placed] = []
        for ordinal, replica in sorted(h.placed.items()):
            classes[replica.cls.key] = replica.cls.requirements
            placed.append(_Placed(ordinal, replica.node, replica.cls.key, replica.at, replica.devices))
        held.append(
            SavedHeld(name, h.cls.key, h.uid, h.assignment, h.desired, h.priority, h.arrival, h.replace, tuple(placed))
        )
    return {
        "nodes": canonical(
            _Nodes(
                book.bucket_count, _buckets(book.buckets), book.incoming_count, _buckets(book.incoming),
                tuple(sorted(book.closed)), book.taint_since,
            )
        ),
        "pods": canonical(_Pods(book.pods)),
        "bindings": canonical(_Bindings(book.arrivals, classes, tuple(held))),
        "stream": canonical(
            _Stream(state.seen, tuple(state.proposals.items()), state.causes, tuple(state.requested.items()))
        ),
    }  # fmt: skip


def _buckets(buckets: Mapping[int, Mapping[str, Node]]) -> tuple[tuple[int, tuple[Node, ...]], ...]:
    return tuple(
        (bucket, tuple(node for _, node in sorted(nodes.items()))) for bucket, nodes in sorted(buckets.items())
    )


def load(stream: str, sections: Mapping[str, bytes], strategy: Strategy, ties: Ties | None = None) -> ClusterState:
    """Facts first, then the book, as they came: what is derived is derived again on the way."""
    state = empty_state(stream, strategy, ties)
    bindings = _load_facts(state, sections)
    for h in bindings.held:
        load_held(state.book, h, bindings.classes)
    return state


@dataclass(frozen=True, slots=True)
class Apart:
    """A state without the bindings in its book, and these as they were stored."""

    state: ClusterState
    held: tuple[SavedHeld, ...]
    classes: Mapping[str, Requirements]


def load_apart(empty: ClusterState, sections: Mapping[str, bytes]) -> Apart | None:
    """None: pods, taints or nodes on their way say more about what is held than the book by itself."""
    bindings = _load_facts(empty, sections)
    book = empty.book
    if book.pods or book.taint_since or book.incoming or not book.known:
        return None
    return Apart(empty, bindings.held, bindings.classes)


def _load_facts(state: ClusterState, sections: Mapping[str, bytes]) -> _Bindings:
    """All but the bindings, which are returned."""
    book = state.book
    nodes = msgspec.json.decode(sections["nodes"], type=_Nodes)
    for bucket, said in nodes.buckets:
        book.observe_nodes(NodesObserved(state.cluster, bucket, nodes.bucket_count, said), 0)
    for bucket, said in nodes.incoming:
        book.observe_nodes(NodesObserved(state.cluster, bucket, nodes.incoming_count, said), 0)
    for name in nodes.closed:
        book.close(name)
    book.taint_since = nodes.taint_since
    for node, pods in msgspec.json.decode(sections["pods"], type=_Pods).by_node.items():
        book.observe_pods(PodsObserved(state.cluster, node, pods))
    told = msgspec.json.decode(sections["stream"], type=_Stream)
    state.seen, state.proposals, state.causes = dict(told.seen), dict(told.proposals), dict(told.causes)
    state.requested = dict(told.plans)
    bindings = msgspec.json.decode(sections["bindings"], type=_Bindings)
    book.arrivals = bindings.arrivals
    return bindings


def load_held(book: Occupancy, h: SavedHeld, classes: Mapping[str, Requirements]) -> None:
    for p in h.placed:
        share = NodeShare(p.node, (p.ordinal,), (p.devices,))
        book.place(h.binding, (share,), classes[p.class_key], p.at)
    book.restore(
        h.binding, classes[h.class_key], h.uid, h.assignment, h.desired, h.priority, h.arrival, h.replace
    )  # fmt: skip
