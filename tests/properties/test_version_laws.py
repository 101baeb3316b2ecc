"""Facts with versions: whatever order they come in, from however many writers, the newest of each
key holds.

Two collectors of one cluster (one of them replaced, and not aware of it), a refill beside live
writes and a delayed message look the same to a stage: a fact that is older than what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER
from tests.cluster_world import STREAM as CLUSTER_STREAM
from tests.hunting import examples
from tests.properties.test_batch_laws import (
    Stream,
    what_the_cluster_was_told,
    what_the_fleet_was_told,
)
from tests.scenarios.fleet_plane import STREAM as FLEET_STREAM

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.policy import FederatedQuota, Policy
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import UndecodableError, decode, made
from wharfinger.events.envelope import Event, FactVersion, derived_id
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.versions import ENDED_KEPT_US, Versions, fact_key
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decider
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.fleet import FleetDecider

MICROS = 1_000_000
Versioned = tuple[FactVersion, Value]

many = settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def binding(name: str, replicas: int) -> BindingRequested:
    ref = ObjectRef("apps/v1", "Deployment", name, "default")
    return BindingRequested(
        Binding(name, f"uid-{name}", ref, replicas, Requirements({"cpu": 1000}))
    )


def quota(cpu: int) -> PolicyApplied:
    return PolicyApplied(
        Policy("FederatedResourceQuota", "team", "default", quota=FederatedQuota({"cpu": cpu}))
    )


def fleet_fact(key: int, seen: int) -> Value:
    """State number `seen` of key `key`."""
    match key:
        case 0 | 1:
            return binding(f"b{key}", seen) if seen % 4 else BindingWithdrawn(f"b{key}")
        case 2:
            return (
                ClusterObserved(Cluster("oslo", region=f"r{seen}"))
                if seen % 4
                else ClusterForgotten("oslo")
            )
        case 3:
            return CapacityEstimated("bergen", 1, {"cpu": seen * 1000}, {})
        case _:
            return (
                quota(seen)
                if seen % 4
                else PolicyRemoved("FederatedResourceQuota", "team", "default")
            )


def cluster_fact(key: int, seen: int) -> Value:
    if key < 3:
        return PodsObserved(
            CLUSTER,
            f"n{key}",
            tuple(Pod(f"p{i}", f"p{i}", Requirements(), f"n{key}") for i in range(seen)),
        )
    return NodesObserved(CLUSTER, key - 3, 2, (Node(f"n{key}", {"cpu": seen * 1000}),))


def event(number: int, version: FactVersion, data: Value) -> Event[Value]:
    return made(
        data, id=derived_id("version", number), source="/law", subject="law", version=version
    )


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, FactVersion, int]]:
    """(key, version, state): every key goes through its versions once, in epochs that begin again
    at low versions."""
    history: list[tuple[int, FactVersion, int]] = []
    for key in range(5):
        version, epoch = 0, 1
        for seen in range(draw(st.integers(1, 5))):
            if draw(st.integers(0, 3)) == 0:
                epoch, version = epoch + 1, 0
            version += draw(st.integers(1, 3))
            history.append((key, (epoch, version), seen))
    return history


def delivered(
    decider: Decider[Any], name: str, events: Sequence[Event[Value]], draw: st.DrawFn
) -> Stream:
    stream, begin = Stream(decider, name), 0
    while begin < len(events):
        end = begin + draw(st.integers(1, len(events) - begin))
        stream.turn(events[begin:end], end * MICROS)
        if draw(st.booleans()):
            stream.crash()
        if draw(st.booleans()):
            stream.state = decider.load(name, decider.dump(stream.state))
        begin = end
    return stream


@many
@given(histories(), st.data())
def test_the_newest_fact_of_each_key_holds_in_whatever_order_they_come(
    history: list[tuple[int, FactVersion, int]], data: st.DataObject
) -> None:
    stages: tuple[
        tuple[Decider[Any], str, Callable[[int, int], Value], Callable[[Any], dict[str, object]]],
        ...,
    ] = (
        (FleetDecider(), FLEET_STREAM, fleet_fact, what_the_fleet_was_told),
        (ClusterDecider(), CLUSTER_STREAM, cluster_fact, what_the_cluster_was_told),
    )
    for decider, name, fact, told in stages:
        events = [
            event(n, version, fact(key, seen)) for n, (key, version, seen) in enumerate(history)
        ]
        in_order = Stream(decider, name)
        for number, one in enumerate(events, 1):
            in_order.turn([one], number * MICROS)
        shuffled = data.draw(st.permutations(events))
        mixed = data.draw(as_delivered(decider, name, shuffled))
        assert told(mixed.state) == told(in_order.state)
        assert sum(len(r.events) for r in mixed.rounds) == len(events), (
            "a refused fact is on record as an input"
        )
        assert (
            audit(decider, decider.initial(name), empty_head(name), mixed.rounds).divergences == []
        )
        assert decider.dump(decider.load(name, decider.dump(mixed.state))) == decider.dump(
            mixed.state
        )


@st.composite
def as_delivered(
    draw: st.DrawFn, decider: Decider[Any], name: str, events: Sequence[Event[Value]]
) -> Stream:
    return delivered(decider, name, events, draw)


def test_an_older_fact_is_refused_and_counted_and_one_without_a_version_is_not() -> None:
    stream = Stream(FleetDecider(), FLEET_STREAM)
    for number, (version, replicas) in enumerate(
        [((1, 5), 5), ((1, 4), 4), ((0, 0), 7), ((1, 5), 5), ((2, 1), 1), ((1, 9), 9)]
    ):
        stream.turn([event(number, version, binding("web", replicas))], (number + 1) * MICROS)
        held = stream.state.bindings["web"].spec.replicas
        assert held == [5, 5, 7, 5, 1, 1][number]
    assert stream.decider.outdated(stream.state) == 2


def test_the_version_of_an_ended_key_is_kept_longer_than_a_topic_keeps_its_facts() -> None:
    versions, gone = Versions(), event(1, (1, 5), BindingWithdrawn("web"))
    assert versions.admits(gone, 1)
    assert not versions.admits(event(2, (1, 4), binding("web", 1)), ENDED_KEPT_US - 1)
    assert versions.admits(event(3, (1, 1), BindingWithdrawn("db")), ENDED_KEPT_US + 2)
    assert list(versions.newest) == [fact_key(BindingWithdrawn("db"))], "it is let go of then"


@pytest.mark.parametrize("text", ["1", "1.", "-1.2", "1.2.3", "a.b", "1.99999999999999999999"])
def test_a_version_that_is_none_is_said_in_one_line(text: str) -> None:
    body = event(1, (7, 8), BindingWithdrawn("web")).body.replace(b'"7.8"', f'"{text}"'.encode())
    with pytest.raises(
        UndecodableError, match=r"^factversion: expected epoch\.version, two whole numbers, got "
    ) as said:
        decode(body)
    assert "\n" not in str(said.value)


def test_a_version_is_part_of_the_message_and_of_what_is_hashed() -> None:
    one, other = (
        event(1, (7, 8), BindingWithdrawn("web")),
        event(1, (7, 9), BindingWithdrawn("web")),
    )
    assert decode(one.body).version == (7, 8)
    assert one.sha256 != other.sha256
