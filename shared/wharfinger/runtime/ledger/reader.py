"""Read the history back: as rows for those who relay or show it, as rounds for those who recover or replay it.

Rows come in the order of their streams; between streams by time, so that a reader who is far behind catches up with all of
them alike. Because a stream's seq is dense, a reader that stands at seq n knows that n + 1 is next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from uuid import UUID

import msgspec
from sqlalchemy import text

from wharfinger.domain.value import Value
from wharfinger.events.acceptance import MessageAccepted
from wharfinger.events.codec import UndecodableError, decode, decode_data, decode_data_to_fold, decode_recorded
from wharfinger.events.envelope import Event
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Basis, Head, InputRef, Round
from wharfinger.kernel.step import empty_head
from wharfinger.runtime.ledger.bodies import PLAIN, unpack
from wharfinger.runtime.ledger.database import Database, Raw, Record
from wharfinger.runtime.ledger.errors import CorruptLedger, LedgerError
from wharfinger.runtime.ledger.heads import selected
from wharfinger.runtime.ledger.schema import DAY_US, day_of

BATCH_ROWS = 4000
"""Inputs and decisions fetched at once for rounds: enough to make the trip cheap, few enough to keep memory flat."""

BATCH_ROUNDS = 1000
_SHOWN_AT_ONCE = 500

decode_basis = msgspec.json.Decoder(Basis).decode


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a row of the intake stands for: the message, byte for byte, and where it goes."""

    id: UUID
    type: str
    body: bytes
    topic: str
    key: str
    partition_key: str


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One decision of a stream. `at`: of its round. `body`: canonical JSON of its data. `accepted`: only on the intake."""

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
    accepted: Accepted | None = None

    def data(self) -> Value:
        """CorruptLedger: the body is not what the type says."""
        return _data(self.stream, self.round, self.seq, self.type, self.body)


@dataclass(frozen=True, slots=True)
class DecisionQuery:
    """Which decisions are wanted. `stream`: a name or a prefix. `since`: the `at` of the earliest round. `after`: stream ->
    last seq seen, to go on from there. `limit`: the first so many."""

    stream: str = ""
    since: Micros | None = None
    types: Collection[str] = ()
    subject: str | None = None
    after: Mapping[str, int] | None = None
    limit: int | None = None


# --- rows ----------------------------------------------------------------------------------------------------------------

# Of a decision `d`, its stream `s` and its round `r`.
ROW = "s.name, d.seq, d.round, r.at_us, d.id, d.type, d.subject, d.outcome, d.cause, d.encoding, d.body"

# Who has something beyond the cursors: most often nobody, and this is all that is asked. What was retired is not waited for.
_BEHIND = """
select s.id, s.name, greatest(coalesce(c.seq, 0), coalesce(h.seq, 0))
from stream s left join unnest($1::text[], $2::bigint[]) as c(name, seq) on c.name = s.name
left join horizon h on h.stream = s.id
where s.seq > greatest(coalesce(c.seq, 0), coalesce(h.seq, 0))
"""

# The keys are chosen first and the bodies fetched for those alone: with many streams behind, most candidates lose. Because
# seq is dense, a stream's next rows are a bounded range, which the planner can only answer from the index. The accepted
# event is looked up row by row (limit 1 keeps it so): joined freely, the whole of `input` would be hashed for it. The day is
# given for every table, so that partitions before it are not even planned for.
_ROWS_AFTER = f"""
with chosen as (
    select k.stream, k.day, k.seq, s.name, r.at_us, r.first_seq
    from unnest($1::int[], $2::text[], $3::bigint[]) as s(id, name, seq)
    cross join lateral (
        select d.stream, d.day, d.seq, d.round from decision d
        where d.stream = s.id and d.seq > s.seq and d.seq <= s.seq + $4 and d.day >= $5 order by d.seq limit $4
    ) k
    join round r on r.stream = k.stream and r.number = k.round and r.day = k.day and r.day >= $5
    order by r.at_us, s.name, k.seq limit $4
)
select s.name, d.seq, d.round, s.at_us, d.id, d.type, d.subject, d.outcome, d.cause, d.encoding, d.body,
       a.id, a.type, a.encoding, a.body
