"""Take the oldest days of the history away, and keep what is still true of them.

Whole spans go, at once and for all tables: their partitions are detached and stay in the database
as ordinary tables (`retired_...`) until an operator drops them. In their place comes one thin
partition with what later rows and questions still refer to: the latest decision of each kind about
each subject, with its round and its cause, the bodies of the facts that hold, the last round of
each stream, the first of the intake, which names the plane. `horizon` says where each stream begins
from now on, `feed_head` from which position on the feed can be read, and `retirement` keeps the
signed checkpoint that vouches for it.

All of it is one transaction: a process that is killed has done nothing or everything. What takes
time (filling the thin tables, storing snapshots) is done before the tables are locked. The change
of the catalogue then takes moments. A lock request that is not granted within moments is withdrawn
and repeated, because writers queue behind it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from wharfinger.events.acceptance import MessageAccepted
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import CLUSTER, CLUSTERS, INTAKE, TOPICS
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import partitions
from wharfinger.runtime.ledger.bodies import pack
from wharfinger.runtime.ledger.database import Database, Raw, Transaction
from wharfinger.runtime.ledger.days import DAY_US, day_of
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.heads import lock
from wharfinger.runtime.ledger.partitions import TABLES, Span
from wharfinger.runtime.ledger.retries import retried
from wharfinger.runtime.ledger.rounds import recorded_rounds
from wharfinger.runtime.ledger.snapshots import KEPT, snapshot_digest

_RETIRED = "retired_"

REDELIVERED_MS = max(topic.retention_ms or 0 for topic in TOPICS)
"""A broker that is filled again gets no row older than this, except the latest fact under each
key."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What can be retired: everything before the day `before`. `heads`: where each stream stood
    then, of those that had begun; `already`: where those begin that were retired before."""

    before: int
    spans: tuple[Span, ...]
    heads: Mapping[str, Head]
    already: Mapping[str, Head]

    @property
    def at(self) -> Micros:
        return self.before * DAY_US

    @property
    def moved(self) -> dict[str, Head]:
        """The streams that lose rounds by it."""
        return {
            name: head
            for name, head in self.heads.items()
            if head.round > _round(self.already.get(name))
        }


@dataclass(frozen=True, slots=True)
class RetirementResult:
    """What was done. `tables`: detached now, by their new names; `rounds`: that lie in them."""

    before: int
    heads: Mapping[str, Head]
    tables: tuple[str, ...]
    rounds: int


@dataclass(frozen=True, slots=True)
class _CompactedPlace:
    topic: str
    key: str
    partition_key: str
    event: UUID
    sha256: bytes
    seq: int
    at: Micros


async def cut(database: Database, before: Micros) -> Cut | None:
    """What lies in whole spans before a time; None: nothing does."""

    async def attempt() -> Cut | None:
        async with database.transaction(patient=True) as transaction:
            await partitions.begin_change(transaction)
            raw = transaction.raw
            await partitions.sort_out_default(transaction, day_of(before))
            old = [span for span in await partitions.spans(raw) if span.beyond <= day_of(before)]
            if not any([await _has_history(raw, span) for span in old]):
                return None
            day = old[-1].beyond
            return Cut(day, tuple(old), await _heads_before(raw, day), await _horizons(raw))

    return await retried(attempt)


async def behind_publisher(database: Database, cut: Cut) -> str:
    """The first stream of which something would be retired that the publisher has not sent; empty:
    none."""
    async with database.reading() as raw:
        sent: dict[str, int] = dict(
            await raw.fetch(
                "select stream, seq from cursor where consumer = 'publisher' "
                "and incarnation = (select max(incarnation) from cursor "
                "where consumer = 'publisher')"
            )
        )
    return next(
        (name for name, head in cut.moved.items() if sent and sent.get(name, 0) < head.seq), ""
    )


async def hash_at(database: Database, stream: str, number: int) -> bytes | None:
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select r.hash from round r join stream s on s.id = r.stream where s.name = $1 "
            "and r.number = $2",
            stream,
            number,
        )
    return None if row is None else bytes(row[0])


async def retire(
    database: Database,
    cut: Cut,
    snapshots: Mapping[str, Mapping[str, bytes]],
    checkpoint: bytes,
    now: Micros,
) -> RetirementResult:
    """Take `cut` away. `snapshots`: the sections of the state after the last round of each stream
    that decides something.

    Transient: the tables were in use all the time, and nothing was done. LedgerError: somebody is
    still writing before the day.
    """
    places = await _facts_before(database, cut)
    redelivered_from = day_of(now - REDELIVERED_MS * 1000) - 1
    async with database.transaction(patient=True) as transaction:
        await partitions.begin_change(transaction)
        raw = transaction.raw
        digests = {
            name: await _keep_snapshot(raw, cut.heads[name], sections)
            for name, sections in snapshots.items()
        }
        await _keep_facts(raw, places)
        thin = Span(
            cut.spans[0].first, cut.before, f"until_{partitions.shown_day(cut.before):%Y%m%d}"
        )
        await _fill(raw, thin, cut, await _forgotten(raw, cut))
        await _remember_taken(raw, thin, cut, redelivered_from)
        await partitions.lock_history(
            transaction, lambda: _name_snapshots(transaction, cut, digests)
        )
        if await _heads_before(raw, cut.before) != cut.heads:
            raise LedgerError(
                f"a stream is still being written before {partitions.shown_day(cut.before)}: "
                "is its clock right?"
            )
        tables = await _exchange(raw, cut.spans, thin)
        await _record(raw, cut, digests, checkpoint, now)
    rounds = sum(head.round - _round(cut.already.get(name)) for name, head in cut.moved.items())
    return RetirementResult(cut.before, cut.heads, tuple(tables), rounds)


# --- what is to be kept --------------------------------------------------------------------------


async def _has_history(raw: Raw, span: Span) -> bool:
    """More than what an earlier retirement left."""
    row = await raw.fetchrow(
        f"select exists (select from round_{span.suffix} r "
        "left join horizon h on h.stream = r.stream "
        "where r.number > coalesce(h.round, 0))"
    )
    return row is not None and bool(row[0])


async def _heads_before(raw: Raw, day: int) -> dict[str, Head]:
    found = await raw.fetch(
        "select s.name, r.number, r.first_seq - 1 + r.decisions, r.hash, r.epoch, r.at_us, "
        "r.snapshot from stream s "
        "cross join lateral (select * from round r where r.stream = s.id and r.day < $1 "
        "order by r.number desc limit 1) r "
        "order by s.name",
        day,
    )
    return {record[0]: Head(*record) for record in found}


async def _horizons(raw: Raw) -> dict[str, Head]:
    found = await raw.fetch(
        "select s.name, h.round, h.seq, h.hash, h.epoch, h.at_us, h.snapshot from horizon h "
        "join stream s on s.id = h.stream"
    )
    return {record[0]: Head(*record) for record in found}


async def _facts_before(database: Database, cut: Cut) -> list[_CompactedPlace]:
    """The latest fact under each key as of the cut: what was known before, and what the intake says
    until then."""
    latest: dict[tuple[str, str], _CompactedPlace] = {}
    async with database.reading(patient=True) as raw:
        for record in await raw.fetch(
            "select topic, key, partition_key, event, sha256, seq, at_us from horizon_fact"
        ):
            latest[record[0], record[1]] = _CompactedPlace(*record)
    if (head := cut.heads.get(INTAKE)) is not None:
        async for recorded in recorded_rounds(
            database, INTAKE, _round(cut.already.get(INTAKE)) + 1, head.round
        ):
            r = recorded.round
            for ref, decision in zip(r.inputs, r.decisions, strict=True):
                if isinstance(to := decision.data, MessageAccepted):
                    latest[to.topic, to.key] = _CompactedPlace(
                        to.topic, to.key, to.partition_key, ref.id, ref.sha256, decision.seq, r.at
                    )
    return sorted(latest.values(), key=lambda place: place.seq)


async def _keep_facts(raw: Raw, places: Sequence[_CompactedPlace]) -> None:
    await raw.execute("delete from horizon_fact")
    await raw.copy_records_to_table(
        "horizon_fact",
        records=[(p.topic, p.key, p.partition_key, p.event, p.sha256, p.seq, p.at) for p in places],
        columns=("topic", "key", "partition_key", "event", "sha256", "seq", "at_us"),
    )


async def _keep_snapshot(raw: Raw, head: Head, sections: Mapping[str, bytes]) -> bytes:
    """Whole, for as long as the stream begins there. A delta of the same round gives way to it."""
    rows = [
        (name, hashlib.sha256(body).digest(), *pack(body))
        for name, body in sorted(sections.items())
    ]
    digest = snapshot_digest({name: sha256 for name, sha256, _, _ in rows})
    found = await raw.fetchrow(
        "select s.id, n.digest, n.whole from stream s left join snapshot n on n.stream = s.id "
        "and n.round = $2 "
        "where s.name = $1",
        head.stream,
        head.round,
    )
    assert found is not None, "the cut has only streams that are there"
    id_, stored, whole = found
    if whole and stored != digest:
        raise LedgerError(
            f"{head.stream}: another snapshot of round {head.round} is stored: "
            "the two states differ"
        )
    await raw.execute(
        "delete from snapshot_section where stream = $1 and round = $2", id_, head.round
    )
    await raw.execute(
        "insert into snapshot (stream, round, digest, whole) values ($1, $2, $3, true) "
        "on conflict (stream, round) do update set digest = excluded.digest, whole = true",
        id_,
        head.round,
        digest,
    )
    await raw.copy_records_to_table(
        "snapshot_section",
        records=[(id_, head.round, *row) for row in rows],
        columns=("stream", "round", "name", "sha256", "encoding", "body"),
    )
    return digest


# What is kept of the old days, in the order in which the parts refer to each other: each query
# fills one thin table, and the ones after it read it by its name. `before`: the day before which
# everything goes; `intake`: the intake's small number.
_KEPT = {
    # The latest word of each kind about each subject, unless there is a later one that stays anyway
    # (a refusal takes nothing back of what was decided before it); and where the facts came from.
    "decision": """
        select d.* from (
            select d.subject, d.stream, d.type, max(d.seq) as seq from decision d
            where d.day < {before} and d.stream <> {intake} and d.stream <> all({forgotten})
            group by d.subject, d.stream, d.type
        ) k join decision d on d.stream = k.stream and d.seq = k.seq and d.day < {before}
        where not exists (
            select from decision n
            where n.subject = k.subject and n.stream = k.stream and n.type = k.type
                and n.seq > k.seq
        )
        union all
        select d.* from decision d where d.stream = {intake} and d.day < {before}
        and d.seq in (select seq from fact union select seq from horizon_fact)
    """,
    # Theirs, the last of each stream, and the one that names the plane.
    "round": """
        select r.* from round r where r.day < {before} and (
            (r.stream, r.number) in (select stream, round from {decision})
            or (r.stream, r.number) in (select stream, max(number) from round where day < {before}
                group by stream)
            or (r.stream = {intake} and r.number = 1)
        )
    """,
    # Those that were facts, or the cause of a decision that is kept.
    "input": """
        select i.* from input i join {round} r on r.stream = i.stream and r.number = i.round
        where i.day < {before} and (
            i.event in (select cause from {decision} d where d.stream = i.stream)
            or (i.stream = {intake}
                and r.first_seq + i.ordinal in (select seq from {decision} d
                    where d.stream = {intake}))
        )
    """,
    "event": """
        select e.* from event e where e.day < {before} and (
            (e.id, e.sha256, e.day) in (select event, sha256, day from {input})
            or (e.id, e.sha256, e.day) in (select event, sha256, (at_us / {day_us})::int from fact)
            or (e.id, e.sha256, e.day) in (select event, sha256, (at_us / {day_us})::int
                from horizon_fact)
        )
    """,
}


async def _forgotten(raw: Raw, cut: Cut) -> list[int]:
    """Streams of clusters that were forgotten, and that have decided nothing since the cut. No
    reader needs to know any more what is placed in them. Their last round and the state after it
    stay, so that a cluster that returns continues from there."""
    found = await raw.fetch(
        "select s.id, s.name, s.round from fact f join stream s on s.name = $1 || f.key "
        f"join event e on e.id = f.event and e.sha256 = f.sha256 and e.day = f.at_us / {DAY_US} "
        "where f.topic = $2 and e.type = $3",
        CLUSTER,
        CLUSTERS.name,
        LATEST[ClusterForgotten].type,
    )
    return [id_ for id_, name, last in found if name in cut.heads and cut.heads[name].round == last]


async def _remember_taken(raw: Raw, thin: Span, cut: Cut, redelivered_from: int) -> None:
    """Of the inputs that go, those that may come again: under a stream's basis nothing does, but a
    broker that lost everything is filled again, and then its offsets say nothing. What was
    remembered before and cannot come any more is forgotten."""
    inputs = thin.tables[TABLES.index("input")]
    await raw.execute(
        "delete from taken t where t.day < $1 "
        "and not exists (select from fact f where f.event = t.event)",
        redelivered_from,
    )
    await raw.execute(
        "insert into taken (stream, event, day) select i.stream, i.event, max(i.day) from input i "
        "where i.day < $1 and (i.day >= $2 or i.event in (select event from fact)) "
        f"and not exists (select from {inputs} k where k.stream = i.stream and k.event = i.event) "
        "group by i.stream, i.event on conflict (stream, event) do nothing",
        cut.before,
        redelivered_from,
    )
    # What the thin table has now, and an earlier retirement had not.
    await raw.execute(
        f"delete from taken t using {inputs} k where k.stream = t.stream and k.event = t.event"
    )


async def _fill(raw: Raw, thin: Span, cut: Cut, forgotten: Sequence[int]) -> None:
    """Fills the thin tables. They are not attached yet, so no reader sees them."""
    intake = await raw.fetchrow("select id from stream where name = $1", INTAKE)
    assert intake is not None, "a ledger that is open has an intake"
    tables = dict(zip(TABLES, thin.tables, strict=True))
    for table, query in _KEPT.items():
        await raw.execute(f"create table {tables[table]} (like {table} including all)")
        kept = query.format(
            before=int(cut.before),
            intake=int(intake[0]),
            day_us=DAY_US,
            forgotten=_int_array(forgotten),
            **tables,
        )
        await raw.execute(f"insert into {tables[table]} {kept}")


# --- the exchange --------------------------------------------------------------------------------


async def _name_snapshots(transaction: Transaction, cut: Cut, digests: Mapping[str, bytes]) -> None:
    """Where it is the newest one of its stream, the next round has to carry it. Takes rows of
    heads, in order of name."""
    names = sorted(digests)
    # A statement of its own, so that the next one knows the snapshots that were written meanwhile.
    await lock(transaction, names)
    await transaction.raw.execute(
        "update stream s set snapshot = n.digest "
        "from unnest($1::text[], $2::bytea[], $3::bigint[]) as n(name, digest, round) "
        "where s.name = n.name and s.snapshot <> n.digest and not exists (select from snapshot o "
        "where o.stream = s.id and o.round > n.round and o.whole)",
        names,
        [digests[name] for name in names],
        [cut.heads[name].round for name in names],
    )


async def _exchange(raw: Raw, spans: Iterable[Span], thin: Span) -> list[str]:
    """The thin partition in the place of the others. What an earlier retirement had kept has been
    kept again, or is not needed any more."""
    names: list[str] = []
    for span in spans:
        for table, partition in zip(TABLES, span.tables, strict=True):
            await raw.execute(f"alter table {table} detach partition {partition}")
            if span.suffix.startswith("until_"):
                await raw.execute(f"drop table {partition}")
            else:
                await raw.execute(f"alter table {partition} rename to {_RETIRED}{partition}")
                names.append(_RETIRED + partition)
    for table, partition in zip(TABLES, thin.tables, strict=True):
        await partitions.attach(raw, table, partition, thin)
    return names


async def _record(
    raw: Raw, cut: Cut, digests: Mapping[str, bytes], checkpoint: bytes, now: Micros
) -> None:
    sha256 = hashlib.sha256(checkpoint).digest()
    await raw.execute(
        "insert into retirement (sha256, made_at_us, before_day, checkpoint) "
        "values ($1, $2, $3, $4) on conflict do nothing",
        sha256,
        now,
        cut.before,
        checkpoint,
    )
    for name, head in cut.moved.items():
        await raw.execute(
            "insert into horizon (stream, round, seq, hash, epoch, at_us, snapshot, retirement) "
            "select id, $2, $3, $4, $5, $6, $7, $8 from stream where name = $1 "
            "on conflict (stream) do update set (round, seq, hash, epoch, at_us, snapshot, "
            "retirement) = (excluded.round, "
            "excluded.seq, excluded.hash, excluded.epoch, excluded.at_us, excluded.snapshot, "
            "excluded.retirement)",
            name,
            head.round,
            head.seq,
            head.hash,
            head.epoch,
            head.at,
            digests.get(name, b""),
            sha256,
        )
    # An appender that has read what goes now reads again where the feed stands.
    await raw.execute(
        "update feed_head set epoch = epoch + 1, earliest = greatest(earliest, ("
        "select coalesce(max(f.first_position + least(f.count, h.seq - f.first_seq + 1)), 1) "
        "from feed f join horizon h on h.stream = f.stream where f.first_seq <= h.seq))"
    )
    await raw.execute(
        "delete from feed f using horizon h where h.stream = f.stream "
        "and f.first_seq + f.count - 1 <= h.seq"
    )
    # The history begins at the state of the horizon: no round that is left could be decided from an
    # earlier one. The first rounds behind the horizon still carry the digest of one of the last
    # before it.
    await raw.execute(
        "delete from snapshot_section t using horizon h where h.stream = t.stream "
        "and t.round < h.round"
    )
    await raw.execute(
        "delete from snapshot t using horizon h where h.stream = t.stream and t.round < h.round "
        "and (not t.whole or t.round < "
        "(select min(round) from (select n.round from snapshot n where n.stream = h.stream "
        "and n.whole and n.round < h.round "
        "order by n.round desc limit $1) newest))",
        KEPT,
    )


def _int_array(ids: Sequence[int]) -> str:
    return f"array[{', '.join(map(str, ids))}]::int[]"


def _round(head: Head | None) -> int:
    return 0 if head is None else head.round
