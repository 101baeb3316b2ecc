"""The round: one transaction of a stream, with everything needed to reproduce its decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from wharfinger import __version__
from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Decision, Micros

ENGINE = f"wharfinger/{__version__}"
"""Which version decides: recorded in each round."""

Basis = dict[str, tuple[int, int]]
"""`topic/partition` -> (incarnation of the topic, next offset to read)."""


class InputRef(msgspec.Struct, frozen=True):
    """Which event was taken in: its id and the sha256 of its body."""

    id: UUID
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """Where a stream stands: number of the last round, seq of the last decision, hash of the last
    round, writer's epoch, time of the last round, and the digest of the last snapshot (empty: none
    yet)."""

    stream: str
    round: int
    seq: int
    hash: bytes
    epoch: int
    at: Micros = 0
    snapshot: bytes = b""


@dataclass(frozen=True, slots=True)
class Round:
    """One committed round of a stream: inputs, decisions, and what is needed to repeat it.
    Decisions are numbered densely from `first_seq`, one above the head's seq before. `hash` covers
    every field and `prev_hash`."""

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


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """A round as the ledger holds it, with the events its inputs refer to, decoded."""

    round: Round
    events: Sequence[Event[Value]]
