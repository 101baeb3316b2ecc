"""An observer that begins at snapshots knows what one knows that has read every decision since the
first."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from tests.scenarios.fleet_plane import DYNAMIC
from tests.told_plane import ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.instance_types import Catalogue, InstanceType, Offering
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INITIALIZED_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
    NodeBudget,
    NodePoolPolicy,
)
from wharfinger.domain.placement import Placement
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.events.accepted import Fact
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.cluster_state import into_buckets
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.policies import PolicyApplied
from wharfinger.history.deciders import DECIDERS
from wharfinger.history.plane_at import cluster_states_at
from wharfinger.history.states import PRESENT
from wharfinger.kernel.observer import Observer
from wharfinger.runtime.current_assignments import current_assignments
from wharfinger.runtime.ledger import Ledger, SnapshotFollower
from wharfinger.runtime.observer_loop import Loaded
from wharfinger.runtime.placed_replicas import replicas_on_nodes
from wharfinger.stages.annotator import AnnotatorObserver
from wharfinger.stages.descheduler import DeschedulerObserver
from wharfinger.stages.estimator import EstimatorObserver

pytestmark = pytest.mark.integration

POLICY = a_policy("by-room", Placement(replicas=DYNAMIC))
FACTS: tuple[Fact, ...] = (
    a_cluster("oslo", 60),
    a_cluster("bergen"),
    POLICY,
    *nodes("oslo", "o1", "o2"),
    *nodes("bergen", "b1"),
)
WORKLOADS = (
    a_binding("web", 5, POLICY),
    a_binding("api", 4, POLICY, cpu=2000),
    a_binding("log", 40, POLICY),
)


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    """Placed, moved, refused for want of room, withdrawn, and one cluster that fell silent."""
    told = await ToldPlane.opened(database_url)
    await told.tell(*FACTS[:3])
    await told.tell(*FACTS[3:])
    for workload in WORKLOADS:
        await told.tell(workload)
    await told.tell(a_binding("web", 2, POLICY))
    await told.tell(BindingWithdrawn("shop/api-deployment"))
    await told.tell(a_binding("web", 6, POLICY))
    await told.wait(90)
    await told.tell(a_binding("last", 1, POLICY))
    yield told
    await told.ledger.close()


async def snapshots(ledger: Ledger, stream: str, back: int) -> None:
    """A whole snapshot of the state `back` rounds before the end."""
    head = next(h for h in await ledger.heads() if h.stream == stream)
    kind = next(prefix for prefix in DECIDERS if stream.startswith(prefix))
    number = max(1, head.round - back)
    await SnapshotFollower(ledger, DECIDERS[kind], stream, every_rounds=number).catch_up(number)
    found = await ledger.latest_snapshot(stream)
    assert found is not None
    assert found.round == number


def seen(observer: Observer, loaded: list[Loaded], at: int) -> list[tuple[str, Value]]:  # type: ignore[type-arg]
    """What an observer says that begins with these events and is then told the facts."""
    state = observer.initial()
    for event, when in loaded:
        observer.fold(state, event, when)
    for number, fact in enumerate((*FACTS, a_binding("web", 6, POLICY), WORKLOADS[2])):
        observer.fold(
            state, made(fact, id=derived_id("fact", number), source="/tests", subject="x"), at
        )
    return [(p.subject, p.data) for p in observer.publish(state, at)]


OBSERVERS = (
    EstimatorObserver,
    lambda: DeschedulerObserver(lambda _: 0, 60),
    lambda: AnnotatorObserver(asks=False),
)


@pytest.mark.parametrize("back", [0, 1, 4])
@pytest.mark.parametrize(
    "streams", [("fleet/0",), ("cluster/oslo",), ("fleet/0", "cluster/oslo", "cluster/bergen")]
)
async def test_snapshots_say_what_the_history_says(
    plane: ToldPlane, streams: tuple[str, ...], back: int
) -> None:
    ledger = plane.ledger
    whole = await current_assignments(ledger, lambda _: True)
    nodes = await replicas_on_nodes(ledger)
    assert nodes
    for stream in streams:
        await snapshots(ledger, stream, back)
    assert await replicas_on_nodes(ledger) == nodes
    assert await stood_on(ledger) == nodes
    begun = await current_assignments(ledger, lambda _: True)
    assert [event.id for event, _ in begun] != [event.id for event, _ in whole]
    for make in OBSERVERS:
        expected = seen(make(), whole, plane.time.at)
        assert _told_apart(seen(make(), begun, plane.time.at)) == _told_apart(expected)
    ends = {head.stream: head.seq for head in await ledger.heads()}
    counted, before = (
        _accounted(seen(EstimatorObserver(), loaded, plane.time.at)) for loaded in (begun, whole)
    )
    assert before
    assert all(before[place] <= counted[place] <= ends[place[1]] for place in before)


async def stood_on(ledger: Ledger) -> dict[tuple[str, str, int], str]:
    """The same from the states of the cluster streams."""
    states = [state for state in await cluster_states_at(ledger, PRESENT, "") if state.book.held]
    return {
        (state.cluster, binding, ordinal): replica.node
        for state in states
        for binding, held in state.book.held.items()
        for ordinal, replica in held.placed.items()
    }


def _told_apart(said: list[tuple[str, Value]]) -> list[tuple[str, Value]]:
    """Without how far a count accounts: a snapshot knows of every cluster up to its own end, an
    item up to itself."""
    return [
        (
            subject,
            msgspec.structs.replace(data, accounted_through={})
            if isinstance(data, CapacityEstimated)
            else data,
        )
        for subject, data in said
    ]


def _accounted(said: list[tuple[str, Value]]) -> dict[tuple[str, str], int]:
    estimates = [data for _, data in said if isinstance(data, CapacityEstimated)]
    return {
        (e.cluster, stream): seq for e in estimates for stream, seq in e.accounted_through.items()
    }


async def test_others_clusters_are_not_even_read(plane: ToldPlane) -> None:
    whole = await current_assignments(plane.ledger, lambda _: True)
    ours = await current_assignments(plane.ledger, lambda cluster: cluster == "oslo")
    assert {event.subject for event, _ in ours} == {"oslo"}
    assert [e.data for e, _ in ours] == [e.data for e, _ in whole if e.subject == "oslo"]


POOL = NodePoolPolicy(
    "general", 30, consolidation="WhenEmptyOrUnderutilized", budgets=(NodeBudget("100%"),)
)
TYPES = tuple(
    InstanceType(
        name,
        {"cpu": cpu, "memory": 2**34, "pods": 110},
        offerings=(Offering("a", "on-demand", cpu * 100_000),),
    )
    for name, cpu in (("large", 8000), ("small", 1000))
)


def made_of(kind: str, name: str) -> Node:
    labels = {
        POOL_LABEL: "general",
        INSTANCE_TYPE_LABEL: kind,
        ZONE_LABEL: "a",
        CAPACITY_TYPE_LABEL: "on-demand",
        INITIALIZED_LABEL: "true",
    }
    return Node(name, next(t for t in TYPES if t.name == kind).allocatable, labels=labels)


@pytest.mark.parametrize("back", [0, 1])
async def test_claims_and_commands_that_are_open_stand(database_url: str, back: int) -> None:
    told = await ToldPlane.opened(database_url)
    await told.tell(
        PolicyApplied(Policy("NodePool", "general", node_pool=POOL)),
        PolicyApplied(
            Policy("InstanceTypes", "0", "default", catalogue=Catalogue("default", TYPES))
        ),
        a_cluster("oslo"),
        POLICY,
        *into_buckets("oslo", [made_of("large", "n1")], 2),
    )
    await told.tell(a_binding("web", 1, POLICY))
    # too big a node for one replica: a small one is to come in its stead, and nobody makes it
    await told.wait(120)
    whole = await current_assignments(told.ledger, lambda _: True)
    await snapshots(told.ledger, "cluster/oslo", back)
    begun = await current_assignments(told.ledger, lambda _: True)
    for loaded in (whole, begun):
        observer = DeschedulerObserver(lambda _: 0)
        state = observer.initial()
        for event, at in loaded:
            observer.fold(state, event, at)
        pools = state.clusters["oslo"].pools
        assert [command.nodes for command in pools.commands.values()] == [("n1",)]
        assert [claim.pool for claim in pools.claims.values()] == ["general"]
        assert "n1" in state.clusters["oslo"].book.closed
        assert state.clusters["oslo"].book.held["shop/web-deployment"].placed[0].node == "n1"
    await told.ledger.close()
