"""A ledger file is read back as it was written, and whatever is wrong with it is said in one
line."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import zstandard
from tests.exported import parts_of
from tests.fleets import a_fleet

from wharfinger.engine.nodes.columns import Ties
from wharfinger.history.export import ExportedStream, replay_file, write_plain, write_redacted
from wharfinger.history.export_file import (
    CHECKSUM_BYTES,
    MAGIC,
    FileError,
    FileWriter,
    Header,
    opened,
    replacing,
)
from wharfinger.kernel.recover import RecordedRound

FLEET = 7


@pytest.fixture(scope="module")
def parts() -> list[ExportedStream]:
    return parts_of(a_fleet(FLEET).by_stream())


@pytest.fixture(scope="module")
def body(parts: list[ExportedStream], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("files") / "ledger"
    asyncio.run(write_plain(path, parts, "ab"))
    return path.read_bytes()


def rounds_of(part: ExportedStream) -> list[RecordedRound]:
    async def all_of_them() -> list[RecordedRound]:
        return [recorded async for recorded in part.rounds()]

    return asyncio.run(all_of_them())


def with_checksum(body: bytes) -> bytes:
    """As somebody would who changes a file and knows the format."""
    return body + hashlib.sha256(body).digest()


def test_what_was_written_is_read_back(
    parts: list[ExportedStream], body: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(body)
    with opened(path) as file:
        assert file.header.streams == tuple(part.about for part in parts)
        assert (file.header.plane, file.header.redacted, file.ties) == ("ab", False, None)
        for part, read in zip(parts, file.ranges(), strict=True):
            assert (read.head, dict(read.sections)) == (part.head, dict(part.sections))
            for recorded, again in zip(rounds_of(part), read.rounds, strict=True):
                assert again.events == recorded.events
                assert [d.body for d in again.round.decisions] == [
                    d.body for d in recorded.round.decisions
                ]
                assert again.round.hash == recorded.round.hash


def test_the_same_rounds_make_the_same_bytes(
    parts: list[ExportedStream], body: bytes, tmp_path: Path
) -> None:
    asyncio.run(write_plain(tmp_path / "again", parts, "ab"))
    assert (tmp_path / "again").read_bytes() == body


def test_a_range_begins_with_the_state_before_it(tmp_path: Path) -> None:
    late = parts_of(a_fleet(FLEET).by_stream(), 10)
    asyncio.run(write_plain(tmp_path / "late", late, "ab"))
    result = replay_file(tmp_path / "late").result
    assert result.divergences == ()
    assert result.rounds == sum(part.about.rounds for part in late)
    assert all(part.sections for part in late)


def test_bodies_that_several_shards_took_in_are_written_once(tmp_path: Path) -> None:
    """Two shards that heard the same of the clusters: here the same rounds under two names, but for
    their hashes."""
    fleet, *others = [
        part for part in parts_of(a_fleet(3).by_stream()) if part.about.stream.startswith("fleet/")
    ]
    assert not others
    twice = tmp_path / "twice"
    header = Header("test", "", False, "", (), (fleet.about, fleet.about))
    shared = {event.type for r in rounds_of(fleet) for event in r.events}
    with replacing(twice) as (_, raw):
        writer = FileWriter(raw, str(twice), header, shared=shared)
        for _ in range(2):
            writer.begin(fleet.head, fleet.sections)
            for recorded in rounds_of(fleet):
                writer.add(recorded)
        writer.finish()
    content = (
        zstandard.ZstdDecompressor()
        .stream_reader(twice.read_bytes()[len(MAGIC) + 2 : -CHECKSUM_BYTES])
        .read()
    )
    some = rounds_of(fleet)[3].events[0]
    assert content.count(some.body) == 1
    with opened(twice) as file:
        read = [[event for r in part.rounds for event in r.events] for part in file.ranges()]
    assert read[0] == read[1] == [event for r in rounds_of(fleet) for event in r.events]


def test_a_file_is_verified_by_its_description_alone(
    parts: list[ExportedStream], body: bytes
) -> None:
    """As `docs/export.md` has it, with nothing of ours: what somebody else's program would do."""
    assert hashlib.sha256(body[:-32]).digest() == body[-32:]
    assert body.startswith(b"wharfinger ledger 1\n")
    content = zstandard.ZstdDecompressor().stream_reader(body[20:-32]).read()
    prev, stream, rounds = b"", "", 0
    while content:
        kind, length = content[:1], int.from_bytes(content[1:5], "big")
        record, content = content[5 : 5 + length], content[5 + length :]
        if kind == b"R":
            base = json.loads(record)
            stream, prev = base["stream"], bytes.fromhex(base["hash"])
            assert prev == hashlib.sha256(b"wharfinger stream\0" + stream.encode()).digest()
        elif kind == b"D":
            prev, rounds = _verified(stream, prev, msgspec.msgpack.decode(record)), rounds + 1
        elif kind == b"E":
            assert {end["stream"]: end["round"] for end in json.loads(record)["streams"]} == {
                part.about.stream: part.about.last for part in parts
            }
    assert rounds == sum(part.about.rounds for part in parts)


