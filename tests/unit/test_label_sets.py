"""What labels a node may have, in the words in which pools and pods say it."""

from __future__ import annotations

import pytest

from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import PoolOperator, PoolRequirement
from wharfinger.domain.pod_traits import PodTraits, WeightedNodeTerm
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.requirements import WELL_KNOWN, LabelSet, ValueSet

ZONE = "topology.kubernetes.io/zone"


def labels(**wanted: tuple[PoolOperator, tuple[str, ...]]) -> LabelSet:
    return LabelSet.of_pool(
        PoolRequirement(key, operator, values) for key, (operator, values) in wanted.items()
    )


def zone(*values: str) -> Requirement:
    return Requirement(ZONE, "In", values)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (("In", ("a", "b")), ("In", ("b", "c")), "x In [b]"),
        (("In", ("a", "b")), ("NotIn", ("b",)), "x In [a]"),
        (("NotIn", ("a",)), ("NotIn", ("b",)), "x NotIn [a b]"),
        (("In", ("a",)), ("Exists", ()), "x In [a]"),
        (("In", ("a",)), ("DoesNotExist", ()), "x DoesNotExist"),
        (("Gt", ("3",)), ("Lt", ("9",)), "x Exists >=4 <=8"),
        (("Gte", ("3",)), ("Lte", ("9",)), "x Exists >=3 <=9"),
        (("Gte", ("3",)), ("Gt", ("5",)), "x Exists >=6"),
        (("Lt", ("3",)), ("Lte", ("5",)), "x Exists <=2"),
        (("Gt", ("5",)), ("Lt", ("5",)), "x DoesNotExist"),
        (("Gt", ("5",)), ("In", ("4", "6", "large")), "x In [6]"),
        (("Gt", ("5",)), ("NotIn", ("4", "6", "large")), "x NotIn [6] >=6"),
        (("Gte", ("-1",)), ("In", ("-1", "-2", "+0")), "x In [+0 -1]"),
    ],
)
def test_two_wishes_for_one_label_become_one(
    one: tuple[PoolOperator, tuple[str, ...]],
    other: tuple[PoolOperator, tuple[str, ...]],
    both: str,
) -> None:
    assert labels(x=one).intersect(labels(x=other)).text == both


def test_of_two_numbers_of_values_the_greater_counts_and_stays_through_everything() -> None:
    few, many = (
        ValueSet.of("Exists", min_values=2),
        ValueSet.of("In", ("a", "b", "c"), min_values=3),
    )
    assert few.intersect(many).min_values == 3
    assert (
        few.intersect(ValueSet.of("Gt", ("3",))).intersect(ValueSet.of("Lt", ("2",))).min_values
        == 2
    )


def test_a_bound_that_is_no_integer_admits_nothing() -> None:
    assert ValueSet.of("Gt", ("many",)).impossible
    assert ValueSet.of("Lt", ()).impossible


def test_many_values_are_shown_as_the_first_five() -> None:
    assert ValueSet.of("In", "gfedcba").text("x") == "x In [a b c d e and 2 others]"


def test_a_label_that_nobody_defines_is_refused_unless_it_is_well_known() -> None:
    pool = labels(team=("In", ("blue",)))
    asked = LabelSet.of_labels({"rack": "7", ZONE: "oslo-1"})
    assert pool.conflicts(asked, WELL_KNOWN) == ('label "rack" does not have known values',)
    assert pool.conflicts(asked) == (
        'label "rack" does not have known values',
        f'label "{ZONE}" does not have known values',
    )
    assert pool.compatible(LabelSet.of_labels({ZONE: "oslo-1"}), WELL_KNOWN)


def test_what_nobody_defines_may_be_kept_away_from() -> None:
    pool = labels(team=("In", ("blue",)))
    assert pool.compatible(labels(rack=("NotIn", ("7",))))
    assert pool.compatible(labels(rack=("DoesNotExist", ())))
    assert not pool.compatible(labels(rack=("Exists", ())))
    assert not pool.compatible(labels(rack=("Gt", ("3",))))


def test_values_that_do_not_meet_are_named_from_both_sides() -> None:
    pool = labels(team=("In", ("blue", "red")))
    asked = labels(team=("In", ("green",)))
    assert (
        pool.refusal(asked)
        == "incompatible requirements, key team, team In [green] not in team In [blue red]"
    )


def test_the_absent_never_clashes_with_the_absent() -> None:
    assert labels(x=("NotIn", ("a",))).compatible(labels(x=("DoesNotExist", ())))
    assert labels(x=("DoesNotExist", ())).compatible(labels(x=("NotIn", ("a",))))
    assert not labels(x=("In", ("a",))).compatible(labels(x=("DoesNotExist", ())))
    assert not labels(x=("Exists", ())).compatible(labels(x=("DoesNotExist", ())))


