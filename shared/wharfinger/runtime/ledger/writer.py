"""Commit rounds: one transaction for rounds of several streams.

One statement locks the heads, compares them, writes the rounds and moves the heads. Where another
writer has advanced a stream, it writes nothing: then a transaction locks the heads, drops such
streams and writes the rest. Committing the same rounds twice is harmless: a head that already has
our last hash means that they are committed, and is no conflict. After an error at COMMIT it is
unknown whether the commit took place, so the writer tries again with the same bytes. The new
attempt waits for the row locks of the old one, so it cannot overtake it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from wharfinger.domain.value import Value, canonical
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.round import Head, Round
from wharfinger.runtime.ledger.bodies import pack
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.days import day_of
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.heads import lock
from wharfinger.runtime.ledger.record_marks import Mark, columns, noting
from wharfinger.runtime.ledger.retries import retried

CHANNEL = "wharfinger_ledger"
"""What is notified, once a transaction, when rows were added: with the name of one of the streams,
or with `NOTHING_DECIDED`."""

NOTHING_DECIDED = ""
"""Notified when rounds without decisions were added."""

EventRow = tuple[UUID, bytes, int, str, str, str, int, bytes]
"""id, sha256, day, type, subject, source, encoding, body: a row of `event`."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """`fenced`: streams that another writer owns now; nothing of theirs was written, and their
    states are worthless. `snapshots`: the digest of the newest snapshot of each committed stream,
    for its next round to carry. `ahead`: streams, among the fenced ones, whose rounds were stamped
    too far ahead of the database's clock. `now`: that clock when heads were locked."""

    committed: frozenset[str]
    fenced: frozenset[str]
    snapshots: Mapping[str, bytes]
    ahead: frozenset[str] = frozenset()
    now: Micros = 0


def alone(stream: str) -> object:
    """Every stream is a group of its own."""
    return stream


async def commit(
    database: Database,
    rounds: Sequence[Round],
    events: Mapping[Any, Event[Value]],
    group_of: Callable[[str], object] = alone,
    ahead_max_us: int | None = None,
    marks: Mapping[object, Sequence[Mark]] | None = None,
) -> CommitResult:
    """Write `rounds`, several of one stream in their order. `events`: the bodies their inputs refer
    to, under any keys.

    Streams with the same `group_of` are committed together or not at all: when one of them is
    fenced, all of them are. So the offset in the basis of any stream of a group says what all
    streams of that group have committed (`reading_starts`).

    A round whose time is more than `ahead_max_us` after the database's clock, and after its head's
    time, is refused like one of a fenced writer; None: its time is not checked. `marks`: of the
    records that the rounds of each group have in them.

    Transient: the database did not answer for all attempts; calling again with the same rounds is
    right. LedgerError: the rounds themselves are wrong (an unknown stream, a missing body, an event
    the stream has taken in before).
    """
    chains = _chains(rounds)
    if not chains:
        return CommitResult(frozenset(), frozenset(), {})
    # Streams may have different events of one id.
    by_ref = {(event.id, event.sha256): event for event in events.values()}
    bodies = {stream: _event_rows(chain, by_ref) for stream, chain in chains.items()}

    @cache  # an attempt that is made again, or needs a transaction, writes the same rows
    def rows_of(streams: tuple[str, ...]) -> RoundRows:
        return RoundRows(
            [chains[name] for name in streams],
            [row for name in streams for row in bodies[name]],
            [
                mark
                for group in dict.fromkeys(group_of(name) for name in streams)
                for mark in (marks or {}).get(group, ())
            ],
        )

    async def attempt() -> CommitResult:
        rows = rows_of(tuple(chains))
        if rows.one_statement:
            async with database.reading(repeated=True) as raw:
                written = await rows.write(raw, ahead_max_us)
            if written is not None:
                return CommitResult(
                    frozenset(chains), frozenset(), written.snapshots, now=written.now
                )
        return await _commit_what_follows(database, chains, rows_of, group_of, ahead_max_us)

    return await retried(attempt)


