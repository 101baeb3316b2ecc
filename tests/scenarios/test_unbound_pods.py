"""Pods that are placed and not bound yet, on nodes that others use or change meanwhile."""

from __future__ import annotations

import msgspec
import pytest
from tests.cluster_world import STREAM, Harness, a_node, outcomes
from tests.scenarios.test_pod_placing import (
    LOCAL,
    OURS,
    free,
    joined,
    on,
    places,
    waiting,
    waits,
    wants,
)

from wharfinger.domain.node import WaitingPod
from wharfinger.domain.policy import Policy
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.scheduler import Profile, SchedulerConfig
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.events.decisions import PodsUnplaced, ReplicasReleased
from wharfinger.events.policies import PolicyApplied
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster.pod_placing import why_waits

THEIRS = "default-scheduler"


def theirs(uid: str, cpu: int) -> WaitingPod:
    """A pod that kube-scheduler places, of no workload."""
    return waits(uid, cpu, THEIRS, binding="")


def released(decisions: list[Decision]) -> dict[str, list[int]]:
    """Reason -> ordinals. No release may name pods: that is an order to evict them."""
    found: dict[str, list[int]] = {}
    for decision in decisions:
        if isinstance(decision.data, ReplicasReleased):
            for share in decision.data.released:
                assert share.pods == ()
                found.setdefault(decision.data.reason, []).extend(share.ordinals)
    return found


def tolerating(pod: WaitingPod, key: str) -> WaitingPod:
    requirements = msgspec.structs.replace(
        pod.requirements, tolerations=(Toleration(key=key, operator="Exists"),)
    )
    return msgspec.structs.replace(pod, requirements=requirements)


@pytest.fixture
def plane() -> Harness:
    """Node `a` is the only one with room; `b` is small at first."""
    plane = Harness()
    plane.feed(*joined(a_node("a", 1000)))
    return plane


def test_room_that_others_took_is_not_bound_to(plane: Harness) -> None:
    assert places(plane.feed(waiting(waits("u1", 800))))["u1"][1] == "a"
    plane.feed(*joined(a_node("a", 1000), a_node("b", 1000)))
    decided = plane.feed(on("a", theirs("t1", 400)))
    assert outcomes(decided) == [("released", LOCAL), ("placed", LOCAL)]
    (reason,) = released(decided)
    assert reason == "InsufficientResources"
    assert places(decided)["u1"][1] == "b"
    assert (free(plane, "a"), free(plane, "b")) == (600, 200)
    told = decided[0].data
    assert isinstance(told, ReplicasReleased)
    assert told.short == {"cpu": 200}
    assert told.sentence() == (
        "from a: InsufficientResources, its pods request 200m cpu more than it has"
    )


def test_one_that_fits_nowhere_waits_and_is_told_why(plane: Harness) -> None:
    plane.feed(waiting(waits("u1", 800)))
    decided = plane.feed(on("a", theirs("t1", 400)))
    assert outcomes(decided) == [("released", LOCAL), ("unplaced", LOCAL)]
    said = decided[1].data
    assert isinstance(said, PodsUnplaced)
    assert "Insufficient cpu" in said.message
    assert places(plane.feed(on("a")))["u1"][1] == "a", "the other one is gone"


def test_room_that_suffices_for_all_releases_none(plane: Harness) -> None:
    plane.feed(waiting(waits("u1", 600)))
    assert plane.feed(on("a", theirs("t1", 400))) == []


def test_the_least_important_and_the_latest_go(plane: Harness) -> None:
    plane.feed(waiting(waits("first", 250)))
    later = waits("first", 250), waits("second", 250), waits("high", 250, priority=5)
    plane.feed(waiting(*later))
    assert free(plane, "a") == 250
    decided = plane.feed(on("a", theirs("t1", 500)))
    assert outcomes(decided) == [("released", LOCAL), ("unplaced", LOCAL)]
    assert {plane.state.book.held[b].placed[o].pod for b, o in plane.state.book.on_node["a"]} == {
        "first",
        "high",
    }
    decided = plane.feed(on("a", theirs("t1", 500), theirs("t2", 250)))
    assert {plane.state.book.held[b].placed[o].pod for b, o in plane.state.book.on_node["a"]} == {
        "high"
    }
    assert free(plane, "a") == 0


