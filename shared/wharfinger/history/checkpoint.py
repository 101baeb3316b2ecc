"""A checkpoint: the signed heads of all streams at one moment. Keep it where the owner of the
database cannot change it.

The hash chain reveals a changed round, unless all rounds after it were rewritten, too. An owner of
the database who knows this code can rewrite them. Only a comparison with a head that was stored
elsewhere reveals that, and a checkpoint stores such heads. The hash of the first round of the
intake binds it to its plane: no two planes share that hash.

The file is one line of JSON: `checkpoint` (canonical), `public_key` and `signature`. The signature
covers the bytes of `checkpoint` as they are in the file, after a context that no other use of the
key shares. Version 1 is what people make: every stream, verified before. Version 2 is what a plane
ships by itself: what has changed since the one before, and rows that no chain covers. Pure: other
modules read files and clocks.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from wharfinger.domain.value import Value, canonical, json_decoder
from wharfinger.events.streams import INTAKE
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.hashing import genesis
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger.errors import LedgerError

VERSION = 1
SHIPPED_VERSION = 2
VERSIONS = (VERSION, SHIPPED_VERSION)

_CONTEXT = b"wharfinger checkpoint\x00"

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0)]


class CheckpointError(LedgerError):
    """A key or checkpoint that cannot be used; one line that names the file and what is wrong with
    it."""


class SnapshotMark(Value, frozen=True, forbid_unknown_fields=True):
    """A whole snapshot that was stored: of the state after `round`."""

    round: Count
    digest: Sha256


class StreamMark(Value, frozen=True, forbid_unknown_fields=True):
    """Where one stream stood. `hash`: of its last round, which covers all before it. `snapshots`:
    in order of round."""

    stream: str
    round: Count
    seq: Count
    hash: Sha256
    at_us: int
    snapshots: tuple[SnapshotMark, ...] = ()

    def head(self) -> Head:
        """As the ledger's own heads are compared; a checkpoint knows no epoch."""
        return Head(self.stream, self.round, self.seq, bytes.fromhex(self.hash), 0, self.at_us)


class RowMark(Value, frozen=True, forbid_unknown_fields=True):
    """A row outside of the chains. `number` never falls; while it is the same, so is `digest`
    (empty: nothing else is fixed)."""

    table: str
    key: str
    number: int
    digest: str = ""


class FeedMark(Value, frozen=True, forbid_unknown_fields=True):
    """The runs of the feed that give the positions `first` to `last`, and a hash over them."""

    first: Count
    last: Count
    digest: Sha256


class Checkpoint(Value, frozen=True, forbid_unknown_fields=True):
    """`plane`: see `plane_id`. `made_at_us`: by the clock of who signed. `streams`: in order of
    name; all there were, or in version 2 those that have changed. `rows`, `feed`: version 2."""

    version: int
    plane: Sha256
    made_at_us: Micros
    streams: tuple[StreamMark, ...]
    rows: tuple[RowMark, ...] = ()
    feed: tuple[FeedMark, ...] = ()

    def heads(self) -> dict[str, Head]:
        return {mark.stream: mark.head() for mark in self.streams}


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """One whose signature is right. `name`: of its file, for people. `fingerprint`: of the key that
    signed."""

    name: str
    checkpoint: Checkpoint
    fingerprint: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint: msgspec.Raw
    public_key: bytes
    signature: bytes


class _Version(msgspec.Struct, frozen=True):
    version: int


_file_decoder = json_decoder(_File)
_version_decoder = json_decoder(_Version)
_checkpoint_decoder = json_decoder(Checkpoint)


def plane_id(first_round: bytes) -> str:
    """Which plane a ledger belongs to, by the hash of the intake's first round."""
    return hashlib.sha256(b"wharfinger plane\x00" + genesis(INTAKE) + first_round).hexdigest()


# --- signing -------------------------------------------------------------------------------------