async def _commit_what_follows(
    database: Database,
    chains: Mapping[str, list[Round]],
    rows_of: Callable[[tuple[str, ...]], RoundRows],
    group_of: Callable[[str], object],
    ahead_max_us: int | None,
) -> CommitResult:
    """The groups whose rounds follow their heads, in one transaction."""
    async with database.transaction(repeated=True) as transaction:
        locked = await lock(transaction, chains.keys())
        raw = transaction.raw
        fresh: list[str] = []
        committed: set[str] = set()
        ahead: set[str] = set()
        for name, chain in chains.items():
            head = locked[name].head
            if _follows(chain[0], head):
                # A stream's time never goes back: a round of a wrong clock would hold up all that
                # is due before it.
                latest = max(locked[name].now, head.at)
                if ahead_max_us is not None and chain[-1].at > latest + ahead_max_us:
                    ahead.add(name)
                else:
                    fresh.append(name)
            elif await is_written(raw, locked[name].id, chain[-1]):
                committed.add(name)
        lost = {group_of(name) for name in chains.keys() - committed - set(fresh)}
        fresh = [name for name in fresh if group_of(name) not in lost]
        if fresh and await rows_of(tuple(fresh)).write(raw) is None:
            raise LedgerError(NOT_LOCKED)
    committed.update(fresh)
    return CommitResult(
        frozenset(committed),
        frozenset(chains.keys() - committed),
        {name: locked[name].head.snapshot for name in committed},
        frozenset(ahead),
        max(found.now for found in locked.values()),
    )


def _chains(rounds: Sequence[Round]) -> dict[str, list[Round]]:
    """The rounds by stream. A chain that does not hold together is our own mistake, and never
    reaches the database."""
    chains: dict[str, list[Round]] = {}
    for round_ in rounds:
        chain = chains.setdefault(round_.stream, [])
        assert not chain or _follows(round_, chain[-1].head()), (
            f"{round_.stream}: round {round_.number} does not follow"
        )
        chain.append(round_)
    return chains


def _follows(round_: Round, head: Head) -> bool:
    return (
        round_.prev_hash == head.hash
        and round_.number == head.round + 1
        and round_.first_seq == head.seq + 1
        and round_.epoch == head.epoch
    )


async def is_written(raw: Raw, stream: int, round_: Round) -> bool:
    """Whether an earlier attempt of ours got through, even if others have gone on from there."""
    row = await raw.fetchrow(
        "select hash from round where stream = $1 and number = $2", stream, round_.number
    )
    return row is not None and bool(row[0] == round_.hash)


def _event_rows(
    chain: Sequence[Round], events: Mapping[tuple[UUID, bytes], Event[Value]]
) -> list[EventRow]:
    rows: list[EventRow] = []
    for round_ in chain:
        day = day_of(round_.at)
        for ref in round_.inputs:
            event = events.get((ref.id, ref.sha256))
            if event is None:
                raise LedgerError(
                    f"{round_.stream}: round {round_.number} refers to event {ref.id}, "
                    "its body is missing"
                )
            rows.append(event_row(event, day))
    return rows


def event_row(event: Event[Value], day: int) -> EventRow:
    """A body lies once in each day whose rounds refer to it: a day needs no other."""
    return (event.id, event.sha256, day, event.type, event.subject, event.source, *pack(event.body))


# --- the rows of a transaction --------------------------------------------------------------------


class _StreamTable(NamedTuple):
    """Into which rows of streams are inserted. `columns`: with their types, after that of the
    stream."""

    name: str
    columns: Mapping[str, str]

    def insert(self, first: int, streams: str, only: str = "true") -> str:
        """A statement that inserts rows. Its parameters from number `first` on are one list for the
        place of each row's stream in `streams` (an expression: an array of ids), and one for each
        column. `only`: the condition under which anything is inserted."""
        types = ("int", *self.columns.values())
        names = ", ".join(self.columns)
        lists = ", ".join(f"${first + n}::{type_}[]" for n, type_ in enumerate(types))
        return (
            f"insert into {self.name} (stream, {names}) "
            f"select ({streams})[n.place], {', '.join(f'n.{name}' for name in self.columns)} "
            f"from unnest({lists}) as n(place, {names}) where {only}"
        )

    @property
    def width(self) -> int:
        """The number of lists."""
        return 1 + len(self.columns)


_ROUND = _StreamTable(
    "round",
    {
        "day": "int",
        "number": "bigint",
        "epoch": "bigint",
        "at_us": "bigint",
        "engine": "text",
        "profile": "text",
        "basis": "bytea",
        "first_seq": "bigint",
        "inputs": "int",
        "decisions": "int",
        "snapshot": "bytea",
        "prev_hash": "bytea",
        "hash": "bytea",
    },
)
_INPUT = _StreamTable(
    "input", {"day": "int", "round": "bigint", "ordinal": "int", "event": "uuid", "sha256": "bytea"}
)
_DECISION = _StreamTable(
    "decision",
    {
        "day": "int",
        "seq": "bigint",
        "round": "bigint",
        "id": "uuid",
        "type": "text",
        "subject": "text",
        "outcome": "text",
        "cause": "uuid",
        "encoding": "smallint",
        "body": "bytea",
    },
)

