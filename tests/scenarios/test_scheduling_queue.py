"""What the scheduling queue does with a pod, told one pod at a time."""

from __future__ import annotations

import msgspec
from tests.framework_world import ZONE, a_node, a_pod, only, selecting
from tests.reference.kube_queue import PATIENCE_US, POOL_US, SECOND_US, SchedulingQueue

from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import PodTerm
from wharfinger.engine.framework.gang import GATHERING

PLUGINS = only("SchedulingGates", "InterPodAffinity", "PodTopologySpread", "GangScheduling")


def a_queue(*pods: Pod) -> SchedulingQueue:
    queue = SchedulingQueue.of(PLUGINS)
    for i, pod in enumerate(pods):
        queue.add(pod, i)
    return queue


def popped(queue: SchedulingQueue, now_us: int) -> str | None:
    pod = queue.pop(now_us)
    return pod.name if pod is not None else None


def test_the_important_goes_first_and_among_equals_who_came_first() -> None:
    queue = a_queue(a_pod("b"), a_pod("a"), a_pod("high", priority=5))
    assert [popped(queue, 10) for _ in range(4)] == ["high", "b", "a", None]


def test_a_gated_pod_waits_until_its_gates_are_lifted() -> None:
    gated = a_pod("p", gates=("quota", "team"))
    queue = a_queue(gated)
    assert popped(queue, 1) is None
    entry = queue.entry("p")
    assert entry is not None
    assert entry.why is not None
    assert entry.why.reasons == ("waiting for scheduling gates: [quota team]",)
    queue.update(a_pod("p"), 2)
    assert popped(queue, 3) == "p"


def test_a_group_is_tried_when_enough_of_it_are_there() -> None:
    members = [a_pod(f"g{i}", group="g", min_count=3) for i in range(3)]
    queue = a_queue(*members[:2])
    entry = queue.entry("g0")
    assert entry is not None
    assert entry.why is not None
    assert entry.why.reasons == (GATHERING,)
    assert popped(queue, 5) is None
    queue.add(members[2], 6)
    assert {popped(queue, 7) for _ in range(3)} == {"g0", "g1", "g2"}


def test_members_that_have_their_nodes_count_for_those_that_come_later() -> None:
    queue = a_queue(a_pod("g0", group="g", min_count=2), a_pod("g1", group="g", min_count=2))
    for uid in ("g0", "g1"):
        assert queue.pop(3) is not None
        queue.placed(uid)
    queue.add(a_pod("g2", group="g", min_count=2), 4)
    assert popped(queue, 5) == "g2"
    queue.remove("g0")
    queue.remove("g1")
    queue.remove("g2")
    queue.add(a_pod("g3", group="g", min_count=2), 6)
    assert popped(queue, 7) is None


def test_groups_of_two_namespaces_are_two_groups() -> None:
    queue = a_queue(
        a_pod("a", group="g", min_count=2), a_pod("b", group="g", min_count=2, namespace="other")
    )
    assert popped(queue, 5) is None


def refused_for_a_friend() -> SchedulingQueue:
    """A pod that wants to stand with `web`, refused for that."""
    queue = a_queue(a_pod("p", affinity=(PodTerm(ZONE, selecting(app="web")),)))
    assert popped(queue, 0) == "p"
    queue.refused("p", ["InterPodAffinity"], 0)
    return queue


def test_a_refused_pod_waits_for_what_may_help_it() -> None:
    queue = refused_for_a_friend()
    assert popped(queue, 60 * SECOND_US) is None
    assert queue.happened("pod/add", 60 * SECOND_US, new=a_pod("db", labels={"app": "db"})) == []
    assert queue.happened("node/taint", 60 * SECOND_US) == []
    assert queue.happened("pod/add", 61 * SECOND_US, new=a_pod("web", labels={"app": "web"})) == [
        "p"
    ]
    assert popped(queue, 61 * SECOND_US) == "p"


def test_what_happens_during_a_try_is_not_missed() -> None:
    queue = a_queue(a_pod("p", affinity=(PodTerm(ZONE, selecting(app="web")),)))
    assert popped(queue, 0) == "p"
    queue.happened("pod/add", 1, new=a_pod("web", labels={"app": "web"}))
    queue.refused("p", ["InterPodAffinity"], 2)
    entry = queue.entry("p")
    assert entry is not None
    assert entry.where == "backoff"


def test_a_plugin_without_hints_is_helped_by_anything() -> None:
    queue = a_queue(a_pod("p"))
    queue.pop(0)
    queue.refused("p", ["SomebodysOwn"], 0)
    assert queue.happened("storage-class", 5 * SECOND_US) == ["p"]


def test_a_refused_pod_is_tried_after_five_minutes_though_nothing_happens() -> None:
    queue = refused_for_a_friend()
    assert queue.next_due_us() == POOL_US
    assert popped(queue, POOL_US - 1) is None
    assert popped(queue, POOL_US) == "p"


