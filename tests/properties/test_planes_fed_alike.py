"""Two fresh planes that are fed alike agree: their placements are the same, although the topics of
one acceptance are read in another order."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.registry import type_of
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.world import World
from wharfinger_cli.generate import FleetPlan, generate

SECOND = 1_000_000


def accepted(plan: FleetPlan) -> list[list[Event[Value]]]:
    """The facts of one acceptance, by topic, in the order of each topic."""
    topics: dict[str, list[Event[Value]]] = {}
    for i, one in enumerate(generate(plan)):
        kind = type_of(one.data)
        event = Event(derived_id("alike", str(i)), kind, "/t", one.subject, one.data, b"", b"")
        topics.setdefault(kind, []).append(event)
    return list(topics.values())


def interleaved(
    topics: Sequence[Sequence[Event[Value]]], chance: random.Random
) -> list[Event[Value]]:
    """The events as a stage may read them: each topic in its order, topics in any order."""
    turns = [i for i, topic in enumerate(topics) for _ in topic]
    chance.shuffle(turns)
    left = [iter(topic) for topic in topics]
    return [next(left[i]) for i in turns]


def placements(events: Sequence[Event[Value]], shards: int) -> dict[str, dict[str, dict[int, str]]]:
    """cluster -> binding -> ordinal -> node, when the plane has come to rest."""
    world = World(
        repeat_after_s=None,
        shards=shards,
        shard_of=lambda binding: sum(binding.encode()) % shards,
        fleet=FleetDecider(patience_s=30),
    )
    world.tell(events, SECOND)
    world.wait(100 * SECOND)
    return {
        state.cluster: {
            binding: {ordinal: replica.node for ordinal, replica in sorted(held.placed.items())}
            for binding, held in sorted(state.book.held.items())
        }
        for state in world.cluster_states()
    }


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_manifests_on_fresh_planes_end_in_the_same_placements(
    shards: int, seed: int
) -> None:
    """Also where more is requested than fits, so that the order of decisions matters."""
    chance = random.Random(seed)
    topics = accepted(FleetPlan(3, 12, chance.choice([30, 90]), seed))
    first = placements(interleaved(topics, chance), shards)
    assert any(first.values())
    for _ in range(2):
        assert placements(interleaved(topics, chance), shards) == first
