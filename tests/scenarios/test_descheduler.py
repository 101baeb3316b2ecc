"""The descheduler told as stories: what it proposes, to whom, when, and when it keeps quiet."""

from __future__ import annotations

from uuid import UUID, uuid4

import msgspec
import pytest

from wharfinger.domain.binding import Binding, Component
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.domain.policy import ConditionMatch, ConditionTaints, Policy
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    NodeClosed,
    Placed,
    Recovered,
    Refused,
    Released,
    Silenced,
)
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import NodeShare
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, NodeRemovalProposed
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler import DeschedulerObserver

S = 1_000_000
START = 1_700_000_000 * S
GPU_ROT = Taint("rot", "NoExecute", "gpu")


def shard_of(binding: str) -> int:
    return 1 if binding.startswith("far") else 0


class Descheduler:
    """An observer with a clock that only `wait` moves; decisions are numbered by stream as the
    plane would."""

    def __init__(self, observer: DeschedulerObserver | None = None) -> None:
        self.observer = observer or DeschedulerObserver(shard_of)
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

    def publications(self) -> list[Publication]:
        return self.observer.publish(self.state, self.now)

    def proposed(self) -> list[str]:
        return [told(p.data) for p in self.publications()]

    def due_in(self) -> float | None:
        due = self.observer.next_due(self.state)
        return None if due is None else (due - self.now) / S

    def _next(self) -> int:
        self.seq += 1
        return self.seq

    def decided(
        self, cluster: str, *items: AssignmentItem, stream: str = "fleet/0"
    ) -> AssignmentsDecided:
        return AssignmentsDecided(cluster, stream, max(i.seq for i in items), items)

    def assigned(
        self, binding: str, priority: int = 0, **replicas: int
    ) -> list[AssignmentsDecided]:
        stream = f"fleet/{shard_of(binding)}"
        return [
            self.decided(
                c,
                Assigned(self._next(), str(uuid4()), binding, "uid", n, Requirements(), priority),
                stream=stream,
            )
            for c, n in replicas.items()
        ]

    def silenced(
        self, cluster: str, decision: UUID | None = None, stream: str = "fleet/0"
    ) -> AssignmentsDecided:
        return self.decided(
            cluster, Silenced(self._next(), str(decision or uuid4())), stream=stream
        )

    def recovered(self, cluster: str) -> AssignmentsDecided:
        return self.decided(cluster, Recovered(self._next(), str(uuid4())))

    def placed(self, binding: str, cluster: str, node: str, *ordinals: int) -> AssignmentsDecided:
        item = Placed(self._next(), str(uuid4()), binding, (NodeShare(node, ordinals),))
        return self.decided(cluster, item, stream=f"cluster/{cluster}")

    def released(self, binding: str, cluster: str, node: str, *ordinals: int) -> AssignmentsDecided:
        item = Released(self._next(), str(uuid4()), binding, (NodeShare(node, ordinals),))
        return self.decided(cluster, item, stream=f"cluster/{cluster}")

    def closed(self, cluster: str, node: str) -> AssignmentsDecided:
        return self.decided(
            cluster, NodeClosed(self._next(), str(uuid4()), node), stream=f"cluster/{cluster}"
        )


def told(data: Value) -> str:
    match data:
        case FailoverProposed(stream, binding, cluster):
            return f"{stream}: failover {binding} from {cluster}"
        case EvictionProposed(stream, binding, cluster):
            return f"{stream}: evict {binding} from {cluster}"
        case NodeRemovalProposed(stream, cluster, node):
            return f"{stream}: remove {node} of {cluster}"
        case _:
            raise AssertionError(f"not a proposal: {data}")


def binding(
    name: str, replicas: int = 3, *tolerations: Toleration, divided: bool = True, priority: int = 0
) -> BindingRequested:
    placement = Placement(
        tolerations=tolerations,
        replicas=ReplicaScheduling(type="Divided" if divided else "Duplicated"),
    )
    ref = ObjectRef("apps/v1", "Deployment", name)
    return BindingRequested(
        Binding(name, "uid", ref, replicas, Requirements(), placement, priority)
    )


