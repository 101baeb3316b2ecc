"""What a fleet decision tells the clusters it touches."""

from __future__ import annotations

import pytest

from wharfinger.domain.binding import Component, TargetCluster
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import Assigned
from wharfinger.events.decisions import (
    BindingReleased,
    ReplicasRefused,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.fanout import Fanout, assignment_items
from wharfinger.events.outcomes import OutcomesDecided

BEFORE = (TargetCluster("bergen", 2), TargetCluster("oslo", 1))
AFTER = (TargetCluster("oslo", 3),)


@pytest.mark.parametrize(
    "decision",
    [
        ScheduleDecided("shop/web", "u", "ScaleSchedule", 3, AFTER, BEFORE, priority=7),
        ScheduleRefused(
            "shop/web", "u", "ScaleSchedule", 9, "Unschedulable", AFTER, BEFORE, priority=7
        ),
    ],
    ids=["decided", "refused"],
)
def test_clusters_hear_the_priority_of_what_they_hold(
    decision: ScheduleDecided | ScheduleRefused,
) -> None:
    """The cluster stage places by it: a refusal of the rest must not make what is held
    unimportant."""
    said = dict(assignment_items(5, "id", decision))
    assert said == {
        "oslo": Assigned(5, "id", "shop/web", "u", 3, priority=7),
        "bergen": Assigned(5, "id", "shop/web", "u", 0, priority=7),
    }


SETS = (
    Component("jm", 1, Requirements({"cpu": 1000})),
    Component("tm", 3, Requirements({"cpu": 500})),
)


def counts(
    decision: ScheduleDecided | ScheduleRefused | BindingReleased,
) -> dict[tuple[str, str], int]:
    """(cluster, binding) -> replicas."""
    return {
        (cluster, item.binding): item.replicas
        for cluster, item in assignment_items(5, "id", decision)
        if isinstance(item, Assigned)
    }


def test_each_component_is_told_by_itself_and_what_is_gone_is_told_too() -> None:
    here, there = (TargetCluster("oslo", 0),), (TargetCluster("bergen", 0),)
    decided = ScheduleDecided(
        "web", "u", "ScaleSchedule", 0, here, there, components=SETS, former=("old",)
    )
    assert counts(decided) == {
        ("oslo", "web#jm"): 1,
        ("oslo", "web#tm"): 3,
        ("oslo", "web#old"): 0,
        ("bergen", "web#jm"): 0,
        ("bergen", "web#tm"): 0,
        ("bergen", "web#old"): 0,
    }
    told = [i for cluster, i in assignment_items(5, "id", decided) if cluster == "oslo"]
    classes = {i.binding: i.requirements for i in told if isinstance(i, Assigned)}
    assert classes["web#tm"] == SETS[1].requirements


def test_a_refusal_tells_only_the_clusters_that_lost_a_set() -> None:
    both = (TargetCluster("bergen", 0), TargetCluster("oslo", 0))
    refused = ScheduleRefused(
        "web", "u", "ScaleSchedule", 0, "Unschedulable", both[:1], both, former=("jm", "tm")
    )
    assert counts(refused) == {("oslo", "web#jm"): 0, ("oslo", "web#tm"): 0}


def test_replicas_of_one_kind_that_become_components_are_let_go_and_the_other_way_round() -> None:
    one = ScheduleDecided(
        "web",
        "u",
        "ScaleSchedule",
        0,
        (TargetCluster("oslo", 0),),
        (TargetCluster("oslo", 2),),
        components=SETS,
    )
    assert counts(one) == {("oslo", "web#jm"): 1, ("oslo", "web#tm"): 3, ("oslo", "web"): 0}
    back = ScheduleDecided(
        "web",
        "u",
        "ScaleSchedule",
        2,
        (TargetCluster("oslo", 2),),
        (TargetCluster("oslo", 0),),
        former=("jm", "tm"),
    )
    assert counts(back) == {("oslo", "web#jm"): 0, ("oslo", "web#tm"): 0, ("oslo", "web"): 2}


def test_a_released_set_is_released_in_all_its_components() -> None:
    released = BindingReleased("web", "u", (TargetCluster("oslo", 0),), ("jm", "tm"))
    assert counts(released) == {("oslo", "web"): 0, ("oslo", "web#jm"): 0, ("oslo", "web#tm"): 0}


def test_what_a_component_is_answered_goes_to_the_shard_of_its_binding() -> None:
    asked: list[str] = []
    fanout = Fanout(lambda binding: asked.append(binding) or 7)  # type: ignore[func-returns-value]
    fanout.add("cluster/oslo", 1, "id", ReplicasRefused("oslo", "web#tm", "a", 1, "k", "Volumes"))
    (outcome,) = [m for m in fanout.rest() if isinstance(m, OutcomesDecided)]
    assert (asked, outcome.shard, outcome.items[0].binding) == (["web"], 7, "web#tm")
