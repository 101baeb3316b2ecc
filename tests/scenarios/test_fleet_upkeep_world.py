"""All stages together: pools of several clusters as one, a workload that falls ill, replicas that
go where they cost less."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from tests.scenarios.test_world_consolidates import GIB, START, S, machine

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.instance_types import Catalogue, InstanceType
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.domain.placement import ApplicationFailover, Placement, ReplicaScheduling
from wharfinger.domain.policy import Policy
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.domain.value import Value, digest
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import NodesObserved, WorkloadObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import (
    NodeClaimRequested,
    ProposalRefused,
    ReplicasRefused,
    ScheduleDecided,
)
from wharfinger.events.envelope import derived_id
from wharfinger.events.policies import PolicyApplied
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.world import World

PRICE = "wharfinger.io/price-per-core"
DYNAMIC = ReplicaScheduling("Divided", "Weighted", dynamic=True)
ONE_CORE = Requirements({"cpu": 1000, "memory": GIB})


@dataclass
class Plane:
    world: World = field(
        default_factory=lambda: World(recorded=True, provides_after_s=40, at=START)
    )
    rounds: list[RecordedRound] = field(default_factory=list)
    told: int = 0

    def given(self, *facts: Value) -> None:
        events = []
        for fact in facts:
            self.told += 1
            events.append(
                made(
                    fact,
                    id=derived_id("told", digest(fact, 64), self.told),
                    source="/test",
                    subject="x",
                )
            )
        self.rounds += self.world.tell(events)

    def wait(self, seconds: int) -> None:
        self.rounds += self.world.wait(self.world.at + seconds * S)

    def decided(self, *kinds: type[Value]) -> list[Value]:
        return [d.data for r in self.rounds for d in r.round.decisions if isinstance(d.data, kinds)]

    def cluster(self, name: str) -> ClusterStageState:
        return next(state for state in self.world.cluster_states() if state.cluster == name)

    def placed(self, binding: str) -> dict[str, int]:
        """Cluster -> how many of its replicas are on nodes."""
        found = {s.cluster: s.book.held.get(binding) for s in self.world.cluster_states()}
        return {
            name: len(held.placed)
            for name, held in sorted(found.items())
            if held is not None and held.placed
        }

    def targets(self, binding: str) -> dict[str, int]:
        return dict(self.world.state_of_shard(binding).bindings[binding].targets)

    def check(self) -> None:
        """Every stream, decided again, decides the same."""
        by_stream: dict[str, list[RecordedRound]] = {}
        for recorded in self.rounds:
            by_stream.setdefault(recorded.round.stream, []).append(recorded)
        for stream, rounds in by_stream.items():
            decider = self.world.streams[stream].decider
            assert (
                audit(decider, decider.initial(stream), empty_head(stream), rounds).divergences
                == []
            )


def pool_of(
    cluster: str, *types: InstanceType, limits: dict[str, int] | None = None
) -> list[Value]:
    """A pool of the cluster's own, with a catalogue of its own."""
    pool = NodePoolPolicy(
        "general", clusters=(cluster,), catalogue=f"of-{cluster}", limits=limits or {}, digest="w1"
    )
    return [
        PolicyApplied(Policy("NodePool", "general", cluster, node_pool=pool)),
        PolicyApplied(
            Policy(
                "InstanceTypes", "0", f"of-{cluster}", catalogue=Catalogue(f"of-{cluster}", types)
            )
        ),
    ]


def a_cluster(name: str, cores: int, price: str = "") -> list[Value]:
    nodes = (
        (Node(f"{name}-n1", {"cpu": cores * 1000, "memory": 64 * GIB, "pods": 110}),)
        if cores
        else ()
    )
    return [
        ClusterObserved(Cluster(name, {PRICE: price} if price else {})),
        NodesObserved(name, 0, 1, nodes),
    ]


def wanted(
    name: str,
    replicas: int,
    placement: Placement | None = None,
    requirements: Requirements = ONE_CORE,
) -> BindingRequested:
    ref = ObjectRef("apps/v1", "Deployment", name)
    return BindingRequested(
        Binding(
            name,
            f"uid-{name}",
            ref,
            replicas,
            requirements,
            placement or Placement(replicas=DYNAMIC),
        )
    )


def test_free_room_of_all_clusters_first_then_nodes_where_they_are_cheapest() -> None:
    plane = Plane()
    plane.given(*a_cluster("alta", 2), *a_cluster("bergen", 1), *a_cluster("oslo", 1))
    plane.given(
        *pool_of("alta", machine("a8", 8, 80)),
        *pool_of("bergen", machine("b8", 8, 40), limits={"nodes": 1}),
    )
    plane.given(wanted("web", 14))
    assert plane.targets("web") == {"alta": 4, "bergen": 9, "oslo": 1}, (
        "one node of bergen, the rest of alta"
    )
    assert plane.placed("web") == {"alta": 2, "bergen": 1, "oslo": 1}
    claims = [(d.cluster, sum(d.replicas.values())) for d in plane.decided(NodeClaimRequested)]  # type: ignore[attr-defined]
    assert sorted(claims) == [("alta", 2), ("bergen", 8)]
    plane.wait(120)
    assert plane.placed("web") == {"alta": 4, "bergen": 9, "oslo": 1}
    assert plane.decided(ReplicasRefused) == []
    plane.check()


