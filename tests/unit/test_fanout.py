"""What a fleet decision tells the clusters it touches."""

from __future__ import annotations

import pytest

from wharfinger.domain.binding import TargetCluster
from wharfinger.events.assignments import Assigned
from wharfinger.events.decisions import ScheduleDecided, ScheduleRefused
from wharfinger.events.fanout import assignment_items

BEFORE = (TargetCluster("bergen", 2), TargetCluster("oslo", 1))
AFTER = (TargetCluster("oslo", 3),)


@pytest.mark.parametrize(
    "decision",
    [
        ScheduleDecided("shop/web", "u", "ScaleSchedule", 3, AFTER, BEFORE, priority=7),
        ScheduleRefused("shop/web", "u", "ScaleSchedule", 9, "Unschedulable", AFTER, BEFORE, priority=7),
    ],
    ids=["decided", "refused"],
)
def test_clusters_hear_the_priority_of_what_they_hold(decision: ScheduleDecided | ScheduleRefused) -> None:
    """The cluster stage places by it: a refusal of the rest must not make what is held unimportant."""
    said = dict(assignment_items(5, "id", decision))
    assert said == {
        "oslo": Assigned(5, "id", "shop/web", "u", 3, priority=7),
        "bergen": Assigned(5, "id", "shop/web", "u", 0, priority=7),
    }
