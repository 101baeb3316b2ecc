"""Records of a publisher that had not noticed yet that a topic began again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.counter import withdrawn
from tests.fuzz.records import INCARNATION, TOPIC, LetterReading, Record

from wharfinger.events.streams import TOPICS_INCARNATION, written_earlier
from wharfinger.runtime.decode_cache import Decoded
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.reading import InOrder


class Acknowledged(Record):
    """A record that counts what is acknowledged."""

    acks: list[int]

    def ack(self) -> None:
        self.acks.append(self.offset)


def a_record(offset: int, headers: list[tuple[str, bytes]], acks: list[int]) -> Acknowledged:
    record = Acknowledged(TOPIC, 0, offset, b"shop/web", withdrawn(offset).body, headers)
    record.acks = acks
    return record


def taken(written_in: list[bytes | None]) -> tuple[list[int], list[int]]:
    """The offsets that became messages, and those that were acknowledged."""
    acks: list[int] = []
    reading = LetterReading(
        "tests",
        None,  # type: ignore[arg-type]  # letters do not come so far
        {TOPIC: INCARNATION},
        lambda wire: wire,
        METRICS.of("tests"),
        Decoded(0),
        InOrder(),
    )
    reading.letters = []
    records = [
        a_record(n, [] if one is None else [(TOPICS_INCARNATION, one)], acks)
        for n, one in enumerate(written_in)
    ]
    messages = asyncio.run(reading.messages(records))
    assert not reading.letters
    for message in messages:
        assert message.ack is not None
        message.ack()
    return [message.offset for message in messages], acks


def test_what_was_written_before_the_topics_incarnation_is_left_out_and_acknowledged() -> None:
    messages, acks = taken([b"1", b"2", None, b"1", b"3"])
    assert messages == [1, 2, 4]
    assert acks == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("header", [b"", b"-1", b"1.0", b" 1", b"\xb2", b"1" * 19, b"one"])
def test_a_header_that_is_not_ours_leaves_nothing_out(header: bytes) -> None:
    assert not written_earlier(header, 2**62)
    assert taken([header])[0] == [0]


@given(st.integers(0, 10**18 - 1), st.integers(0, 10**18))
def test_a_lower_number_is_an_earlier_one(written_in: int, incarnation: int) -> None:
    assert written_earlier(str(written_in).encode(), incarnation) == (written_in < incarnation)
