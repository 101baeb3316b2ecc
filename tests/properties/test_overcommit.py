"""Nothing is given away twice: what was decided is deducted exactly once, however far the counts
are behind, and however many bindings want what is scarce."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, STREAM, a_node, event
from tests.hunting import examples
from tests.properties.test_cluster_stage import check_capacity

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.quota import Quota
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.engine.fleet.estimate import demand_of
from wharfinger.events.assignments import Assigned, AssignmentItem, AssignmentsDecided, Placed
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import QuotasObserved, into_buckets
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import NodeShare, ReplicasRefused, ScheduleDecided, ScheduleRefused
from wharfinger.events.envelope import Event, derived_id
from wharfinger.kernel.recover import RecordedRound
from wharfinger.stages.estimator import EstimatorObserver
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.fleet.state.clusters import ClusterState, Pending
from wharfinger.stages.world import World

OBSERVER = EstimatorObserver()
DYNAMIC = ReplicaScheduling("Divided", "Weighted", dynamic=True)

CPU, QUOTA = 100, 60
SHOP, BANK = Claim("shop"), Claim("bank")
SIZES = {
    "shop/web": Requirements({"cpu": 3}),
    "bank/web": Requirements({"cpu": 3}),
    "shop/db": Requirements({"cpu": 7}),
}


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(SIZES)), st.integers(1, 4)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_a_decision_is_deducted_once_wherever_its_news_has_come_to(
    wanted: list[tuple[str, int]], chance: random.Random
) -> None:
    """A fleet stream that decides, its assignments and the counts on their way, and a cluster that
    places: at every moment the stream sees exactly what is left, and of the quota as well."""
    estimator = OBSERVER.initial()
    fleet = ClusterState(CLUSTER)
    assignments: list[AssignmentItem] = []
    placements: list[AssignmentItem] = []
    counts: list[CapacityEstimated] = []
    held: dict[str, int] = {}

    def told(*data: Value) -> None:
        for one in data:
            OBSERVER.fold(estimator, event(one, "told"), 1)

    def counted() -> None:
        counts.extend(
            p.data for p in OBSERVER.publish(estimator, 1) if isinstance(p.data, CapacityEstimated)
        )

    def heard() -> None:
        if counts:
            fleet.count(counts.pop(0), "fleet/0")

    def delivered() -> None:
        if assignments:
            item = assignments.pop(0)
            assert isinstance(item, Assigned)
            told(AssignmentsDecided(CLUSTER, "fleet/0", item.seq, (item,)))
            placements.append(placed(item))

    def settled() -> None:
        if placements:
            item = placements.pop(0)
            told(AssignmentsDecided(CLUSTER, STREAM, item.seq, (item,)))

    def placed(item: Assigned) -> Placed:
        return Placed(
            item.seq,
            f"p{item.seq}",
            item.binding,
            (NodeShare("n", tuple(range(item.replicas))),),
            item.requirements,
        )

    for name, requirements in SIZES.items():
        told(
            BindingRequested(
                Binding(name, name, ObjectRef("apps/v1", "Deployment", name), 1, requirements)
            )
        )
    told(*into_buckets(CLUSTER, [Node("n", {"cpu": CPU})], 1))
    told(QuotasObserved(CLUSTER, "shop", (Quota("shop", "q", {"cpu": QUOTA}),)))
    counted()
    heard()
    for seq, (name, more) in enumerate(wanted, 1):
        for _ in range(chance.randrange(5)):
            chance.choice([counted, heard, delivered, settled])()
        requirements = SIZES[name]
        demand, claim = demand_of(requirements), SHOP if name.startswith("shop/") else BANK
        fits = fleet.estimate(requirements.class_key, demand, claim)
        used = sum(n * SIZES[b].requests["cpu"] for b, n in held.items())
        of_shop = sum(
            n * SIZES[b].requests["cpu"] for b, n in held.items() if b.startswith("shop/")
        )
        left = CPU - used if claim == BANK else min(CPU - used, QUOTA - of_shop)
        assert fits == left // requirements.requests["cpu"]
        more = min(more, fits)
        if more:
            held[name] = held.get(name, 0) + more
            fleet.take(Pending(seq, requirements.class_key, more, requirements, demand, claim))
            assignments.append(Assigned(seq, f"d{seq}", name, "u", held[name], requirements))


# --- many bindings, little room


def a_binding(number: int, chance: random.Random, namespaces: int) -> BindingRequested:
    namespace, name = f"team-{number % namespaces}", f"w{number}"
    requirements = Requirements(
        {"cpu": chance.choice([500, 700, 1000]), "memory": chance.choice([1, 2]) * 2**30}
    )
    ref = ObjectRef("apps/v1", "Deployment", name, namespace)
    placement = Placement(
        replicas=chance.choice([DYNAMIC, ReplicaScheduling("Divided", "Aggregated")])
    )
    return BindingRequested(
        Binding(
            f"{namespace}/{name}",
            name,
            ref,
            chance.randint(1, 4),
            requirements,
            placement,
            chance.randint(0, 3),
        )
    )


def scarce(
    bindings: int, clusters: int, shards: int, seed: int
) -> tuple[World, list[Value], dict[tuple[str, str], int]]:
    """A fleet with room for a good half of what is wanted, and quotas that bind in two namespaces
    of five."""
    chance = random.Random(seed)
    wanted = [a_binding(i, chance, 5) for i in range(bindings)]
    cpu = sum(b.binding.replicas * b.binding.requirements.requests["cpu"] for b in wanted) * 6 // 10
    nodes = max(1, cpu // clusters // 8000)
    facts: list[Value] = []
    quotas: dict[tuple[str, str], int] = {}
    for c in range(clusters):
        name = f"c{c:02}"
        facts.append(ClusterObserved(Cluster(name)))
        facts += into_buckets(
            name, [a_node(f"{name}-n{i}", cpu=8000, memory=64 * 2**30) for i in range(nodes)], 4
        )
        for team in ("team-0", "team-3"):
            quotas[name, team] = nodes * 8000 // 8
            facts.append(
                QuotasObserved(
                    name, team, (Quota(team, "q", {"requests.cpu": quotas[name, team]}),)
                )
            )
    world = World(
        shards=shards, shard_of=lambda name: sum(name.encode()) % shards, repeat_after_s=None
    )
    world.tell([as_event(fact, i) for i, fact in enumerate(facts)], 1_000_000)
    return world, list(wanted), quotas


def as_event(data: Value, *identity: int) -> Event[Value]:
    return made(
        data,
        id=derived_id("scarce", type(data).__name__, *identity),
        source="/test",
        subject="test",
    )


class Promised:
    """What the fleet has promised of each cluster, and of each quota, in thousandths of a core."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, int]] = {}
        self.spent: dict[tuple[str, str], int] = {}
        self.each: dict[str, int] = {}

    def hold(self, binding: str, cluster: str, replicas: int) -> None:
        held = self.held.setdefault(binding, {})
        more = (replicas - held.get(cluster, 0)) * self.each[binding]
        held[cluster] = replicas
        for team in ("", binding.partition("/")[0]):
            self.spent[cluster, team] = self.spent.get((cluster, team), 0) + more


