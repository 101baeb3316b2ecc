"""What becomes of placements: which clusters they select, when they are looked at, and what is
never taken away."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest
from rich.text import Text
from tests.scenarios.placement_plane import (
    GLOBAL,
    IDLE,
    MEMORY,
    SECOND,
    START,
    STEADY,
    PlacementPlane,
    a_managed,
    a_placement,
    a_score,
    bound,
    no_placement,
    told,
)

from wharfinger.answers.plans import plan_plain
from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import ManagedTaint
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import (
    ClusterSet,
    ClusterToleration,
    Condition,
    DecisionGroup,
    Predicate,
    Priority,
    Selector,
    SetBinding,
)
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import ObjectRef
from wharfinger.engine.cluster_sets import select as engine
from wharfinger.events.accepted import Fact, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.decisions import (
    PART_SIZE,
    DecidedGroup,
    PlacementDecided,
    PlacementReleased,
    PlanCommitted,
)
from wharfinger.events.plans import PlanRequested, step_of
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.history.plan_records import Plan, SelectionMove
from wharfinger.history.planning import planned
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.divergence import round_difference
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.world import World
from wharfinger_cli.plan import plan_page

PLAN = "7d0e7b1c-5df2-5a47-9a5d-5d9d6c0f4a11"
UNKNOWN_OPERATOR = (Predicate(Selector(conditions=(Condition("tier", "Gtt", ("3",)),))),)


@pytest.fixture
def plane() -> PlacementPlane:
    plane = PlacementPlane()
    plane.tell(
        GLOBAL,
        bound("apps"),
        a_managed("bergen", 60),
        a_managed("genoa", 80),
        a_managed("oslo", 100),
    )
    return plane


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The placements that the engine was asked about."""
    names: list[str] = []

    def choose(fleet: object, placement: Policy, at: int) -> object:
        names.append(placement.name)
        return engine.choose(fleet, placement, at)  # type: ignore[arg-type]

    monkeypatch.setattr("wharfinger.stages.fleet.selections.choose", choose)
    return names


def sole(decisions: list[Decision]) -> PlacementDecided:
    (decision,) = decisions
    assert isinstance(decision.data, PlacementDecided)
    return decision.data


# --- what is decided


def a_busy_plane() -> PlacementPlane:
    """Its rounds decide two bindings each."""
    fleet = FleetDecider(work=300)
    plane = PlacementPlane(World(fleet=fleet, recorded=True, repeat_after_s=None, at=START))
    plane.tell(GLOBAL, bound("apps"), *[a_managed(name) for name in ("bergen", "genoa", "oslo")])
    return plane


def more_bindings_than_a_round_decides() -> list[BindingRequested]:
    ref = ObjectRef("apps/v1", "Deployment", "web", "apps")
    return [BindingRequested(Binding(f"apps/web-{n}", f"uid-{n}", ref, 1)) for n in range(9)]


def test_a_placement_that_comes_with_a_burst_of_bindings_is_decided_with_them() -> None:
    plane = a_busy_plane()
    data = sole(plane.tell(*more_bindings_than_a_round_decides(), a_placement(wanted=2)))
    assert data.added == ("bergen", "genoa")


def test_a_cluster_that_goes_in_a_burst_of_bindings_leaves_its_sets() -> None:
    plane = a_busy_plane()
    plane.tell(a_placement(wanted=2))
    data = sole(plane.tell(*more_bindings_than_a_round_decides(), ClusterForgotten("bergen")))
    assert (data.added, data.removed) == (("oslo",), ("bergen",))


def test_a_placement_that_is_removed_in_a_burst_of_bindings_gives_up_its_clusters() -> None:
    plane = a_busy_plane()
    plane.tell(a_placement(wanted=2))
    assert told(plane.tell(*more_bindings_than_a_round_decides(), no_placement())) == ["released"]