def test_a_smaller_one_stays_where_a_larger_one_goes(plane: Harness) -> None:
    plane.feed(waiting(waits("large", 700)))
    plane.feed(waiting(waits("large", 700), waits("small", 200)))
    decided = plane.feed(on("a", theirs("t1", 500)))
    assert [d.outcome for d in decided] == ["released", "unplaced"]
    assert free(plane, "a") == 300, "the small one keeps its place"


def test_a_pod_that_runs_is_not_released(plane: Harness) -> None:
    """The node is overcommitted, and that is its kubelet's affair."""
    pod = waits("u1", 800)
    plane.feed(waiting(pod))
    assert plane.feed(on("a", pod), waiting()) == []
    assert plane.feed(on("a", pod, theirs("t1", 400))) == []
    assert free(plane, "a") == -200


def test_a_pod_that_was_bound_in_the_same_moment_is_adopted(plane: Harness) -> None:
    """Its binding was under way when it was released: it runs there, and is a replica again."""
    pod = waits("u1", 800)
    plane.feed(waiting(pod))
    plane.feed(on("a", theirs("t1", 400)))
    decided = plane.feed(on("a", pod, theirs("t1", 400)), waiting())
    assert outcomes(decided) == [("adopted", LOCAL)]


def test_what_a_pod_does_not_request_is_not_looked_at(plane: Harness) -> None:
    memory = Requirements({"memory": 2**30}, pod=wants(0).pod)
    plane.feed(waiting(msgspec.structs.replace(waits("u1"), requirements=memory)))
    assert plane.feed(on("a", theirs("t1", 1400))) == []


CORDONED = a_node("a", 1000, unschedulable=True)
TAINTED = a_node("a", 1000, taints=(Taint("gone", "NoSchedule"),))
LEAVING = a_node("a", 1000, taints=(Taint("gone", "NoExecute"),))
AVOIDED = a_node("a", 1000, taints=(Taint("gone", "PreferNoSchedule"),))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (CORDONED, "Unschedulable"),
        (TAINTED, "TaintToleration"),
        (LEAVING, "TaintToleration"),
        (a_node("a", 400), "InsufficientResources"),
    ],
    ids=["cordon", "NoSchedule", "NoExecute", "smaller"],
)
def test_a_node_that_changes_between_decision_and_binding(
    plane: Harness, changed: object, reason: str
) -> None:
    plane.feed(waiting(waits("u1")))
    decided = plane.feed(*joined(changed, a_node("b", 1000)))  # type: ignore[arg-type]
    assert outcomes(decided) == [("released", LOCAL), ("placed", LOCAL)]
    assert list(released(decided)) == [reason]
    assert places(decided)["u1"][1] == "b"


def test_a_label_that_the_pod_asks_for_goes(plane: Harness) -> None:
    plane.feed(*joined(a_node("a", 1000, labels={"disk": "ssd"})))
    fast = msgspec.structs.replace(wants(500), node_selector={"disk": "ssd"})
    plane.feed(waiting(msgspec.structs.replace(waits("u1"), requirements=fast)))
    decided = plane.feed(*joined(a_node("a", 1000)))
    assert list(released(decided)) == ["NodeAffinity"]


def test_a_cordon_that_is_tolerated_and_a_taint_that_is_only_avoided(plane: Harness) -> None:
    plane.feed(waiting(tolerating(waits("u1"), "node.kubernetes.io/unschedulable")))
    assert plane.feed(*joined(CORDONED)) == []
    plane = Harness()
    plane.feed(*joined(a_node("a", 1000)))
    plane.feed(waiting(waits("u1")))
    assert plane.feed(*joined(AVOIDED)) == []


def test_a_pod_that_runs_on_a_cordoned_node_stays(plane: Harness) -> None:
    pod = waits("u1")
    plane.feed(waiting(pod))
    plane.feed(on("a", pod), waiting())
    assert plane.feed(*joined(CORDONED, a_node("b", 1000))) == []


