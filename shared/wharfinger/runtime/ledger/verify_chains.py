"""What the chains beside the streams (`events.streams.CHAINS`) have in common: records dense from
1, times in order, each hash that of its record and of the hash before it, and all as checkpoints
remember it.

Next: `verify_access`, `verify_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger.chain import BadRow, bad_row

AT_ONCE = 2000

RememberedRecords = Mapping[int, tuple[bytes, str]]
"""seq -> the hash that a checkpoint has for it, and the checkpoint's name."""


class WalkedChain(NamedTuple):
    """`head`: round and seq are both the seq of the last record; 0: there is none. `bad`: the first
    row that is wrong."""

    head: Head
    bad: BadRow | None


class Link(NamedTuple):
    """Of a record: its place, its time, the hash that it should have and the one that it has."""

    seq: int
    at: Micros
    expected: bytes
    found: bytes


def followed(head: Head, link: Link, what: str, remembered: RememberedRecords) -> Head:
    """The head behind the record. `what`: the record, as a finding names it. BadRow."""
    chain, seq = head.stream, head.seq + 1
    if link.seq != seq:
        raise bad_row(chain, seq, 0, f"{what}: seq", seq, link.seq)
    if link.at < head.at:
        raise bad_row(chain, seq, 0, f"{what}: time", f"at least {head.at}", link.at)
    if link.found != link.expected:
        raise bad_row(chain, seq, 0, f"{what}: hash", link.expected, link.found)
    if seq in remembered and remembered[seq][0] != link.expected:
        kept, by = remembered[seq]
        raise bad_row(chain, seq, 0, "checkpoint: hash", f"{kept.hex()} ({by})", link.expected)
    return Head(chain, seq, seq, link.expected, 0, link.at)


def reaches(head: Head, remembered: RememberedRecords) -> None:
    """BadRow: a checkpoint remembers a record behind the last one."""
    for seq, (expected, by) in sorted(remembered.items()):
        if seq > head.seq:
            raise bad_row(
                head.stream,
                seq,
                0,
                "checkpoint: hash",
                f"{expected.hex()} ({by})",
                f"missing: the records end at {head.seq}",
            )
