"""The tables that say which function folds which kind of decision, and what follows from a decision
for its readers."""

from __future__ import annotations

from pathlib import Path
from typing import get_args
from uuid import UUID

import msgspec
import pytest

from wharfinger.domain.ids import Meaning
from wharfinger.domain.value import canonical
from wharfinger.events.codec import decode_data_to_fold
from wharfinger.events.decisions import (
    KINDS,
    WITH_EFFECT,
    ClusterRecovered,
    ClusterSilenced,
    DecisionKind,
    Effect,
    FailoverHeld,
    NodeClaimRequested,
    PlanRefused,
    ProposalRefused,
    ScheduleRefused,
    as_decision,
    decided_by,
    kinds_about,
)
from wharfinger.events.registry import BY_TYPE, type_of
from wharfinger.kernel.decider import Decision, Micros
from wharfinger.kernel.folds import DecisionFolds
from wharfinger.stages.cluster import decider as cluster
from wharfinger.stages.fleet import fold as fleet

SAMPLES = Path(__file__).parents[1] / "contract" / "samples"
TYPES: set[type] = set(KINDS)


def samples() -> list[DecisionKind]:
    """The frozen samples of decisions, of each kind at least one."""
    messages = [msgspec.json.decode(path.read_bytes()) for path in sorted(SAMPLES.glob("*.json"))]
    return [
        as_decision(msgspec.convert(message["data"], BY_TYPE[message["type"]].data))
        for message in messages
        if BY_TYPE[message["type"]].data in TYPES
    ]


def decided(data: ClusterSilenced | ClusterRecovered | FailoverHeld) -> Decision:
    return Decision(
        "fleet/0", 1, UUID(int=1), type_of(data), "oslo", "", None, data, canonical(data)
    )


def noting() -> DecisionFolds[list[str]]:
    folds = DecisionFolds[list[str]]()

    @folds.of(ClusterSilenced)
    def silenced(state: list[str], data: ClusterSilenced, decision: Decision, at: Micros) -> None:
        state.append(f"{data.cluster} at {at}")

    return folds


def test_each_stage_folds_what_its_streams_decide_and_nothing_else() -> None:
    fleet.FOLDS.covering(decided_by("fleet"))
    cluster.FOLDS.covering(decided_by("cluster"))
    assert {
        kind for writer in ("fleet", "cluster", "ledger") for kind in decided_by(writer)
    } == set(KINDS)


def test_a_kind_without_a_fold_is_named() -> None:
    with pytest.raises(TypeError, match=r"not folded: \['ClusterRecovered'\]"):
        noting().covering((ClusterSilenced, ClusterRecovered))


def test_a_fold_of_a_kind_that_is_not_decided_there_is_named() -> None:
    with pytest.raises(TypeError, match=r"not decided by such a stream: \['ClusterSilenced'\]"):
        noting().covering(())


def test_a_kind_has_one_fold() -> None:
    with pytest.raises(TypeError, match="ClusterSilenced is folded twice"):
        DecisionFolds(noting(), noting())


def test_a_decision_is_folded_by_the_function_of_its_kind() -> None:
    state: list[str] = []
    noting().fold(state, decided(ClusterSilenced("oslo", 5)), 7)
    assert state == ["oslo at 7"]
    with pytest.raises(AssertionError, match=r"cluster\.recovered"):
        noting().fold(state, decided(ClusterRecovered("oslo")), 7)


def test_a_decision_whose_explanation_was_left_unread_is_folded_alike() -> None:
    folds = DecisionFolds[list[str]]()

    @folds.of(ScheduleRefused)
    def refused(state: list[str], data: ScheduleRefused, decision: Decision, at: Micros) -> None:
        state.append(data.reason)

    data = ScheduleRefused("shop/web", "uid", "FirstSchedule", 3, "Unschedulable")
    unread = decode_data_to_fold(type_of(data), canonical(data))
    assert type(unread) is not ScheduleRefused
    state: list[str] = []
    for one in (data, unread):
        decision = Decision(
            "fleet/0", 1, UUID(int=1), type_of(data), "shop/web", "", None, one, canonical(data)
        )
        folds.fold(state, decision, 7)
    assert state == ["Unschedulable", "Unschedulable"]


def test_a_part_of_a_state_is_folded_where_there_is_one() -> None:
    whole = noting().within(dict, lambda state: state.get("part"))
    state: dict[str, list[str]] = {"part": []}
    whole.fold(state, decided(ClusterSilenced("oslo", 5)), 7)
    whole.fold({}, decided(ClusterSilenced("oslo", 5)), 7)
    assert state == {"part": ["oslo at 7"]}


@pytest.mark.parametrize("data", samples(), ids=lambda data: data.TYPE)
def test_what_follows_from_a_decision_is_of_the_closed_union(data: DecisionKind) -> None:
    effect = data.effect()
    assert (effect is not None) == (type(data) in WITH_EFFECT)
    assert effect is None or isinstance(effect, get_args(Effect))


def test_every_effect_is_one_of_some_decision() -> None:
    found = {effect for data in samples() for effect in type(data.effect()).__mro__}
    assert set(get_args(Effect)) <= found


def test_kinds_are_found_by_what_they_are_about() -> None:
    assert kinds_about("proposal") == (ProposalRefused,)
    assert set(kinds_about("claim", "plan")) == {
        kind for kind in KINDS if kind.ABOUT in ("claim", "plan")
    }


def test_the_subject_of_a_refused_proposal_is_what_was_proposed_for() -> None:
    node = ProposalRefused("id", "NodeRemovalProposed", "node-1", "NodeNotEmpty")
    binding = ProposalRefused("id", "EvictionProposed", "shop/web", "NothingToDo")
    assert node.subject_meaning() is Meaning.NODE
    assert binding.subject_meaning() is Meaning.BINDING
    assert ClusterRecovered("oslo").subject_meaning() is Meaning.CLUSTER


def test_what_cannot_be_renamed_says_why() -> None:
    claim = NodeClaimRequested("oslo", "c", "pool", (), ("m5.large",), {}, {}, 96, 5)
    assert "new names would change" in claim.why_not_renamed()
    assert "digests of its inputs" in PlanRefused("p", "OutcomeDiffers").why_not_renamed()
    assert ClusterRecovered("oslo").why_not_renamed() == ""
