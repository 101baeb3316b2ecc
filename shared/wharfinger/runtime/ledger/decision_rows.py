"""Decisions as rows, for those who relay or show them.

Rows come in the order of their streams; between streams by time, so that a reader who is far behind
catches up with all of them alike. Because a stream's seq is dense, a reader that stands at seq n
knows that n + 1 is next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from wharfinger.domain.value import Value, json_decoder
from wharfinger.events.acceptance import MessageAccepted
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database, Raw, Record
from wharfinger.runtime.ledger.days import day_of
from wharfinger.runtime.ledger.errors import CorruptLedger
from wharfinger.runtime.ledger.heads import selected
from wharfinger.runtime.ledger.stored import data_of, plain_body

_SHOWN_AT_ONCE = 500


class IntakeRow(msgspec.Struct, frozen=True):
    """What a row of the intake stands for: the message, byte for byte, and where it goes."""

    id: UUID
    type: str
    body: bytes
    topic: str
    key: str
    partition_key: str


class LedgerRow(msgspec.Struct, frozen=True):
    """One decision of a stream. `at`: of its round. `body`: canonical JSON of its data. `accepted`:
    only on the intake."""

    stream: str
    seq: int
    round: int
    at: Micros
    id: UUID
    type: str
    subject: str
    outcome: str
    cause: UUID | None
    body: bytes
    accepted: IntakeRow | None = None

    def data(self) -> Value:
        """CorruptLedger: the body is not what the type says."""
        return data_of(self.stream, self.round, self.seq, self.type, self.body)


@dataclass(frozen=True, slots=True)
class DecisionQuery:
    """Which decisions are wanted. `stream`: a name or a prefix. `since`: the `at` of the earliest
    round, `until`: of the latest. `after`: stream -> last seq seen, to go on from there. `limit`:
    the first so many. `outcomes`, `subjects`, `namespaces` of the subject: any of them; empty:
    all."""

    stream: str = ""
    since: Micros | None = None
    types: Collection[str] = ()
    subject: str | None = None
    after: Mapping[str, int] | None = None
    limit: int | None = None
    until: Micros | None = None
    outcomes: Collection[str] = ()
    subjects: Collection[str] = ()
    namespaces: Collection[str] = ()


class _Sent(msgspec.Struct):
    id: UUID
    stream: str
    seq: int
    round: int
    type: str
    subject: str
    outcome: str
    time: datetime
    cause: UUID | None
    data: msgspec.Raw


_sent = json_decoder(_Sent).decode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def row_in(line: bytes | msgspec.Raw) -> LedgerRow:
    """A row that was sent as JSON (`answers.decisions.as_line`), with the bytes of its body as they
    were recorded. msgspec.MsgspecError: these bytes are none."""
    sent = _sent(line)
    at = (sent.time - _EPOCH) // timedelta(microseconds=1)
    return LedgerRow(
        sent.stream,
        sent.seq,
        sent.round,
        at,
        sent.id,
        sent.type,
        sent.subject,
        sent.outcome,
        sent.cause,
        bytes(sent.data),
    )


# Of a decision `d`, its stream `s` and its round `r`.
ROW = (
    "s.name, d.seq, d.round, r.at_us, d.id, d.type, d.subject, d.outcome, d.cause, d.encoding, "
    "d.body"
)

# The stream and the round of each decision, by one probe of their keys for each. Joined freely, all
# streams or rounds may be gone through for a few decisions: statistics are older than the rows of a
# busy hour, and say nothing of how many a list of parameters gives.
AT_ROUND = """cross join lateral (
    select r.at_us, r.number, r.first_seq from round r
    where r.stream = d.stream and r.number = d.round and r.day = d.day offset 0
) r"""
_IN_STREAM = "cross join lateral (select s.name from stream s where s.id = d.stream offset 0) s"
IN_ROUND = f"{_IN_STREAM}\n{AT_ROUND}"

# The newest decisions about a subject first. By `seq` alone PostgreSQL may walk a stream backwards
# until it meets the subject, however far that is. An order that no index has leaves it the index of
# subjects: the cost is that of all decisions about the subject.
NEWEST = "order by d.seq + 0 desc"

# The streams that have decisions beyond the cursors, and the head of the feed at that moment. Most
# often there are none, and this is the only query. Decisions that were retired do not count.
# Cursors are one object, since a list would be gone through for each stream.
BEHIND = """
select s.id, s.name, greatest(coalesce(($1::jsonb ->> s.name)::bigint, 0), coalesce(h.seq, 0))
    as seq, s.epoch, f.position
