"""The annotator told as stories: what it asks, when, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import pytest

from wharfinger.domain.node import Node
from wharfinger.domain.policy import HotWindow, LoadPolicy, Policy, SyncPeriod
from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentItem, AssignmentsDecided, Placed, Released
from wharfinger.events.cluster_state import NodesObserved, into_buckets
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.codec import made
from wharfinger.events.decisions import NodeShare
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.stages.annotator import AnnotatorObserver, Query, QueryFailure
from wharfinger.stages.annotator.observer import refusals

S = 1_000_000
START = 1_700_000_000 * S
DOWN = QueryFailure("unreachable", "nobody there")


class Annotator:
    """An observer with a clock that only `wait` moves."""

    def __init__(self, observer: AnnotatorObserver | None = None) -> None:
        self.observer = observer or AnnotatorObserver()
        self.state = self.observer.initial()
        self.now = START
        self.seq = 0

    def given(self, *facts: Value) -> None:
        for fact in facts:
            self.observer.fold(
                self.state, made(fact, id=uuid4(), source="/test", subject="x"), self.now
            )

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * S)

    def asked(self) -> list[tuple[str, str]]:
        return [(q.cluster, q.metric) for q in self.queries()]

    def queries(self) -> list[Query]:
        return self.observer.due_queries(self.state, self.now)

    def answer(self, query: Query, answer: Mapping[str, int] | QueryFailure) -> None:
        self.observer.fold_answer(self.state, query, answer, self.now)

    def said(self) -> list[Value]:
        return [p.data for p in self.observer.publish(self.state, self.now)]

    def hot(self) -> list[dict[str, int]]:
        return [v.hot for v in self.said() if isinstance(v, HotValueObserved)]

    def loads(self) -> list[dict[str, int]]:
        return [v.loads for v in self.said() if isinstance(v, NodeLoadObserved)]

    def due_in(self) -> float | None:
        due = self.observer.next_due(self.state)
        return None if due is None else (due - self.now) / S

    def decided(self, *items: AssignmentItem, cluster: str = "oslo") -> AssignmentsDecided:
        return AssignmentsDecided(cluster, f"cluster/{cluster}", max(i.seq for i in items), items)

    def placed(self, binding: str, node: str, *ordinals: int) -> Placed:
        self.seq += 1
        return Placed(self.seq, str(uuid4()), binding, (NodeShare(node, ordinals),))

    def released(self, binding: str, node: str, *ordinals: int) -> Released:
        self.seq += 1
        return Released(self.seq, str(uuid4()), binding, (NodeShare(node, ordinals),))


def nodes(cluster: str, *names: str) -> NodesObserved:
    return NodesObserved(cluster, 0, 1, tuple(Node(name, {}) for name in names))


def load_policy(
    *sync: tuple[str, int], hot: tuple[tuple[int, int], ...] = (), name: str = "scheduler-policy"
) -> PolicyApplied:
    policy = LoadPolicy(
        sync=tuple(SyncPeriod(m, s) for m, s in sync),
        hot=tuple(HotWindow(window_s, count) for window_s, count in hot),
    )
    return PolicyApplied(Policy("DynamicSchedulerPolicy", name, load=policy))


def test_every_metric_of_every_cluster_is_asked_for_at_the_start_and_each_period() -> None:
    plane = Annotator()
    plane.given(nodes("oslo", "a"), nodes("bergen", "b"), load_policy(("cpu", 180), ("mem", 300)))
    assert plane.due_in() == 0
    everything = [("bergen", "cpu"), ("bergen", "mem"), ("oslo", "cpu"), ("oslo", "mem")]
    queries = plane.queries()
    assert [(q.cluster, q.metric) for q in queries] == everything
    for query in queries:
        plane.answer(query, {"a": 1})
    assert plane.asked() == []
    assert plane.due_in() == 180
    plane.wait(180)
    assert plane.asked() == [("bergen", "cpu"), ("oslo", "cpu")]
    plane.wait(120)
    assert plane.asked() == [("bergen", "mem"), ("oslo", "mem")]


def test_five_thousand_nodes_cost_one_question_a_metric_and_one_event() -> None:
    plane = Annotator()
    names = [f"node-{i:04d}" for i in range(5000)]
    plane.given(load_policy(("cpu", 60), ("mem", 60)), nodes("oslo", *names))
    for minute in range(3):
        queries = plane.queries()
        assert [(q.cluster, q.metric) for q in queries] == [("oslo", "cpu"), ("oslo", "mem")]
        for query in queries:
            plane.answer(query, dict.fromkeys(names, 1000 * minute + 1))
        assert [len(loads) for loads in plane.loads()] == [5000, 5000]
        assert plane.due_in() == 60
        plane.wait(60)


def test_nothing_is_asked_about_a_cluster_before_all_its_nodes_are_known() -> None:
    plane = Annotator()
    first, second = into_buckets("oslo", [Node(f"n{i}", {}) for i in range(9)], 2)
    plane.given(load_policy(("cpu", 60)), first)
    assert plane.asked() == []
    plane.given(second)
    assert plane.asked() == [("oslo", "cpu")]


def test_a_failure_is_tried_again_after_ten_seconds_doubling_to_six_minutes() -> None:
    plane = Annotator()
    plane.given(nodes("oslo", "a"), load_policy(("cpu", 10_000)))
    waits = []
    for _ in range(9):
        (query,) = plane.queries()
        plane.answer(query, DOWN)
        waits.append(plane.due_in() or 0)
        plane.wait(waits[-1])
    assert waits == [10, 20, 40, 80, 160, 320, 360, 360, 360]
    (query,) = plane.queries()
    plane.answer(query, {"a": 5})
    assert plane.due_in() == 10_000 - sum(waits)  # back on the grid that began at the start
    plane.wait(plane.due_in() or 0)
    (query,) = plane.queries()
    plane.answer(query, DOWN)
    assert plane.due_in() == 10


def test_a_question_that_is_never_answered_is_asked_again_at_the_next_tick() -> None:
    plane = Annotator()
    plane.given(nodes("oslo", "a"), load_policy(("cpu", 60)))
    assert plane.asked() == [("oslo", "cpu")]
    plane.wait(130)  # two ticks late: asked once, not twice
    assert plane.asked() == [("oslo", "cpu")]
    assert plane.due_in() == 50


def test_an_answer_is_published_once_with_the_time_of_its_question() -> None:
    plane = Annotator()
    plane.given(nodes("oslo", "b", "a"), load_policy(("cpu", 60)))
    (query,) = plane.queries()
    plane.wait(3)
    plane.answer(query, {"b": 2, "a": 1})
    (publication,) = plane.observer.publish(plane.state, plane.now)
    assert publication.data == NodeLoadObserved("oslo", "cpu", 60, START, {"a": 1, "b": 2})
    assert (publication.key, publication.partition_key) == ("oslo/cpu", "oslo")
    assert plane.said() == []


def test_an_answer_that_was_overtaken_is_not_believed() -> None:
    plane = Annotator()
    plane.given(nodes("oslo", "a"), load_policy(("cpu", 60)))
    (slow,) = plane.queries()
    plane.wait(60)
    (quick,) = plane.queries()
    plane.answer(quick, {"a": 2})
    plane.answer(slow, {"a": 1})
    assert plane.loads() == [{"a": 2}]


def test_loads_that_vanish_are_said_to_be_unknown_once_and_asked_for_again_soon() -> None:
    plane = Annotator()
    plane.given(nodes("oslo", "a"), load_policy(("cpu", 60)))
    said = []
    for answer in ({}, {"a": 1}, {}, {}):
        (query,) = plane.queries()
        plane.answer(query, answer)
        said.append(plane.loads())
        plane.wait(plane.due_in() or 0)
    assert said == [[], [{"a": 1}], [{}], []]


def test_a_failure_says_nothing_about_the_nodes() -> None:
    plane = Annotator()
    plane.given(nodes("oslo", "a"), load_policy(("cpu", 60)))
    (query,) = plane.queries()
    plane.answer(query, DOWN)
    assert plane.said() == []


def test_a_removed_policy_and_a_forgotten_cluster_are_asked_about_no_more() -> None:
    plane = Annotator()
    plane.given(nodes("oslo", "a"), nodes("bergen", "b"), load_policy(("cpu", 60)))
    queries = plane.queries()
    plane.given(ClusterForgotten("bergen"))
    for query in queries:
        plane.answer(query, {"a": 1})
    plane.given(PolicyRemoved("DynamicSchedulerPolicy", "scheduler-policy"))
    assert plane.said() == []
    assert plane.due_in() is None


def test_of_two_policies_the_shorter_period_counts_and_a_shorter_one_starts_at_once() -> None:
    plane = Annotator()
    plane.given(nodes("oslo", "a"), load_policy(("cpu", 300), name="slow"))
    (query,) = plane.queries()
    plane.answer(query, {"a": 1})
    plane.wait(10)
    plane.given(load_policy(("cpu", 60), name="quick"))
    assert [q.period_s for q in plane.queries()] == [60]
    assert plane.due_in() == 60


def test_without_prometheus_nothing_is_asked_and_nothing_is_due() -> None:
    plane = Annotator(AnnotatorObserver(asks=False))
    plane.given(nodes("oslo", "a"), load_policy(("cpu", 60)))
    assert plane.asked() == []
    assert plane.due_in() is None


def test_entries_that_would_have_stopped_crane_are_named_and_left_out() -> None:
    policy = LoadPolicy(
        sync=(SyncPeriod("cpu", 0), SyncPeriod("sum(up)", 60), SyncPeriod("mem", 60)),
        hot=(HotWindow(300, 0), HotWindow(0, 5), HotWindow(300, 1)),
    )
    assert len(refusals(policy)) == 4
    plane = Annotator()
    plane.given(
        nodes("oslo", "a"), PolicyApplied(Policy("DynamicSchedulerPolicy", "p", load=policy))
    )
    assert plane.asked() == [("oslo", "mem")]
    plane.given(plane.decided(plane.placed("web", "a", 0)))
    assert plane.hot() == [{"a": 1}]


def test_bindings_make_a_node_hot_until_they_leave_the_window() -> None:
    plane = Annotator()
    plane.given(nodes("oslo", "a", "b"), load_policy(hot=((300, 5), (60, 2))))
    assert plane.hot() == [{}]  # the first is always told: who knows what was told before
    plane.given(plane.decided(plane.placed("web", "a", 0, 1, 2, 3), plane.placed("db", "b", 0)))
    assert plane.hot() == [{"a": 2}]
    assert plane.hot() == []
    plane.wait(30)
    plane.given(plane.decided(plane.placed("web", "a", 4)))
    assert plane.hot() == [{"a": 3}]  # five within five minutes, and two pairs within the minute
    assert plane.due_in() == 30
    plane.wait(30)
    assert plane.hot() == [{"a": 1}]  # one of the last minute is no pair
    assert plane.due_in() == 240
    plane.wait(240)
    assert plane.hot() == [{}]
    assert plane.due_in() is None


def test_a_replica_counts_once_however_often_it_is_told() -> None:
    plane = Annotator()
    placed = plane.decided(plane.placed("web", "a", 0))
    again = plane.decided(plane.placed("web", "a", 0))
    plane.given(load_policy(hot=((300, 1),)), placed, placed, again)
    assert plane.hot() == [{"a": 1}]


def test_a_released_replica_does_not_count() -> None:
    plane = Annotator()
    plane.given(load_policy(hot=((300, 1),)), plane.decided(plane.placed("web", "a", 0, 1)))
    assert plane.hot() == [{"a": 2}]
    plane.given(plane.decided(plane.released("web", "a", 1)))
    assert plane.hot() == [{"a": 1}]


def test_a_redelivered_placement_does_not_undo_its_release() -> None:
    plane = Annotator()
    placed = plane.decided(plane.placed("web", "a", 0))
    plane.given(
        load_policy(hot=((300, 1),)), placed, plane.decided(plane.released("web", "a", 0)), placed
    )
    assert plane.hot() == [{}]


def test_a_replica_that_moves_cools_the_old_node_and_heats_the_new_one() -> None:
    plane = Annotator()
    plane.given(load_policy(hot=((300, 1),)), plane.decided(plane.placed("web", "a", 0)))
    plane.given(plane.decided(plane.placed("web", "b", 0)))
    assert plane.hot() == [{"b": 1}]
    # the release of where it was comes late
    plane.given(plane.decided(plane.released("web", "a", 0)))
    assert plane.hot() == []


def test_a_policy_applied_after_the_bindings_counts_them_too() -> None:
    plane = Annotator()
    plane.given(plane.decided(plane.placed("web", "a", 0)))
    assert plane.hot() == []
    plane.wait(100)
    plane.given(load_policy(hot=((300, 1),)))
    assert plane.hot() == [{"a": 1}]
    assert plane.due_in() == 200


def test_when_the_hot_policy_goes_so_does_the_heat() -> None:
    plane = Annotator()
    plane.given(load_policy(hot=((300, 1),)), plane.decided(plane.placed("web", "a", 0)))
    assert plane.hot() == [{"a": 1}]
    plane.given(PolicyRemoved("DynamicSchedulerPolicy", "scheduler-policy"))
    assert plane.hot() == [{}]


def test_a_node_that_is_gone_is_not_hot_and_its_late_releases_do_no_harm() -> None:
    plane = Annotator()
    plane.given(
        nodes("oslo", "a", "b"),
        load_policy(hot=((300, 1),)),
        plane.decided(plane.placed("web", "a", 0)),
    )
    assert plane.hot() == [{"a": 1}]
    plane.given(nodes("oslo", "b"))
    assert plane.hot() == [{}]
    plane.given(
        plane.decided(plane.released("web", "a", 0)), plane.decided(plane.placed("web", "b", 0))
    )
    assert plane.hot() == [{"b": 1}]


def test_a_busy_node_forgets_its_own_oldest_records_only() -> None:
    plane = Annotator(AnnotatorObserver(records_max=3))
    plane.given(load_policy(hot=((300, 1),)), plane.decided(plane.placed("db", "b", 0)))
    plane.given(plane.decided(plane.placed("web", "a", *range(10))))
    assert plane.hot() == [{"a": 3, "b": 1}]
    assert plane.state.clusters["oslo"].records["a"].dropped == 7
    plane.given(plane.decided(plane.released("web", "a", *range(10))))
    assert plane.hot() == [{"b": 1}]


@pytest.mark.parametrize("reverse", [False, True])
def test_two_policies_with_hot_windows_are_not_added_up(reverse: bool) -> None:
    policies = [load_policy(hot=((300, 1),), name="a"), load_policy(hot=((300, 2),), name="b")]
    plane = Annotator()
    plane.given(*(policies[::-1] if reverse else policies))
    plane.given(plane.decided(plane.placed("web", "n", 0, 1)))
    assert plane.hot() == [{"n": 2}]
