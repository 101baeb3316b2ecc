"""Bodies come back as they were packed, and nothing may stand beside them."""

from __future__ import annotations

import pytest

from wharfinger.runtime.ledger.bodies import PLAIN, ZSTD, pack, unpack

LONG = b'{"binding":"shop/web"}' * 100


@pytest.mark.parametrize("body", [b"", b"{}", LONG])
def test_a_body_comes_back(body: bytes) -> None:
    assert unpack(*pack(body)) == body


@pytest.mark.parametrize("behind", [b"\x00", b"hidden", pack(LONG)[1]])
def test_bytes_behind_a_packed_body_are_refused(behind: bytes) -> None:
    encoding, stored = pack(LONG)
    assert encoding == ZSTD
    with pytest.raises(ValueError, match="not a zstd frame"):
        unpack(encoding, stored + behind)


def test_an_encoding_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown encoding 7"):
        unpack(7, b"{}")
    assert unpack(PLAIN, LONG) == LONG
