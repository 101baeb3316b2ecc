"""Source and id together name an event: what another source has sent keeps nothing out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.counter import withdrawn

from wharfinger.domain.value import Value
from wharfinger.events.codec import decode, made
from wharfinger.events.envelope import Event, derived_id, told_apart

ID = derived_id("used")


def of(source: str, id: UUID = ID) -> Event[Value]:
    return made(withdrawn(0).data, id=id, source=source, subject="web")


def taken_in(batches: Sequence[Sequence[Event[Value]]]) -> dict[UUID, Event[Value]]:
    """As a stage takes in what comes: each id once."""
    taken: dict[UUID, Event[Value]] = {}
    for batch in batches:
        for event in told_apart(batch, {id_: event.source for id_, event in taken.items()}):
            taken.setdefault(event.id, event)
    return taken


def test_an_event_whose_id_is_free_stays_as_it_is() -> None:
    first, second = of("/a"), of("/b", derived_id("free"))
    assert told_apart([first, second], {}) == [first, second]


def test_the_other_id_stands_in_the_envelope_and_is_always_the_same() -> None:
    (renamed,) = told_apart([of("/b")], {ID: "/a"})
    assert renamed.id != ID
    assert renamed == decode(renamed.body)
    assert renamed.sha256 == hashlib.sha256(renamed.body).digest()
    assert told_apart([of("/b")], {ID: "/a"}) == [renamed]
    assert len(renamed.body) == len(of("/b").body)


def test_an_id_of_a_retired_round_is_taken_for_the_same_event() -> None:
    assert told_apart([of("/b")], {ID: ""}) == [of("/b")]


def test_a_fact_of_the_plane_is_one_fact_by_whichever_way_it_came() -> None:
    told = [of("/wharfinger/api"), of("/wharfinger/command-line")]
    assert {event.id for event in told_apart(told, {})} == {ID}


SOURCES = ("/a", "/b", "/c")
CHAIN = [ID]
for _ in range(3):  # ids that a source would get, which others may send first
    CHAIN.append(told_apart([of("/b", CHAIN[-1])], {CHAIN[-1]: "/a"})[0].id)


@given(
    st.lists(st.tuples(st.sampled_from(SOURCES), st.sampled_from(CHAIN)), max_size=12),
    st.lists(st.integers(0, 12), max_size=4),
)
def test_each_source_has_each_of_its_ids_once_however_they_come(
    sent: list[tuple[str, UUID]], cuts: list[int]
) -> None:
    events = [of(source, id_) for source, id_ in [*sent, *sent]]
    edges = [0, *sorted(cuts), len(events)]
    batches = [events[a:b] for a, b in pairwise(edges)]
    taken = taken_in(batches)
    for source in SOURCES:
        assert any(event.source == source for event in taken.values()) == any(
            source == one for one, _ in sent
        )
    assert taken == taken_in([events])
