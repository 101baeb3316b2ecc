"""Bodies as they are stored: byte for byte as they came, compressed when that pays.

What is hashed is always the plain body; the encoding is a matter of storage and may differ between
rows.
"""

from __future__ import annotations

import threading

import zstandard

PLAIN = 0
ZSTD = 1

# Smaller ones are read far more often than they are worth: opening a zstd frame of some hundred
# bytes takes 2 us, as long as decoding what is in it, and making one 4 us of every commit. For the
# 25,695 decisions and 8,455 events of the openb run it would save 7 MB of 36; of what is larger,
# which is where the bytes of a fleet's facts are, compression still takes four fifths.
_WORTH_TRYING_BYTES = 1024

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
    """The body that was packed. ValueError: these bytes are no such thing, or more than that."""
    if encoding == PLAIN:
        return stored
    if encoding != ZSTD:
        raise ValueError(f"unknown encoding {encoding}")
    try:
        return _codecs.decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"not a zstd frame: {error}") from None