from chosen s
join decision d on d.stream = s.stream and d.seq = s.seq and d.day = s.day and d.day >= $5
left join lateral (
    select e.id, e.type, e.encoding, e.body
    from input i join event e on e.id = i.event and e.sha256 = i.sha256 and e.day = i.day and e.day >= $5
    where s.name = '{INTAKE}' and i.stream = d.stream and i.round = d.round and i.ordinal = d.seq - s.first_seq
      and i.day = d.day and i.day >= $5
    limit 1
) a on true
order by s.at_us, s.name, d.seq
"""

_DECISION = f"""
select {ROW} from decision d
join stream s on s.id = d.stream join round r on r.stream = d.stream and r.number = d.round and r.day = d.day
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
join round r on r.stream = d.stream and r.number = d.round and r.day = d.day
order by d.subject, s.name
"""


class Days:
    """On which day a stream's rows lay that were read last. Time never goes back in a stream, so later rows lie on no earlier
    day: a reader who goes on from there need not look into older partitions."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def since(self, cursors: Mapping[str, int]) -> int:
        """No row beyond `cursors` lies on an earlier day."""
        return min((self._day(stream, seq) for stream, seq in cursors.items()), default=0)

    def read(self, rows: Iterable[LedgerRow]) -> None:
        for row in rows:
            self._seen[row.stream] = (row.seq, day_of(row.at))

    def _day(self, stream: str, seq: int) -> int:
        read, day = self._seen.get(stream, (0, 0))
        return day if read <= seq else 0


async def rows_after(
    database: Database, cursors: Mapping[str, int], limit: int, days: Days | None = None
) -> list[LedgerRow]:
    """At most `limit` rows beyond `cursors` (stream -> last seq seen; a stream that is not there is read from its start, or
    from where it was retired). `days` is kept by the caller from one call to the next."""
    days = days or Days()
    async with database.reading() as raw:
        behind = await raw.fetch(_BEHIND, list(cursors.keys()), list(cursors.values()))
        if not behind:
            return []
        since = days.since({name: seq for _, name, seq in behind})
        found = await raw.fetch(_ROWS_AFTER, *zip(*behind, strict=True), limit, since)
    rows = [_relayed(record) for record in found]
    days.read(rows)
    return rows


async def decision(database: Database, id_: UUID) -> LedgerRow | None:
    async with database.reading() as raw:
        found = await raw.fetchrow(_DECISION, id_)
    return None if found is None else row_of(found)


async def current(database: Database, subject: str, stream: str) -> list[LedgerRow]:
    """The latest decision of each (subject, stream) whose subject begins with `subject`, in order of both.

    `stream`: a name or a prefix; empty means all but the intake, which decides nothing about its subjects.
    """
    async with database.reading() as raw:
        names = [name for name in await _names(raw, stream) if stream or name != INTAKE]
        found = await raw.fetch(_CURRENT, subject, _after_prefix(subject), names)
    return [row_of(record) for record in found]


async def decisions(database: Database, query: DecisionQuery) -> AsyncIterator[LedgerRow]:
    """What the query asks for, by time, then stream, then seq; fetched as it is consumed, all as of the first fetch."""
    conditions: list[str] = []
    values: list[object] = []

    def where(condition: str, value: object) -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values)}"))

    async with database.transaction() as transaction:
        await transaction.execute(text("set transaction isolation level repeatable read, read only"))
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
        statement = f"""
            select {ROW} from stream s
            left join unnest($1::text[], $2::bigint[]) as c(name, seq) on c.name = s.name
            join decision d on d.stream = s.id and d.seq > coalesce(c.seq, 0)
            join round r on r.stream = d.stream and r.number = d.round and r.day = d.day
            {"where " + " and ".join(conditions) if conditions else ""}
            order by r.at_us, s.name, d.seq {"" if query.limit is None else f"limit {query.limit:d}"}
        """
        async for record in raw.cursor(statement, *values, prefetch=_SHOWN_AT_ONCE):
            yield row_of(record)


