"""A range of a stream's rounds at a glance, without reading them."""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database

_SUMMARY = """
select min(r.number), max(r.number), min(r.at_us), max(r.at_us), sum(r.inputs)::bigint,
    sum(r.decisions)::bigint,
    array_agg(distinct r.engine order by r.engine),
    array_agg(distinct r.profile order by r.profile)
from round r join stream s on s.id = r.stream left join horizon h on h.stream = s.id
where s.name = $1 and r.number between $2 and $3 and r.number > coalesce(h.round, 0)
"""

# What was kept of rounds that were retired is no history.
_FIRST = """
select min(r.number) from round r join stream s on s.id = r.stream
left join horizon h on h.stream = s.id
where s.name = $1 and r.number > coalesce(h.round, 0)
"""


@dataclass(frozen=True, slots=True)
class RangeSummary:
    """`first` and `last`: the rounds there really are within what was asked for."""

    first: int
    last: int
    first_at: Micros
    last_at: Micros
    inputs: int
    decisions: int
    engines: tuple[str, ...]
    profiles: tuple[str, ...]


async def summary(database: Database, stream: str, first: int, last: int) -> RangeSummary | None:
    """Of the rounds `first` to `last`, both included; None: there are none."""
    async with database.reading(patient=True) as raw:
        row = await raw.fetchrow(_SUMMARY, stream, first, last)
    if row is None or row[0] is None:
        return None
    found_first, found_last, first_at, last_at, inputs, decisions, engines, profiles = row
    return RangeSummary(
        found_first,
        found_last,
        first_at,
        last_at,
        inputs,
        decisions,
        tuple(engines),
        tuple(profiles),
    )


async def first_round(database: Database, stream: str) -> int | None:
    """The first round that is still there; None: none is."""
    async with database.reading(patient=True) as raw:
        row = await raw.fetchrow(_FIRST, stream)
    return None if row is None or row[0] is None else int(row[0])
