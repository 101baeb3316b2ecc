"""The row records against their chain, and the rows they are about against the records: each row
has the digest of its last record, and none is missing or without one."""

from __future__ import annotations

from uuid import UUID

from wharfinger.events.streams import ROWS
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger.chain import BadRow, bad_row
from wharfinger.runtime.ledger.database import Raw
from wharfinger.runtime.ledger.row_records import (
    COLUMNS,
    DIGESTS,
    RowRecord,
    next_hash,
    rows_with_digests,
)
from wharfinger.runtime.ledger.verify_chains import (
    AT_ONCE,
    Link,
    RememberedRecords,
    WalkedChain,
    followed,
    reaches,
)


async def verify_rows(raw: Raw, remembered: RememberedRecords) -> WalkedChain:
    """Needs memory for one digest a row."""
    head = Head(ROWS, 0, 0, b"", 0)
    rows: dict[str, dict[UUID, RowRecord]] = {table: {} for table in DIGESTS}
    try:
        async for *columns, found in raw.cursor(
            f"select {COLUMNS} from row_record order by seq", prefetch=AT_ONCE
        ):
            record = RowRecord(*columns)
            link = Link(record.seq, record.at, next_hash(head.hash, record), found)
            head = followed(head, link, "row record", remembered)
            if record.table not in rows:
                raise bad_row(ROWS, head.seq, 0, "row record: table", ", ".join(rows), record.table)
            rows[record.table][record.row] = record
        reaches(head, remembered)
        for table, records in rows.items():
            await _table(raw, table, records)
    except BadRow as caught:
        return WalkedChain(head, caught)
    return WalkedChain(head, None)


async def _table(raw: Raw, table: str, records: dict[UUID, RowRecord]) -> None:
    """Takes the records of the rows that are there out of `records`."""
    async for row, digest in raw.cursor(rows_with_digests(table), prefetch=AT_ONCE):
        record = records.pop(row, None)
        if record is None or not record.digest:
            seq = 0 if record is None else record.seq
            raise bad_row(ROWS, seq, 0, table, f"no {table} {row}", "one without a record")
        if record.digest != digest:
            raise bad_row(
                ROWS, record.seq, 0, table, f"{row} with sha256 {record.digest.hex()}", digest
            )
    for row, record in records.items():
        if record.digest:
            raise bad_row(ROWS, record.seq, 0, table, f"{table} {row}", "missing")
