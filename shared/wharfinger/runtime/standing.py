"""Current assignments out of the ledger, as the very items the `assignments` topic carries.

An observer that begins anew must know every replica that stands in its clusters, however long ago it was assigned; the
topic forgets after its retention, the ledger does not. Read in order of time over all decision streams, so cost grows with
the length of the history.
"""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentItem, AssignmentsDecided
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.fanout import assignment_items
from wharfinger.events.registry import type_of
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.observer_loop import Loaded

BATCH = 5000


async def standing_assignments(ledger: Ledger, mine: Callable[[str], bool]) -> list[Loaded]:
    """One event a stream and cluster and batch, for the clusters that are `mine`; each stream's items in order of seq."""
    cursors = {INTAKE: (await _intake_seq(ledger))}
    loaded: list[Loaded] = []
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
            data = AssignmentsDecided(cluster, stream, found[-1].seq, tuple(found))
            loaded.append((_event(stream, data, found[0].seq), at))
    return loaded


def _event(stream: str, data: AssignmentsDecided, first_seq: int) -> Event[Value]:
    """As the topic would carry it, but without bytes: it is folded here and now and goes nowhere."""
    id = derived_id("standing", stream, data.cluster, first_seq, data.through)
    return Event(id, type_of(data), f"/wharfinger/{stream}", data.cluster, data, b"", b"")


async def _intake_seq(ledger: Ledger) -> int:
    """The intake's last seq, so that none of its rows are read: they decide nothing."""
    return next((h.seq for h in await ledger.heads(INTAKE)), 0)
