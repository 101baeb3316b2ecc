"""The document of the HTTP API is a contract: it changes only on purpose."""

from __future__ import annotations

import json

from tests.openapi import FROZEN, difference, present

from wharfinger_api.access import RULES


def test_the_document_is_the_frozen_one() -> None:
    changed = difference(FROZEN.read_text(), present())
    assert not changed, f"the OpenAPI document has changed; `make openapi` writes it:\n{changed}"


def test_a_change_of_the_document_is_shown_by_its_lines() -> None:
    frozen = FROZEN.read_text()
    path = next(line for line in frozen.splitlines() if "/v1/bindings/{namespace}/{name}" in line)
    shown = difference(frozen, frozen.replace(path, path.replace("bindings", "bounds"), 1))
    assert f"-{path}" in shown.splitlines()


def test_every_route_is_in_the_document_with_what_answers_and_what_is_refused() -> None:
    found = json.loads(FROZEN.read_text())
    assert found["openapi"].startswith("3.1")
    operations = {
        (method.upper(), path): operation
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == set(RULES)
    ids = [operation["operationId"] for operation in operations.values()]
    assert len(set(ids)) == len(ids)
    for place, operation in operations.items():
        assert operation.get("description"), place
        responses = operation["responses"]
        assert "default" in responses, place
        assert any(status.startswith("2") for status in responses), place
