"""The state that a history leads to does not depend on how the history was cut into batches.

A stage takes in what has arrived since its last turn, however much that is. One turn may hold facts
that contradict each other: created and deleted, 2, 9 and 2 replicas, capacity 50, 0 and 50. The
law: cut anywhere, delivered more than once, interrupted by a crash between the turn and its
acknowledgement, a stream ends with the same facts as one that was given every event in a turn of
its own; and every event is an input of exactly one of its rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cluster_world import STREAM as CLUSTER_STREAM
from tests.hunting import examples
from tests.properties import test_cluster_stage
from tests.properties.test_fleet_laws import (
    BINDINGS,
    CLASSES,
    CLUSTERS,
    bindings,
    capacities,
    clusters,
    proposals,
)
from tests.scenarios.fleet_plane import STREAM as FLEET_STREAM

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.domain.policy import (
    ConditionMatch,
    ConditionTaints,
    FederatedQuota,
    LoadPolicy,
    LoadWeight,
    Policy,
    Propagation,
)
from wharfinger.domain.rebalancing import RebalancePolicy
from wharfinger.domain.selection import ClusterSet, Selection
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.policies import (
    EVERY_SHARD_KINDS,
    FIRST_SHARD_KINDS,
    NODE_KINDS,
    PolicyApplied,
    PolicyRemoved,
    concerns_every_shard,
    concerns_nodes,
)
from wharfinger.kernel.decider import Decider
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import empty_head, fresh_inputs, step
from wharfinger.stages.cluster import ClusterDecider, ClusterStageState
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet.state import FleetState

MICROS = 1_000_000

many = settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)


@dataclass
class Stream:
    """A stream and its ledger: what a turn decided is on record, the state can be lost."""

    decider: Decider[Any]
    name: str
    state: Any = None
    head: Head = field(init=False)
    rounds: list[RecordedRound] = field(default_factory=list)
    taken: list[UUID] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.head, self.state = empty_head(self.name), self.decider.initial(self.name)

    def turn(self, batch: Iterable[Event[Value]], at: int) -> None:
        inputs = fresh_inputs(self.decider, self.state, batch, self.taken)
        if inputs:
            decided = step(self.decider, self.state, self.head, inputs, max(at, self.head.at), {})
            self.head = decided.head()
            self.rounds.append(RecordedRound(decided, inputs))
            self.taken += [event.id for event in inputs]

    def crash(self) -> None:
        """The process is killed: what is on record is recovered."""
        self.state = recover(self.decider, self.decider.initial(self.name), self.rounds)


def events_of(history: Sequence[Value]) -> list[Event[Value]]:
    return [
        made(data, id=derived_id("law", n), source="/law", subject="law")
        for n, data in enumerate(history)
    ]


def one_at_a_time(decider: Decider[Any], name: str, history: Sequence[Value]) -> Stream:
    stream = Stream(decider, name)
    for number, event in enumerate(events_of(history), 1):
        stream.turn([event], number * MICROS)
    return stream


def as_delivered(
    decider: Decider[Any], name: str, history: Sequence[Value], draw: st.DrawFn
) -> Stream:
    """The history as a broker and a process that crashes deliver it: any number of events a turn;
    after some turns the process is killed, and what it had not acknowledged, or more, comes again
    in front of what follows."""
    stream, events, begin = Stream(decider, name), events_of(history), 0
    while begin < len(events):
        end = begin + draw(st.integers(1, len(events) - begin))
        batch = list(events[begin:end])
        if draw(st.booleans()):  # redelivered within the turn
            batch = [*events[draw(st.integers(0, begin)) : begin], *batch]
        stream.turn(batch, end * MICROS)
        begin = end
        if draw(st.integers(0, 3)) == 0:
            stream.crash()
            begin = draw(st.integers(0, end))
    return stream


def inputs_of(stream: Stream) -> list[UUID]:
    return [event.id for recorded in stream.rounds for event in recorded.events]


# --- the fleet stage

QUOTA, TAINTS, SETS = "FederatedResourceQuota", "ClusterTaintPolicy", "ManagedClusterSet"
policies = st.one_of(
    st.builds(
        lambda cpu: PolicyApplied(
            Policy(QUOTA, "team", "default", quota=FederatedQuota({"cpu": cpu * 1000}))
        ),
        st.integers(0, 4),
    ),
    st.just(PolicyRemoved(QUOTA, "team", "default")),
    st.builds(
        lambda effect: PolicyApplied(
            Policy(
                TAINTS,
                "gone",
                taints=ConditionTaints(
                    ClusterAffinity(),
                    (Taint("gone", effect),),
                    (ConditionMatch("Ready", "NotIn", ("True",)),),
                ),
            )
        ),
        st.sampled_from(("NoSchedule", "NoExecute")),
    ),
    st.just(PolicyRemoved(TAINTS, "gone")),
    st.just(PolicyApplied(Policy(SETS, "all", cluster_set=ClusterSet()))),
    st.just(PolicyRemoved(SETS, "all")),
    st.just(PolicyApplied(Policy("Placement", "pick", "default", selection=Selection()))),
    st.just(PolicyRemoved("Placement", "pick", "default")),
    st.just(PolicyApplied(Policy("RebalancePolicy", "r", rebalancing=RebalancePolicy()))),
    st.just(PolicyRemoved("RebalancePolicy", "r")),
    st.just(
        PolicyApplied(
            Policy("PropagationPolicy", "p", "default", propagation=Propagation((), Placement()))
        )
    ),
    st.just(PolicyRemoved("PropagationPolicy", "p", "default")),
)
fleet_facts = st.one_of(  # the smallest first: a failing history shrinks towards them
    st.builds(BindingWithdrawn, st.sampled_from(BINDINGS)),
    st.builds(ClusterForgotten, st.sampled_from(CLUSTERS)),
    policies,
    proposals,
    capacities,
    clusters,
    bindings,
    bindings,
)


def what_the_fleet_was_told(state: FleetState) -> dict[str, object]:
    selections = state.selections
    return {
        "bindings": {
            name: record.spec
            for name, record in sorted(state.bindings.items())
            if not record.withdrawn
        },
        "clusters": dict(sorted(state.tainting.told.items())),
        "capacity": {
            name: c.capacity for name, c in sorted(state.clusters.items()) if c.capacity is not None
        },
        "quotas": {
            key: policy.quota
            for key, policy in sorted(state.quotas.policies.items())
            if policy.quota
        },
        "taints": dict(sorted(state.tainting.rules.items())),
        "rebalancing": dict(sorted(state.rebalancing.items())),
        "selections": {} if selections is None else dict(sorted(selections.policies.items())),
    }


@many
@given(st.lists(fleet_facts, min_size=1, max_size=24), st.data())
def test_a_fleet_stream_ends_the_same_however_its_facts_are_batched(
    history: list[Value], data: st.DataObject
) -> None:
    single = one_at_a_time(FleetDecider(), FLEET_STREAM, history)
    cut = data.draw(delivered(FleetDecider(), FLEET_STREAM, history))
    assert what_the_fleet_was_told(cut.state) == what_the_fleet_was_told(single.state)
    assert (
        sorted(inputs_of(cut))
        == sorted(inputs_of(single))
        == sorted(event.id for event in events_of(history))
    )
    for name, record in cut.state.bindings.items():
        assert not record.withdrawn, f"{name} was withdrawn and is not released"
        assert record.spec.suspended or not record.asked, f"{name} was not answered"


@st.composite
def delivered(
    draw: st.DrawFn, decider: Decider[Any], name: str, history: Sequence[Value]
) -> Stream:
    return as_delivered(decider, name, history, draw)


def web(replicas: int) -> BindingRequested:
    return BindingRequested(
        Binding(
            "web",
            "uid-web",
            ObjectRef("apps/v1", "Deployment", "web", "default"),
            replicas,
            CLASSES[0],
        )
    )


def room(cpu: int) -> CapacityEstimated:
    return CapacityEstimated("oslo", 1, {"cpu": cpu * 1000}, {CLASSES[0].class_key: cpu})


QUOTA_OF_TWO = PolicyApplied(Policy(QUOTA, "team", "default", quota=FederatedQuota({"cpu": 2000})))


@pytest.mark.parametrize(
    ("batch", "wanted"),
    [
        ([web(2), BindingWithdrawn("web")], {"bindings": {}}),
        ([web(9), web(2)], {"bindings": {"web": web(2).binding}}),
        ([BindingWithdrawn("web"), web(2)], {"bindings": {"web": web(2).binding}}),
        ([room(0), room(50)], {"capacity": {"oslo": room(50)}}),
        ([ClusterObserved(Cluster("oslo")), ClusterForgotten("oslo")], {"clusters": {}}),
        ([QUOTA_OF_TWO, PolicyRemoved(QUOTA, "team", "default")], {"quotas": {}}),
    ],
    ids=[
        "created, deleted",
        "9, 2",
        "deleted, created",
        "capacity 0, 50",
        "joined, forgotten",
        "quota, none",
    ],
)
@pytest.mark.parametrize("before", [[], [web(2)], [room(50)]], ids=["new", "running", "counted"])
def test_the_last_of_two_contradicting_facts_in_one_turn_holds(
    before: list[Value], batch: list[Value], wanted: dict[str, object]
) -> None:
    events, stream = events_of([*before, *batch]), Stream(FleetDecider(), FLEET_STREAM)
    stream.turn(events[: len(before)], MICROS)
    stream.turn(events[len(before) :], 2 * MICROS)
    told = what_the_fleet_was_told(stream.state)
    assert {part: told[part] for part in wanted} == wanted


# --- the cluster stage


def what_the_cluster_was_told(state: ClusterStageState) -> dict[str, object]:
    return {
        "nodes": {
            bucket: dict(sorted(nodes.items()))
            for bucket, nodes in sorted(state.book.buckets.items())
        },
        "pods": {node: pods for node, pods in sorted(state.book.pods.items()) if pods},
        "assigned": dict(sorted(state.seen.items())),
        "load": dict(sorted(state.load.policies.items())),
        "schedulers": sorted(state.profiles.configs),
    }


LOAD = "DynamicSchedulerPolicy"
node_policies = st.sampled_from(
    [
        PolicyApplied(Policy(LOAD, "load", load=LoadPolicy(weights=(LoadWeight("cpu", 1000),)))),
        PolicyApplied(Policy(LOAD, "load", load=LoadPolicy(weights=(LoadWeight("memory", 500),)))),
        PolicyApplied(Policy(LOAD, "load")),
        PolicyRemoved(LOAD, "load"),
    ]
)


@pytest.mark.long  # the costliest property; that of the fleet is tried in `make test`, too
@many
@given(test_cluster_stage.histories(), st.lists(node_policies, max_size=6), st.data())
def test_a_cluster_stream_ends_the_same_however_its_facts_are_batched(
    nodes: tuple[str, list[list[Value]]], policies: list[Value], data: st.DataObject
) -> None:
    history = [fact for facts in nodes[1] for fact in facts]
    for policy in policies:
        history.insert(data.draw(st.integers(0, len(history))), policy)
    single = one_at_a_time(ClusterDecider(), CLUSTER_STREAM, history)
    cut = data.draw(delivered(ClusterDecider(), CLUSTER_STREAM, history))
    assert what_the_cluster_was_told(cut.state) == what_the_cluster_was_told(single.state)
    assert (
        sorted(inputs_of(cut))
        == sorted(inputs_of(single))
        == sorted(event.id for event in events_of(history))
    )


def test_who_a_policy_is_for_follows_from_its_kind() -> None:
    """Applied and removed alike: a removal says no more than the kind and the name."""
    lists = (EVERY_SHARD_KINDS, FIRST_SHARD_KINDS, NODE_KINDS)
    listed = frozenset.union(*lists)
    assert sum(map(len, lists)) == len(listed), "each kind stands in one list"
    for kind in (*sorted(listed), "Unlisted"):
        applied, removed = PolicyApplied(Policy(kind, "any")), PolicyRemoved(kind, "any")
        assert (
            concerns_nodes(applied)
            == concerns_nodes(removed)
            == (kind in NODE_KINDS or kind == "Unlisted")
        )
        shared = kind in EVERY_SHARD_KINDS or kind == "Unlisted"
        assert concerns_every_shard(applied) == concerns_every_shard(removed) == shared
