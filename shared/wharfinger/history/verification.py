"""Verifies a ledger against all evidence: its own hash chains, signed checkpoints, and the
published topic.

`runtime.ledger.verify` checks the rows. This module passes it the heads of the checkpoints: those
that people kept, and those under which old history was retired. A new checkpoint only signs heads
that were verified just before. Next: `checkpoint` (the format), `topic_check` (the topic).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from wharfinger.events.streams import INTAKE
from wharfinger.history import checkpoint as file
from wharfinger.history.checkpoint import (
    VERSION,
    Checkpoint,
    CheckpointError,
    SignedCheckpoint,
    marks,
    plane_id,
)
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import FirstBad, Ledger, VerifyResult, audit_verify
from wharfinger.runtime.ledger.attestation import RetiredRange, first_round, hashes_at, retirements
from wharfinger.runtime.ledger.incarnations import WentBack, went_back
from wharfinger.runtime.ledger.marks import MarkedRow, MarkedRuns
from wharfinger.runtime.ledger.verify import Remembered
from wharfinger.runtime.ledger.verify_marks import RememberedMarks

if TYPE_CHECKING:
    from wharfinger.history.topic_check import TopicResult


@dataclass(frozen=True, slots=True)
class Verification:
    """`checkpoints`: those the ledger was held against, the ones it was retired under among them.
    `topic`: None when it was not asked about, or when the ledger itself is broken. `lost`: heads of
    checkpoints that the ledger lost when it went back, as it says itself."""

    ledger: VerifyResult
    checkpoints: tuple[SignedCheckpoint, ...] = ()
    topic: TopicResult | None = None
    lost: int = 0

    @property
    def ok(self) -> bool:
        return self.ledger.ok and (self.topic is None or self.topic.ok)


async def verify(
    ledger: Ledger,
    stream: str = "",
    checkpoints: Sequence[SignedCheckpoint] = (),
    trusted: Ed25519PublicKey | None = None,
    topic: Backend | None = None,
    prefix: str = "",
    *,
    workers: int = 1,
    pool: Executor | None = None,
) -> Verification:
    """`trusted`: who must have signed the checkpoints under which history was retired; those given
    were read with it. `topic`: the broker to ask for what was published; `prefix` stands before its
    topics.

    CheckpointError: a checkpoint of another plane. BackendError: the broker cannot be read.
    """
    retired, broken = _retired_under(await retirements(ledger.database), trusted)
    witnesses = (*checkpoints, *{signed.name: signed for signed, _ in retired}.values())
    await _of_this_plane(ledger, checkpoints, retired)
    memories = _memories(witnesses, await went_back(ledger.database))
    result = await audit_verify(
        ledger, stream, memories.heads, workers=workers, pool=pool, marks=memories.marks
    )
    result = replace(
        result,
        first_bad=result.first_bad
        or next((b for b in broken if b.stream.startswith(stream)), None),
    )
    published = None
    if topic is not None and result.ok:
        from wharfinger.history.topic_check import check_topic  # with the broker's client

        published = await check_topic(ledger, topic, prefix)
    return Verification(result, witnesses, published, memories.lost)


async def take_checkpoint(
    ledger: Ledger, now: Micros, *, workers: int = 1, pool: Executor | None = None
) -> tuple[Verification, Checkpoint | None]:
    """Verify, and the checkpoint of the very heads that were walked; None when the history is not
    whole.

    CheckpointError: nothing was accepted yet, so there is nothing to tell this plane from another
    by.
    """
    found = await verify(ledger, workers=workers, pool=pool)
    plane = await _plane(ledger, found.checkpoints)
    if not found.ok:
        return found, None
    if plane is None:
        raise CheckpointError("checkpoint: nothing was accepted yet, there is no history to sign")
    walked = found.ledger.walked
    snapshots = [
        (one.head.stream, number, digest) for one in walked for number, digest in one.snapshots
    ]
    return found, Checkpoint(VERSION, plane, now, marks([one.head for one in walked], snapshots))


async def plane_of(ledger: Ledger) -> str | None:
    """None: nothing was accepted yet."""
    retired, _ = _retired_under(await retirements(ledger.database), None)
    return await _plane(ledger, [signed for signed, _ in retired])


async def _plane(ledger: Ledger, retired_under: Sequence[SignedCheckpoint]) -> str | None:
    """By the intake's first round or, where that was retired, by what the checkpoint said that it
    was retired under."""
    first = await first_round(ledger.database)
    if first is not None:
        return plane_id(first)
    return retired_under[-1].checkpoint.plane if retired_under else None


@dataclass(frozen=True, slots=True)
class _Memories:
    """`lost`: heads that are left out, because the ledger went back behind them."""

    heads: tuple[Remembered, ...]
    marks: RememberedMarks
    lost: int


def _memories(witnesses: Sequence[SignedCheckpoint], history: Sequence[WentBack]) -> _Memories:
    """A ledger that went back says behind which rounds: what a checkpoint of before knows of later
    ones is lost, and no tampering. `verify` tells when it went back."""
    heads: list[Remembered] = []
    marks = RememberedMarks()
    lost = 0
    for signed in sorted(witnesses, key=lambda one: one.checkpoint.made_at_us):
        made = signed.checkpoint
        later = [one for one in history if one.at >= made.made_at_us]
        for mark in made.streams:
            if any(mark.seq > one.data.kept.get(mark.stream, 0) for one in later):
                lost += 1
                continue
            snapshots = tuple((one.round, bytes.fromhex(one.digest)) for one in mark.snapshots)
            heads.append(Remembered(mark.head(), snapshots, signed.name))
        if not later:
            for row in made.rows:
                marks.row(MarkedRow(row.table, row.key, row.number, row.digest), signed.name)
            for runs in made.feed:
                digest = bytes.fromhex(runs.digest)
                marks.runs.append((MarkedRuns(runs.first, runs.last, digest), signed.name))
    return _Memories(tuple(heads), marks, lost)


def _retired_under(
    found: Sequence[RetiredRange], trusted: Ed25519PublicKey | None
) -> tuple[list[tuple[SignedCheckpoint, str]], list[FirstBad]]:
    """The checkpoints that prove where retired streams now begin, and the retired streams without a
    valid one."""
    vouched: list[tuple[SignedCheckpoint, str]] = []
    broken: list[FirstBad] = []
    for one in found:
        name = f"retirement {one.retirement.hex()[:12]}"
        expected = "a signed checkpoint of a later round"
        if one.checkpoint is None or sha256(one.checkpoint).digest() != one.retirement:
            broken.append(
                FirstBad(
                    one.stream, one.round, 0, "horizon", expected, f"{name}, which is not there"
                )
            )
            continue
        try:
            signed = file.read(name, one.checkpoint, trusted)
        except CheckpointError as error:
            broken.append(FirstBad(one.stream, one.round, 0, "horizon", expected, str(error)))
            continue
        head = signed.checkpoint.heads().get(one.stream)
        if head is None or head.round < one.round:
            broken.append(
                FirstBad(one.stream, one.round, 0, "horizon", expected, f"{name} does not reach it")
            )
            continue
        vouched.append((signed, one.stream))
    return vouched, broken


async def _of_this_plane(
    ledger: Ledger,
    given: Sequence[SignedCheckpoint],
    retired: Sequence[tuple[SignedCheckpoint, str]],
) -> None:
    """Refuses checkpoints of other planes: they share no hash with this ledger. If this ledger was
    rewritten, some hashes mostly still agree, and the verification then reports the first
    difference. If none agrees, the two cases cannot be distinguished, and the message says so."""
    ours = await _plane(ledger, [signed for signed, stream in retired if stream == INTAKE])
    for signed in given:
        if signed.checkpoint.plane == ours:
            continue
        heads = {stream: head for stream, head in signed.checkpoint.heads().items() if head.round}
        here = await hashes_at(
            ledger.database, {stream: head.round for stream, head in heads.items()}
        )
        if not any(here.get(stream) == head.hash for stream, head in heads.items()):
            raise CheckpointError(
                f"{signed.name}: of plane {signed.checkpoint.plane[:12]}, "
                f"this ledger is of plane {(ours or 'none')[:12]}: "
                "another plane, or one that was rewritten from its first round on"
            )