def test_a_profile_without_the_rule_leaves_the_pod_where_it_is(plane: Harness) -> None:
    """Otherwise it would be placed there again, and released again."""
    without = SchedulerConfig((Profile(THEIRS, points={}),))
    policy = Policy("KubeSchedulerConfiguration", "mine", scheduler=without)
    plane.feed(PolicyApplied(policy))
    plane.feed(waiting(waits("u1")))
    plane.feed(*joined(CORDONED, a_node("b", 1000)))
    plane.feed(on("a", theirs("t1", 700)))
    assert free(plane, "a") == -200
    # The default rules are back: the node that nothing happened to since is looked at.
    decided = plane.feed(PolicyApplied(Policy("KubeSchedulerConfiguration", "mine")))
    assert list(released(decided)) == ["Unschedulable"]


def test_a_device_that_another_pod_reports(plane: Harness) -> None:
    plane.feed(*joined(a_node("a", 4000, gpus=2), a_node("b", 1000)))
    gpu = Requirements({"cpu": 500}, (DeviceRequest(1),), pod=wants(0).pod)
    pod = msgspec.structs.replace(waits("u1"), requirements=gpu)
    decided = plane.feed(waiting(pod))
    (share,) = decided[0].data.placed  # type: ignore[attr-defined]
    ((index, milli),) = share.devices[0]
    other = msgspec.structs.replace(
        theirs("t1", 100).on("a"),
        requirements=msgspec.structs.replace(gpu, pod=None),
        devices=((index, milli),),
    )
    decided = plane.feed(on("a", other))
    assert list(released(decided)) == ["InsufficientDevices"]
    (share,) = decided[1].data.placed  # type: ignore[attr-defined]
    assert share.devices[0] == ((1 - index, milli),), "the same node has another one"
    decided = plane.feed(
        *joined(
            msgspec.structs.replace(a_node("a", 4000), devices=(Device("T4"),)), a_node("b", 1000)
        )
    )
    assert list(released(decided)) == ["InsufficientDevices"]


def test_a_cluster_that_keeps_its_own_scheduler_is_left_alone() -> None:
    plane = Harness()
    shadow = [
        msgspec.structs.replace(bucket, places="shadow", scheduler=OURS)
        for bucket in joined(a_node("a", 1000))
    ]
    plane.feed(*shadow)
    plane.feed(waiting(waits("u1", 800)))
    assert plane.feed(on("a", theirs("t1", 400))) == []


def test_what_happened_while_the_mode_was_another_one_is_looked_at_after_it(plane: Harness) -> None:
    plane.feed(waiting(waits("u1", 800)))
    left = [msgspec.structs.replace(b, places="none") for b in joined(a_node("a", 1000))]
    plane.feed(*left)
    assert plane.feed(on("a", theirs("t1", 400))) == []
    sections = plane.decider.dump(plane.state)
    plane.state = plane.decider.load(STREAM, sections)
    decided = plane.feed(*joined(a_node("a", 1000)))
    assert list(released(decided)) == ["InsufficientResources"]


def test_the_history_replays_and_ends_at_rest(plane: Harness) -> None:
    plane.feed(*joined(a_node("a", 1000), a_node("b", 1000)))
    pods = [waits(f"u{i}", 300, created_us=i) for i in range(6)]
    plane.feed(waiting(*pods))
    plane.feed(on("a", theirs("t1", 500)), on("b", theirs("t2", 700)))
    assert [free(plane, name) for name in "ab"] == [200, 0]
    (late, *_) = [p for p in plane.state.book.waiting.pods.values() if p.uid == "u5"]
    assert "Insufficient cpu" in why_waits(plane.state, late)
    same = [*joined(a_node("a", 1000), a_node("b", 1000)), waiting(*pods)]
    assert plane.feed(*same, on("a", theirs("t1", 500)), on("b", theirs("t2", 700))) == []
    assert plane.feed() == []
    replayed = audit(plane.decider, plane.decider.initial(STREAM), empty_head(STREAM), plane.rounds)
    assert replayed.divergences == []
