"""What a client has sent is shown back within bounds, and as text that can be written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from wharfinger_api.changing import fact_of
from wharfinger_api.models import ApplyBody, BarrierBody, In
from wharfinger_api.problems import ERRORS_MAX, Problem, problem_of

HALF = "a\ud800b"


def refused(model: type[In], body: object) -> dict[str, Any]:
    """The problem that is answered, as its bytes say it."""
    with pytest.raises(ValidationError) as invalid:
        TypeAdapter(model).validate_python(body)
    errors = [{**error, "loc": ("body", *error["loc"])} for error in invalid.value.errors()]
    problem = problem_of(RequestValidationError(errors))
    said: dict[str, Any] = msgspec.json.decode(bytes(problem.response("id").body))
    assert said["status"] == 400
    return said


@pytest.mark.parametrize("body", [{"events": HALF}, {"reason": HALF}, {HALF: 1}])
def test_half_of_a_surrogate_pair_is_the_clients_fault(body: object) -> None:
    said = refused(ApplyBody, body)
    assert "\\ud800" in json.dumps(said["errors"])


def test_a_long_name_is_cut() -> None:
    (error,) = refused(ApplyBody, {"n" * 1_000_000: 1})["errors"]
    assert len(error["pointer"]) < 300


def test_as_many_errors_are_told_as_one_can_read() -> None:
    said = refused(BarrierBody, {"facts": [{}] * 5000})
    assert len(said["errors"]) == ERRORS_MAX
    assert said["error_count"] == 10_000


@pytest.mark.parametrize(
    "event", [{"id": HALF}, {"id": "x", "data": 10**400}, {HALF: 1}, {"data": {"a": [HALF]}}]
)
def test_what_json_can_say_and_no_event_is_the_clients_fault(event: object) -> None:
    with pytest.raises(Problem, match="events/0: ") as refusal:
        fact_of("events/0", event)
    assert refusal.value.kind == "invalid"
    refusal.value.response("id")
