"""Fetched records, with compressed batches unpacked within bounds before the client sees them.

The client unpacks a batch whole, in the event loop, however large it becomes: one megabyte of gzip
may hold a gigabyte. Here each response of a broker is rewritten before the client reads it:

    compressed batch -> the same batch without compression, where it stays within the bounds
                     -> one record with the header `REFUSED` and the reason, where it does not

The reader makes a dead letter of that record (`runtime.reading`), and reading goes on behind the
batch. Unpacking runs on a thread. What is unpacked of one response is bounded as well: batches
behind the bound are left out of it, and the client fetches them again from where it stopped.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import re
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBase, DefaultRecordBatch
from aiokafka.record.util import calc_crc32c, encode_varint

from wharfinger.runtime.handed_over import AnsweredFetch

BATCH_UNPACKED_MAX = 8 * 1024 * 1024
"""Bytes of one batch without its compression. Producers gather at most a few hundred kilobytes."""

RESPONSE_UNPACKED_MAX = 2 * BATCH_UNPACKED_MAX
"""Bytes that are unpacked of one response; the first compressed batch is always unpacked."""

REFUSED = "wharfinger-refused"
"""Header of the record that stands for a batch which was not unpacked; its value is the reason."""

KEPT_BYTES = 64 * 1024
"""How much of a refused batch its record carries."""

FETCH_API_KEY = 1

_HEADER = DefaultRecordBase.HEADER_STRUCT
_CRC, _ATTRIBUTES = DefaultRecordBase.CRC_OFFSET, DefaultRecordBase.ATTRIBUTES_OFFSET
_AFTER_LENGTH = DefaultRecordBase.AFTER_LEN_OFFSET
_CODEC = DefaultRecordBase.CODEC_MASK
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"
"""What the header of snappy in blocks begins with; two numbers of four bytes follow."""
_TOO_SHORT = re.compile("whole buffer|smaller than required")
"""In the codecs' errors where the output does not fit; they have no type of their own for it."""
_LEGACY_ATTRIBUTES = 17
"""Offset of the attributes in a message of the formats before version 2."""
_MAGIC = 16


class _RefusedError(Exception):
    """The batch is not unpacked; the text is one line."""


class Allowance:
    """How many bytes may still be unpacked of one response."""

    def __init__(self, bytes_: int = RESPONSE_UNPACKED_MAX) -> None:
        self._left = bytes_
        self._used = False

    def take(self, size: int) -> None:
        self._left -= size
        self._used = True

    @property
    def spent(self) -> bool:
        return self._used and self._left < BATCH_UNPACKED_MAX


_PartitionRecords = fetcher.PartitionRecords


class FreedRecords(_PartitionRecords):
    """What was fetched of a partition, without the client's reference cycle: its generator of
    records refers to the object that keeps it.

    What is dropped before its last record stays in memory until cycles are collected, with the
    whole response it was cut from. Cycles are collected seldom here (`runtime.interpreter`): a
    process with little to do grew by 200 MB a minute."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._records_iterator = _PartitionRecords._unpack_records(weakref.proxy(self))


def bound(consumer: Any) -> None:
    """Unpack here what this started consumer fetches, and free it when it is dropped. It replaces a
    private attribute of the client's fetcher and a class of its module; a test of this module
    notices when those move."""
    consumer._fetcher._client = UnpackingClient(consumer._fetcher._client)
    fetcher.PartitionRecords = FreedRecords  # type: ignore[misc]


def is_compressed(records: bytes) -> bool:
    """Whether any batch among them is. Looks at headers only."""
    return any(_codec(records, start) for start, _ in _batches(records))


def unpacked(records: bytes, allowance: Allowance) -> bytes:
    """The same batches without compression, up to where the allowance ends. Offsets, transactions
    and times stay as they are."""
    found: list[bytes] = []
    for start, end in _batches(records):
        batch = records[start:end]
        codec = _codec(records, start)
        if codec:
            if allowance.spent:
                return b"".join(found)
            batch = _without_compression(batch, codec, allowance)
        found.append(batch)
    return b"".join(found)


class UnpackingClient:
    """A Kafka client whose fetched records come unpacked; all else is the client's own."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node: int, request: Any, **options: Any) -> Any:
        if isinstance(request, AnsweredFetch):
            return request.answer
        response = await self._client.send(node, request, **options)
        if getattr(response, "API_KEY", None) != FETCH_API_KEY:
            return response
        if any(
            is_compressed(entry[-1] or b"") for _, entries in response.topics for entry in entries
        ):
            # The consumer may be stopped meanwhile; the thread is bounded and ends by itself.
            response.topics = await asyncio.to_thread(_unpacked_topics, response.topics)
        return response


def _unpacked_topics(topics: Any) -> list[Any]:
    allowance = Allowance()
    return [
        (topic, [(*entry[:-1], unpacked(entry[-1] or b"", allowance)) for entry in entries])
        for topic, entries in topics
    ]


