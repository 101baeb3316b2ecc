"""Bodies as they are stored: byte for byte as they came, compressed when that pays.

What is hashed is always the plain body; the encoding is a matter of storage and may differ between rows.
"""

from __future__ import annotations

import threading

import zstandard

PLAIN = 0
ZSTD = 1

# Below this a zstd frame saves less than a row's own overhead, and costs more time than the bytes it saves.
_WORTH_TRYING_BYTES = 384

_WORTH_KEEPING = 7 / 8


class _Codecs(threading.local):
    """The library's contexts must not be shared between threads."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=1).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_codecs = _Codecs()


def pack(body: bytes) -> tuple[int, bytes]:
    """(encoding, stored bytes)."""
    if len(body) < _WORTH_TRYING_BYTES:
        return PLAIN, body
    packed = _codecs.compress(body)
    return (ZSTD, packed) if len(packed) < len(body) * _WORTH_KEEPING else (PLAIN, body)


def unpack(encoding: int, stored: bytes) -> bytes:
    """The body that was packed. ValueError: these bytes are no such thing."""
    if encoding == PLAIN:
        return stored
    if encoding != ZSTD:
        raise ValueError(f"unknown encoding {encoding}")
    try:
        return _codecs.decompress(stored)
    except zstandard.ZstdError as error:
        raise ValueError(f"not a zstd frame: {error}") from None
