"""Descheduling policies told as stories: when passes are made, what they propose, what they leave
alone."""

from __future__ import annotations

from uuid import UUID, uuid4

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.descheduling import (
    DeschedulerProfile,
    DeschedulingPolicy,
    NodeTaints,
    PodLifeTime,
    RemoveDuplicates,
    Strategy,
)
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    Disrupting,
    Placed,
    Recovered,
    Released,
    Silenced,
)
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import NodeShare
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import DeschedulingProposed, Unseating
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler import DeschedulerObserver
from wharfinger.stages.descheduler.disruption import Looking
from wharfinger.stages.descheduler.strategies import due_passes, finished

S = 1_000_000
START = 1_700_000_000 * S
ROT = Taint("rot", "NoSchedule")
SMALL = Requirements({"cpu": 100})


class Plane:
    """A descheduler over the cluster oslo, whose clock only `wait` moves."""

    def __init__(self, now: int = START) -> None:
        self.observer = DeschedulerObserver(lambda _: 0)
        self.state = self.observer.initial()
        self.now = now
        self.seq = 0

    def given(self, *facts: Value) -> Plane:
        for fact in facts:
            data = (
                AssignmentsDecided("oslo", "cluster/oslo", 0, (fact,))
                if isinstance(fact, AssignmentItem)
                else fact
            )
            self.observer.fold(
                self.state, made(data, id=uuid4(), source="/test", subject="x"), self.now
            )
        return self

    def wait(self, seconds: int) -> Plane:
        self.now += seconds * S
        return self

    def publications(self) -> list[Publication]:
        return self.observer.publish(self.state, self.now)

    def proposed(self) -> list[tuple[str, tuple[Unseating, ...]]]:
        found = [p.data for p in self.publications()]
        return [(d.strategy, d.unseatings) for d in found if isinstance(d, DeschedulingProposed)]

    def due_in(self) -> float | None:
        due = self.observer.next_due(self.state)
        return None if due is None else (due - self.now) / S

    def _n(self) -> int:
        self.seq += 1
        return self.seq

    def assigned(self, binding: str, n: int) -> AssignmentItem:
        return Assigned(self._n(), str(uuid4()), binding, "u", n, SMALL)

    def placed(self, binding: str, node: str, *ordinals: int) -> AssignmentItem:
        return Placed(self._n(), str(uuid4()), binding, (NodeShare(node, ordinals),), SMALL)

    def released(self, binding: str, node: str, *ordinals: int) -> AssignmentItem:
        return Released(self._n(), str(uuid4()), binding, (NodeShare(node, ordinals),))


def nodes(tainted: str = "", *names: str) -> NodesObserved:
    return NodesObserved(
        "oslo",
        0,
        1,
        tuple(
            Node(name, {"cpu": 4000, "pods": 100}, taints=(ROT,) if name in tainted.split() else ())
            for name in names or ("n1", "n2", "n3")
        ),
    )


def policy(
    *strategies: Strategy, name: str = "tidy", clusters: tuple[str, ...] = ()
) -> PolicyApplied:
    balance = tuple(s for s in strategies if isinstance(s, RemoveDuplicates))
    others = tuple(s for s in strategies if not isinstance(s, RemoveDuplicates))
    profile = DeschedulerProfile("p", deschedule=others, balance=balance)
    return PolicyApplied(
        Policy(
            "DeschedulerPolicy",
            name,
            descheduling=DeschedulingPolicy((profile,), clusters=clusters),
        )
    )


def a_plane_with_a_replica_on_a_tainted_node(now: int = START) -> Plane:
    plane = Plane(now)
    return plane.given(
        policy(NodeTaints()),
        nodes("n1"),
        plane.assigned("web", 2),
        plane.placed("web", "n1", 0),
        plane.placed("web", "n2", 1),
    )


def test_a_replica_on_a_node_whose_taint_it_does_not_bear_is_named() -> None:
    plane = a_plane_with_a_replica_on_a_tainted_node()
    (proposal,) = plane.publications()
    data = proposal.data
    assert isinstance(data, DeschedulingProposed)
    assert (data.stream, data.cluster, data.strategy, data.profile) == (
        "cluster/oslo",
        "oslo",
        "RemovePodsViolatingNodeTaints",
        "p",
    )
    assert data.unseatings == (Unseating("n1", "web", 0),)
    assert (data.return_s, data.cooldown_s) == (14 * 86_400, 1800), "as long as the policy says"
    assert data.reason
    assert (proposal.key, proposal.partition_key) == ("cluster/oslo", "cluster/oslo")


def test_passes_are_made_every_five_minutes_and_the_first_at_once() -> None:
    plane = a_plane_with_a_replica_on_a_tainted_node()
    assert plane.due_in() == 0
    assert len(plane.proposed()) == 1
    assert plane.due_in() == 300
    plane.wait(299).given(nodes("n1 n2"))
    assert plane.due_in() == 1


def test_a_policy_for_other_clusters_or_removed_makes_no_passes() -> None:
    plane = Plane().given(nodes("n1"), policy(NodeTaints(), clusters=("bergen",)))
    assert plane.due_in() is None
    plane.given(policy(NodeTaints()))
    assert plane.due_in() == 0
    plane.given(PolicyRemoved("DeschedulerPolicy", "tidy"))
    assert plane.due_in() is None