def _batches(records: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each whole batch. The last one of a response may be cut off; the client does
    not look at it either."""
    start = 0
    while start + _AFTER_LENGTH <= len(records):
        size = int.from_bytes(records[start + 8 : start + _AFTER_LENGTH], "big", signed=True)
        end = start + _AFTER_LENGTH + size
        if size <= _MAGIC or end > len(records):
            return
        yield start, end
        start = end


def _codec(records: bytes, start: int) -> int:
    if records[start + _MAGIC] < 2:
        return records[start + _LEGACY_ATTRIBUTES] & _CODEC
    return records[start + _ATTRIBUTES + 1] & _CODEC


def _without_compression(batch: bytes, codec: int, allowance: Allowance) -> bytes:
    if batch[_MAGIC] < 2:
        # The client reads such a message whole in any case: it is replaced by a batch.
        return _refused(batch, f"a compressed record of message format {batch[_MAGIC]}")
    if len(batch) < _HEADER.size or calc_crc32c(batch[_ATTRIBUTES:]) != int.from_bytes(
        batch[_CRC : _CRC + 4], "big"
    ):
        return batch  # the client finds that out, and fetches it again
    try:
        body = _decompressed(batch[_HEADER.size :], codec)
        allowance.take(len(body))
        plain = _batch(batch, body)
        for _ in DefaultRecordBatch(plain):
            pass
    except _RefusedError as error:
        return _refused(batch, str(error))
    except Exception as error:  # the client's parser may raise anything on hostile bytes
        return _refused(batch, f"no records in it: {type(error).__name__}")
    return plain


def _decompressed(body: bytes, codec: int) -> bytes:
    match _CODECS.get(codec):
        case "gzip":
            return _gunzipped(body)
        case "snappy" if body.startswith(_XERIAL):
            return _of_blocks(body)
        case "snappy":
            return _within_bounds(body, "snappy", cramjam.snappy.decompress_raw_into)
        case "lz4":
            return _within_bounds(body, "lz4", cramjam.lz4.decompress_into)
        case "zstd":
            return _within_bounds(body, "zstd", cramjam.zstd.decompress_into)
        case _:
            raise _RefusedError(
                f"compressed with codec {codec}; expected none, gzip, snappy, lz4 or zstd"
            )


def _gunzipped(body: bytes) -> bytes:
    found: list[bytes] = []
    left, size = BATCH_UNPACKED_MAX, len(body)
    try:
        while body:  # members may follow each other
            member = zlib.decompressobj(wbits=31)
            found.append(member.decompress(body, left + 1))
            left -= len(found[-1])
            if left < 0:
                raise _too_large(size)
            if not member.eof:
                raise _RefusedError("a gzip stream that ends too early")
            body = member.unused_data
    except zlib.error as error:
        raise _RefusedError(f"not gzip: {error}") from None
    return b"".join(found)


def _within_bounds(
    body: bytes,
    name: str,
    decompress_into: Callable[[bytes, bytearray], int],
    left: int = BATCH_UNPACKED_MAX,
) -> bytes:
    """What is unpacked of `body`, of `left` bytes at most."""
    room = bytearray(left + 1)
    try:
        size = decompress_into(body, room)
    except cramjam.DecompressionError as error:
        if _TOO_SHORT.search(str(error)):
            raise _too_large(len(body)) from None
        raise _RefusedError(f"not {name}: {error}") from None
    if size == len(room):
        raise _too_large(len(body))
    return bytes(memoryview(room)[:size])


def _of_blocks(body: bytes) -> bytes:
    """Snappy as Java's producers write it: a header of 16 bytes, then blocks behind their sizes."""
    found: list[bytes] = []
    left, start = BATCH_UNPACKED_MAX, len(_XERIAL) + 8
    while start < len(body):
        end = start + 4 + int.from_bytes(body[start : start + 4], "big", signed=True)
        if not start + 4 < end <= len(body):
            raise _RefusedError("not snappy: a block that ends too early")
        found.append(
            _within_bounds(
                body[start + 4 : end], "snappy", cramjam.snappy.decompress_raw_into, left
            )
        )
        left -= len(found[-1])
        start = end
    return b"".join(found)


def _too_large(compressed: int) -> _RefusedError:
    return _RefusedError(
        f"a batch of {compressed:,} compressed bytes has more than "
        f"{BATCH_UNPACKED_MAX:,} without compression"
    )


def _batch(like: bytes, body: bytes, *, count: int | None = None) -> bytes:
    """A batch with the header of `like`, without compression, around `body`."""
    header = list(_HEADER.unpack_from(like))
    header[1] = _HEADER.size - _AFTER_LENGTH + len(body)
    header[5] &= ~_CODEC
    if count is not None:
        header[12] = count
    whole = bytearray(_HEADER.pack(*header) + body)
    whole[_CRC : _CRC + 4] = calc_crc32c(bytes(whole[_ATTRIBUTES:])).to_bytes(4, "big")
    return bytes(whole)


def _refused(batch: bytes, reason: str) -> bytes:
    """One record at the first offset of the batch, which carries the beginning of its bytes."""
    if batch[_MAGIC] < 2:
        base = int.from_bytes(batch[:8], "big", signed=True)
        like = _HEADER.pack(base, 0, -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
    else:
        like = batch
    why = f"not unpacked: {reason}".encode()
    name, value = REFUSED.encode(), batch[:KEPT_BYTES]
    record = bytearray(b"\0")
    for number in (0, 0, -1, len(value)):  # time, offset, no key, value
        encode_varint(number, record.append)
    record += value
    encode_varint(1, record.append)
    for text in (name, why):
        encode_varint(len(text), record.append)
        record += text
    sized = bytearray()
    encode_varint(len(record), sized.append)
    return _batch(like, bytes(sized + record), count=1)