def over_commits(
    world: World, rounds: list[RecordedRound], quotas: dict[tuple[str, str], int]
) -> list[ScheduleDecided]:
    """Decisions of a fleet stream after which a cluster, or a quota, had been promised more than
    there is."""
    most = dict(quotas)
    for state in world.cluster_states():
        most[state.cluster, ""] = sum(node.allocatable["cpu"] for node in state.book.nodes.values())
    promised = Promised()
    found: list[ScheduleDecided] = []
    for recorded in rounds:
        for decision in recorded.round.decisions:
            data = decision.data
            if isinstance(data, ReplicasRefused):
                left = promised.held[data.binding][data.cluster] - data.count
                promised.hold(data.binding, data.cluster, left)
            elif isinstance(data, ScheduleDecided | ScheduleRefused):
                promised.each[data.binding] = data.requirements.requests["cpu"]
                targets = {t.cluster: t.replicas for t in data.targets}
                for cluster in {**promised.held.get(data.binding, {}), **targets}:
                    promised.hold(data.binding, cluster, targets.get(cluster, 0))
                team = data.binding.partition("/")[0]
                if isinstance(data, ScheduleDecided) and any(
                    promised.spent[key] > most.get(key, promised.spent[key])
                    for c in targets
                    for key in ((c, ""), (c, team))
                ):
                    found.append(data)
    return found


def check_scarce(bindings: int, clusters: int, seed: int) -> None:
    world, wanted, quotas = scarce(bindings, clusters, 1, seed)
    rounds = world.tell([as_event(one, i) for i, one in enumerate(wanted)], 2_000_000)
    rounds += world.wait(world.at + 120 * 1_000_000)
    assert over_commits(world, rounds, quotas) == []
    (fleet,) = world.fleet_states()
    held = {name: sum(record.targets.values()) for name, record in fleet.bindings.items()}
    placed: dict[str, int] = {}
    for state in world.cluster_states():
        check_capacity(state)
        for name, one in state.book.held.items():
            placed[name] = placed.get(name, 0) + len(one.placed)
    assert {name: n for name, n in held.items() if n} == placed
    assert any(record.refused for record in fleet.bindings.values())  # it was scarce
    for (cluster, team), most in quotas.items():
        used = sum(
            record.targets.get(cluster, 0) * record.spec.requirements.requests["cpu"]
            for record in fleet.bindings.values()
            if record.spec.resource.namespace == team
        )
        assert used <= most
        assert used > most * 8 // 10  # and the quotas bound it


@pytest.mark.parametrize("seed", [1, 2])
def test_scarce_room_and_quotas_are_never_promised_twice(seed: int) -> None:
    check_scarce(400, 4, seed)


@pytest.mark.long
def test_scarce_room_is_never_promised_twice_to_ten_thousand() -> None:
    check_scarce(10_000, 20, 7)


@pytest.mark.parametrize("seed", [3])
def test_shards_that_decide_at_once_never_fill_a_cluster_beyond_what_it_holds(seed: int) -> None:
    """What two shards promise at the same moment the cluster refuses to one of them, which then
    waits or goes elsewhere."""
    world, wanted, _ = scarce(400, 4, 3, seed)
    world.tell([as_event(one, i) for i, one in enumerate(wanted)], 2_000_000)
    world.wait(world.at + 120 * 1_000_000)
    placed: dict[str, int] = {}
    for state in world.cluster_states():
        check_capacity(state)
        for name, one in state.book.held.items():
            placed[name] = placed.get(name, 0) + len(one.placed)
    held = {
        name: sum(r.targets.values())
        for fleet in world.fleet_states()
        for name, r in fleet.bindings.items()
    }
    assert {name: n for name, n in held.items() if n} == placed
