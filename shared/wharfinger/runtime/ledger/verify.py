"""Walk the history and name the first row that is not what the chain says.

Nothing is decided again here (that is replay): verify knows no stage. It recomputes every hash from the rows as they lie
there, and looks for what no hash can show: rows too few, too many, or pointing nowhere. A history whose end was cut off and
whose head was rewritten to match is whole in itself; only somebody who remembers a later head can tell, which is what
`remembered` is for.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

import msgspec
from sqlalchemy import text

from wharfinger.events.codec import UndecodableError, frame_of
from wharfinger.events.envelope import event_id
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.hashing import genesis, round_hash
from wharfinger.kernel.round import Head, InputRef
from wharfinger.kernel.step import decision_id
from wharfinger.runtime.ledger.bodies import PLAIN, unpack
from wharfinger.runtime.ledger.database import Raw, Record
from wharfinger.runtime.ledger.heads import selected
from wharfinger.runtime.ledger.ledger import Ledger
from wharfinger.runtime.ledger.reader import BATCH_ROUNDS, BATCH_ROWS, ROUNDS, decode_basis, within
from wharfinger.runtime.ledger.snapshots import KEPT, snapshot_digest

_PRECEDES = 1 << 62  # more rounds than any stream has


@dataclass(frozen=True, slots=True)
class FirstBad:
    """`place`: the input's ordinal or the decision's seq; 0 when the round, head or snapshot itself is meant."""

    stream: str
    round: int
    place: int
    what: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """`rows`: rounds, inputs and decisions. After the first bad row nothing more is read."""

    streams: int
    rounds: int
    rows: int
    seconds: float
    first_bad: FirstBad | None = None

    @property
    def ok(self) -> bool:
        return self.first_bad is None

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


class _BadRow(Exception):  # noqa: N818  (a way out of the walk, never seen outside)
    def __init__(self, bad: FirstBad) -> None:
        super().__init__(bad.what)
        self.bad = bad


@dataclass(slots=True)
class _Decision:
    """As much of a decision as is hashed."""

    seq: int
    id: UUID
    type: str
    subject: str
    outcome: str
    cause: UUID | None
    body: bytes


@dataclass(slots=True)
class _Walk:
    """One stream on the way: `head` is where the chain stands, `end` where the head's row says it ends."""

    id: int
    end: Head
    head: Head
    snapshots: Mapping[bytes, int] = field(default_factory=dict)
    rows: int = 0

    def bad(self, number: int, place: int, what: str, expected: object, found: object) -> _BadRow:
        return _BadRow(FirstBad(self.end.stream, number, place, what, _shown(expected), _shown(found)))


async def audit_verify(ledger: Ledger, stream: str = "", remembered: Mapping[str, Head] | None = None) -> VerifyResult:
    """Verify one stream or all with a prefix (all: also that no row belongs to none).

    `remembered`: heads seen earlier and kept elsewhere; each must still be part of its stream.
    """
    began = time.perf_counter()
    streams = rounds = rows = 0
    bad: FirstBad | None = None
    async with ledger.database.transaction() as transaction:
        # Everything as of one moment, whoever goes on writing meanwhile.
        await transaction.execute(text("set transaction isolation level repeatable read, read only"))
        raw = transaction.raw
        found = {
            row[1]: (row[0], Head(*row[1:]))
            for row in await raw.fetch("select id, name, round, seq, hash, epoch, at_us, snapshot from stream")
        }
        try:
            for name in selected(list(found), stream):
                walk = _Walk(found[name][0], found[name][1], Head(name, 0, 0, genesis(name), 0))
                streams += 1
                try:
                    await _stream(raw, walk, (remembered or {}).get(name))
                finally:
                    rounds += walk.head.round
                    rows += walk.rows
            for name in sorted((remembered or {}).keys() - found.keys()):
                if name.startswith(stream):
                    raise _BadRow(FirstBad(name, 0, 0, "stream", "to be there", "missing"))
            if not stream:
                await _strangers(raw)
        except _BadRow as caught:
            bad = caught.bad
    return VerifyResult(streams, rounds, rows, time.perf_counter() - began, bad)


async def _stream(raw: Raw, walk: _Walk, remembered: Head | None) -> None:
    await _snapshots(raw, walk)
    while walk.head.round < walk.end.round:
        await _batch(raw, walk)
    end, head = walk.end, walk.head
    for what, expected, found in (
        ("head: hash", head.hash, end.hash),
        ("head: seq", head.seq, end.seq),
        ("head: time", head.at, end.at),
    ):
        if expected != found:
            raise walk.bad(end.round, 0, what, expected, found)
    if end.epoch < head.epoch:
        raise walk.bad(end.round, 0, "head: epoch", f"at least {head.epoch}", end.epoch)
    await _beyond(raw, walk)
    if remembered is not None:
        await _remembered(raw, walk, remembered)


