"""Current assignments out of the ledger, as the very items the `assignments` topic carries.

An observer that begins anew must know every replica that stands in its clusters, however long ago it was assigned; the
topic forgets after its retention, the ledger does not. Each stream begins at its newest whole snapshot, in which stands who
holds what, and goes on with the decisions since; so the cost is that of what there is, not of all that ever was. A stream
without a snapshot is read from its first decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from wharfinger.domain.value import Value
from wharfinger.engine.nodes.occupancy import Held
from wharfinger.events.assignments import Assigned, AssignmentItem, AssignmentsDecided, Placed, Refused, Released
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.fanout import assignment_items
from wharfinger.events.registry import type_of
from wharfinger.events.streams import CLUSTER, FLEET, INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import decision_id
from wharfinger.runtime.ledger import Ledger, Snapshot
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.cluster import standing as cluster_standing
from wharfinger.stages.cluster.state import ClusterState
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet import standing as fleet_standing
from wharfinger.stages.fleet.state import FleetState

BATCH = 5000


@dataclass(slots=True)
class _Begun:
    """What the snapshots say. `cursors`: from which seq each stream goes on. `assigned`: (cluster, binding) -> what a shard
    said last."""

    cursors: dict[str, int] = field(default_factory=dict)
    loaded: list[Loaded] = field(default_factory=list)
    assigned: dict[tuple[str, str], Assigned] = field(default_factory=dict)


async def standing_assignments(ledger: Ledger, mine: Callable[[str], bool], prefix: str = "") -> list[Loaded]:
    """For the clusters that are `mine`: one event a stream, cluster and time, each stream's items in order of seq; at the end
    those that were decided since the snapshots, in order of time. `prefix`: only what streams of such a name have said."""
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
            loaded.append(_event(AssignmentsDecided(cluster, stream, found[-1].seq, tuple(found)), at))
    return loaded


async def replicas_on_nodes(ledger: Ledger) -> dict[tuple[str, str, int], str]:
    """(cluster, binding, ordinal) -> the node on which that replica stands now."""
    nodes: dict[tuple[str, str, int], str] = {}
    for event, _ in await standing_assignments(ledger, lambda _: True, CLUSTER):
        decided = event.data
        assert isinstance(decided, AssignmentsDecided), "nothing else stands"
        for item in decided.items:
            if isinstance(item, Placed):
                nodes.update({(decided.cluster, item.binding, o): s.node for s in item.placed for o in s.ordinals})
            elif isinstance(item, Released):
                for place, node in [
                    ((decided.cluster, item.binding, o), s.node) for s in item.released for o in s.ordinals
                ]:
                    if nodes.get(place) == node:  # else it stands elsewhere by now
                        del nodes[place]
    return nodes


async def _begin(ledger: Ledger, mine: Callable[[str], bool], prefix: str) -> _Begun:
    """Fleet streams first: what they assigned tells what a cluster refused."""
    begun = _Begun()
    heads = []
    for head in await ledger.heads():
        if head.stream != INTAKE and head.stream.startswith(prefix) and _wanted(head.stream, mine):
            heads.append(head)
        else:
            begun.cursors[head.stream] = head.seq  # says nothing about our clusters: none of its rows are read
    for head in heads:
        if head.stream.startswith(FLEET) and (found := await _snapshot(ledger, head)) is not None:
            await _begin_fleet(begun, mine, *found)
    for head in heads:
        if head.stream.startswith(CLUSTER) and (found := await _snapshot(ledger, head)) is not None:
            await _begin_cluster(begun, *found)
    return begun


def _wanted(stream: str, mine: Callable[[str], bool]) -> bool:
    return not stream.startswith(CLUSTER) or mine(stream.removeprefix(CLUSTER))


async def _snapshot(ledger: Ledger, head: Head) -> tuple[Snapshot, Head, str] | None:
    """The newest whole snapshot, where the stream stood then, and under which profile."""
    snapshot = await ledger.latest_snapshot(head.stream, head.round)
    if snapshot is None:
        return None
    at = await ledger.head_at(head.stream, snapshot.round)
    return snapshot, at, await ledger.profile_at(head.stream, snapshot.round)


async def _begin_fleet(
    begun: _Begun, mine: Callable[[str], bool], snapshot: Snapshot, head: Head, profile: str
) -> None:
    state = await asyncio.to_thread(FleetDecider.of_profile(profile).load, head.stream, snapshot.sections)
    items: dict[str, list[AssignmentItem]] = {name: [] for name in sorted(state.clusters) if mine(name)}
    for cluster, item in _of_fleet(state, head.seq):
        if mine(cluster):
            items.setdefault(cluster, []).append(item)
            if isinstance(item, Assigned):
                begun.assigned[cluster, item.binding] = item
    # A cluster without any has an event, too: that nothing is assigned to it is known up to here.
    for cluster, found in items.items():
        begun.loaded.append(_event(AssignmentsDecided(cluster, head.stream, head.seq, tuple(found)), head.at))
    begun.cursors[head.stream] = head.seq


def _of_fleet(state: FleetState, seq: int) -> Iterator[tuple[str, AssignmentItem]]:
    yield from fleet_standing.standing(state)
    yield from fleet_standing.silenced(state, seq)


async def _begin_cluster(begun: _Begun, snapshot: Snapshot, head: Head, profile: str) -> None:
    state = await asyncio.to_thread(ClusterDecider.of_profile(profile).load, head.stream, snapshot.sections)
    refused = list(_refused(begun, state, head.seq))
    standing: list[tuple[Micros, AssignmentItem]] = [
        (at or head.at, item) for at, item in cluster_standing.standing_at(state, head.seq - len(refused))
    ]
    # In order of seq, whatever their times: what has a lower number than was seen counts as told before.
    parts = [(at, [item for _, item in of_part]) for at, of_part in groupby(standing, lambda one: one[0])]
    parts.append((head.at, list(refused)))
    for number, (at, items) in enumerate(parts, 1):
        through = head.seq if number == len(parts) else items[-1].seq
        begun.loaded.append(_event(AssignmentsDecided(state.cluster, head.stream, through, tuple(items)), at))
    begun.cursors[head.stream] = head.seq


def _refused(begun: _Begun, state: ClusterState, seq: int) -> Iterator[Refused]:
    """What a binding has less here than its shard assigned was refused, and the shard has not answered yet. These take the
    last numbers of the stream, as what was placed takes those before."""
    found: list[tuple[str, Held, Assigned]] = []
    for name, held in sorted(state.book.held.items()):
        told = begun.assigned.get((state.cluster, name))
        if told is not None and told.decision == held.assignment and told.replicas > held.desired:
            found.append((name, held, told))
    for number, (name, held, told) in enumerate(found, seq - len(found) + 1):
        decision = str(decision_id(state.stream, number))
        yield Refused(number, decision, name, told.decision, told.replicas - held.desired, held.cls.key, "")


def _event(data: AssignmentsDecided, at: Micros) -> Loaded:
    """As the topic would carry it, but without bytes: it is folded here and now and goes nowhere."""
    first = data.items[0].seq if data.items else data.through
    id = derived_id("standing", data.stream, data.cluster, first, data.through)
    event: Event[Value] = Event(id, type_of(data), f"/wharfinger/{data.stream}", data.cluster, data, b"", b"")
    return event, at
