"""What the ledger knows: which events were taken in, and the last fact under each key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.events import envelope
from wharfinger.events.acceptance import MessageAccepted
from wharfinger.events.envelope import Event
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database, Raw, Record
from wharfinger.runtime.ledger.days import DAY_US, day_of
from wharfinger.runtime.ledger.errors import CorruptLedger
from wharfinger.runtime.ledger.stored import plain_body

_SHOWN_AT_ONCE = 500

# What streams have taken in, of these events ($1). One probe an id of the index of each partition,
# and one of what is remembered of retired rounds. The array is made by a query, so that the planner
# does not weigh every id of it for every partition.
TAKEN = """
select stream, event, day, sha256 from input where event = any(array(select unnest($1::uuid[])))
union all
select stream, event, day, null from taken where event = any(array(select unnest($1::uuid[])))
"""

# The source is looked up for what was found only.
_KNOWN = f"""
select s.name, k.event, coalesce(e.source, '') from ({TAKEN}) k join stream s on s.id = k.stream
left join lateral (
    select source from event where id = k.event and sha256 = k.sha256 and day = k.day limit 1
) e on true where s.name = any($2::text[])
"""


async def known(database: Database, ids: Mapping[str, Collection[UUID]]) -> dict[str, set[UUID]]:
    """Of the event ids given for each stream, those it has taken in before. One query for all."""
    return {stream: set(found) for stream, found in (await known_sources(database, ids)).items()}


async def known_sources(
    database: Database, ids: Mapping[str, Collection[UUID]]
) -> dict[str, dict[UUID, str]]:
    """As `known`, with the source of each event; empty where its round was retired."""
    asked = {stream: set(wanted) for stream, wanted in ids.items()}
    everything = set().union(*asked.values())
    result: dict[str, dict[UUID, str]] = {stream: {} for stream in ids}
    if everything:
        async with database.reading(repeated=True) as raw:
            found = await raw.fetch(_KNOWN, list(everything), list(asked))
        for stream, id_, source in found:
            if id_ in asked[stream]:
                result[stream][id_] = source
    return result


async def told_apart(
    database: Database, events: Mapping[str, Sequence[Event[Value]]]
) -> tuple[dict[str, list[Event[Value]]], dict[str, dict[UUID, str]]]:
    """The events given for each stream, each under an id that it has of no other source; and what
    `known_sources` says of these ids. One query, and one more for each id that an event gets."""
    known: dict[str, dict[UUID, str]] = {stream: {} for stream in events}
    apart = {stream: list(batch) for stream, batch in events.items()}
    looked_up: dict[str, set[UUID]] = {stream: set() for stream in events}
    while wanted := {
        stream: ids
        for stream, batch in apart.items()
        if (ids := {event.id for event in batch} - looked_up[stream])
    }:
        for stream, found in (await known_sources(database, wanted)).items():
            known[stream] |= found
            looked_up[stream] |= wanted[stream]
            apart[stream] = envelope.told_apart(events[stream], known[stream])
    return apart, known


@dataclass(frozen=True, slots=True)
class Fact:
    """The last event recorded under a key of a topic. `seq`: of its row on the intake; `at`: when
    the intake accepted it. `fact_events.event_of` decodes it."""

    topic: str
    key: str
    partition_key: str
    seq: int
    at: Micros
    id: UUID
    type: str
    body: bytes


_FACTS = f"""
select f.topic, f.key, f.partition_key, f.seq, f.at_us, f.event, e.type, e.encoding, e.body
from fact f left join lateral (
    select * from event e where e.id = f.event and e.sha256 = f.sha256
        and e.day = f.at_us / {DAY_US} limit 1
) e on true
where $1::text is null or f.topic = $1 order by f.seq
"""


# Of each key by itself: in the past, `fact` is a view that has to find the facts of that time.
LATEST = _FACTS.replace(
    "from fact f",
    "from unnest($1::text[], $2::text[]) as w(topic, key) cross join lateral "
    "(select f.* from fact f where f.topic = w.topic and f.key = w.key offset 0) f",
).replace("where $1::text is null or f.topic = $1 ", "")


_HORIZON_FACTS = _FACTS.replace("from fact f", "from horizon_fact f")


async def facts(database: Database, topic: str | None = None) -> AsyncIterator[Fact]:
    """The latest fact under every key, of one topic or of all, in the order in which they were
    accepted; all as of one moment.

    CorruptLedger: the body of one is missing.
    """
    async with database.moment() as transaction:
        async for record in transaction.raw.cursor(_FACTS, topic, prefetch=_SHOWN_AT_ONCE):
            yield _fact(record)


async def latest(database: Database, places: Collection[tuple[str, str]]) -> list[Fact]:
    """The latest fact under each (topic, key), in the order in which they were accepted. A key
    without a fact is left out. CorruptLedger: the body of one is missing."""
    async with database.reading(patient=True) as raw:
        return await latest_among(raw, places)


async def latest_among(raw: Raw, places: Collection[tuple[str, str]]) -> list[Fact]:
    """As `latest`, by a connection that is at hand."""
    wanted = sorted(set(places))
    found = await raw.fetch(LATEST, [t for t, _ in wanted], [key for _, key in wanted])
    return [_fact(record) for record in found]


async def facts_at(database: Database, at: Micros, topic: str | None = None) -> list[Fact]:
    """The fact that was the latest under each key at a time, in the order in which they were
    accepted. Costs the intake's rows between its horizon and then. LedgerError: that was
    retired."""
    from wharfinger.runtime.ledger.rounds import bases, recorded_rounds, round_at

    last = await round_at(database, INTAKE, at)
    base = (await bases(database)).get(INTAKE)
    latest: dict[tuple[str, str], Fact] = {}
    async with database.reading(patient=True) as raw:
        for record in await raw.fetch(_HORIZON_FACTS, topic):
            latest[record[0], record[1]] = _fact(record)
    async for recorded in recorded_rounds(database, INTAKE, base.round + 1 if base else 1, last):
        for event, d in zip(recorded.events, recorded.round.decisions, strict=True):
            to = d.data
            if isinstance(to, MessageAccepted) and topic in (None, to.topic):
                latest[to.topic, to.key] = Fact(
                    to.topic,
                    to.key,
                    to.partition_key,
                    d.seq,
                    recorded.round.at,
                    event.id,
                    event.type,
                    event.body,
                )
    return sorted(latest.values(), key=lambda fact: fact.seq)


def _fact(record: Record) -> Fact:
    name, key, partition_key, seq, at, id_, type_, encoding, stored = record
    if stored is None:
        raise CorruptLedger(
            INTAKE, 0, seq, f"fact {name} {key}: the body of event {id_} is missing"
        )
    return Fact(
        name, key, partition_key, seq, at, id_, type_, plain_body(INTAKE, 0, seq, encoding, stored)
    )


# Looked for among the newest rows of the intake: behind older ones nothing waits, or so much that
# the latest of each key has to do.
_LOOKED_THROUGH = 50_000

_FIRST_UNREAD = f"""
select min(r.first_seq + i.ordinal) from stream s
join round r on r.stream = s.id and r.first_seq + r.decisions > $1 and r.first_seq <= $2
join input i on i.stream = r.stream and i.round = r.number and i.day = r.day
join event e on e.id = i.event and e.sha256 = i.sha256 and e.day = i.day
where s.name = '{INTAKE}' and starts_with(e.type, $3)
and r.first_seq + i.ordinal between $1 and $2
and not exists (select from input o where o.event = i.event and o.stream <> i.stream)
"""


async def read_through(database: Database, through: int, types: str) -> int:
    """The row of the intake, `through` at most, up to which a stage has taken in every event whose
    type begins with `types`. Events that were accepted long before are not looked for."""
    first = max(1, through - _LOOKED_THROUGH + 1)
    async with database.reading(patient=True) as raw:
        found = await raw.fetchrow(_FIRST_UNREAD, first, through, types)
    return through if found is None or found[0] is None else int(found[0]) - 1


async def seqs_before(database: Database, at: Micros) -> dict[str, int]:
    """stream -> the last seq decided before `at`; streams that had decided nothing by then are left
    out."""
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(
            "select s.name, greatest(l.seq, h.seq) from stream s "
            "left join horizon h on h.stream = s.id "
            "left join lateral (select r.first_seq - 1 + r.decisions as seq from round r "
            "where r.stream = s.id "
            "and r.at_us < $1 and r.day <= $2 order by r.at_us desc, "
            "r.number desc limit 1) l on true "
            "where l.seq is not null or h.seq is not null order by s.name",
            at,
            day_of(at),
        )
    return dict(found)


async def missing_bodies(database: Database, ids: Collection[UUID]) -> set[UUID]:
    """Of these event ids, those of which no body is stored."""
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(
            "select distinct id from event where id = any($1::uuid[])", list(ids)
        )
    return set(ids).difference(record[0] for record in found)