from stream s left join horizon h on h.stream = s.id left join feed_head f on true
where s.seq > greatest(coalesce(($1::jsonb ->> s.name)::bigint, 0), coalesce(h.seq, 0))
"""

FOUND = (
    "name, seq, round, at_us, id, type, subject, outcome, cause, encoding, body, "
    "event, event_type, event_encoding, event_body, hash"
)
"""The columns of `rows_after_in`; without the last one as `relayed` takes them."""


# The keys are chosen first and the bodies fetched for those alone: with many streams behind, most
# candidates lose. Because seq is dense, a stream's next rows are a bounded range, which the planner
# can only answer from the index. The accepted event is looked up row by row (limit 1 keeps it so):
# joined freely, the whole of `input` would be hashed for it. The day is given for every table, so
# that partitions before it are not even planned for. Streams are merged by time, but a stream whose
# time was set back comes in its own order: a row is placed by the latest time up to it.
def rows_after_in(streams: str, limit: str, since: str) -> str:
    """A statement for the next rows of `streams`, a relation of id, name and seq. `limit`, `since`:
    the parameters for how many, and for the day before which there are none. Its columns are
    `FOUND`."""
    return f"""
with chosen as (
    select k.stream, k.day, k.seq, s.name, r.at_us, r.first_seq, r.hash,
        max(r.at_us) over (partition by k.stream order by k.seq) as place
    from {streams} s
    cross join lateral (
        select d.stream, d.day, d.seq, d.round from decision d
        where d.stream = s.id and d.seq > s.seq and d.seq <= s.seq + {limit} and d.day >= {since}
        order by d.seq limit {limit}
    ) k
    join round r on r.stream = k.stream and r.number = k.round and r.day = k.day
        and r.day >= {since}
    order by place, s.name, k.seq limit {limit}
)
select s.name, d.seq, d.round, s.at_us, d.id, d.type, d.subject, d.outcome, d.cause, d.encoding,
    d.body, a.id, a.type, a.encoding, a.body, s.hash
