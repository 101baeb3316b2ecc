"""A part of the ledger as one file, written and read as a stream: the format, and what holds it
together.

    wharfinger ledger 1\\n  the magic, and the version of the format
    one zstd frame         records: a kind (one letter), a length (four bytes, big endian) and
                           so many bytes
    32 bytes               the sha256 of everything before

The records come in this order: `H` the header (JSON); `K` tie values, only where names were
replaced; then for each stream `R` where its range begins (JSON), `S` a section of its state there,
`B` a body that several streams took in, `D` a round; and last `E`, where every stream ends (JSON).
`docs/export.md` says it field by field, for programs that are not ours.

A reader trusts nothing: the checksum is asked before the first record is read, every body is held
against its hash, every round against the one before. It holds one round at a time in memory; bodies
that several streams share lie in a temporary file meanwhile. The same range gives the same bytes:
nothing of the moment of writing goes into a file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Final, Self, TypeVar, cast
from uuid import UUID

import msgspec
import zstandard

from wharfinger.domain.value import Value, json_decoder, reading_types
from wharfinger.engine.nodes.columns import Ties
from wharfinger.events.codec import UndecodableError, decode
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.hashing import hash_of
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Basis, Head, InputRef, Round
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.rounds import Unread

_T = TypeVar("_T")

MAGIC: Final = b"wharfinger ledger "
VERSION: Final = 1
CHECKSUM_BYTES: Final = 32
LEVEL: Final = 6
"""Of zstd: beyond it a ledger gets hardly smaller, and much slower."""

UNPACKED_RATIO_MAX = 1000
UNPACKED_BYTES_FREE = 64 << 20
"""How much a file may unpack to: so many times its size, and so much in any case. Ledgers have
ratios below 50, since hashes and ids do not get smaller; 130 KB of zstd may hold 4 GiB."""

_PREFIX_BYTES = 5
_CHUNK = 1 << 20
_VERSION_DIGITS_MAX = 6
_UNREAD = Unread()

HEADER, TIES, RANGE, SECTION, BODY, ROUND, END = b"H", b"K", b"R", b"S", b"B", b"D", b"E"


class FileError(LedgerError):
    """The file cannot be used, or not be written: one line that names it and says why."""


class StreamRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rounds of a stream are in the file, and how much that is. Times are microseconds since
    the epoch."""

    stream: str
    first: int
    last: int
    first_at: int
    last_at: int
    inputs: int
    decisions: int
    engines: tuple[str, ...]
    profiles: tuple[str, ...]

    @property
    def rounds(self) -> int:
        return self.last - self.first + 1


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`made_by`: the engine that wrote the file. `plane`: which plane it is from (hexadecimal;
    empty: one without an intake). `redacted`: names were replaced, and with them everything derived
    from names: `note` says what. `schemas`: every event type and version that the writer knew."""

    made_by: str
    plane: str
    redacted: bool
    note: str
    schemas: tuple[str, ...]
    streams: tuple[StreamRange, ...]


class Ending(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a stream ends: its last round, seq and hash (hexadecimal)."""

    stream: str
    round: int
    seq: int
    hash: str


class _Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The head that the first round of a range follows, and the sections of the state there, in the
    order they come."""

    stream: str
    round: int
    seq: int
    hash: str
    epoch: int
    at: int
    snapshot: str
    sections: tuple[str, ...]


class _Endings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    streams: tuple[Ending, ...]


class _Ties(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    nodes: dict[str, int]
    classes: dict[str, int]


class _Input(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`body` None: the body came in a record of its own before."""

    id: bytes
    sha256: bytes
    body: bytes | None