def test_no_more_is_promised_than_the_limits_of_all_pools_leave() -> None:
    plane = Plane()
    plane.given(*a_cluster("alta", 1), *a_cluster("bergen", 0))
    plane.given(*pool_of("bergen", machine("b8", 8, 40), limits={"cpu": 16_000}))
    plane.given(wanted("web", 18))
    assert plane.targets("web") == {}, "17 would fit"
    plane.given(wanted("web", 17))
    assert plane.targets("web") == {"alta": 1, "bergen": 16}
    plane.wait(120)
    assert plane.placed("web") == {"alta": 1, "bergen": 16}
    plane.given(wanted("api", 1))
    assert plane.targets("api") == {}
    plane.check()


def test_while_nodes_are_on_their_way_what_is_free_stays_free() -> None:
    plane = Plane()
    plane.given(
        *a_cluster("bergen", 2), *pool_of("bergen", machine("b8", 8, 40), limits={"nodes": 1})
    )
    plane.given(wanted("large", 2, requirements=Requirements({"cpu": 4000, "memory": GIB})))
    assert plane.targets("large") == {"bergen": 2}
    assert plane.placed("large") == {}
    plane.given(wanted("small", 2))
    assert plane.placed("small") == {"bergen": 2}, (
        "who waits for a node takes no room of those that there are"
    )
    plane.wait(120)
    assert (plane.placed("large"), plane.placed("small")) == ({"bergen": 2}, {"bergen": 2})
    plane.check()


def test_what_falls_ill_is_replaced_before_it_is_let_go() -> None:
    plane = Plane()
    plane.given(*a_cluster("bergen", 0), *a_cluster("oslo", 8))
    ill = Placement(replicas=DYNAMIC, application=ApplicationFailover(toleration_s=60, grace_s=600))
    plane.given(wanted("web", 3, ill))
    plane.given(*a_cluster("bergen", 8))
    plane.given(WorkloadObserved("oslo", "web", "Unhealthy"))
    plane.wait(59)
    assert plane.placed("web") == {"oslo": 3}
    plane.wait(1)
    assert plane.placed("web") == {"bergen": 3}, (
        "placed there at once, and so the copy could go at once, too"
    )
    graceful, released = [
        d for d in plane.decided(ScheduleDecided) if isinstance(d, ScheduleDecided)
    ][1:]
    assert [one.cluster for one in graceful.leaving] == ["oslo"]
    assert {t.cluster: t.replicas for t in graceful.targets} == {"bergen": 3, "oslo": 3}
    assert released.explanation.why == "what replaces oslo stands"
    plane.wait(3600)
    assert plane.placed("web") == {"bergen": 3}
    plane.check()


def test_the_copy_waits_while_its_replacement_waits_for_a_node() -> None:
    plane = Plane()
    plane.given(
        *a_cluster("bergen", 0), *a_cluster("oslo", 8), *pool_of("bergen", machine("b8", 8, 40))
    )
    ill = Placement(replicas=DYNAMIC, application=ApplicationFailover(toleration_s=60, grace_s=600))
    plane.given(wanted("web", 3, ill))
    plane.given(WorkloadObserved("oslo", "web", "Unhealthy"))
    plane.wait(61)
    assert plane.targets("web") == {"bergen": 3, "oslo": 3}
    assert plane.placed("web") == {"oslo": 3}
    plane.wait(300)
    assert plane.placed("web") == {"bergen": 3}
    plane.check()


def test_replicas_go_where_they_cost_less_little_by_little_and_come_to_rest() -> None:
    plane = Plane()
    plane.given(*a_cluster("bergen", 0, "0.03"), *a_cluster("oslo", 20, "0.05"))
    plane.given(*(wanted(f"web-{i}", 2) for i in range(5)))
    plane.given(*a_cluster("bergen", 20, "0.03"))
    policy = RebalancePolicy("cost", every_s=60, budget_percent=40, window_s=600)
    plane.given(PolicyApplied(Policy("RebalancePolicy", "cheaper", rebalancing=policy)))

    def in_oslo() -> int:
        return sum(plane.placed(f"web-{i}").get("oslo", 0) for i in range(5))

    left = [in_oslo()]
    assert left == [10]
    for _ in range(8):
        plane.wait(600)
        left.append(in_oslo())
    assert all(before - after <= 4 for before, after in pairwise(left)), "within the budget of 40%"
    assert left[-1] == 0
    moved = len(
        [d for d in plane.decided(ScheduleDecided) if isinstance(d, ScheduleDecided) and d.move]
    )
    plane.wait(3600)
    assert (
        len(
            [d for d in plane.decided(ScheduleDecided) if isinstance(d, ScheduleDecided) and d.move]
        )
        == moved
    )
    assert plane.decided(ProposalRefused) == []
    plane.check()