def signed(checkpoint: Checkpoint, key: Ed25519PrivateKey) -> bytes:
    """The file."""
    body = canonical(checkpoint)
    return (
        canonical(_File(msgspec.Raw(body), raw_public(key.public_key()), key.sign(_CONTEXT + body)))
        + b"\n"
    )


def marks(
    heads: Iterable[Head], snapshots: Iterable[tuple[str, int, bytes]]
) -> tuple[StreamMark, ...]:
    """`snapshots`: (stream, round, digest) of the whole ones."""
    of_stream: dict[str, list[SnapshotMark]] = {}
    for stream, number, digest in sorted(snapshots):
        of_stream.setdefault(stream, []).append(SnapshotMark(number, digest.hex()))
    return tuple(
        StreamMark(h.stream, h.round, h.seq, h.hash.hex(), h.at, tuple(of_stream.get(h.stream, ())))
        for h in sorted(heads, key=lambda head: head.stream)
    )


# --- reading -------------------------------------------------------------------------------------


def read(name: str, body: bytes, trusted: Ed25519PublicKey | None = None) -> SignedCheckpoint:
    """The checkpoint in a file's bytes. `trusted`: the key that must have signed it. None: the key
    in the file, whose fingerprint a person then has to compare. CheckpointError: one line."""
    try:
        file = _file_decoder.decode(body)
        version = _version_decoder.decode(file.checkpoint).version
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{name}: expected a checkpoint: {error}") from None
    if version not in VERSIONS:
        raise CheckpointError(
            f"{name}: a checkpoint of version {version}; this program reads versions 1 and 2"
        )
    signer = _public_key(name, file.public_key)
    if trusted is not None and raw_public(trusted) != file.public_key:
        raise CheckpointError(
            f"{name}: signed by {fingerprint(signer)}, and not by the key that was asked for, "
            f"{fingerprint(trusted)}"
        )
    try:
        signer.verify(file.signature, _CONTEXT + bytes(file.checkpoint))
    except InvalidSignature:
        raise CheckpointError(
            f"{name}: the signature does not fit: the file was changed after it was signed"
        ) from None
    try:
        checkpoint = _checkpoint_decoder.decode(file.checkpoint)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{name}: expected a checkpoint of version {version}: {error}"
        ) from None
    _one_mark_each(name, checkpoint.streams)
    return SignedCheckpoint(name, checkpoint, fingerprint(signer))


def _one_mark_each(name: str, streams: Sequence[StreamMark]) -> None:
    names = [mark.stream for mark in streams]
    if names != sorted(set(names)):
        raise CheckpointError(f"{name}: expected every stream once, in order of name")


def _public_key(name: str, raw: bytes) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError as error:
        raise CheckpointError(f"{name}: public key: {error}") from None


# --- keys ----------------------------------------------------------------------------------------


def new_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def private_pem(key: Ed25519PrivateKey) -> bytes:
    """PKCS 8, not encrypted: what protects it is who may read the file."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_key(name: str, pem: bytes) -> Ed25519PrivateKey:
    """CheckpointError: not an Ed25519 private key in PEM, or one behind a password."""
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, UnsupportedAlgorithm):
        raise CheckpointError(
            f"{name}: expected an Ed25519 private key in PEM, as `audit key` makes it"
        ) from None
    except TypeError:
        raise CheckpointError(f"{name}: expected a private key without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise CheckpointError(f"{name}: expected an Ed25519 private key, got another kind")
    return key


def public_key(name: str, pem: bytes) -> Ed25519PublicKey:
    """CheckpointError: not an Ed25519 public key in PEM."""
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise CheckpointError(
            f"{name}: expected an Ed25519 public key in PEM, as `audit key` makes it"
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise CheckpointError(f"{name}: expected an Ed25519 public key, got another kind")
    return key


def raw_public(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def fingerprint(key: Ed25519PublicKey) -> str:
    """As ssh shows keys: short enough to be read aloud."""
    digest = hashlib.sha256(raw_public(key)).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"
