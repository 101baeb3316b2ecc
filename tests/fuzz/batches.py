"""Compressed batches of records as a broker answers them: plain batches within bounds, or one
record that says why not."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager

import cramjam
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from tests.fuzz.target import Check, Target, holds, kind_of, one_line

from wharfinger.runtime.unpacking import (
    BATCH_UNPACKED_MAX,
    KEPT_BYTES,
    REFUSED,
    RESPONSE_UNPACKED_MAX,
    Allowance,
    is_compressed,
    unpacked,
)

_AFTER_LENGTH, _CRC, _ATTRIBUTES, _HEADER_BYTES = 12, 17, 21, 61
_REFUSAL_BYTES = KEPT_BYTES + 1024


@contextmanager
def opened() -> Iterator[Check]:
    yield check


def check(data: bytes) -> str:
    """The first byte says what the rest is: batches as they are, or the body of one batch with a
    right checksum, which no mutation would find, under the codec of its lowest bits."""
    if not data:
        return "empty"
    how, rest = data[0], data[1:]
    raw = rest if how < 0x80 else batch_around(rest, how & 7)
    plain = unpacked(raw, Allowance())
    holds(not is_compressed(plain) or wrong_checksum(plain), "it is still compressed")
    bound = max(len(raw) * 2, RESPONSE_UNPACKED_MAX + BATCH_UNPACKED_MAX) + _REFUSAL_BYTES
    holds(len(plain) <= bound, f"{len(raw):,} bytes became {len(plain):,}")
    holds(unpacked(plain, Allowance()) == plain, "unpacking again changes it")
    if how < 0x80:
        return "raw compressed" if is_compressed(raw) else "raw"
    return read_by_the_client(plain)


def read_by_the_client(plain: bytes) -> str:
    """The client can read what took the place of a compressed batch."""
    batches = MemoryRecords(plain)
    if how := DefaultRecordBatch(plain).compression_type if len(plain) >= _HEADER_BYTES else 0:
        return f"codec {how} was left"
    found = "no batch"
    while batches.has_next():
        batch = batches.next_batch()
        if batch is None:
            return "cut off"
        holds(batch.validate_crc(), "the checksum is not right")
        if not (plain[_ATTRIBUTES + 1] & 7) and raw_kind(plain):
            return "never compressed"
        found = "unpacked"
        for record in batch:
            for name, why in record.headers:
                if name == REFUSED:
                    text = (why or b"").decode()
                    one_line(text)
                    holds(len(record.value or b"") <= KEPT_BYTES, "it carries too much")
                    found = kind_of(text)
    return found


def raw_kind(plain: bytes) -> bool:
    """A batch that claimed no compression is left as it is, with any content."""
    try:
        for _ in DefaultRecordBatch(plain):
            pass
    except Exception:  # the client's parser raises anything
        return True
    return False


def wrong_checksum(records: bytes) -> bool:
    """Some batch is left for the client, which finds its checksum wrong and fetches it again."""
    start = 0
    while start + _AFTER_LENGTH <= len(records):
        size = int.from_bytes(records[start + 8 : start + _AFTER_LENGTH], "big", signed=True)
        end = start + _AFTER_LENGTH + size
        if size <= 16 or end > len(records):
            return False
        batch = records[start:end]
        said = int.from_bytes(batch[_CRC : _CRC + 4], "big")
        if len(batch) < _HEADER_BYTES or calc_crc32c(batch[_ATTRIBUTES:]) != said:
            return True
        start = end
    return False


def batch_around(body: bytes, codec: int) -> bytes:
    """A batch of this codec with its checksum."""
    whole = bytearray(built([b"x", b"y"])[:_HEADER_BYTES] + body)
    whole[_ATTRIBUTES + 1] |= codec
    whole[8:_AFTER_LENGTH] = (len(whole) - _AFTER_LENGTH).to_bytes(4, "big")
    whole[_CRC : _CRC + 4] = calc_crc32c(bytes(whole[_ATTRIBUTES:])).to_bytes(4, "big")
    return bytes(whole)


def built(values: list[bytes], codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, 5, 1, 0, 1 << 20)
    for number, value in enumerate(values):
        builder.append(number, 1000 + number, b"key", value, [("h", b"x")])
    return bytes(builder.build())


def seeds() -> Iterator[bytes]:
    values = [b"first", b"second" * 20]
    body = built(values)[_HEADER_BYTES:]
    packed = {
        0: body,
        1: gzip.compress(body, mtime=0),
        2: bytes(cramjam.snappy.compress_raw(body)),
        3: bytes(cramjam.lz4.compress(body)),
        4: bytes(cramjam.zstd.compress(body)),
        5: body,
    }
    for codec, content in packed.items():
        yield bytes([0x80 | codec]) + content
    raw = bytes(packed[2])
    blocks = b"\x82SNAPPY\x00" + bytes(8) + len(raw).to_bytes(4, "big") + raw
    yield bytes([0x82]) + blocks
    zeros = bytes(BATCH_UNPACKED_MAX + 1)
    yield b"\x81" + gzip.compress(zeros, mtime=0)[: TARGET.bytes_max]
    yield b"\x84" + bytes(cramjam.zstd.compress(zeros))
    for codec in (0, 1, 4):
        yield b"\x00" + built(values, codec) + built(values)


TARGET = Target("batches", "batches of records, compressed or not", opened, seeds)