def test_a_placement_selects_of_what_was_known_before_it(plane: PlacementPlane) -> None:
    decisions = plane.tell(a_placement(wanted=2, priorities=(MEMORY,)))
    data = sole(decisions)
    assert decisions[0].subject == "placement/apps/demo"
    assert decisions[0].outcome == "selected"
    assert (data.trigger, data.generation, data.complete) == ("FirstSelection", 1, True)
    assert data.groups[0].scores == {"genoa": 100, "oslo": 200}
    assert data.added == ("genoa", "oslo")
    assert plane.condition("PlacementSatisfied") == ("True", "AllDecisionsScheduled")


def test_a_decision_says_who_was_asked_and_who_came_next(plane: PlacementPlane) -> None:
    plane.tell(
        a_managed("izmir", 200, ManagedTaint("closed", "NoSelect")),
        a_managed("halifax", 10, labels={"tier": "tin"}),
    )
    tin = Predicate(Selector(conditions=(Condition("tier", "NotIn", ("tin",)),)))
    explanation = sole(
        plane.tell(a_placement(wanted=1, priorities=(MEMORY,), predicates=(tin,)))
    ).explanation
    assert (explanation.candidates, explanation.feasible) == (5, 3)
    assert explanation.refused == {"Predicate": 1, "TaintToleration": 1}
    assert list(explanation.best) == ["oslo", "genoa"]


def test_an_explanation_stays_short_whatever_things_are_called(plane: PlacementPlane) -> None:
    plane.tell(*[a_managed(f"{i}{'n' * 252}") for i in range(12)])
    wrong = (Predicate(Selector(conditions=(Condition("k" * 300, "In", ("v" * 500,)),))),)
    for said in ({"wanted": 6}, {"wanted": 6, "predicates": wrong}):
        data = sole(plane.tell(a_placement("p" * 63, "s" * 63, **said), bound("s" * 63)))
        assert 0 < len(canonical(data.explanation)) <= 2048


def test_what_is_missing_is_told_and_mended_when_a_cluster_comes(plane: PlacementPlane) -> None:
    data = sole(plane.tell(a_placement(wanted=4)))
    assert data.unscheduled == 1
    assert plane.condition("PlacementSatisfied") == ("False", "NotAllDecisionsScheduled")
    data = sole(plane.tell(a_managed("izmir")))
    assert (data.trigger, data.generation, data.added, data.unscheduled) == (
        "ClustersChanged",
        2,
        ("izmir",),
        0,
    )
    assert plane.condition("PlacementSatisfied") == ("True", "AllDecisionsScheduled")


def test_a_removed_placement_lets_go_and_begins_anew(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=2))
    (released,) = plane.tell(no_placement())
    assert released.data == PlacementReleased("apps/demo", 1, 2)
    assert plane.selections.active == {}
    assert plane.tell(a_managed("oslo", 300)) == []
    assert sole(plane.tell(a_placement(wanted=1))).trigger == "FirstSelection"


def test_a_placement_that_is_replaced_at_once_is_not_released(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=3))
    assert told(plane.tell(no_placement(), a_placement(wanted=2, priorities=(MEMORY,)))) == [
        "-bergen"
    ]


def test_groups_are_named_and_cut(plane: PlacementPlane) -> None:
    plane.tell(a_managed("izmir", 10, labels={"stage": "canary"}))
    canary = DecisionGroup("canary", Selector({"stage": "canary"}))
    data = sole(plane.tell(a_placement(groups=(canary,), per_group=2)))
    groups = [(group.index, group.name, list(group.scores)) for group in data.groups]
    assert groups == [(0, "canary", ["izmir"]), (1, "", ["bergen", "genoa"]), (2, "", ["oslo"])]


def test_the_same_clusters_in_other_groups_are_another_set(plane: PlacementPlane) -> None:
    plane.tell(a_placement())
    data = sole(plane.tell(a_placement(per_group=1)))
    assert (data.generation, data.added, data.removed, len(data.groups)) == (2, (), (), 3)


# --- when it is looked at


