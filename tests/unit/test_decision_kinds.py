"""Every kind of decision: its members, the words of its outcome, what it sends, and one sentence
for people."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from wharfinger.domain import reasons
from wharfinger.domain.value import Value
from wharfinger.events.assignments import Released
from wharfinger.events.codec import decode_data, decode_data_to_fold
from wharfinger.events.decisions import COMPARED, KINDS, DecisionKind, ScheduleDecided, as_decision
from wharfinger.events.decisions.kind import no_assignment_items, no_outcome_item, no_refusal
from wharfinger.events.decisions.steps import StepName, StepResult, difference
from wharfinger.events.registry import BY_TYPE, type_of

TYPES: set[type] = set(KINDS)
SAMPLES = Path(__file__).parents[1] / "contract" / "samples"


def samples() -> list[DecisionKind]:
    """Every frozen sample of a decision, of each kind at least one."""
    found = []
    for path in sorted(SAMPLES.glob("*.json")):
        message = msgspec.json.decode(path.read_bytes())
        kind = BY_TYPE[message["type"]].data
        if kind in TYPES:
            found.append(as_decision(msgspec.convert(message["data"], kind)))
    return found


class WithoutSentence(Value, frozen=True):
    TYPE = "schedule.forgotten"
    VERSION = 1
    OUTCOMES = ("forgotten",)
    step_results = ScheduleDecided.step_results
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item


INCOMPLETE: type[DecisionKind] = WithoutSentence  # type: ignore[assignment]
"""The type checker refuses a kind with a missing member: if it did not, it would call this comment
unused and fail."""


def test_each_kind_has_a_sample_and_an_event_type_of_its_own() -> None:
    assert {type(one) for one in samples()} == set(KINDS)
    assert len({kind.TYPE for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("data", samples(), ids=lambda data: data.TYPE)
def test_of_every_kind_there_is_a_sentence_and_steps(data: DecisionKind) -> None:
    assert data.sentence().strip(), "an empty cell says nothing"
    assert data.OUTCOMES
    assert all(word == word.lower() for word in data.OUTCOMES)
    steps = list(data.step_results(None))
    names = [result.step for result in steps]
    assert "selection" in names
    assert len(names) == len(set(names))
    assert set(names) <= set(get_args(StepName))
    assert difference(steps, steps) is None


@pytest.mark.parametrize("data", samples(), ids=lambda data: data.TYPE)
def test_an_answer_to_the_fleet_is_also_sent_to_the_cluster(data: DecisionKind) -> None:
    """The cluster's observers read the same items; so the shard hears nothing that they do not.
    Only the cluster is told the reason of a release."""
    items = list(data.assignment_items(7, "id"))
    assert all(item.seq == 7 and item.decision == "id" for _, item in items)
    answer = data.outcome_item(7, "id")
    heard = [
        (to, msgspec.structs.replace(item, reason="") if isinstance(item, Released) else item)
        for to, item in items
    ]
    assert answer is None or (answer[0], answer[2]) in heard


@pytest.mark.parametrize("data", samples(), ids=lambda data: data.TYPE)
def test_a_refusal_has_a_typed_reason(data: DecisionKind) -> None:
    known = {
        reason
        for union in (
            reasons.ScheduleRefusal,
            reasons.NodeReason,
            reasons.ReplicaReason,
            reasons.Displacement,
            reasons.ProposalRefusal,
            reasons.PlanRefusal,
        )
        for reason in get_args(union)
    }
    assert (data.refusal() in known) == ("refused" in data.OUTCOMES)


def test_a_decision_read_to_be_folded_is_of_its_kind_too() -> None:
    """It is of a subclass whose explanation is left unread."""
    for data in samples():
        assert isinstance(data, Value)
        folded = decode_data_to_fold(type_of(data), msgspec.json.encode(data))
        assert as_decision(folded).sentence() == data.sentence()
        assert as_decision(decode_data(type_of(data), msgspec.json.encode(data))) == data


def test_what_is_no_decision_is_refused() -> None:
    with pytest.raises(TypeError, match="is no kind of decision"):
        as_decision(Value())


def test_kinds_that_are_compared_have_one_outcome() -> None:
    """Except for replicas that a cluster gives back, whose typed reason tells the two apart."""
    assert {kind.TYPE for kind in COMPARED if len(kind.OUTCOMES) > 1} == {"replicas.refused"}
    for data in samples():
        if isinstance(data, COMPARED):
            assert data.result() == data.result()


def test_sampled_parts_are_compared_only_where_both_sides_have_them() -> None:
    left = StepResult("score", {"a": "1", "b": "2"}, sampled=True)
    assert difference([left], [with_parts(left, {"a": "1", "c": "3"})]) is None
    found = difference([left], [with_parts(left, {"a": "1", "b": "3"})])
    assert found is not None
    assert (found.step, found.left, found.right) == ("score", "b 2", "b 3")


def with_parts(result: StepResult, parts: dict[str, str]) -> StepResult:
    return StepResult(result.step, parts, result.sampled, result.ids)
