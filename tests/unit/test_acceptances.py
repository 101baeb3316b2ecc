"""When everything that was accepted together has been read."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.counter import withdrawn

from wharfinger.events.streams import TOGETHER_BYTES_MAX, Together, together_of
from wharfinger.runtime.acceptances import KEPT, Acceptances, ReadPlaces
from wharfinger.runtime.messages import Message

SIZES = st.dictionaries(
    st.sampled_from(["a/0", "a/1", "b/0", "c/2"]), st.integers(1, 4), min_size=1, max_size=4
)


def acceptance(name: str, sizes: dict[str, int], first: dict[str, int]) -> dict[str, list[Message]]:
    """As its publisher marks it: so many records at each place, from these offsets on."""
    mark = Together(name, tuple(sizes)) if len(sizes) > 1 else None
    found: dict[str, list[Message]] = {}
    for place, size in sizes.items():
        topic, _, partition = place.rpartition("/")
        begin = first.get(place, 0)
        found[place] = [
            Message(
                topic,
                int(partition),
                offset,
                withdrawn(offset),
                followed=offset < begin + size - 1,
                together=mark if offset == begin + size - 1 else None,
            )
            for offset in range(begin, begin + size)
        ]
        first[place] = begin + size
    return found


@given(
    st.lists(SIZES, min_size=1, max_size=4),
    st.sets(st.sampled_from(["a/0", "a/1", "b/0", "c/2"])),
    st.integers(0, 2**32),
)
def test_it_is_incomplete_exactly_while_a_record_is_missing(
    sizes: list[dict[str, int]], read: set[str], seed: int
) -> None:
    """Places overtake each other, records come again; places that are not read here do not
    count."""
    random, first = Random(seed), dict[str, int]()
    found, places = Acceptances(lambda place: place in read), ReadPlaces()
    for number, one in enumerate(sizes):
        made = acceptance(f"acceptance-{number}", one, first)
        rest = {place: records for place, records in made.items() if place in read}
        last = [records[-1] for records in rest.values()]
        while rest:
            place = random.choice(sorted(rest))
            message = rest[place][0]
            for _ in range(random.choice((1, 1, 2))):
                found.add(message)
                places.add(message)
            del rest[place][0]
            if not rest[place]:
                del rest[place]
            assert found.incomplete() is bool(rest)
        assert not any(places.lacks(message, lambda place: place in read) for message in last)


def test_a_header_is_read_as_it_was_written() -> None:
    mark = Together("9f", ("wharfinger.clusters/0", "wharfinger.bindings/12"))
    assert together_of(mark.header()) == mark


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"only-a-name",
        b" x/0",
        "n\u00e4me x/0".encode(),
        b"a " + b"x" * TOGETHER_BYTES_MAX,
    ],
)
def test_a_header_that_is_not_ours_says_nothing(header: bytes | None) -> None:
    assert together_of(header) is None


def test_of_many_acceptances_the_newest_are_remembered() -> None:
    places = ReadPlaces()
    first = dict[str, int]()
    made = [
        acceptance(f"n-{number}", {"a/0": 1, "b/0": 1}, first)["a/0"][0]
        for number in range(KEPT + 1)
    ]
    other = [Message("b", 0, m.offset, m.event, together=m.together) for m in made]
    for message in made:
        places.add(message)
    assert places.lacks(other[0], lambda _: True)
    assert not places.lacks(other[1], lambda place: place == "a/0")
