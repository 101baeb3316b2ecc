"""Snapshots: a stream's state after a round, in sections that can be loaded apart.

The digest covers the names and the sha256 of all sections, so that one section can be checked
without the others. It is written into the stream's head, where the writer finds it and puts it into
the hash of its next round; from then on the chain vouches for the snapshot. The head's
compare-and-set does not look at it, so no round is lost for a snapshot.

Those are the *whole* snapshots; the newest few are kept. Between them are *deltas*, for a reader
that needs one item as of one moment of the past. Deltas are outside the chain: what is derived from
them is proven by the recorded bytes that it reproduces. They stay for as long as the history does.
Of a section of many items a delta holds only the changed ones, and `names` lists their hashes. So
the newest version of one item is found by one backward scan of an index.

`replayed` says whether the rounds before a snapshot were decided again and compared with the
record. Before a whole one they always were. A delta may come from folding alone, which is cheaper;
it is marked as replayed when its rounds have been decided again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from wharfinger.runtime.ledger.bodies import pack, unpack
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.errors import CorruptLedger, LedgerError

KEPT = 2
"""Of older snapshots only the digest stays: the chain refers to it. No reader needs the bytes."""

_STREAM = "select id, round from stream where name = $1"

# Of those stored with their sections; $3: only a whole one will do.
_NEWEST = """
select n.stream, n.round, n.digest from snapshot n join stream s on s.id = n.stream
where s.name = $1 and ($2::bigint is null or n.round <= $2) and (n.whole or not $3)
and exists (select from snapshot_section t where t.stream = n.stream and t.round = n.round)
order by n.round desc limit 1
"""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """`round`: the last round that is in it. `sections`: those asked for."""

    stream: str
    round: int
    digest: bytes
    sections: Mapping[str, bytes]


def snapshot_digest(hashes: Mapping[str, bytes]) -> bytes:
    """Of a snapshot whose sections have these sha256."""
    parts = [
        b"%d:%s%s" % (len(name.encode()), name.encode(), hashes[name]) for name in sorted(hashes)
    ]
    return hashlib.sha256(b"wharfinger snapshot\x00" + b"".join(parts)).digest()


async def write_snapshot(
    database: Database,
    stream: str,
    number: int,
    sections: Mapping[str, bytes],
    names: Mapping[str, Sequence[int]] | None = None,
    *,
    replayed: bool = True,
) -> bytes | None:
    """Store the state after round `number` and make it the stream's newest; returns its digest.

    `names` makes it a delta, which does not change the head. `replayed`: whether the rounds before
    it were decided again. Storing the same snapshot twice changes nothing. A round has one
    snapshot: None is returned, and nothing stored, if it has one of the other kind, or a delta
    whose writer began at another round and so holds other changes. LedgerError: there is no such
    round, or another state was stored for it.
    """
    whole, counted = names is None, names or {}
    # megabytes: others on this loop should not wait for them
    rows = await asyncio.to_thread(_packed, sections)
    digest = snapshot_digest({name: sha256 for name, sha256, _, _ in rows})
    async with database.transaction() as transaction:
        raw = transaction.raw
        found = await raw.fetchrow(_STREAM, stream)
        if found is None or number > found[1]:
            raise LedgerError(f"{stream}: there is no round {number} to make a snapshot of")
        id_ = found[0]
        fresh = await raw.fetchrow(
            "insert into snapshot (stream, round, digest, whole, replayed) "
            "values ($1, $2, $3, $4, $5) on conflict do nothing returning 1",
            id_,
            number,
            digest,
            whole,
            replayed,
        )
        if fresh is None:
            stored = await raw.fetchrow(
                "select digest, whole from snapshot where stream = $1 and round = $2", id_, number
            )
            if stored is None or (whole and stored[1] and stored[0] != digest):
                raise LedgerError(
                    f"{stream}: another snapshot of round {number} is stored: the two states differ"
                )
            return digest if (stored[0], stored[1]) == (digest, whole) else None
        await raw.copy_records_to_table(
            "snapshot_section",
            records=[(id_, number, *row, counted.get(row[0])) for row in rows],
            columns=("stream", "round", "name", "sha256", "encoding", "body", "names"),
        )
        if not whole:
            return digest
        await raw.execute(
            "delete from snapshot_section t using snapshot n where t.stream = $1 "
            "and n.stream = $1 and t.round = n.round "
            "and n.whole and n.round < (select min(round) from "
            "(select round from snapshot where stream = $1 and whole order by round desc "
            "limit $2) newest) "
            # history begins there
            "and n.round not in (select h.round from horizon h where h.stream = $1)",
            id_,
            KEPT,
        )
        # Last, because it takes the head's row lock, for which the writer would have to wait.
        await raw.execute(
            "update stream s set snapshot = $2 where s.id = $1 "
            "and not exists (select from snapshot o where o.stream = $1 and o.round > $3 "
            "and o.whole)",
            id_,
            digest,
            number,
        )
    return digest


async def latest_snapshot(
    database: Database,
    stream: str,
    at_most_round: int | None = None,
    names: Collection[str] | None = None,
) -> StoredSnapshot | None:
    """The newest whole snapshot of no later round that is still stored; of its sections only
    `names` if given.

    CorruptLedger: its bytes are not those it was made of.
    """
    async with database.reading() as raw:
        found = await raw.fetchrow(_NEWEST, stream, at_most_round, True)
        if found is None:
            return None
        id_, number, digest = found
        rows = await raw.fetch(
            "select name, sha256, encoding, case when $3::text[] is null or name = any($3) then "
            "body end "
            "from snapshot_section where stream = $1 and round = $2",
            id_,
            number,
            None if names is None else sorted(names),
        )
    if snapshot_digest({name: sha256 for name, sha256, _, _ in rows}) != digest:
        raise CorruptLedger(stream, number, 0, "snapshot: its sections are not those of its digest")
    sections: dict[str, bytes] = {}
    for name, sha256, encoding, stored in rows:
        if stored is not None:
            sections[name] = await asyncio.to_thread(
                _section, stream, number, name, sha256, encoding, stored
            )
    return StoredSnapshot(stream, number, digest, sections)


async def nearest_snapshot(
    database: Database, stream: str, at_most_round: int, names: Collection[str] | None = None
) -> StoredSnapshot | None:
    """The newest of no later round, whole or delta; of its sections only `names` if given. Each
    section is checked by its own hash only: what comes of it has to prove itself. CorruptLedger:
    its bytes are not those it was made of."""
    async with database.reading() as raw:
        found = await raw.fetchrow(_NEWEST, stream, at_most_round, False)
        if found is None:
            return None
        id_, number, digest = found
        rows = await raw.fetch(
            "select name, sha256, encoding, body from snapshot_section "
            "where stream = $1 and round = $2 and ($3::text[] is null or name = any($3))",
            id_,
            number,
            None if names is None else sorted(names),
        )
    return StoredSnapshot(
        stream, number, digest, {row[0]: _section(stream, number, *row) for row in rows}
    )


async def newest_version(
    database: Database, stream: str, at_most_round: int, section: str, name: int
) -> bytes | None:
    """The section `section` as it was when the thing whose name has the hash `name` was last saved
    in it; None: never."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select t.round, t.name, t.sha256, t.encoding, t.body from snapshot_section t "
            "join stream s on s.id = t.stream "
            "where s.name = $1 and t.round <= $2 and t.name = $3 "
            "and (t.names is null or $4 = any(t.names)) "
            "order by t.round desc limit 1",
            stream,
            at_most_round,
            section,
            name,
        )
    return None if row is None else _section(stream, *row)


