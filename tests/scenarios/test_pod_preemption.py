"""Waiting pods for which running pods of lower priority make room, told as stories."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from tests.cluster_world import CLUSTER, STREAM, Harness, a_node, event, outcomes
from tests.scenarios.test_pod_placing import (
    LOCAL,
    OURS,
    WEB,
    free,
    joined,
    on,
    places,
    waiting,
    waits,
    wants,
    with_traits,
)

from wharfinger.domain.actuation import VERBS
from wharfinger.domain.cluster_objects import DisruptionBudget
from wharfinger.domain.node import Node, WaitingPod
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.value import Value
from wharfinger.events.assignments import AssignmentsDecided, PodsPreempted
from wharfinger.events.cluster_state import NodesObserved, ObjectsObserved
from wharfinger.events.decisions import PodsUnplaced, PreemptionDecided, PreemptionEnded
from wharfinger.events.effects import AnswerOutcome, EffectAnswer, EffectsObserved
from wharfinger.events.fanout import assignment_items
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.step import empty_head
from wharfinger.stages.actuator import ActuatorObserver, open_effects
from wharfinger.stages.cluster.current_assignments import current_items
from wharfinger.stages.cluster.pod_preemption import RETRY_US, SEARCH_US
from wharfinger.stages.cluster.preemption import KEPT_US

SECOND_US = 1_000_000
JOB, URGENT = f"shop/job-job@{CLUSTER}", f"shop/urgent-job@{CLUSTER}"


def acting(*nodes: Node) -> list[NodesObserved]:
    """As of a cluster in which running pods may be evicted."""
    return [msgspec.structs.replace(bucket, evicts=True) for bucket in joined(*nodes)]


def theirs(uid: str, cpu: int = 500, priority: int = 0) -> WaitingPod:
    """A pod of another scheduler."""
    return waits(uid, cpu, "default-scheduler", binding="shop/job-job", priority=priority)


def urgent(uid: str = "u1", cpu: int = 500, priority: int = 10, created_us: int = 0) -> WaitingPod:
    return waits(uid, cpu, binding="shop/urgent-job", priority=priority, created_us=created_us)


def preempted(decided: Sequence[Decision]) -> list[PreemptionDecided]:
    return [d.data for d in decided if isinstance(d.data, PreemptionDecided)]


def ended(decided: Sequence[Decision]) -> list[PreemptionEnded]:
    return [d.data for d in decided if isinstance(d.data, PreemptionEnded)]


def said(decided: Sequence[Decision]) -> list[str]:
    return [d.data.message for d in decided if isinstance(d.data, PodsUnplaced)]


def victims(decision: PreemptionDecided) -> list[str]:
    return [victim.uid for victim in decision.victims]


def not_evicted(uid: str, preemptor: str, outcome: AnswerOutcome = "blocked") -> EffectsObserved:
    item = EffectAnswer(
        *(STREAM, 1, "", "evict", "evict-pod", "Pod", "shop", uid, uid, outcome),
        code=429,
        reason="TooManyRequests",
        message="it would violate the budget",
        preemptor=preemptor,
    )
    return EffectsObserved(CLUSTER, (item,))


@pytest.fixture
def plane() -> Harness:
    """Two nodes that are full of pods of others; those on b have a higher priority."""
    plane = Harness()
    plane.feed(*acting(a_node("a", 1000), a_node("b", 1000)))
    plane.feed(
        on("a", theirs("a1", priority=1), theirs("a2")),
        on("b", theirs("b1", priority=5), theirs("b2", priority=5)),
    )
    return plane


def test_a_pod_of_higher_priority_takes_the_place_of_the_least_important_one(
    plane: Harness,
) -> None:
    pod = urgent()
    decided = plane.feed(waiting(pod))
    (found,) = preempted(decided)
    assert (found.node, victims(found), found.pod) == ("a", ["a2"], "u1")
    assert found.until_us == plane.state.at + KEPT_US
    assert outcomes(decided) == [("preempting", URGENT), ("unplaced", URGENT)]
    assert "Preemption: 1 pod of a are evicted for it" in said(decided)[0]
    assert free(plane, "a") == 0, "the victim is charged until it is gone"
    assert plane.feed(on("a", theirs("a1", priority=1))) != []
    assert plane.where(URGENT) == {0: "a"}
    assert plane.state.preempting == {}


@pytest.mark.parametrize("places_", ["none", "shadow", "", "pods"])
def test_nothing_is_evicted_where_that_is_not_allowed(places_: str) -> None:
    """In every other mode, in clusters that were not joined, and without the verb."""
    plane = Harness()
    nodes = joined(a_node("a", 1000))
    plane.feed(*[msgspec.structs.replace(bucket, places=places_) for bucket in nodes])
    plane.feed(on("a", theirs("a1", 1000)))
    assert preempted(plane.feed(waiting(urgent()))) == []


@pytest.mark.parametrize(
    "pod",
    [
        urgent(priority=0),
        with_traits(urgent(), scheduler=OURS, never_preempts=True),
        urgent(cpu=1100),
        with_traits(urgent(), scheduler=OURS, group="train", min_count=1),
    ],
    ids=["as-important", "never", "too-large", "group"],
)
def test_pods_that_preempt_nothing(plane: Harness, pod: WaitingPod) -> None:
    decided = plane.feed(waiting(pod))
    assert preempted(decided) == []
    assert len(said(decided)) == 1
    assert "Preemption" not in said(decided)[0]


def test_replicas_of_ours_are_victims_by_their_own_priority(plane: Harness) -> None:
    """The binding of a workload of the cluster has no priority: that of its pods counts."""
    plane = Harness()
    plane.feed(*acting(a_node("a", 1000), a_node("b", 1000)))
    important = waits("w1", 1000, priority=20)
    cheap = waits("w2", 1000, priority=3)
    found = places(plane.feed(waiting(important, cheap)))
    node = {uid: name for uid, (_, name, _) in found.items()}
    pod = urgent(cpu=1000)
    assert preempted(plane.feed(waiting(important, cheap, pod))) == [], "they are not bound yet"
    plane.feed(on(node["w1"], important), on(node["w2"], cheap), waiting(pod))
    (decision,) = preempted(plane.feed(seconds=SEARCH_US // SECOND_US))
    assert (decision.node, victims(decision)) == (node["w2"], ["w2"])
    assert decision.victims[0].binding == LOCAL
    decided = plane.feed(on(node["w2"]))
    assert ("released", LOCAL) in outcomes(decided)
    assert plane.where(URGENT) == {0: node["w2"]}


def test_the_room_is_kept_between_the_first_victim_and_the_last(plane: Harness) -> None:
    """Another pod of the same priority, which is older, would fit into what the first leaves."""
    pod, other = urgent(cpu=1000), urgent("u2", 500, created_us=1)
    (found,) = preempted(plane.feed(waiting(pod)))
    assert victims(found) == ["a1", "a2"]
    decided = plane.feed(on("a", theirs("a1", priority=1)), waiting(pod, other))
    assert places(decided) == {}
    (second,) = preempted(decided)
    assert second.node == "b", "and the victims of the first are not named again"
    low = waits("low", 500, binding=WEB, priority=1)
    assert places(plane.feed(waiting(pod, other, low))) == {}
    assert list(places(plane.feed(on("a")))) == ["u1"]


def test_a_higher_priority_may_take_the_room(plane: Harness) -> None:
    pod = urgent()
    plane.feed(waiting(pod))
    higher = urgent("u2", priority=11)
    decided = plane.feed(on("a", theirs("a1", priority=1)), waiting(pod, higher))
    assert list(places(decided)) == ["u2"]
    assert [(e.pod, e.reason) for e in ended(decided)] == [("u1", "RoomTaken")]


def test_what_fits_elsewhere_meanwhile_is_placed_and_nothing_else_is_evicted(
    plane: Harness,
) -> None:
    pod = urgent()
    facts = [waiting(pod), on("b", theirs("b1", priority=5))]
    (found,) = preempted(plane.feed(facts[0]))
    assert found.node == "a"
    decided = plane.feed(facts[1])
    assert places(decided)["u1"][1] == "b"
    assert plane.state.preempting == {}


def test_a_budget_keeps_its_pods() -> None:
    plane = Harness()
    plane.feed(*acting(a_node("a", 1000)))
    guarded = with_traits(theirs("a1", 1000), scheduler="x", labels={"app": "web"})
    budget = DisruptionBudget("shop", "web", LabelSelector({"app": "web"}), allowed=0)
    plane.feed(ObjectsObserved(CLUSTER, "PodDisruptionBudget", "shop", (budget,)))
    plane.feed(on("a", guarded))
    assert preempted(plane.feed(waiting(urgent()))) == []


def test_a_refused_eviction_ends_it_and_it_is_said_why(plane: Harness) -> None:
    pod = urgent()
    plane.feed(waiting(pod))
    decided = plane.feed(not_evicted("a2", "u1"))
    (over,) = ended(decided)
    assert (over.pod, over.node, over.reason) == ("u1", "a", "NotEvicted")
    assert decided[0].cause == plane.rounds[-1].events[0].id
    (sentence,) = said(decided)
    assert "Preemption failed: a: a2 is not evicted (TooManyRequests: it would" in sentence
    assert plane.state.preempting == {}
    assert over.retry_us == plane.state.at + RETRY_US
    assert preempted(plane.feed(seconds=120)) == []
    assert plane.decider.next_due(plane.state) == over.retry_us
    assert len(preempted(plane.feed(seconds=RETRY_US // SECOND_US))) == 1


def test_an_answer_about_another_pod_changes_nothing(plane: Harness) -> None:
    plane.feed(waiting(urgent()))
    assert plane.feed(not_evicted("a1", "u1"), not_evicted("a2", "u9")) == []
    assert list(plane.state.preempting) == ["u1"]


def test_a_victim_that_does_not_go_in_time_stays(plane: Harness) -> None:
    plane.feed(waiting(urgent()))
    assert plane.decider.next_due(plane.state) is not None
    decided = plane.feed(seconds=KEPT_US // SECOND_US)
    (over,) = ended(decided)
    assert (over.reason, over.message) == ("Expired", "1 pod of 1 did not go in time")
    assert "Preemption failed" in said(decided)[0]


def test_a_node_that_goes_and_a_verb_that_is_taken_away_end_it(plane: Harness) -> None:
    plane.feed(waiting(urgent()))
    decided = plane.feed(*joined(a_node("a", 1000), a_node("b", 1000)))
    assert [e.reason for e in ended(decided)] == ["NotAllowed"]
    plane.feed(*acting(a_node("a", 1000), a_node("b", 1000)))
    (again,) = preempted(plane.feed(seconds=RETRY_US // SECOND_US))
    assert again.node == "a"
    decided = plane.feed(*acting(a_node("b", 1000)))
    assert [e.reason for e in ended(decided)] == ["NodeGone"]


def test_a_pod_that_is_deleted_is_forgotten(plane: Harness) -> None:
    plane.feed(waiting(urgent()))
    assert plane.feed(waiting()) == []
    assert plane.state.preempting == {}


def test_pods_that_a_node_would_get_again_are_no_victims(plane: Harness) -> None:
    plane = Harness()
    plane.feed(*acting(a_node("a", 1000)))
    daemon = with_traits(theirs("d1", 1000), scheduler="x", owner="DaemonSet")
    plane.feed(on("a", daemon.on("a")))
    assert preempted(plane.feed(waiting(urgent()))) == []


def test_victims_that_come_later_are_found_within_a_minute(plane: Harness) -> None:
    """A pod that has been looked at just now is not looked at with each fact."""
    plane = Harness()
    plane.feed(*acting(a_node("a", 1000)))
    plane.feed(on("a", theirs("a1", 1000, priority=20)))
    plane.feed(waiting(urgent()))
    assert plane.feed(on("a", theirs("a2", 1000)), seconds=5) == []
    due = plane.decider.next_due(plane.state)
    assert due is not None
    assert due <= plane.state.at + SEARCH_US
    assert len(preempted(plane.feed(seconds=(due - plane.state.at) // SECOND_US + 1))) == 1


def test_a_replica_of_the_fleet_is_not_given_back_while_room_is_made(plane: Harness) -> None:
    plane.assign(WEB, 1, wants(500), priority=10)
    pod = waits("u1", priority=10)
    assert len(preempted(plane.feed(waiting(pod)))) == 1
    assert plane.feed(seconds=60) == []
    decided = plane.feed(not_evicted("a2", "u1", "forbidden"))
    assert [d.outcome for d in decided] == ["not-preempted", "unplaced"]
    assert ("refused", WEB) in outcomes(plane.feed(seconds=30))


# --- what is carried out


class Actuator:
    def __init__(self) -> None:
        self.observer = ActuatorObserver(frozenset({CLUSTER}))
        self.state = self.observer.initial()

    def told(self, *data: Value) -> None:
        for one in data:
            self.observer.fold(self.state, event(one), SECOND_US)

    def decided(self, decisions: Sequence[Decision]) -> None:
        items = [item for d in decisions for _, item in assignment_items(d.seq, str(d.id), d.data)]
        if items:
            self.told(AssignmentsDecided(CLUSTER, STREAM, items[-1].seq, tuple(items)))

    def evictions(self, at: int = SECOND_US) -> list[tuple[str, str]]:
        effects = open_effects(self.state[CLUSTER], VERBS, at)
        return [(e.object.uid, e.preemptor) for e in effects if e.action == "evict-pod"]


def test_victims_are_evicted_while_the_pod_waits(plane: Harness) -> None:
    actuator, pod = Actuator(), urgent(cpu=1000)
    facts = [on("a", theirs("a1", priority=1), theirs("a2")), waiting(pod)]
    decided = plane.feed(*facts)
    actuator.told(*facts)
    actuator.decided(decided)
    assert actuator.evictions() == [("a1", "u1"), ("a2", "u1")]
    assert actuator.evictions(preempted(decided)[0].until_us) == [], "its time is over"
    actuator.told(waiting())
    assert actuator.evictions() == [], "it does not wait any more"
    actuator.told(waiting(pod))
    actuator.told(on("a", theirs("a1", priority=1)))
    assert actuator.evictions() == [("a1", "u1")]
    actuator.decided(plane.feed(not_evicted("a1", "u1")))
    assert actuator.evictions() == []


def test_nothing_is_evicted_any_more_for_a_pod_that_was_placed(plane: Harness) -> None:
    actuator, pod = Actuator(), urgent(cpu=1000)
    facts = [on("a", theirs("a1", priority=1), theirs("a2")), waiting(pod)]
    actuator.told(*facts)
    actuator.decided(plane.feed(*facts))
    assert actuator.evictions() != []
    decided = plane.feed(on("b"))
    assert places(decided)["u1"][1] == "b"
    actuator.decided(decided)
    assert actuator.evictions() == []


def test_a_replica_that_stands_is_evicted_as_a_victim(plane: Harness) -> None:
    plane = Harness()
    actuator, pod, low = Actuator(), urgent(), waits("w1", 1000)
    plane.feed(*acting(a_node("a", 1000)))
    actuator.decided(plane.feed(waiting(low)))
    facts = [on("a", low), waiting(pod)]
    actuator.told(*facts)
    actuator.decided(plane.feed(*facts))
    assert actuator.evictions() == [("w1", "u1")]


def test_what_stands_is_read_after_a_restart(plane: Harness) -> None:
    (found,) = preempted(plane.feed(waiting(urgent())))
    items = [i for i in current_items(plane.state, 9) if isinstance(i, PodsPreempted)]
    assert [(i.preemptor, list(i.victims), i.until_us) for i in items] == [
        ("u1", victims(found), found.until_us)
    ]


def test_the_history_replays_and_a_snapshot_is_the_state(plane: Harness) -> None:
    pod = urgent(cpu=1000)
    plane.feed(waiting(pod))
    for _ in range(2):
        sections = plane.decider.dump(plane.state)
        again = plane.decider.load(STREAM, sections)
        assert plane.decider.dump(again) == sections
        assert again.preempting == plane.state.preempting
        assert again.in_vain == plane.state.in_vain
        assert again.book.evicts
        plane.feed(not_evicted("a2", "u1"))
    plane.feed(on("a"))
    replayed = audit(plane.decider, plane.decider.initial(STREAM), empty_head(STREAM), plane.rounds)
    assert replayed.divergences == []
