"""Answers under keys that clients choose (`Idempotency-Key`), so that a request sent again is
answered again and not carried out again.

A key belongs to its actor and to one request. Who inserts its row holds it and answers; others wait
for the answer. A holder that ended without one loses the key after `HELD_US`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from wharfinger.runtime.ledger.database import Database

KEPT_US = 24 * 3600 * 1_000_000
HELD_US = 60 * 1_000_000

_NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"

# A row of before `KEPT_US`, and one of a holder that has ended, are taken over.
_CLAIM = f"""
insert into idempotency as i (actor, key, request, holder, at_us, status, media_type, body)
values ($1, $2, $3, $4, {_NOW}, 0, '', '')
on conflict (actor, key) do update set (request, holder, at_us, status, media_type, body) =
    (excluded.request, excluded.holder, excluded.at_us, 0, '', '')
where i.at_us < {_NOW} - {KEPT_US}
    or (i.status = 0 and i.request = excluded.request and i.at_us < {_NOW} - {HELD_US})
returning holder
"""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    status: int
    media_type: str
    body: bytes


Claim = Literal["held", "other", "busy"] | KeptAnswer
"""`held`: the caller is to answer. `other`: the key belongs to another request. `busy`: somebody
is answering."""


async def claim(database: Database, actor: str, key: str, request: bytes, holder: UUID) -> Claim:
    async with database.transaction() as transaction:
        raw = transaction.raw
        await raw.execute(f"delete from idempotency where at_us < {_NOW} - {KEPT_US}")
        if await raw.fetchrow(_CLAIM, actor, key, request, holder) is not None:
            return "held"
        row = await raw.fetchrow(
            "select request, status, media_type, body from idempotency "
            "where actor = $1 and key = $2",
            actor,
            key,
        )
    if row is None:
        return "busy"
    known, status, media_type, body = row
    if known != request:
        return "other"
    return KeptAnswer(status, media_type, body) if status else "busy"


async def keep(database: Database, actor: str, key: str, holder: UUID, answer: KeptAnswer) -> None:
    """Unless the key was taken over."""
    async with database.transaction() as transaction:
        await transaction.raw.execute(
            "update idempotency set status = $4, media_type = $5, body = $6 "
            "where actor = $1 and key = $2 and holder = $3",
            actor,
            key,
            holder,
            answer.status,
            answer.media_type,
            answer.body,
        )


async def release(database: Database, actor: str, key: str, holder: UUID) -> None:
    """Nothing was changed: the key may be used again."""
    async with database.transaction() as transaction:
        await transaction.raw.execute(
            "delete from idempotency where actor = $1 and key = $2 and holder = $3 and status = 0",
            actor,
            key,
            holder,
        )
