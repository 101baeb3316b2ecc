"""What stands decided about clusters that may be changed, and what is known of them, out of the
ledger: where an actuator begins, and what a command shows without one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from wharfinger.domain.time import Micros
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Disrupting, NodeClosed, Released
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.fanout import assignment_items
from wharfinger.events.streams import CLUSTER, CLUSTER_STATE, CLUSTERS
from wharfinger.events.versions import Versions
from wharfinger.runtime.current_assignments import current_assignments
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.stages.actuator import (
    ActuatorObserver,
    ActuatorState,
    StandingClosures,
    StandingRelease,
)
from wharfinger.stages.actuator.state import EVICTED_US
from wharfinger.stages.cluster.barred_nodes import BARRED_MAX_US, BarInForce, bar_in_force

CLOSED_US = 7 * 24 * 3_600_000_000
"""Nodes that were closed in this time are opened by an actuator that begins, where nothing closes
them any more. `wharfinger release` looks at all that is kept."""

CLOSING = ("removed", "disrupting")
"""Outcomes of decisions that close nodes."""


async def standing_decisions(
    ledger: Ledger, mine: Callable[[str], bool], at: Micros
) -> list[Loaded]:
    """Of the clusters that are `mine`, in the order in which they are to be folded: what is
    assigned now, the nodes that were closed in the last days, and the releases of the last hour.
    `at`: the present."""
    return [
        *await current_assignments(ledger, mine),
        *await _closures(ledger, mine, at),
        *await _releases(ledger, mine, at),
    ]


async def closed_nodes(ledger: Ledger, cluster: str, since: Micros | None = None) -> set[str]:
    """Nodes of the cluster that decisions have closed, since `since` or ever."""
    query = DecisionQuery(stream=f"{CLUSTER}{cluster}", since=since, outcomes=CLOSING)
    found: set[str] = set()
    async for row in ledger.decisions(query):
        if row.stream == query.stream:
            found.update(_closed_by(row))
    return found


def _closed_by(row: LedgerRow) -> Iterator[str]:
    for _, item in assignment_items(row.seq, str(row.id), row.data()):
        match item:
            case NodeClosed(node=node):
                yield node
            case Disrupting(nodes=nodes):
                yield from nodes
            case _:
                pass


async def barred_nodes(ledger: Ledger, clusters: Collection[str], at: Micros) -> list[BarInForce]:
    """Nodes that take no pods of a workload at `at`, in order of cluster, node and workload."""
    query = DecisionQuery(stream=CLUSTER, since=at - BARRED_MAX_US, outcomes=("barred",))
    found: dict[tuple[str, str, str], BarInForce] = {}
    async for row in ledger.decisions(query):
        bar = bar_in_force(row.data(), at)
        if bar is not None and bar.cluster in clusters:
            found[bar.cluster, bar.node, bar.binding] = bar
    return [bar for _, bar in sorted(found.items())]


async def _closures(ledger: Ledger, mine: Callable[[str], bool], at: Micros) -> list[Loaded]:
    found: dict[str, set[str]] = {}
    query = DecisionQuery(stream=CLUSTER, since=at - CLOSED_US, outcomes=CLOSING)
    async for row in ledger.decisions(query):
        if mine(cluster := row.stream.removeprefix(CLUSTER)):
            found.setdefault(cluster, set()).update(_closed_by(row))
    loaded: list[Loaded] = []
    for cluster, nodes in sorted(found.items()):
        data = StandingClosures(cluster, tuple(sorted(nodes)))
        id = derived_id("closures", cluster)
        loaded.append((Event(id, "", f"{CLUSTER}{cluster}", cluster, data, b"", b""), at))
    return loaded


async def _releases(ledger: Ledger, mine: Callable[[str], bool], at: Micros) -> list[Loaded]:
    found: list[Loaded] = []
    query = DecisionQuery(stream=CLUSTER, since=at - EVICTED_US, outcomes=("released",))
    async for row in ledger.decisions(query):
        if not mine(row.stream.removeprefix(CLUSTER)):
            continue
        for cluster, item in assignment_items(row.seq, str(row.id), row.data()):
            if isinstance(item, Released):
                data = StandingRelease(cluster, row.stream, item)
                event: Event[Value] = Event(row.id, "", row.stream, cluster, data, b"", b"")
                found.append((event, row.at))
    return found


async def known_work(ledger: Ledger, clusters: Collection[str], at: Micros) -> ActuatorState:
    """What an actuator knows that has read everything. `at`: the present."""
    names = frozenset(clusters)
    observer, versions = ActuatorObserver(names), Versions()
    state = observer.initial()
    for event, when in await standing_decisions(ledger, names.__contains__, at):
        observer.fold(state, event, when)
    for topic in (CLUSTERS, CLUSTER_STATE):
        async for fact in ledger.facts(topic.name):
            event = event_of(fact)
            if versions.admits(event, at):
                observer.fold(state, event, at)
    return state
