"""Files of `ledger export`, as `replay`, `verify` and `whatif` open them: the rounds that were
written, or one error; and what was read is written to the same content again."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import zstandard
from tests.exported import parts_of
from tests.fleets import a_fleet
from tests.fuzz.target import Check, Target, holds, kind_of, one_line

from wharfinger.events.message_codec import UndecodableError
from wharfinger.history.export_file import (
    CHECKSUM_BYTES,
    MAGIC,
    VERSION,
    FileError,
    FileWriter,
    Header,
)
from wharfinger.history.export_file import opened as opened_file
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Head

_FIRST_LINE = MAGIC + b"%d\n" % VERSION


@dataclass(frozen=True, slots=True)
class _Content:
    """All that a file holds."""

    header: Header
    streams: tuple[tuple[Head, tuple[tuple[str, bytes], ...], tuple[RecordedRound, ...]], ...]


@contextmanager
def opened() -> Iterator[Check]:
    with tempfile.TemporaryDirectory(prefix="wharfinger-fuzz-") as directory:
        path = Path(directory, "week.wlg")
        yield lambda data: check(path, data)


def check(path: Path, data: bytes) -> str:
    """The first byte says what the rest is: a whole file, or the records of one, which get their
    compression and a right checksum: no mutation would find either."""
    how, rest = data[:1] or b"\0", data[1:]
    path.write_bytes(rest if how < b"\x80" else file_around(rest))
    try:
        found = content(path)
    except (FileError, UndecodableError) as error:
        text = str(error)
        one_line(text)
        return kind_of(text.replace(str(path), ""))
    again = path.with_suffix(".again")
    with again.open("wb") as raw:
        writer = FileWriter(raw, str(again), found.header)
        for head, sections, rounds in found.streams:
            writer.begin(head, dict(sections))
            for recorded in rounds:
                writer.add(recorded)
        writer.finish()
    holds(content(again) == found, "what was written again is read as something else")
    return f"{len(found.streams)} streams"


def content(path: Path) -> _Content:
    with opened_file(path) as file:
        streams = tuple(
            (r.head, tuple(sorted(r.sections.items())), tuple(r.rounds)) for r in file.ranges()
        )
        return _Content(file.header, streams)


def file_around(records: bytes) -> bytes:
    body = _FIRST_LINE + zstandard.ZstdCompressor(level=1).compress(records)
    return body + hashlib.sha256(body).digest()


def records_in(file: bytes) -> bytes:
    reader = zstandard.ZstdDecompressor().stream_reader(file[len(_FIRST_LINE) : -CHECKSUM_BYTES])
    return reader.read()


def seeds() -> Iterator[bytes]:
    """A small fleet's rounds, the first two of a stream each; and records that claim too much."""
    import asyncio

    from wharfinger.history.export import write_plain

    fleet = a_fleet(7)
    with tempfile.TemporaryDirectory(prefix="wharfinger-fuzz-") as directory:
        path = Path(directory, "seed.wlg")
        for name, rounds in sorted(fleet.by_stream().items()):
            for count in (1, 2):
                asyncio.run(write_plain(path, parts_of({name: rounds[:count]}), "ab"))
                whole = path.read_bytes()
                if len(whole) < TARGET.bytes_max:
                    yield b"\x00" + whole
                if len(records := records_in(whole)) < TARGET.bytes_max:
                    yield b"\x80" + records
    yield b"\x80H" + (0xFFFFFFFF).to_bytes(4, "big")
    yield b"\x80H" + (2000).to_bytes(4, "big") + b"[" * 2000
    yield b"\x00" + _FIRST_LINE + Random(1).randbytes(100)


TARGET = Target("ledger-files", "files of `ledger export`", opened, seeds, bytes_max=16_384)
