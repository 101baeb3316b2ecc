"""What the ledger has to say about workloads that are copied from a hub."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from wharfinger.domain.value import Value
from wharfinger.events.decisions import SETTLING, ScheduleAnswer
from wharfinger.events.registry import types_of
from wharfinger.events.rendering import Rendered
from wharfinger.events.streams import FLEET
from wharfinger.history.object_kinds import BINDINGS
from wharfinger.history.objects import rendered
from wharfinger.runtime.ledger import Ledger, causality
from wharfinger.stages.actuator.copy_ages import DecidedReplicas

DECISIONS_MAX = 64
"""About one binding, that are read to see since when a copy is open."""

_SETTLING = types_of(*SETTLING)


async def bindings_now(ledger: Ledger) -> list[Rendered]:
    """The bindings as they stand. LedgerError."""
    return await rendered(ledger, BINDINGS)


async def decided_here(ledger: Ledger, copied_for: Iterable[str]) -> frozenset[str]:
    """Of the bindings for which copies are there those that this ledger has decided about, whether
    they still stand or not. LedgerError."""
    ours = [
        name
        for name in sorted(copied_for)
        if await causality.decided_about(ledger.database, name, FLEET)
    ]
    return frozenset(ours)


async def last_decisions(
    ledger: Ledger, bindings: Collection[str]
) -> dict[str, list[DecidedReplicas]]:
    """The last decisions about the clusters of each binding, the oldest first, at most
    `DECISIONS_MAX` of each. LedgerError."""
    if not bindings:
        return {}
    rows = await causality.last_of(
        ledger.database, sorted(bindings), _SETTLING, FLEET, DECISIONS_MAX
    )
    return {
        name: [DecidedReplicas(row.at, _clusters(row.data())) for row in of_one]
        for name, of_one in rows.items()
    }


def _clusters(data: Value) -> dict[str, int]:
    """Of a release: none."""
    if not isinstance(data, ScheduleAnswer):
        return {}
    return {target.cluster: target.replicas for target in data.targets}
