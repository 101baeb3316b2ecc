"""What stands decided about clusters that may be changed, and what is known of them, out of the
ledger: where an actuator begins, and what a command shows without one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from wharfinger.domain.time import Micros
from wharfinger.events.streams import CLUSTER_STATE, CLUSTERS
from wharfinger.events.versions import Versions
from wharfinger.runtime.current_assignments import current_assignments
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.stages.actuator import ActuatorObserver, ActuatorState


async def standing_decisions(ledger: Ledger, mine: Callable[[str], bool]) -> list[Loaded]:
    """Of the clusters that are `mine`, in the order in which they are to be folded."""
    return await current_assignments(ledger, mine)


async def known_work(ledger: Ledger, clusters: Collection[str], at: Micros) -> ActuatorState:
    """What an actuator knows that has read everything. `at`: the present."""
    names = frozenset(clusters)
    observer, versions = ActuatorObserver(names), Versions()
    state = observer.initial()
    for event, when in await standing_decisions(ledger, names.__contains__):
        observer.fold(state, event, when)
    for topic in (CLUSTERS, CLUSTER_STATE):
        async for fact in ledger.facts(topic.name):
            event = event_of(fact)
            if versions.admits(event, at):
                observer.fold(state, event, at)
    return state
