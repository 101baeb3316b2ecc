"""Which clusters placements select, now or at a point of the history: what was recorded, put
together, nothing decided.

A set that came in parts is given whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.policy import Policy
from wharfinger.events.decisions import WITH_EFFECT, SelectionPart, effect_of
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.registry import types_of
from wharfinger.events.rendering import ClusterSelection, put_together, when
from wharfinger.events.streams import FLEET, POLICIES
from wharfinger.history.plane_at import policies_at
from wharfinger.history.points import HistoryPoint
from wharfinger.history.states import PRESENT, state_at
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow, causality
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.stages.fleet.state import FleetState
from wharfinger.stages.fleet.state.selections import STREAM, name_of, subject_of

_TYPES = types_of(*(kind for kind in WITH_EFFECT if kind.ABOUT == "placement"))
"""Types of decisions by which a placement selects other clusters, or none."""


async def placements_at(ledger: Ledger, point: HistoryPoint | None) -> dict[str, Policy]:
    """`<namespace>/<name>` -> the placement as applied by then, in order of name; None: now."""
    if point is None:
        told = [event_of(fact).data async for fact in ledger.facts(POLICIES.name)]
        policies = [data.policy for data in told if isinstance(data, PolicyApplied)]
    else:
        policies = list((await policies_at(ledger, point)).values())
    found = {name_of(policy): policy for policy in policies if policy.selection is not None}
    return dict(sorted(found.items()))


async def selections_at(
    ledger: Ledger, placements: Mapping[str, Policy], point: HistoryPoint | None
) -> dict[str, ClusterSelection]:
    """The sets that these placements had then, of those that had any; None: now. For that the
    latest decisions are asked; for the past, and where decisions have been retired, the stream's
    state."""
    if not placements:
        return {}
    if point is not None:
        return await _of_state(ledger, placements, point)
    keys = {subject_of(key): key for key in placements}
    latest = await causality.latest_of(ledger.database, list(keys), _TYPES, FLEET)
    if len(latest) < len(keys) and STREAM in await ledger.bases():
        return await _of_state(ledger, placements, PRESENT)
    found: dict[str, ClusterSelection] = {}
    for subject, row in sorted(latest.items()):
        selection = await _of_row(ledger, row)
        if selection is not None:
            found[keys[subject]] = selection
    return found


async def _of_row(ledger: Ledger, row: LedgerRow) -> ClusterSelection | None:
    """`row`: the last that was decided of the placement. The parts of a set lie side by side in the
    stream."""
    data = effect_of(row.data())
    if not isinstance(data, SelectionPart):
        return None
    parts = [data]
    if data.parts > 1:
        query = DecisionQuery(
            row.stream,
            types=_TYPES,
            subject=row.subject,
            after={row.stream: row.seq - data.part},
            limit=data.parts,
        )
        parts = [
            d
            for r in [r async for r in ledger.decisions(query)]
            if isinstance(d := effect_of(r.data()), SelectionPart)
        ]
    return put_together(parts, when(row.at))


async def _of_state(
    ledger: Ledger, placements: Mapping[str, Policy], point: HistoryPoint
) -> dict[str, ClusterSelection]:
    state: FleetState = (await state_at(ledger, STREAM, point)).state
    standing = {} if state.selections is None else state.selections.active
    return {
        key: ClusterSelection(key, s.generation, s.groups, s.conditions, when(s.decided_at))
        for key in placements
        if (s := standing.get(key)) is not None
    }
