"""Placements told as stories: what each rule does, and where ours is another than Open Cluster
Management's."""

from __future__ import annotations

import msgspec
import pytest
from tests.reference.ocm_objects import DecisionObject, Write, difference, score_text

from wharfinger.domain.cluster import Cluster, ManagedClusterFacts, ManagedTaint
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import (
    AddOnScore,
    ClusterScores,
    ClusterSet,
    ClusterToleration,
    Condition,
    DecisionGroup,
    Predicate,
    Priority,
    ScoreValue,
    Selection,
    Selector,
    SetBinding,
)
from wharfinger.engine.cluster_sets.amounts import approximate
from wharfinger.engine.cluster_sets.fleet import BY_LABELS, PlacementFleet
from wharfinger.engine.cluster_sets.groups import length
from wharfinger.engine.cluster_sets.select import DISLIKED, SelectionResult, choose
from wharfinger.engine.cluster_sets.selectors import SelectorError, compiled

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND
LOAD = Priority("AddOn", addon=AddOnScore("load", "cpu"))
ONLY_LOAD = Selection(mode="Exact", priorities=(LOAD,), wanted=2)


def a_cluster(name: str, memory: str = "", *taints: ManagedTaint, **labels: str) -> Cluster:
    amounts = {"memory": memory} if memory else {}
    return Cluster(name, labels=labels, managed=ManagedClusterFacts({}, taints, amounts, amounts))


def taint(effect: str, key: str = "repair", added_s: int = 0) -> ManagedTaint:
    return ManagedTaint(key, effect, added_us=NOW + added_s * SECOND)


def a_fleet(*clusters: Cluster) -> PlacementFleet:
    fleet = PlacementFleet()
    for cluster in clusters:
        fleet.observe(cluster)
    fleet.apply(
        Policy("ManagedClusterSet", "harbour", cluster_set=ClusterSet(BY_LABELS, Selector()))
    )
    fleet.apply(
        Policy("ManagedClusterSetBinding", "harbour", "shop", set_binding=SetBinding("harbour"))
    )
    return fleet


def give(fleet: PlacementFleet, cluster: str, value: int, until_s: int | None = None) -> None:
    until = None if until_s is None else NOW + until_s * SECOND
    scores = ClusterScores((ScoreValue("cpu", value),), until)
    fleet.apply(Policy("AddOnPlacementScore", "load", cluster, scores=scores))


def asked(fleet: PlacementFleet, selection: Selection, at: int = NOW) -> SelectionResult:
    return choose(fleet, Policy("Placement", "p", "shop", selection=selection), at)


def satisfied(choice: SelectionResult) -> tuple[str, str, str]:
    (told,) = [c for c in choice.conditions if c.type == "PlacementSatisfied"]
    return told.status, told.reason, told.message


# Candidates.


def test_a_set_that_the_namespace_is_not_bound_to_gives_nothing() -> None:
    fleet = a_fleet(a_cluster("oslo"))
    choice = choose(fleet, Policy("Placement", "p", "elsewhere", selection=Selection()), NOW)
    assert choice.selected == ()
    assert satisfied(choice)[1] == "NoManagedClusterSetBindings"


def test_default_and_global_sets_are_there_without_anybody_applying_them() -> None:
    mine = "cluster.open-cluster-management.io/clusterset"
    fleet = PlacementFleet()
    fleet.observe(a_cluster("free"))
    fleet.observe(Cluster("kept", labels={mine: "somebody's"}, managed=ManagedClusterFacts()))
    fleet.observe(Cluster("marked", labels={mine: "default"}, managed=ManagedClusterFacts()))
    for name in ("default", "global"):
        fleet.apply(Policy("ManagedClusterSetBinding", name, "shop", set_binding=SetBinding(name)))
    assert asked(fleet, Selection(cluster_sets=("default",))).selected == ("free", "marked")
    assert asked(fleet, Selection(cluster_sets=("global",))).selected == ("free", "kept", "marked")
    assert asked(fleet, Selection(cluster_sets=("global",), strict=True)).selected == ()


def test_a_cluster_of_another_system_is_no_candidate() -> None:
    fleet = a_fleet(a_cluster("oslo"), Cluster("karmada's"))
    assert asked(fleet, Selection()).selected == ("oslo",)


def test_a_set_nobody_can_read_leaves_all_as_it_is() -> None:
    fleet = a_fleet(a_cluster("oslo"))
    wrong = ClusterSet(BY_LABELS, Selector(conditions=(Condition("a", "Equals", ("b",)),)))
    fleet.apply(Policy("ManagedClusterSet", "harbour", cluster_set=wrong))
    choice = asked(fleet, Selection())
    assert choice.keeps
    assert choice.sets_trouble == (
        'failed to get clusters from ClusterSet "harbour": "Equals" is not a valid label '
        "selector operator"
    )


# Taints.


