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
        parts += (ref.id.bytes, ref.sha256)
    parts.append(b"%d" % len(basis))
    for place in sorted(basis):
        incarnation, offset = basis[place]
        parts += (place.encode(), b"%d %d" % (incarnation, offset))
    parts.append(b"%d" % len(decisions))
    framed = [*map(_framed, parts), *_framed_decisions(decisions), _framed(snapshot)]
    return hashlib.sha256(b"".join(framed)).digest()


def _framed(part: bytes) -> bytes:
    return b"%d:%b" % (len(part), part)


def _framed_decisions(decisions: Sequence[HashedDecision]) -> list[bytes]:
    """seq, id, type, subject, outcome, cause (empty: none) and body of each, every field framed.

    One formatting a decision instead of one a field, because this is done for every decision there is.
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
                len(seq), seq, d.id.bytes, words[d.type], len(subject), subject, words[d.outcome], len(cause), cause,
                len(body), body,
            )
        )  # fmt: skip
    return framed
