"""Placements in a stream that is taken up anywhere go on as they would have, and time passes for
them alike."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.patience import PATIENCE_S
from tests.scenarios.placement_plane import (
    GLOBAL,
    IDLE,
    MEMORY,
    SECOND,
    STEADY,
    PlacementPlane,
    a_managed,
    a_placement,
    a_score,
    bound,
    no_placement,
)

from wharfinger.domain.cluster import ManagedTaint
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import (
    ClusterSet,
    ClusterToleration,
    Condition,
    DecisionGroup,
    Predicate,
    Priority,
    Selector,
)
from wharfinger.domain.value import Value
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.kernel.audit import audit
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet.state import FleetState

STREAM = "fleet/0"
SET_LABEL = "cluster.open-cluster-management.io/clusterset"
TOWNS = ("bergen", "genoa", "halifax", "izmir", "oslo")
NAMESPACES = ("apps", "dock")
PLACEMENTS = ("a", "b", "c")
CUTS = 3

Happening = Callable[[Random, PlacementPlane], list[Value]]


def cluster_told(random: Random, plane: PlacementPlane) -> list[Value]:
    effect = random.choice(("NoSelect", "NoSelectIfNew", "PreferNoSelect"))
    taints = (
        () if random.random() < 0.6 else (ManagedTaint("gone", effect, added_us=plane.world.at),)
    )
    labels = {"tier": random.choice(("gold", "tin")), SET_LABEL: random.choice(("red", "blue"))}
    gi = random.choice((8, 16, 16, 32, 64))
    return [
        a_managed(random.choice(TOWNS), gi, *taints, deleting=random.random() < 0.1, labels=labels)
    ]


def cluster_lost(random: Random, plane: PlacementPlane) -> list[Value]:
    return [ClusterForgotten(random.choice(TOWNS))]


def score_told(random: Random, plane: PlacementPlane) -> list[Value]:
    until = None if random.random() < 0.4 else plane.world.at + random.randrange(60) * SECOND
    return [a_score(random.choice(TOWNS), random.randrange(-100, 101), until)]


def score_removed(random: Random, plane: PlacementPlane) -> list[Value]:
    return [PolicyRemoved("AddOnPlacementScore", "load", random.choice(TOWNS))]


def set_changed(random: Random, plane: PlacementPlane) -> list[Value]:
    exclusive = PolicyApplied(Policy("ManagedClusterSet", "red", cluster_set=ClusterSet()))
    golden = ClusterSet("LabelSelector", Selector({"tier": "gold"}))
    wrong = ClusterSet("LabelSelector", Selector(conditions=(Condition("tier", "Near"),)))
    said = random.choice((ClusterSet(), golden, golden, wrong))
    blue = PolicyApplied(Policy("ManagedClusterSet", "blue", cluster_set=said))
    return [random.choice((exclusive, blue, PolicyRemoved("ManagedClusterSet", "red"), GLOBAL))]


def binding_changed(random: Random, plane: PlacementPlane) -> list[Value]:
    namespace, name = random.choice(NAMESPACES), random.choice(("red", "blue", "global"))
    gone = PolicyRemoved("ManagedClusterSetBinding", name, namespace)
    return [gone if random.random() < 0.3 else bound(namespace, name)]


def placement_told(random: Random, plane: PlacementPlane) -> list[Value]:
    choice = random.choice
    said: dict[str, Any] = {
        "wanted": choice((None, 0, 1, 2, 2, 3, -1)),
        "priorities": choice(
            ((), (MEMORY,), (IDLE,), (STEADY, IDLE), (Priority(builtin="Nonsense"),))
        ),
        "mode": choice(("Additive", "Exact")),
        "tolerations": choice(
            ((), (ClusterToleration("gone", "Exists", seconds=choice((5, 40))),))
        ),
        "predicates": choice(
            (
                (),
                (),
                (Predicate(Selector({"tier": "gold"})),),
                (Predicate(Selector({"tier": "!"})),),
            )
        ),
        "per_group": choice(("100%", "50%", 1, "five")),
        "groups": choice(((), (DecisionGroup("golden", Selector({"tier": "gold"})),))),
        "window_s": choice((0, 0, 10, 30)),
        "hysteresis": choice((0, 20)),
        "strict": choice((False, False, True)),
        "disabled": random.random() < 0.1,
        "expired_scores": choice(("zero", "unknown")),
    }
    return [a_placement(choice(PLACEMENTS), choice(NAMESPACES), **said)]


def placement_removed(random: Random, plane: PlacementPlane) -> list[Value]:
    return [no_placement(random.choice(PLACEMENTS), random.choice(NAMESPACES))]


HAPPENINGS: tuple[Happening, ...] = (
    cluster_told,
    cluster_told,
    cluster_told,
    cluster_lost,
    score_told,
    score_told,
    score_removed,
    set_changed,
    binding_changed,
    placement_told,
    placement_told,
    placement_told,
    placement_removed,
)


def a_story(
    number: int,
    happenings: int = 40,
    plane: PlacementPlane | None = None,
    kinds: Sequence[Happening] = HAPPENINGS,
) -> PlacementPlane:
    """The same number, the same story."""
    random, plane = Random(f"placements {number}"), plane or PlacementPlane()
    plane.tell(GLOBAL, bound("apps"), bound("dock"))
    for _ in range(happenings):
        several = [
            fact
            for _ in range(random.randrange(1, 4))
            for fact in random.choice(kinds)(random, plane)
        ]
        plane.tell(*several, after_s=random.choice((0.01, 1, 7, 25)))
    return plane


@settings(max_examples=examples(12), deadline=None)
@given(number=st.integers(0, 10**6))
def test_a_stream_with_placements_taken_up_anywhere_goes_on_alike(number: int) -> None:
    plane = a_story(number)
    rounds = [r for r in plane.rounds if r.round.stream == STREAM]
    decider = FleetDecider()
    assert (
        audit(
            decider, decider.initial(STREAM), empty_head(STREAM), rounds, FleetDecider.of_profile
        ).divergences
        == []
    )
    for cut in sorted({len(rounds) * part // (CUTS + 1) for part in range(1, CUTS + 1)}):
        before, after = rounds[:cut], rounds[cut:]
        folded = recover(decider, decider.initial(STREAM), before)
        loaded = decider.load(STREAM, decider.dump(folded))
        assert decider.dump(loaded) == decider.dump(folded)
        assert decider.next_due(loaded) == decider.next_due(folded)
        for state in (folded, loaded):
            head = before[-1].round.head()
            assert audit(decider, state, head, after, FleetDecider.of_profile).divergences == []


@settings(max_examples=examples(8), deadline=None)
@given(number=st.integers(0, 10**6))
def test_who_decided_and_who_only_folded_know_the_same_and_wait_for_the_same(number: int) -> None:
    plane = a_story(number)
    live: FleetState = plane.world.streams[STREAM].state
    decider = FleetDecider()
    folded = recover(
        decider, decider.initial(STREAM), [r for r in plane.rounds if r.round.stream == STREAM]
    )
    assert decider.dump(folded) == decider.dump(live)
    assert decider.next_due(folded) == decider.next_due(live)


@settings(max_examples=examples(8), deadline=None)
@given(number=st.integers(0, 10**6))
def test_what_is_told_again_changes_nothing(number: int) -> None:
    """A collector lists everything again: it is on record, and nothing follows from it."""
    plane = a_story(number)
    selections = plane.selections
    again: Sequence[Value] = [PolicyApplied(policy) for policy in selections.policies.values()]
    live: FleetState = plane.world.streams[STREAM].state
    before, rounds = FleetDecider().dump(live), len(plane.rounds)
    assert plane.tell(*again, after_s=0) == []
    assert not any(recorded.round.decisions for recorded in plane.rounds[rounds:])
    assert FleetDecider().dump(live) == before


@settings(max_examples=examples(8), deadline=None)
@given(number=st.integers(0, 10**6))
def test_a_decision_always_changes_something(number: int) -> None:
    """Of one placement no two decisions in a row say the same."""
    said: dict[str, str] = {}
    for recorded in a_story(number).rounds:
        for d in recorded.round.decisions:
            if not d.type.startswith("io.wharfinger.placement."):
                continue
            data = d.data
            text = repr(
                [
                    getattr(data, name, None)
                    for name in ("generation", "unscheduled", "conditions", "until_us")
                ]
            )
            assert said.get(d.subject) != d.outcome + text, d.body
            said[d.subject] = d.outcome + text


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_order_of_hashes_decides_nothing(seed: str) -> None:
    script = (
        "from tests.properties.test_placement_recovery import a_story;"
        "print(a_story(7).world.streams['fleet/0'].head.hash.hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
        env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == a_story(7).world.streams[STREAM].head.hash.hex()