def test_a_soft_taint_puts_a_newcomer_last_and_moves_nothing_that_runs() -> None:
    fleet = a_fleet(
        a_cluster("bergen", "", taint("PreferNoSelect")), a_cluster("oslo"), a_cluster("tromso")
    )
    two = Selection(wanted=2)
    new = asked(fleet, two)
    assert new.selected == ("oslo", "tromso")
    assert new.total_of["bergen"] == new.total_of["oslo"] - DISLIKED
    assert asked(fleet, Selection(wanted=3)).selected == ("oslo", "tromso", "bergen")
    fleet.decided("shop/p", ["bergen", "oslo"])
    assert asked(fleet, two).selected == ("bergen", "oslo")
    borne = Selection(wanted=2, tolerations=(ClusterToleration("repair", "Exists"),))
    fleet.decided("shop/p", [])
    assert asked(fleet, borne).selected == ("bergen", "oslo")
    assert asked(fleet, Selection(wanted=2, strict=True)).selected == ("bergen", "oslo")


def test_the_end_of_a_toleration_is_a_time_to_look_again() -> None:
    fleet = a_fleet(a_cluster("bergen", "", taint("NoSelect", added_s=-10)), a_cluster("oslo"))
    patient = Selection(tolerations=(ClusterToleration("repair", "Exists", seconds=60),))
    now = asked(fleet, patient)
    assert now.selected == ("bergen", "oslo")
    assert now.requeue_at == NOW + 50 * SECOND
    assert asked(fleet, patient, NOW + 50 * SECOND).selected == ("oslo",)
    strict = msgspec.structs.replace(patient, strict=True)
    assert asked(fleet, strict).requeue_at is None  # it looks at what is decided already
    fleet.decided("shop/p", ["bergen"])
    assert asked(fleet, strict).requeue_at == NOW + 50 * SECOND


def test_a_toleration_of_many_years_holds_unless_strict() -> None:
    fleet = a_fleet(a_cluster("oslo", "", taint("NoSelect")))
    long = Selection(tolerations=(ClusterToleration("repair", "Exists", seconds=9_300_000_000),))
    assert asked(fleet, long).selected == ("oslo",)
    assert asked(fleet, msgspec.structs.replace(long, strict=True)).selected == ()


# Scores.


def test_an_expired_score_is_unknown_where_the_placement_says_so() -> None:
    fleet = a_fleet(a_cluster("bergen"), a_cluster("oslo"), a_cluster("tromso"))
    give(fleet, "bergen", 90, until_s=-1)
    give(fleet, "oslo", -30)
    give(fleet, "tromso", -50, until_s=20)
    as_there = asked(fleet, ONLY_LOAD)
    assert as_there.selected == ("bergen", "oslo")
    assert as_there.status.message == "AddOnPlacementScores bergen/load expired"
    unknown = asked(fleet, msgspec.structs.replace(ONLY_LOAD, expired_scores="unknown"))
    # as bad as the worst that is known, and earlier in the alphabet
    assert unknown.selected == ("oslo", "bergen")
    assert unknown.scores is not None
    assert unknown.scores_of(unknown.scores[0]) == {"oslo": -30, "tromso": -50}
    assert unknown.requeue_at == NOW + 20 * SECOND + 1


def test_a_newcomer_needs_a_lead_where_there_is_hysteresis() -> None:
    fleet = a_fleet(a_cluster("bergen"), a_cluster("oslo"))
    give(fleet, "bergen", 40)
    give(fleet, "oslo", 30)
    one = msgspec.structs.replace(ONLY_LOAD, wanted=1, hysteresis=10)
    fleet.decided("shop/p", ["oslo"])
    assert asked(fleet, one).selected == ("oslo",)
    give(fleet, "bergen", 41)
    assert asked(fleet, one).selected == ("bergen",)


def test_scores_no_fleet_has_are_still_ranked() -> None:
    """The schema allows -100 to 100; what is stored without it is counted as it is."""
    fleet = a_fleet(a_cluster("bergen"), a_cluster("oslo"))
    give(fleet, "oslo", 2**31 - 1)
    heavy = Selection(mode="Exact", priorities=(msgspec.structs.replace(LOAD, weight=2**31 - 1),))
    assert asked(fleet, heavy).selected == ("oslo", "bergen")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1500m", 1.5),
        ("1.5Gi", 1.5 * 2**30),
        ("16.9Gi", 169 * 2**30 * 0.1),
        ("1e3", 1000.0),
        ("-2", -2.0),
        ("10n", 10 * 1e-9),
        ("0.1n", 1e-9),
        ("8Ei", float(2**63 - 1)),
        ("many", None),
        ("", None),
        ("1" * 200, None),
    ],
)
def test_amounts_are_digits_times_a_power_of_ten(text: str, value: float | None) -> None:
    assert approximate(text) == value


# Groups and objects.


@pytest.mark.parametrize(
    ("per_group", "chosen", "expected"),
    [
        (3, 10, 3),
        (0, 10, 10),
        (-1, 10, 10),
        (99, 10, 10),
        ("50%", 5, 3),
        ("7%", 100, 7),
        ("0%", 9, 9),
        ("250%", 9, 9),
    ],
)
def test_how_many_clusters_a_group_holds(per_group: int | str, chosen: int, expected: int) -> None:
    assert length(per_group, chosen) == expected


