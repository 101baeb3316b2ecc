"""What an explanation needs of the history around one decision: single rows by index, and the
relevant part of the rounds since a snapshot (`glimpses`). The rest is not read, and so not checked
here: an audit reads everything, and an explanation is compared with the recorded bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import get_args

import msgspec

from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.codec import UndecodableError, decode
from wharfinger.events.decisions import ScheduleAnswer
from wharfinger.events.envelope import Event
from wharfinger.events.registry import types_of
from wharfinger.events.streams import FLEET
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.runtime.ledger.bodies import unpack
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.days import day_of
from wharfinger.runtime.ledger.decision_rows import IN_ROUND, NEWEST, ROW, LedgerRow, row_of
from wharfinger.runtime.ledger.errors import CorruptLedger
from wharfinger.runtime.ledger.rounds import Unread
from wharfinger.runtime.ledger.stored import data_of

_UNREAD = Unread()

_SCHEDULED = types_of(*get_args(ScheduleAnswer))

LAST_UNTIL = f"""
select {ROW} from decision d
{IN_ROUND}
where d.stream = $1 and d.subject = $2 and d.seq <= $3 {NEWEST} limit 1
"""

BEFORE = f"""
select {ROW} from unnest($2::text[]) as w(name)
cross join lateral (
    select d.* from decision d
    where d.subject = w.name and d.stream = $1 and d.seq < $3 and d.type = any($4::text[])
    {NEWEST} limit 1
) d
{IN_ROUND}
"""


async def shard_of(database: Database, binding: str) -> str | None:
    """The fleet stream that decides about `binding`; None: none ever did."""
    async with database.reading(patient=True) as raw:
        row = await raw.fetchrow(
            "select s.name from stream s where s.name like $2 || '%' "
            "and exists (select from decision d where d.subject = $1 and d.stream = s.id) limit 1",
            binding,
            FLEET,
        )
    return None if row is None else str(row[0])


async def streams_of(database: Database, subject: str, prefix: str) -> list[str]:
    """The streams whose names begin with `prefix` and that ever decided about exactly this subject,
    in order."""
    async with database.reading(patient=True) as raw:
        rows = await raw.fetch(
            "select s.name from stream s where s.name like $2 || '%' "
            "and exists (select from decision d where d.subject = $1 and d.stream = s.id) "
            "order by s.name",
            subject,
            prefix,
        )
    return [str(row[0]) for row in rows]


async def last_until(database: Database, binding: str, stream: str, seq: int) -> LedgerRow | None:
    """The last decision about `binding` in `stream` up to number `seq`."""
    async with database.reading(patient=True) as raw:
        id_ = await _id(database, stream)
        row = await raw.fetchrow(LAST_UNTIL, id_, binding, seq)
    return None if row is None else row_of(row)


async def requirements_before(
    database: Database, stream: str, bindings: Collection[str], seq: int
) -> Mapping[str, Requirements]:
    """binding -> what its last schedule before number `seq` was made for; those without one are
    left out."""
    if not bindings:
        return {}
    id_ = await _id(database, stream)
    async with database.reading(patient=True) as raw:
        rows = await raw.fetch(BEFORE, id_, list(bindings), seq, list(_SCHEDULED))
    found: dict[str, Requirements] = {}
    for row in map(row_of, rows):
        data = row.data()
        assert isinstance(data, ScheduleAnswer), "only those were asked for"
        found[row.subject] = data.requirements
    return found


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A round, with those of its inputs that were wanted. `types`: of all inputs. Of the decisions
    the data of those that were to be skimmed are `Unread`."""

    number: int
    at: Micros
    engine: str
    profile: str
    events: tuple[Event[Value], ...]
    types: frozenset[str]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class SubjectQuery:
    """Selects what concerns `subject`. `naming`: types of inputs that are left out where their body
    does not name the subject; the subject that a producer wrote into its message does not count.
    `skimmed`: types of decisions that are not decoded where they are about other subjects."""

    subject: str
    naming: Collection[str] = ()
    skimmed: Collection[str] = ()


# An input's type is in the event, so each is looked up.
_OF_ROUNDS = """
from input i
cross join lateral (
    select e.type, e.encoding, e.body from event e
    where e.id = i.event and e.sha256 = i.sha256 and e.day = i.day and e.day between $4 and $5
    limit 1
) e
where i.stream = $1 and i.round between $2 and $3 and i.day between $4 and $5
"""

_BODIES = f"select e.encoding, e.body {_OF_ROUNDS} and e.type = any($6::text[])"

_MADE = """
select exists (
    select from decision where stream = $1 and seq between $2 and $3 and day between $4 and $5
    and type = any($6::text[])
)
"""

_ENDS = """
select number, at_us, first_seq, decisions from round where stream = $1 and number = any($2)
"""

_GLIMPSED = """
select number, at_us, engine, profile, first_seq, decisions
from round where stream = $1 and number between $2 and $3 order by number
"""

