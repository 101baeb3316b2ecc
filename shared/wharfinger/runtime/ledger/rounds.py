"""Rounds as they were written, for those who recover or replay them, and what is written with them:
bases, profiles and engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from wharfinger.domain.value import Value, json_decoder
from wharfinger.events.envelope import Event
from wharfinger.events.ledger_codec import decode_data, decode_data_to_fold
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.hashing import empty_head
from wharfinger.kernel.round import Basis, Head, InputRef, RecordedRound, Round
from wharfinger.runtime.ledger.bodies import PLAIN
from wharfinger.runtime.ledger.database import Database, Raw, Record
from wharfinger.runtime.ledger.days import day_of
from wharfinger.runtime.ledger.errors import CorruptLedger, LedgerError
from wharfinger.runtime.ledger.stored import data_of, plain_body
from wharfinger.runtime.ledger.stored_events import input_event, trusted_event

BATCH_ROWS = 4000
"""Inputs and decisions fetched at once for rounds: enough to make the trip cheap, few enough to
keep memory flat."""

BATCH_ROUNDS = 1000

decode_basis = json_decoder(Basis).decode


ROUNDS = """
select number, epoch, at_us, engine, profile, basis, first_seq, inputs, decisions, snapshot,
    prev_hash, hash
from round where stream = $1 and number between $2 and $3 order by number limit $4
"""

# The days are given wherever they are known, and for every table: partitions beside them are not
# even planned for.
_ROUNDS_SINCE = ROUNDS.replace(" order by", " and day >= $5 order by")

_INPUTS = """
select i.round, i.ordinal, i.event, i.sha256, e.encoding, e.body
from input i
left join lateral (
    select * from event e where e.id = i.event and e.sha256 = i.sha256 and e.day = i.day
        and e.day between $4 and $5 limit 1
) e on true
where i.stream = $1 and i.round between $2 and $3 and i.day between $4 and $5
order by i.round, i.ordinal
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
    """The rounds `from_round` to `to_round` (both included; None: all committed when asked),
    everything decoded.

    From round `judged_from` on the decisions' data are left `Unread`: a replay compares only their
    bytes. `on_trust`: the id and hash of an input are taken from its row and not computed from its
    body; explanations are left unread. This is for readers that only fold and compare nothing:
    verify and replay check that body and row belong together.

    CorruptLedger: a round, input, event or decision is missing, or cannot be read. LedgerError: it
    was retired (`base`).
    """
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select s.id, s.round, h.round from stream s left join horizon h on h.stream = s.id "
            "where s.name = $1",
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
            rounds, inputs, made = await _fetch_batch(
                raw, stream, id_, number, last, since, batch_rows
            )
        since = day_of(rounds[-1][2])
        in_order, decided = iter(inputs), iter(made)
        for record in rounds:
            bytes_only = judged_from is not None and number >= judged_from
            yield _recorded(stream, number, record, in_order, decided, bytes_only, on_trust)
            number += 1


def within(rounds: list[Record], batch_rows: int) -> list[Record]:
    """As many of the first `rounds` as have up to `batch_rows` inputs and decisions; at least
    one."""
    rows = 0
    for count, record in enumerate(rounds):
        rows += record[7] + record[8]
        if rows > batch_rows and count:
            return rounds[:count]
    return rounds


async def _fetch_batch(
    raw: Raw, stream: str, id_: int, number: int, last: int, since: int, batch_rows: int
) -> tuple[list[Record], list[Record], list[Record]]:
    rounds = within(
        await raw.fetch(_ROUNDS_SINCE, id_, number, last, BATCH_ROUNDS, since), batch_rows
    )
    if not rounds or (rounds[0][0], rounds[-1][0]) != (number, number + len(rounds) - 1):
        # A round is missing: perhaps the stream's time was set back, and it is on an earlier day.
        rounds = within(
            await raw.fetch(_ROUNDS_SINCE, id_, number, last, BATCH_ROUNDS, 0), batch_rows
        )
    if not rounds:
        raise CorruptLedger(stream, number, 0, f"missing, the head is at round {last}")
    first, final = rounds[0], rounds[-1]
    days = (
        day_of(min(record[2] for record in rounds)),
        day_of(max(record[2] for record in rounds)),
    )
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
    (
        number,
        epoch,
        at,
        engine,
        profile,
        basis,
        first_seq,
        input_count,
        decision_count,
        snapshot,
        prev_hash,
        hash_,
    ) = record
    if number != expected:
        raise CorruptLedger(stream, expected, 0, f"missing, the next one is {number}")
    refs: list[InputRef] = []
    events: list[Event[Value]] = []
    for ordinal, (of_round, place, id_, sha256, encoding, body) in enumerate(
        islice(inputs, input_count)
    ):
        if of_round != number or place != ordinal:
            raise CorruptLedger(
                stream, number, 0, f"input {ordinal}: missing, found {place} of round {of_round}"
            )
        if body is None:
            raise CorruptLedger(
                stream, number, 0, f"input {ordinal}: the body of event {id_} is missing"
            )
        refs.append(InputRef(id_, sha256))
        events.append(
            trusted_event(stream, number, ordinal, encoding, body, id_, sha256)
            if on_trust
            else input_event(stream, number, ordinal, encoding, body)
        )
    if len(refs) != input_count:
        raise CorruptLedger(stream, number, 0, f"input {len(refs)}: missing")
    decided: list[Decision] = []
    read = decode_data_to_fold if on_trust else decode_data
    seq = first_seq
    for of_round, found, id_, type_, subject, outcome, cause, encoding, stored in islice(
        made, decision_count
    ):
        if of_round != number or found != seq:
            raise CorruptLedger(
                stream, number, seq, f"decision {seq}: missing, found {found} of round {of_round}"
            )
        body = stored if encoding == PLAIN else plain_body(stream, number, seq, encoding, stored)
        data = _UNREAD if bytes_only else data_of(stream, number, seq, type_, body, read)
        decided.append(Decision(stream, seq, id_, type_, subject, outcome, cause, data, body))
        seq += 1
    if len(decided) != decision_count:
        raise CorruptLedger(stream, number, seq, f"decision {seq}: missing")
    return RecordedRound(
        Round(
            stream,
            number,
            epoch,
            at,
            engine,
            profile,
            tuple(refs),
            decode_basis(basis),
            tuple(decided),
            snapshot,
            prev_hash,
            hash_,
            first_seq,
        ),
        events,
    )


