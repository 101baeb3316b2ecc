"""How Alembic reaches the database: by the connection the ledger hands in, inside its transaction
and under its lock.

There is no other way in on purpose: a migration run by hand would run without the lock.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.sql.schema import SchemaItem

from wharfinger.runtime.ledger.schema import metadata


def ours(
    item: SchemaItem, name: str | None, kind: str, reflected: bool, compare_to: SchemaItem | None
) -> bool:
    """Tables of others in the same database are none of our business: comparing must not propose to
    drop them."""
    return not (kind == "table" and reflected and compare_to is None)


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_object=ours,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