# Everything in one statement: a round is one trip to the server, and a process that is frozen
# amid it holds no lock. The heads are locked in order of name (`heads.lock`). Where one of them is
# not what its first round follows, or a round is too far ahead of the clock, nothing is written.
#
# Bodies go in order of id: two transactions that bring the same ones wait for each other, never in
# a ring. An event that a stream takes in twice on one day breaks the index of `input`; over several
# days the writer has asked `known` before.
FOLLOWS = "(select found from follows)"
"""In a statement that writes rounds: whether these follow their heads."""
_STREAMS = "(select ids from follows)"


def _writing(more: str) -> str:
    """`more`: further parts of the `with`; their parameters begin at `MORE_FROM`."""
    return f"""
with heads as (
    select s.id, s.snapshot, n.place,
        (s.round, s.seq, s.hash, s.epoch) = (n.round, n.seq, n.hash, n.epoch) as same,
        s.at_us, n.at_us as until, (extract(epoch from clock_timestamp()) * 1000000)::bigint as now
    from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[])
        with ordinality as n(name, round, seq, hash, epoch, at_us, place)
    join stream s on s.name = n.name
    order by s.name for update of s
), follows as (
    select count(*) = cardinality($1::text[])
            and bool_and(same and until <= greatest(now, at_us) + $7::bigint
                and until >= (extract(epoch from clock_timestamp()) * 1000000)::bigint
                    - $57::bigint) as found,
        array_agg(id order by place) as ids
    from heads
), moved as (
    update stream s set round = n.round, seq = n.seq, hash = n.hash, at_us = n.at_us
    from unnest($1::text[], $8::bigint[], $9::bigint[], $10::bytea[], $6::bigint[])
        as n(name, round, seq, hash, at_us)
    where s.name = n.name and {FOLLOWS}
), bodies as (
    insert into event (id, sha256, day, type, subject, source, encoding, body)
    select * from unnest($11::uuid[], $12::bytea[], $13::int[], $14::text[], $15::text[],
        $16::text[], $17::smallint[], $18::bytea[])
    where {FOLLOWS}
    on conflict do nothing
), rounds as (
    {_ROUND.insert(19, _STREAMS, FOLLOWS)}
), inputs as (
    {_INPUT.insert(33, _STREAMS, FOLLOWS)}
), decisions as (
    {_DECISION.insert(39, _STREAMS, FOLLOWS)}
), {noting(50, FOLLOWS)}{more}
select place, snapshot, now, {FOLLOWS}, (select pg_notify($55, $56) where {FOLLOWS}) from heads
"""


MORE_FROM = 58

_WRITE = _writing("")


@dataclass(frozen=True, slots=True)
class MoreRows:
    """A statement that adds rows of another table beside the rounds, where these follow their
    heads. `parameters`: of it, in order."""

    statement: str
    parameters: Sequence[object]


@cache
def writing_with(statement: str) -> str:
    """The statement that writes rounds, with another one in it. `statement`: an insert with a
    `where` for `FOLLOWS`; its parameters begin at `MORE_FROM`."""
    return _writing(f", more as (\n{statement})")


_MORE_DECISIONS = _DECISION.insert(
    2,
    "(select array_agg(s.id order by n.place) from unnest($1::text[]) with ordinality "
    "as n(name, place) join stream s on s.name = n.name)",
)

BYTES_AT_ONCE = 16_000_000
"""Of decisions in one statement. PostgreSQL takes no list of more than 1 GB."""

_ANY_TIME = 1 << 62
NOT_LOCKED = "a round does not follow the head that was locked for it"


class MovedHeads(NamedTuple):
    """What the heads were before their rounds were written. `snapshots`: stream -> digest of the
    newest snapshot. `now`: the database's time when all heads were locked."""

    snapshots: Mapping[str, bytes]
    now: Micros


