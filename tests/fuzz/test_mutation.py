"""Mutations keep JSON readable, and the same seed makes the same one."""

from __future__ import annotations

import json

from tests.fuzz.mutation import STRANGE, mutated, texts

BODY = json.dumps({"a": [1, "x", {"b": None}], "c": "text"}).encode()


def no_bytes(data: bytes, most: int) -> bytes:
    return b"\xff" * min(3, most)


def test_a_value_is_changed_and_the_rest_stays_json() -> None:
    for head in (b"", b"\x80", b"200\nName: [x]\n\n", b"key\n\n[1]\n--\nkey\n\n"):
        found = [mutated(head + BODY, 4000, seed, no_bytes) for seed in range(400)]
        structural = [one for one in found if one != b"\xff\xff\xff"]
        assert len(structural) > 200
        assert len(set(structural)) > 100
        for one in structural:
            assert one.startswith(head[:1])
            json.loads(one[len(head) :].decode("utf-8", "surrogatepass")) if head != (
                b"key\n\n[1]\n--\nkey\n\n"
            ) else None


def test_a_seed_makes_the_same_input_again_within_its_bound() -> None:
    for seed in range(200):
        once = mutated(BODY, 80, seed, no_bytes)
        assert once == mutated(BODY, 80, seed, no_bytes)
        assert len(once) <= 80


def test_what_is_put_in_is_not_changed_itself() -> None:
    before = repr(STRANGE)
    data = b"[[]]"
    for seed in range(3000):
        data = mutated(data, 400, seed, no_bytes) if list(texts(data)) else b"[[], {}]"
    assert repr(STRANGE) == before


def test_texts_are_found_where_they_stand() -> None:
    data = b"key\nh=[1]\n\n" + BODY + b"\n--\nother\n\n[1, 2]"
    assert [data[start:end] for start, end in texts(data)] == [BODY, b"[1, 2]"]
    assert list(texts(b"no JSON")) == list(texts(b"{}")) == list(texts(b"\n\n")) == []
