"""What a checkpoint is held against besides the chains: which plane this is, where its streams
stood, what was retired.

Reads only. Next: `wharfinger.history.verification`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from wharfinger.events.streams import INTAKE
from wharfinger.runtime.ledger.database import Database


class RetiredRange(NamedTuple):
    """That a stream's history begins behind `round`. `retirement`: the sha256 by which it names the
    checkpoint that vouches for it; `checkpoint`: its bytes, None when they are not there."""

    stream: str
    round: int
    retirement: bytes
    checkpoint: bytes | None


async def first_round(database: Database) -> bytes | None:
    """Hash of the intake's first round; None: nothing was accepted yet, or it was retired."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select r.hash from round r join stream s on s.id = r.stream where s.name = $1 "
            "and r.number = 1",
            INTAKE,
        )
    return None if row is None else row[0]


async def hashes_at(database: Database, rounds: Mapping[str, int]) -> dict[str, bytes]:
    """stream -> hash of its round of this number, where there is one."""
    async with database.reading() as raw:
        found = await raw.fetch(
            "select w.name, r.hash from unnest($1::text[], $2::bigint[]) as w(name, number) "
            "join stream s on s.name = w.name join round r on r.stream = s.id "
            "and r.number = w.number",
            list(rounds.keys()),
            list(rounds.values()),
        )
    return dict(found)


async def retirements(database: Database) -> list[RetiredRange]:
    """Of every stream that has one, in order of name."""
    async with database.reading() as raw:
        found = await raw.fetch(
            "select s.name, h.round, h.retirement, t.checkpoint from horizon h "
            "join stream s on s.id = h.stream "
            "left join retirement t on t.sha256 = h.retirement order by s.name"
        )
    return [RetiredRange(*record) for record in found]