async def head_at(database: Database, stream: str, number: int) -> Head:
    """Where the stream stood after round `number`: what the next round must follow."""
    if number == 0:
        return empty_head(stream)
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select r.number, r.first_seq - 1 + r.decisions, r.hash, r.epoch, r.at_us, r.snapshot "
            "from round r join stream s on s.id = r.stream where s.name = $1 and r.number = $2",
            stream,
            number,
        )
    if row is None:
        raise LedgerError(f"{stream}: there is no round {number}")
    return Head(stream, *row)


async def other_engine(database: Database, stream: str, engine: str) -> tuple[int, str] | None:
    """The last round that another engine decided, of those that no whole snapshot has in it, and
    that engine; None: there is none."""
    async with database.reading(patient=True) as raw:
        row = await raw.fetchrow(
            "select r.number, r.engine from stream s join round r on r.stream = s.id "
            "where s.name = $1 and r.engine <> $2 and r.number > coalesce("
            "(select max(n.round) from snapshot n where n.stream = s.id and n.whole), 0) "
            "order by r.number desc limit 1",
            stream,
            engine,
        )
    return None if row is None else (row[0], row[1])


async def round_at(database: Database, stream: str, at: Micros) -> int:
    """The number of the last round not later than `at`; 0 before the first. LedgerError: that was
    retired."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select coalesce((select r.number from round r where r.stream = s.id "
            "and r.at_us <= $2 and r.day <= $3 "
            "order by r.at_us desc, r.number desc limit 1), 0), h.round, h.at_us "
            "from stream s left join horizon h on h.stream = s.id where s.name = $1",
            stream,
            at,
            day_of(at),
        )
    if row is None:
        raise LedgerError(f"unknown stream {stream}")
    if row[1] is not None and at < row[2]:
        raise LedgerError(gone(stream, row[1]))
    return int(row[0])


def gone(stream: str, retired: int) -> str:
    """The message for a request for rounds that were retired."""
    return (
        f"{stream}: the rounds up to {retired} were retired, its history begins at round "
        f"{retired + 1}"
    )


async def profile_at(database: Database, stream: str, number: int) -> str:
    """The profile under which round `number` was decided; empty before the first."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select r.profile from round r join stream s on s.id = r.stream where s.name = $1 "
            "and r.number = $2",
            stream,
            number,
        )
    return "" if row is None else str(row[0])


async def profile_changes(
    database: Database, stream: str, after: Micros, until: Micros
) -> list[tuple[Micros, str]]:
    """Of the rounds later than `after` and not later than `until`, those that were decided under
    another profile than the round before: when, and under which. In order."""
    async with database.reading(patient=True) as raw:
        rows = await raw.fetch(
            "select at_us, profile from (select r.number, r.at_us, r.profile, "
            "lag(r.profile) over (order by r.number) as earlier "
            "from round r join stream s on s.id = r.stream where s.name = $1 "
            "and r.at_us > $2 and r.at_us <= $3 and r.day >= $4 and r.day <= $5) as found "
            "where earlier <> profile order by number",
            stream,
            after,
            until,
            day_of(max(0, after)),
            day_of(until),
        )
    return [(int(at), str(profile)) for at, profile in rows]


async def basis(database: Database, stream: str, number: int) -> Basis:
    """The basis of round `number`: what its writer had read. Empty before the first round."""
    if number == 0:
        return {}
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select r.basis from round r join stream s on s.id = r.stream where s.name = $1 "
            "and r.number = $2",
            stream,
            number,
        )
    if row is None:
        raise LedgerError(f"{stream}: there is no round {number}")
    return decode_basis(row[0])


async def last_bases(database: Database, prefix: str) -> dict[str, Basis]:
    """The basis of the last round of each stream whose name begins with `prefix`; a stream without
    a round has none."""
    async with database.reading() as raw:
        found = await raw.fetch(
            "select s.name, r.basis from stream s join round r on r.stream = s.id "
            "and r.number = s.round "
            "where starts_with(s.name, $1) order by s.name",
            prefix,
        )
    return {record[0]: decode_basis(record[1]) for record in found}


async def bases(database: Database) -> dict[str, Head]:
    """Where the history of each stream begins that was retired in part: the head after the last
    round that is gone."""
    async with database.reading() as raw:
        found = await raw.fetch(
            "select s.name, h.round, h.seq, h.hash, h.epoch, h.at_us, h.snapshot "
            "from horizon h join stream s on s.id = h.stream order by s.name"
        )
    return {record[0]: Head(*record) for record in found}