def test_seven_percent_of_a_hundred_are_eight_in_double_precision() -> None:
    assert length("7%", 100, strict=True) == 8


def test_a_new_cluster_moves_a_cluster_from_one_object_to_the_next_in_the_order_of_writes() -> None:
    """Between the two writes the last of the first hundred is in neither: who reads objects one by
    one must wait for all."""
    fleet = a_fleet(*[a_cluster(f"c{n:03}") for n in range(1, 101)])
    before = difference(asked(fleet, Selection()), ()).after
    assert [len(o.clusters) for o in before] == [100]
    fleet.decided("shop/p", before[0].clusters)
    fleet.observe(a_cluster("c000"))
    after = difference(asked(fleet, Selection()), before)
    assert [(w.verb, w.name) for w in after.writes] == [
        ("patch", "p-decision-1"),
        ("create", "p-decision-2"),
        ("patch", "p-decision-2"),
    ]
    assert after.after[1].clusters == ("c100",)


def test_an_object_under_our_name_is_taken_over_and_a_stranger_is_left() -> None:
    fleet = a_fleet(a_cluster("oslo"))
    strangers = [
        DecisionObject("p-decision-1", {}, ("bergen",)),
        DecisionObject("q-decision-1", {}, ("bergen",)),
    ]
    left = difference(asked(fleet, Selection()), strangers)
    assert left.writes == (Write("patch", "placementdecisions/status", "p-decision-1"),)
    assert [(o.name, o.clusters) for o in left.everything] == [
        ("p-decision-1", ("oslo",)),
        ("q-decision-1", ("bergen",)),
    ]


def test_the_text_of_scores_is_cut_where_an_event_ends() -> None:
    fleet = a_fleet(*[a_cluster(f"a-rather-long-name-{n:03}") for n in range(100)])
    text = score_text(asked(fleet, Selection()))
    assert len(text) <= 1006
    assert text.startswith("a-rather-long-name-000:100 a-rather-long-name-001:100 ")
    assert text.endswith(" ......")


def test_groups_take_what_they_match_in_order() -> None:
    fleet = a_fleet(
        a_cluster("bergen", env="test"), a_cluster("oslo", env="prod"), a_cluster("tromso")
    )
    named = (
        DecisionGroup("canary", Selector({"env": "test"})),
        DecisionGroup("all", Selector(conditions=())),
    )
    groups = asked(fleet, Selection(groups=named, per_group=1)).groups
    assert [(g.index, g.name, g.clusters) for g in groups] == [
        (0, "canary", ("bergen",)),
        (1, "all", ("oslo",)),
        (2, "all", ("tromso",)),
    ]


# What is said.


def test_why_nothing_is_selected_is_said_as_it_is() -> None:
    fleet = a_fleet(a_cluster("oslo", "", taint("NoSelect")))
    assert (
        satisfied(asked(fleet, Selection()))[2]
        == "The taints of all 1 matching ManagedClusters are not tolerated"
    )
    none = Selection(wanted=0, tolerations=(ClusterToleration("repair", "Exists"),))
    assert satisfied(asked(fleet, none))[2] == "numberOfClusters is 0"
    nobody = Selection(predicates=(Predicate(Selector({"env": "prod"})),))
    assert (
        satisfied(asked(fleet, nobody))[2]
        == "No ManagedCluster matches any of the cluster predicate"
    )


def test_a_misconfigured_placement_says_that_it_keeps_what_it_has() -> None:
    fleet = a_fleet(a_cluster("oslo"))
    fleet.decided("shop/p", ["oslo"])
    choice = asked(fleet, Selection(mode="exact"))
    assert [(c.type, c.status, c.message) for c in choice.conditions] == [
        ("PlacementMisconfigured", "True", ":incorrect prioritizer policy mode: exact"),
        (
            "PlacementSatisfied",
            "False",
            "incorrect prioritizer policy mode: exact; the 1 clusters decided before are kept",
        ),
    ]


def test_a_placement_that_is_disabled_or_deleted_is_left_alone() -> None:
    fleet = a_fleet(a_cluster("oslo"))
    for selection in (Selection(disabled=True), Selection(deleting=True)):
        choice = asked(fleet, selection)
        assert (choice.skipped, choice.keeps, choice.selected) == (True, True, ())


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        (
            Selector(conditions=(Condition("a", "Like", ("b",)),)),
            '"Like" is not a valid label selector operator',
        ),
        (
            Selector(conditions=(Condition("a", "In"),)),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            Selector(conditions=(Condition("a", "Exists", ("b", "c")),)),
            (
                'values: Invalid value: ["b","c"]: values set must be empty for exists and does '
                "not "
                "exist"
            ),
        ),
        (Selector({"/x": "y"}), 'key: Invalid value: "/x": prefix part must be non-empty'),
        (
            Selector({"x": "v" * 64}),
            f'values[0][x]: Invalid value: "{"v" * 64}": must be no more than 63 bytes',
        ),
    ],
)
def test_what_is_wrong_with_a_selector_is_said_in_the_words_users_know(
    selector: Selector, said: str
) -> None:
    with pytest.raises(SelectorError) as wrong:
        compiled(selector)
    assert str(wrong.value) == said
