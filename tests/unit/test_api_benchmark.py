"""What `python -m benchmarks.api` counts: frames in bytes that come in chunks of any size."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from benchmarks.api import options_of, spread
from benchmarks.api_subscribers import KEPT, FrameCount

STREAM = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    b'2a\r\nretry: 2000\nevent: opened\ndata: {"head":1}\n\n\r\n'
    b'50\r\nid: 2\nevent: schedule.decided\ndata: {"id":"a"}\n\n'
    b'id: 3\nevent: replicas.placed\ndata: {"id":"b"}\n\n\r\n'
    b'2a\r\nid: 9\nevent: bookmark\ndata: {"position":9}\n\n\r\n'
    b"5\r\n: \n\n\r\n"
    b'2a\r\nid: 10\nevent: schedule.decided\ndata: {"id":"c"}\n\n\r\n'
)


def counted(chunks: Sequence[bytes]) -> tuple[bool, int]:
    count, buffer = FrameCount(), bytearray(KEPT + len(STREAM))
    for chunk in chunks:
        count.before(buffer)
        buffer[KEPT : KEPT + len(chunk)] = chunk
        count.after(buffer, len(chunk))
    return count.opened, count.events


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 15, 16, 17, 40, len(STREAM)])
def test_frames_are_counted_once_in_chunks_of_any_size(size: int) -> None:
    chunks = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert counted(chunks) == (True, 3)


def test_frames_are_counted_once_wherever_the_stream_is_cut() -> None:
    for cut in range(1, len(STREAM)):
        assert counted([STREAM[:cut], STREAM[cut:]]) == (True, 3), cut


def test_what_is_left_in_the_buffer_of_a_longer_chunk_is_not_counted() -> None:
    """The buffer is one of all connections."""
    buffer = bytearray(KEPT + len(STREAM))
    first, second = FrameCount(), FrameCount()
    first.before(buffer)
    buffer[KEPT:] = STREAM
    first.after(buffer, len(STREAM))
    second.before(buffer)
    second.after(buffer, 0)
    assert (second.opened, second.events) == (False, 0)


def test_names_are_chosen_evenly() -> None:
    assert spread("abcdefghij", 5) == tuple("acegi")
    assert spread("abc", 5) == tuple("abc")


@pytest.mark.parametrize("name", ["--bindings", "--subscribers", "--seconds"])
def test_a_size_below_one_is_refused_in_a_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        options_of([name, "0"])
    assert ended.value.code == 2
    assert f"{name}: expected at least 1, got 0" in capsys.readouterr().err