def test_backoff_doubles_and_ends_with_whole_seconds() -> None:
    """Other work is there, so nobody is tried early: refused at 0.5 s for the first time, ready
    when second 1 is over; refused at 2.0 s again, ready when second 4 is over."""
    queue = a_queue(a_pod("p"))
    queue.add(a_pod("busy", priority=-1), 0)
    assert popped(queue, 0) == "p"
    queue.refused("p", ["SomebodysOwn"], SECOND_US // 2)
    queue.happened("*", SECOND_US // 2)
    assert queue.next_due_us() == 2 * SECOND_US
    assert popped(queue, 2 * SECOND_US) == "p"
    queue.refused("p", ["SomebodysOwn"], 2 * SECOND_US)
    queue.happened("*", 2 * SECOND_US)
    assert queue.next_due_us() == 5 * SECOND_US
    assert popped(queue, 5 * SECOND_US - 1) == "busy"
    assert popped(queue, 5 * SECOND_US) == "p"


def test_with_nothing_else_to_do_nobody_is_kept_waiting() -> None:
    queue = a_queue(a_pod("p"))
    queue.pop(0)
    queue.refused("p", ["SomebodysOwn"], 0)
    queue.happened("*", 0)
    assert popped(queue, 1) == "p"


def test_after_a_failure_of_the_scheduler_the_pod_waits_all_the_same() -> None:
    queue = a_queue(a_pod("p"))
    queue.pop(0)
    queue.failed("p", 0)
    assert popped(queue, SECOND_US) is None
    assert popped(queue, 2 * SECOND_US) == "p"


def test_a_refusal_ends_a_row_of_failures() -> None:
    """Two failures, then a first refusal: it backs off one second, not four."""
    queue = a_queue(a_pod("p"))
    for at_s in (0, 10):
        assert popped(queue, at_s * SECOND_US) == "p"
        queue.failed("p", at_s * SECOND_US)
    assert popped(queue, 20 * SECOND_US) == "p"
    queue.refused("p", ["SomebodysOwn"], 20 * SECOND_US)
    queue.happened("*", 20 * SECOND_US)
    assert queue.next_due_us() == 22 * SECOND_US


def test_the_patient_take_turns_with_the_important() -> None:
    waited = [a_pod("w0"), a_pod("w1")]
    queue = a_queue(*waited)
    late_us = PATIENCE_US + SECOND_US
    for i in range(4):
        queue.add(a_pod(f"big{i}", priority=9), late_us)
    assert [popped(queue, late_us) for _ in range(6)] == [
        "big0",
        "w0",
        "big1",
        "w1",
        "big2",
        "big3",
    ]


def test_who_only_waited_for_something_does_not_back_off() -> None:
    queue = a_queue(a_pod("p"))
    queue.add(a_pod("busy", priority=-1), 0)
    queue.pop(0)
    queue.refused("p", [], 1, pending=["GangScheduling"])
    assert queue.happened("group", 2) == ["p"]
    assert popped(queue, 3) == "p"


def test_a_pod_that_changed_is_worth_a_try() -> None:
    queue = refused_for_a_friend()
    pod = queue.entry("p")
    assert pod is not None
    queue.update(pod.pod, 30 * SECOND_US)
    assert popped(queue, 30 * SECOND_US) is None
    queue.update(msgspec.structs.replace(pod.pod, priority=3), 31 * SECOND_US)
    assert popped(queue, 31 * SECOND_US) == "p"


def test_what_may_help_whom() -> None:
    """Hints of the plugins that count pods: a node is looked at for its labels, a pod for whether
    it is counted."""
    spread = {hint.event: hint.helps for hint in PLUGINS.plugins["PodTopologySpread"].hints()}  # type: ignore[attr-defined]
    affinity = {hint.event: hint.helps for hint in PLUGINS.plugins["InterPodAffinity"].hints()}  # type: ignore[attr-defined]
    web, db = a_pod("web", labels={"app": "web"}), a_pod("db", labels={"app": "db"})
    apart = a_pod("p", anti_affinity=(PodTerm(ZONE, selecting(app="web")),))
    assert affinity["pod/remove"](apart, web, None)
    assert not affinity["pod/remove"](apart, db, None)
    assert not affinity["pod/add"](apart, None, web)
    with_web = a_pod("p", affinity=(PodTerm(ZONE, selecting(app="web")),))
    assert affinity["node/add"](with_web, None, a_node("n", "x"))
    assert not affinity["node/add"](with_web, None, a_node("n"))
    assert affinity["pod/label"](with_web, db, web)
    assert not affinity["pod/label"](with_web, db, db)
    assert set(spread) == {
        "pod/add",
        "pod/remove",
        "pod/label",
        "node/add",
        "node/remove",
        "node/label",
        "node/taint",
    }
