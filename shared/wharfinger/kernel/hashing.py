"""The hash chain of a stream.

hash = sha256(prev, stream, round, epoch, at, engine, profile, inputs, basis, decisions, snapshot).
Every field is preceded by its length, every list by its count, so no two rounds share an encoding.
The first prev is derived from the stream's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.round import Basis, Head, InputRef, Round


class HashedDecision(Protocol):
    """The hashed fields of a decision: all but `data`, which is hashed as the bytes in `body`."""

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


def empty_head(stream: str, epoch: int = 0) -> Head:
    """Where a stream without a round stands."""
    return Head(stream, 0, 0, genesis(stream), epoch)


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
    parts: list[bytes] = [
        prev,
        stream.encode(),
        b"%d %d %d" % (number, epoch, at),
        engine.encode(),
        profile.encode(),
    ]
    parts.append(b"%d" % len(inputs))
    for ref in inputs:
        parts += (ref.id.bytes, ref.sha256)
    parts.append(b"%d" % len(basis))
    for place in sorted(basis):
        incarnation, offset = basis[place]
        parts += (place.encode(), b"%d %d" % (incarnation, offset))
    parts.append(b"%d" % len(decisions))
    framed = [*map(_framed, parts), *_framed_decisions(decisions), _framed(snapshot)]
    return hashlib.sha256(b"".join(framed)).digest()


def hash_of(round_: Round, inputs: Sequence[InputRef] | None = None) -> bytes:
    """The hash of what a round holds; with `inputs`, as if it had taken in these."""
    return round_hash(
        round_.prev_hash,
        round_.stream,
        round_.number,
        round_.epoch,
        round_.at,
        round_.engine,
        round_.profile,
        round_.inputs if inputs is None else inputs,
        round_.basis,
        round_.decisions,
        round_.snapshot,
    )


def following(
    head: Head,
    at: Micros,
    engine: str,
    profile: str,
    inputs: Sequence[InputRef] = (),
    decisions: Sequence[Decision] = (),
    basis: Basis | None = None,
    snapshot: bytes | None = None,
) -> Round:
    """Returns the round after `head`, with its hash. `snapshot`: None: that of the head."""
    number, basis = head.round + 1, basis or {}
    snapshot = head.snapshot if snapshot is None else snapshot
    digest = round_hash(
        head.hash,
        head.stream,
        number,
        head.epoch,
        at,
        engine,
        profile,
        inputs,
        basis,
        decisions,
        snapshot,
    )
    return Round(
        head.stream,
        number,
        head.epoch,
        at,
        engine,
        profile,
        tuple(inputs),
        basis,
        tuple(decisions),
        snapshot,
        head.hash,
        digest,
        head.seq + 1,
    )


def _framed(part: bytes) -> bytes:
    return b"%d:%b" % (len(part), part)


def _framed_decisions(decisions: Sequence[HashedDecision]) -> list[bytes]:
    """Returns the hashed bytes of each decision: seq, id, type, subject, outcome, cause (empty:
    none) and body, each prefixed by its length.

    Each decision is formatted in one operation rather than one per field, for speed.
    """
    words: dict[str, bytes] = {}  # types and outcomes: a few that come again and again
    framed: list[bytes] = []
    for d in decisions:
        if d.type not in words:
            words[d.type] = _framed(d.type.encode())
        if d.outcome not in words:
            words[d.outcome] = _framed(d.outcome.encode())
        seq, subject, body = b"%d" % d.seq, d.subject.encode(), d.body
        cause = b"" if d.cause is None else d.cause.bytes
        framed.append(
            b"%d:%b16:%b%b%d:%b%b%d:%b%d:%b"
            % (
                len(seq),
                seq,
                d.id.bytes,
                words[d.type],
                len(subject),
                subject,
                words[d.outcome],
                len(cause),
                cause,
                len(body),
                body,
            )
        )
    return framed