def test_a_label_that_must_be_there_is_not_given_up_by_excluding_a_value() -> None:
    asked = labels(x=("Exists", ())).intersect(labels(x=("NotIn", ("a",))))
    assert not labels(y=("In", ("b",))).compatible(asked)
    assert asked.requirements() == (
        PoolRequirement("x", "NotIn", ("a",)),
        PoolRequirement("x", "Exists"),
    )


def test_wishes_that_contradict_each_other_are_met_by_no_node_not_even_one_without_the_label() -> (
    None
):
    asked = labels(x=("In", ("a",))).intersect(labels(x=("In", ("b",))))
    assert asked.impossible
    assert not labels(y=("In", ("b",))).compatible(asked)
    assert not labels(y=("In", ("b",))).compatible(asked, frozenset({"x"}))


def test_a_likely_slip_of_the_pen_is_pointed_at() -> None:
    pool = labels(team=("In", ("blue",)))
    assert pool.conflicts(LabelSet.of_labels({"zone": "a"}), WELL_KNOWN) == (
        f'label "zone" does not have known values (typo of "{ZONE}"?)',
    )


def test_older_names_of_labels_mean_the_same() -> None:
    assert LabelSet.of_labels(
        {"failure-domain.beta.kubernetes.io/zone": "a"}
    ) == LabelSet.of_labels({ZONE: "a"})
    node = Node("n", {}, labels={"beta.kubernetes.io/arch": "arm64"})
    assert LabelSet.of_node(node).compatible(LabelSet.of_labels({"kubernetes.io/arch": "arm64"}))


def test_a_pod_asks_by_selector_first_term_and_heaviest_preference() -> None:
    pod = Requirements(
        node_selector={"team": "blue"},
        node_terms=(NodeTerm((zone("a", "b"),)), NodeTerm((zone("c"),))),
        pod=PodTraits(
            preferences=(
                WeightedNodeTerm(10, NodeTerm((zone("a"),))),
                WeightedNodeTerm(50, NodeTerm((Requirement("disk", "Exists"),))),
                WeightedNodeTerm(50, NodeTerm((Requirement("fan", "Exists"),))),
            )
        ),
    )
    assert LabelSet.of_pod(pod).text == f"disk Exists, team In [blue], {ZONE} In [a b]"
    assert LabelSet.of_pod(pod, preferences=False).text == f"team In [blue], {ZONE} In [a b]"
    assert [a.text for a in LabelSet.alternatives(pod)] == [
        f"team In [blue], {ZONE} In [a b]",
        f"team In [blue], {ZONE} In [c]",
    ]


def test_a_pod_that_names_its_node_goes_to_no_new_one() -> None:
    by_name = Requirements(pod=PodTraits(node_name="node-7"))
    by_field = Requirements(
        node_terms=(NodeTerm(fields=(Requirement("metadata.name", "In", ("node-7",)),)),)
    )
    elsewhere = Requirements(
        node_terms=(NodeTerm(fields=(Requirement("metadata.name", "NotIn", ("node-7",)),)),)
    )
    new, old = labels(team=("In", ("blue",))), LabelSet.of_node(Node("node-7", {}))
    for pod in (by_name, by_field):
        assert not new.compatible(LabelSet.of_pod(pod), WELL_KNOWN)
        assert old.compatible(LabelSet.of_pod(pod))
    assert new.compatible(LabelSet.of_pod(elsewhere), WELL_KNOWN)
    assert not old.compatible(LabelSet.of_pod(elsewhere))


def test_a_term_that_says_nothing_matches_no_node() -> None:
    assert not labels().compatible(
        LabelSet.of_pod(Requirements(node_terms=(NodeTerm(),))), WELL_KNOWN
    )
    either = Requirements(node_terms=(NodeTerm(), NodeTerm((zone("a"),))))
    assert LabelSet.of_pod(either).text == f"{ZONE} In [a]"


def test_names_of_nodes_are_not_asked_of_who_makes_them() -> None:
    found = LabelSet.of_node(
        Node("node-7", {}, labels={"kubernetes.io/hostname": "node-7", "team": "blue"})
    )
    assert found.requirements() == (PoolRequirement("team", "In", ("blue",)),)


def test_what_is_lowered_is_lowered_and_nothing_else() -> None:
    pool = LabelSet.of_pool(
        [PoolRequirement("x", "Exists", (), 5), PoolRequirement("y", "Exists", (), 3)]
    )
    assert pool.with_min_values({"x": 2}).min_values == {"x": 2, "y": 3}
