"""Numbers that 64 bits do not hold are poison: whoever takes one in fails later, far from the
message that brought it."""

from __future__ import annotations

import json

import pytest

from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.node import Node
from wharfinger.domain.value import NAME_LENGTH_MAX, Value, canonical
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.codec import (
    UndecodableError,
    decode,
    decode_data,
    decode_data_to_fold,
    decode_recorded,
    encode,
    encode_raw,
    frame_of,
)
from wharfinger.events.decisions import Explanation, ScheduleDecided
from wharfinger.events.envelope import derived_id
from wharfinger.events.message_codec import INT64_MAX, INT64_MIN

MARK = 4711
"""A number to be replaced by another one in the bytes: the encoder itself would refuse to write
most of them."""


def message(data: Value, number: int | str) -> bytes:
    body = encode(data, id=derived_id("test"), source="/tests", subject="web")
    assert str(MARK).encode() in body
    return body.replace(str(MARK).encode(), str(number).encode())


def a_binding(replicas: int = 1, cpu: int = 1, uid: str = "u") -> BindingRequested:
    return BindingRequested(
        Binding(
            "shop/web",
            uid,
            ObjectRef("apps/v1", "Deployment", "web"),
            replicas,
            Requirements({"cpu": cpu}),
        )
    )


@pytest.mark.parametrize(
    "number", [INT64_MAX + 1, INT64_MIN - 1, 2**64 - 1, 2**64, -(2**64), 10**300]
)
@pytest.mark.parametrize(
    "data",
    [
        a_binding(replicas=MARK),
        a_binding(cpu=MARK),
        NodesObserved("oslo", 0, 1, (Node("a", {}), Node("b", {"memory": MARK}))),
    ],
    ids=["field", "mapping", "deep"],
)
def test_a_number_beyond_64_bits_is_refused_in_one_line(data: Value, number: int) -> None:
    with pytest.raises(
        UndecodableError, match=r"expected numbers of at most 64 bits|out of range"
    ) as refusal:
        decode(message(data, number))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("number", [INT64_MAX, INT64_MIN, 10**18])
def test_the_largest_numbers_are_taken(number: int) -> None:
    data = decode(message(a_binding(replicas=MARK), number)).data
    assert isinstance(data, BindingRequested)
    assert data.binding.replicas == number


def test_digits_of_a_name_are_no_number() -> None:
    data = decode(message(a_binding(uid=str(MARK)), "9" * 40)).data
    assert isinstance(data, BindingRequested)
    assert data.binding.uid == "9" * 40


@pytest.mark.parametrize("number", ["1e30", "1e400", "1.0", "9" * 5000])
def test_what_is_no_integer_at_all_is_refused_too(number: str) -> None:
    with pytest.raises(UndecodableError):
        decode(message(a_binding(replicas=MARK), number))


def test_a_number_in_a_field_nobody_reads_harms_nobody() -> None:
    frame = json.loads(message(a_binding(replicas=MARK), 3))
    frame["data"]["later"] = 10**30
    assert decode(json.dumps(frame).encode()).data == a_binding(3)


@pytest.mark.parametrize("name", ["shop/nul\x00name", "\x00"])
def test_the_one_character_no_database_takes_is_refused(name: str) -> None:
    body = encode(BindingWithdrawn(name), id=derived_id("nul"), source="/tests", subject="x")
    with pytest.raises(UndecodableError, match=r"U\+0000"):
        decode(body)


def test_a_backslash_before_zeros_is_text_like_any_other() -> None:
    name = "shop/\\u0000"
    body = encode(BindingWithdrawn(name), id=derived_id("nul"), source="/tests", subject=name)
    assert decode(body).data == BindingWithdrawn(name)


def test_a_name_fits_into_an_index() -> None:
    def withdrawn(length: int) -> bytes:
        return encode(
            BindingWithdrawn("x" * length),
            id=derived_id("long", length),
            source="/tests",
            subject="x",
        )

    assert decode(withdrawn(NAME_LENGTH_MAX))
    with pytest.raises(UndecodableError, match="name"):
        decode(withdrawn(NAME_LENGTH_MAX + 1))


def test_a_decision_for_the_world_says_its_place_in_its_stream() -> None:
    frame = frame_of(
        encode_raw(b"{}", "t", id="i", source="/wharfinger/fleet/0", subject="s", sequence="7")
    )
    assert (frame.source, frame.sequence) == ("/wharfinger/fleet/0", "7")


def test_what_is_recorded_is_read_as_it_was_when_it_came() -> None:
    came = decode(message(a_binding(replicas=MARK), 3))
    assert decode_recorded(came.body, came.id, came.sha256) == came


def test_a_record_that_is_no_event_is_refused_in_one_line() -> None:
    came = decode(message(a_binding(replicas=MARK), 3))
    with pytest.raises(UndecodableError, match="not a CloudEvent"):
        decode_recorded(came.body[:-1], came.id, came.sha256)


def test_of_two_types_in_one_message_the_last_one_counts() -> None:
    """As in every JSON object; the first one chooses how the message is tried first."""
    body = encode(BindingWithdrawn("web"), id=derived_id("two"), source="/tests", subject="x")
    twice = body.replace(b'"type":', b'"type":"io.wharfinger.binding.requested.v1","type":')
    assert (decode(twice).type, decode(twice).data) == (
        "io.wharfinger.binding.withdrawn.v1",
        BindingWithdrawn("web"),
    )


def test_a_decision_to_be_folded_is_the_same_but_for_its_explanation() -> None:
    said = ScheduleDecided(
        "web",
        "u",
        "FirstSchedule",
        2,
        (TargetCluster("oslo", 2),),
        explanation=Explanation(3, 2, note="room"),
    )
    kind, body = "io.wharfinger.schedule.decided.v1", canonical(said)
    folded = decode_data_to_fold(kind, body)
    assert isinstance(folded, ScheduleDecided)
    assert not isinstance(folded.explanation, Explanation)
    names = [name for name in ScheduleDecided.__struct_fields__ if name != "explanation"]
    assert [getattr(folded, name) for name in names] == [getattr(said, name) for name in names]
    assert canonical(folded) == body
    assert decode_data(kind, body) == said
    with pytest.raises(UndecodableError, match="data of"):
        decode_data_to_fold(kind, body[:-1])
