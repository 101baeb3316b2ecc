"""The chain of one stretch of a stream, recomputed from the rows as they are stored.

A stretch begins after a round whose hash is taken as given. The walk of the stretch before it ends
at that hash, or reports a bad row. So stretches can be walked in any order, by several processes.
The first bad row of a stream is the one that its first bad stretch reports. `verify` spends nearly
all its time here, so rows are compared as the driver returns them, and no object is made of them
that is not hashed.

Next: `verify`, which cuts streams into stretches and checks what no chain covers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import msgspec

from wharfinger.domain.value import canonical
from wharfinger.events.acceptance import MessageAccepted
from wharfinger.events.envelope import event_id
from wharfinger.events.ledger_codec import decode_data
from wharfinger.events.message_codec import UndecodableError, frame_of
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.hashing import round_hash
from wharfinger.kernel.incarnations import Incarnations, id_of
from wharfinger.kernel.round import Basis, Head, InputRef
from wharfinger.runtime.ledger.bodies import PLAIN, unpack
from wharfinger.runtime.ledger.database import Raw, Record
from wharfinger.runtime.ledger.days import day_of
from wharfinger.runtime.ledger.rounds import decode_basis, within

BATCH_ROUNDS = 2000
BATCH_ROWS = 8000
"""Inputs and decisions fetched at once: twice what readers take, because they are dropped as soon
as they are hashed."""

_PRECEDES = 1 << 62  # more rounds than any stream has

_ROUNDS = """
select number, epoch, at_us, engine, profile, basis, first_seq, inputs, decisions, snapshot,
    prev_hash, hash, day
from round where stream = $1 and number between $2 and $3 order by number, day limit $4
"""

_INPUTS = """
select i.round, i.ordinal, i.day, i.event, i.sha256, e.encoding, e.body, e.type, e.subject, e.source
from input i
left join lateral (
    select * from event e where e.id = i.event and e.sha256 = i.sha256 and e.day = i.day limit 1
) e on true
where i.stream = $1 and i.round between $2 and $3 order by i.round, i.ordinal, i.day
"""

# By seq, not by round: a decision that was moved to another round is then seen where it lies.
_DECISIONS = """
select round, seq, day, id, type, subject, outcome, cause, encoding, body
from decision where stream = $1 and seq between $2 and $3 order by seq, day
"""


@dataclass(frozen=True, slots=True)
class FirstBad:
    """`place`: the input's ordinal or the decision's seq; 0 when the round, head or snapshot itself
    is meant."""

    stream: str
    round: int
    place: int
    what: str
    expected: str
    found: str


class BadRow(Exception):  # noqa: N818  (a way out of the walk, never seen outside)
    def __init__(self, bad: FirstBad) -> None:
        super().__init__(bad)  # all of it, so that it survives the way back from another process
        self.bad = bad


def bad_row(
    stream: str, number: int, place: int, what: str, expected: object, found: object
) -> BadRow:
    return BadRow(FirstBad(stream, number, place, what, _shown(expected), _shown(found)))


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rounds behind `begin` up to round `end`. `id`: the stream's small number. `snapshots`:
    digest -> round of the whole snapshots of the stream. `retired`: digests of older ones may have
    gone with the rounds before `begin`. `rebases`: the rounds that may be earlier than the one
    before, and their times."""

    id: int
    begin: Head
    end: int
    snapshots: Mapping[bytes, int]
    retired: bool = False
    incarnations: Incarnations = ()
    rebases: Mapping[int, Micros] = field(default_factory=dict)


class _Fact(NamedTuple):
    """A row of `fact`: the last event recorded under a key, and its row on the intake."""

    partition_key: str
    event: UUID
    sha256: bytes
    seq: int
    at: Micros


@dataclass(slots=True)
class ChainWalk:
    """A stretch on the way: `head` is where the chain stands. `facts`: (topic, key) -> what was
    told last; on the intake."""

    stretch: Stretch
    head: Head
    facts: dict[tuple[str, str], _Fact]
    unknown_snapshot_allowed: bool
    right_facts: set[tuple[str, str]] = field(default_factory=set)
    rows: int = 0
    bad: FirstBad | None = None

    @property
    def rounds(self) -> int:
        return self.head.round - self.stretch.begin.round

    def error(self, number: int, place: int, what: str, expected: object, found: object) -> BadRow:
        return bad_row(self.head.stream, number, place, what, expected, found)


async def walk(raw: Raw, stretch: Stretch) -> ChainWalk:
    """To the end of the stretch or to the first bad row."""
    facts = await _facts(raw) if stretch.begin.stream == INTAKE else {}
    made = ChainWalk(stretch, stretch.begin, facts, stretch.retired)
    try:
        while made.head.round < stretch.end:
            await _batch(raw, made)
        _no_other_facts(made)
    except BadRow as caught:
        made.bad = caught.bad
    return made


