"""Ids are made and read by shorter ways than the standard library's; they must lead to the same
place."""

from __future__ import annotations

from uuid import UUID, uuid4, uuid5

import pytest

from wharfinger.events.envelope import NAMESPACE, derived_id, event_id, named_id, uuid_of
from wharfinger.kernel.step import decision_id


@pytest.mark.parametrize("name", ["", "a", "fleet/0\x001", "kai/größe", "x" * 1000, "\x00"])
def test_a_named_id_is_the_uuid5_of_its_name(name: str) -> None:
    made = named_id(name)
    assert (made, made.version, made.variant) == (
        uuid5(NAMESPACE, name),
        5,
        uuid5(NAMESPACE, name).variant,
    )


def test_an_id_is_derived_from_its_parts_in_order() -> None:
    assert derived_id("tick", "fleet/0", 7) == uuid5(NAMESPACE, "tick\x00fleet/0\x007")
    assert decision_id("fleet/0", 12) == derived_id("fleet/0", 12)


@pytest.mark.parametrize(
    "spell", [str, lambda u: str(u).upper(), lambda u: u.hex, lambda u: u.urn, lambda u: f"{{{u}}}"]
)
def test_every_spelling_of_a_uuid_is_read(spell: object) -> None:
    id = uuid4()
    assert callable(spell)
    assert uuid_of(spell(id)) == id


@pytest.mark.parametrize("text", ["", "oslo", "1" * 31, "g" * 36, "-" * 36])
def test_what_is_no_uuid_is_none(text: str) -> None:
    assert uuid_of(text) is None


def test_an_event_keeps_its_producers_uuid_and_else_gets_one_from_source_and_id() -> None:
    id = uuid4()
    oddly_hyphened = f"{id.hex[:2]}-{id.hex[2:4]}-{id.hex[4:6]}-{id.hex[6:8]}-{id.hex[8:]}"
    assert (
        event_id("/oslo", str(id))
        == event_id("/bergen", oddly_hyphened)
        == UUID(oddly_hyphened)
        == id
    )
    assert event_id("/oslo", "41") == uuid5(NAMESPACE, "/oslo\x0041")
    assert event_id("/oslo", "x" * 36) == uuid5(NAMESPACE, "/oslo\x00" + "x" * 36)
    assert event_id("/oslo", id.hex) == uuid5(NAMESPACE, f"/oslo\x00{id.hex}")
