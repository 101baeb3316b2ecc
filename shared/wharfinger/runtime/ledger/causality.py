"""Follow a thread through the history: what was decided about one thing, and what led to what.

Every question here is asked of all ids of a step at once, and answered from an index or from a
stretch of a stream whose length is given: none grows with the length of the ledger. Decisions carry
the id of their cause but are not indexed by it. An index over random ids would be paid for with
every decision; the effects of a cause are found near it instead, since they are about the same
subject or follow it closely in the stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.events.codec import UndecodableError, decode
from wharfinger.events.envelope import Event
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.bodies import unpack
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.decision_rows import (
    AT_ROUND,
    IN_ROUND,
    NEWEST,
    ROW,
    LedgerRow,
    row_of,
)
from wharfinger.runtime.ledger.errors import LedgerError


class RoundRef(NamedTuple):
    """A round of a stream."""

    stream: str
    round: int


@dataclass(frozen=True, slots=True)
class EventTaken:
    """That a stream took an event in: in which round, when, and after which of its decisions."""

    event: UUID
    stream: str
    round: int
    at: Micros
    seq_before: int


# The newest of each stream are chosen by their keys; only those are fetched.
LATEST_ABOUT = f"""
select {ROW} from (
    select d.stream, d.seq, row_number() over (partition by d.stream order by d.seq desc) as place
    from decision d where d.subject = $1
    and d.stream <> coalesce((select id from stream where name = '{INTAKE}'), 0)
) k
cross join lateral (
    select d.* from decision d where d.stream = k.stream and d.seq = k.seq offset 0
) d
{IN_ROUND}
where k.place <= $2
order by r.at_us desc, s.name desc, d.seq desc limit $2
"""

# The limit is no parameter: a plan that is made for any limit may read more than this one.
_LAST_OF = f"""
select {ROW} from unnest($1::text[]) as w(subject)
cross join lateral (
    select d.* from decision d join stream s on s.id = d.stream and s.name like $3 || '%'
    where d.subject = w.subject and d.type = any($2::text[]) {NEWEST} limit %d
) d
{IN_ROUND}
"""
_LATEST_OF = _LAST_OF.replace("%d", "1")

_COUNT_ABOUT = f"""
select count(*) from decision d
where d.subject = $1 and d.stream = any(array(select id from stream where name <> '{INTAKE}'))
"""

NAMED = f"""
select {ROW} from unnest($1::uuid[]) as w(id)
cross join lateral (select d.* from decision d where d.id = w.id offset 0) d
{IN_ROUND}
"""

_EVENTS = (
    "select distinct on (id) id, encoding, body from event where id = any($1::uuid[]) order by id"
)

# Where an event was taken in, one probe of an index a step.
_TAKEN = """
select i.event, s.name, i.round, r.at_us, r.first_seq - 1
from (select distinct id, day from event where id = any($1::uuid[])) e
cross join lateral (
    select i.event, i.stream, i.round, i.day from input i
    where i.event = e.id and i.day = e.day offset 0
) i
join stream s on s.id = i.stream and {}
cross join lateral (
    select r.at_us, r.first_seq from round r
    where r.stream = i.stream and r.number = i.round and r.day = i.day offset 0
) r
"""
ACCEPTED = _TAKEN.format(f"s.name = '{INTAKE}'")
TAKEN_IN = _TAKEN.format(f"s.name <> '{INTAKE}'")

_CAUSED_ABOUT = f"""
select {ROW} from decision d
{IN_ROUND}
where s.name <> '{INTAKE}' and d.subject = any($1::text[]) and d.cause = any($2::uuid[])
order by r.at_us, s.name, d.seq limit $3
"""

# A stretch of a stream is walked along its key and each cause compared, so that the cost is the
# length of the stretch.
_CAUSED_AFTER = f"""
select {ROW} from unnest($1::text[], $2::bigint[]) as w(name, seq)
join stream s on s.name = w.name
cross join lateral (
    select d.* from decision d where d.stream = s.id and d.seq > w.seq and d.seq <= w.seq + $4
    order by d.seq offset 0
) d
{AT_ROUND}
where d.cause = any($3::uuid[])
order by r.at_us, s.name, d.seq limit $5
"""

_INPUTS_OF = """
select s.name, i.round, e.encoding, e.body
from unnest($1::text[], $2::bigint[]) as w(name, round)
join stream s on s.name = w.name
cross join lateral (
    select i.* from input i where i.stream = s.id and i.round = w.round order by i.ordinal offset 0
) i
cross join lateral (
    select e.type, e.encoding, e.body from event e where e.id = i.event and e.sha256 = i.sha256
        and e.day = i.day limit 1
) e
where e.type = any($3::text[])
order by s.name, i.round, i.ordinal
"""

_INPUTS_AFTER = """
select s.name, i.round, e.encoding, e.body
from unnest($1::text[], $2::bigint[]) as w(name, round)
join stream s on s.name = w.name
cross join lateral (
    select i.* from input i where i.stream = s.id and i.round >= w.round order by i.round, i.ordinal
    limit $4
) i
cross join lateral (
    select e.type, e.encoding, e.body from event e where e.id = i.event and e.sha256 = i.sha256
        and e.day = i.day limit 1
) e
where e.type = any($3::text[])
order by i.round, s.name, i.ordinal limit $5
"""

# The last thing told about a subject before a round of the intake; the decision's cause is the
# event that told it.
TOLD = f"""
select w.subject, w.round, e.encoding, e.body, r.at_us
from unnest($1::text[], $2::bigint[]) as w(subject, round)
join stream s on s.name = '{INTAKE}'
cross join lateral (
    select d.stream, d.round, d.cause, d.day from decision d
    where d.subject = w.subject and d.stream = s.id and d.round < w.round {NEWEST} limit 1
) d
{AT_ROUND}
cross join lateral (
    select e.encoding, e.body from input i
    join event e on e.id = i.event and e.sha256 = i.sha256 and e.day = i.day
    where i.stream = d.stream and i.event = d.cause limit 1
) e
"""

_TOLD_LIKE = "select key from fact where topic = $2 and key ~ $1 order by key limit $3"

# Names are few beside decisions, so the index is walked from one name to the next instead of
# through all of its entries.
_SUBJECTS_LIKE = """
with recursive walk(subject) as (
    (select d.subject from decision d order by d.subject limit 1)
    union all
    select (select d.subject from decision d where d.subject > walk.subject
        order by d.subject limit 1)
    from walk where walk.subject is not null
)
select w.subject from walk w where w.subject ~ $1 and exists (
    select from decision d join stream s on s.id = d.stream
    where d.subject = w.subject and s.name like $2 || '%' limit 1
) order by w.subject limit $3
"""

_DECIDED_ABOUT = """
select from stream s cross join lateral (
    select from decision d where d.subject = $1 and d.stream = s.id limit 1
) d where s.name like $2 || '%' limit 1
"""


async def latest_about(database: Database, subject: str, limit: int) -> list[LedgerRow]:
    """The last `limit` decisions about `subject` in all streams, the oldest of them first."""
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(LATEST_ABOUT, subject, limit)
    return [row_of(record) for record in reversed(found)]


async def latest_of(
    database: Database, subjects: Collection[str], types: Collection[str], prefix: str
) -> dict[str, LedgerRow]:
    """The last decision of one of `types` about each subject, by streams whose name begins with
    `prefix`.

    For subjects that one stream decides about: a binding has one fleet shard.
    """
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(_LATEST_OF, list(subjects), list(types), prefix)
    return {row.subject: row for row in map(row_of, found)}


async def last_of(
    database: Database, subjects: Collection[str], types: Collection[str], prefix: str, limit: int
) -> dict[str, list[LedgerRow]]:
    """As `latest_of`, the last `limit` decisions about each subject, the oldest of them first."""
    async with database.reading(patient=True) as raw:
        query = _LAST_OF.replace("%d", str(limit))
        records = await raw.fetch(query, list(subjects), list(types), prefix)
    found: dict[str, list[LedgerRow]] = {}
    for row in sorted(map(row_of, records), key=lambda row: row.seq):
        found.setdefault(row.subject, []).append(row)
    return found


async def count_about(database: Database, subject: str) -> int:
    """How many decisions there are about `subject`; grows with that number and with nothing
    else."""
    async with database.reading(patient=True) as raw:
        found = await raw.fetchrow(_COUNT_ABOUT, subject)
    return 0 if found is None else int(found[0])


async def decided_about(database: Database, subject: str, prefix: str) -> bool:
    """Whether a stream whose name begins with `prefix` ever decided about exactly this subject."""
    async with database.reading(patient=True) as raw:
        return await raw.fetchrow(_DECIDED_ABOUT, subject, prefix) is not None


async def told_like(database: Database, pattern: str, topic: str, limit: int) -> list[str]:
    """Keys of a topic that match the regular expression, in order. Reads every key under which
    the intake recorded an event."""
    async with database.reading(patient=True) as raw:
        return [record[0] for record in await raw.fetch(_TOLD_LIKE, pattern, topic, limit)]


async def subjects_like(database: Database, pattern: str, prefix: str, limit: int) -> list[str]:
    """Subjects that match the regular expression and were decided about by streams with this
    prefix, in order.

    Grows with the number of names there are, not with what was decided about them.
    """
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(_SUBJECTS_LIKE, pattern, prefix, limit)
    return [record[0] for record in found]


async def decisions_named(database: Database, ids: Collection[UUID]) -> dict[UUID, LedgerRow]:
    """Those of `ids` that are decisions, the intake's among them."""
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(NAMED, list(ids))
    return {row.id: row for row in map(row_of, found)}


