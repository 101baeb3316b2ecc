"""The access records against their chain: dense from 1, each hash that of its row and of the hash
before it, times in order, and the head what the last one says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from wharfinger.events.streams import ACCESS
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger.access import COLUMNS, first_hash, next_hash, record_in
from wharfinger.runtime.ledger.chain import BadRow, bad_row
from wharfinger.runtime.ledger.database import Raw

_AT_ONCE = 2000


class WalkedAccess(NamedTuple):
    """`head`: round and seq are both the seq of the last record; 0: there is none. `bad`: the first
    row that is wrong."""

    head: Head
    bad: BadRow | None


async def verify_access(raw: Raw, remembered: Mapping[int, tuple[bytes, str]]) -> WalkedAccess:
    """`remembered`: seq -> the hash that a checkpoint has for it, and the checkpoint's name."""
    head = Head(ACCESS, 0, 0, first_hash(), 0)
    try:
        async for row in raw.cursor(
            f"select {COLUMNS}, hash from access order by seq", prefetch=_AT_ONCE
        ):
            head = _next(head, list(row), remembered)
        await _ended(raw, head)
        for seq, (expected, by) in sorted(remembered.items()):
            if seq > head.seq:
                raise bad_row(
                    ACCESS,
                    seq,
                    0,
                    "checkpoint: hash",
                    f"{expected.hex()} ({by})",
                    f"missing: the records end at {head.seq}",
                )
    except BadRow as caught:
        return WalkedAccess(head, caught)
    return WalkedAccess(head, None)


def _next(head: Head, row: list[object], remembered: Mapping[int, tuple[bytes, str]]) -> Head:
    *columns, found = row
    record = record_in(columns)
    seq = head.seq + 1
    if record.seq != seq:
        raise bad_row(ACCESS, seq, 0, "access: seq", seq, record.seq)
    if record.at < head.at:
        raise bad_row(ACCESS, seq, 0, "access: time", f"at least {head.at}", record.at)
    expected = next_hash(head.hash, record)
    if found != expected:
        raise bad_row(ACCESS, seq, 0, "access: hash", expected, found)
    if seq in remembered and remembered[seq][0] != expected:
        kept, by = remembered[seq]
        raise bad_row(ACCESS, seq, 0, "checkpoint: hash", f"{kept.hex()} ({by})", expected)
    return Head(ACCESS, seq, seq, expected, 0, record.at)


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