class RoundRows:
    """The rows of rounds, made once for all attempts to write them. `chains`: of each stream, in
    order of its rounds. `bodies`: of their inputs; some may occur twice."""

    def __init__(
        self,
        chains: Iterable[Sequence[Round]],
        bodies: Iterable[EventRow],
        marks: Sequence[Mark] = (),
    ) -> None:
        ordered = sorted(chains, key=lambda chain: chain[0].stream)
        rounds = [(place, r) for place, chain in enumerate(ordered, 1) for r in chain]
        self._names = [chain[0].stream for chain in ordered]
        self._firsts = [chain[0] for chain in ordered]
        self._lasts = [chain[-1].head() for chain in ordered]
        self._bodies = _columns(sorted({row[:3]: row for row in bodies}.values()), 8)
        self._rounds = _columns([_round_row(place, r) for place, r in rounds], _ROUND.width)
        self._inputs = _columns(
            [
                (place, day_of(r.at), r.number, ordinal, ref.id, ref.sha256)
                for place, r in rounds
                for ordinal, ref in enumerate(r.inputs)
            ],
            _INPUT.width,
        )
        self._decisions = _parts(
            _decision_row(place, day_of(r.at), r.number, d)
            for place, r in rounds
            for d in r.decisions
        )
        self._marks = columns(marks)
        self._notified = self._names[0] if self._decisions else NOTHING_DECIDED

    @property
    def one_statement(self) -> bool:
        """Whether one statement writes them all. Otherwise a transaction is needed."""
        return len(self._decisions) <= 1

    async def write(
        self,
        raw: Raw,
        ahead_max_us: int | None = None,
        *,
        behind_max_us: int | None = None,
        more: MoreRows | None = None,
    ) -> MovedHeads | None:
        """Add the rounds and move the heads of their streams. None, and nothing is written: a head
        is not the one that the first round of its chain follows, or a round is more than
        `ahead_max_us` after the database's time and after its head's, or more than `behind_max_us`
        before the database's time once the heads are locked. `more`: rows that are added with them.

        The rows are parameters of statements. COPY is some 3 us a row cheaper, but the server waits
        for its rows without a limit of time: a process that was frozen meanwhile kept the streams
        locked."""
        first, *others = self._decisions or [[]]
        found = await raw.fetch(
            _WRITE if more is None else writing_with(more.statement),
            self._names,
            [r.number - 1 for r in self._firsts],
            [r.first_seq - 1 for r in self._firsts],
            [r.prev_hash for r in self._firsts],
            [r.epoch for r in self._firsts],
            [h.at for h in self._lasts],
            _ANY_TIME if ahead_max_us is None else ahead_max_us,
            [h.round for h in self._lasts],
            [h.seq for h in self._lasts],
            [h.hash for h in self._lasts],
            *self._bodies,
            *self._rounds,
            *self._inputs,
            *_columns(first, _DECISION.width),
            *self._marks,
            CHANNEL,
            self._notified,
            _ANY_TIME if behind_max_us is None else behind_max_us,
            *(() if more is None else more.parameters),
        )
        if not found or not found[0][3]:
            return None
        for part in others:
            await raw.execute(_MORE_DECISIONS, self._names, *_columns(part, _DECISION.width))
        return MovedHeads(
            {self._names[place - 1]: snapshot for place, snapshot, *_ in found},
            max(now for _, _, now, *_ in found),
        )


async def write(raw: Raw, chains: Iterable[Sequence[Round]], bodies: Iterable[EventRow]) -> None:
    """Add the rounds of streams that the transaction has locked, and move their heads."""
    if await RoundRows(chains, bodies).write(raw) is None:
        raise LedgerError(NOT_LOCKED)


_DecisionRow = tuple[int, int, int, int, UUID, str, str, str, UUID | None, int, bytes]


def _parts(rows: Iterable[_DecisionRow]) -> list[list[_DecisionRow]]:
    """Of at most `BYTES_AT_ONCE`, or of one row."""
    parts: list[list[_DecisionRow]] = []
    left = 0
    for row in rows:
        if (size := len(row[-1])) > left or not parts:
            parts.append([])
            left = BYTES_AT_ONCE
        parts[-1].append(row)
        left -= size
    return parts


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[tuple[object, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _round_row(id_: int, r: Round) -> tuple[object, ...]:
    return (
        id_,
        day_of(r.at),
        r.number,
        r.epoch,
        r.at,
        r.engine,
        r.profile,
        canonical(r.basis),
        r.first_seq,
        len(r.inputs),
        len(r.decisions),
        r.snapshot,
        r.prev_hash,
        r.hash,
    )


def _decision_row(id_: int, day: int, number: int, d: Decision) -> _DecisionRow:
    encoding, body = pack(d.body)
    return (id_, day, d.seq, number, d.id, d.type, d.subject, d.outcome, d.cause, encoding, body)