async def events_named(database: Database, ids: Collection[UUID]) -> dict[UUID, Event[Value]]:
    """Those of `ids` that are recorded events. LedgerError: one of them cannot be read."""
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(_EVENTS, list(ids))
    return {event.id: event for event in (_event(encoding, body) for _, encoding, body in found)}


async def accepted(database: Database, ids: Collection[UUID]) -> dict[UUID, EventTaken]:
    """When those of `ids` that came by the intake were accepted."""
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(ACCEPTED, list(ids))
    return {taken.event: taken for taken in (EventTaken(*record) for record in found)}


async def taken_in(database: Database, ids: Collection[UUID]) -> list[EventTaken]:
    """Where and when the deciding streams took the events in, in order of time."""
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(TAKEN_IN, list(ids))
    return sorted(
        (EventTaken(*record) for record in found), key=lambda t: (t.at, t.stream, t.round)
    )


async def caused_about(
    database: Database, subjects: Collection[str], causes: Collection[UUID], limit: int
) -> list[LedgerRow]:
    """Decisions about `subjects` whose cause is one of `causes`, in order of time."""
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(_CAUSED_ABOUT, list(subjects), list(causes), limit)
    return [row_of(record) for record in found]


async def caused_after(
    database: Database,
    starts: Iterable[tuple[str, int]],
    causes: Collection[UUID],
    window: int,
    limit: int,
) -> list[LedgerRow]:
    """Decisions whose cause is one of `causes`, among the `window` decisions that follow each
    (stream, seq)."""
    streams, seqs = _columns(starts)
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(_CAUSED_AFTER, streams, seqs, list(causes), window, limit)
    return [row_of(record) for record in found]


