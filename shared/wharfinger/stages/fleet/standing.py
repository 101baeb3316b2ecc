"""What a fleet stream has told its clusters, read off its state: the items an observer would have folded from the beginning.

A state that begins at a snapshot has no older decisions to read, and need not: who holds what, and since which decision, is
in it. Items come in order of cluster and seq.
"""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.binding import part_of
from wharfinger.events.assignments import Assigned, Silenced
from wharfinger.events.envelope import derived_id
from wharfinger.kernel.step import decision_id
from wharfinger.stages.fleet.state import FleetState


def standing(state: FleetState) -> Iterator[tuple[str, Assigned]]:
    """(cluster, what it was last told of a binding) for every binding it holds."""
    for cluster in sorted(state.by_cluster):
        items = [item for binding in state.by_cluster[cluster] for item in _assigned(state, cluster, binding)]
        for item in sorted(items, key=lambda item: (item.seq, item.binding)):
            yield cluster, item


def silenced(state: FleetState, seq: int) -> Iterator[tuple[str, Silenced]]:
    """The clusters held for silent. The decision that said so is not in the state: its place takes an id derived from the
    moment, which is the same whenever it is asked for. `seq`: the stream's last."""
    for name in state.silent:
        since = state.clusters[name].silent_since
        yield name, Silenced(seq, str(derived_id("silenced", state.stream, name, since or 0)))


def _assigned(state: FleetState, cluster: str, binding: str) -> Iterator[Assigned]:
    """One item, or one a component that it was told of."""
    record = state.bindings[binding]
    spec, seq = record.spec, record.assigned_by.get(cluster, 0)
    decision = str(decision_id(state.stream, seq))
    if not record.told:
        yield Assigned(seq, decision, binding, spec.uid, record.targets[cluster], spec.requirements, spec.priority)
    for c in spec.components:
        if c.name in record.told:
            yield Assigned(seq, decision, part_of(binding, c.name), spec.uid, c.replicas, c.requirements, spec.priority)