def test_a_cluster_that_left_is_passed_over_no_more() -> None:
    plane = a_plane_with_a_replica_on_a_tainted_node().given(ClusterForgotten("oslo"))
    assert plane.due_in() is None


def test_nothing_is_named_before_all_nodes_are_known() -> None:
    plane = Plane().given(policy(NodeTaints()), NodesObserved("oslo", 0, 2, ()))
    assert plane.due_in() is None


def test_what_was_named_rests_and_is_named_again_under_a_new_id() -> None:
    """The stage may have refused it, and does not tell."""
    plane = a_plane_with_a_replica_on_a_tainted_node()
    (first,) = plane.publications()
    assert plane.wait(300).proposed() == [], "it rests for the policy's cool-down"
    plane.wait(1800)
    (second,) = plane.publications()
    assert first.id != second.id


def test_a_restarted_descheduler_names_the_same_under_the_same_id() -> None:
    def first_id(now: int) -> UUID | None:
        (proposal,) = a_plane_with_a_replica_on_a_tainted_node(now).publications()
        return proposal.id

    assert first_id(START) == first_id(START + 1000 * S)


def test_nothing_is_named_in_a_silent_cluster() -> None:
    plane = a_plane_with_a_replica_on_a_tainted_node()
    plane.given(Silenced(plane._n(), str(uuid4())))
    assert plane.proposed() == []
    assert plane.state.passes["oslo", "DeschedulerPolicy//tidy"].held == "cluster oslo is silent"
    plane.given(Recovered(plane._n(), str(uuid4()))).wait(300)
    assert len(plane.proposed()) == 1


def test_nothing_is_named_in_a_cluster_that_promised_to_speak_and_does_not() -> None:
    plane = a_plane_with_a_replica_on_a_tainted_node().given(
        ClusterObserved(Cluster("oslo", lease_s=3600))
    )
    assert plane.wait(300).proposed() == []
    plane.given(ClusterObserved(Cluster("oslo", lease_s=3600))).wait(299)
    assert plane.due_in() == 1
    plane.wait(1).given(nodes("n1"))
    assert len(plane.proposed()) == 1


def test_pods_on_nodes_that_are_about_to_go_are_not_named() -> None:
    plane = a_plane_with_a_replica_on_a_tainted_node()
    plane.given(Disrupting(plane._n(), str(uuid4()), "c1", "drift", ("n1",)))
    assert plane.proposed() == []


def test_a_workload_that_just_moved_is_not_named_whoever_moved_it() -> None:
    plane = a_plane_with_a_replica_on_a_tainted_node()
    plane.given(plane.released("web", "n2", 1), plane.placed("web", "n3", 1))
    assert plane.wait(1).proposed() == []
    assert len(plane.wait(1800).proposed()) == 1


def test_a_proposal_names_the_nodes_that_the_workload_has_left() -> None:
    plane = a_plane_with_a_replica_on_a_tainted_node()
    plane.given(plane.released("web", "n2", 1), plane.placed("web", "n3", 1))
    assert plane.wait(1801).proposed() == [
        ("RemovePodsViolatingNodeTaints", (Unseating("n1", "web", 0, avoid=("n2",)),))
    ]


def test_pods_of_others_are_named_by_their_uid() -> None:
    pod = Pod(
        "u1",
        "old-1",
        SMALL,
        upkeep=PodUpkeep(
            (Owner("ReplicaSet", "old", "r1"),), phase="Running", created_us=START - 7200 * S
        ),
    )
    plane = Plane().given(
        policy(PodLifeTime(max_s=3600)), nodes(), PodsObserved("oslo", "n1", (pod,))
    )
    assert plane.proposed() == [("PodLifeTime", (Unseating("n1", pod="u1"),))]


def test_strategies_are_proposed_one_by_one_in_their_order() -> None:
    plane = Plane().given(policy(NodeTaints(), RemoveDuplicates()), nodes("n1"), plane_assigned(6))
    plane.given(Placed(2, "d", "web", (NodeShare("n1", (0,)),), SMALL))
    plane.given(Placed(3, "d", "db", (NodeShare("n2", (0, 1, 2, 3)),), SMALL))
    assert [strategy for strategy, _ in plane.proposed()] == [
        "RemovePodsViolatingNodeTaints",
        "RemoveDuplicates",
    ]


def plane_assigned(n: int) -> AssignmentItem:
    return Assigned(1, "d", "web", "u", n, SMALL)


def test_what_happens_while_a_pass_is_made_is_remembered_after_it() -> None:
    plane = a_plane_with_a_replica_on_a_tainted_node()
    plane.observer = DeschedulerObserver(lambda _: 0, looking=Looking(elsewhere=True))
    (due,) = due_passes(plane.state, plane.now)
    plane.given(plane.released("web", "n2", 1), plane.placed("web", "n3", 1))
    finished(plane.state, due, due.run())
    plane.given(Disrupting(plane._n(), str(uuid4()), "c1", "drift", ("n1",)))
    assert plane.proposed() == [], "the node began to go meanwhile"
    assert due.passes.memory.resting("Binding/web", plane.now + 1)
    assert due_passes(plane.state, plane.now + 299 * S) == []
    assert len(due_passes(plane.state, plane.now + 300 * S)) == 1