def test_what_changes_nothing_writes_nothing(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=2, priorities=(MEMORY,)))
    assert plane.tell(a_managed("genoa", 81)) == []  # another score, the same order
    assert plane.tell(a_placement(wanted=2, priorities=(MEMORY,), mode="Additive")) == []
    assert plane.wait(10_000) == []


def test_many_changes_at_once_are_one_look(plane: PlacementPlane, asked: list[str]) -> None:
    plane.tell(a_placement(wanted=2))
    asked.clear()
    plane.tell(*[a_managed(f"izmir-{i}") for i in range(20)])
    assert asked == ["demo"]


def test_only_placements_that_may_use_the_cluster_are_looked_at(
    plane: PlacementPlane, asked: list[str]
) -> None:
    label = "cluster.open-cluster-management.io/clusterset"
    red = PolicyApplied(Policy("ManagedClusterSet", "red", cluster_set=ClusterSet()))
    plane.tell(red, bound("dock", "red"), a_placement("here", "dock"), a_placement("there", "apps"))
    asked.clear()
    assert told(plane.tell(a_managed("izmir", labels={label: "red"}))) == ["+izmir", "+izmir"]
    # in order of namespace: apps, dock; the global set has every cluster
    assert asked == ["there", "here"]
    plane.tell(PolicyRemoved("ManagedClusterSetBinding", "global", "apps"))
    asked.clear()
    plane.tell(a_managed("izmir", 65, labels={label: "red"}))
    assert asked == ["here"]
    assert told(plane.tell(a_managed("izmir", 65))) == ["-izmir"]  # it has left the set


def test_scores_open_those_who_ask_for_them(plane: PlacementPlane, asked: list[str]) -> None:
    plane.tell(
        a_placement("idle", wanted=1, priorities=(IDLE,), mode="Exact"),
        a_placement("big", wanted=1, priorities=(MEMORY,)),
    )
    asked.clear()
    assert told(plane.tell(a_score("genoa", 50), a_score("oslo", 20))) == ["+genoa -bergen"]
    assert set(asked) == {"idle"}


def test_a_set_that_is_bound_later_opens_its_placements() -> None:
    plane = PlacementPlane()
    plane.tell(a_managed("oslo"), a_placement())
    assert plane.condition("PlacementSatisfied") == ("False", "NoManagedClusterSetBindings")
    assert told(plane.tell(GLOBAL, bound("apps"))) == ["+oslo"]
    assert told(
        plane.tell(PolicyApplied(Policy("ManagedClusterSet", "global", cluster_set=ClusterSet())))
    ) == ["-oslo"]


def test_a_cluster_that_is_forgotten_leaves(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=2, priorities=(MEMORY,)))
    assert told(plane.tell(ClusterForgotten("oslo"))) == ["+bergen -oslo"]
    assert told(plane.tell(a_managed("genoa", 80, deleting=True))) == ["-genoa"]


def test_a_taint_is_borne_for_its_time_and_no_longer(plane: PlacementPlane) -> None:
    plane.tell(a_placement(tolerations=(ClusterToleration("gone", "Exists", seconds=300),)))
    taint = ManagedTaint("gone", "NoSelect", added_us=plane.world.at)
    assert plane.tell(a_managed("oslo", 100, taint), after_s=10) == []
    assert plane.wait(280) == []
    (left,) = plane.wait(20)
    assert (told([left]), left.cause) == (["-oslo"], None)


def test_a_score_that_expires_counts_no_more(plane: PlacementPlane) -> None:
    until = plane.world.at + 100 * SECOND
    plane.tell(
        a_score("bergen", 90, until),
        a_score("genoa", 10),
        a_placement(wanted=1, priorities=(IDLE,), mode="Exact"),
    )
    assert plane.selected() == ["bergen"]
    assert plane.wait(90) == []
    assert told(plane.wait(20)) == ["+genoa -bergen"]