_INPUTS = f"""
select i.round, e.type, e.encoding, e.body {_OF_ROUNDS} order by i.round, i.ordinal
"""

_DECIDED = """
select round, seq, id, type, subject, outcome, cause, encoding, body
from decision where stream = $1 and seq between $2 and $3 and day between $4 and $5 order by seq
"""


async def glimpses(
    database: Database, stream: str, first: int, last: int, wanted: SubjectQuery
) -> list[Glimpse]:
    """The rounds `first` to `last`, both included, as far as they concern `wanted`. CorruptLedger:
    one of them is missing, or what was wanted cannot be read."""
    id_ = await _id(database, stream)
    async with database.reading(patient=True) as raw:
        rounds = await raw.fetch(_GLIMPSED, id_, first, last)
        if [row[0] for row in rounds] != list(range(first, last + 1)):
            raise CorruptLedger(stream, first, 0, f"not all rounds up to {last} are there")
        days = (day_of(min(r[1] for r in rounds)), day_of(max(r[1] for r in rounds)))
        inputs = await raw.fetch(_INPUTS, id_, first, last, *days)
        end = rounds[-1][4] + rounds[-1][5] - 1
        made = await raw.fetch(_DECIDED, id_, rounds[0][4], end, *days)
    events: dict[int, list[Event[Value]]] = {}
    types: dict[int, set[str]] = {}
    name = msgspec.json.encode(wanted.subject)
    for number, type_, encoding, stored in inputs:
        types.setdefault(number, set()).add(type_)
        body = _unpacked(stream, number, 0, encoding, stored)
        # Looking is ten times as quick as decoding. A foreign hand may have escaped letters of the
        # name; then it is decoded.
        if type_ not in wanted.naming or name in body or b"\\" in body:
            events.setdefault(number, []).append(_event(stream, number, body))
    decisions: dict[int, list[Decision]] = {}
    for number, seq, decision, type_, subject, outcome, cause, encoding, stored in made:
        body = _unpacked(stream, number, seq, encoding, stored)
        skimmed = subject != wanted.subject and type_ in wanted.skimmed
        data = _UNREAD if skimmed else data_of(stream, number, seq, type_, body)
        decisions.setdefault(number, []).append(
            Decision(stream, seq, decision, type_, subject, outcome, cause, data, body)
        )
    if sum(map(len, decisions.values())) != end - rounds[0][4] + 1:
        raise CorruptLedger(
            stream, first, 0, f"not all decisions of the rounds up to {last} are there"
        )
    return [
        Glimpse(
            number,
            at,
            engine,
            profile,
            tuple(events.get(number, ())),
            frozenset(types.get(number, ())),
            tuple(decisions.get(number, ())),
        )
        for number, at, engine, profile, _, _ in rounds
    ]


async def concerned(
    database: Database,
    stream: str,
    rounds: range,
    subject: str,
    inputs: Collection[str],
    decisions: Collection[str],
) -> bool:
    """Whether the rounds may have taken in an input of one of the types `inputs` that names
    `subject`, or made a decision of one of the types `decisions` about anything. CorruptLedger: an
    end of the rounds is missing."""
    if not rounds:
        return False
    id_ = await _id(database, stream)
    ends = sorted({rounds[0], rounds[-1]})
    async with database.reading(patient=True) as raw:
        found = sorted(await raw.fetch(_ENDS, id_, ends))
        if [row[0] for row in found] != ends:
            raise CorruptLedger(stream, rounds[0], 0, f"not all rounds up to {ends[-1]} are there")
        days = (day_of(min(row[1] for row in found)), day_of(max(row[1] for row in found)))
        seqs = (found[0][2], found[-1][2] + found[-1][3] - 1)
        made = await raw.fetchrow(_MADE, id_, *seqs, *days, list(decisions))
        if made is not None and made[0]:
            return True
        bodies = await raw.fetch(_BODIES, id_, ends[0], ends[-1], *days, list(inputs))
    name = msgspec.json.encode(subject)
    return any(
        name in body or b"\\" in body
        for body in (
            _unpacked(stream, ends[-1], 0, encoding, stored) for encoding, stored in bodies
        )
    )


def _unpacked(stream: str, number: int, seq: int, encoding: int, stored: bytes) -> bytes:
    try:
        return unpack(encoding, stored)
    except ValueError as error:
        raise CorruptLedger(stream, number, seq, str(error)) from None


def _event(stream: str, number: int, body: bytes) -> Event[Value]:
    try:
        return decode(body)
    except UndecodableError as error:
        raise CorruptLedger(stream, number, 0, str(error)) from None


async def _id(database: Database, stream: str) -> int:
    """Asked apart, so that the planner sees a constant and takes the index it has for one
    stream."""
    async with database.reading(patient=True) as raw:
        row = await raw.fetchrow("select id from stream where name = $1", stream)
    return 0 if row is None else int(row[0])