async def _batch(raw: Raw, walk: ChainWalk) -> None:
    stream, first = walk.stretch.id, walk.head.round + 1
    rounds = within(
        await raw.fetch(_ROUNDS, stream, first, walk.stretch.end, BATCH_ROUNDS), BATCH_ROWS
    )
    if not rounds:
        raise walk.error(first, 0, "round", first, "missing")
    inputs = await raw.fetch(_INPUTS, stream, first, rounds[-1][0])
    count = sum(max(0, record[8]) for record in rounds)
    made = await raw.fetch(_DECISIONS, stream, walk.head.seq + 1, walk.head.seq + count)
    in_order, decided = iter(inputs), iter(made)
    for record in rounds:
        _round(walk, record, in_order, decided)
    if (extra := next(in_order, None)) is not None:
        raise walk.error(extra[0], extra[1], "input", "none", f"event {extra[3]}")


def _round(
    walk: ChainWalk, record: Record, inputs: Iterator[Record], made: Iterator[Record]
) -> None:
    """Hash the round from its rows and move on to it."""
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
        day,
    ) = record
    head = walk.head
    for what, expected, found in (
        ("round", head.round + 1, number),
        ("round: previous hash", head.hash, prev_hash),
        ("round: first seq", head.seq + 1, first_seq),
    ):
        if expected != found:
            raise walk.error(head.round + 1, 0, what, expected, found)
    if at < head.at and walk.stretch.rebases.get(number) != at:
        raise walk.error(number, 0, "round: time", f"not before {head.at}", at)
    if epoch < head.epoch:
        raise walk.error(number, 0, "round: epoch", f"at least {head.epoch}", epoch)
    if day != day_of(at):
        raise walk.error(number, 0, "round: day", day_of(at), day)
    _snapshot(walk, number, snapshot)
    refs = _inputs(walk, number, day, list(islice(inputs, max(0, input_count))), input_count)
    decisions = _decisions(
        walk, number, day, list(islice(made, max(0, decision_count))), decision_count
    )
    if head.stream == INTAKE:
        _accepted(walk, number, at, refs, decisions)
    places = _basis(walk, number, basis)
    computed = round_hash(
        head.hash,
        head.stream,
        number,
        epoch,
        at,
        engine,
        profile,
        refs,
        places,
        decisions,
        snapshot,
    )
    if computed != hash_:
        raise walk.error(number, 0, "round: hash", computed, hash_)
    walk.rows += 1 + input_count + decision_count
    walk.head = Head(head.stream, number, head.seq + decision_count, hash_, epoch, at, snapshot)


def _snapshot(walk: ChainWalk, number: int, digest: bytes) -> None:
    """A round carries the digest of an earlier snapshot, which must still be on record."""
    if not digest:
        return
    if walk.stretch.snapshots.get(digest, _PRECEDES) < number:
        walk.unknown_snapshot_allowed = False
    elif not walk.unknown_snapshot_allowed:
        raise walk.error(number, 0, "round: snapshot", "the digest of an earlier snapshot", digest)


def _inputs(
    walk: ChainWalk, number: int, day: int, records: Sequence[Record], count: int
) -> list[InputRef]:
    refs: list[InputRef] = []
    for ordinal, record in enumerate(records):
        of_round, place, of_day, id_, sha256, encoding, stored, type_, subject, source = record
        if of_round != number or place != ordinal:
            raise walk.error(
                number,
                ordinal,
                "input",
                f"ordinal {ordinal}",
                f"ordinal {place} of round {of_round}",
            )
        if of_day != day:
            raise walk.error(number, ordinal, "input: day", day, of_day)
        if stored is None:
            raise walk.error(
                number, ordinal, "event", f"{id_} with sha256 {sha256.hex()}", "missing"
            )
        body = (
            stored if encoding == PLAIN else _body(walk, number, ordinal, "event", encoding, stored)
        )
        if (actual := hashlib.sha256(body).digest()) != sha256:
            raise walk.error(number, ordinal, "event: body", sha256, actual)
        try:
            frame = frame_of(body)
        except UndecodableError as error:
            raise walk.error(number, ordinal, "event: body", "a CloudEvent", error) from None
        if frame.type != type_ or frame.subject != subject or frame.source != source:
            raise walk.error(
                number,
                ordinal,
                "event: columns",
                (frame.type, frame.subject, frame.source),
                (type_, subject, source),
            )
        if frame.id != str(id_) and event_id(frame.source, frame.id) != id_:
            # the text is compared first: it is cheap
            raise walk.error(number, ordinal, "event: id", event_id(frame.source, frame.id), id_)
        refs.append(InputRef(id_, sha256))
    if len(refs) != count:
        raise walk.error(number, len(refs), "input", f"{count} inputs", f"{len(refs)}")
    return refs


class _HashedDecision(msgspec.Struct):
    """As much of a decision as is hashed. A struct: one is made for every row."""

    seq: int
    id: UUID
    type: str
    subject: str
    outcome: str
    cause: UUID | None
    body: bytes


