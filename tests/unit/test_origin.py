"""Who brought an event in: in the bytes that are hashed, and nothing else of them changes."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from tests.counter import withdrawn

from wharfinger.answers.event_text import told
from wharfinger.events.codec import decode, made
from wharfinger.events.origin import (
    AS_IT_CAME,
    Origin,
    of_service,
    origin_of,
    origin_plain,
    stamped,
)
from wharfinger.events.plans import PlanRequested

ADA = Origin("user", "unix:ada", "the lab moves", "9f3c1d2")


def test_the_origin_is_in_the_hashed_bytes_and_the_event_is_the_same() -> None:
    event = withdrawn(1)
    by_ada = stamped(event, ADA)
    assert origin_of(by_ada.body) == ADA
    assert by_ada.sha256 == hashlib.sha256(by_ada.body).digest() != event.sha256
    read = decode(by_ada.body)
    assert (read.id, read.type, read.data) == (event.id, event.type, event.data)
    plain = msgspec.json.decode(by_ada.body)
    assert {k: v for k, v in plain.items() if k not in Origin.__struct_fields__} == (
        msgspec.json.decode(event.body)
    )


def test_an_event_of_before_keeps_its_bytes_and_says_nothing() -> None:
    event = withdrawn(1)
    assert stamped(event, AS_IT_CAME) is event
    assert origin_of(event.body) == AS_IT_CAME
    assert origin_of(b"{") == origin_of(b'{"authtype": 7}') == AS_IT_CAME


def test_what_a_producer_claims_is_replaced_and_its_own_extensions_stay() -> None:
    body = msgspec.json.decode(withdrawn(1).body)
    body |= {"authid": "unix:root", "changereason": "trust me", "shop": "own"}
    forged = msgspec.structs.replace(withdrawn(1), body=msgspec.json.encode(body))
    by_us = stamped(forged, of_service("collector"))
    assert origin_of(by_us.body) == Origin("service_account", "wharfinger:collector")
    assert msgspec.json.decode(by_us.body)["shop"] == "own"
    assert by_us.body.count(b"authid") == 1


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"authtype": "root"}, "authtype: expected one of app_user, user"),
        ({"changereason": "a\nb"}, "reason: expected one line of at most 500 characters"),
        ({"changerevision": "x" * 501}, "revision: expected one line of at most 500 characters"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(fields: dict[str, str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Origin(**fields)


@pytest.mark.parametrize(
    ("source", "origin", "said"),
    [
        ("/wharfinger/command-line", AS_IT_CAME, "by the command line"),
        ("/wharfinger/command-line", ADA, "by unix:ada (the lab moves, 9f3c1d2)"),
        ("/wharfinger/plan", Origin("user", "unix:ada"), "by unix:ada from a plan"),
        ("/shop/queue", Origin("user", "unix:ada", "", "v7"), "by unix:ada from /shop/queue (v7)"),
        ("/wharfinger/collector/hub", of_service("collector"), "by collector/hub"),
        ("/wharfinger/collector/hub", AS_IT_CAME, "by collector/hub"),
    ],
)
def test_people_read_who_brought_it_in_and_why(source: str, origin: Origin, said: str) -> None:
    event = made(withdrawn(1).data, id=withdrawn(1).id, source=source, subject="b")
    assert told(stamped(event, origin)) == f"withdrawn, {said}"


def test_a_plan_names_who_applied_it_and_one_of_before_names_only_itself() -> None:
    event = made(
        PlanRequested("p-1", "fleet/0", ()),
        id=withdrawn(1).id,
        source="/wharfinger/plan",
        subject="p-1",
    )
    assert told(event) == "a plan of 0 steps"
    assert told(stamped(event, ADA)) == "a plan of 0 steps, by unix:ada (the lab moves, 9f3c1d2)"


def test_programs_read_the_attributes_that_are_there() -> None:
    assert origin_plain(withdrawn(1).body) == {}
    assert origin_plain(stamped(withdrawn(1), Origin("user", "unix:ada")).body) == {
        "authtype": "user",
        "authid": "unix:ada",
    }
