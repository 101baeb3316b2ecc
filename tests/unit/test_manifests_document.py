"""YAML and JSON text to values: lines, bounds, and everything hostile refused at once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from wharfinger.manifests.document import BYTES_MAX, DEPTH_MAX, Document, read_documents
from wharfinger.manifests.parse import load_manifests

DATA = (
    Path(os.environ.get("WHARFINGER_DATA") or Path(__file__).parents[3] / "shared" / "data")
    / "bad_inputs"
)


def read(text: str) -> list[Document]:
    documents, errors = read_documents(text, "file.yaml")
    assert errors == []
    return documents


def refused(text: str) -> str:
    _, errors = read_documents(text, "file.yaml")
    assert len(errors) == 1
    return str(errors[0])


def test_scalars_are_read_by_yaml_1_2() -> None:
    text = (
        "[1, -2, 0x1f, 0o17, 017, 1.5, 1e3, .5, true, False, yes, on, null, ~, '1', \"true\", "
        "12:30, 1_000, 2024-01-01]"
    )
    (document,) = read(text)
    assert document.value == [
        1,
        -2,
        31,
        15,
        17,
        1.5,
        1000.0,
        0.5,
        True,
        False,
        "yes",
        "on",
        None,
        None,
        "1",
        "true",
        "12:30",
        "1_000",
        "2024-01-01",
    ]
    assert isinstance(document.value, list)
    assert [type(v) for v in document.value[:5]] == [int] * 5


def test_every_field_has_its_line() -> None:
    (first, second) = read(
        "a: 1\nb:\n  - x\n  - c: 2\n    d: |\n      long\n      text\n    e: {f: 3,\n"
        "      g: 4}\n---\nh: 5\n"
    )
    assert first.lines == {
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1): 4,
        ("b", 1, "c"): 4,
        ("b", 1, "d"): 5,
        ("b", 1, "e"): 8,
        ("b", 1, "e", "f"): 8,
        ("b", 1, "e", "g"): 9,
    }
    assert first.line_of(("b", 1, "e", "absent", 7)) == first.lines[("b", 1, "e")]
    assert second.line_of(("nothing",)) == 11
    assert second.value == {"h": 5}


def test_empty_documents_are_left_out() -> None:
    assert [d.value for d in read("---\n# nothing\n---\na: 1\n---\n...\n")] == [{"a": 1}]
    assert read("") == []


def test_aliases_and_merge_keys_are_followed() -> None:
    (document,) = read(
        "base: &b {x: 1, y: 2}\nsame: *b\nmore: {<<: *b, y: 3}\nmost: {<<: [{x: 9}, *b]}\n"
    )
    assert document.value == {
        "base": {"x": 1, "y": 2},
        "same": {"x": 1, "y": 2},
        "more": {"x": 1, "y": 3},
        "most": {"x": 9, "y": 2},
    }


def test_json_may_be_indented_with_tabs_and_hold_any_character() -> None:
    value = {"a": ["\U0001f600", "tab\there", {"b": None, "c": 1.5}], "d": "line\nbreak \u2028"}
    assert read(json.dumps(value, indent="\t"))[0].value == value
    assert read("\ufeff" + json.dumps(value))[0].value == value


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "expected each key once, got 'a' again"),
        ("a:\n  b: 1\n  'b': 2\n", 3, "a.b: expected each key once"),
        ("a: [1\nb: 2\n", 2, "expected YAML"),
        ("a:\n\tb: 1\n", 2, "expected YAML"),
        ("a: *nowhere\n", 1, "expected the name of an anchor above, got '*nowhere'"),
        ("- &a [*a]\n", 1, "expected the name of an anchor above"),
        ("a: !!python/object:os.system x\n", 1, "expected no tag"),
        ("a: !ruby/hash {}\n", 1, "expected no tag"),
        ("a: !!int x\n", 1, "expected int by its tag, got 'x'"),
        ("? [1, 2]\n: 3\n", 1, "expected a string as key, got a collection"),
        ("<<: 1\n", 1, "expected a mapping to merge, got 1"),
        ('a: "\\ud800"\n', 1, "half of a surrogate pair"),
        ("a: \x00\n", 1, "expected YAML"),
        ("a: " + "9" * 5000, 1, "at most 400 digits"),
        ("%YAML 2.0\n---\na: 1\n", 1, "expected YAML"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text: str, line: int, said: str) -> None:
    told = refused(text)
    assert told.startswith(f"file.yaml:{line}: ")
    assert said in told
    assert "\n" not in told


def bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for last, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{last}'] * 10)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("alias bomb", bomb(), "with aliases counted each time"),
        ("nested lists", "[" * 100_000, f"at most {DEPTH_MAX} levels"),
        ("nested lists, spaced", "[\n" * 100_000, f"at most {DEPTH_MAX} levels"),
        ("nested mappings", "{a: " * 50_000, f"at most {DEPTH_MAX} levels"),
        ("nested block lists", "- " * 100_000, f"at most {DEPTH_MAX} levels"),
        ("nested keys", "? " * 100_000, f"at most {DEPTH_MAX} levels"),
        (
            "nested by indentation",
            "\n".join(" " * i + "a:" for i in range(1000)),
            f"at most {DEPTH_MAX} levels",
        ),
        ("too large", "a" * (BYTES_MAX + 1), "at most 4 MiB"),
    ],
)
def test_hostile_text_is_refused_before_it_grows(name: str, text: str, said: str) -> None:
    told = refused(text)
    assert said in told
    assert len(told) < 400
    assert processor_s(lambda: refused(text)) < processor_s(lambda: read(HARMLESS)), name


HARMLESS = "\n".join(f"key{i}: value {i}" for i in range(3000))
"""60 kB as people write them. Reading it costs more than ten times what refusing any of the hostile
texts does."""


def processor_s(work: Callable[[], object]) -> float:
    """The least processor time of three attempts, which another load on the machine hardly
    changes."""
    taken = []
    for _ in range(3):
        begun = time.thread_time()
        work()
        taken.append(time.thread_time() - begun)
    return min(taken)


def test_nesting_up_to_the_bound_is_read() -> None:
    value = read("[" * DEPTH_MAX + "]" * DEPTH_MAX)[0].value
    depth = 0
    while isinstance(value, list):
        depth, value = depth + 1, value[0] if value else None
    assert depth == DEPTH_MAX


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"YAML cases not at {DATA} (set WHARFINGER_DATA)")
def test_no_case_of_the_yaml_suite_crashes_hangs_or_passes_as_a_manifest() -> None:
    cases = [json.loads(line) for line in (DATA / "yaml_cases.jsonl").read_text().splitlines()]
    assert len(cases) == 310
    for case in cases:
        loaded = load_manifests(case["yaml"], "case.yaml")
        assert loaded.manifests == (), case["id"]
        for error in loaded.errors:
            assert error.line >= 1
            assert "\n" not in str(error), case["id"]
        if not case["valid"]:
            assert loaded.errors, case["id"]


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"YAML cases not at {DATA} (set WHARFINGER_DATA)")
def test_what_is_read_of_the_yaml_suite_is_what_the_suite_says() -> None:
    read_well = 0
    # In 652Z the parser takes `?foo` within braces for a key `foo`; no Kubernetes object has such a
    # key.
    for case in map(json.loads, (DATA / "yaml_cases.jsonl").read_text().splitlines()):
        documents, errors = read_documents(case["yaml"], "case.yaml")
        if case["valid"] and case.get("json") and not errors and case["id"] != "652Z":
            assert [d.value for d in documents] == [
                v for v in _json_values(case["json"]) if v is not None
            ], case["id"]
            read_well += 1
    assert read_well >= 160


def _json_values(text: str) -> list[object]:
    decoder, values = json.JSONDecoder(), []
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:].strip()
    return values
