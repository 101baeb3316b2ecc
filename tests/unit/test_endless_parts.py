"""Parts of events that never end, or claim to be many, do not fill the memory of a reader."""

from __future__ import annotations

import base64
from functools import partial
from random import Random

import pytest

from wharfinger.domain.value import Value
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.codec import UndecodableError, decode, encode, made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.event_part import EventPart
from wharfinger.events.parts import PARTS_MAX, Assembler, divided, least_limit

PLACE = ("wharfinger.bindings", 0)
PIECE = 1000


def part(event: str, number: int, of: int, size: int = PIECE) -> tuple[Event[Value], EventPart]:
    payload = base64.b64encode(bytes(size)).decode()
    data = EventPart(event, number, of, "0" * 64, payload)
    return made(data, id=derived_id(event, number), source="/hostile", subject="s"), data


def held(assembler: Assembler) -> int:
    return sum(
        len(piece)
        for sets in assembler._open.values()
        for one in sets.values()
        for piece in one.pieces
    )


def test_an_event_whose_parts_never_end_is_refused_and_its_records_are_done_with() -> None:
    assembler = Assembler(joined_max=10 * PIECE)
    done: list[int] = []
    for number in range(1, 11):
        event, data = part("endless", number, 5000)
        assert assembler.add(PLACE, number, event, data, partial(done.append, number)) is None
    event, data = part("endless", 11, 5000)
    with pytest.raises(UndecodableError, match="event endless: expected at most 10,000 bytes"):
        assembler.add(PLACE, 11, event, data, None)
    assert done == list(range(1, 11))
    assert held(assembler) == 0
    assert assembler.reached(PLACE, 11) == 12


@pytest.mark.parametrize(
    ("number", "of"), [(1, PARTS_MAX + 1), (0, 5), (-1, 5), (6, 5), (1, 0), (2**62, 2**62)]
)
def test_a_part_that_cannot_be_one_is_refused(number: int, of: int) -> None:
    assembler = Assembler()
    event, data = part("strange", number, of)
    with pytest.raises(UndecodableError, match=f"got {number} of {of}"):
        assembler.add(PLACE, 1, event, data, None)
    assert held(assembler) == 0


def test_events_that_stay_open_give_way_to_one_that_grows() -> None:
    assembler = Assembler(joined_max=10 * PIECE, held_max=20 * PIECE)
    offset = 0
    for number in range(200):
        offset += 1
        event, data = part(f"open-{number}", 1, 2)
        assembler.add(PLACE, offset, event, data, None)
        assert held(assembler) <= 20 * PIECE
    message = encode(
        BindingWithdrawn("shop/" + "".join(map(str, Random(3).choices(range(10), k=490)))),
        id=derived_id("good"),
        source="/good",
        subject="shop/web",
    )
    joined = None
    for body in divided(message, least_limit(message)):
        offset += 1
        event = decode(body)
        assert isinstance(event.data, EventPart)
        joined = assembler.add(PLACE, offset, event, event.data, None)
    assert joined is not None
    assert joined.body == message
