"""The text that names the next page of a list: what was put into it comes out of it."""

from __future__ import annotations

import json
import zlib
from base64 import urlsafe_b64encode

import pytest

from wharfinger_api.asked import cursor_in, cursor_text

SEQS = {f"cluster/c-{number:03}": number * 977 for number in range(100)}
BEGUN = {name: seq for name, seq in SEQS.items() if seq}


@pytest.mark.parametrize("place", ["shop/web", "shop/wéb-✓", "", {"fleet/0": 12, "cluster/a": 3}])
def test_the_cut_and_the_place_come_out_again(place: object) -> None:
    assert cursor_in(cursor_text(SEQS, place)) == (BEGUN, place)


def test_the_same_cut_has_the_same_text() -> None:
    turned = dict(reversed(SEQS.items()))
    assert cursor_text(turned, "shop/web") == cursor_text(BEGUN, "shop/web")


def test_a_text_of_another_compression_is_read() -> None:
    packed = zlib.compress(json.dumps([BEGUN, "shop/web"]).encode(), 9)
    assert cursor_in(urlsafe_b64encode(packed).decode().rstrip("=")) == (BEGUN, "shop/web")