def cluster(name: str, *taints: Taint) -> ClusterObserved:
    return ClusterObserved(Cluster(name, taints=taints))


def bears_rot(seconds: int | None = None) -> Toleration:
    return Toleration("rot", "Exists", seconds=seconds)


def pool_nodes(name: str, *nodes: str, pool: str = "spot") -> NodesObserved:
    labels = {"karpenter.sh/nodepool": pool} if pool else {}
    return NodesObserved(name, 0, 1, tuple(Node(n, {}, labels=labels) for n in nodes))


def pool_policy(empty_after_s: int | None, pool: str = "spot", name: str = "") -> PolicyApplied:
    return PolicyApplied(
        Policy("NodePool", name or pool, node_pool=NodePoolPolicy(pool, empty_after_s))
    )


# Failover.


def test_a_silent_cluster_has_a_failover_proposed_for_each_binding_in_it() -> None:
    plane = Descheduler()
    plane.given(
        binding("web"),
        binding("db", 5),
        *plane.assigned("web", oslo=3),
        *plane.assigned("db", oslo=2, bergen=3),
    )
    plane.given(plane.silenced("oslo"))
    assert plane.due_in() == 0
    assert plane.proposed() == ["fleet/0: failover db from oslo", "fleet/0: failover web from oslo"]
    assert plane.proposed() == []


def test_a_proposal_goes_to_its_owners_stream_and_names_its_cause() -> None:
    plane, silencing = Descheduler(), uuid4()
    plane.given(*plane.assigned("web", oslo=3), plane.silenced("oslo", silencing))
    (proposal,) = plane.publications()
    assert (proposal.subject, proposal.key, proposal.partition_key) == ("web", "fleet/0", "fleet/0")
    assert proposal.cause == silencing
    assert proposal.id is not None


def test_only_the_stream_that_silenced_a_cluster_is_asked_to_fail_over() -> None:
    plane = Descheduler()
    plane.given(*plane.assigned("web", oslo=3), *plane.assigned("far-web", oslo=3))
    plane.given(plane.silenced("oslo", stream="fleet/1"))
    assert plane.proposed() == ["fleet/1: failover far-web from oslo"]
    plane.given(plane.silenced("oslo", stream="fleet/0"))
    assert plane.proposed() == ["fleet/0: failover web from oslo"]


def test_a_failover_is_proposed_again_after_a_minute_under_a_new_id() -> None:
    plane = Descheduler()
    plane.given(binding("web"), *plane.assigned("web", oslo=3), plane.silenced("oslo"))
    ids = []
    for _ in range(4):
        ids += [p.id for p in plane.publications()]
        assert plane.due_in() == 60
        plane.wait(59.9)
        assert plane.proposed() == []
        plane.wait(0.1)
    assert len(set(ids)) == 4


def test_a_restarted_descheduler_repeats_the_first_id_and_then_is_heard_again() -> None:
    teller = Descheduler()
    facts = [*teller.assigned("web", oslo=3), teller.silenced("oslo")]

    def story(plane: Descheduler) -> list[UUID | None]:
        plane.given(*facts)
        ids = [p.id for p in plane.publications()]
        plane.wait(60)
        return ids + [p.id for p in plane.publications()]

    before, after = Descheduler(), Descheduler()
    after.wait(3600)
    first, second = story(before), story(after)
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_nothing_is_proposed_once_the_cluster_is_heard_from_again() -> None:
    plane = Descheduler()
    plane.given(*plane.assigned("web", oslo=3), plane.silenced("oslo"), plane.recovered("oslo"))
    assert plane.proposed() == []
    assert plane.due_in() is None
    plane.given(plane.silenced("oslo"))
    assert plane.proposed() == ["fleet/0: failover web from oslo"]


@pytest.mark.parametrize("divided", [True, False])
def test_a_failover_that_was_made_up_for_is_not_proposed_again(divided: bool) -> None:
    plane = Descheduler()
    plane.given(
        binding("web", divided=divided), *plane.assigned("web", oslo=3), plane.silenced("oslo")
    )
    assert len(plane.proposed()) == 1
    plane.given(*plane.assigned("web", bergen=2))
    plane.wait(60)
    assert len(plane.proposed()) == 1  # one replica is still missing
    plane.given(*plane.assigned("web", bergen=3))
    plane.wait(60)
    assert plane.proposed() == []
    # and if the substitute is lost, it is asked for again
    plane.given(*plane.assigned("web", bergen=1))
    plane.wait(60)
    assert len(plane.proposed()) == 1


