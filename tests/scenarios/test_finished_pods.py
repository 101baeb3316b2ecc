"""Finished pods, told as stories: strategies find them, and the cluster's stream decides that they
may be deleted."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.cluster_world import CLUSTER, STREAM, a_node, event
from tests.pool_world import PoolPlane, a_pool, wants, words

from wharfinger.domain.cluster_objects import DisruptionBudget
from wharfinger.domain.descheduling import (
    DeschedulerProfile,
    DeschedulingPolicy,
    EvictorArgs,
    PodLifeTime,
    RemoveFailedPods,
    Strategy,
    TooManyRestarts,
)
from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.pod_upkeep import ContainerState, Owner, PodUpkeep
from wharfinger.domain.policy import Policy
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import AssignmentsDecided, PodsRemoved
from wharfinger.events.cluster_state import (
    FinishedPodsObserved,
    ObjectsObserved,
    PodsObserved,
    into_buckets,
)
from wharfinger.events.decisions import PodRemovalDecided, ProposalRefused
from wharfinger.events.fanout import assignment_items
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.proposals import DeschedulingProposed, FinishedPod, Unseating
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster.current_assignments import current_items
from wharfinger.stages.descheduler import DeschedulerObserver
from wharfinger.stages.descheduler.facts import DeschedulerState

SECOND = 1_000_000
HOUR = 3600
DAY = 24 * HOUR
BEGIN = 1_700_000_000 * SECOND
JOB = Owner("Job", "nightly", "j1")


def ended(
    uid: str,
    node: str = "n1",
    phase: str = "Failed",
    reason: str = "Evicted",
    age_s: int = 2 * HOUR,
    owners: tuple[Owner, ...] = (JOB,),
    cpu: int = 100,
    restarts: int = 0,
) -> Pod:
    traits = PodTraits(namespace="shop", labels={"app": "web"}, owner="Job")
    state = ContainerState("terminated", "Error", 1, restarts)
    kept = PodUpkeep(
        owners, phase=phase, reason=reason, containers=(state,), created_us=BEGIN - age_s * SECOND
    )
    return Pod(uid, f"nightly-{uid}", Requirements({"cpu": cpu}, pod=traits), node, upkeep=kept)


def policy(*strategies: Strategy, **said: object) -> PolicyApplied:
    profile = DeschedulerProfile("p", EvictorArgs(), deschedule=strategies)
    found = DeschedulingPolicy((profile,), **said)  # type: ignore[arg-type]
    return PolicyApplied(Policy("DeschedulerPolicy", "tidy", descheduling=found))


@dataclass
class Plane:
    """The cluster oslo with two nodes: a descheduler, and the stream that answers it. Each reads
    what the other publishes."""

    stage: PoolPlane = field(default_factory=PoolPlane)
    observer: DeschedulerObserver = field(default_factory=lambda: DeschedulerObserver(lambda _: 0))
    state: DeschedulerState = field(init=False)
    events: int = 0

    def __post_init__(self) -> None:
        self.stage.at = BEGIN
        self.state = self.observer.initial()
        self.given(*into_buckets(CLUSTER, [a_node("n1"), a_node("n2")], 2))

    def fold(self, fact: Value) -> None:
        self.events += 1
        self.observer.fold(self.state, event(fact, "observer", self.events), self.stage.at)

    def given(self, *facts: Value) -> list[Decision]:
        """As the topics bring it: finished pods are no input of a stage."""
        for fact in facts:
            self.fold(fact)
        taken = [fact for fact in facts if not isinstance(fact, FinishedPodsObserved)]
        return self.told(self.stage.feed(*taken)) if taken else []

    def told(self, decisions: list[Decision]) -> list[Decision]:
        for decision in decisions:
            items = assignment_items(decision.seq, str(decision.id), decision.data)
            for _, item in items:
                self.fold(AssignmentsDecided(CLUSTER, STREAM, decision.seq, (item,)))
        return decisions

    def finished(self, *pods: Pod, node: str = "n1") -> None:
        self.given(FinishedPodsObserved(CLUSTER, node, pods))

    def proposals(self) -> list[DeschedulingProposed]:
        found = [p.data for p in self.observer.publish(self.state, self.stage.at)]
        return [data for data in found if isinstance(data, DeschedulingProposed)]

    def next_pass(self, seconds: int = 300) -> list[Decision]:
        self.stage.feed(seconds=seconds)
        made: list[Decision] = []
        for data in self.proposals():
            made += self.told(self.stage.feed(data))
        return made

    def removed(self, seconds: int = 300) -> list[str]:
        found = [d.data for d in self.next_pass(seconds)]
        return [p.uid for d in found if isinstance(d, PodRemovalDecided) for p in d.pods]


@pytest.fixture
def plane() -> Plane:
    return Plane()


def test_a_failed_pod_of_others_is_found_and_its_removal_decided(plane: Plane) -> None:
    plane.given(policy(RemoveFailedPods()))
    plane.finished(ended("u1"), ended("u2", phase="Succeeded", reason=""))
    (decision,) = plane.next_pass()
    data = decision.data
    assert isinstance(data, PodRemovalDecided)
    assert (decision.subject, decision.outcome) == ("n1", "pods-removed")
    assert data.pods == (FinishedPod("u1", "shop", "nightly-u1", "Failed"),)
    assert data.sentence() == (
        "oslo: finished pod shop/nightly-u1 (Failed) "
        "(RemoveFailedPods: it has failed (Evicted, Error))"
    )
    assert data.until_us == plane.stage.at + DAY * SECOND
    assert str(decision.cause) == data.proposal


def test_pod_life_time_finds_pods_that_succeeded_long_ago(plane: Plane) -> None:
    plane.given(policy(PodLifeTime(max_s=DAY, states=("Succeeded",))))
    plane.finished(
        ended("old", phase="Succeeded", age_s=2 * DAY),
        ended("young", phase="Succeeded", age_s=HOUR),
        ended("failed", age_s=2 * DAY),
    )
    assert plane.removed() == ["old"]


def test_finished_pods_are_found_by_their_restarts_too(plane: Plane) -> None:
    plane.given(policy(TooManyRestarts(5)))
    plane.finished(ended("u1", restarts=5), ended("u2", restarts=4))
    assert plane.removed() == ["u1"]


def test_a_finished_pod_uses_nothing_and_its_removal_frees_nothing(plane: Plane) -> None:
    plane.given(policy(RemoveFailedPods()))
    free = list(plane.stage.state.book.table.rows["n1"].free)
    plane.finished(ended("u1", cpu=3900))
    plane.stage.assign("web", 2, wants(3900, "web"))
    assert sorted(plane.stage.where("web").values()) == ["n1", "n2"], "n1 has all its room"
    plane.stage.assign("web", 0, wants(3900, "web"))
    assert plane.removed() == ["u1"]
    assert list(plane.stage.state.book.table.rows["n1"].free) == free


def test_what_was_decided_is_not_proposed_again_until_a_day_is_over(plane: Plane) -> None:
    plane.given(policy(RemoveFailedPods()))
    plane.finished(ended("u1"))
    assert plane.removed() == ["u1"]
    assert plane.next_pass(4 * HOUR) == []
    plane.finished(ended("u1"), ended("u2"))
    assert plane.removed() == ["u2"], "the other is on its way"
    assert plane.removed(DAY) == ["u1", "u2"], "nothing came of it"


def test_a_pod_that_is_gone_needs_no_decision_to_be_kept(plane: Plane) -> None:
    plane.given(policy(RemoveFailedPods()))
    plane.finished(ended("u1"))
    plane.next_pass()
    plane.finished()
    assert plane.state.clusters[CLUSTER].finished.removals == {}
    assert plane.next_pass() == []


def test_a_descheduler_that_starts_again_knows_what_was_decided(plane: Plane) -> None:
    plane.given(policy(RemoveFailedPods()))
    plane.finished(ended("u1"))
    assert plane.removed() == ["u1"]
    items = tuple(current_items(plane.stage.state, plane.stage.head.seq))
    assert [(i.pods, i.seq) for i in items if isinstance(i, PodsRemoved)] == [
        (("u1",), plane.stage.head.seq)
    ]
    plane.state = plane.observer.initial()
    plane.fold(AssignmentsDecided(CLUSTER, STREAM, items[-1].seq, items))
    for bucket in into_buckets(CLUSTER, [a_node("n1"), a_node("n2")], 2):
        plane.fold(bucket)
    plane.fold(policy(RemoveFailedPods()))
    plane.finished(ended("u1"), ended("u2"))
    assert plane.removed() == ["u2"]


def test_it_needs_no_other_place_no_cool_down_and_no_budget(plane: Plane) -> None:
    """It is not moved, so what guards a move does not concern it."""
    plane.given(policy(RemoveFailedPods(), cooldown_s=DAY))
    plane.given(
        ObjectsObserved(
            CLUSTER,
            "PodDisruptionBudget",
            "shop",
            (DisruptionBudget("shop", "web", LabelSelector({"app": "web"}), allowed=0),),
        )
    )
    plane.finished(ended("u1", cpu=400_000))
    assert plane.removed() == ["u1"]
    plane.finished(ended("u2", cpu=400_000))
    assert plane.removed() == ["u2"], "its workload does not rest"


def test_limits_and_protections_hold_for_it(plane: Plane) -> None:
    plane.given(policy(RemoveFailedPods(), per_node=1))
    plane.finished(ended("bare", owners=()), ended("u1"), ended("u2"))
    assert plane.removed() == ["u1"], "a pod without an owner is protected, as everywhere"
    assert plane.removed() == ["u2"]


def test_pods_of_several_nodes_are_decided_by_node(plane: Plane) -> None:
    plane.given(policy(RemoveFailedPods()))
    plane.finished(ended("u1"), ended("u2"))
    plane.finished(ended("u3", "n2"), node="n2")
    decisions = plane.next_pass()
    assert [(d.subject, d.outcome) for d in decisions] == [
        ("n1", "pods-removed"),
        ("n2", "pods-removed"),
    ]


def test_finished_pods_on_a_node_that_is_gone_are_not_looked_at(plane: Plane) -> None:
    plane.given(policy(RemoveFailedPods()))
    plane.finished(ended("u1", "gone"), node="gone")
    assert plane.next_pass() == []


# --- what the stream answers


def proposed(*pods: FinishedPod, node: str = "n1") -> DeschedulingProposed:
    unseatings = tuple([Unseating(node, pod=pod.uid, finished=pod) for pod in pods])
    return DeschedulingProposed(STREAM, CLUSTER, "RemoveFailedPods", "p", unseatings, "it failed")


def refusal(decision: Decision) -> tuple[str, str]:
    assert isinstance(decision.data, ProposalRefused)
    return decision.data.reason, decision.data.detail


FAILED = FinishedPod("u1", "shop", "nightly-u1", "Failed")


def test_a_pod_that_the_cluster_still_reports_as_running_stays(plane: Plane) -> None:
    plane.given(PodsObserved(CLUSTER, "n1", (Pod("u1", "nightly-u1", wants(100), "n1"),)))
    (refused,) = plane.stage.feed(proposed(FAILED))
    assert refusal(refused) == ("Changed", "pod shop/nightly-u1 (Failed) still runs on node n1")
    plane.given(PodsObserved(CLUSTER, "n1", ()))
    assert words(plane.stage.feed(proposed(FAILED))) == ["pods-removed"]


def test_the_same_pod_is_decided_once(plane: Plane) -> None:
    assert words(plane.stage.feed(proposed(FAILED, FAILED))) == ["pods-removed", "refused"]
    (refused,) = plane.stage.feed(proposed(FAILED))
    assert refusal(refused) == (
        "NothingToDo",
        "pod shop/nightly-u1 (Failed): its removal was decided",
    )


def test_a_pod_whose_phase_is_not_final_is_not_removed(plane: Plane) -> None:
    (refused,) = plane.stage.feed(proposed(FinishedPod("u1", "shop", "web-1", "Running")))
    assert refusal(refused)[0] == "Changed"


def test_before_all_nodes_are_seen_nothing_is_removed() -> None:
    stage = PoolPlane()
    (refused,) = stage.feed(proposed(FAILED))
    assert refusal(refused)[0] == "UnknownTarget"


def test_wherever_the_stream_is_taken_up_again_it_knows_what_it_decided() -> None:
    stage = PoolPlane().pools(a_pool())
    stage.add(a_node("n1"), a_node("n2"))
    stage.feed(proposed(FAILED))
    stage.feed(proposed(FinishedPod("u2", "shop", "nightly-u2", "Succeeded"), FAILED))
    stage.feed(seconds=DAY)
    stage.feed(proposed(FAILED))
    decider, rounds = stage.decider, stage.rounds
    assert audit(decider, decider.initial(STREAM), empty_head(STREAM), rounds).divergences == []
    for cut in range(1, len(rounds)):
        recovered = recover(decider, decider.initial(STREAM), rounds[:cut])
        loaded = decider.load(STREAM, decider.dump(recovered))
        assert decider.dump(loaded) == decider.dump(recovered)
        head = rounds[cut - 1].round.head()
        assert audit(decider, loaded, head, rounds[cut:]).divergences == []
    assert set(stage.state.removals) == {"u1"}, "what stood a day ago stands no more"
