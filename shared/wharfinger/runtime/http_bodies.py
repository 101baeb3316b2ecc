"""The body of an HTTP answer within a bound, also where it is compressed.

httpx unpacks each chunk that comes whole: 64 KiB of gzip may hold 64 MiB, as zstd 2 GiB, and
encodings may be laid over each other. Here the bound is asked for while unpacking. Only gzip is
asked for, and one encoding is unpacked.
"""

from __future__ import annotations

import zlib

import httpx

ACCEPT_ENCODING = {"Accept-Encoding": "gzip"}
"""For the headers of a request whose answer is read here."""

_GZIP = 16 + zlib.MAX_WBITS


class BodyTooLargeError(Exception):
    """The body has more bytes than it may; one line."""


async def body_within(response: httpx.Response, bytes_max: int) -> bytes:
    """The body of an answer whose stream is open, unpacked.

    BodyTooLargeError: it has more than `bytes_max` bytes, packed or unpacked. httpx.DecodingError:
    its encoding is another one, or broken."""
    encoding = response.headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise httpx.DecodingError(f"expected gzip or none, got {encoding[:80]}")
    unpacker = None if encoding == "identity" else zlib.decompressobj(wbits=_GZIP)
    body, came = bytearray(), 0
    async for chunk in response.aiter_raw():
        came += len(chunk)
        body += chunk if unpacker is None else _unpacked(unpacker, chunk, bytes_max + 1 - len(body))
        if max(came, len(body)) > bytes_max:
            raise BodyTooLargeError(f"the answer exceeds {bytes_max:,} bytes")
    if unpacker is not None and came and not unpacker.eof:
        raise httpx.DecodingError("a gzip stream that ends too early")
    return bytes(body)


def _unpacked(unpacker: zlib._Decompress, chunk: bytes, most: int) -> bytes:
    """What the chunk adds, of `most` bytes at most; nothing behind the end of the stream."""
    if unpacker.eof:
        return b""
    try:
        return unpacker.decompress(chunk, most)
    except zlib.error as error:
        raise httpx.DecodingError(f"not gzip: {error}") from None
