"""Where a replay of a stream can start: the rounds after which its whole state is stored.

A replay of a long stream starts at several of them in parallel, or at the last one before the
rounds that are wanted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.snapshots import snapshot_digest

# Outer, because the round itself may have been retired while its snapshot stays.
_WHOLE = """
select s.name, n.round, coalesce(r.first_seq - 1 + r.decisions, 0), n.digest
from snapshot n
join stream s on s.id = n.stream
left join round r on r.stream = n.stream and r.number = n.round
where s.name = any($1::text[]) and n.whole
and exists (select from snapshot_section t where t.stream = n.stream and t.round = n.round)
order by s.name, n.round
"""


@dataclass(frozen=True, slots=True)
class Start:
    """A whole snapshot: `round` and `seq` are the last that are in it, `digest` is what the state
    after them must have."""

    round: int
    seq: int
    digest: bytes


async def starts(database: Database, streams: Collection[str]) -> dict[str, list[Start]]:
    """Of each stream, in order of rounds. A stream without a snapshot has none: it can only be
    begun at its genesis."""
    found: dict[str, list[Start]] = {name: [] for name in streams}
    async with database.reading() as raw:
        for name, number, seq, digest in await raw.fetch(_WHOLE, sorted(found)):
            found[name].append(Start(number, seq, digest))
    return found


def digest_of(sections: Mapping[str, bytes]) -> bytes:
    """The digest that a whole snapshot of this state has."""
    return snapshot_digest({name: hashlib.sha256(body).digest() for name, body in sections.items()})
