"""Which step is named when a decision is not what it was, and what of it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from msgspec import structs
from tests.counter import Counter, Writer, withdrawn
from tests.scenarios.fleet_plane import a_binding, a_cluster, room

from wharfinger.domain.binding import Component, TargetCluster
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import Requirements
from wharfinger.events.codec import made
from wharfinger.events.decisions import (
    KINDS,
    BindingReleased,
    ClockRebased,
    ClusterRecovered,
    ClusterSilenced,
    DisruptionDecided,
    DisruptionEnded,
    Explanation,
    ExtenderAsked,
    FailoverHeld,
    FailoverResumed,
    LedgerWentBack,
    NodeBarred,
    NodeClaimEnded,
    NodeClaimRequested,
    NodeRemovalDecided,
    NodeShare,
    PlacementDecided,
    PlacementHeld,
    PlacementReleased,
    PlanCommitted,
    PlanPromised,
    PlanRefused,
    PodRemovalDecided,
    PodsUnplaced,
    PreemptedPod,
    PreemptionDecided,
    PreemptionEnded,
    PricedNode,
    ProposalRefused,
    ReplicasAdopted,
    ReplicasNominated,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ScheduleDecided,
    ScheduleRefused,
    ScoredCandidate,
    as_decision,
)
from wharfinger.events.decisions.steps import NOTHING
from wharfinger.events.envelope import derived_id
from wharfinger.events.proposals import FinishedPod
from wharfinger.events.registry import EVENT_TYPES, type_of
from wharfinger.events.streams import DECISIONS
from wharfinger.kernel.audit import AuditResult, EngineResult, audit
from wharfinger.kernel.decider import Decision, Draft
from wharfinger.kernel.divergence import UNDECIDED, RoundDifference, round_difference
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import ENGINE, Round
from wharfinger.kernel.step import decision_id, empty_head, step
from wharfinger.stages.fleet import FleetDecider, FleetState

CAUSE = derived_id("cause")
WHY = Explanation(
    candidates=6,
    feasible=4,
    refused={"ClusterAffinity": 1, "TaintToleration": 1},
    chosen=(ScoredCandidate("oslo", 100, 12, "class"), ScoredCandidate("bergen", 0, 9, "class")),
    runners_up=(ScoredCandidate("tromso", 0, 3, "totals"),),
    division={"oslo": 12, "bergen": 9},
)
SCHEDULED = ScheduleDecided(
    "shop/web",
    "u-1",
    "ScaleSchedule",
    5,
    (TargetCluster("bergen", 2), TargetCluster("oslo", 3)),
    (TargetCluster("oslo", 3),),
    requirements=Requirements({"cpu": 500}),
    explanation=WHY,
)
PLACED = ReplicasPlaced(
    "oslo",
    "shop/web",
    "a-1",
    (NodeShare("n-1", (0, 1, 2), (((0, 500),), ((0, 500),), ((1, 500),))), NodeShare("n-2", (5,))),
    explanation=Explanation(
        3,
        2,
        {"InsufficientResources": 1},
        (ScoredCandidate("n-1", 80),),
        (ScoredCandidate("n-3", 70),),
    ),
)


def decided(
    data: Value, seq: int = 7, subject: str = "shop/web", outcome: str = "scheduled"
) -> Decision:
    stream = "fleet/0"
    return Decision(
        stream,
        seq,
        decision_id(stream, seq),
        type_of(data),
        subject,
        outcome,
        CAUSE,
        data,
        canonical(data),
    )


def told(recorded: Value, replayed: Value) -> RoundDifference:
    found = round_difference([decided(recorded)], [decided(replayed)])
    assert found is not None
    return found


def why(**changes: object) -> Explanation:
    return structs.replace(WHY, **changes)


@pytest.mark.parametrize(
    ("replayed", "step", "then", "now"),
    [
        ({"trigger": "FirstSchedule"}, "trigger", "trigger ScaleSchedule", "trigger FirstSchedule"),
        ({"replicas": 6}, "request", "replicas 5", "replicas 6"),
        ({"previous": ()}, "held", "oslo 3", NOTHING),
        (
            {"explanation": why(feasible=3, refused={"ClusterAffinity": 2, "TaintToleration": 1})},
            "filter",
            "feasible 4, ClusterAffinity 1",
            "feasible 3, ClusterAffinity 2",
        ),
        ({"affinity": "near"}, "filter", "affinity", "affinity near"),
        (
            {
                "explanation": why(
                    chosen=(
                        ScoredCandidate("oslo", 100, 11, "class"),
                        ScoredCandidate("bergen", 0, 9, "class"),
                    )
                )
            },
            "estimate",
            "oslo 12 (class)",
            "oslo 11 (class)",
        ),
        (
            {
                "explanation": why(
                    chosen=(
                        ScoredCandidate("oslo", 0, 12, "class"),
                        ScoredCandidate("bergen", 0, 9, "class"),
                    )
                )
            },
            "score",
            "oslo 100",
            "oslo 0",
        ),
        (
            {"targets": (TargetCluster("oslo", 3), TargetCluster("tromso", 2))},
            "selection",
            "bergen",
            "tromso",
        ),
        ({"suspect": ("oslo",)}, "selection", NOTHING, "suspect oslo"),
        (
            {"targets": (TargetCluster("bergen", 1), TargetCluster("oslo", 4))},
            "division",
            "bergen 2, oslo 3",
            "bergen 1, oslo 4",
        ),
        (
            {"explanation": why(division={"oslo": 1, "bergen": 1})},
            "division",
            "weight of bergen 9, weight of oslo 12",
            "weight of bergen 1, weight of oslo 1",
        ),
        ({"explanation": why(note="because")}, "explanation", "note", "note because"),
        ({"explanation": why(runners_up=())}, "explanation", "runners-up tromso", "nothing"),
        ({"explanation": why(best={"oslo": 12})}, "estimate", "oslo 12 (class)", "oslo 12"),
    ],
)
def test_of_a_fleet_decision_the_first_step_that_differs_is_shown_alone(
    replayed: dict[str, object], step: str, then: str, now: str
) -> None:
    found = told(SCHEDULED, structs.replace(SCHEDULED, **replayed))
    assert (found.step, found.recorded, found.replayed) == (step, then, now)


def test_an_earlier_step_goes_before_what_follows_from_it() -> None:
    """A cluster that is filtered out is not selected either, and the others get more."""
    other = structs.replace(
        SCHEDULED,
        targets=(TargetCluster("oslo", 5),),
        explanation=why(feasible=3, chosen=WHY.chosen[:1], division={}),
    )
    assert told(SCHEDULED, other).step == "filter"


def test_placed_then_and_refused_now_is_a_matter_of_selection() -> None:
    refused = ScheduleRefused(
        "shop/web",
        "u-1",
        "ScaleSchedule",
        5,
        "Unschedulable",
        (TargetCluster("oslo", 3),),
        SCHEDULED.previous,
        requirements=SCHEDULED.requirements,
        explanation=why(note="5 replicas to place, 3 fit", division={}),
    )
    found = told(SCHEDULED, refused)
    assert found.step == "selection"
    assert found.recorded == "outcome scheduled, bergen"
    assert found.replayed == "outcome refused: Unschedulable (5 replicas to place, 3 fit)"


@pytest.mark.parametrize(
    ("replayed", "step", "then", "now"),
    [
        ({"assignment": "a-2"}, "trigger", "assignment a-1", "assignment a-2"),
        (
            {"explanation": Explanation(3, 3)},
            "filter",
            "feasible 2, InsufficientResources 1",
            "feasible 3",
        ),
        (
            {
                "explanation": structs.replace(
                    PLACED.explanation, chosen=(ScoredCandidate("n-1", 60),)
                )
            },
            "score",
            "n-1 80",
            "n-1 60",
        ),
        ({"placed": (PLACED.placed[0], NodeShare("n-3", (5,)))}, "selection", "n-2", "n-3"),
        (
            {
                "placed": (
                    NodeShare("n-1", (0, 1), PLACED.placed[0].devices[:2]),
                    NodeShare("n-2", (2, 5)),
                )
            },
            "division",
            "n-1 3, n-2 1",
            "n-1 2, n-2 2",
        ),
        ({"placed": (PLACED.placed[0], NodeShare("n-2", (3,)))}, "ordinals", "n-2 5", "n-2 3"),
        (
            {"placed": PLACED.placed[::-1]},
            "ordinals",
            "nodes in order n-1, n-2",
            "nodes in order n-2, n-1",
        ),
        (
            {
                "placed": (
                    structs.replace(
                        PLACED.placed[0], devices=(((0, 500),), ((1, 500),), ((1, 500),))
                    ),
                    PLACED.placed[1],
                )
            },
            "devices",
            "n-1 #1 0:500m",
            "n-1 #1 1:500m",
        ),
    ],
)
def test_of_a_node_decision_it_is_said_in_its_words(
    replayed: dict[str, object], step: str, then: str, now: str
) -> None:
    found = told(PLACED, structs.replace(PLACED, **replayed))
    assert (found.step, found.recorded, found.replayed) == (step, then, now)


def test_runs_of_ordinals_are_told_by_their_ends() -> None:
    fewer = structs.replace(
        PLACED, placed=(NodeShare("n-1", (0, 2, 3), PLACED.placed[0].devices), PLACED.placed[1])
    )
    assert (told(PLACED, fewer).recorded, told(PLACED, fewer).replayed) == ("n-1 0-2", "n-1 0 2-3")


PAIRS: tuple[tuple[Value, Value, str], ...] = (
    (BindingReleased("b", "u", (TargetCluster("oslo", 1),)), BindingReleased("b", "u"), "held"),
    (BindingReleased("b", "u", former=("jm",)), BindingReleased("b", "u"), "held"),
    (
        ExtenderAsked("oslo", "b", "a", "http://x", "filter", ("n", "m")),
        ExtenderAsked("oslo", "b", "a", "http://x", "filter", ("m", "n")),
        "filter",
    ),
    (
        ReplicasNominated("oslo", "b", "a", "n", 1, 5),
        ReplicasNominated("oslo", "b", "a", "m", 1, 5),
        "selection",
    ),
    (
        ScheduleDecided("b", "u", "FirstSchedule", 0, (), components=(Component("jm", 1),)),
        ScheduleDecided("b", "u", "FirstSchedule", 0, (), components=(Component("jm", 2),)),
        "request",
    ),
    (
        ScheduleRefused("b", "u", "FirstSchedule", 0, "Unschedulable", former=("jm",)),
        ScheduleRefused("b", "u", "FirstSchedule", 0, "Unschedulable"),
        "request",
    ),
    (
        ReplicasRefused("c", "b", "a", 2, "k", "Volumes"),
        ReplicasRefused("c", "b", "a", 3, "k", "Volumes"),
        "division",
    ),
    (
        ReplicasRefused("c", "b", "a", 2, "k", "Volumes"),
        ReplicasRefused("c", "b", "a", 2, "k", "Gated"),
        "selection",
    ),
    (
        ReplicasReleased("c", "b", "a", reason="x"),
        ReplicasReleased("c", "b", "a", reason="y"),
        "trigger",
    ),
    (
        ReplicasReleased("c", "b", "a", unbound=1),
        ReplicasReleased("c", "b", "a", unbound=2),
        "division",
    ),
    (
        ReplicasPlaced("c", "b", "a", ()),
        ReplicasRefused("c", "b", "a", 1, Requirements().class_key, "Volumes"),
        "selection",
    ),
    (
        ScheduleRefused("b", "u", "FirstSchedule", 1, "Unschedulable"),
        ScheduleRefused("b", "u", "FirstSchedule", 1, "NoClusterFit"),
        "selection",
    ),
    (
        ScheduleDecided("b", "u", "FirstSchedule", 1, ()),
        ScheduleDecided("b", "v", "FirstSchedule", 1, ()),
        "request",
    ),
    (
        NodeClaimRequested("oslo", "c", "pool", (), ("m5.large",), {}, {"b": 1}, 96, 5),
        NodeClaimRequested("oslo", "c", "pool", (), ("m5.large",), {}, {"b": 2}, 96, 5),
        "division",
    ),
    (
        NodeClaimEnded("oslo", "c", "p", "registered", "n"),
        NodeClaimEnded("oslo", "c", "p", "timed-out"),
        "selection",
    ),
    (
        DisruptionDecided("oslo", "c", "emptiness", (PricedNode("n", "p", price=96),), 5),
        DisruptionDecided("oslo", "c", "emptiness", (PricedNode("n", "p", price=97),), 5),
        "estimate",
    ),
    (
        DisruptionEnded("oslo", "c", "emptiness", "done", ("n",), ("n",), 96, 96),
        DisruptionEnded("oslo", "c", "emptiness", "done", ("n",), ("n",), 96, 95),
        "score",
    ),
    (
        ProposalRefused("p", "k", "t", "NothingToDo"),
        ProposalRefused("p", "k", "t", "FleetHeld"),
        "selection",
    ),
    (NodeRemovalDecided("c", "n", "r"), NodeRemovalDecided("c", "m", "r"), "selection"),
    (
        PodRemovalDecided("c", "n", (FinishedPod("u", "s", "a", "Failed"),), "x", "r", 1),
        PodRemovalDecided("c", "n", (FinishedPod("v", "s", "b", "Failed"),), "x", "r", 1),
        "selection",
    ),
    (
        PodsUnplaced("c", "s/a", ("u",), "NodeAffinity"),
        PodsUnplaced("c", "s/a", ("u", "v"), "NodeAffinity"),
        "selection",
    ),
    (
        ReplicasAdopted("c", "s/a", "x", (NodeShare("n", (0,)),), Requirements(), "already-there"),
        ReplicasAdopted("c", "s/a", "x", (NodeShare("n", (1,)),), Requirements(), "already-there"),
        "ordinals",
    ),
    (
        PreemptionDecided("c", "s/a", "u", "a-1", 9, "n", (PreemptedPod("v", "s", "b-1"),), 5),
        PreemptionDecided("c", "s/a", "u", "a-1", 9, "n", (PreemptedPod("w", "s", "b-2"),), 5),
        "selection",
    ),
    (
        PreemptionDecided("c", "s/a", "u", "a-1", 9, "n", (), 5),
        PreemptionDecided("c", "s/a", "u", "a-1", 9, "n", (), 6),
        "division",
    ),
    (
        PreemptionEnded("c", "s/a", "u", "a-1", "n", "Expired", "late", 5),
        PreemptionEnded("c", "s/a", "u", "a-1", "n", "NodeGone", "gone", 5),
        "selection",
    ),
    (NodeBarred("c", "s/a", "n", 1, 5), NodeBarred("c", "s/a", "n", 1, 6), "selection"),
    (ClusterSilenced("c", 1), ClusterSilenced("c", 2), "trigger"),
    (ClusterRecovered("c"), ClusterRecovered("d"), "selection"),
    (FailoverHeld(3, 5), FailoverHeld(4, 5), "filter"),
    (PlanCommitted("p", 3), PlanCommitted("p", 4), "request"),
    (PlanPromised("p", 3, ("fleet/0",)), PlanPromised("p", 4, ("fleet/0",)), "request"),
    (PlanPromised("p", 3, ("fleet/0",)), PlanRefused("p", "OutcomeDiffers"), "selection"),
    (
        PlanRefused("p", "OutcomeDiffers", changed=("a",)),
        PlanRefused("p", "OutcomeDiffers", changed=("b",)),
        "held",
    ),
    (PlanCommitted("p", 3), PlanRefused("p", "OutcomeDiffers"), "selection"),
    (FailoverResumed(1, 5), FailoverHeld(1, 5), "id"),
    (
        PlacementDecided("p", "FirstSelection", 1),
        PlacementDecided("p", "FirstSelection", 2),
        "selection",
    ),
    (PlacementHeld("p", 1), PlacementHeld("p", 2), "selection"),
    (PlacementReleased("p", 1), PlacementHeld("p", 1), "selection"),
)


@pytest.mark.parametrize(("a", "b", "step"), PAIRS)
def test_every_kind_of_decision_has_its_steps(a: Value, b: Value, step: str) -> None:
    assert told(a, b).step == step
    assert "selection" in [result.step for result in as_decision(a).step_results(None)], (
        "by which two kinds can always be told apart"
    )


def test_no_kind_of_decision_is_forgotten() -> None:
    kinds: set[type] = set(KINDS)
    assert {event.data for event in EVENT_TYPES if event.topic is DECISIONS} == kinds
    assert kinds - {LedgerWentBack, ClockRebased} == {type(a) for a, _, _ in PAIRS}, (
        "which are never decided again"
    )


def named(*subjects: str) -> list[Decision]:
    return [
        decided(BindingReleased(name, "u"), seq, name, "released")
        for seq, name in enumerate(subjects, start=1)
    ]


@pytest.mark.parametrize(
    ("recorded", "replayed", "step", "then", "now", "seq"),
    [
        (
            ("a", "b", "c"),
            ("b", "a", "c"),
            "input order",
            "a, then b, then c",
            "b, then a, then c",
            1,
        ),
        (("a", "b", "c"), ("a", "c"), "trigger", "released b", UNDECIDED, 2),
        (("a", "c"), ("a", "b", "c"), "trigger", UNDECIDED, "released b", 2),
        (("a",), ("a", "b"), "trigger", UNDECIDED, "released b", 2),
        (("a", "b"), ("a",), "trigger", "released b", UNDECIDED, 2),
    ],
)
def test_what_is_answered_and_in_which_order_comes_before_how(
    recorded: Sequence[str], replayed: Sequence[str], step: str, then: str, now: str, seq: int
) -> None:
    found = round_difference(named(*recorded), named(*replayed))
    assert found is not None
    assert (found.step, found.recorded, found.replayed, found.seq) == (step, then, now, seq)


def test_many_parts_are_counted_and_long_ones_cut() -> None:
    many = structs.replace(
        SCHEDULED, previous=tuple([TargetCluster(f"c-{i}", i) for i in range(9)])
    )
    found = told(SCHEDULED, many)
    assert (found.step, found.replayed) == (
        "held",
        "c-0 0, c-1 1, c-2 2, c-3 3, c-4 4, c-5 5, and 3 more",
    )
    assert len(told(SCHEDULED, structs.replace(SCHEDULED, uid="u" * 4000)).replayed) < 200


def test_what_cannot_be_read_or_says_the_same_in_other_bytes_is_shown_as_bytes() -> None:
    unreadable = structs.replace(decided(SCHEDULED), body=b"\xff no json")
    found = round_difference([unreadable], [decided(SCHEDULED)])
    assert found is not None
    assert found.step == "bytes"
    assert "cannot be read" in found.recorded
    spaced = structs.replace(
        decided(SCHEDULED), body=decided(SCHEDULED).body.replace(b",", b", ", 1)
    )
    other = round_difference([spaced], [decided(SCHEDULED)])
    assert other is not None
    assert (other.step, other.recorded.split(":")[0]) == ("bytes", "from byte 22")


# --- who is to blame, and how it goes on


def history(rounds: int = 5, per_round: int = 3) -> list[RecordedRound]:
    writer = Writer(empty_head("fleet/0", epoch=1))
    recorded = []
    for number in range(rounds):
        events = [withdrawn(number * per_round + i) for i in range(per_round)]
        recorded.append(RecordedRound(writer.step(events), events))
    return recorded


def replayed(recorded: Sequence[RecordedRound], decider: Counter | None = None) -> AuditResult:
    decider = decider or Counter()
    return audit(decider, decider.initial("fleet/0"), empty_head("fleet/0"), recorded)


def with_round(recorded: Sequence[RecordedRound], place: int, change: Round) -> list[RecordedRound]:
    return [replace(r, round=change) if n == place else r for n, r in enumerate(recorded)]


def test_two_inputs_that_were_exchanged_are_found_by_the_hash() -> None:
    recorded = history()
    r, events = recorded[2].round, list(recorded[2].events)
    events[0], events[2] = events[2], events[0]
    inputs = (r.inputs[2], r.inputs[1], r.inputs[0])
    changed = with_round(recorded, 2, replace(r, inputs=inputs))
    (found,) = replayed(
        [replace(c, events=events) if n == 2 else c for n, c in enumerate(changed)]
    ).divergences
    assert (found.round, found.step, found.blame) == (3, "input order", "record")
    assert found.recorded == f"input 0 is {inputs[0].id}, input 2 is {inputs[2].id}"


def test_changed_rows_are_the_records_fault_and_do_not_spread() -> None:
    recorded = history()
    r = recorded[2].round
    decisions = (structs.replace(r.decisions[0], subject="other"), *r.decisions[1:])
    (found,) = replayed(with_round(recorded, 2, replace(r, decisions=decisions))).divergences
    assert (found.blame, found.follows, found.subject) == ("record", False, r.decisions[0].subject)


def test_another_answer_is_the_deciders_fault_and_later_ones_are_marked() -> None:
    found = replayed(history(), Counter(every=1000)).divergences
    assert {d.blame for d in found} == {"decider"}
    assert [d.follows for d in found] == [False] + [True] * (len(found) - 1)
    assert (found[0].step, found[0].recorded, found[0].replayed) == (
        "trigger",
        "resumed fleet",
        UNDECIDED,
    )


def test_rounds_are_counted_by_the_engine_that_decided_them() -> None:
    recorded = history(rounds=2)
    result = replayed(recorded)
    engine = recorded[0].round.engine
    assert {name: (e.rounds, e.differing) for name, e in result.engines.items()} == {engine: (2, 0)}
    assert result.engines[engine].decisions == result.decisions


def test_causes_are_told() -> None:
    other = structs.replace(decided(SCHEDULED), cause=UUID(int=1))
    found = round_difference([decided(SCHEDULED)], [other])
    assert found is not None
    assert (found.step, found.replayed) == ("trigger", f"cause {UUID(int=1)}")


class Wordy(FleetDecider):
    """An earlier version, which recorded more of its reasons."""

    def decide(self, state: FleetState, at: int) -> Iterator[Draft]:
        for draft in super().decide(state, at):
            data = draft.data
            if isinstance(data, ScheduleDecided):
                why = structs.replace(data.explanation, best={}, chosen=(ScoredCandidate("oslo"),))
                draft = structs.replace(draft, data=structs.replace(data, explanation=why))
            yield draft


def by_a_wordy_version(engine: str) -> list[RecordedRound]:
    decider = Wordy()
    state, head = decider.initial("fleet/0"), empty_head("fleet/0")
    recorded = []
    for number, replicas in enumerate((2, 3, 1, 4)):
        facts = (a_cluster("oslo"), room("oslo", 9)) if number == 0 else ()
        events = [
            made(fact, id=derived_id("fact", number, at), source="/test", subject="test")
            for at, fact in enumerate((*facts, a_binding(f"web-{number % 2}", replicas)))
        ]
        made_round = step(decider, state, head, events, 1_000 * (number + 1), {}, engine=engine)
        head = made_round.head()
        recorded.append(RecordedRound(made_round, events))
    assert sum(len(one.round.decisions) for one in recorded) == 4
    return recorded


def test_other_explanations_of_another_version_are_counted_and_no_divergence() -> None:
    decider = FleetDecider()
    recorded = by_a_wordy_version("wharfinger/0.0.1")
    found = audit(decider, decider.initial("fleet/0"), empty_head("fleet/0"), recorded)
    assert found.divergences == []
    assert found.engines["wharfinger/0.0.1"] == EngineResult(4, 4, differing=0, reworded=4)


def test_another_explanation_of_this_version_is_a_divergence() -> None:
    decider = FleetDecider()
    found = audit(
        decider, decider.initial("fleet/0"), empty_head("fleet/0"), by_a_wordy_version(ENGINE)
    )
    assert [(d.round, d.step, d.blame) for d in found.divergences] == [
        (number, "estimate", "decider") for number in (1, 2, 3, 4)
    ]
    assert found.engines[ENGINE] == EngineResult(4, 4, differing=4, reworded=0)