def test_a_failover_is_made_up_for_when_the_binding_shrank() -> None:
    plane = Descheduler()
    plane.given(binding("web", 6), *plane.assigned("web", oslo=3, bergen=3), plane.silenced("oslo"))
    assert len(plane.proposed()) == 1
    plane.given(binding("web", 3))
    plane.wait(60)
    assert plane.proposed() == []


def test_when_the_substitute_falls_silent_too_both_are_proposed() -> None:
    plane = Descheduler()
    plane.given(binding("web"), *plane.assigned("web", oslo=3), plane.silenced("oslo"))
    plane.proposed()
    plane.given(*plane.assigned("web", bergen=3), plane.silenced("bergen"))
    assert plane.proposed() == ["fleet/0: failover web from bergen"]
    plane.wait(60)
    assert plane.proposed() == [
        "fleet/0: failover web from bergen",
        "fleet/0: failover web from oslo",
    ]


def test_a_binding_that_left_or_was_withdrawn_needs_no_failover() -> None:
    plane = Descheduler()
    plane.given(
        binding("web"),
        *plane.assigned("web", oslo=3),
        *plane.assigned("db", oslo=1),
        plane.silenced("oslo"),
    )
    plane.given(*plane.assigned("db", oslo=0), BindingWithdrawn("web"))
    assert plane.proposed() == []


def test_a_replica_assigned_to_an_already_silent_cluster_is_failed_over() -> None:
    plane = Descheduler()
    plane.given(plane.silenced("oslo"), *plane.assigned("web", oslo=3))
    assert plane.proposed() == ["fleet/0: failover web from oslo"]


def test_redelivery_changes_nothing() -> None:
    plane = Descheduler()
    silenced, recovered = plane.silenced("oslo"), plane.recovered("oslo")
    assigned, gone = plane.assigned("web", oslo=3), plane.assigned("web", oslo=0)
    plane.given(*assigned, silenced, recovered, *gone)
    plane.given(*assigned, silenced)
    assert plane.proposed() == []
    assert plane.state.spreads == {}


def test_a_refusal_of_the_cluster_stage_is_the_fleets_business() -> None:
    plane = Descheduler()
    plane.given(*plane.assigned("web", oslo=3))
    plane.given(
        plane.decided("oslo", Refused(1, "d", "web", "a", 3, "k", "r"), stream="cluster/oslo")
    )
    assert plane.proposed() == []


# Order and bound.


def test_the_important_go_first_and_the_rest_with_the_next_call() -> None:
    plane = Descheduler(DeschedulerObserver(shard_of, batch_max=2))
    plane.given(binding("c", priority=7))
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        plane.given(*plane.assigned(name, priority, oslo=1))
    plane.given(plane.silenced("oslo"))
    batches = []
    while plane.due_in() == 0:
        batches.append([p.subject for p in plane.publications()])
    assert batches == [["c", "b"], ["d", "a"]]
    assert plane.due_in() == 60


def test_what_waits_for_its_turn_is_dropped_when_its_cause_goes() -> None:
    plane = Descheduler(DeschedulerObserver(shard_of, batch_max=1))
    plane.given(*plane.assigned("a", oslo=1), *plane.assigned("b", oslo=1), plane.silenced("oslo"))
    assert plane.proposed() == ["fleet/0: failover a from oslo"]
    plane.given(plane.recovered("oslo"))
    assert plane.proposed() == []
    assert plane.due_in() is None


# NoExecute taints.


def test_a_binding_that_does_not_tolerate_a_no_execute_taint_is_evicted_at_once() -> None:
    plane = Descheduler()
    plane.given(
        cluster("oslo"), binding("web"), *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT)
    )
    assert plane.due_in() == 0
    assert plane.proposed() == ["fleet/0: evict web from oslo"]


