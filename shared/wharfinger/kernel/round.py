"""The round: the unit of work of a stream, and all that is needed to take its decisions again."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import msgspec

from wharfinger.kernel.decider import Decision, Micros

Basis = dict[str, tuple[int, int]]
"""`topic/partition` -> (incarnation of the topic, next offset to read)."""


class InputRef(msgspec.Struct, frozen=True):
    """Which event was taken in: its id and the sha256 of its body."""

    id: UUID
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """Where a stream stands: number of the last round, seq of the last decision, hash of the last round, writer's epoch,
    time of the last round, and the digest of the last snapshot (empty: none yet)."""

    stream: str
    round: int
    seq: int
    hash: bytes
    epoch: int
    at: Micros = 0
    snapshot: bytes = b""


@dataclass(frozen=True, slots=True)
class Round:
    """`first_seq - 1` is the head's seq before; decisions are dense from there. `hash` covers every field and `prev_hash`."""

    stream: str
    number: int
    epoch: int
    at: Micros
    engine: str
    profile: str
    inputs: tuple[InputRef, ...]
    basis: Basis
    decisions: tuple[Decision, ...]
    snapshot: bytes
    prev_hash: bytes
    hash: bytes
    first_seq: int

    def head(self) -> Head:
        """The stream's head once this round is committed."""
        return Head(
            self.stream,
            self.number,
            self.first_seq - 1 + len(self.decisions),
            self.hash,
            self.epoch,
            self.at,
            self.snapshot,
        )
