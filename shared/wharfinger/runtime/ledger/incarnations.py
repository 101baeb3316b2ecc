"""Whether the database has gone back behind what was published, and the record of it.

The timeline (`runtime.timeline`) says, outside of the database, up to which round and hash each
stream was published. A stream whose head is before that round, or that has another hash there, has
lost decisions that the world has seen. Then the stream `ledger` gets a decision `LedgerWentBack`
that begins the next incarnation, and every stream a new epoch, so that what was stepped before can
no longer be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.value import Value
from wharfinger.events.decisions import LedgerWentBack
from wharfinger.events.envelope import Event
from wharfinger.events.ledger import StreamPublished
from wharfinger.events.ledger_codec import decode_data, made, type_of
from wharfinger.events.streams import INTAKE, LEDGER
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.kernel.hashing import following
from wharfinger.kernel.incarnations import FIRST, Incarnations
from wharfinger.kernel.round import ENGINE, Head, Round
from wharfinger.runtime.ledger.bodies import unpack
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.heads import ensure_streams, lock
from wharfinger.runtime.ledger.locks import lock_key

PROFILE = "ledger"
_TYPE = type_of(LedgerWentBack(0, {}))
OUTCOME = "went-back"
SUBJECT = "ledger/incarnation-{}"
"""One for each incarnation: what is kept of a retired history is the latest decision about each
subject."""

_WENT_BACK = """
select d.encoding, d.body, d.id, d.seq, r.at_us from decision d
join stream s on s.id = d.stream join round r on r.stream = d.stream and r.number = d.round
where s.name = $1 and d.type = $2 order by d.seq
"""

# A round that was retired is not compared: its row is gone, and what followed it vouches for it.
_HASHES = """
select w.name, s.round, coalesce(h.round, 0), r.hash
from unnest($1::text[], $2::bigint[]) as w(name, round)
left join stream s on s.name = w.name left join horizon h on h.stream = s.id
left join round r on r.stream = s.id and r.number = w.round order by w.name
"""

_PUBLISHED = """
select w.name, r.number, r.hash from unnest($1::text[], $2::bigint[]) as w(name, seq)
join stream s on s.name = w.name
join lateral (
    select d.round, d.day from decision d where d.stream = s.id and d.seq = w.seq limit 1
) d on true
join round r on r.stream = s.id and r.number = d.round and r.day = d.day order by w.name
"""


@dataclass(frozen=True, slots=True)
class WentBack:
    """A `LedgerWentBack` on record. `event`: the same as the other streams take it in."""

    data: LedgerWentBack
    event: Event[Value]
    at: Micros


@dataclass(frozen=True, slots=True)
class WhatIsThere:
    """What the database says of a stream that was published up to some round: `round` None: the
    stream is unknown. `retired`: the last round that was taken away. `hash`: of the round published
    last, None: there is none."""

    round: int | None
    retired: int
    hash: bytes | None


def lost(published: StreamPublished, there: WhatIsThere | None) -> bool:
    """Whether the database has not, or not as it was published, what was published last of a
    stream."""
    if there is None or there.round is None or there.round < published.round:
        return True
    return there.hash != bytes.fromhex(published.hash) if published.round > there.retired else False


def behind(
    timeline: Mapping[str, StreamPublished], there: Mapping[str, WhatIsThere], incarnation: int
) -> dict[str, StreamPublished]:
    """The streams that have lost something. Records of an earlier incarnation than the ledger's
    have been accounted for when that began; one of a later incarnation means that even its
    beginning is lost."""
    return {
        stream: published
        for stream, published in sorted(timeline.items())
        if published.incarnation > incarnation
        or (published.incarnation == incarnation and lost(published, there.get(stream)))
    }


def of_stream(history: Sequence[WentBack], stream: str) -> Incarnations:
    """What the ids of a stream's decisions are made with. Those of the intake are never published
    and have no part of it."""
    if stream == INTAKE:
        return ()
    return tuple((one.data.kept.get(stream, 0), one.data.incarnation) for one in history)


async def went_back(database: Database) -> list[WentBack]:
    """Every time this ledger went back, in order."""
    async with database.reading() as raw:
        return await read_went_back(raw)


async def read_went_back(raw: Raw) -> list[WentBack]:
    found: list[WentBack] = []
    for encoding, body, id_, _, at in await raw.fetch(_WENT_BACK, LEDGER, _TYPE):
        data = decode_data(_TYPE, unpack(encoding, body))
        assert isinstance(data, LedgerWentBack), "of that type"
        subject = SUBJECT.format(data.incarnation)
        found.append(
            WentBack(data, made(data, id=id_, source=f"/wharfinger/{LEDGER}", subject=subject), at)
        )
    return found


async def what_is_there(
    raw: Raw, timeline: Mapping[str, StreamPublished]
) -> dict[str, WhatIsThere]:
    names = sorted(timeline)
    rows = await raw.fetch(_HASHES, names, [timeline[name].round for name in names])
    return {name: WhatIsThere(round_, retired, hash_) for name, round_, retired, hash_ in rows}


async def compare(
    database: Database, timeline: Mapping[str, StreamPublished]
) -> dict[str, StreamPublished]:
    """The streams of which the database has lost what was published."""
    async with database.reading() as raw:
        history = await read_went_back(raw)
        return behind(timeline, await what_is_there(raw, timeline), present(history))


async def published(
    database: Database, seqs: Mapping[str, int], incarnation: int
) -> list[StreamPublished]:
    """The records of the timeline for streams that were published up to these seqs: each names the
    round of its last decision. What was retired has none any more."""
    names = sorted(name for name, seq in seqs.items() if seq)
    async with database.reading() as raw:
        rows = await raw.fetch(_PUBLISHED, names, [seqs[name] for name in names])
    return [
        StreamPublished(name, incarnation, number, seqs[name], hash_.hex())
        for name, number, hash_ in rows
    ]


async def begin_next(
    database: Database, timeline: Mapping[str, StreamPublished], clock: Callable[[], Micros] | None
) -> WentBack | None:
    """Record that the ledger went back, if it has; None: it has not, or another process has
    recorded it meanwhile."""
    # who only reads loads nothing that writes
    from wharfinger.runtime.ledger.writer import write

    await ensure_streams(database, [LEDGER])
    async with database.transaction() as transaction:
        raw = transaction.raw
        await raw.execute("select pg_advisory_xact_lock($1)", lock_key(LEDGER))
        history = await read_went_back(raw)
        missing = behind(timeline, await what_is_there(raw, timeline), present(history))
        if not missing:
            return None
        # Every head: nothing that was stepped before this may be committed after it.
        names = [row[0] for row in await raw.fetch("select name from stream order by name")]
        locked = await lock(transaction, names)
        await raw.execute("update stream set epoch = epoch + 1 where name <> $1", LEDGER)
        incarnation = 1 + max(present(history), *(one.incarnation for one in missing.values()))
        kept = {name: one.head.seq for name, one in locked.items()}
        data = LedgerWentBack(incarnation, kept, {name: one.seq for name, one in missing.items()})
        round_ = _round(locked[LEDGER].head, data, locked[LEDGER].now if clock is None else clock())
        await write(raw, [[round_]], [])
    decision = round_.decisions[0]
    return WentBack(
        data,
        made(data, id=decision.id, source=f"/wharfinger/{LEDGER}", subject=decision.subject),
        round_.at,
    )


def present(history: Sequence[WentBack]) -> int:
    return history[-1].data.incarnation if history else FIRST


def _round(head: Head, data: LedgerWentBack, now: Micros) -> Round:
    # as above
    from wharfinger.kernel.step import number

    draft = Draft(data, SUBJECT.format(data.incarnation), OUTCOME)
    decision = number(draft, LEDGER, head.seq + 1, data.incarnation)
    return following(head, max(head.at, now), ENGINE, PROFILE, decisions=[decision])
