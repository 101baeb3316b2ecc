"""What a decision and an input cost on disk, with compression as it is and as if there were none.

Counted are the tables and indexes as they lie there: with each decision its share of the rounds,
with each input its body and the key that keeps it from being taken in twice. Snapshots are left
out: they are thrown away as new ones are made.
"""

# mypy: allow-untyped-calls
# (the driver ships no types)

from __future__ import annotations

from dataclasses import dataclass

import asyncpg

from wharfinger.runtime.backends import plain_database_url
from wharfinger.runtime.ledger.bodies import unpack


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes. `decision` and `input`: each with all that comes with it; `..._plain`: had nothing
    been compressed."""

    decisions: int
    inputs: int
    rounds: int
    decision: float
    decision_plain: float
    input: float
    input_plain: float
    bodies: int
    bodies_plain: int

    @property
    def saved(self) -> float:
        """Of the bodies, the share that compression takes away."""
        return 1 - self.bodies / self.bodies_plain if self.bodies_plain else 0.0


async def growth(database_url: str) -> Growth:
    connection = await asyncpg.connect(plain_database_url(database_url))
    try:
        size = {
            table: await _size(connection, table)
            for table in ("round", "input", "event", "decision", "taken")
        }
        rows = {table: await connection.fetchval(f"select count(*) from {table}") for table in size}
        decided, decided_plain = await _bodies(connection, "decision")
        told, told_plain = await _bodies(connection, "event")
    finally:
        await connection.close()
    of_decisions = size["decision"] + size["round"]
    of_inputs = size["input"] + size["event"] + size["taken"]
    return Growth(
        rows["decision"],
        rows["input"],
        rows["round"],
        of_decisions / rows["decision"],
        (of_decisions + decided_plain - decided) / rows["decision"],
        of_inputs / rows["input"],
        (of_inputs + told_plain - told) / rows["input"],
        decided + told,
        decided_plain + told_plain,
    )


async def _size(connection: asyncpg.Connection, table: str) -> int:
    """With indexes and what is stored out of line, of all partitions; an index that was just filled
    has air in it, as always."""
    found = await connection.fetchval(
        "select sum(pg_total_relation_size(relid))::bigint from pg_partition_tree($1::regclass) "
        "where isleaf",
        table,
    )
    return int(
        found
        if found is not None
        else await connection.fetchval("select pg_total_relation_size($1::regclass)", table)
    )


async def _bodies(connection: asyncpg.Connection, table: str) -> tuple[int, int]:
    """(stored, plain) bytes of all bodies."""
    stored = plain = 0
    async with connection.transaction():
        async for encoding, body in connection.cursor(
            f"select encoding, body from {table}", prefetch=2000
        ):
            stored += len(body)
            plain += len(unpack(encoding, body))
    return stored, plain