def test_other_taints_evict_nobody() -> None:
    plane = Descheduler()
    plane.given(binding("web"), *plane.assigned("web", oslo=3))
    plane.given(cluster("oslo", Taint("rot", "NoSchedule"), Taint("rot", "PreferNoSchedule")))
    assert plane.due_in() is None


def test_a_toleration_with_seconds_is_borne_so_long_from_the_first_sight_of_the_taint() -> None:
    plane = Descheduler()
    plane.given(
        binding("web", 3, bears_rot(300)), *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT)
    )
    plane.wait(100)
    plane.given(cluster("oslo", GPU_ROT))  # seen again: the time goes on
    assert plane.due_in() == 200
    plane.wait(199.9)
    assert plane.proposed() == []
    plane.wait(0.1)
    assert plane.proposed() == ["fleet/0: evict web from oslo"]
    assert plane.due_in() == 60


def test_of_two_taints_each_has_its_own_time() -> None:
    plane = Descheduler()
    web = binding("web", 3, bears_rot(300), Toleration("mould", "Exists", seconds=60))
    plane.given(web, *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT))
    plane.wait(100)
    plane.given(cluster("oslo", GPU_ROT, Taint("mould", "NoExecute")))
    assert plane.due_in() == 60


def test_a_toleration_without_end_bears_the_taint_for_ever() -> None:
    plane = Descheduler()
    plane.given(
        binding("web", 3, bears_rot()), *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT)
    )
    assert plane.due_in() is None


def test_a_taint_that_goes_in_time_evicts_nobody_and_starts_afresh_when_it_returns() -> None:
    plane = Descheduler()
    plane.given(
        binding("web", 3, bears_rot(300)), *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT)
    )
    plane.wait(299)
    plane.given(cluster("oslo"))
    assert plane.due_in() is None
    plane.given(cluster("oslo", GPU_ROT))
    assert plane.due_in() == 300


def test_a_binding_that_came_after_the_taint_gets_its_full_time() -> None:
    plane = Descheduler()
    plane.given(binding("web", 3, bears_rot(300)), cluster("oslo", GPU_ROT))
    plane.wait(1000)
    plane.given(*plane.assigned("web", oslo=3))
    assert plane.due_in() == 300


def test_nobody_is_evicted_before_its_tolerations_are_known() -> None:
    plane = Descheduler()
    plane.given(*plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT))
    assert plane.due_in() is None
    plane.given(binding("web"))
    assert plane.proposed() == ["fleet/0: evict web from oslo"]


def test_a_prolonged_toleration_silences_the_proposal_until_its_new_end() -> None:
    plane = Descheduler()
    plane.given(binding("web"), *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT))
    assert len(plane.proposed()) == 1
    plane.given(binding("web", 3, bears_rot(500)))
    assert plane.due_in() == 500
    plane.wait(500)
    assert plane.proposed() == ["fleet/0: evict web from oslo"]


def test_a_shortened_toleration_ends_at_once() -> None:
    plane = Descheduler()
    plane.given(
        binding("web", 3, bears_rot(500)), *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT)
    )
    plane.wait(100)
    plane.given(binding("web", 3, bears_rot(50)))
    assert plane.proposed() == ["fleet/0: evict web from oslo"]


def test_a_forgotten_cluster_has_nothing_to_evict() -> None:
    plane = Descheduler()
    plane.given(
        binding("web"), *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT), pool_policy(60)
    )
    plane.given(pool_nodes("oslo", "n1"), ClusterForgotten("oslo"))
    assert plane.due_in() is None
    plane.given(cluster("oslo"), *plane.assigned("web", oslo=1), plane.silenced("oslo"))
    assert plane.proposed() == ["fleet/0: failover web from oslo"]


def test_a_cause_that_comes_back_keeps_to_the_pause_and_to_new_ids() -> None:
    plane = Descheduler()
    plane.given(binding("web"), *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT))
    (first,) = plane.publications()
    plane.given(binding("web", 3, bears_rot()), binding("web"))
    assert plane.proposed() == []
    assert plane.due_in() == 60
    plane.wait(60)
    (second,) = plane.publications()
    assert first.id != second.id


