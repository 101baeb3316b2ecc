"""What came from outside, in the order in which it took effect.

An event from outside is accepted by the intake, or sent directly by a collector, and then taken in
by one stage or several. It takes effect when the first stage takes it in. An event that no stage
has taken in, such as a policy that only observers read, takes effect when it is accepted. So do
events that observers act on before any stage does: the estimator may have counted nodes and pods,
and the fleet may have received its capacity, before the stage of that cluster reads them. The
inputs of one round stay together, because the round folded them together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from wharfinger.domain.value import Value
from wharfinger.events.codec import decode
from wharfinger.events.envelope import Event
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.bodies import PLAIN, unpack
from wharfinger.runtime.ledger.database import Database, Record
from wharfinger.runtime.ledger.days import day_of
from wharfinger.runtime.ledger.errors import CorruptLedger

_FETCHED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class ExogenousRound:
    """Events that took effect together: those of round `number` of `stream`, at its time."""

    at: Micros
    stream: str
    number: int
    events: tuple[Event[Value], ...]


# A stage's input comes before the intake's of the same event, so `distinct on` keeps the first
# stage's where there is one; for the types of $6 it is the other way round.
_TAKEN_IN = f"""
select f.at_us, f.name, f.round, e.encoding, e.body
from (
    select distinct on (i.event) i.event, i.sha256, i.day, i.round, i.ordinal, r.at_us, s.name
    from input i
    join event e on e.id = i.event and e.sha256 = i.sha256 and e.day = i.day
    join stream s on s.id = i.stream
    join round r on r.stream = i.stream and r.number = i.round and r.day = i.day
    where i.day >= $7 and (e.type = any($1::text[]) or (e.type = any($2::text[]) and e.source = $3))
    order by i.event, (s.name = '{INTAKE}') <> (e.type = any($6::text[])), r.at_us, s.name, i.round,
        i.ordinal
) f
join event e on e.id = f.event and e.sha256 = f.sha256 and e.day = f.day
where f.at_us > $4 and ($5::bigint is null or f.at_us <= $5)
order by f.at_us, f.name <> '{INTAKE}', f.name, f.round, f.ordinal
"""


async def taken_in(
    database: Database,
    types: Collection[str],
    requests: Collection[str],
    requested_by: str,
    after: Micros,
    until: Micros | None,
    observed: Collection[str] = (),
) -> AsyncIterator[ExogenousRound]:
    """What took effect after `after` and not after `until`: events of `types`, and of `requests`
    those whose source is `requested_by`. `observed`: those of `types` that count as of their
    acceptance.

    What a stage took in over a day before `after` and another one only later counts as of the later
    one: no more than a day is looked at to find out. Fetched as it is consumed, all as of the first
    fetch. CorruptLedger: a body cannot be read.
    """
    async with database.moment() as transaction:
        rows = transaction.raw.cursor(
            _TAKEN_IN,
            sorted(types),
            sorted(requests),
            requested_by,
            after,
            until,
            sorted(observed),
            day_of(after) - 1,
            prefetch=_FETCHED_AT_ONCE,
        )
        together: list[Event[Value]] = []
        place: tuple[Micros, str, int] | None = None
        async for at, stream, number, encoding, body in rows:
            if place is not None and place != (at, stream, number):
                yield ExogenousRound(*place, tuple(together))
                together = []
            place = (at, stream, number)
            together.append(_event(stream, number, encoding, body))
        if place is not None:
            yield ExogenousRound(*place, tuple(together))


async def first_and_last(database: Database) -> tuple[Micros, Micros] | None:
    """When the first and the last round of any stream took place; None: there is none."""
    async with database.reading(patient=True) as raw:
        row: Record | None = await raw.fetchrow("select min(at_us), max(at_us) from round")
    return None if row is None or row[0] is None else (row[0], row[1])


def _event(stream: str, number: int, encoding: int, stored: bytes) -> Event[Value]:
    try:
        return decode(stored if encoding == PLAIN else unpack(encoding, stored))
    except ValueError as error:
        raise CorruptLedger(stream, number, 0, f"an input: {error}") from None