async def _names(raw: Raw, wanted: str) -> list[str]:
    return selected([record[0] for record in await raw.fetch("select name from stream")], wanted)


def _after_prefix(prefix: str) -> str | None:
    """The first text after all that begin with `prefix`, in order of bytes; None: there is no end."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix and prefix[-1] != "\U0010ffff" else None


def _relayed(record: Record) -> LedgerRow:
    row = row_of(record)
    if row.stream != INTAKE:
        return row
    event_id, event_type, encoding, stored = record[11:]
    if event_id is None:
        raise CorruptLedger(row.stream, row.round, row.seq, f"decision {row.seq}: the accepted event is missing")
    data = row.data()
    if not isinstance(data, MessageAccepted):
        raise CorruptLedger(
            row.stream, row.round, row.seq, f"decision {row.seq}: {row.type} has no place on the intake"
        )
    body = _plain(row.stream, row.round, row.seq, encoding, stored)
    return replace(row, accepted=Accepted(event_id, event_type, body, data.topic, data.key, data.partition_key))


def row_of(record: Record) -> LedgerRow:
    """What `ROW` selects, as a row; what follows it in the record is left to the caller."""
    stream, seq, number, at, id_, type_, subject, outcome, cause, encoding, stored = record[:11]
    body = _plain(stream, number, seq, encoding, stored)
    return LedgerRow(stream, seq, number, at, id_, type_, subject, outcome, cause, body)


# --- rounds --------------------------------------------------------------------------------------------------------------

ROUNDS = """
select number, epoch, at_us, engine, profile, basis, first_seq, inputs, decisions, snapshot, prev_hash, hash
from round where stream = $1 and number between $2 and $3 order by number limit $4
"""

# The days are given wherever they are known, and for every table: partitions beside them are not even planned for.
_ROUNDS_SINCE = ROUNDS.replace(" order by", " and day >= $5 order by")

_INPUTS = """
select i.round, i.ordinal, i.event, i.sha256, e.encoding, e.body
from input i
left join lateral (
    select * from event e where e.id = i.event and e.sha256 = i.sha256 and e.day = i.day and e.day between $4 and $5 limit 1
) e on true
where i.stream = $1 and i.round between $2 and $3 and i.day between $4 and $5 order by i.round, i.ordinal
"""

_DECISIONS = """
select round, seq, id, type, subject, outcome, cause, encoding, body
from decision where stream = $1 and seq between $2 and $3 and day between $4 and $5 order by seq
"""


class Unread(Value, frozen=True):
    """Stands for the data of a recorded decision where only its bytes were asked for."""


_UNREAD = Unread()


async def recorded_rounds(
    database: Database,
    stream: str,
    from_round: int,
    to_round: int | None,
    batch_rows: int = BATCH_ROWS,
    judged_from: int | None = None,
    on_trust: bool = False,
) -> AsyncIterator[RecordedRound]:
    """The rounds `from_round` to `to_round` (both included; None: all committed when asked), everything decoded.

    From round `judged_from` on the decisions' data are left `Unread`: whoever decides again compares bytes. `on_trust`: an input
    has the id and hash of its row, and they are not made again from its body; explanations are left unread. That is for who only
    folds, and compares nothing: whether body and row belong together is what verify and replay find out.

    CorruptLedger: a round, input, event or decision is missing, or cannot be read. LedgerError: it was retired (`base`).
    """
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select s.id, s.round, h.round from stream s left join horizon h on h.stream = s.id where s.name = $1",
            stream,
        )
    if row is None:
        raise LedgerError(f"unknown stream {stream}")
    id_, last, retired = row[0], row[1] if to_round is None else min(to_round, row[1]), row[2] or 0
    number, since = max(1, from_round), 0
    if number <= min(retired, last):
        raise LedgerError(gone(stream, retired))
    while number <= last:
        async with database.reading() as raw:
            rounds, inputs, made = await _fetch_batch(raw, stream, id_, number, last, since, batch_rows)
        since = day_of(rounds[-1][2])
        in_order, decided = iter(inputs), iter(made)
        for record in rounds:
            bytes_only = judged_from is not None and number >= judged_from
            yield _recorded(stream, number, record, in_order, decided, bytes_only, on_trust)
            number += 1


def within(rounds: list[Record], batch_rows: int) -> list[Record]:
    """As many of the first `rounds` as have up to `batch_rows` inputs and decisions; at least one."""
    rows = 0
    for count, record in enumerate(rounds):
        rows += record[7] + record[8]
        if rows > batch_rows and count:
            return rounds[:count]
    return rounds


async def _fetch_batch(
    raw: Raw, stream: str, id_: int, number: int, last: int, since: int, batch_rows: int
) -> tuple[list[Record], list[Record], list[Record]]:
    rounds = within(await raw.fetch(_ROUNDS_SINCE, id_, number, last, BATCH_ROUNDS, since), batch_rows)
    if not rounds:
        raise CorruptLedger(stream, number, 0, f"missing, the head is at round {last}")
    first, final = rounds[0], rounds[-1]
    days = (day_of(first[2]), day_of(final[2]))
    inputs = await raw.fetch(_INPUTS, id_, first[0], final[0], *days)
    made = await raw.fetch(_DECISIONS, id_, first[6], final[6] - 1 + final[8], *days)
    return rounds, inputs, made


def _recorded(
    stream: str,
    expected: int,
    record: Record,
    inputs: Iterator[Record],
    made: Iterator[Record],
    bytes_only: bool,
    on_trust: bool,
) -> RecordedRound:
    number, epoch, at, engine, profile, basis, first_seq, input_count, decision_count, snapshot, prev_hash, hash_ = (
        record
    )
    if number != expected:
        raise CorruptLedger(stream, expected, 0, f"missing, the next one is {number}")
    refs: list[InputRef] = []
    events: list[Event[Value]] = []
    for ordinal, (of_round, place, id_, sha256, encoding, body) in enumerate(islice(inputs, input_count)):
        if of_round != number or place != ordinal:
            raise CorruptLedger(stream, number, 0, f"input {ordinal}: missing, found {place} of round {of_round}")
        if body is None:
            raise CorruptLedger(stream, number, 0, f"input {ordinal}: the body of event {id_} is missing")
        refs.append(InputRef(id_, sha256))
        events.append(
            _trusted(stream, number, ordinal, encoding, body, id_, sha256)
            if on_trust
            else _event(stream, number, ordinal, encoding, body)
        )
    if len(refs) != input_count:
        raise CorruptLedger(stream, number, 0, f"input {len(refs)}: missing")
    decided: list[Decision] = []
    read = decode_data_to_fold if on_trust else decode_data
    seq = first_seq
    for of_round, found, id_, type_, subject, outcome, cause, encoding, stored in islice(made, decision_count):
        if of_round != number or found != seq:
            raise CorruptLedger(stream, number, seq, f"decision {seq}: missing, found {found} of round {of_round}")
        body = stored if encoding == PLAIN else _plain(stream, number, seq, encoding, stored)
        data = _UNREAD if bytes_only else _data(stream, number, seq, type_, body, read)
        decided.append(Decision(stream, seq, id_, type_, subject, outcome, cause, data, body))
        seq += 1
    if len(decided) != decision_count:
        raise CorruptLedger(stream, number, seq, f"decision {seq}: missing")
    return RecordedRound(
        Round(
            stream, number, epoch, at, engine, profile, tuple(refs), decode_basis(basis), tuple(decided), snapshot,
            prev_hash, hash_, first_seq,
        ),
        events,
    )  # fmt: skip


def _event(stream: str, number: int, ordinal: int, encoding: int, stored: bytes) -> Event[Value]:
    try:
        return decode(stored if encoding == PLAIN else unpack(encoding, stored))
    except ValueError as error:
        raise CorruptLedger(stream, number, 0, f"input {ordinal}: {error}") from None


def _trusted(
    stream: str, number: int, ordinal: int, encoding: int, stored: bytes, id_: UUID, sha256: bytes
) -> Event[Value]:
    try:
        return decode_recorded(stored if encoding == PLAIN else unpack(encoding, stored), id_, sha256)
    except ValueError as error:
        raise CorruptLedger(stream, number, 0, f"input {ordinal}: {error}") from None


def _plain(stream: str, number: int, seq: int, encoding: int, stored: bytes) -> bytes:
    try:
        return stored if encoding == PLAIN else unpack(encoding, stored)
    except ValueError as error:
        raise CorruptLedger(stream, number, seq, f"decision {seq}: {error}") from None


def _data(
    stream: str, number: int, seq: int, type_: str, body: bytes, read: Callable[[str, bytes], Value] = decode_data
) -> Value:
    try:
        return read(type_, body)
    except UndecodableError as error:
        raise CorruptLedger(stream, number, seq, f"decision {seq}: {error}") from None


async def head_at(database: Database, stream: str, number: int) -> Head:
    """Where the stream stood after round `number`: what the next round must follow."""
    if number == 0:
        return empty_head(stream)
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select r.number, r.first_seq - 1 + r.decisions, r.hash, r.epoch, r.at_us, r.snapshot "
            "from round r join stream s on s.id = r.stream where s.name = $1 and r.number = $2",
            stream, number,
        )  # fmt: skip
    if row is None:
        raise LedgerError(f"{stream}: there is no round {number}")
    return Head(stream, *row)


async def round_at(database: Database, stream: str, at: Micros) -> int:
    """The number of the last round not later than `at`; 0 before the first. LedgerError: that was retired."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select coalesce((select r.number from round r where r.stream = s.id and r.at_us <= $2 and r.day <= $3 "
            "order by r.at_us desc, r.number desc limit 1), 0), h.round, h.at_us "
            "from stream s left join horizon h on h.stream = s.id where s.name = $1",
            stream, at, day_of(at),
        )  # fmt: skip
    if row is None:
        raise LedgerError(f"unknown stream {stream}")
    if row[1] is not None and at < row[2]:
        raise LedgerError(gone(stream, row[1]))
    return int(row[0])


