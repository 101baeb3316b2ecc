"""Sets of components through all stages: decided as one, placed pod by pod, and taken back whole
when a part does not fit."""

from __future__ import annotations

from tests.scenarios.test_world import START, by_stream, story, told

from wharfinger.domain.binding import Binding, Component
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.kernel.audit import audit
from wharfinger.kernel.step import empty_head
from wharfinger.stages.world import World

SECOND = 1_000_000
GIB = 1 << 30
AGGREGATED = Placement(replicas=ReplicaScheduling("Divided", "Aggregated"))


def flink(name: str, workers: int, cpu_milli: int = 500) -> BindingRequested:
    components = (
        Component("jobmanager", 1, Requirements({"cpu": 500, "memory": GIB})),
        Component("taskmanager", workers, Requirements({"cpu": cpu_milli})),
    )
    resource = ObjectRef("apps/v1", "Deployment", name, "shop")  # a kind that the clusters have
    return BindingRequested(
        Binding(
            f"shop/{name}", f"uid-of-{name}", resource, placement=AGGREGATED, components=components
        )
    )


def on_nodes(world: World) -> dict[tuple[str, str], int]:
    """(cluster, binding) -> replicas that lie on its nodes."""
    return {
        (cluster.stream.removeprefix("cluster/"), name): len(held.placed)
        for cluster in world.cluster_states()
        for name, held in cluster.book.held.items()
        if held.placed
    }


def a_world() -> World:
    world = World(recorded=True, at=START)
    world.tell(story(bindings=0), START)
    return world


def test_every_pod_of_a_set_lies_on_nodes_of_one_cluster_until_it_is_withdrawn() -> None:
    world = a_world()
    rounds = world.tell([told(flink("etl", 4), "shop/etl")], START + SECOND)
    ((cluster, _), *_) = on_nodes(world)
    assert on_nodes(world) == {
        (cluster, "shop/etl#jobmanager"): 1,
        (cluster, "shop/etl#taskmanager"): 4,
    }
    (fleet,) = world.fleet_states()
    assert fleet.bindings["shop/etl"].targets == {cluster: 0}
    rounds += world.tell([told(flink("etl", 6), "shop/etl")], START + 2 * SECOND)
    assert on_nodes(world)[(cluster, "shop/etl#taskmanager")] == 6
    world.tell([told(BindingWithdrawn("shop/etl"), "shop/etl")], START + 3 * SECOND)
    assert on_nodes(world) == {}


def test_a_set_of_which_a_part_fits_nowhere_leaves_nothing_behind() -> None:
    world = a_world()
    (fleet,) = world.fleet_states()
    # By what is free all told it fits, and on no single node: the clusters find that out.
    rounds = world.tell([told(flink("huge", 1, cpu_milli=90_000), "shop/huge")], START + SECOND)
    rounds += world.wait(START + 15 * SECOND)
    assert "ReplicasRefused" in {type(d.data).__name__ for r in rounds for d in r.round.decisions}
    assert on_nodes(world) == {}
    assert fleet.bindings["shop/huge"].refused == "Unschedulable"
    assert fleet.bindings["shop/huge"].targets == {}


def test_what_was_decided_about_sets_is_decided_again() -> None:
    world = World(recorded=True, at=START)
    rounds = world.tell(story(bindings=10), START)
    for turn in range(1, 6):
        rounds += world.tell(
            [told(flink(f"job-{turn % 3}", turn * 3), f"shop/job-{turn % 3}")],
            START + turn * SECOND,
        )
    for name, recorded in by_stream(rounds).items():
        decider = world.streams[name].decider
        assert audit(decider, decider.initial(name), empty_head(name), recorded).divergences == []
