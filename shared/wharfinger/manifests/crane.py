"""crane-scheduler's DynamicSchedulerPolicy, as strict as its own loader: no metadata, no unknown
key, the same misspelt names.

Some values pass that loader and fail at run time (a period of 0 stops crane, a count of 0 divides
by zero). They are refused when the policy becomes a domain value, so that reading alone stays
comparable with crane's. `read_policy` reads such a policy from a text and reports its faults in
the loader's terms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BeforeValidator, ValidationError, model_validator
from pydantic_core import ErrorDetails

from wharfinger.domain.policy import (
    HotWindow,
    LoadLimit,
    LoadPolicy,
    LoadWeight,
    Policy,
    SyncPeriod,
)
from wharfinger.manifests.document import EACH_KEY_ONCE, read_documents
from wharfinger.manifests.model import ExpectedError, Int, Model, Resource

API_VERSION = "scheduler.policy.crane.io/v1alpha1"
KIND = "DynamicSchedulerPolicy"
INTERNAL = "scheduler.policy.crane.io/__internal"
"""A version that crane's program knows for its own use: a policy may name it, and has no field in
it."""

NAME = "default"
"""A plane has one such policy, and the kind has no name of its own."""

SECOND_NS = 10**9
DURATION = "a duration such as 90s, 3m or 1h30m"
LIMIT_SCALE = 100_000
WEIGHT_SCALE = 1_000
WHOLE_MAX = 10**6
"""The largest limit or weight, in wholes; far above any use, low enough to stay exact."""

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")


def duration_ns(value: object) -> int:
    """A Go duration such as `1h30m` in nanoseconds. Raises ExpectedError."""
    expected = ExpectedError(DURATION)
    if not isinstance(value, str) or len(value) > 64:
        raise expected
    text = value[1:] if value[:1] in ("+", "-") else value
    if text == "0":
        return 0
    total, at = 0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or not (part[1] or part[2]):
            raise expected
        unit = _UNITS[part[3]]
        total += int(part[1] or "0") * unit + _of_a_unit(part[2] or "", unit)
        at = part.end()
    negative = value[0] == "-" if value else False
    if not text or total >= 2**63 + negative:
        raise expected
    return -total if negative else total


def _of_a_unit(digits: str, unit: int) -> int:
    """Whole nanoseconds of a decimal fraction of a unit, a part of one cut off: by one division and
    one multiplication of doubles, as Go does it, which an exact fraction differs from by one now
    and then. Digits beyond the 18th are not looked at."""
    digits = digits[:18]
    return (
        int(float(int(digits)) * (float(unit) / float(10 ** len(digits))))
        if digits.strip("0")
        else 0
    )


Duration = Annotated[int, BeforeValidator(duration_ns)]


class Entry(Model):
    """A list entry of null is an empty entry, as Go reads it; a duration of null is not a
    duration."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_empty(cls, data: object) -> object:
        if isinstance(data, dict):
            for key in ("period", "timeRange"):
                if key in data and data[key] is None:
                    raise ExpectedError(DURATION, key)
        return {} if data is None else data


class Named(Entry):
    name: str = ""


class Sync(Named):
    period: Duration = 0


class CranePredicate(Named):
    max_limit_pecent: float = 0.0


class CranePriority(Named):
    weight: float = 0.0


class HotValue(Entry):
    time_range: Duration = 0
    count: Int = 0


class DynamicSpec(Model):
    sync_policy: list[Sync] = []
    predicate: list[CranePredicate] = []
    priority: list[CranePriority] = []
    hot_value: list[HotValue] = []


class DynamicSchedulerPolicy(Resource):
    spec: DynamicSpec = DynamicSpec()

    @property
    def name(self) -> str:
        return NAME

    def to_domain(self, manifest: str) -> Policy:
        """Raises ExpectedError for values that crane would fail on."""
        spec = self.spec
        sync = [_sync(entry, i) for i, entry in enumerate(spec.sync_policy)]
        limits = [_limit(entry, i) for i, entry in enumerate(spec.predicate)]
        weights = [_weight(entry, i) for i, entry in enumerate(spec.priority)]
        hot = [_window(entry, i) for i, entry in enumerate(spec.hot_value)]
        load = LoadPolicy(tuple(sync), tuple(limits), tuple(weights), tuple(hot))
        return Policy(self.kind, self.name, load=load, manifest=manifest)


def _sync(entry: Sync, i: int) -> SyncPeriod:
    path = ("syncPolicy", i)
    return SyncPeriod(_named(entry, *path), _seconds(entry.period, *path, "period"))


def _limit(entry: CranePredicate, i: int) -> LoadLimit:
    path = ("predicate", i)
    return LoadLimit(
        _named(entry, *path), _scaled(entry.max_limit_pecent, LIMIT_SCALE, *path, "maxLimitPecent")
    )


def _weight(entry: CranePriority, i: int) -> LoadWeight:
    path = ("priority", i)
    return LoadWeight(_named(entry, *path), _scaled(entry.weight, WEIGHT_SCALE, *path, "weight"))


