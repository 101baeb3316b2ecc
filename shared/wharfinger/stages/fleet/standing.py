"""What a fleet stream has told its clusters, read off its state: the items an observer would have folded from the beginning.

A state that begins at a snapshot has no older decisions to read, and need not: who holds what, and since which decision, is
in it. Items come in order of cluster and seq.
"""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.events.assignments import Assigned, Silenced
from wharfinger.events.envelope import derived_id
from wharfinger.kernel.step import decision_id
from wharfinger.stages.fleet.state import FleetState


def standing(state: FleetState) -> Iterator[tuple[str, Assigned]]:
    """(cluster, what it was last told of a binding) for every binding it holds."""
    for cluster in sorted(state.by_cluster):
        items = [_assigned(state, cluster, binding) for binding in state.by_cluster[cluster]]
        for item in sorted(items, key=lambda item: (item.seq, item.binding)):
            yield cluster, item


def silenced(state: FleetState, seq: int) -> Iterator[tuple[str, Silenced]]:
    """The clusters held for silent. The decision that said so is not in the state: its place takes an id derived from the
    moment, which is the same whenever it is asked for. `seq`: the stream's last."""
    for name in state.silent:
        since = state.clusters[name].silent_since
        yield name, Silenced(seq, str(derived_id("silenced", state.stream, name, since or 0)))


def _assigned(state: FleetState, cluster: str, binding: str) -> Assigned:
    record = state.bindings[binding]
    seq = record.assigned_by.get(cluster, 0)
    return Assigned(
        seq, str(decision_id(state.stream, seq)), binding, record.spec.uid, record.targets[cluster],
        record.spec.requirements, record.spec.priority,
    )  # fmt: skip
