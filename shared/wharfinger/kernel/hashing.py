"""The hash chain of a stream.

hash = sha256(prev, stream, round, epoch, at, engine, profile, inputs, basis, decisions, snapshot). Every field is preceded by
its length, every list by its count, so no two rounds share an encoding. The first prev is derived from the stream's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Basis, InputRef


class HashedDecision(Protocol):
    """What of a decision is hashed: everything but `data`, of which `body` is the bytes."""

    @property
    def seq(self) -> int: ...
    @property
    def id(self) -> UUID: ...
    @property
    def type(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def cause(self) -> UUID | None: ...
    @property
    def body(self) -> bytes: ...


def genesis(stream: str) -> bytes:
    """What the first round of a stream has as its previous hash."""
    return hashlib.sha256(b"wharfinger stream\x00" + stream.encode()).digest()


def round_hash(
    prev: bytes,
    stream: str,
    number: int,
    epoch: int,
    at: Micros,
    engine: str,
    profile: str,
    inputs: Sequence[InputRef],
    basis: Basis,
    decisions: Sequence[HashedDecision],
    snapshot: bytes,
) -> bytes:
    parts: list[bytes] = [prev, stream.encode(), b"%d %d %d" % (number, epoch, at), engine.encode(), profile.encode()]
    parts.append(b"%d" % len(inputs))
    for ref in inputs:
        parts.append(ref.id.bytes)
        parts.append(ref.sha256)
    parts.append(b"%d" % len(basis))
    for place in sorted(basis):
        incarnation, offset = basis[place]
        parts.append(place.encode())
        parts.append(b"%d %d" % (incarnation, offset))
    parts.append(b"%d" % len(decisions))
    for d in decisions:
        cause = d.cause.bytes if d.cause is not None else b""
        parts += (b"%d" % d.seq, d.id.bytes, d.type.encode(), d.subject.encode(), d.outcome.encode(), cause, d.body)
    parts.append(snapshot)
    return hashlib.sha256(b"".join([b"%d:" % len(p) + p for p in parts])).digest()