def _window(entry: HotValue, i: int) -> HotWindow:
    """Whole seconds, a part of one left out, as crane counts bindings."""
    path = ("hotValue", i)
    seconds = max(0, entry.time_range) // SECOND_NS * SECOND_NS
    return HotWindow(_seconds(seconds, *path, "timeRange"), _positive(entry.count, *path, "count"))


def _named(entry: Named, *path: str | int) -> str:
    if not entry.name:
        raise ExpectedError("the name of a metric", "spec", *path, "name")
    return entry.name


def _seconds(duration: int, *path: str | int) -> int:
    """Whole seconds, a part of one counted as one."""
    if duration <= 0:
        raise ExpectedError("a duration above 0", "spec", *path)
    return -(-duration // SECOND_NS)


def _positive(count: int, *path: str | int) -> int:
    if count <= 0:
        raise ExpectedError("a count above 0", "spec", *path)
    return count


def _scaled(value: float, scale: int, *path: str | int) -> int:
    """value * scale, exact from the shortest decimal that names the float, rounded half to even."""
    if not 0 <= value <= WHOLE_MAX:
        raise ExpectedError(f"a number from 0 to {WHOLE_MAX}", "spec", *path)
    return round(Fraction(repr(value)) * scale)


# On nodes.

_MEASURED_KEY = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_MEASURED = re.compile(r"[^,]{1,40},[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,30}Z")


def measured(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations in which crane's annotator writes a node's load: key: the metric's name,
    value: an amount and a time. The engine decides what the amount means and whether it is still
    valid (`engine.load.annotations`)."""
    return {
        key: text
        for key, text in sorted(annotations.items())
        if _MEASURED_KEY.fullmatch(key) and _MEASURED.fullmatch(text)
    }


# As crane's loader says it.

LoaderFault = Literal[
    "unknown-field",
    "duplicate-key",
    "type-mismatch",
    "bad-duration",
    "missing-type",
    "unregistered-kind",
    "syntax",
    "other",
]


def read_policy(text: str) -> DynamicSchedulerPolicy | LoaderFault:
    """The policy in `text`, or the fault for which crane's loader refuses it. Only the first
    document counts.

    Of several faults the loader names one: a wrong duration ends its reading at once, another wrong
    type when all has been read, and keys are looked at only when everything has its type.
    """
    documents, errors = read_documents(text, "policy")
    if not documents and errors:
        return "duplicate-key" if EACH_KEY_ONCE in errors[0].text else "syntax"
    raw = documents[0].value if documents else {}
    if not _finite(raw):
        return "other"
    if not isinstance(raw, dict):
        return "type-mismatch"
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if not all(isinstance(said, str | None) for said in (version, kind)):
        return "type-mismatch"
    if not version or not kind:
        return "missing-type"
    if version == INTERNAL and kind == KIND:
        return (
            "unknown-field"
            if raw.keys() - {"apiVersion", "kind"}
            else DynamicSchedulerPolicy.model_validate(raw)
        )
    if (version, kind) != (API_VERSION, KIND):
        return "unregistered-kind"
    try:
        return DynamicSchedulerPolicy.model_validate(raw)
    except ValidationError as invalid:
        found = sorted(invalid.errors(include_url=False), key=lambda error: _place(error))
        return _named_fault(found)


def _finite(value: object) -> bool:
    """What is no number, or infinite, can be said in YAML and not in JSON, through which the loader
    reads it."""
    match value:
        case dict():
            return all(map(_finite, value.values()))
        case list():
            return all(map(_finite, value))
        case float():
            return math.isfinite(value)
    return True


def _named_fault(found: list[ErrorDetails]) -> LoaderFault:
    """The fault that the loader meets first. `found` is in the loader's order: it reads the fields
    in the order of their names."""
    for error in found:
        if _is_duration(error):
            value = _found_duration(error)
            return "bad-duration" if isinstance(value, str | None) else "type-mismatch"
    if any(error["type"] not in ("extra_forbidden", "invalid_key") for error in found):
        return "type-mismatch"
    return "unknown-field"


def _place(error: ErrorDetails) -> tuple[tuple[bool, int, str], ...]:
    path = (*error["loc"], *_field(error))
    return tuple(
        (isinstance(part, str), part if isinstance(part, int) else 0, str(part)) for part in path
    )


def _field(error: ErrorDetails) -> tuple[str | int, ...]:
    reason = error.get("ctx", {}).get("error")
    return reason.field if isinstance(reason, ExpectedError) else ()


def _is_duration(error: ErrorDetails) -> bool:
    reason = error.get("ctx", {}).get("error")
    return isinstance(reason, ExpectedError) and str(reason) == DURATION


def _found_duration(error: ErrorDetails) -> object:
    """None for a null duration: the reader of the entry reports it, with the field's name."""
    return None if _field(error) else error["input"]
