"""Clusters that are too big grow smaller by themselves: pools, catalogue, workloads and a provider
in one world.

Nothing is told here but what comes from outside: what pools there are, what nodes cost, what is
wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.descheduling import DeschedulerProfile, DeschedulingPolicy, NodeTaints
from wharfinger.domain.instance_types import Catalogue, InstanceType, Offering
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INITIALIZED_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_HASH,
    POOL_LABEL,
    ZONE_LABEL,
    NodeBudget,
    NodePoolPolicy,
)
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value, digest
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import (
    DisruptionDecided,
    DisruptionEnded,
    NodeClaimRequested,
    NodeRemovalDecided,
    ReplicasPlaced,
    ReplicasReleased,
)
from wharfinger.events.envelope import derived_id
from wharfinger.events.policies import PolicyApplied
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.world import World

S = 1_000_000
START = 1_700_000_000 * S
GIB = 1 << 30
DOLLAR = 1_000_000_000


def machine(name: str, cpus: int, cents: int) -> InstanceType:
    capacity = {"cpu": cpus * 1000, "memory": cpus * 4 * GIB, "pods": 110}
    return InstanceType(
        name, capacity, offerings=(Offering("a", "on-demand", cents * DOLLAR // 100),)
    )


TYPES = (machine("large", 8, 40), machine("small", 2, 10))
POOL = NodePoolPolicy(
    "general",
    30,
    consolidation="WhenEmptyOrUnderutilized",
    budgets=(NodeBudget("100%"),),
    digest="w1",
)


def node(name: str, kind: str = "large", pool: str = "general", made_by: str = "w1") -> Node:
    of = next(t for t in TYPES if t.name == kind)
    labels = {
        POOL_LABEL: pool,
        INSTANCE_TYPE_LABEL: kind,
        ZONE_LABEL: "a",
        CAPACITY_TYPE_LABEL: "on-demand",
        INITIALIZED_LABEL: "true",
        "kubernetes.io/hostname": name,
    }
    return Node(
        name,
        of.allocatable,
        labels=labels,
        annotations={POOL_HASH: made_by},
        created_us=START - 3600 * S,
    )


def wanted(name: str, replicas: int, cpu: int = 1000) -> BindingRequested:
    ref = ObjectRef("apps/v1", "Deployment", name)
    placement = Placement(replicas=ReplicaScheduling("Divided", "Aggregated"))
    return BindingRequested(
        Binding(
            name, f"uid-{name}", ref, replicas, Requirements({"cpu": cpu, "memory": GIB}), placement
        )
    )


@dataclass
class Fleet:
    """`decided`: all that was, in order."""

    world: World = field(
        default_factory=lambda: World(recorded=True, provides_after_s=40, at=START)
    )
    rounds: list[RecordedRound] = field(default_factory=list)
    told: int = 0

    def given(self, *facts: Value) -> Fleet:
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
        return self

    def wait(self, seconds: int) -> Fleet:
        self.rounds += self.world.wait(self.world.at + seconds * S)
        return self

    @property
    def decided(self) -> list[Value]:
        return [d.data for r in self.rounds for d in r.round.decisions]

    def of(self, *kinds: type[Value]) -> list[Value]:
        return [d for d in self.decided if isinstance(d, kinds)]

    @property
    def oslo(self) -> ClusterStageState:
        return next(state for state in self.world.cluster_states() if state.cluster == "oslo")

    @property
    def nodes(self) -> list[str]:
        return sorted(self.oslo.book.nodes)

    def placed(self, binding: str) -> int:
        held = self.oslo.book.held.get(binding)
        return 0 if held is None else len(held.placed)

    def ended(self) -> list[tuple[str, str]]:
        return [(d.method, d.outcome) for d in self.decided if isinstance(d, DisruptionEnded)]


def a_fleet(
    *nodes: Node, pool: NodePoolPolicy = POOL, workloads: Iterable[BindingRequested] = ()
) -> Fleet:
    fleet = Fleet().given(
        PolicyApplied(Policy("NodePool", pool.name, node_pool=pool)),
        PolicyApplied(
            Policy("InstanceTypes", "0", "default", catalogue=Catalogue("default", TYPES))
        ),
        ClusterObserved(Cluster("oslo")),
        NodesObserved("oslo", 0, 1, nodes),
    )
    return fleet.given(*workloads)


def lowered(fleet: Fleet) -> int:
    """What the nodes cost now, in cents an hour."""
    price = {t.name: t.offerings[0].price for t in TYPES}
    return (
        sum(price[n.labels[INSTANCE_TYPE_LABEL]] for n in fleet.oslo.book.nodes.values())
        * 100
        // DOLLAR
    )


def test_a_node_that_holds_nothing_goes_and_nothing_moves() -> None:
    fleet = a_fleet(node("n1"), node("n2"), workloads=[wanted("web", 12)])
    fleet.wait(60).given(wanted("web", 1))
    fleet.wait(300)
    assert fleet.placed("web") == 1
    assert ("emptiness", "done") in fleet.ended()
    assert lowered(fleet) < 80


def test_what_is_left_of_three_nodes_comes_together_on_one() -> None:
    fleet = a_fleet(*(node(f"n{i}") for i in range(3)), workloads=[wanted("web", 18)])
    fleet.wait(60).given(wanted("web", 6))
    fleet.wait(1800)
    assert fleet.placed("web") == 6
    assert {outcome for _, outcome in fleet.ended()} == {"done"}
    assert lowered(fleet) <= 40
    assert len(fleet.of(NodeRemovalDecided)) >= 2


def test_a_big_node_for_a_small_workload_is_replaced_by_a_small_one() -> None:
    fleet = a_fleet(node("n1"), workloads=[wanted("web", 1)]).wait(1800)
    assert fleet.placed("web") == 1
    assert lowered(fleet) == 10
    (claim,) = fleet.of(NodeClaimRequested)
    assert isinstance(claim, NodeClaimRequested)
    assert fleet.nodes == [claim.claim]
    (ended,) = fleet.of(DisruptionEnded)
    assert isinstance(ended, DisruptionEnded)
    assert (ended.outcome, ended.predicted, ended.realised) == (
        "done",
        30 * DOLLAR // 100,
        30 * DOLLAR // 100,
    )


def test_a_replica_leaves_its_node_in_the_round_in_which_it_comes_to_another() -> None:
    fleet = a_fleet(node("n1"), workloads=[wanted("web", 1)]).wait(1800)
    for recorded in fleet.rounds:
        released = [
            d.data for d in recorded.round.decisions if isinstance(d.data, ReplicasReleased)
        ]
        placed = {
            d.data.binding for d in recorded.round.decisions if isinstance(d.data, ReplicasPlaced)
        }
        assert {r.binding for r in released} <= placed


def test_a_drifted_node_is_replaced_by_one_of_the_pool_as_it_is_now() -> None:
    fleet = a_fleet(node("n1", "small", made_by="w0"), workloads=[wanted("web", 1)]).wait(1800)
    assert ("drift", "done") in fleet.ended()
    assert "n1" not in fleet.nodes
    assert fleet.placed("web") == 1


def test_an_expired_node_goes() -> None:
    pool = NodePoolPolicy(
        "general", None, expire_after_s=3600, budgets=(NodeBudget("100%"),), digest="w1"
    )
    fleet = a_fleet(node("n1", "small"), pool=pool, workloads=[wanted("web", 1)]).wait(1800)
    assert ("expiry", "done") in fleet.ended()
    assert "n1" not in fleet.nodes
    assert fleet.placed("web") == 1


def test_what_nobody_may_disrupt_stays() -> None:
    pool = NodePoolPolicy(
        "general",
        30,
        consolidation="WhenEmptyOrUnderutilized",
        budgets=(NodeBudget("0"),),
        digest="w1",
    )
    fleet = a_fleet(*(node(f"n{i}") for i in range(3)), pool=pool).wait(1800)
    assert fleet.of(DisruptionDecided) == []
    assert fleet.nodes == ["n0", "n1", "n2"]


def test_on_a_fixed_fleet_proposals_end_and_nothing_goes_back_and_forth() -> None:
    workloads = [
        wanted(f"w{i}", n, cpu)
        for i, (n, cpu) in enumerate([(9, 700), (5, 1500), (7, 400), (2, 3000)])
    ]
    fleet = a_fleet(*(node(f"n{i}") for i in range(6)), workloads=workloads)
    fleet.wait(300).given(
        *(wanted(w.binding.name, w.binding.replicas // 3 + 1, 700) for w in workloads)
    )
    fleet.wait(2 * 3600)
    commands = len(fleet.of(DisruptionDecided))
    assert commands > 0
    fleet.wait(12 * 3600)
    assert len(fleet.of(DisruptionDecided)) == commands
    assert visits_twice(fleet.decided) == []


def visits_twice(decided: Sequence[Value]) -> list[tuple[str, int, str]]:
    """Replicas that came back to a node they had been moved from."""
    seen: dict[tuple[str, int], list[str]] = {}
    back = []
    for decision in decided:
        if isinstance(decision, ReplicasPlaced):
            for share in decision.placed:
                for ordinal in share.ordinals:
                    been = seen.setdefault((decision.binding, ordinal), [])
                    if share.node in been:
                        back.append((decision.binding, ordinal, share.node))
                    been.append(share.node)
    return back


@pytest.mark.parametrize("workloads", [1, 3])
def test_the_history_of_a_consolidation_can_be_decided_again(workloads: int) -> None:
    fleet = a_fleet(
        *(node(f"n{i}") for i in range(3)), workloads=[wanted(f"w{i}", 2) for i in range(workloads)]
    )
    fleet.wait(1800)
    assert fleet.of(DisruptionEnded)
    for name, running in fleet.world.streams.items():
        recorded = [r for r in fleet.rounds if r.round.stream == name]
        assert (
            audit(
                running.decider, running.decider.initial(name), empty_head(name), recorded
            ).divergences
            == []
        )


@pytest.mark.parametrize("after", [20, 40, 46, 50, 80, 90, 130, 200])
def test_a_plane_that_begins_again_in_the_middle_does_everything_once(after: int) -> None:
    """The descheduler knows nothing but what stands; the cluster stage what it had saved."""
    fleet = a_fleet(node("n1"), workloads=[wanted("web", 1)]).wait(after)
    fleet.world = fleet.world.fork()
    fleet.wait(1800)
    assert fleet.ended() == [("single-node", "done")]
    assert len(fleet.of(DisruptionDecided)) == len(fleet.of(NodeClaimRequested)) == 1
    assert len(fleet.of(NodeRemovalDecided)) == 1
    assert fleet.placed("web") == 1
    assert lowered(fleet) == 10


def test_without_a_provider_a_command_that_needs_one_is_given_up_ever_more_seldom() -> None:
    fleet = Fleet(World(recorded=True, at=START))
    fleet.given(
        PolicyApplied(Policy("NodePool", POOL.name, node_pool=POOL)),
        PolicyApplied(
            Policy("InstanceTypes", "0", "default", catalogue=Catalogue("default", TYPES))
        ),
        ClusterObserved(Cluster("oslo")),
        NodesObserved("oslo", 0, 1, (node("n1"),)),
        wanted("web", 1),
    )
    fleet.wait(4 * 3600)
    first = len(fleet.ended())
    assert {outcome for _, outcome in fleet.ended()} == {"rolled-back"}
    assert fleet.placed("web") == 1
    fleet.wait(4 * 3600)
    assert 1 <= len(fleet.ended()) - first <= first
    assert fleet.nodes == ["n1"]
    assert fleet.oslo.book.closed <= {"n1"}


# Budgets, strategies, and all of it together.


def at_once(decided: Sequence[Value]) -> int:
    """How many nodes were about to go at most, at any moment."""
    going: dict[str, int] = {}
    most = 0
    for decision in decided:
        if isinstance(decision, DisruptionDecided):
            going[decision.command] = len(decision.nodes)
        elif isinstance(decision, DisruptionEnded):
            del going[decision.command]
        most = max(most, sum(going.values()))
    return most


@pytest.mark.parametrize(("nodes", "allowed"), [("1", 1), ("25%", 2), ("100%", 8)])
def test_no_more_nodes_go_at_once_than_the_budget_of_their_pool_allows(
    nodes: str, allowed: int
) -> None:
    pool = NodePoolPolicy(
        "general",
        30,
        consolidation="WhenEmptyOrUnderutilized",
        budgets=(NodeBudget(nodes),),
        digest="w1",
    )
    fleet = a_fleet(*(node(f"n{i}") for i in range(8)), pool=pool, workloads=[wanted("web", 2)])
    fleet.wait(3600)
    assert at_once(fleet.decided) <= allowed
    assert lowered(fleet) <= 40
    assert fleet.placed("web") == 2


def test_a_strategy_moves_a_replica_off_a_node_that_does_not_want_it_any_more() -> None:
    tidy = DeschedulingPolicy((DeschedulerProfile("p", deschedule=(NodeTaints(),)),), every_s=60)
    fleet = Fleet().given(
        PolicyApplied(Policy("DeschedulerPolicy", "tidy", descheduling=tidy)),
        ClusterObserved(Cluster("oslo")),
        NodesObserved("oslo", 0, 1, (node("n1"), node("n2"))),
        wanted("web", 2),
    )
    fleet.wait(60)
    before = {r.node for r in fleet.oslo.book.held["web"].placed.values()}
    assert before == {"n1", "n2"}
    shut = msgspec.structs.replace(node("n1"), taints=(Taint("rot", "NoSchedule"),))
    fleet.given(NodesObserved("oslo", 0, 1, (shut, node("n2")))).wait(120)
    assert {r.node for r in fleet.oslo.book.held["web"].placed.values()} == {"n2"}
    (released,) = fleet.of(ReplicasReleased)
    assert isinstance(released, ReplicasReleased)
    assert released.reason == "RemovePodsViolatingNodeTaints"
    fleet.wait(24 * 3600)
    assert len(fleet.of(ReplicasReleased)) == 1


SIZES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(30, 900)), min_size=1, max_size=6
)


@settings(max_examples=examples(8), deadline=None)
@given(SIZES, st.sampled_from(["1", "50%", "100%"]))
def test_whatever_was_asked_for_it_comes_to_rest_and_nobody_is_lost(
    steps: list[tuple[int, int, int]], budget: str
) -> None:
    """Workloads grow and shrink at any time. Once nobody asks for anything new: everybody stands,
    commands end, each once, and no replica comes back to a node it was moved from."""
    pool = NodePoolPolicy(
        "general",
        30,
        consolidation="WhenEmptyOrUnderutilized",
        budgets=(NodeBudget(budget),),
        digest="w1",
    )
    fleet = a_fleet(*(node(f"n{i}") for i in range(3)), pool=pool)
    asked: dict[str, int] = {}
    for which, replicas, pause in steps:
        asked[f"w{which}"] = replicas
        fleet.given(wanted(f"w{which}", replicas, 500 + 700 * which)).wait(pause)
    fleet.wait(1800)
    quiet = len(fleet.decided)
    fleet.wait(6 * 3600)
    commands = [d.command for d in fleet.decided if isinstance(d, DisruptionDecided)]
    assert sorted(commands) == sorted(
        d.command for d in fleet.decided if isinstance(d, DisruptionEnded)
    )
    assert {name: fleet.placed(name) for name in asked} == asked
    assert visits_twice(fleet.decided[quiet:]) == []
    settled_at = len(fleet.decided)
    fleet.wait(24 * 3600)
    assert not [d for d in fleet.decided[settled_at:] if isinstance(d, DisruptionDecided)]