from chosen s
join decision d on d.stream = s.stream and d.seq = s.seq and d.day = s.day and d.day >= {since}
left join lateral (
    select e.id, e.type, e.encoding, e.body
    from input i join event e on e.id = i.event and e.sha256 = i.sha256 and e.day = i.day
        and e.day >= {since}
    where s.name = '{INTAKE}' and i.stream = d.stream and i.round = d.round
        and i.ordinal = d.seq - s.first_seq and i.day = d.day and i.day >= {since}
    limit 1
) a on true
order by s.place, s.name, d.seq
"""


_ROWS_AFTER = rows_after_in(
    "(select * from unnest($1::int[], $2::text[], $3::bigint[]) as w(id, name, seq))", "$4", "$5"
)

_DECISION = f"""
select {ROW} from decision d
{IN_ROUND}
where d.id = $1
"""

# The index has all that is needed to find the latest of each; only those are then fetched whole.
_CURRENT = f"""
select {ROW} from (
    select d.subject, d.stream, max(d.seq) as seq from decision d
    where d.subject >= $1 and ($2::text is null or d.subject < $2)
    group by d.subject, d.stream
) k
join stream s on s.id = k.stream and s.name = any($3::text[])
join decision d on d.stream = k.stream and d.seq = k.seq
{AT_ROUND}
order by d.subject, s.name
"""

# As before, of these subjects ($1).
_CURRENT_OF = f"""
select {ROW} from unnest($1::text[]) as w(subject)
cross join unnest($2::text[]) as n(name) join stream s on s.name = n.name
cross join lateral (
    select d.* from decision d where d.subject = w.subject and d.stream = s.id {NEWEST} limit 1
) d
{AT_ROUND}
order by d.subject, s.name
"""


_WANTED = f"""
select {ROW} from stream s
left join unnest($1::text[], $2::bigint[]) as c(name, seq) on c.name = s.name
join decision d on d.stream = s.id and d.seq > coalesce(c.seq, 0)
join round r on r.stream = d.stream and r.number = d.round and r.day = d.day
where true{{conditions}}
order by r.at_us, s.name, d.seq limit {{limit}}
"""

# As before, the first rows of each stream, merged: the cost is that of as many rows of each stream
# as are wanted, and of those passed over for them. A stream whose time was set back comes in its
# own order, as in `_ROWS_AFTER`: who goes on behind these rows has seen all before them.
_PAGE = f"""
select {ROW} from (
    select k.*, s.name, max(k.at_us) over (partition by k.stream order by k.seq) as place
    from stream s
    left join unnest($1::text[], $2::bigint[]) as c(name, seq) on c.name = s.name
    cross join lateral (
        select d.*, r.at_us from decision d
        {AT_ROUND}
        where d.stream = s.id and d.seq > coalesce(c.seq, 0){{conditions}}
        order by d.seq limit {{limit}}
    ) k
) d
{_IN_STREAM}
cross join lateral (select d.at_us) r
order by d.place, s.name, d.seq limit {{limit}}
"""


class Days:
    """On which day a stream's rows were that were read last. In one epoch of a stream time never
    goes back (`rebasing` raises the epoch), so later rows are on no earlier day: a reader who goes
    on from there need not look into older partitions."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._newest = 0
        self.few = True
        """Whether few rows waited when they were last looked for."""

    @property
    def newest(self) -> int:
        """The newest day of the rows that were read last."""
        return self._newest

    def since(self, cursors: Mapping[str, tuple[int, int]]) -> int:
        """No row beyond `cursors` (stream -> seq, present epoch) is on an earlier day."""
        return min(
            (self._day(stream, seq, epoch) for stream, (seq, epoch) in cursors.items()), default=0
        )

    def read(self, rows: Iterable[LedgerRow], epochs: Mapping[str, int]) -> None:
        """`epochs`: of each stream, before the rows were read."""
        days = []
        for row in rows:
            days.append(day := day_of(row.at))
            self._seen[row.stream] = (row.seq, day, epochs[row.stream])
        self._newest = max(days, default=self._newest)

    def _day(self, stream: str, seq: int, epoch: int) -> int:
        read, day, of_epoch = self._seen.get(stream, (0, 0, epoch))
        return day if read <= seq and of_epoch == epoch else 0


class RowsBeyond(NamedTuple):
    """Rows beyond cursors. `feed_position`: the last that was given before they were read; 0 where
    there are none. `hashes`: of the rounds of these rows, by stream and number."""

    rows: list[LedgerRow]
    feed_position: int
    hashes: Mapping[tuple[str, int], bytes]


async def rows_after(
    database: Database, cursors: Mapping[str, int], limit: int, days: Days | None = None
) -> list[LedgerRow]:
    """At most `limit` rows beyond `cursors` (stream -> last seq seen; a stream that is not there is
    read from its start, or from where it was retired). The stream of accesses is not among them.
    `days` is kept by the caller from one call
    to the next."""
    async with database.reading(repeated=True) as raw:
        return (await read_after(raw, cursors, limit, days)).rows


async def read_after(
    raw: Raw, cursors: Mapping[str, int], limit: int, days: Days | None = None
) -> RowsBeyond:
    """As `rows_after`, by a connection for repeated statements."""
    days = days or Days()
    behind = await raw.fetch(BEHIND, msgspec.json.encode(cursors).decode())
    if not behind:
        return RowsBeyond([], 0, {})
    since = days.since({name: (seq, epoch) for _, name, seq, epoch, _ in behind})
    places = [(id_, name, seq) for id_, name, seq, _, _ in behind]
    found = await raw.fetch(_ROWS_AFTER, *zip(*places, strict=True), limit, since)
    rows = [relayed(record) for record in found]
    days.read(rows, {name: epoch for _, name, _, epoch, _ in behind})
    hashes = {(row.stream, row.round): record[15] for row, record in zip(rows, found, strict=True)}
    position = behind[0][4]
    assert position is not None, "the migration has made the feed's head"
    return RowsBeyond(rows, position, hashes)


async def decision(database: Database, id_: UUID) -> LedgerRow | None:
    async with database.reading() as raw:
        found = await raw.fetchrow(_DECISION, id_)
    return None if found is None else row_of(found)