def test_balance_sees_the_placements_before_it(plane: PlacementPlane) -> None:
    balance = (Priority(builtin="Balance"),)
    plane.tell(
        a_placement("a", wanted=1, priorities=balance, mode="Exact"),
        a_placement("b", wanted=1, priorities=balance, mode="Exact"),
    )
    assert plane.selected("apps/a") == ["bergen"]
    assert plane.selected("apps/b") == ["genoa"]


def test_other_shards_decide_no_placements() -> None:
    plane = PlacementPlane(World(shards=3, recorded=True, repeat_after_s=None, at=0))
    plane.tell(GLOBAL, bound("apps"), a_managed("oslo"), a_placement())
    decided = {r.round.stream: len(r.round.decisions) for r in plane.rounds}
    assert decided == {"fleet/0": 1, "fleet/1": 0, "fleet/2": 0}
    policies = {
        r.round.stream for r in plane.rounds for e in r.events if isinstance(e.data, PolicyApplied)
    }
    assert policies == {"fleet/0"}


# --- what is never taken away


def test_a_placement_made_wrong_keeps_its_clusters_and_says_so(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=2))
    before = plane.selected()
    decisions = plane.tell(a_placement(wanted=2, predicates=UNKNOWN_OPERATOR))
    assert decisions[0].outcome == "misconfigured"
    assert (sole(decisions).generation, plane.selected()) == (1, before)
    assert plane.condition("PlacementMisconfigured") == ("True", "Misconfigured")
    assert sole(plane.tell(a_placement(wanted=2))).generation == 1
    assert plane.condition("PlacementMisconfigured") == ("False", "Succeedconfigured")


def test_a_strict_one_is_emptied_as_there(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=2, strict=True))
    data = sole(plane.tell(a_placement(wanted=2, strict=True, predicates=UNKNOWN_OPERATOR)))
    assert (data.generation, len(data.removed), plane.selected()) == (2, 2, [])


def test_a_placement_that_was_never_right_holds_nothing(plane: PlacementPlane) -> None:
    data = sole(plane.tell(a_placement(predicates=UNKNOWN_OPERATOR)))
    assert (data.generation, data.groups) == (0, ())
    assert sole(plane.tell(a_placement())).generation == 1


def test_less_than_nothing_is_refused(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=2))
    assert plane.tell(a_placement(wanted=-1))[0].outcome == "misconfigured"
    assert len(plane.selected()) == 2


def test_nothing_is_decided_of_a_placement_that_is_disabled_or_being_deleted(
    plane: PlacementPlane,
) -> None:
    plane.tell(a_placement(wanted=1))
    assert plane.tell(a_placement(wanted=2, disabled=True), a_managed("izmir")) == []
    assert plane.tell(a_placement(wanted=2, deleting=True), a_managed("izmir", 3)) == []
    assert told(plane.tell(a_placement(wanted=2))) == ["+genoa"]


# --- the stabilisation window


WINDOW: dict[str, Any] = {"wanted": 1, "priorities": (MEMORY,), "mode": "Exact", "window_s": 60}


def test_noise_within_the_window_moves_nothing(plane: PlacementPlane) -> None:
    plane.tell(a_placement(**WINDOW))
    for _ in range(5):
        assert told(plane.tell(a_managed("genoa", 200), after_s=10)) == ["held"]
        assert told(plane.tell(a_managed("genoa", 80), after_s=10)) == ["settled"]
    assert plane.selected() == ["oslo"]
    assert plane.wait(1_000) == []


def test_what_lasts_for_the_window_moves_once(plane: PlacementPlane) -> None:
    plane.tell(a_placement(**WINDOW))
    (held,) = plane.tell(a_managed("genoa", 200))
    assert held.data.better == ("genoa",)  # type: ignore[attr-defined]
    assert held.data.worse == ("oslo",)  # type: ignore[attr-defined]
    assert plane.tell(a_managed("genoa", 210), after_s=30) == []
    assert plane.wait(29) == []
    assert told(plane.wait(2)) == ["+genoa -oslo"]
    assert plane.current().held_until == 0
    assert plane.wait(1_000) == []