def _verified(stream: str, before: bytes, record: list[Any]) -> bytes:
    number, epoch, at, engine, profile, _, snapshot, prev, hash_, basis, inputs, decisions = record
    assert prev == before
    assert all(hashlib.sha256(body).digest() == sha256 for _, sha256, body in inputs)
    words = [prev, stream, f"{number} {epoch} {at}", engine, profile, str(len(inputs))]
    words += [part for id_, sha256, _ in inputs for part in (id_, sha256)]
    words += [
        str(len(basis)),
        *(part for place in sorted(basis) for part in (place, "{} {}".format(*basis[place]))),
    ]
    words.append(str(len(decisions)))
    for seq, id_, kind, subject, outcome, cause, body in decisions:
        words += [str(seq), id_, kind, subject, outcome, cause or b"", body]
    parts = [word if isinstance(word, bytes) else word.encode() for word in (*words, snapshot)]
    assert (
        hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in parts)).digest() == hash_
    )
    assert isinstance(hash_, bytes)
    return hash_


# --- what is not sound


def test_a_flipped_bit_anywhere_is_found(body: bytes, tmp_path: Path) -> None:
    path, random = tmp_path / "flipped", Random(1)
    places = {
        *range(len(MAGIC) + 40),
        *range(len(body) - 60, len(body)),
        *random.sample(range(len(body)), 300),
    }
    for place in sorted(places):
        changed = bytearray(body)
        changed[place] ^= 1 << random.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(FileError) as error:
            replay_file(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "left", [0, 5, len(MAGIC), len(MAGIC) + 2, len(MAGIC) + 20, 1000, -1, -CHECKSUM_BYTES]
)
def test_a_file_that_was_cut_off_is_found(left: int, body: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(body[:left])
    with pytest.raises(FileError, match=r"not a ledger file|damaged or cut off"):
        replay_file(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: b"PK\x03\x04" + body, "not a ledger file"),
        (
            lambda body: with_checksum(
                body[:-CHECKSUM_BYTES].replace(MAGIC + b"1\n", MAGIC + b"2\n")
            ),
            "format 2",
        ),
        (lambda body: with_checksum(body[:400]), "ends in the middle"),
        (
            lambda body: with_checksum(MAGIC + b"1\n" + b"no zstd frame"),
            "nknown frame|magic number",
        ),
        (lambda body: body + b"\n", "damaged or cut off"),
    ],
)
def test_what_is_no_file_of_ours_is_said_in_one_line(
    change: Callable[[bytes], bytes], said: str, body: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "other"
    path.write_bytes(change(body))
    with pytest.raises(FileError, match=said) as error:
        replay_file(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there_and_a_place_that_cannot_be_written(
    tmp_path: Path, parts: list[ExportedStream]
) -> None:
    with pytest.raises(FileError, match="No such file"):
        replay_file(tmp_path / "nothing")
    with pytest.raises(FileError, match="No such file"):
        asyncio.run(write_plain(tmp_path / "no" / "such" / "directory", parts, ""))


def _record(kind: bytes, payload: bytes) -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload


def _file_of(records: bytes) -> bytes:
    return with_checksum(MAGIC + b"1\n" + zstandard.ZstdCompressor().compress(records))


def test_records_that_say_something_else_are_refused(body: bytes, tmp_path: Path) -> None:
    """A file whose checksum is right, and whose rounds were changed: the chain finds it, and names
    the round."""
    content = (
        zstandard.ZstdDecompressor().stream_reader(body[len(MAGIC) + 2 : -CHECKSUM_BYTES]).read()
    )
    path = tmp_path / "changed"
    for old, new in ((b'"replicas":', b'"replicaz":'), (b"scheduled", b"schedulet")):
        place = content.index(old, content.index(b"D\x00\x00"))
        path.write_bytes(_file_of(content[:place] + new + content[place + len(old) :]))
        with pytest.raises(FileError, match=r"(fleet|cluster)/\S+ round \d+: "):
            replay_file(path)
    path.write_bytes(_file_of(_record(b"H", b'{"made_by":"me"}')))
    with pytest.raises(FileError, match="a record cannot be read"):
        replay_file(path)
    path.write_bytes(_file_of(_record(b"X", b"")))
    with pytest.raises(FileError, match="a record H was to come"):
        replay_file(path)
    path.write_bytes(_file_of(content + b"more"))
    with pytest.raises(FileError, match="something comes after"):
        replay_file(path)


def test_a_round_that_does_not_follow_is_not_written(
    parts: list[ExportedStream], tmp_path: Path
) -> None:
    path = tmp_path / "gap"
    part = parts[0]
    first, _, third, *_ = rounds_of(part)

    def write() -> None:
        with replacing(path) as (_, raw):
            writer = FileWriter(raw, str(path), Header("", "", False, "", (), (part.about,)))
            writer.begin(part.head, part.sections)
            writer.add(first)
            writer.add(third)

    with pytest.raises(FileError, match="round 2 was to come"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_redacted_file_without_its_tie_values_is_said_to_lack_them(tmp_path: Path) -> None:
    path = tmp_path / "redacted"
    asyncio.run(write_redacted(path, parts_of(a_fleet(FLEET).by_stream()), "ab", b"key"))
    with opened(path) as file:
        header = file.header
        read = [(part.head, dict(part.sections), list(part.rounds)) for part in file.ranges()]
    with replacing(path) as (_, raw):
        writer = FileWriter(raw, str(path), msgspec.structs.replace(header, note=""), Ties({}, {}))
        for head, sections, rounds in read:
            writer.begin(head, sections)
            for recorded in rounds:
                writer.add(recorded)
        writer.finish()
    first = replay_file(path).result.divergences[0]
    assert first.step == "failure"
    assert "has no tie value" in first.replayed


@pytest.mark.parametrize("length", [0xFFFF_FFFF, 512 << 20])
def test_a_record_that_unpacks_to_far_more_than_its_file_is_not_read(
    length: int, tmp_path: Path
) -> None:
    """4 GiB of zeros are 130 KB of zstd."""
    packed = zstandard.ZstdCompressor().compressobj()
    parts = [packed.compress(b"H" + length.to_bytes(4, "big"))]
    parts += [packed.compress(bytes(1 << 24)) for _ in range(32)]
    path = tmp_path / "bomb"
    path.write_bytes(with_checksum(MAGIC + b"1\n" + b"".join([*parts, packed.flush()])))
    assert path.stat().st_size < 100_000
    with pytest.raises(FileError, match="unpacks to more than 1,000 times"), opened(path):
        pass