async def current(database: Database, subject: str, stream: str) -> list[LedgerRow]:
    """The latest decision of each (subject, stream) whose subject begins with `subject`, in order
    of both.

    `stream`: a name or a prefix; empty means all but the intake, which decides nothing about its
    subjects.
    """
    async with database.reading(patient=True) as raw:
        names = [name for name in await _names(raw, stream) if stream or name != INTAKE]
        found = await raw.fetch(_CURRENT, subject, _after_prefix(subject), names)
    return [row_of(record) for record in found]


async def current_of(database: Database, subjects: Collection[str], stream: str) -> list[LedgerRow]:
    """As `current`, of exactly these subjects."""
    async with database.reading(patient=True) as raw:
        names = [name for name in await _names(raw, stream) if stream or name != INTAKE]
        found = await raw.fetch(_CURRENT_OF, list(subjects), names)
    return [row_of(record) for record in found]


async def decisions(database: Database, query: DecisionQuery) -> AsyncIterator[LedgerRow]:
    """What the query asks for, by time, then stream, then seq; fetched as it is consumed, all as of
    the first fetch."""
    conditions: list[str] = []
    values: list[object] = []

    def where(condition: str, value: object) -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values)}"))

    async with database.moment() as transaction:
        raw = transaction.raw
        cursors = dict(query.after or {})
        values += [list(cursors.keys()), list(cursors.values())]
        if query.stream:
            where("s.name = any({}::text[])", await _names(raw, query.stream))
        if query.since is not None:
            where("r.at_us >= {}", query.since)
            where("d.day >= {0} and r.day >= {0}", day_of(query.since))
        if query.types:
            where("d.type = any({}::text[])", sorted(query.types))
        if query.subject is not None:
            where("d.subject = {}", query.subject)
        if query.until is not None:
            where("r.at_us <= {}", query.until)
        if query.outcomes:
            where("d.outcome = any({}::text[])", sorted(query.outcomes))
        if query.subjects:
            where("d.subject = any({}::text[])", sorted(query.subjects))
        if query.namespaces:
            where("split_part(d.subject, '/', 1) = any({}::text[])", sorted(query.namespaces))
        paged = query.limit is not None and query.since is None and query.until is None
        form = _PAGE if paged else _WANTED
        statement = form.format(
            conditions="".join(f" and {condition}" for condition in conditions),
            limit="all" if query.limit is None else f"{query.limit:d}",
        )
        async for record in raw.cursor(statement, *values, prefetch=_SHOWN_AT_ONCE):
            yield row_of(record)


async def _names(raw: Raw, wanted: str) -> list[str]:
    return selected([record[0] for record in await raw.fetch("select name from stream")], wanted)


def _after_prefix(prefix: str) -> str | None:
    """The first text after all that begin with `prefix`, in order of bytes; None: there is no
    end."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix and prefix[-1] != "\U0010ffff" else None


def relayed(record: Record) -> LedgerRow:
    """What `ROW` selects and, behind it, the event of a row of the intake."""
    if record[0] != INTAKE:
        return row_of(record)
    event_id, event_type, encoding, stored = record[11:15]
    row = row_of(record)
    if event_id is None:
        raise CorruptLedger(
            row.stream, row.round, row.seq, f"decision {row.seq}: the accepted event is missing"
        )
    data = row.data()
    if not isinstance(data, MessageAccepted):
        raise CorruptLedger(
            row.stream,
            row.round,
            row.seq,
            f"decision {row.seq}: {row.type} has no place on the intake",
        )
    body = plain_body(row.stream, row.round, row.seq, encoding, stored)
    accepted = IntakeRow(event_id, event_type, body, data.topic, data.key, data.partition_key)
    return msgspec.structs.replace(row, accepted=accepted)


def row_of(record: Record) -> LedgerRow:
    """What `ROW` selects, as a row; what follows it in the record is left to the caller."""
    stream, seq, number, at, id_, type_, subject, outcome, cause, encoding, stored = record[:11]
    body = plain_body(stream, number, seq, encoding, stored)
    return LedgerRow(stream, seq, number, at, id_, type_, subject, outcome, cause, body)
