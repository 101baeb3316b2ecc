"""Derives the current assignments of a fleet stream from its state: the same items that an observer
has after it folded all decisions since the beginning.

A state loaded from a snapshot does not have the older decisions, but it has the bindings of each
cluster and the decision that last assigned each of them. Items are in order of cluster and seq.
"""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.domain.binding import part_of
from wharfinger.events.assignments import Assigned, Silenced
from wharfinger.events.envelope import derived_id
from wharfinger.kernel.incarnations import id_of
from wharfinger.stages.fleet.state import FleetState


def current_items(state: FleetState) -> Iterator[tuple[str, Assigned]]:
    """Yield (cluster, last assignment) for every binding with targets in the cluster, in order of
    cluster, seq and binding."""
    for cluster in sorted(state.by_cluster):
        items = [
            item
            for binding in state.by_cluster[cluster]
            for item in _assigned(state, cluster, binding)
        ]
        for item in sorted(items, key=lambda item: (item.seq, item.binding)):
            yield cluster, item


def silenced(state: FleetState, seq: int) -> Iterator[tuple[str, Silenced]]:
    """Yield (cluster, item) for each silent cluster. The state does not have the decision that
    marked the cluster as silent. Its id is derived from the time of silence, so the id is the same
    every time. `seq`: the last seq of the stream."""
    for name in state.silent:
        since = state.clusters[name].silent_since
        yield name, Silenced(seq, str(derived_id("silenced", state.stream, name, since or 0)))


def _assigned(state: FleetState, cluster: str, binding: str) -> Iterator[Assigned]:
    """Yield the present assignments of a binding in a cluster. If the last decision about the
    binding names components, there is one item for each of these components, with the replicas of
    the component. For any other binding there is one item, with its replicas in the cluster. All
    items name the decision that last assigned replicas there."""
    record = state.bindings[binding]
    spec, seq = record.spec, record.assigned_by.get(cluster, 0)
    decision = str(id_of(state.stream, seq, state.incarnations))
    if not record.announced_components:
        yield Assigned(
            seq,
            decision,
            binding,
            spec.uid,
            record.targets[cluster],
            spec.requirements,
            spec.priority,
        )
    for c in spec.components:
        if c.name in record.announced_components:
            yield Assigned(
                seq,
                decision,
                part_of(binding, c.name),
                spec.uid,
                c.replicas,
                c.requirements,
                spec.priority,
            )