def test_what_must_change_within_the_window_changes_with_little_else(plane: PlacementPlane) -> None:
    plane.tell(a_placement(**(WINDOW | {"wanted": 2})))
    assert plane.selected() == ["genoa", "oslo"]
    assert told(plane.tell(a_managed("izmir", 500), a_managed("halifax", 400))) == ["held"]
    until = plane.current().held_until
    # genoa stays, though halifax has more
    assert told(plane.tell(ClusterForgotten("oslo"))) == ["+izmir -oslo", "held"]
    assert plane.current().held_until == until
    assert told(plane.wait(60)) == ["+halifax -genoa"]


def test_who_asks_for_something_else_gets_it_at_once(plane: PlacementPlane) -> None:
    plane.tell(a_placement(**WINDOW))
    assert told(plane.tell(a_managed("genoa", 200))) == ["held"]
    assert told(plane.tell(a_placement(**(WINDOW | {"window_s": 61})))) == ["+genoa -oslo"]


def test_hysteresis_keeps_what_is_nearly_as_good(plane: PlacementPlane) -> None:
    plane.tell(
        a_placement(wanted=1, priorities=(IDLE,), mode="Exact", hysteresis=20), a_score("oslo", 50)
    )
    assert plane.selected() == ["oslo"]
    assert plane.tell(a_score("genoa", 70)) == []
    assert told(plane.tell(a_score("genoa", 71))) == ["+genoa -oslo"]


# --- sets too large for a message


def test_a_large_set_comes_in_parts_of_which_the_last_is_complete() -> None:
    plane = PlacementPlane()
    plane.tell(GLOBAL, bound("apps"), *[a_managed(f"c{i:04d}") for i in range(2 * PART_SIZE + 300)])
    decisions = plane.tell(a_placement(per_group=PART_SIZE - 1))
    parts = [d.data for d in decisions if isinstance(d.data, PlacementDecided)]
    assert [(p.part, p.parts, p.complete, p.generation) for p in parts] == [
        (1, 3, False, 1),
        (2, 3, False, 1),
        (3, 3, True, 1),
    ]
    assert all(sum(len(g.scores) for g in p.groups) <= PART_SIZE for p in parts)
    assert [len(g.scores) for g in plane.current().groups] == [PART_SIZE - 1, PART_SIZE - 1, 302]
    assert sum((p.added for p in parts), ()) == tuple(plane.selected())
    gone = plane.tell(*[ClusterForgotten(f"c{i:04d}") for i in range(1500)])
    assert [len(d.data.removed) for d in gone] == [1000, 500]  # type: ignore[attr-defined]
    assert len(plane.selected()) == 800


# --- plans, and replays that part


def test_a_plan_that_moves_a_placement_happens_as_it_was_rehearsed(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=2, priorities=(MEMORY,), mode="Exact"))
    state = next(plane.world.fleet_states())
    steps = (step_of(a_managed("oslo", 1)), step_of(ClusterForgotten("genoa")))
    request = FleetDecider().expectation(
        state, PlanRequested("fleet/0", PLAN, steps), plane.world.at
    )
    assert [(o.subject, o.outcome) for o in request.expected] == [
        ("placement/apps/demo", "selected")
    ]
    assert plane.selected() == ["genoa", "oslo"], "a rehearsal changes nothing"
    assert told(plane.tell(request)) == ["+bergen -genoa"]
    committed, moved = plane.rounds[-1].round.decisions
    assert isinstance(committed.data, PlanCommitted)
    assert moved.cause == committed.id


def a_plan(plane: PlacementPlane, *facts: Fact) -> Plan:
    return planned(plane.world, [accepted(fact) for fact in facts], (), UUID(int=1), plane.world.at)