async def _batch(raw: Raw, walk: _Walk) -> None:
    first = walk.head.round + 1
    rounds = within(await raw.fetch(ROUNDS, walk.id, first, walk.end.round, BATCH_ROUNDS), BATCH_ROWS)
    if not rounds:
        raise walk.bad(first, 0, "round", first, "missing")
    last = rounds[-1][0]
    inputs = await raw.fetch(
        "select i.round, i.ordinal, i.event, i.sha256, e.encoding, e.body, e.type, e.subject, e.source "
        "from input i "
        "left join lateral (select * from event e where e.id = i.event and e.sha256 = i.sha256 limit 1) e on true "
        "where i.stream = $1 and i.round between $2 and $3 order by i.round, i.ordinal",
        walk.id, first, last,
    )  # fmt: skip
    # By number of round, not by seq: a decision that was moved to another round is then seen where it lies.
    made = await raw.fetch(
        "select round, seq, id, type, subject, outcome, cause, encoding, body "
        "from decision where stream = $1 and seq between $2 and $3 order by seq",
        walk.id, walk.head.seq + 1, walk.head.seq + sum(max(0, record[8]) for record in rounds),
    )  # fmt: skip
    in_order, decided = iter(inputs), iter(made)
    for record in rounds:
        _round(walk, record, in_order, decided)
    if (extra := next(in_order, None)) is not None:
        raise walk.bad(extra[0], extra[1], "input", "none", f"event {extra[2]}")


def _round(walk: _Walk, record: Record, inputs: Iterator[Record], made: Iterator[Record]) -> None:
    """Hash the round from its rows and move on to it."""
    number, epoch, at, engine, profile, basis, first_seq, input_count, decision_count, snapshot, prev_hash, hash_ = (
        record
    )
    head = walk.head
    for what, expected, found in (
        ("round", head.round + 1, number),
        ("round: previous hash", head.hash, prev_hash),
        ("round: first seq", head.seq + 1, first_seq),
    ):
        if expected != found:
            raise walk.bad(head.round + 1, 0, what, expected, found)
    if at < head.at:
        raise walk.bad(number, 0, "round: time", f"not before {head.at}", at)
    if epoch < head.epoch:
        raise walk.bad(number, 0, "round: epoch", f"at least {head.epoch}", epoch)
    if snapshot and walk.snapshots.get(snapshot, _PRECEDES) >= number:
        raise walk.bad(number, 0, "round: snapshot", "the digest of an earlier snapshot", snapshot)
    refs = _inputs(walk, number, list(islice(inputs, input_count)), input_count)
    decisions = _decisions(walk, number, list(islice(made, decision_count)), decision_count)
    if head.stream == INTAKE:
        _accepted(walk, number, refs, decisions)
    try:
        places = decode_basis(basis)
    except msgspec.MsgspecError as error:
        raise walk.bad(number, 0, "round: basis", "topic/partition -> [incarnation, offset]", error) from None
    computed = round_hash(head.hash, head.stream, number, epoch, at, engine, profile, refs, places, decisions, snapshot)
    if computed != hash_:
        raise walk.bad(number, 0, "round: hash", computed, hash_)
    walk.rows += 1 + input_count + decision_count
    walk.head = Head(head.stream, number, head.seq + decision_count, hash_, epoch, at, snapshot)


def _inputs(walk: _Walk, number: int, records: Sequence[Record], count: int) -> list[InputRef]:
    refs: list[InputRef] = []
    for ordinal, (of_round, place, id_, sha256, encoding, stored, type_, subject, source) in enumerate(records):
        if of_round != number or place != ordinal:
            raise walk.bad(number, ordinal, "input", f"ordinal {ordinal}", f"ordinal {place} of round {of_round}")
        if stored is None:
            raise walk.bad(number, ordinal, "event", f"{id_} with sha256 {sha256.hex()}", "missing")
        body = _body(walk, number, ordinal, "event", encoding, stored)
        if (actual := hashlib.sha256(body).digest()) != sha256:
            raise walk.bad(number, ordinal, "event: body", sha256, actual)
        try:
            frame = frame_of(body)
        except UndecodableError as error:
            raise walk.bad(number, ordinal, "event: body", "a CloudEvent", error) from None
        if (frame.type, frame.subject, frame.source) != (type_, subject, source):
            raise walk.bad(
                number, ordinal, "event: columns", (frame.type, frame.subject, frame.source), (type_, subject, source)
            )
        if frame.id != str(id_) and event_id(frame.source, frame.id) != id_:  # the text is compared first: it is cheap
            raise walk.bad(number, ordinal, "event: id", event_id(frame.source, frame.id), id_)
        refs.append(InputRef(id_, sha256))
    if len(refs) != count:
        raise walk.bad(number, len(refs), "input", f"{count} inputs", f"{len(refs)}")
    return refs