def _decisions(
    walk: ChainWalk, number: int, day: int, records: Sequence[Record], count: int
) -> list[_HashedDecision]:
    stream, seq = walk.head.stream, walk.head.seq
    decisions: list[_HashedDecision] = []
    for of_round, found, of_day, id_, type_, subject, outcome, cause, encoding, stored in records:
        seq += 1
        if found != seq:
            raise walk.error(number, seq, "decision", f"seq {seq}", f"seq {found}")
        if of_round != number:
            raise walk.error(number, seq, "decision: round", number, of_round)
        if of_day != day:
            raise walk.error(number, seq, "decision: day", day, of_day)
        if id_ != (expected := id_of(stream, seq, walk.stretch.incarnations)):
            raise walk.error(number, seq, "decision: id", expected, id_)
        body = (
            stored if encoding == PLAIN else _body(walk, number, seq, "decision", encoding, stored)
        )
        decisions.append(_HashedDecision(seq, id_, type_, subject, outcome, cause, body))
    if len(decisions) != count:
        raise walk.error(number, seq + 1, "decision", f"{count} decisions", f"{len(decisions)}")
    return decisions


# --- the intake ----------------------------------------------------------------------------------


def _accepted(
    walk: ChainWalk,
    number: int,
    at: Micros,
    refs: Sequence[InputRef],
    decisions: Sequence[_HashedDecision],
) -> None:
    """On the intake each input has its decision: the publisher finds the one by the other."""
    causes = [d.cause for d in decisions]
    if causes != [ref.id for ref in refs]:
        raise walk.error(
            number,
            0,
            "intake",
            f"one decision for each of {len(refs)} inputs",
            f"{len(causes)} decisions",
        )
    for ref, decision in zip(refs, decisions, strict=True):
        _told(walk, number, at, ref, decision)


def _told(
    walk: ChainWalk, number: int, at: Micros, ref: InputRef, decision: _HashedDecision
) -> None:
    """The latest fact of the event's key is this event or a later one."""
    try:
        data = decode_data(decision.type, decision.body)
    except UndecodableError as error:
        raise walk.error(number, decision.seq, "intake", "what was accepted", error) from None
    if not isinstance(data, MessageAccepted):
        raise walk.error(number, decision.seq, "intake", "what was accepted", decision.type)
    place = (data.topic, data.key)
    fact = walk.facts.get(place)
    if fact is None or fact.seq < decision.seq:
        found = "missing" if fact is None else f"seq {fact.seq}"
        raise walk.error(
            number,
            decision.seq,
            "fact",
            f"{data.topic} {data.key} of seq {decision.seq} or later",
            found,
        )
    if fact.seq == decision.seq:
        if fact != (told := _Fact(data.partition_key, ref.id, ref.sha256, decision.seq, at)):
            raise walk.error(number, decision.seq, "fact", _fact_shown(told), _fact_shown(fact))
        walk.right_facts.add(place)


def _no_other_facts(walk: ChainWalk) -> None:
    begin, end = walk.stretch.begin.seq, walk.head.seq
    for (topic, key), fact in walk.facts.items():
        if begin < fact.seq <= end and (topic, key) not in walk.right_facts:
            raise walk.error(
                walk.head.round, fact.seq, "fact", "what was told with that seq", f"{topic} {key}"
            )


def _fact_shown(fact: _Fact) -> str:
    return f"event {fact.event} {fact.sha256.hex()[:12]} at {fact.at} for {fact.partition_key}"


async def _facts(raw: Raw) -> dict[tuple[str, str], _Fact]:
    rows = await raw.fetch(
        "select topic, key, partition_key, event, sha256, seq, at_us from fact order by topic, key"
    )
    return {(topic, key): _Fact(*fact) for topic, key, *fact in rows}


# --- bytes ---------------------------------------------------------------------------------------


def _basis(walk: ChainWalk, number: int, stored: bytes) -> Basis:
    """Hashed is what it says; that it is also written as we write it keeps a second spelling from
    going unseen."""
    try:
        places = decode_basis(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise walk.error(
            number, 0, "round: basis", "topic/partition -> [incarnation, offset]", error
        ) from None
    if (spelt := canonical(places)) != stored:
        raise walk.error(number, 0, "round: basis", spelt.decode(), stored.decode(errors="replace"))
    return places


def _body(
    walk: ChainWalk, number: int, place: int, what: str, encoding: int, stored: bytes
) -> bytes:
    return readable(walk.head.stream, number, place, what, encoding, stored)


def readable(
    stream: str, number: int, place: int, what: str, encoding: int, stored: bytes
) -> bytes:
    """The body that was packed; BadRow when these bytes are none."""
    try:
        return unpack(encoding, stored)
    except ValueError as error:
        raise bad_row(stream, number, place, f"{what}: body", "readable bytes", error) from None


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
