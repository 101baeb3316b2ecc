"""Which migration this code needs, and whether a database has it. `schema` has the tables,
`migration` makes them."""

from __future__ import annotations

from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.errors import LedgerError, LedgerUnavailable

VERSION = "0015"
"""The newest migration: what a database must be at for this code to use it."""


async def require_version(database: Database) -> None:
    """LedgerUnavailable: no connection, no ledger in this database, or one of another version."""
    try:
        async with database.reading() as raw:
            found = await raw.fetchrow("select to_regclass('alembic_version') is not null")
            exists = found is not None and bool(found[0])
            row = await raw.fetchrow("select version_num from alembic_version") if exists else None
    except LedgerError as error:
        raise LedgerUnavailable(f"{database.shown}: {error}") from error
    if row is None:
        raise LedgerUnavailable(f"{database.shown}: no ledger in this database; migrate it first")
    if row[0] != VERSION:
        raise LedgerUnavailable(
            f"{database.shown}: the ledger is at version {row[0]}, this program needs {VERSION}"
        )
