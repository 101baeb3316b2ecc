"""No text and no object makes the reader fail: there are manifests, or there are errors of one line
each."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.events.intake import compile_deletions, compile_manifests
from wharfinger.manifests.document import read_documents
from wharfinger.manifests.kinds import KINDS
from wharfinger.manifests.parse import Loaded, load_manifests

EXAMPLES = Path(__file__).parents[2] / "examples"
OF_EVERY_KIND = Path(__file__).parent / "manifests"
SCHEDULERS = Path(__file__).parent / "schedulers.yaml"
"""Apart, since of these only one is applied at a time."""


@cache
def objects() -> list[dict[str, object]]:
    """Not at import: every worker of a run imports every test."""
    return [
        document.value
        for file in sorted([*EXAMPLES.rglob("*.yaml"), *OF_EVERY_KIND.rglob("*.yaml"), SCHEDULERS])
        for document in read_documents(file.read_text(), file.name)[0]
        if isinstance(document.value, dict)
    ]


strange = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([None]),
    st.just([[]]),
    st.just({"": {}}),
    st.just({"name": []}),
    st.sampled_from(["1e99", "Never", "any", "9" * 300, "-1", ""]),
    st.sampled_from(["a" * 253, "a" * 254, "oslo=1,*=2"]),
    st.just({"cpu": "-1"}),
    st.just({"requests.cpu": "8E"}),
    st.integers(2**60, 2**70),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def check(text: str) -> None:
    loaded: Loaded = load_manifests(text, "file.yaml")
    errors = [*loaded.errors]
    for make in (compile_manifests, compile_deletions):
        errors += make(loaded.manifests).errors
    for error in errors:
        assert error.line >= 1
        assert "\n" not in str(error)
        assert len(str(error)) < 1000


def make_strange(value: object, data: st.DataObject) -> object:
    """`value` with one strange thing in it, in place where it is a collection."""
    deeper = data.draw(st.integers(0, 4)) > 0
    match value:
        case dict() if value:
            name = data.draw(st.sampled_from(sorted(value)))
            value[name] = make_strange(value[name], data)
        case list() if value and deeper:
            i = data.draw(st.integers(0, len(value) - 1))
            value[i] = make_strange(value[i], data)
        case _:
            return data.draw(strange)
    return value


@settings(max_examples=examples(300), deadline=None)
@given(st.deferred(lambda: st.sampled_from(objects())), st.data())
def test_an_example_with_a_strange_value_somewhere(
    example: dict[str, object], data: st.DataObject
) -> None:
    changed = copy.deepcopy(example)
    make_strange(changed, data)
    check(json.dumps(changed))


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(KINDS), strange, strange, strange)
def test_any_kind_with_strange_parts(
    kind: object, metadata: object, spec: object, status: object
) -> None:
    api_version, name = getattr(kind, "api_version", ""), getattr(kind, "kind", "")
    check(
        json.dumps(
            {
                "apiVersion": api_version,
                "kind": name,
                "metadata": metadata,
                "spec": spec,
                "status": status,
            }
        )
    )


@settings(max_examples=examples(300), deadline=None)
@given(st.text(alphabet="a:-[]{}&*!|>'\"%@`#,? \n\t\\0123.~<", max_size=60))
def test_any_text_of_yaml_signs(text: str) -> None:
    check(text)