async def latest_delta(database: Database, stream: str, *, replayed: bool = False) -> int:
    """The round of the newest delta; 0: there is none. `replayed`: of those whose rounds were
    decided again."""
    return await _newest(database, stream, "not whole and replayed" if replayed else "not whole")


async def replayed_to(database: Database, stream: str) -> int:
    """The round of the newest snapshot, of either kind, whose rounds were decided again; 0: there
    is none."""
    return await _newest(database, stream, "replayed")


async def _newest(database: Database, stream: str, condition: str) -> int:
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select max(n.round) from snapshot n join stream s on s.id = n.stream "
            f"where s.name = $1 and {condition}",
            stream,
        )
    return 0 if row is None or row[0] is None else int(row[0])


async def mark_replayed(database: Database, stream: str, to_round: int) -> None:
    """Note that the rounds up to `to_round` were decided again and compared."""
    async with database.transaction() as transaction:
        await transaction.raw.execute(
            "update snapshot n set replayed = true from stream s where s.name = $1 "
            "and n.stream = s.id and n.round <= $2 and not n.replayed",
            stream,
            to_round,
        )


def _packed(sections: Mapping[str, bytes]) -> list[tuple[str, bytes, int, bytes]]:
    """name, sha256, encoding and stored bytes of each."""
    return [
        (name, hashlib.sha256(sections[name]).digest(), *pack(sections[name]))
        for name in sorted(sections)
    ]


def _section(
    stream: str, number: int, name: str, sha256: bytes, encoding: int, stored: bytes
) -> bytes:
    try:
        body = unpack(encoding, stored)
    except ValueError as error:
        raise CorruptLedger(stream, number, 0, f"snapshot section {name}: {error}") from None
    if hashlib.sha256(body).digest() != sha256:
        raise CorruptLedger(
            stream, number, 0, f"snapshot section {name}: the bytes do not match their hash"
        )
    return body
