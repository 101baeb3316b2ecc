"""Compressed batches become plain ones within bounds, and what does not stay within them becomes
one record."""

from __future__ import annotations

import gc
import gzip
import tracemalloc
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import cramjam
import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_UNCOMMITTED
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.runtime.unpacking import (
    BATCH_UNPACKED_MAX,
    KEPT_BYTES,
    REFUSED,
    Allowance,
    FreedRecords,
    _PartitionRecords,
    is_compressed,
    unpacked,
)

CODECS = GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def batch(values: Sequence[bytes], codec: int = GZIP, base: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=5,
        producer_epoch=1,
        base_sequence=0,
        batch_size=2**30,
    )
    for number, value in enumerate(values):
        builder.append(number, 1000 + number, b"key-%d" % number, value, [("h", b"x")])
    built = bytearray(builder.build())
    built[:8] = base.to_bytes(8, "big")
    return bytes(built)


def with_body(body: bytes, codec: int) -> bytes:
    """A batch that claims this compression, with its checksum."""
    whole = bytearray(batch([b"x"], 0)[:61] + body)
    whole[22] |= codec
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[17:21] = calc_crc32c(bytes(whole[21:])).to_bytes(4, "big")
    return bytes(whole)


def records(raw: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    batches = MemoryRecords(raw)
    while batches.has_next():
        one = batches.next_batch()
        assert one is not None
        assert one.validate_crc()
        found += [(record.offset, record.key, record.value) for record in one]
    return found


def reason(raw: bytes) -> str:
    (record,) = DefaultRecordBatch(raw)
    assert record.key is None
    ((name, why),) = record.headers
    assert name == REFUSED
    return (why or b"").decode()


@given(
    st.lists(
        st.tuples(
            st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.sampled_from([0, *CODECS])
        ),
        max_size=5,
    ),
    st.integers(0, 40),
)
@settings(max_examples=examples(60))
def test_unpacked_batches_hold_the_same_records(
    batches: list[tuple[list[bytes], int]], cut: int
) -> None:
    raw, base = b"", 0
    for values, codec in batches:
        raw += batch(values, codec, base)
        base += len(values)
    raw = raw[: len(raw) - cut]  # a broker cuts the last batch of a response
    after = unpacked(raw, Allowance())
    assert records(after) == records(raw)
    assert not is_compressed(after)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_one_record_that_says_so(codec: int) -> None:
    packed = batch([b"\0" * 50_000_000], codec, base=7)
    assert len(packed) < 3_000_000
    tracemalloc.start()
    plain = unpacked(packed + batch([b"well"], base=8), Allowance())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    bomb, well = records(plain)
    assert (bomb[0], bomb[2]) == (7, packed[:KEPT_BYTES])
    assert well == (8, b"key-0", b"well")
    assert "more than 8,388,608 without compression" in reason(plain[: -len(batch([b"well"], 0))])
    assert peak < 4 * BATCH_UNPACKED_MAX


@pytest.mark.parametrize(
    ("body", "codec", "expected"),
    [
        (b"no gzip", 1, "not gzip"),
        (gzip.compress(b"x" * 100, mtime=0)[:-4], 1, "ends too early"),
        (gzip.compress(b"\xff" * 100, mtime=0), 1, "no records in it"),
        (gzip.compress(b"", mtime=0), 1, "no records in it"),
        (b"", 1, "no records in it"),
        (b"anything", SNAPPY, "not snappy"),
        (b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2 + b"\0\0\0\7abc", SNAPPY, "ends too early"),
        (b"\xff\xff\xff\xff\x0f", SNAPPY, "more than"),
        (b"anything", LZ4, "not lz4"),
        (b"anything", ZSTD, "not zstd"),
        (b"anything", 7, "compressed with codec 7; expected none, gzip, snappy, lz4 or zstd"),
    ],
)
def test_what_cannot_be_unpacked_is_one_record_with_the_reason(
    body: bytes, codec: int, expected: str
) -> None:
    assert expected in reason(unpacked(with_body(body, codec), Allowance()))


def test_snappy_without_blocks_is_unpacked_too() -> None:
    plain = batch([b"well"], 0)
    body = bytes(cramjam.snappy.compress_raw(plain[61:]))
    assert records(unpacked(with_body(body, SNAPPY), Allowance())) == [(0, b"key-0", b"well")]


def test_a_response_is_unpacked_up_to_its_allowance_and_always_a_first_batch() -> None:
    large = [batch([b"\0" * (BATCH_UNPACKED_MAX - 1000)], base=base) for base in range(4)]
    assert [offset for offset, *_ in records(unpacked(b"".join(large), Allowance()))] == [0, 1]
    assert len(records(unpacked(large[0], Allowance(1)))) == 1


@given(st.binary(max_size=400))
@settings(max_examples=examples(200))
def test_no_bytes_stop_it(raw: bytes) -> None:
    is_compressed(raw)
    unpacked(raw, Allowance())


@given(st.binary(max_size=200), st.integers(0, 7))
@settings(max_examples=examples(200))
def test_no_compressed_bytes_stop_it(body: bytes, codec: int) -> None:
    whole = with_body(body, codec)
    after = unpacked(whole, Allowance())
    if codec:
        assert len(records(after)) == 1
    assert not is_compressed(after)


@pytest.fixture
def without_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("read", [0, 1, 3])
def test_what_was_fetched_is_freed_when_it_is_dropped(without_collection: None, read: int) -> None:
    def fetched(of: Any) -> Any:
        raw = MemoryRecords(batch([b"a", b"b", b"c"], 0, base=7))
        return of(TopicPartition("t", 0), raw, None, 7, None, None, True, READ_UNCOMMITTED)

    ours, clients = fetched(FreedRecords), fetched(_PartitionRecords)
    taken = [next(ours).value for _ in range(read)]
    assert taken == [next(clients).value for _ in range(read)] == [b"a", b"b", b"c"][:read]
    assert ours.next_fetch_offset == clients.next_fetch_offset == 7 + read
    kept, others = weakref.ref(ours), weakref.ref(clients)
    del ours, clients
    assert kept() is None
    assert others() is not None, "the client frees it by itself now: FreedRecords may go"
