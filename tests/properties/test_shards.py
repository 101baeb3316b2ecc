"""Several fleet shards mean the same as one: whatever the number of them, groups of workloads,
quotas, room and spread constraints are kept, and nothing is refused that one shard would have
placed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import GIB, a_node
from tests.hunting import examples
from tests.properties.test_cluster_stage import check_capacity
from tests.properties.test_placement_recovery import HAPPENINGS, a_story
from tests.scenarios.placement_plane import GLOBAL, PlacementPlane, a_managed, a_placement, bound

from wharfinger.domain.binding import Binding, divided_quota, range_key
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement, ReplicaScheduling, SpreadConstraint
from wharfinger.domain.policy import FederatedQuota, Policy
from wharfinger.domain.selection import Priority
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.accepted import Fact, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import into_buckets
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import PlanCommitted, ReplicasRefused
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.policies import PolicyApplied
from wharfinger.history.plan_records import SelectionMove, fact_event, in_turn, request_event
from wharfinger.history.planning import live_on, planned
from wharfinger.kernel.recover import RecordedRound
from wharfinger.runtime.topics import shard_for
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet.state import BindingState
from wharfinger.stages.fleet.state.selections import is_selection
from wharfinger.stages.world import World

SHARDS = (1, 2, 8)
SECOND = 1_000_000

DYNAMIC = ReplicaScheduling("Divided", "Weighted", dynamic=True)
AGGREGATED = ReplicaScheduling("Divided", "Aggregated")
DUPLICATED = ReplicaScheduling("Duplicated")
TWO_REGIONS = (SpreadConstraint("region", min_groups=2, max_groups=2),)
ONE_CLUSTER = (SpreadConstraint("cluster", min_groups=1, max_groups=1),)

NAMESPACES = 12
CLUSTERS = 6


def a_plane(shards: int) -> World:
    return World(
        shards=shards, shard_of=partial(shard_for, shards=shards), repeat_after_s=None, at=SECOND
    )


class Fleet:
    """A fleet from a seed, told to a plane of some number of shards in several bursts."""

    def __init__(self, seed: int, shards: int, nodes: int = 3) -> None:
        self.chance = random.Random(seed)
        self.world = a_plane(shards)
        self.rounds: list[RecordedRound] = []
        self.told = 0
        self.quotas: dict[str, int] = {}
        facts: list[Value] = []
        for c in range(CLUSTERS):
            name = f"c{c}"
            facts.append(ClusterObserved(Cluster(name, region=f"r{c % 3}")))
            each = [a_node(f"{name}-n{i}", cpu=8000, memory=64 * GIB) for i in range(nodes)]
            facts += into_buckets(name, each, 2)
        for n in range(0, NAMESPACES, 3):
            self.quotas[f"team-{n}"] = self.chance.randrange(4, 12) * 1000
            quota = FederatedQuota({"cpu": self.quotas[f"team-{n}"]})
            facts.append(
                PolicyApplied(Policy("FederatedResourceQuota", "q", f"team-{n}", quota=quota))
            )
        self.tell(facts)

    def tell(self, facts: list[Value]) -> None:
        events: list[Event[Value]] = []
        for fact in facts:
            self.told += 1
            id = derived_id("shards", self.told)
            events.append(made(fact, id=id, source="/test", subject="test"))
        self.rounds += self.world.tell(events, self.world.at + SECOND)

    def bursts(self, bursts: int, bindings: int, replicas_max: int) -> None:
        for burst in range(bursts):
            self.tell(
                [
                    BindingRequested(self.a_binding(f"w{burst}-{i}", replicas_max))
                    for i in range(bindings)
                ]
            )
        self.rounds += self.world.wait(self.world.at + 60 * SECOND)

    def a_binding(self, name: str, replicas_max: int) -> Binding:
        chance = self.chance
        namespace = f"team-{chance.randrange(NAMESPACES)}"
        kind = chance.choice(["plain", "plain", "spread", "with", "against"])
        placement, replicas = Placement(replicas=chance.choice([DYNAMIC, AGGREGATED])), 1
        replicas = chance.randint(1, replicas_max)
        group = f"g{chance.randrange(2)}"
        if kind == "spread":
            placement = Placement(spread=TWO_REGIONS, replicas=DYNAMIC)
            replicas = max(2, replicas)
        if kind in ("with", "against"):
            placement, replicas = Placement(spread=ONE_CLUSTER, replicas=AGGREGATED), 1
        return Binding(
            f"{namespace}/{name}",
            f"uid-{namespace}-{name}",
            ObjectRef("apps/v1", "Deployment", name, namespace),
            replicas,
            Requirements({"cpu": 1000}),
            placement,
            affinity_group=group if kind == "with" else "",
            anti_affinity_group=group if kind == "against" else "",
        )

    # what came of it

    def records(self) -> Iterator[BindingState]:
        for state in self.world.fleet_states():
            yield from state.bindings.values()

    def refused_by_clusters(self) -> list[ReplicasRefused]:
        return [
            d.data
            for recorded in self.rounds
            for d in recorded.round.decisions
            if isinstance(d.data, ReplicasRefused)
        ]

    def placed(self) -> int:
        return sum(sum(record.targets.values()) for record in self.records())

    def used(self, namespace: str) -> int:
        return sum(
            sum(record.targets.values()) * record.spec.requirements.requests["cpu"]
            for record in self.records()
            if record.spec.resource.namespace == namespace
        )

    def check(self) -> None:
        self.check_groups()
        self.check_quotas()
        self.check_room()
        self.check_spread()

    def check_groups(self) -> None:
        against: dict[tuple[str, str], list[str]] = {}
        together: dict[tuple[str, str], set[str]] = {}
        for record in self.records():
            spec, there = record.spec, sorted(record.targets)
            if spec.anti_affinity_group and there:
                key = spec.resource.namespace, spec.anti_affinity_group
                met = against.setdefault(key, [])
                assert not set(met) & set(there), f"{spec.name} meets its group in {there}"
                met += there
            if spec.affinity_group and there:
                key = spec.resource.namespace, spec.affinity_group
                where = together.setdefault(key, set(there))
                where &= set(there)
                assert where, f"{spec.name} is not with its group"

    def check_quotas(self) -> None:
        for namespace, most in self.quotas.items():
            assert self.used(namespace) <= most
        for record in self.records():
            if record.refused == "QuotaExceeded":
                namespace = record.spec.resource.namespace
                wanted = record.spec.replicas * 1000 - sum(record.targets.values()) * 1000
                left = self.quotas[namespace] - self.used(namespace)
                assert wanted > left, f"{record.spec.name} waits for {wanted}, {left} is left"

    def check_room(self) -> None:
        in_clusters: dict[str, int] = {}
        for state in self.world.cluster_states():
            check_capacity(state)
            for name, one in state.book.held.items():
                in_clusters[name] = in_clusters.get(name, 0) + len(one.placed)
        held = {r.spec.name: sum(r.targets.values()) for r in self.records()}
        assert {name: n for name, n in held.items() if n} == in_clusters

    def check_spread(self) -> None:
        for record in self.records():
            if record.targets and not record.refused and record.spec.placement.spread:
                regions = {int(cluster[1:]) % 3 for cluster in record.targets}
                if record.spec.placement.spread == TWO_REGIONS:
                    assert len(regions) == 2, f"{record.spec.name} is in {record.targets}"
                else:
                    assert len(record.targets) == 1


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("seed", range(6))
def test_any_number_of_shards_keeps_groups_quotas_room_and_spread(seed: int, shards: int) -> None:
    """With too little room for all: some wait, and what is placed keeps every constraint."""
    fleet = Fleet(seed, shards)
    fleet.bursts(bursts=4, bindings=30, replicas_max=3)
    fleet.check()
    assert any(record.refused for record in fleet.records())


@pytest.mark.parametrize("seed", range(4))
def test_shards_promise_no_room_that_another_has_promised(seed: int) -> None:
    """All replicas are of one size, so a cluster refuses only what was promised twice."""
    for shards in SHARDS:
        fleet = Fleet(seed, shards)
        fleet.bursts(bursts=4, bindings=30, replicas_max=3)
        assert fleet.refused_by_clusters() == [], f"{shards} shards"


@pytest.mark.parametrize("seed", range(3))
def test_with_room_for_all_any_number_of_shards_places_as_much(seed: int) -> None:
    placed: dict[int, int] = {}
    for shards in SHARDS:
        fleet = Fleet(seed, shards, nodes=30)
        fleet.bursts(bursts=4, bindings=30, replicas_max=3)
        fleet.check()
        placed[shards] = fleet.placed()
    assert len(set(placed.values())) == 1, placed


def test_a_workload_may_use_all_of_a_quota_whatever_the_number_of_shards() -> None:
    for shards in SHARDS:
        fleet = Fleet(0, shards, nodes=30)
        namespace, cpu = next(iter(fleet.quotas.items()))
        ref = ObjectRef("apps/v1", "Deployment", "all", namespace)
        placement = Placement(replicas=DYNAMIC)
        everything = Binding(
            f"{namespace}/all", "u", ref, cpu // 1000, Requirements({"cpu": 1000}), placement
        )
        fleet.tell([BindingRequested(everything)])
        assert fleet.used(namespace) == cpu


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_plan_over_all_shards_is_committed_by_each_as_it_was_shown(
    seed: int, shards: int
) -> None:
    """What one shard's part takes, the next one's has not: with little room left, parts that did
    not know of each other would not come out as shown."""
    fleet = Fleet(seed, shards, nodes=5)
    fleet.bursts(bursts=2, bindings=30, replicas_max=3)
    grown = [
        msgspec.structs.replace(record.spec, replicas=record.spec.replicas + 2)
        for record in sorted(fleet.records(), key=lambda record: record.spec.name)
        if record.spec.replicas > 1 and not record.spec.placement.spread
    ][:12]
    facts = [accepted(BindingRequested(spec)) for spec in grown]
    world, id = fleet.world, UUID(int=seed + 1)
    plan = planned(world, facts, (), id, world.at)
    streams = {world.state_of_shard(spec.name).stream for spec in grown}
    assert {part.stream for part in plan.parts} == streams
    assert len(streams) > 1 or shards == 1
    committed = [
        decision.stream
        for asked in in_turn(plan.parts)
        for recorded in world.tell(map(request_event, asked))
        for decision in recorded.round.decisions
        if isinstance(decision.data, PlanCommitted)
    ]
    assert sorted(committed) == sorted(streams)
    world.wait(world.at + plan.within_us)
    targets = {record.spec.name: record.targets for record in fleet.records()}
    for move in plan.moves:
        assert targets[move.binding] == move.after


def test_placements_of_clusters_are_the_same_for_any_number_of_shards() -> None:
    selected: dict[int, list[list[str]]] = {}
    for shards in SHARDS:
        plane = PlacementPlane(World(shards=shards, recorded=True, repeat_after_s=None, at=0))
        plane.tell(GLOBAL, bound("apps"), *[a_managed(f"c{i}", 100 - i) for i in range(6)])
        names = ["a", "b", "c"]
        for name in names:
            plane.tell(
                a_placement(name, wanted=2, priorities=(Priority(builtin="Balance"),), mode="Exact")
            )
        plane.tell(ClusterForgotten("c0"))
        selected[shards] = [plane.selected(f"apps/{name}") for name in names]
        assert all(len(clusters) == 2 for clusters in selected[shards])
    assert selected[1] == selected[2] == selected[8]


def bindings_requested(random: random.Random, plane: PlacementPlane) -> list[Value]:
    """More than a bounded round decides, in any namespaces."""
    names = [f"team-{random.randrange(NAMESPACES)}/w{random.randrange(9)}" for _ in range(8)]
    return [BindingRequested(a_workload(name)) for name in names]


def a_workload(name: str) -> Binding:
    namespace, _, own = name.partition("/")
    ref = ObjectRef("apps/v1", "Deployment", own, namespace)
    return Binding(name, f"uid-{name}", ref, 1, placement=Placement(replicas=DUPLICATED))


def balanced(random: random.Random, plane: PlacementPlane) -> list[Value]:
    """A placement that goes by what all others select, in any namespace."""
    namespace, name = random.choice(("apps", "dock")), random.choice("abcdef")
    priorities = (Priority(builtin="Balance"), Priority(builtin="Steady"))
    wanted = random.randrange(1, 4)
    return [a_placement(name, namespace, wanted=wanted, priorities=priorities)]


def a_shared_plane(shards: int, work: int) -> PlacementPlane:
    return PlacementPlane(
        World(
            shards=shards,
            shard_of=partial(shard_for, shards=shards),
            fleet=FleetDecider(work=work, ranges=shards),
            recorded=True,
            repeat_after_s=None,
            at=SECOND,
        )
    )


@settings(max_examples=examples(4), deadline=None)
@given(number=st.integers(0, 10**6))
def test_placements_are_decided_alike_whatever_the_number_of_shards_and_the_bound(
    number: int,
) -> None:
    """Balance counts what all placements select, those of other namespaces too. And a shard that is
    busy with bindings decides the placements that its inputs affect all the same."""
    kinds = (*HAPPENINGS, *[balanced] * 6, *[bindings_requested] * 6)
    decided = {
        (shards, work): [
            (recorded.round.at, d.subject, d.body)
            for recorded in a_story(number, 30, a_shared_plane(shards, work), kinds).rounds
            for d in recorded.round.decisions
            if is_selection(d.subject)
        ]
        for shards, work in ((1, 0), (1, 300), (2, 0), (8, 300))
    }
    first = decided[1, 0]
    assert first
    assert all(found == first for found in decided.values())


def sets_of(world: World) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Placement -> the clusters of each of its groups."""
    selections = next(world.fleet_states()).selections
    assert selections is not None
    return {
        key: tuple([tuple(group.scores) for group in record.groups if group.scores])
        for key, record in selections.active.items()
    }


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(examples(2)))
def test_a_plan_shows_what_placements_then_select_whatever_the_number_of_shards(seed: int) -> None:
    shown: dict[int, tuple[SelectionMove, ...]] = {}
    kinds = (*HAPPENINGS, *[balanced] * 6, *[bindings_requested] * 2)
    for shards in SHARDS:
        plane = a_story(seed, 20, a_shared_plane(shards, 0), kinds)
        world, chance, id = plane.world, random.Random(f"plan {seed}"), UUID(int=seed + 1)
        changes = [fact for _ in range(4) for fact in chance.choice(HAPPENINGS)(chance, plane)]
        facts = [accepted(fact) for fact in changes if isinstance(fact, Fact)]
        anyway = world.fork()
        plan = planned(world, facts, (), id, world.at)
        for asked in in_turn(plan.parts):
            world.tell(map(request_event, asked))
        world.tell([fact_event(id, fact.accepted) for fact in plan.facts])
        end = world.at + plan.horizon_us
        for each in (anyway, world):
            live_on(each, end)
        before, after = sets_of(anyway), sets_of(world)
        moves = {m.placement: m for m in plan.selections if m.before != m.after}
        for key in {*before, *after}:
            was, became = before.get(key, ()), after.get(key, ())
            assert (key in moves) == (was != became), f"{shards} shards: {key}"
            if key in moves:
                assert (moves[key].before, moves[key].after) == (was, became)
        shown[shards] = plan.selections
    assert shown[1] == shown[2] == shown[8]


