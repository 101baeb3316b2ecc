"""Plans that were made, kept until somebody wants them carried out. They belong to no stream:
nothing follows from them."""

from __future__ import annotations

from uuid import UUID

from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.retries import retried


async def save(
    database: Database, id: UUID, made_at_us: int, body: bytes, made_by: str = ""
) -> None:
    """The same id twice is one plan."""

    async def write() -> None:
        async with database.reading() as raw:  # one statement, which commits by itself
            await raw.execute(
                "insert into plan (id, made_at_us, body, made_by) values ($1, $2, $3, $4) "
                "on conflict do nothing",
                id,
                made_at_us,
                body,
                made_by,
            )

    await retried(write)


async def load(database: Database, id: UUID) -> bytes | None:
    async with database.reading() as raw:
        row = await raw.fetchrow("select body from plan where id = $1", id)
    return None if row is None else bytes(row[0])


async def ids_like(database: Database, prefix: str, limit: int) -> list[UUID]:
    """Of plans whose id, as text, begins with `prefix`; the newest first."""
    async with database.reading() as raw:
        rows = await raw.fetch(
            "select id from plan where starts_with(id::text, $1) order by made_at_us desc limit $2",
            prefix,
            limit,
        )
    return [row[0] for row in rows]


async def maker(database: Database, id: UUID) -> str:
    """The actor for whom the plan was made over the HTTP API; empty: on a command line."""
    async with database.reading() as raw:
        row = await raw.fetchrow("select made_by from plan where id = $1", id)
    return "" if row is None else str(row[0])
