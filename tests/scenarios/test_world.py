"""A world made of the stages alone behaves as the plane does, and one begun in the middle goes on
as one that was there."""

from __future__ import annotations

import gc
from collections.abc import Iterable

from wharfinger.domain.value import Value, digest
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.step import empty_head
from wharfinger.stages.world import World
from wharfinger_cli.generate import FleetPlan, generate

START = 1_700_000_000_000_000
SECOND = 1_000_000


def story(bindings: int = 60, seed: int = 4) -> list[Event[Value]]:
    plan = FleetPlan(clusters=5, nodes=60, bindings=bindings, seed=seed, lease_s=30)
    return [told(fact.data, fact.subject) for fact in generate(plan)]


def told(data: Value, subject: str, turn: int = 0) -> Event[Value]:
    return made(
        data, id=derived_id("told", digest(data, 64), turn), source="/test", subject=subject
    )


def begun() -> tuple[World, list[RecordedRound]]:
    world = World(recorded=True, at=START)
    return world, world.tell(story(), START)


def by_stream(rounds: Iterable[RecordedRound]) -> dict[str, list[RecordedRound]]:
    found: dict[str, list[RecordedRound]] = {}
    for recorded in rounds:
        found.setdefault(recorded.round.stream, []).append(recorded)
    return found


def test_what_is_wanted_is_placed_on_nodes() -> None:
    world, _ = begun()
    on_nodes: dict[str, int] = {}
    for cluster in world.cluster_states():
        for name, held in cluster.book.held.items():
            on_nodes[name] = on_nodes.get(name, 0) + len(held.placed)
    (fleet,) = world.fleet_states()
    placed = {name: r for name, r in fleet.bindings.items() if not r.refused and r.counted}
    assert len(placed) > 40
    assert all(on_nodes[name] == sum(record.targets.values()) for name, record in placed.items())


def test_states_that_are_dropped_are_freed_without_the_collector() -> None:
    """It looks at old states seldom (`runtime.interpreter.Cleanup`)."""
    world, _ = begun()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        del world
        gc.collect()
        left = {type(one) for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert {one.__name__ for one in left if one.__module__.startswith("wharfinger.")} == set()


def test_every_stream_of_a_world_can_be_replayed() -> None:
    world, rounds = begun()
    rounds += world.wait(START + 120 * SECOND)
    streams = by_stream(rounds)
    assert len(streams) == 6
    for name, recorded in streams.items():
        decider = world.streams[name].decider
        assert audit(decider, decider.initial(name), empty_head(name), recorded).divergences == []


def test_the_same_story_gives_the_same_bytes() -> None:
    assert [r.round.hash for r in begun()[1]] == [r.round.hash for r in begun()[1]]


def test_silence_moves_replicas_elsewhere_once_its_time_has_come() -> None:
    world, _ = begun()
    (fleet,) = world.fleet_states()
    lost = max(fleet.by_cluster, key=lambda name: len(fleet.by_cluster[name]))
    beats = [c.facts for c in fleet.order if c.facts is not None and c.name != lost]
    outcomes: list[str] = []
    for turn in range(1, 5):
        heard = [told(ClusterObserved(facts), facts.name, turn) for facts in beats]
        for recorded in world.tell(heard, START + turn * 20 * SECOND):
            outcomes += [d.type for d in recorded.round.decisions]
    assert any("cluster.silenced" in outcome for outcome in outcomes)
    assert any(lost in record.suspect for record in fleet.bindings.values())


def test_a_world_begun_in_the_middle_has_nothing_to_say_and_goes_on_alike() -> None:
    there, rounds = begun()
    later = World(recorded=True, at=START)
    for name, recorded in by_stream(rounds).items():
        running = there.streams[name]
        state = recover(running.decider, running.decider.initial(name), recorded)
        later.adopt(name, running.decider, state, recorded[-1].round.head())
    assert later.settle_in() == []

    new = [e for e in story(bindings=90, seed=4) if isinstance(e.data, BindingRequested)][60:]
    assert len(new) == 30
    for world in (there, later):
        world.tell(new, START + SECOND)
    (one,), (other,) = there.fleet_states(), later.fleet_states()
    assert {n: r.targets for n, r in one.bindings.items()} == {
        n: r.targets for n, r in other.bindings.items()
    }


def test_what_was_on_its_way_between_streams_arrives() -> None:
    world, rounds = begun()
    streams = by_stream(rounds)
    later = World(at=START)
    fleet = streams.pop("fleet/0")
    decider = world.streams["fleet/0"].decider
    later.adopt(
        "fleet/0",
        decider,
        recover(decider, decider.initial("fleet/0"), fleet),
        fleet[-1].round.head(),
    )
    for name, recorded in streams.items():
        # of what the fleet assigned, the clusters have only seen the first round
        own = world.streams[name].decider
        later.adopt(
            name, own, recover(own, own.initial(name), recorded[:1]), recorded[0].round.head()
        )
    later.settle_in()
    assert {
        s.cluster: sum(len(h.placed) for h in s.book.held.values()) for s in later.cluster_states()
    } == {
        s.cluster: sum(len(h.placed) for h in s.book.held.values()) for s in world.cluster_states()
    }