def _decisions(walk: _Walk, number: int, records: Sequence[Record], count: int) -> list[_Decision]:
    stream, seq = walk.end.stream, walk.head.seq
    decisions: list[_Decision] = []
    for of_round, found, id_, type_, subject, outcome, cause, encoding, stored in records:
        seq += 1
        if found != seq:
            raise walk.bad(number, seq, "decision", f"seq {seq}", f"seq {found}")
        if of_round != number:
            raise walk.bad(number, seq, "decision: round", number, of_round)
        if id_ != (expected := decision_id(stream, seq)):
            raise walk.bad(number, seq, "decision: id", expected, id_)
        body = stored if encoding == PLAIN else _body(walk, number, seq, "decision", encoding, stored)
        decisions.append(_Decision(seq, id_, type_, subject, outcome, cause, body))
    if len(decisions) != count:
        raise walk.bad(number, seq + 1, "decision", f"{count} decisions", f"{len(decisions)}")
    return decisions


def _accepted(walk: _Walk, number: int, refs: Sequence[InputRef], decisions: Sequence[_Decision]) -> None:
    """On the intake each input has its decision: the publisher finds the one by the other."""
    causes = [d.cause for d in decisions]
    if causes != [ref.id for ref in refs]:
        raise walk.bad(number, 0, "intake", f"one decision for each of {len(refs)} inputs", f"{len(causes)} decisions")


async def _snapshots(raw: Raw, walk: _Walk) -> None:
    """All digests; the bytes of the newest ones (older ones are thrown away on purpose)."""
    rows = await raw.fetch("select round, digest from snapshot where stream = $1 order by round desc", walk.id)
    walk.snapshots = {digest: number for number, digest in reversed(rows)}
    for place, (number, digest) in enumerate(rows):
        sections = await raw.fetch(
            "select name, sha256, encoding, body from snapshot_section where stream = $1 and round = $2",
            walk.id,
            number,
        )
        if not sections and place >= KEPT:
            continue
        if (computed := snapshot_digest({name: sha256 for name, sha256, _, _ in sections})) != digest:
            raise walk.bad(number, 0, "snapshot: digest", computed, digest)
        for name, sha256, encoding, stored in sections:
            body = _body(walk, number, 0, f"snapshot section {name}", encoding, stored)
            if (actual := hashlib.sha256(body).digest()) != sha256:
                raise walk.bad(number, 0, f"snapshot section {name}", sha256, actual)
    newest = rows[0][1] if rows else b""
    if walk.end.snapshot != newest:
        raise walk.bad(walk.end.round, 0, "head: snapshot", newest, walk.end.snapshot)


async def _beyond(raw: Raw, walk: _Walk) -> None:
    """Rows that lie after the head, or in no round at all."""
    for table, column, last in (
        ("round", "number", walk.end.round),
        ("input", "round", walk.end.round),
        ("decision", "seq", walk.end.seq),
    ):
        row = await raw.fetchrow(
            f"select {column} from {table} where stream = $1 and ({column} > $2 or {column} < 1) order by 1 limit 1",
            walk.id, last,
        )  # fmt: skip
        if row is not None:
            raise walk.bad(walk.end.round, 0, table, f"nothing after {column} {last}", f"{column} {row[0]}")


async def _remembered(raw: Raw, walk: _Walk, remembered: Head) -> None:
    row = await raw.fetchrow("select hash from round where stream = $1 and number = $2", walk.id, remembered.round)
    found = genesis(remembered.stream) if remembered.round == 0 else row[0] if row is not None else None
    if found != remembered.hash:
        raise walk.bad(remembered.round, 0, "remembered head", remembered.hash, found or "missing")


async def _strangers(raw: Raw) -> None:
    for table in ("round", "input", "decision", "snapshot", "snapshot_section"):
        row = await raw.fetchrow(
            f"select stream from (select distinct stream from {table}) t "
            "where not exists (select from stream s where s.id = t.stream) order by 1 limit 1"
        )
        if row is not None:
            raise _BadRow(FirstBad("", 0, 0, table, "a known stream", f"stream number {row[0]}"))


def _body(walk: _Walk, number: int, place: int, what: str, encoding: int, stored: bytes) -> bytes:
    try:
        return unpack(encoding, stored)
    except ValueError as error:
        raise walk.bad(number, place, f"{what}: body", "readable bytes", error) from None


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
