"""What an API server, or what stands in front of it, may answer: each is an error of one line."""

from __future__ import annotations

import msgspec
import pytest

from wharfinger.runtime.kube.api import (
    PAUSE_S_MAX,
    UNREADABLE,
    ApiError,
    KubeApi,
    UnreachableError,
    _pause_s,
)
from wharfinger.runtime.kube.kubeconfig import Access


class _Named(msgspec.Struct):
    message: str = ""


STRANGE = {
    "no JSON": b"<html>",
    "another shape": b"[]",
    "no UTF-8": b'{"message": "\xff"}',
    "nested without end": b'{"other":' + b"[" * 100_000,
}


@pytest.mark.parametrize("body", STRANGE.values(), ids=list(STRANGE))
def test_what_is_no_answer_of_an_api_server_is_one_error(body: bytes) -> None:
    api = KubeApi(Access("https://oslo.example"))
    with pytest.raises(UnreachableError, match="example/x: not the answer of an API"):
        api.decoded(body, _Named, "/x")
    with pytest.raises(UNREADABLE):
        ApiError.of(body, 500)


@pytest.mark.parametrize("asked", [10**400, 2**63, 10**9, -1])
def test_a_pause_is_a_number_of_seconds_that_can_be_waited(asked: int) -> None:
    error = ApiError.of(b'{"details": {"retryAfterSeconds": %d}}' % asked, 429)
    assert error.retry_after_s == (PAUSE_S_MAX if asked > 0 else 0.0)


@pytest.mark.parametrize(
    ("header", "pause"),
    [
        ("7", 7.0),
        ("9" * 400, PAUSE_S_MAX),
        ("Fri, 31 Dec 9999 23:59:59 GMT", PAUSE_S_MAX),
        ("Sat, 01 Jan 0001 00:00:00 -0000", 0.0),
        ("soon", 0.0),
        ("", 0.0),
    ],
)
def test_a_header_that_names_a_pause(header: str, pause: float) -> None:
    assert _pause_s(header) == pause