def test_a_plan_shows_what_a_placement_would_select(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=2, priorities=(MEMORY,), mode="Exact"))
    plan = a_plan(plane, a_managed("oslo", 1))
    (move,) = plan.selections
    assert move == SelectionMove("apps/demo", (("genoa", "oslo"),), (("bergen", "genoa"),))
    assert plan.changes
    assert not plan.moves_bindings
    assert plane.selected() == ["genoa", "oslo"], "planning changes nothing"
    page = [str(part) for part in plan_page(plan) if isinstance(part, Text)]
    assert page[0].startswith("1 Placement would select other clusters")
    assert plan_plain(plan)["placements"] == [
        {
            "placement": "apps/demo",
            "before": (("genoa", "oslo"),),
            "after": (("bergen", "genoa"),),
            "reason": "",
        }
    ]


def test_a_plan_shows_a_new_placement_and_what_it_would_lack(plane: PlacementPlane) -> None:
    (move,) = a_plan(plane, a_placement(wanted=4)).selections
    assert move.before == ()
    assert move.after == (("bergen", "genoa", "oslo"),)
    assert move.reason == "1 cluster decisions unscheduled"


def test_a_plan_shows_a_placement_that_is_only_wrong_afterwards(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=2))
    plan = a_plan(plane, a_placement(wanted=-1))
    (move,) = plan.selections
    assert move.before == move.after == (("bergen", "genoa"),)
    assert "must not be negative" in move.reason
    assert str(next(iter(plan_page(plan)))).startswith("1 Placement would have another condition")


def test_a_plan_that_leaves_placements_as_they_are_changes_nothing(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=2))
    assert not a_plan(plane, a_managed("oslo", 90), a_placement(wanted=2)).changes


@pytest.mark.parametrize(
    ("changes", "step", "then", "now"),
    [
        ({"trigger": "TimePassed"}, "trigger", "trigger FirstSelection", "trigger TimePassed"),
        (
            {"groups": (DecidedGroup(0, "", {"genoa": 90, "oslo": 100}),)},
            "score",
            "genoa 0",
            "genoa 90",
        ),
        ({"unscheduled": 1}, "selection", "unscheduled 0", "unscheduled 1"),
        ({"generation": 2}, "selection", "generation 1", "generation 2"),
        (
            {"groups": (DecidedGroup(1, "", {"genoa": 0, "oslo": 100}),)},
            "division",
            "group 0 genoa, oslo",
            "group 1 genoa, oslo",
        ),
    ],
)
def test_a_divergence_names_the_step_that_parted_first(
    plane: PlacementPlane, changes: dict[str, Any], step: str, then: str, now: str
) -> None:
    (recorded,) = plane.tell(a_placement(wanted=2, priorities=(MEMORY,), mode="Exact"))
    data = msgspec.structs.replace(recorded.data, **changes)
    replayed = msgspec.structs.replace(recorded, data=data, body=canonical(data))
    found = round_difference([recorded], [replayed])
    assert found is not None
    assert (found.step, found.recorded, found.replayed) == (step, then, now)


def test_half_a_set_is_no_set(plane: PlacementPlane) -> None:
    plane.tell(a_placement())
    part = PlacementDecided(
        "apps/demo", "ClustersChanged", 2, (), 1, 2, complete=False, removed=("oslo",)
    )
    plane.selections.decided(part, plane.world.at)
    assert plane.selected() == ["bergen", "genoa", "oslo"]


def test_steady_keeps_whom_it_has(plane: PlacementPlane) -> None:
    plane.tell(a_placement(wanted=1, priorities=(STEADY, MEMORY)))
    assert plane.tell(a_managed("genoa", 100)) == []
    assert plane.selected() == ["oslo"]


def test_a_binding_names_the_set_by_its_own_name(plane: PlacementPlane) -> None:
    other = PolicyApplied(
        Policy("ManagedClusterSetBinding", "other", "dock", set_binding=SetBinding("global"))
    )
    plane.tell(other, a_placement("demo", "dock"))
    assert plane.selected("dock/demo") == []