def test_a_key_is_the_namespace_and_never_empty() -> None:
    assert range_key("lab/web-deployment") == range_key("lab/db#tm") == "lab/"
    assert range_key("node-lamp") == "/"
    assert range_key("lab") != range_key("lab/web")


def test_a_binding_whose_quotas_another_shard_keeps_is_told_by_name() -> None:
    """Its shard follows from its name, the quotas that it falls under from its resource."""

    def bound(name: str, namespace: str) -> Binding:
        return Binding(name, "uid", ObjectRef("apps/v1", "Deployment", "web", namespace))

    assert divided_quota(bound("lab/web", "lab")) == ""
    assert divided_quota(bound("web", "")) == divided_quota(bound("lab/web", "")) == ""
    assert "lab/web: its resource is in namespace yard" in divided_quota(bound("lab/web", "yard"))
    assert "such as yard/web" in divided_quota(bound("web", "yard"))


def test_the_profile_names_the_number_of_ranges_and_that_of_old_shards() -> None:
    for decider in (FleetDecider(), FleetDecider(ranges=8, work=70), FleetDecider(9, shards=3)):
        assert FleetDecider.of_profile(decider.profile).profile == decider.profile
    assert FleetDecider(ranges=8).profile == "fleet round-limit=500 ranges=8"
