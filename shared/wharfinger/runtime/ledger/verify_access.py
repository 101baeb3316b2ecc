"""The access records against their chain: dense from 1, each hash that of its row and of the hash
before it, times in order, and the head what the last one says."""

from __future__ import annotations

from wharfinger.events.streams import ACCESS
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger.access import COLUMNS, first_hash, next_hash, record_in
from wharfinger.runtime.ledger.chain import BadRow, bad_row
from wharfinger.runtime.ledger.database import Raw
from wharfinger.runtime.ledger.verify_chains import (
    AT_ONCE,
    Link,
    RememberedRecords,
    WalkedChain,
    followed,
    reaches,
)


async def verify_access(raw: Raw, remembered: RememberedRecords) -> WalkedChain:
    head = Head(ACCESS, 0, 0, first_hash(), 0)
    try:
        async for *columns, found in raw.cursor(
            f"select {COLUMNS}, hash from access order by seq", prefetch=AT_ONCE
        ):
            record = record_in(columns)
            link = Link(record.seq, record.at, next_hash(head.hash, record), found)
            head = followed(head, link, "access", remembered)
        await _ended(raw, head)
        reaches(head, remembered)
    except BadRow as caught:
        return WalkedChain(head, caught)
    return WalkedChain(head, None)


async def _ended(raw: Raw, last: Head) -> None:
    row = await raw.fetchrow("select seq, hash, at_us from access_head")
    if row is None:
        raise bad_row(ACCESS, last.seq, 0, "access: head", "its row", "missing")
    seq, found, at = row
    expected: tuple[int, bytes, Micros] = (
        (last.seq, last.hash, last.at) if last.seq else (0, b"", 0)
    )
    for what, wanted, got in zip(
        ("access: head: seq", "access: head: hash", "access: head: time"),
        expected,
        (seq, found, at),
        strict=True,
    ):
        if wanted != got:
            raise bad_row(ACCESS, last.seq, 0, what, wanted, got)
