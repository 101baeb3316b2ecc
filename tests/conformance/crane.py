"""crane-scheduler's suites: its policies, annotations, verdicts, records, one sync of its
annotator, and when it tries.

A case is answered by what a plane runs (`crane_live`): the loader of `apply`, the cluster stage
with its book of loads, the annotator. What a plane does otherwise on purpose
(`docs/deviations.md`) is answered in crane's own arithmetic (`crane_reference`), so that it is
known what the difference is. Where crane's program ended, ours has to refuse, or to go on."""

from __future__ import annotations

from typing import Any

from tests.conformance import crane_live, crane_reference
from tests.conformance.crane_live import DepartureError

Json = dict[str, Any]

SUITES = (
    "policy",
    "annotation",
    "filter_score",
    "hot_value",
    "annotator_sync",
    "annotator_cadence",
)


def answer(suite: str, case: Json) -> Json:
    try:
        return crane_live.ANSWERS[suite](case)
    except DepartureError:
        return crane_reference.ANSWERS[suite](case)


def path(suite: str, case: Json) -> str:
    """Empty: a plane's own; else why it is the reference's."""
    try:
        crane_live.ANSWERS[suite](case)
    except DepartureError as departs:
        return str(departs)
    return ""


def expected(suite: str, case: Json) -> Json:
    expect = case["expect"]
    if suite == "policy" and not expect["ok"]:
        return {"ok": False, "class": expect["class"]}  # the text is not compared
    if suite == "annotator_sync" and case["node"] is None:
        # what stands on a node that is not given cannot be known
        return {**expect, "annotations": None}
    return {"answer": expect} if isinstance(expect, list) else expect


def agrees(suite: str, got: Json, case: Json) -> bool:
    return same(got, expected(suite, case))


def same(got: Any, expect: Any) -> bool:
    """As recorded; where crane ended, anything orderly. Numbers by value, with NaN equal to
    itself."""
    match expect:
        case {"panic": _}:
            return True  # an answer at all is an orderly one: a crash would not have come here
        case dict():
            return (
                isinstance(got, dict)
                and got.keys() == expect.keys()
                and all(same(got[k], expect[k]) for k in expect)
            )
        case list():
            return isinstance(got, list) and len(got) == len(expect) and all(map(same, got, expect))
        case _:
            return bool(got == expect) and isinstance(got, bool) == isinstance(expect, bool)