async def inputs_of(
    database: Database, places: Iterable[tuple[str, int]], types: Sequence[str]
) -> list[tuple[RoundRef, Event[Value]]]:
    """The events of these types that the rounds took in, in order."""
    streams, rounds = _columns(places)
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(_INPUTS_OF, streams, rounds, list(types))
    return [
        (RoundRef(stream, number), _event(encoding, body))
        for stream, number, encoding, body in found
    ]


async def inputs_after(
    database: Database,
    places: Iterable[tuple[str, int]],
    types: Sequence[str],
    window: int,
    limit: int,
) -> list[tuple[RoundRef, Event[Value]]]:
    """The same among the `window` inputs that begin with each place's round, at most `limit`."""
    streams, numbers = _columns(places)
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(_INPUTS_AFTER, streams, numbers, list(types), window, limit)
    return [
        (RoundRef(stream, number), _event(encoding, body))
        for stream, number, encoding, body in found
    ]


async def told_before(
    database: Database, wanted: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[Event[Value], Micros]]:
    """(subject, round of the intake) -> the last event that the intake recorded about the subject
    before that round, and its time. A pair without such an event is left out."""
    subjects, rounds = _columns(wanted)
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(TOLD, subjects, rounds)
    return {
        (subject, number): (_event(encoding, body), at)
        for subject, number, encoding, body, at in found
    }


def _columns(pairs: Iterable[tuple[str, int]]) -> tuple[list[str], list[int]]:
    every = list(pairs)
    return [name for name, _ in every], [number for _, number in every]


def _event(encoding: int, stored: bytes) -> Event[Value]:
    try:
        return decode(unpack(encoding, stored))
    except (UndecodableError, ValueError) as error:
        raise LedgerError(f"a recorded event cannot be read: {error}") from None