def test_a_change_of_the_taint_that_evicts_does_not_shorten_the_pause() -> None:
    plane, mould = Descheduler(), Taint("mould", "NoExecute")
    plane.given(binding("web"), *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT))
    ids = [p.id for p in plane.publications()]
    for taints in ((GPU_ROT, mould), (mould,), (GPU_ROT,)):
        plane.given(cluster("oslo", *taints))
        assert plane.due_in() == 60
        plane.wait(60)
        ids += [p.id for p in plane.publications()]
    assert len(set(ids)) == 4


def test_a_binding_that_returns_to_a_tainted_cluster_is_evicted_under_a_new_id() -> None:
    plane = Descheduler()
    plane.given(binding("web"), *plane.assigned("web", oslo=3), cluster("oslo", GPU_ROT))
    (first,) = plane.publications()
    plane.given(*plane.assigned("web", oslo=0), *plane.assigned("web", oslo=3))
    (second,) = plane.publications()
    assert first.id != second.id


# Empty nodes.


def test_a_pools_node_that_stays_empty_is_proposed_for_removal_to_its_cluster() -> None:
    plane = Descheduler()
    plane.given(pool_policy(300), pool_nodes("oslo", "n1"))
    assert plane.due_in() == 300
    plane.wait(299.9)
    assert plane.proposed() == []
    plane.wait(0.1)
    (proposal,) = plane.publications()
    assert told(proposal.data) == "cluster/oslo: remove n1 of oslo"
    assert (proposal.subject, proposal.partition_key) == ("n1", "cluster/oslo")
    assert plane.due_in() == 60


def test_a_node_is_empty_from_the_release_of_its_last_replica() -> None:
    plane = Descheduler()
    plane.given(pool_policy(300), pool_nodes("oslo", "n1"), plane.placed("web", "oslo", "n1", 0, 1))
    assert plane.due_in() is None
    plane.wait(1000)
    plane.given(plane.released("web", "oslo", "n1", 0))
    assert plane.due_in() is None
    plane.given(plane.released("web", "oslo", "n1", 1))
    assert plane.due_in() == 300
    plane.wait(299)
    plane.given(plane.placed("db", "oslo", "n1", 0))
    assert plane.due_in() is None


def test_a_pod_still_seen_keeps_its_node() -> None:
    plane = Descheduler()
    plane.given(pool_policy(300), pool_nodes("oslo", "n1"))
    plane.given(PodsObserved("oslo", "n1", (Pod("u", "stranger", Requirements()),)))
    assert plane.due_in() is None
    plane.given(PodsObserved("oslo", "n1", ()))
    assert plane.due_in() == 300
    plane.wait(100)
    # seen empty again: the time goes on
    plane.given(PodsObserved("oslo", "n1", ()), pool_nodes("oslo", "n1"))
    assert plane.due_in() == 200


def test_a_replica_that_moved_leaves_its_node_empty() -> None:
    plane = Descheduler()
    plane.given(
        pool_policy(300), pool_nodes("oslo", "n1", "n2"), plane.placed("web", "oslo", "n1", 0)
    )
    plane.given(plane.placed("web", "oslo", "n2", 0), plane.released("web", "oslo", "n1", 0))
    plane.wait(300)
    assert plane.proposed() == ["cluster/oslo: remove n1 of oslo"]


@pytest.mark.parametrize("empty_after_s", [None, 0])
def test_a_pool_says_how_long_its_nodes_may_be_empty(empty_after_s: int | None) -> None:
    plane = Descheduler()
    plane.given(
        pool_policy(empty_after_s), pool_nodes("oslo", "n1"), pool_nodes("bergen", "n2", pool="")
    )
    assert plane.proposed() == (
        [] if empty_after_s is None else ["cluster/oslo: remove n1 of oslo"]
    )


def test_a_policy_that_comes_later_counts_the_time_that_passed() -> None:
    plane = Descheduler()
    plane.given(pool_nodes("oslo", "n1"))
    plane.wait(200)
    plane.given(pool_policy(300))
    assert plane.due_in() == 100
    plane.given(pool_policy(250))
    assert plane.due_in() == 50
    plane.given(PolicyRemoved("NodePool", "spot"))
    assert plane.due_in() is None


