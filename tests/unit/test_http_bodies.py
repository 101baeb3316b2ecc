"""Answers of servers stay within their bound, also where they unpack to far more."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence

import httpx
import pytest
import zstandard

from wharfinger.runtime.http_bodies import BodyTooLargeError, body_within

MOST = 100_000
UNPACKED_BYTES = 256 * 1024 * 1024


class Sent(httpx.AsyncByteStream):
    def __init__(self, body: bytes, piece: int = 65_536) -> None:
        self._body, self._piece = body, piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), self._piece):
            yield self._body[start : start + self._piece]


def answer(body: bytes, encoding: str = "", piece: int = 65_536) -> httpx.Response:
    headers = {"Content-Encoding": encoding} if encoding else {}
    return httpx.Response(200, headers=headers, stream=Sent(body, piece))


@pytest.mark.parametrize("piece", [1, 7, 65_536])
@pytest.mark.parametrize("encoding", ["", "identity", "gzip", "GZIP", "x-gzip"])
async def test_a_body_within_the_bound_is_read(encoding: str, piece: int) -> None:
    plain = b'{"status": "success"}' * 20
    packed = gzip.compress(plain) if "gzip" in encoding.lower() else plain
    assert await body_within(answer(packed, encoding, piece), len(plain)) == plain
    with pytest.raises(BodyTooLargeError, match="exceeds 419 bytes"):
        await body_within(answer(packed, encoding, piece), len(plain) - 1)


async def test_an_empty_body_is_empty() -> None:
    assert await body_within(answer(b"", "gzip"), MOST) == b""


@pytest.mark.parametrize(
    ("packers", "encoding", "error"),
    [
        ([gzip.compress], "gzip", BodyTooLargeError),
        ([zstandard.compress], "zstd", httpx.DecodingError),
        ([gzip.compress, gzip.compress], "gzip, gzip", httpx.DecodingError),
    ],
    ids=["gzip", "zstd", "gzip of gzip"],
)
async def test_a_bomb_is_not_unpacked(
    packers: Sequence[Callable[[bytes], bytes]], encoding: str, error: type[Exception]
) -> None:
    packed = bytes(UNPACKED_BYTES)
    for pack in packers:
        packed = pack(packed)
    tracemalloc.start()
    try:
        with pytest.raises(error):
            await body_within(answer(packed, encoding, len(packed)), MOST)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "body", [b"not gzip", gzip.compress(b"x" * 100)[:-4]], ids=["not gzip", "cut short"]
)
async def test_what_is_no_gzip_is_said(body: bytes) -> None:
    with pytest.raises(httpx.DecodingError, match="gzip"):
        await body_within(answer(body, "gzip"), MOST)
