"""What a request waits for, since when and until when at the latest: as the state says it that it
left open."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DYNAMIC,
    SECOND,
    SMALL,
    FleetPlane,
    a_binding,
    a_cluster,
    room,
    withdrawn,
)
from tests.scenarios.test_fleet_counts import LARGE, counted

from wharfinger.domain.open_requests import NONE_OPEN, OpenRequests
from wharfinger.domain.value import Value
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet.request_wait import RequestWait

PATIENCE_S = 30
EARLY_S = 3


@pytest.fixture
def plane() -> Iterator[FleetPlane]:
    plane = FleetPlane(FleetDecider(patience_s=PATIENCE_S))
    yield plane
    plane.check()


def wait_of(plane: FleetPlane, binding: str) -> RequestWait | None:
    return plane.decider.wait_of(plane.state, binding, len(plane.last))


def waits(
    plane: FleetPlane, binding: str, what: str, *clusters: str, due_s: int, until_s: int
) -> None:
    """From now, when it was asked for."""
    at = plane.at
    due, until = at + due_s * SECOND, at + until_s * SECOND
    found = wait_of(plane, binding)
    assert found is not None
    assert (found.awaits, found.clusters) == (what, clusters)
    assert (found.since, found.due, found.until) == (at, due, until)


def open_requests(plane: FleetPlane) -> OpenRequests:
    return plane.decider.open_requests(plane.state)


def test_before_any_cluster_it_waits_for_the_first_and_then_for_its_count(
    plane: FleetPlane,
) -> None:
    plane.when(a_binding("web", 2))
    waits(plane, "web", "clusters", due_s=EARLY_S, until_s=PATIENCE_S)
    asked_at = plane.at
    plane.when(a_cluster("oslo"), a_cluster("bergen"), room("bergen", 1), after_s=1)
    found = wait_of(plane, "web")
    assert found == RequestWait(
        "first-counts",
        ("oslo",),
        asked_at,
        asked_at + EARLY_S * SECOND,
        asked_at + PATIENCE_S * SECOND,
    )
    plane.when(room("oslo", 5))
    plane.then_scheduled("web", oslo=2)
    assert wait_of(plane, "web") is None


def test_it_waits_for_the_next_count_of_the_clusters_where_it_may_not_fit(
    plane: FleetPlane,
) -> None:
    plane.given(a_cluster("oslo"), a_cluster("bergen"), a_cluster("vik"))
    plane.given(counted("oslo", small=16, large=3, nodes=3), room("bergen", 0), room("vik", 0))
    plane.when(a_binding("web", 2, AGGREGATED), a_binding("db", 3, AGGREGATED, requirements=LARGE))
    assert wait_of(plane, "web") is None
    waits(plane, "db", "counts", "oslo", due_s=PATIENCE_S, until_s=PATIENCE_S)
    assert open_requests(plane) == OpenRequests(1, plane.at)
    plane.when(counted("oslo", small=14, large=2, nodes=3, fleet=1))
    plane.then_refused("db", "Unschedulable")
    assert wait_of(plane, "db") is None
    assert open_requests(plane) == NONE_OPEN


def test_for_replicas_on_no_node_yet_it_waits_a_third_of_the_time(plane: FleetPlane) -> None:
    late = msgspec.structs.replace(room("oslo", 5), unplaced={SMALL.class_key: 3})
    plane.given(a_cluster("oslo"), late)
    plane.when(a_binding("web", 3))
    waits(plane, "web", "nodes", "oslo", due_s=PATIENCE_S // 3, until_s=PATIENCE_S)
    plane.wait(PATIENCE_S // 3)
    plane.then_scheduled("web", oslo=3)


def test_a_lower_priority_waits_for_requests_before_it(plane: FleetPlane) -> None:
    plane.given(a_cluster("oslo"), counted("oslo", small=16, large=4, nodes=3))
    plane.when(
        a_binding("first", 2, priority=9),
        a_binding("urgent", 3, requirements=LARGE, priority=5),
        a_binding("late", 1),
    )
    waits(plane, "urgent", "counts", "oslo", due_s=PATIENCE_S, until_s=PATIENCE_S)
    waits(plane, "late", "requests", due_s=EARLY_S, until_s=PATIENCE_S)
    assert open_requests(plane) == OpenRequests(2, plane.at)


def test_what_was_given_to_another_afterwards_is_not_waited_for(plane: FleetPlane) -> None:
    """The request waits for a count. In the same round a binding that was refused before gets what
    there is, so that the request would not wait any more: it is decided when it is looked at
    again."""
    plane.given(a_cluster("bergen"), room("bergen", 0))
    plane.given(msgspec.structs.replace(room("oslo", 4), unplaced={SMALL.class_key: 3}))
    plane.when(a_binding("first", 3, DYNAMIC, requirements=SMALL))
    plane.then_refused("first", "Unschedulable")
    plane.when(a_cluster("oslo"), a_binding("second", 3, AGGREGATED, requirements=SMALL))
    plane.then_scheduled("first", oslo=3)
    waits(plane, "second", "requests", due_s=EARLY_S, until_s=PATIENCE_S)
    plane.wait(EARLY_S)
    plane.then_refused("second", "Unschedulable")


def test_what_is_withdrawn_while_it_waits_waits_no_more(plane: FleetPlane) -> None:
    plane.when(a_binding("web", 2), a_binding("db", 1))
    waits(plane, "web", "clusters", due_s=EARLY_S, until_s=PATIENCE_S)
    plane.when(withdrawn("web"), after_s=1)
    assert wait_of(plane, "web") is None
    assert open_requests(plane) == OpenRequests(1, plane.at - SECOND)


def test_a_changed_request_waits_from_its_change_on(plane: FleetPlane) -> None:
    plane.when(a_binding("web", 2))
    plane.when(a_binding("web", 3), after_s=2)
    waits(plane, "web", "clusters", due_s=EARLY_S, until_s=PATIENCE_S)


def test_nothing_is_said_of_what_is_suspended_or_unknown(plane: FleetPlane) -> None:
    plane.when(a_binding("web", 2, suspended=True))
    assert wait_of(plane, "web") is None
    assert wait_of(plane, "db") is None
    assert open_requests(plane) == NONE_OPEN


def test_what_a_bounded_round_did_not_reach_is_decided_in_the_next() -> None:
    plane = FleetPlane(FleetDecider(patience_s=PATIENCE_S, work=100))
    plane.given(a_cluster("oslo"), room("oslo", 9))
    plane.when(a_binding("web", 1), a_binding("db", 1))
    assert [d.subject for d in plane.last] == ["web"]
    assert wait_of(plane, "db") == RequestWait("round", (), plane.at)
    plane.check()


# As requests arrive

FACTS: list[Value] = [
    a_cluster("oslo"),
    a_cluster("bergen"),
    counted("oslo", small=16, large=3, nodes=3),
    counted("bergen", small=8, large=2, nodes=2),
    msgspec.structs.replace(room("oslo", 4), unplaced={SMALL.class_key: 3}),
    room("bergen", 0),
    *(
        a_binding(
            f"{how.preference}-{size}-{urgency}", n, how, requirements=asked, priority=urgency
        )
        for how in (AGGREGATED, DYNAMIC)
        for size, asked, n in (("small", SMALL, 3), ("large", LARGE, 2))
        for urgency in (0, 5)
    ),
    withdrawn("Aggregated-large-0"),
]
BATCHES = st.lists(
    st.tuples(st.lists(st.sampled_from(FACTS), min_size=1, max_size=4), st.integers(0, 12)),
    min_size=1,
    max_size=8,
)


@given(BATCHES)
def test_every_open_request_is_decided_by_the_moment_that_was_said(
    batches: list[tuple[list[Value], int]],
) -> None:
    """Whatever came before: when nothing comes any more, each is decided at its latest moment or
    before, and one that is alone exactly when it is due."""
    plane = FleetPlane(FleetDecider(patience_s=PATIENCE_S))
    for facts, pause_s in batches:
        plane.when(*facts, after_s=0.01)
        plane.wait(pause_s)
    open_ = {name: wait_of(plane, name) for name in plane.state.waiting.asked}
    began = len(plane.rounds)
    plane.wait(PATIENCE_S + 1)
    decided = {d.subject: r.round.at for r in plane.rounds[began:] for d in r.round.decisions}
    for name, wait in open_.items():
        assert wait is not None
        assert wait.due is not None
        assert wait.until is not None
        assert wait.since <= wait.due <= wait.until == wait.since + PATIENCE_S * SECOND
        assert decided[name] <= wait.until
        if len(open_) == 1:
            assert decided[name] == wait.due
    assert open_requests(plane) == NONE_OPEN
    plane.check()