def gone(stream: str, retired: int) -> str:
    """What to say to whoever asks for rounds that were taken away."""
    return f"{stream}: the rounds up to {retired} were retired, its history begins at round {retired + 1}"


async def profile_at(database: Database, stream: str, number: int) -> str:
    """The profile under which round `number` was decided; empty before the first."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select r.profile from round r join stream s on s.id = r.stream where s.name = $1 and r.number = $2",
            stream, number,
        )  # fmt: skip
    return "" if row is None else str(row[0])


async def basis(database: Database, stream: str, number: int) -> Basis:
    """The basis of round `number`: what its writer had read. Empty before the first round."""
    if number == 0:
        return {}
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select r.basis from round r join stream s on s.id = r.stream where s.name = $1 and r.number = $2",
            stream, number,
        )  # fmt: skip
    if row is None:
        raise LedgerError(f"{stream}: there is no round {number}")
    return decode_basis(row[0])


async def bases(database: Database) -> dict[str, Head]:
    """Where the history of each stream begins that was retired in part: the head after the last round that is gone."""
    async with database.reading() as raw:
        found = await raw.fetch(
            "select s.name, h.round, h.seq, h.hash, h.epoch, h.at_us, h.snapshot "
            "from horizon h join stream s on s.id = h.stream order by s.name"
        )
    return {record[0]: Head(*record) for record in found}


# --- what is known -------------------------------------------------------------------------------------------------------


# One probe of the key an id, whatever the planner believes of a table that grew since it last looked: as a join it walks
# all that the stream has taken in.
_KNOWN = """
select w.name, w.event from unnest($1::text[], $2::uuid[]) as w(name, event)
join stream s on s.name = w.name
cross join lateral (select from taken t where t.stream = s.id and t.event = w.event limit 1) probe
"""


async def known(database: Database, ids: Mapping[str, Collection[UUID]]) -> dict[str, set[UUID]]:
    """Of the event ids given for each stream, those it has taken in before. One query for all."""
    pairs = [(stream, id_) for stream, wanted in ids.items() for id_ in wanted]
    result: dict[str, set[UUID]] = {stream: set() for stream in ids}
    if pairs:
        async with database.reading() as raw:
            found = await raw.fetch(_KNOWN, *zip(*pairs, strict=True))
        for stream, id_ in found:
            result[stream].add(id_)
    return result


@dataclass(frozen=True, slots=True)
class Fact:
    """What was told last under a key of a topic. `seq`: of its row on the intake; `at`: when that was accepted."""

    topic: str
    key: str
    partition_key: str
    seq: int
    at: Micros
    id: UUID
    type: str
    body: bytes

    def event(self) -> Event[Value]:
        """CorruptLedger: the body is no event."""
        return _event(INTAKE, 0, self.seq, PLAIN, self.body)


_FACTS = f"""
select f.topic, f.key, f.partition_key, f.seq, f.at_us, f.event, e.type, e.encoding, e.body
from fact f left join lateral (
    select * from event e where e.id = f.event and e.sha256 = f.sha256 and e.day = f.at_us / {DAY_US} limit 1
) e on true
where $1::text is null or f.topic = $1 order by f.seq
"""


_HORIZON_FACTS = _FACTS.replace("from fact f", "from horizon_fact f")


async def facts(database: Database, topic: str | None = None) -> AsyncIterator[Fact]:
    """The latest fact under every key, of one topic or of all, in the order in which they were accepted; all as of one moment.

    CorruptLedger: the body of one is missing.
    """
    async with database.transaction() as transaction:
        await transaction.execute(text("set transaction isolation level repeatable read, read only"))
        async for record in transaction.raw.cursor(_FACTS, topic, prefetch=_SHOWN_AT_ONCE):
            yield _fact(record)


async def facts_at(database: Database, at: Micros, topic: str | None = None) -> list[Fact]:
    """The fact that was the latest under each key at a time, in the order in which they were accepted. Costs the intake's
    rows between its horizon and then. LedgerError: that was retired."""
    last = await round_at(database, INTAKE, at)
    base = (await bases(database)).get(INTAKE)
    latest: dict[tuple[str, str], Fact] = {}
    async with database.reading() as raw:
        for record in await raw.fetch(_HORIZON_FACTS, topic):
            latest[record[0], record[1]] = _fact(record)
    async for recorded in recorded_rounds(database, INTAKE, base.round + 1 if base else 1, last):
        for event, d in zip(recorded.events, recorded.round.decisions, strict=True):
            to = d.data
            if isinstance(to, MessageAccepted) and topic in (None, to.topic):
                latest[to.topic, to.key] = Fact(
                    to.topic, to.key, to.partition_key, d.seq, recorded.round.at, event.id, event.type, event.body
                )
    return sorted(latest.values(), key=lambda fact: fact.seq)


def _fact(record: Record) -> Fact:
    name, key, partition_key, seq, at, id_, type_, encoding, stored = record
    if stored is None:
        raise CorruptLedger(INTAKE, 0, seq, f"fact {name} {key}: the body of event {id_} is missing")
    return Fact(name, key, partition_key, seq, at, id_, type_, _plain(INTAKE, 0, seq, encoding, stored))


async def seqs_before(database: Database, at: Micros) -> dict[str, int]:
    """stream -> the last seq decided before `at`; streams that had decided nothing by then are left out."""
    async with database.reading() as raw:
        found = await raw.fetch(
            "select s.name, greatest(l.seq, h.seq) from stream s left join horizon h on h.stream = s.id "
            "left join lateral (select r.first_seq - 1 + r.decisions as seq from round r where r.stream = s.id "
            "and r.at_us < $1 and r.day <= $2 order by r.at_us desc, r.number desc limit 1) l on true "
            "where l.seq is not null or h.seq is not null order by s.name",
            at, day_of(at),
        )  # fmt: skip
    return dict(found)


async def missing_bodies(database: Database, ids: Collection[UUID]) -> set[UUID]:
    """Of these event ids, those of which no body is stored."""
    async with database.reading() as raw:
        found = await raw.fetch("select distinct id from event where id = any($1::uuid[])", list(ids))
    return set(ids).difference(record[0] for record in found)
