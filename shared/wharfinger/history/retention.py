"""Retires the oldest history: checks the preconditions, and makes the snapshots that replace it.

- A history without its beginning can only be verified from a signed checkpoint. So the checkpoint
  must be of this history, and of later rounds than those that are retired.
- A state that retired rounds led to can only be loaded from a snapshot. So every stream that
  decides gets a full snapshot of exactly its last retired round, folded from the record.
- Rounds that the publisher has not published yet are kept.

Next: `runtime.ledger.retention` deletes the rows, `archive` keeps a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wharfinger.history.checkpoint import SignedCheckpoint
from wharfinger.history.deciders import decider_of
from wharfinger.history.points import HistoryPoint
from wharfinger.history.states import state_at
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.partitions import shown_day
from wharfinger.runtime.ledger.retention import (
    Cut,
    RetirementResult,
    behind_publisher,
    cut,
    hash_at,
    retire,
)


class RetentionError(LedgerError):
    """History that must not be retired: one line that says what is missing. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Retirement:
    """`done` is None when no whole span of days lies before the time that was asked for."""

    done: RetirementResult | None
    signed_by: str


async def retire_before(
    ledger: Ledger, before: Micros, signed: SignedCheckpoint, body: bytes, now: Micros
) -> Retirement:
    """Take away all whole spans of days before a time. `body`: the bytes of the checkpoint's file,
    kept with the horizon.

    RetentionError: the checkpoint does not vouch for it, or somebody still needs it. Doing it again
    does nothing twice.
    """
    if before > now:
        raise RetentionError("retire: expected a time in the past")
    found = await cut(ledger.database, before)
    if found is None:
        return Retirement(None, signed.fingerprint)
    await _vouched_for(ledger, found, signed)
    if stream := await behind_publisher(ledger.database, found):
        raise RetentionError(
            f"{stream}: not everything before {shown_day(found.before)} has been published yet"
        )
    snapshots = {
        name: await _state_after(ledger, head)
        for name, head in found.moved.items()
        if _decides(name)
    }
    done = await retire(ledger.database, found, snapshots, body, now)
    return Retirement(done, signed.fingerprint)


async def _vouched_for(ledger: Ledger, found: Cut, signed: SignedCheckpoint) -> None:
    """The checkpoint stands at or behind the cut in every stream, and at a round that this ledger
    has, with its hash."""
    marks = signed.checkpoint.heads()
    for name, head in found.moved.items():
        mark = marks.get(name)
        if mark is None or mark.round < head.round:
            raise RetentionError(
                f"{signed.name}: reaches round {mark.round if mark else 0} of {name}, "
                f"and {head.round} is the last one "
                f"before {shown_day(found.before)}: take a newer checkpoint"
            )
        if await hash_at(ledger.database, name, mark.round) != mark.hash:
            raise RetentionError(
                f"{signed.name}: {name} has another round {mark.round} here: "
                "a checkpoint of another history"
            )


async def _state_after(ledger: Ledger, head: Head) -> Mapping[str, bytes]:
    """What a restart would have as the state after that round: recorded decisions folded, nothing
    decided."""
    stream = await state_at(ledger, head.stream, HistoryPoint("", head.stream, head.round))
    return stream.decider.dump(stream.state)


def _decides(stream: str) -> bool:
    return decider_of(stream) is not None
