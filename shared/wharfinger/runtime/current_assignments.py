"""Current assignments from the ledger, as the same items that the `assignments` topic carries.

An observer that starts again must know every replica assigned to its clusters, however long ago it
was assigned. The topic drops records after its retention; the ledger does not. Each stream is read
from its newest whole snapshot, which holds the current assignments, and then from the decisions
since. So the cost grows with the current assignments, not with the whole history. A stream without
a snapshot is read from its first decision.

The stages are loaded with the first snapshot, in a thread: the observers of a new plane, which has
none, do without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from wharfinger.domain.value import Value
from wharfinger.events.assignments import Assigned, AssignmentItem, AssignmentsDecided, Refused
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.fanout import assignment_items
from wharfinger.events.registry import type_of
from wharfinger.events.streams import CLUSTER, FLEET, INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import decision_id
from wharfinger.runtime.ledger import Ledger, StoredSnapshot
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.runtime.service import ServiceContext

if TYPE_CHECKING:
    from wharfinger.engine.nodes.occupancy import HeldBinding
    from wharfinger.stages.cluster.state import ClusterStageState
    from wharfinger.stages.fleet.state import FleetState

BATCH = 5000


@dataclass(slots=True)
class _Begun:
    """What the snapshots hold. `cursors`: the seq after which each stream is read further.
    `assigned`: (cluster, binding) -> the newest assignment by a shard."""

    cursors: dict[str, int] = field(default_factory=dict)
    loaded: list[Loaded] = field(default_factory=list)
    assigned: dict[tuple[str, str], Assigned] = field(default_factory=dict)


def assignments_of(
    context: ServiceContext,
) -> Callable[[frozenset[int]], Awaitable[Iterable[Loaded]]]:
    """Reads the current assignments of the clusters whose partitions are given, as `Observing`
    wants it."""

    async def load(groups: frozenset[int]) -> Iterable[Loaded]:
        partition = context.cluster_partition
        return await current_assignments(
            context.ledger, lambda cluster: partition(cluster) in groups
        )

    return load


async def current_assignments(
    ledger: Ledger, mine: Callable[[str], bool], prefix: str = ""
) -> list[Loaded]:
    """For the clusters that are `mine`: one event a stream, cluster and time, each stream's items
    in order of seq; at the end those that were decided since the snapshots, in order of time.
    `prefix`: only what streams of such a name have said."""
    begun = await _begin(ledger, mine, prefix)
    cursors, loaded = begun.cursors, begun.loaded
    while rows := await ledger.rows_after(cursors, BATCH):
        items: dict[tuple[str, str, Micros], list[AssignmentItem]] = {}
        for row in rows:
            cursors[row.stream] = row.seq
            if row.accepted is not None:
                continue
            for cluster, item in assignment_items(row.seq, str(row.id), row.data()):
                if mine(cluster):
                    items.setdefault((row.stream, cluster, row.at), []).append(item)
        for (stream, cluster, at), found in items.items():
            loaded.append(
                _event(AssignmentsDecided(cluster, stream, found[-1].seq, tuple(found)), at)
            )
    return loaded


async def _begin(ledger: Ledger, mine: Callable[[str], bool], prefix: str) -> _Begun:
    """Read the snapshots, those of the fleet streams first: a cluster's refusals are found by
    comparing with what its shard assigned."""
    begun = _Begun()
    heads = []
    for head in await ledger.heads():
        if head.stream != INTAKE and head.stream.startswith(prefix) and _wanted(head.stream, mine):
            heads.append(head)
        else:
            # This stream holds nothing about our clusters: none of its rows are read.
            begun.cursors[head.stream] = head.seq
    for head in heads:
        if head.stream.startswith(FLEET) and (found := await _snapshot(ledger, head)) is not None:
            await _begin_fleet(begun, mine, *found)
    for head in heads:
        if head.stream.startswith(CLUSTER) and (found := await _snapshot(ledger, head)) is not None:
            await _begin_cluster(begun, *found)
    return begun


def _wanted(stream: str, mine: Callable[[str], bool]) -> bool:
    return not stream.startswith(CLUSTER) or mine(stream.removeprefix(CLUSTER))


async def _snapshot(ledger: Ledger, head: Head) -> tuple[StoredSnapshot, Head, str] | None:
    """The newest whole snapshot, where the stream stood then, and under which profile."""
    snapshot = await ledger.latest_snapshot(head.stream, head.round)
    if snapshot is None:
        return None
    at = await ledger.head_at(head.stream, snapshot.round)
    return snapshot, at, await ledger.profile_at(head.stream, snapshot.round)


async def _begin_fleet(
    begun: _Begun, mine: Callable[[str], bool], snapshot: StoredSnapshot, head: Head, profile: str
) -> None:
    state = await asyncio.to_thread(_fleet_state, snapshot, head, profile)
    items: dict[str, list[AssignmentItem]] = {
        name: [] for name in sorted(state.clusters) if mine(name)
    }
    for cluster, item in _of_fleet(state, head.seq):
        if mine(cluster):
            items.setdefault(cluster, []).append(item)
            if isinstance(item, Assigned):
                begun.assigned[cluster, item.binding] = item
    # A cluster without any has an event, too: that nothing is assigned to it is known up to here.
    for cluster, found in items.items():
        begun.loaded.append(
            _event(AssignmentsDecided(cluster, head.stream, head.seq, tuple(found)), head.at)
        )
    begun.cursors[head.stream] = head.seq


def _fleet_state(snapshot: StoredSnapshot, head: Head, profile: str) -> FleetState:
    from wharfinger.stages.fleet import FleetDecider

    return FleetDecider.of_profile(profile).load(head.stream, snapshot.sections)


def _of_fleet(state: FleetState, seq: int) -> Iterator[tuple[str, AssignmentItem]]:
    from wharfinger.stages.fleet import current_assignments as fleet_items

    yield from fleet_items.current_items(state)
    yield from fleet_items.silenced(state, seq)


async def _begin_cluster(begun: _Begun, snapshot: StoredSnapshot, head: Head, profile: str) -> None:
    state = await asyncio.to_thread(_cluster_state, snapshot, head, profile)
    from wharfinger.stages.cluster import current_assignments as cluster_items

    refused = list(_refused(begun, state, head.seq))
    standing: list[tuple[Micros, AssignmentItem]] = [
        (at or head.at, item)
        for at, item in cluster_items.current_items_at(state, head.seq - len(refused))
    ]
    # In order of seq, even where the times are not in order: an observer takes an item with a lower
    # seq than it has seen for one that it already has.
    parts = [
        (at, [item for _, item in of_part]) for at, of_part in groupby(standing, lambda one: one[0])
    ]
    parts.append((head.at, list(refused)))
    for number, (at, items) in enumerate(parts, 1):
        through = head.seq if number == len(parts) else items[-1].seq
        begun.loaded.append(
            _event(AssignmentsDecided(state.cluster, head.stream, through, tuple(items)), at)
        )
    begun.cursors[head.stream] = head.seq


def _cluster_state(snapshot: StoredSnapshot, head: Head, profile: str) -> ClusterStageState:
    from wharfinger.stages.cluster import ClusterDecider

    return ClusterDecider.of_profile(profile).load(head.stream, snapshot.sections)


def _refused(begun: _Begun, state: ClusterStageState, seq: int) -> Iterator[Refused]:
    """Where a binding desires fewer replicas here than its shard assigned, the cluster refused the
    difference and the shard has not answered yet. Refusals take the last seqs of the stream;
    placements take the seqs before."""
    found: list[tuple[str, HeldBinding, Assigned]] = []
    for name, held in sorted(state.book.held.items()):
        told = begun.assigned.get((state.cluster, name))
        if told is not None and told.decision == held.assignment and told.replicas > held.desired:
            found.append((name, held, told))
    for number, (name, held, told) in enumerate(found, seq - len(found) + 1):
        decision = str(decision_id(state.stream, number))
        yield Refused(
            number, decision, name, told.decision, told.replicas - held.desired, held.cls.key, ""
        )


def _event(data: AssignmentsDecided, at: Micros) -> Loaded:
    """The event that the topic would carry, but without bytes: it is folded in this process and
    never sent."""
    first = data.items[0].seq if data.items else data.through
    id = derived_id("standing", data.stream, data.cluster, first, data.through)
    event: Event[Value] = Event(
        id, type_of(data), f"/wharfinger/{data.stream}", data.cluster, data, b"", b""
    )
    return event, at