def test_of_two_policies_for_a_pool_the_most_patient_counts() -> None:
    plane = Descheduler()
    plane.given(pool_nodes("oslo", "n1"), pool_policy(60, name="a"), pool_policy(600, name="b"))
    assert plane.due_in() == 600
    plane.given(pool_policy(None, name="c"))
    assert plane.due_in() is None


def test_a_node_that_is_closed_or_gone_or_left_its_pool_is_proposed_no_more() -> None:
    plane = Descheduler()
    plane.given(pool_policy(0), pool_nodes("oslo", "n1", "n2", "n3"))
    assert len(plane.proposed()) == 3
    plane.given(plane.closed("oslo", "n1"))
    plane.given(
        NodesObserved(
            "oslo", 0, 1, (Node("n1", {}, labels={"karpenter.sh/nodepool": "spot"}), Node("n3", {}))
        )
    )
    plane.wait(60)
    assert plane.proposed() == []
    assert plane.due_in() is None


def test_a_node_that_changes_its_pool_follows_the_new_ones_policy() -> None:
    plane = Descheduler()
    plane.given(pool_policy(300), pool_policy(60, pool="tiny"), pool_nodes("oslo", "n1"))
    plane.wait(100)
    plane.given(pool_nodes("oslo", "n1", pool="tiny"))
    assert plane.due_in() == 60


@pytest.mark.parametrize(("repeat_after_s", "batch_max"), [(0, 1), (60, 0), (-1, 5)])
def test_settings_that_would_never_end_are_refused(repeat_after_s: int, batch_max: int) -> None:
    with pytest.raises(ValueError, match="above zero"):
        DeschedulerObserver(shard_of, repeat_after_s, batch_max)


# --- whose they are, and taints that policies give


def test_nothing_is_proposed_for_a_binding_of_another_scheduler() -> None:
    d = Descheduler()
    theirs = binding("web")
    d.given(BindingRequested(msgspec.structs.replace(theirs.binding, scheduler="volcano")))
    d.given(*d.assigned("web", oslo=3), cluster("oslo", GPU_ROT), d.silenced("oslo"))
    assert d.proposed() == []
    d.given(theirs)
    assert d.proposed() == ["fleet/0: evict web from oslo", "fleet/0: failover web from oslo"]


def test_a_taint_that_a_policy_gives_by_condition_evicts_like_any_other() -> None:
    d = Descheduler()
    lost, well = ConditionMatch("Ready", "In", ("False",)), ConditionMatch("Ready", "In", ("True",))
    rule = ConditionTaints(ClusterAffinity(), (Taint("rot", "NoExecute"),), (lost,), (well,))
    d.given(binding("web", 3, bears_rot(30)), *d.assigned("web", oslo=3))
    d.given(PolicyApplied(Policy("ClusterTaintPolicy", "health", taints=rule)))
    d.given(ClusterObserved(Cluster("oslo", conditions={"Ready": "False"})))
    assert (d.proposed(), d.due_in()) == ([], 30)
    d.wait(30)
    assert d.proposed() == ["fleet/0: evict web from oslo"]
    d.given(ClusterObserved(Cluster("oslo", conditions={"Ready": "Unknown"})))
    d.wait(60)
    assert d.proposed() == ["fleet/0: evict web from oslo"], (
        "between the two thresholds the taint stays"
    )
    d.given(ClusterObserved(Cluster("oslo", conditions={"Ready": "True"})))
    d.wait(600)
    assert d.proposed() == []


def test_the_components_of_a_binding_are_proposed_about_as_one() -> None:
    d = Descheduler()
    d.given(*d.assigned("ray#head", oslo=1), *d.assigned("ray#worker", oslo=3), cluster("bergen"))
    whole = msgspec.structs.replace(
        binding("ray", 0).binding, components=(Component("head", 1), Component("worker", 3))
    )
    d.given(BindingRequested(whole), d.silenced("oslo"))
    assert d.proposed() == ["fleet/0: failover ray from oslo"]
    d.given(*d.assigned("ray#head", bergen=1), *d.assigned("ray#worker", bergen=3))
    d.wait(60)
    assert d.proposed() == []
    d.given(*d.assigned("ray#head", oslo=0), *d.assigned("ray#worker", oslo=0))
    assert d.due_in() is None
