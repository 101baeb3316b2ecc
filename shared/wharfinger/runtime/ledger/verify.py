"""Walk the history and report the first row that is not what the chain says.

Nothing is decided again here (that is replay): verify knows no stage. `chain` recomputes every hash
from the rows as they are stored. This module cuts the streams into stretches for it, and looks for
what no hash can show: missing rows, surplus rows, and references to rows that do not exist. All of
it is read as of one moment, also while writers go on, and by several processes if they are
configured.

A history whose end was cut off, and whose head was rewritten to match, is consistent in itself. So
is one that an attacker who knows this code rewrote from some round on. Only a later head that was
recorded elsewhere shows the change: that is what `Remembered` is for. A stream whose beginning was
retired starts at its base, the last round that was retired.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from wharfinger.events.streams import ACCESS, CHAINS, INTAKE, ROWS
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.hashing import genesis
from wharfinger.kernel.incarnations import Incarnations, id_of
from wharfinger.kernel.round import Head
from wharfinger.runtime.deadlines import Deadlines
from wharfinger.runtime.interpreter import seldom_collect
from wharfinger.runtime.ledger.access import first_hash
from wharfinger.runtime.ledger.chain import (
    BadRow,
    ChainWalk,
    FirstBad,
    Stretch,
    bad_row,
    readable,
    walk,
)
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.heads import selected
from wharfinger.runtime.ledger.incarnations import WentBack, of_stream, read_went_back
from wharfinger.runtime.ledger.ledger import Ledger
from wharfinger.runtime.ledger.snapshots import KEPT, snapshot_digest
from wharfinger.runtime.ledger.streams_ahead import read_rebased, rounds_of
from wharfinger.runtime.ledger.verify_access import verify_access
from wharfinger.runtime.ledger.verify_chains import RememberedRecords, WalkedChain
from wharfinger.runtime.ledger.verify_feed import verify_feed
from wharfinger.runtime.ledger.verify_marks import RememberedMarks, verify_marks
from wharfinger.runtime.ledger.verify_rows import verify_rows

__all__ = ["FirstBad", "Remembered", "VerifyResult", "WalkedStream", "audit_verify"]

KEPT_AT_ONCE = 1000

STRETCH_ROWS = 20_000
"""Rows that one process walks at a time: enough to make a connection worth it, few enough to share
a stream evenly."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """Where a stream stood, as somebody wrote it down elsewhere. `snapshots`: (round, digest) of
    those it had then. `by`: who says so, for people."""

    head: Head
    snapshots: tuple[tuple[int, bytes], ...] = ()
    by: str = "remembered"


@dataclass(frozen=True, slots=True)
class WalkedStream:
    """`base`: where the walk began: round 0, or the last round that was retired. `head`: where it
    ended. `snapshots`: (round, digest) of the whole ones on record."""

    base: Head
    head: Head
    snapshots: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """`rows`: rounds, inputs, decisions and access records. `walked`: every stream, in order of
    name, and among them the access records and row records where there are some; nothing behind the
    first bad row is vouched for. `streams`: without the row records."""

    streams: int
    rounds: int
    rows: int
    seconds: float
    first_bad: FirstBad | None = None
    walked: tuple[WalkedStream, ...] = ()
    went_back: tuple[WentBack, ...] = ()

    @property
    def ok(self) -> bool:
        return self.first_bad is None

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class _VerifiedStream:
    """What a stream says of itself: `head` is its row. `snapshots`: (round, digest) of the whole
    ones, in order of round."""

    id: int
    base: Head
    head: Head
    snapshots: tuple[tuple[int, bytes], ...]
    incarnations: Incarnations = ()
    rebases: Mapping[int, Micros] = field(default_factory=dict)

    @property
    def retired(self) -> bool:
        return self.base.round > 0


class _Walked(NamedTuple):
    """What a stretch came to, on its way between processes."""

    order: int
    head: Head
    rounds: int
    rows: int
    bad: FirstBad | None


@dataclass(frozen=True, slots=True)
class _Share:
    """Stretches for one process, by their place in the order of all. `moment`: the exported
    snapshot of the database."""

    database_url: str
    deadlines: Deadlines
    moment: str
    stretches: tuple[tuple[int, Stretch], ...]


async def audit_verify(
    ledger: Ledger,
    stream: str = "",
    remembered: Iterable[Remembered] = (),
    *,
    workers: int = 1,
    pool: Executor | None = None,
    marks: RememberedMarks | None = None,
) -> VerifyResult:
    """Verify one stream or all with a prefix (all: also that no row belongs to none).

    `remembered`: heads kept elsewhere; each must still be part of its stream. `marks`: rows kept
    elsewhere that no chain covers. `pool`: processes that share the work with each other, `workers`
    of them.
    """
    began = time.perf_counter()
    memories = sorted(remembered, key=lambda r: (r.head.stream, r.head.round))
    async with ledger.database.moment() as transaction:
        raw = transaction.raw
        streams = await _streams(raw, stream)
        walking = await _begin(raw, ledger.database, streams, workers, pool)
        # while the processes walk, where there are some
        beside = await _look_beside(raw, streams, stream, marks or RememberedMarks())
        access = await _chain(raw, ACCESS, verify_access, stream, memories)
        rows = await _chain(raw, ROWS, verify_rows, stream, memories)
        walks = await walking()
        first_bad = await _first_bad(raw, streams, walks, beside, memories, stream, (access, rows))
        history = await read_went_back(raw)
    walked = [WalkedStream(one.base, one.head, one.snapshots) for one in streams]
    if access is not None and access.head.seq:
        walked.append(WalkedStream(Head(ACCESS, 0, 0, first_hash(), 0), access.head, ()))
    counted = len(walked)
    if rows is not None and rows.head.seq:
        walked.append(WalkedStream(Head(ROWS, 0, 0, b"", 0), rows.head, ()))
    return VerifyResult(
        counted,
        sum(one.rounds for one in walks),
        sum(one.rows for one in walks) + (0 if access is None else access.head.seq),
        time.perf_counter() - began,
        first_bad,
        tuple(sorted(walked, key=lambda one: one.head.stream)),
        tuple(history),
    )


async def _chain(
    raw: Raw,
    chain: str,
    walked: Callable[[Raw, RememberedRecords], Awaitable[WalkedChain]],
    wanted: str,
    memories: Sequence[Remembered],
) -> WalkedChain | None:
    """None: it was not asked for."""
    if not chain.startswith(wanted):
        return None
    return await walked(
        raw, {m.head.seq: (m.head.hash, m.by) for m in memories if m.head.stream == chain}
    )


_BASES = "select stream, round, seq, hash, epoch, at_us, snapshot from horizon"


async def _streams(raw: Raw, wanted: str) -> list[_VerifiedStream]:
    """In order of name."""
    heads = {
        row[1]: (row[0], Head(*row[1:]))
        for row in await raw.fetch(
            "select id, name, round, seq, hash, epoch, at_us, snapshot from stream"
        )
    }
    bases = {row[0]: row[1:] for row in await raw.fetch(_BASES)}
    snapshots: dict[int, list[tuple[int, bytes]]] = {}
    for id_, number, digest in await raw.fetch(
        "select stream, round, digest from snapshot where whole order by stream, round"
    ):
        snapshots.setdefault(id_, []).append((number, digest))
    history, rebases = await read_went_back(raw), await read_rebased(raw)
    found: list[_VerifiedStream] = []
    for name in selected(list(heads), wanted):
        id_, head = heads[name]
        base = Head(name, *bases[id_]) if id_ in bases else Head(name, 0, 0, genesis(name), 0)
        found.append(
            _VerifiedStream(
                id_,
                base,
                head,
                tuple(snapshots.get(id_, ())),
                of_stream(history, name),
                rounds_of(rebases, name),
            )
        )
    return found


# --- the chains -----------------------------------------------------------------------------------


async def _begin(
    raw: Raw,
    database: Database,
    streams: Sequence[_VerifiedStream],
    workers: int,
    pool: Executor | None,
) -> Callable[[], Awaitable[list[_Walked]]]:
    """Returns what waits for the walks of all stretches, in order: they are under way in the
    processes of the pool, or made when it is called."""
    if pool is None or workers <= 1:
        return partial(_walk_here, raw, streams)
    stretches = [stretch for one in streams for stretch in await _cut(raw, one)]
    shares = _shares(
        [(order, stretch) for order, (stretch, _) in enumerate(stretches)],
        [r for _, r in stretches],
        workers,
    )
    row = await raw.fetchrow("select pg_export_snapshot()")
    assert row is not None, "a function always answers"
    loop = asyncio.get_running_loop()
    tasks = [
        loop.run_in_executor(
            pool, _walk_share, _Share(database.url, database.deadlines, row[0], share)
        )
        for share in shares
    ]
    return partial(_all_of, tasks)


async def _walk_here(raw: Raw, streams: Sequence[_VerifiedStream]) -> list[_Walked]:
    """Ends with the first bad row."""
    walks: list[_Walked] = []
    for order, one in enumerate(streams):
        walks.append(_walked(order, await walk(raw, _whole(one))))
        if walks[-1].bad is not None:
            break
    return walks


async def _all_of(tasks: Sequence[asyncio.Future[list[_Walked]]]) -> list[_Walked]:
    return sorted(
        (one for done in await asyncio.gather(*tasks) for one in done), key=lambda one: one.order
    )


def _whole(one: _VerifiedStream) -> Stretch:
    snapshots = {digest: n for n, digest in reversed(one.snapshots)}
    return Stretch(
        one.id, one.base, one.head.round, snapshots, one.retired, one.incarnations, one.rebases
    )


# Where the rows so far pass a multiple of so many: the last round of a stretch, and where the next
# one begins.
_CUTS = """
select number, first_seq - 1 + decisions, hash, epoch, at_us, snapshot, rows_so_far from (
    select *, sum(1 + inputs + decisions) over (order by number)::bigint as rows_so_far
    from round where stream = $1 and number > $2 and number <= $3
) counted where rows_so_far / $4 > (rows_so_far - 1 - inputs - decisions) / $4 order by number
"""


async def _cut(raw: Raw, one: _VerifiedStream) -> list[tuple[Stretch, int]]:
    """The stretches of a stream, each with its rows. What a stretch believes of its beginning, the
    one before proves."""
    whole = _whole(one)
    cuts = await raw.fetch(_CUTS, one.id, one.base.round, one.head.round, STRETCH_ROWS)
    stretches: list[tuple[Stretch, int]] = []
    begin, rows_before = one.base, 0
    for *head, rows_so_far in cuts:
        stretches.append((_between(whole, begin, head[0]), rows_so_far - rows_before))
        begin, rows_before = Head(one.head.stream, *head), rows_so_far
    if begin.round < one.head.round or not stretches:
        stretches.append((_between(whole, begin, one.head.round), STRETCH_ROWS))
    return stretches


def _between(whole: Stretch, begin: Head, end: int) -> Stretch:
    retired = whole.retired and begin == whole.begin
    return Stretch(
        whole.id, begin, end, whole.snapshots, retired, whole.incarnations, whole.rebases
    )


def _shares(
    stretches: Sequence[tuple[int, Stretch]], weights: Sequence[int], workers: int
) -> list[tuple[tuple[int, Stretch], ...]]:
    """Longest-processing-time scheduling: the heaviest stretch first, each to the share with the
    least weight."""
    shares: list[list[tuple[int, Stretch]]] = [[] for _ in range(min(workers, len(stretches)))]
    loads = [0] * len(shares)
    for place in sorted(range(len(stretches)), key=lambda place: -weights[place]):
        least = loads.index(min(loads))
        shares[least].append(stretches[place])
        loads[least] += weights[place]
    return [tuple(sorted(share, key=lambda one: one[0])) for share in shares]


def _walk_share(share: _Share) -> list[_Walked]:
    """Walks one share in a process of its own. Ends at its first bad row, because only the first
    one is reported."""
    seldom_collect()

    async def run() -> list[_Walked]:
        database = Database(share.database_url, "wharfinger-verify", 1, share.deadlines)
        walks: list[_Walked] = []
        try:
            async with database.moment() as transaction:
                raw = transaction.raw
                await raw.execute(f"set transaction snapshot '{share.moment}'")
                for order, stretch in share.stretches:
                    walks.append(_walked(order, await walk(raw, stretch)))
                    if walks[-1].bad is not None:
                        break
        finally:
            await database.close()
        return walks

    return asyncio.run(run())


def _walked(order: int, made: ChainWalk) -> _Walked:
    return _Walked(order, made.head, made.rounds, made.rows, made.bad)


# --- what no chain covers -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Beside:
    """What was found beside the chains, by the small number of the stream; `stranger`: a row that
    nothing leads to; `feed`: the first position that is not what the streams say; `marks`: the
    first row outside of the chains that is wrong."""

    snapshots: Mapping[int, BadRow]
    taken: Mapping[int, BadRow]
    stranger: BadRow | None
    feed: BadRow | None
    marks: BadRow | None


async def _look_beside(
    raw: Raw, streams: Sequence[_VerifiedStream], wanted: str, marks: RememberedMarks
) -> _Beside:
    snapshots: dict[int, BadRow] = {}
    for one in streams:
        try:
            await _snapshots(raw, one)
        except BadRow as caught:
            snapshots[one.id] = caught
    return _Beside(
        snapshots,
        await _taken(raw, streams),
        None if wanted else await _stranger(raw),
        None if wanted else await verify_feed(raw),
        None if wanted else await verify_marks(raw, marks),
    )


async def _first_bad(
    raw: Raw,
    streams: Sequence[_VerifiedStream],
    walks: Sequence[_Walked],
    beside: _Beside,
    memories: Sequence[Remembered],
    wanted: str,
    chains: Sequence[WalkedChain | None],
) -> FirstBad | None:
    """Stream by stream, so that the same history names the same row however many processes walked
    it."""
    by_stream: dict[str, list[_Walked]] = {}
    for walked in walks:
        by_stream.setdefault(walked.head.stream, []).append(walked)
    remembered: dict[str, list[Remembered]] = {}
    for memory in memories:
        remembered.setdefault(memory.head.stream, []).append(memory)
    try:
        for one in streams:
            await _stream(raw, one, by_stream.get(one.head.stream, ()), beside)
            await _remembered(raw, one, remembered.get(one.head.stream, ()))
        # access records and row records are held against what is remembered by their own walks
        _gone({*CHAINS, *(one.head.stream for one in streams)}, memories, wanted)
        of_chains = (chain and chain.bad for chain in chains)
        for bad in (beside.stranger, beside.feed, *of_chains, beside.marks):
            if bad is not None:
                raise bad
    except BadRow as caught:
        return caught.bad
    return None


async def _stream(
    raw: Raw, one: _VerifiedStream, walks: Sequence[_Walked], beside: _Beside
) -> None:
    if one.retired:
        await _base(raw, one)
        await _kept(raw, one)
    if one.id in beside.snapshots:
        raise beside.snapshots[one.id]
    for walked in walks:
        if walked.bad is not None:
            raise BadRow(walked.bad)
    end, head = one.head, walks[-1].head
    for what, expected, found in (
        ("head: round", head.round, end.round),
        ("head: hash", head.hash, end.hash),
        ("head: seq", head.seq, end.seq),
        ("head: time", head.at, end.at),
        ("head: snapshot", one.snapshots[-1][1] if one.snapshots else b"", end.snapshot),
    ):
        if expected != found:
            raise bad_row(end.stream, end.round, 0, what, expected, found)
    if end.epoch < head.epoch:
        raise bad_row(end.stream, end.round, 0, "head: epoch", f"at least {head.epoch}", end.epoch)
    published = await raw.fetchrow("select max(seq) from cursor where stream = $1", end.stream)
    if published is not None and (published[0] or 0) > end.seq:
        raise bad_row(
            end.stream,
            end.round,
            0,
            "head: seq",
            f"at least {published[0]}: so far it was published",
            end.seq,
        )
    await _beyond(raw, one)
    if one.id in beside.taken:
        raise beside.taken[one.id]
    if end.stream == INTAKE:
        await _facts(raw, one)


async def _base(raw: Raw, one: _VerifiedStream) -> None:
    """Of what was retired the last round stays, and of a stream that decides the state after it.
    That the base is the right one follows from a later head that somebody remembers: nothing else
    leads there."""
    base = one.base
    row = await raw.fetchrow(
        "select first_seq - 1 + decisions, hash, epoch, at_us from round where stream = $1 "
        "and number = $2",
        one.id,
        base.round,
    )
    for what, expected, found in (
        ("horizon: round", "its row", "missing" if row is None else "its row"),
        (
            "horizon",
            (base.seq, base.hash.hex(), base.epoch, base.at),
            row and (row[0], row[1].hex(), *row[2:]),
        ),
        (
            "horizon: snapshot",
            base.snapshot,
            dict(one.snapshots).get(base.round, b"") if base.snapshot else b"",
        ),
    ):
        if expected != found:
            raise bad_row(base.stream, base.round, 0, what, expected, found)


# What a retirement keeps: the latest word about each subject, facts, and the rounds they lie in.
_KEPT_DECISIONS = """
select d.seq, d.round, d.id, d.day, r.first_seq, r.decisions, r.day
from decision d left join round r on r.stream = d.stream and r.number = d.round
where d.stream = $1 and d.seq <= $2 order by d.seq, d.day
"""

_KEPT_INPUTS = """
select i.round, i.ordinal, i.event, i.sha256, i.day, r.inputs, r.day, e.encoding, e.body
from input i left join round r on r.stream = i.stream and r.number = i.round
left join lateral (
    select * from event e where e.id = i.event and e.sha256 = i.sha256 and e.day = i.day limit 1
) e on true
where i.stream = $1 and i.round <= $2 order by i.round, i.ordinal, i.day
"""


async def _kept(raw: Raw, one: _VerifiedStream) -> None:
    """The rounds before the base are not all there any more, so no hash covers these rows: only
    that they fit together can be told. What was decided then is vouched for by the archive, or by
    the topic."""
    base = one.base
    async for seq, number, id_, day, first_seq, count, of_day in raw.cursor(
        _KEPT_DECISIONS, one.id, base.seq, prefetch=KEPT_AT_ONCE
    ):
        if id_ != (expected := id_of(base.stream, seq, one.incarnations)):
            raise bad_row(base.stream, number, seq, "decision: id", expected, id_)
        if of_day != day or not first_seq <= seq < first_seq + count or number > base.round:
            raise bad_row(
                base.stream, number, seq, "decision", "a round that it belongs to", "none"
            )
    async for number, ordinal, id_, sha, day, count, of_day, encoding, stored in raw.cursor(
        _KEPT_INPUTS, one.id, base.round, prefetch=KEPT_AT_ONCE
    ):
        if of_day != day or not 0 <= ordinal < count:
            raise bad_row(
                base.stream, number, ordinal, "input", "a round that it belongs to", "none"
            )
        if stored is None:
            raise bad_row(
                base.stream, number, ordinal, "event", f"{id_} with sha256 {sha.hex()}", "missing"
            )
        if (
            actual := sha256(
                readable(base.stream, number, ordinal, "event", encoding, stored)
            ).digest()
        ) != sha:
            raise bad_row(base.stream, number, ordinal, "event: body", sha, actual)


async def _snapshots(raw: Raw, one: _VerifiedStream) -> None:
    """The bytes of the newest whole ones (older ones are thrown away on purpose), and of every
    other that is there."""
    stream = one.head.stream
    kept = {number for number, _ in one.snapshots[-KEPT:] if number >= one.base.round}
    kept |= {one.base.round} if one.base.snapshot else set()
    for number, digest in await raw.fetch(
        "select round, digest from snapshot where stream = $1 order by round desc", one.id
    ):
        sections = await raw.fetch(
            "select name, sha256, encoding, body from snapshot_section where stream = $1 "
            "and round = $2 order by name",
            one.id,
            number,
        )
        if not sections and number not in kept:
            continue
        if (computed := snapshot_digest({name: sha for name, sha, _, _ in sections})) != digest:
            raise bad_row(stream, number, 0, "snapshot: digest", computed, digest)
        for name, sha, encoding, stored in sections:
            body = readable(stream, number, 0, f"snapshot section {name}", encoding, stored)
            if (actual := sha256(body).digest()) != sha:
                raise bad_row(stream, number, 0, f"snapshot section {name}", sha, actual)
    stray = await raw.fetchrow(
        "select t.round, t.name from snapshot_section t where t.stream = $1 and not exists "
        "(select from snapshot n where n.stream = t.stream and n.round = t.round) order by 1, 2 "
        "limit 1",
        one.id,
    )
    if stray is not None:
        raise bad_row(
            stream, stray[0], 0, f"snapshot section {stray[1]}", "a snapshot it belongs to", "none"
        )


async def _beyond(raw: Raw, one: _VerifiedStream) -> None:
    """Rows that lie after the head, or in no round at all."""
    end = one.head
    for table, column, last in (
        ("round", "number", end.round),
        ("input", "round", end.round),
        ("decision", "seq", end.seq),
        ("snapshot", "round", end.round),
    ):
        row = await raw.fetchrow(
            f"select {column} from {table} where stream = $1 and ({column} > $2 or {column} < 1) "
            "order by 1 limit 1",
            one.id,
            last,
        )
        if row is not None:
            raise bad_row(
                end.stream,
                end.round,
                0,
                table,
                f"nothing after {column} {last}",
                f"{column} {row[0]}",
            )


# What a stream took in, and what it remembers of its retired rounds: an event may be in there once.
_TWICE = """
select distinct on (stream) stream, round, ordinal, event from (
    select stream, event, (array_agg(round order by round desc))[1] as round,
           (array_agg(ordinal order by round desc))[1] as ordinal
    from (
        select stream, event, round, ordinal from input where stream = any($1::int[])
        union all select stream, event, 0, 0 from taken where stream = any($1::int[])
    ) held group by stream, event having count(*) > 1
) twice order by stream, round, ordinal, event
"""

_REMEMBERED_IN_VAIN = """
select distinct on (stream) stream, event from taken
where stream = any($1::int[]) and stream <> all($2::int[]) order by stream, event
"""


async def _taken(raw: Raw, streams: Sequence[_VerifiedStream]) -> dict[int, BadRow]:
    """Where a stream took an event in twice, or remembers one of rounds that were never retired and
    would skip it."""
    heads = {one.id: one.head for one in streams}
    bad: dict[int, BadRow] = {}
    retired = [one.id for one in streams if one.retired]
    for id_, event in await raw.fetch(_REMEMBERED_IN_VAIN, list(heads), retired):
        bad[id_] = bad_row(
            heads[id_].stream,
            heads[id_].round,
            0,
            "taken",
            "an event of a round that was retired",
            f"event {event}",
        )
    for id_, number, ordinal, event in await raw.fetch(_TWICE, list(heads)):
        bad[id_] = bad_row(
            heads[id_].stream, number, ordinal, "taken", f"event {event} once", "twice"
        )
    return bad


async def _facts(raw: Raw, one: _VerifiedStream) -> None:
    """Those the intake's walk has not met: told after its head, or before its base, where the body
    still has to be there."""
    end = one.head
    row = await raw.fetchrow(
        "select topic, key, seq from fact where seq > $1 or seq < 1 order by seq limit 1", end.seq
    )
    if row is not None:
        found = f"{row[0]} {row[1]} of seq {row[2]}"
        raise bad_row(end.stream, end.round, row[2], "fact", f"nothing after seq {end.seq}", found)
    for topic, key, seq, sha, encoding, stored in await raw.fetch(
        "select f.topic, f.key, f.seq, f.sha256, e.encoding, e.body from fact f left join lateral "
        "(select * from event e where e.id = f.event and e.sha256 = f.sha256 limit 1) e on true "
        "where f.seq <= $1 order by f.seq",
        one.base.seq,
    ):
        found = "missing" if stored is None else ""
        if stored is not None:
            found = sha256(
                readable(end.stream, one.base.round, seq, "fact", encoding, stored)
            ).hexdigest()
        if found != sha.hex():
            raise bad_row(
                end.stream,
                one.base.round,
                seq,
                "fact",
                f"{topic} {key} with sha256 {sha.hex()}",
                found,
            )


async def _remembered(raw: Raw, one: _VerifiedStream, memories: Sequence[Remembered]) -> None:
    """The earliest that does not fit: everything up to the one before it is what it was."""
    stream = one.head.stream
    on_record = dict(one.snapshots)
    # of what was retired since, the base's own checkpoint speaks
    held = [memory for memory in memories if memory.head.round >= one.base.round]
    hashes = await _hashes_at(raw, one, {memory.head.round for memory in held})
    for memory in held:
        head = memory.head
        found = hashes.get(head.round)
        if found != head.hash:
            expected = f"{head.hash.hex()} ({memory.by})"
            missing = f"missing: the stream ends at round {one.head.round}"
            raise bad_row(
                stream,
                head.round,
                0,
                "checkpoint: hash",
                expected,
                missing if found is None else found,
            )
        for number, digest in memory.snapshots:
            if number >= one.base.round and on_record.get(number) != digest:
                expected = f"{digest.hex()} ({memory.by})"
                raise bad_row(
                    stream,
                    number,
                    0,
                    "checkpoint: snapshot",
                    expected,
                    on_record.get(number, "missing"),
                )


async def _hashes_at(raw: Raw, one: _VerifiedStream, numbers: Collection[int]) -> dict[int, bytes]:
    """Of the rounds with these numbers, as far as they are there."""
    if not numbers:
        return {}
    rows = await raw.fetch(
        "select number, hash from round where stream = $1 and number = any($2::bigint[])",
        one.id,
        sorted(numbers),
    )
    return {**dict(rows), one.base.round: one.base.hash}


def _gone(streams: set[str], memories: Sequence[Remembered], wanted: str) -> None:
    for memory in memories:
        name = memory.head.stream
        if name not in streams and (
            name == wanted or (name.startswith(wanted) and wanted not in streams)
        ):
            raise bad_row(
                name,
                memory.head.round,
                0,
                "checkpoint: stream",
                f"to be there ({memory.by})",
                "missing",
            )


async def _stranger(raw: Raw) -> BadRow | None:
    """A row that nothing leads to: of a stream that is not there, or events that no round took
    in."""
    for table in ("round", "input", "decision", "taken", "snapshot", "snapshot_section", "horizon"):
        row = await raw.fetchrow(
            f"select stream from (select distinct stream from {table}) t "
            "where not exists (select from stream s where s.id = t.stream) order by 1 limit 1"
        )
        if row is not None:
            return bad_row("", 0, 0, table, "a known stream", f"stream number {row[0]}")
    # All of them first, and then the least: asked for one, the planner goes through the events by
    # id and probes every other table.
    row = await raw.fetchrow(
        "with unused as materialized (select e.id, e.sha256 from event e "
        "where not exists (select from input i where i.event = e.id and i.sha256 = e.sha256 "
        "and i.day = e.day)) "
        "select u.id from unused u where not exists (select from fact f where f.event = u.id "
        "and f.sha256 = u.sha256) "
        "and not exists (select from horizon_fact f where f.event = u.id "
        "and f.sha256 = u.sha256) order by 1 limit 1"
    )
    if row is not None:
        return bad_row("", 0, 0, "event", "one that a round took in", row[0])
    return None