class _ExportedDecision(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    seq: int
    id: bytes
    type: str
    subject: str
    outcome: str
    cause: bytes | None
    body: bytes


class _Round(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    number: int
    epoch: int
    at: int
    engine: str
    profile: str
    first_seq: int
    snapshot: bytes
    prev_hash: bytes
    hash: bytes
    basis: Basis
    inputs: tuple[_Input, ...]
    decisions: tuple[_ExportedDecision, ...]


_to_json = msgspec.json.Encoder(order="deterministic").encode
_to_msgpack = msgspec.msgpack.Encoder(order="deterministic").encode
_header = json_decoder(Header)
_base = json_decoder(_Base)
_endings = json_decoder(_Endings)
with reading_types:
    _ties = msgspec.msgpack.Decoder(_Ties)
    _round = msgspec.msgpack.Decoder(_Round)


# --- the chain


class Chain:
    """Follows one stream round by round; `broken` says what does not follow."""

    def __init__(self, head: Head) -> None:
        self.head = head

    def broken(self, r: Round) -> str | None:
        """Why `r` cannot be the next round; None: it is, and the chain has moved on."""
        head = self.head
        if r.number != head.round + 1 or r.first_seq != head.seq + 1:
            return f"round {head.round + 1} was to come, with decision {head.seq + 1}"
        if r.prev_hash != head.hash:
            return "it does not follow the hash of the round before"
        if r.at < head.at:
            return f"its time {r.at} lies before {head.at}"
        if hash_of(r) != r.hash:
            return "its hash is not that of its content"
        self.head = r.head()
        return None


# --- writing


class FileWriter:
    """Writes the records in their order: `begin` each stream, `add` its rounds, then `finish`.

    `shared`: event types of which several of the streams take in the same event; their bodies are
    written once.
    """

    def __init__(
        self,
        raw: BinaryIO,
        name: str,
        header: Header,
        ties: Ties | None = None,
        shared: Collection[str] = (),
    ) -> None:
        self._out = _Hashed(raw)
        self._name = name
        self._shared = frozenset(shared)
        self._written: set[bytes] = set()
        self._chain: Chain | None = None
        self._ends: list[Ending] = []
        self._out.write(MAGIC + b"%d\n" % VERSION)
        compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        # it only writes
        self._frame = compressor.stream_writer(cast("IO[bytes]", self._out), closefd=False)
        self._record(HEADER, _to_json(header))
        if ties is not None:
            self._record(TIES, _to_msgpack(_Ties(dict(ties.nodes), dict(ties.classes))))

    def begin(self, head: Head, sections: Mapping[str, bytes]) -> None:
        """The rounds that follow are those of `head.stream` after `head`; `sections`: its state
        there, none at the genesis."""
        self._end_stream()
        self._chain = Chain(head)
        names = tuple(sorted(sections))
        base = _Base(
            head.stream,
            head.round,
            head.seq,
            head.hash.hex(),
            head.epoch,
            head.at,
            head.snapshot.hex(),
            names,
        )
        self._record(RANGE, _to_json(base))
        for name in names:
            self._record(SECTION, sections[name])

    def add(self, recorded: RecordedRound) -> None:
        """FileError: the round does not follow the one before, so that no reader could trust the
        file."""
        assert self._chain is not None, "a stream is begun before its rounds are added"
        r = recorded.round
        why = self._chain.broken(r)
        if why is not None:
            raise FileError(
                f"{r.stream} round {r.number}: {why}; `wharfinger audit verify` says more"
            )
        inputs = [
            self._input(ref, event) for ref, event in zip(r.inputs, recorded.events, strict=True)
        ]
        self._record(ROUND, _to_msgpack(_packed(r, tuple(inputs))))

    def finish(self) -> int:
        """How many bytes the file has."""
        self._end_stream()
        self._record(END, _to_json(_Endings(tuple(self._ends))))
        self._frame.flush(zstandard.FLUSH_FRAME)
        self._out.raw.write(self._out.digest())
        return self._out.raw.tell()

    def _end_stream(self) -> None:
        if self._chain is not None:
            head = self._chain.head
            self._ends.append(Ending(head.stream, head.round, head.seq, head.hash.hex()))
            self._chain = None

    def _input(self, ref: InputRef, event: Event[Value]) -> _Input:
        if event.type not in self._shared:
            return _Input(ref.id.bytes, ref.sha256, event.body)
        if ref.sha256 not in self._written:
            self._written.add(ref.sha256)
            self._record(BODY, event.body)
        return _Input(ref.id.bytes, ref.sha256, None)

    def _record(self, kind: bytes, payload: bytes) -> None:
        if len(payload) >= 1 << 32:
            raise FileError(
                f"{self._name}: a record of {len(payload):,} bytes is more than the format can hold"
            )
        self._frame.write(kind + len(payload).to_bytes(4, "big"))
        self._frame.write(payload)


class _Hashed:
    """A file whose bytes are hashed as they are written."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw = raw
        self._sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._sha256.update(data)
        return self.raw.write(data)

    def digest(self) -> bytes:
        return self._sha256.digest()


def _packed(r: Round, inputs: tuple[_Input, ...]) -> _Round:
    decisions = tuple(
        [
            _ExportedDecision(
                d.seq,
                d.id.bytes,
                d.type,
                d.subject,
                d.outcome,
                None if d.cause is None else d.cause.bytes,
                d.body,
            )
            for d in r.decisions
        ]
    )
    return _Round(
        r.number,
        r.epoch,
        r.at,
        r.engine,
        r.profile,
        r.first_seq,
        r.snapshot,
        r.prev_hash,
        r.hash,
        r.basis,
        inputs,
        decisions,
    )


@contextmanager
def replacing(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A file beside `path` that takes its place when all went well, and is gone when anything did
    not.

    FileError: nothing can be written there.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as raw:
            yield part, raw
        part.replace(path)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


# --- reading


@dataclass(frozen=True, slots=True)
class FileRange:
    """One stream of a file. `rounds` follow `head`, on the state that `sections` hold (none: the
    stream's beginning). They are read from the file as they are asked for, once, and before the
    next range. Decisions have bytes, no data."""

    head: Head
    sections: Mapping[str, bytes]
    rounds: Iterator[RecordedRound]


class LedgerFile:
    """An open file, read from front to back. Made by `opened`; every method raises FileError where
    the file is not sound."""

    def __init__(self, path: Path, raw: BinaryIO, content_bytes: int) -> None:
        self._records = _Records(path, raw, content_bytes)
        self._path = path
        self._bodies = _Bodies()
        self._ends: list[Ending] = []
        self.header = self._json(HEADER, _header)
        self.ties: Ties | None = None
        if self._records.next_is(TIES):
            ties = self._decoded(_ties, self._records.take(TIES))
            self.ties = Ties(ties.nodes, ties.classes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bodies.close()

    def ranges(self) -> Iterator[FileRange]:
        """Every stream; and when the last was read, whether the file holds what it says it
        holds."""
        for expected in self.header.streams:
            base = self._json(RANGE, _base)
            head = self._head(base)
            sections = {name: self._records.take(SECTION) for name in base.sections}
            chain = Chain(head)
            rounds = self._rounds(chain)
            yield FileRange(head, sections, rounds)
            for _ in rounds:
                pass  # what the caller did not ask for is held against the chain all the same
            self._note_end(expected, head, chain.head)
        endings = self._json(END, _endings)
        if list(endings.streams) != self._ends:
            raise FileError(
                f"{self._path}: its last record names other heads than its rounds lead to"
            )
        self._records.expect_end()

    def _head(self, base: _Base) -> Head:
        try:
            return Head(
                base.stream,
                base.round,
                base.seq,
                bytes.fromhex(base.hash),
                base.epoch,
                base.at,
                bytes.fromhex(base.snapshot),
            )
        except ValueError as error:
            raise FileError(f"{self._path}: {base.stream}: {error}") from None

    def _note_end(self, expected: StreamRange, head: Head, end: Head) -> None:
        found = (head.stream, head.round + 1, end.round)
        if found != (expected.stream, expected.first, expected.last):
            raise FileError(
                f"{self._path}: its header announces {expected.stream} "
                f"{expected.first}-{expected.last}, "
                f"it holds {found[0]} {found[1]}-{found[2]}"
            )
        self._ends.append(Ending(end.stream, end.round, end.seq, end.hash.hex()))

    def _rounds(self, chain: Chain) -> Iterator[RecordedRound]:
        stream = chain.head.stream
        while True:
            while self._records.next_is(BODY):
                self._bodies.put(self._records.take(BODY))
            if not self._records.next_is(ROUND):
                return
            stored = self._decoded(_round, self._records.take(ROUND))
            recorded = self._recorded(stream, stored)
            why = chain.broken(recorded.round)
            if why is not None:
                raise FileError(f"{self._path}: {stream} round {stored.number}: {why}")
            yield recorded

    def _recorded(self, stream: str, r: _Round) -> RecordedRound:
        try:
            refs = tuple([InputRef(UUID(bytes=i.id), i.sha256) for i in r.inputs])
            events = [self._event(i) for i in r.inputs]
            decisions = tuple([_decision(stream, d) for d in r.decisions])
        except ValueError as error:
            raise FileError(f"{self._path}: {stream} round {r.number}: {error}") from None
        return RecordedRound(
            Round(
                stream,
                r.number,
                r.epoch,
                r.at,
                r.engine,
                r.profile,
                refs,
                r.basis,
                decisions,
                r.snapshot,
                r.prev_hash,
                r.hash,
                r.first_seq,
            ),
            events,
        )

    def _event(self, stored: _Input) -> Event[Value]:
        body = self._bodies.get(stored.sha256) if stored.body is None else stored.body
        event = decode(body)
        if event.sha256 != stored.sha256 or event.id.bytes != stored.id:
            raise UndecodableError("an input's body is not the one its id and hash name")
        return event

    def _json(self, kind: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
        return self._decoded(decoder, self._records.take(kind))

    def _decoded(
        self, decoder: msgspec.json.Decoder[_T] | msgspec.msgpack.Decoder[_T], payload: bytes
    ) -> _T:
        try:
            return decoder.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise FileError(f"{self._path}: a record cannot be read: {error}") from None


def _decision(stream: str, d: _ExportedDecision) -> Decision:
    cause = None if d.cause is None else UUID(bytes=d.cause)
    return Decision(
        stream, d.seq, UUID(bytes=d.id), d.type, d.subject, d.outcome, cause, _UNREAD, d.body
    )


@contextmanager
def opened(path: Path) -> Iterator[LedgerFile]:
    """The file, once its checksum has been found right. FileError: it is not there, no such file,
    damaged, or newer than we are."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    with raw:
        content = _checked(path, raw)
        with LedgerFile(path, raw, content) as file:
            yield file


def _checked(path: Path, raw: BinaryIO) -> int:
    """How many bytes of compressed records there are; the file stands at the first of them."""
    line = raw.readline(len(MAGIC) + _VERSION_DIGITS_MAX + 1)
    digits = line.removeprefix(MAGIC).removesuffix(b"\n")
    if not line.startswith(MAGIC) or not line.endswith(b"\n") or not digits.isdigit():
        raise FileError(
            f"{path}: not a ledger file: it does not begin with {(MAGIC + b'1').decode()!r}"
        )
    if int(digits) != VERSION:
        raise FileError(
            f"{path}: format {int(digits)} of ledger files is not known here; "
            f"this version reads {VERSION}"
        )
    end = os.fstat(raw.fileno()).st_size - CHECKSUM_BYTES
    left, sha256 = end - len(line), hashlib.sha256(line)
    content = left
    while left > 0:
        chunk = raw.read(min(_CHUNK, left))
        if not chunk:
            break
        sha256.update(chunk)
        left -= len(chunk)
    if content <= 0 or raw.read() != sha256.digest():
        raise FileError(
            f"{path}: damaged or cut off: its last {CHECKSUM_BYTES} bytes are not the sha256 of "
            "the rest"
        )
    raw.seek(len(line))
    return content


class _Records:
    """The records of a file one after another, with a look at the next."""

    def __init__(self, path: Path, raw: BinaryIO, content_bytes: int) -> None:
        self._path = path
        limited = cast("IO[bytes]", _Limited(raw, content_bytes))  # it is only read
        self._stream = zstandard.ZstdDecompressor().stream_reader(limited, closefd=False)
        self._next: tuple[bytes, int] | None = None
        self._left = max(UNPACKED_BYTES_FREE, content_bytes * UNPACKED_RATIO_MAX)

    def next_is(self, kind: bytes) -> bool:
        if self._next is None:
            prefix = self._read(_PREFIX_BYTES)
            self._next = prefix[:1], int.from_bytes(prefix[1:], "big")
        return self._next[0] == kind

    def take(self, kind: bytes) -> bytes:
        if not self.next_is(kind):
            found = self._next[0] if self._next else b""
            raise FileError(f"{self._path}: a record {kind.decode()} was to come, found {found!r}")
        assert self._next is not None, "looked at just now"
        length = self._next[1]
        self._next = None
        return self._read(length)

    def expect_end(self) -> None:
        if self._decompressed(1):
            raise FileError(f"{self._path}: something comes after its last record")

    def _read(self, length: int) -> bytes:
        if length > self._left:
            raise FileError(
                f"{self._path}: it unpacks to more than {UNPACKED_RATIO_MAX:,} times its size"
            )
        self._left -= length
        parts: list[bytes] = []
        while length:
            part = self._decompressed(min(length, _CHUNK))
            if not part:
                raise FileError(f"{self._path}: it ends in the middle of a record")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _decompressed(self, length: int) -> bytes:
        try:
            return self._stream.read(length)
        except zstandard.ZstdError as error:
            raise FileError(f"{self._path}: {error}") from None


class _Limited:
    """The first so many bytes of a file, from where it stands."""

    def __init__(self, raw: BinaryIO, left: int) -> None:
        self._raw = raw
        self._left = left

    def read(self, length: int = -1) -> bytes:
        wanted = self._left if length < 0 else min(length, self._left)
        data = self._raw.read(wanted)
        self._left -= len(data)
        return data


class _Bodies:
    """Bodies that several streams took in, on disk until they are asked for: broadcast facts, of
    which there may be many."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._places: dict[bytes, tuple[int, int]] = {}

    def put(self, body: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        self._places[hashlib.sha256(body).digest()] = (self._file.seek(0, os.SEEK_END), len(body))
        self._file.write(body)

    def get(self, sha256: bytes) -> bytes:
        """ValueError: it has not come."""
        place = self._places.get(sha256)
        if place is None or self._file is None:
            raise UndecodableError("an input's body is missing")
        self._file.seek(place[0])
        return self._file.read(place[1])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
