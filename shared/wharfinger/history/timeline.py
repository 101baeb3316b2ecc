"""`history`: every decision about a binding, in all streams, and what made each of them necessary.

A decision carries the id of its cause: an event that its stream took in, a decision of another
stream, or nothing where time alone was enough. The causes of all entries are read at once, and only
as many entries as are asked for: what this costs does not grow with the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from wharfinger.domain.binding import Binding
from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.envelope import Event
from wharfinger.events.streams import FLEET
from wharfinger.history.names import full_name
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Ledger, LedgerRow, causality

LIMIT = 50


@dataclass(frozen=True, slots=True)
class DecisionCause:
    """Why something was decided. At most one of `event` and `decision` is set; neither, and no
    `id`: time passed.

    An id without either is of something this ledger has no record of, such as a run that proposed
    what was then decided. `before`: for a request, what was asked for until then.
    """

    id: UUID | None = None
    event: Event[Value] | None = None
    decision: LedgerRow | None = None
    before: Binding | None = None


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """`after`: how long after the entry before it, None for the first one shown."""

    row: LedgerRow
    cause: DecisionCause
    after: Micros | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """`entries`: the latest, oldest first. `total`: how many there are."""

    binding: str
    entries: tuple[TimelineEntry, ...]
    total: int


async def timeline(ledger: Ledger, binding: str, limit: int = LIMIT) -> Timeline:
    """The last `limit` decisions about a binding (its name as `names.full_name` takes it)."""
    name = await full_name(ledger, binding)
    rows = in_order(await causality.latest_about(ledger.database, name, limit))
    causes = await causes_of(ledger, rows)
    total = len(rows) if len(rows) < limit else await causality.count_about(ledger.database, name)
    return Timeline(name, tuple(_entries(rows, causes)), total)


def _entries(
    rows: Sequence[LedgerRow], causes: Mapping[UUID, DecisionCause]
) -> list[TimelineEntry]:
    befores = [None, *(row.at for row in rows)]
    return [
        TimelineEntry(
            row,
            causes[row.cause] if row.cause else DecisionCause(),
            None if before is None else row.at - before,
        )
        for row, before in zip(rows, befores, strict=False)
    ]


def in_order(rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """By time, and of one moment a cause before its effect; else the fleet's before the clusters',
    each stream in its own order."""
    pending = {
        row.id: row
        for row in sorted(
            rows, key=lambda r: (r.at, not r.stream.startswith(FLEET), r.stream, r.seq)
        )
    }
    ordered: list[LedgerRow] = []

    def put(row: LedgerRow) -> None:
        del pending[row.id]
        cause = None if row.cause is None else pending.get(row.cause)
        if cause is not None and cause.at == row.at:
            put(cause)
        ordered.append(row)

    while pending:
        put(next(iter(pending.values())))
    return ordered


async def causes_of(ledger: Ledger, rows: Collection[LedgerRow]) -> dict[UUID, DecisionCause]:
    """The cause of each of `rows` that has one, in at most four queries."""
    database = ledger.database
    ids = {row.cause for row in rows if row.cause is not None}
    decided = {row.id: row for row in rows if row.id in ids}
    decided |= await causality.decisions_named(database, ids - decided.keys())
    events = await causality.events_named(database, ids - decided.keys())
    before = await asked_before(ledger, events.values())
    return {
        id_: DecisionCause(id_, events.get(id_), decided.get(id_), before.get(id_)) for id_ in ids
    }


async def asked_before(ledger: Ledger, events: Collection[Event[Value]]) -> dict[UUID, Binding]:
    """Event id of a request -> what was asked for before it, where both came by the intake."""
    requests = {
        event.id: event.data.binding.name
        for event in events
        if isinstance(event.data, BindingRequested)
    }
    if not requests:
        return {}
    accepted = {
        id_: (requests[id_], taken.round)
        for id_, taken in (await causality.accepted(ledger.database, requests)).items()
    }
    told = await causality.told_before(ledger.database, set(accepted.values()))
    before = {id_: told[place][0].data for id_, place in accepted.items() if place in told}
    return {id_: data.binding for id_, data in before.items() if isinstance(data, BindingRequested)}
