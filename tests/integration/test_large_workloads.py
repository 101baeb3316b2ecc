"""Workloads of a thousand pods through all services, on a broker that limits the size of a
record."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from structlog.testing import capture_logs
from tests.apps import all_services, standing_on, until

from wharfinger.answers.submit import submit
from wharfinger.domain.binding import Binding, Component
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.pod_traits import PodTraits, TopologySpread
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import buckets_for
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import frame_of
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.decisions import ReplicasPlaced
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import ASSIGNMENTS, CLUSTER, INTAKE, RECORD_BYTES_MAX
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import DecisionQuery, Ledger
from wharfinger_cli.facts import known_facts

pytestmark = pytest.mark.integration

WORKLOADS, PODS, NODES = 24, 1000, 1000
HOSTNAME = "kubernetes.io/hostname"
Make = Callable[[str], Binding]


def replicas(name: str) -> Binding:
    """One pod a node: `max_skew` 1 over all hosts."""
    spread = TopologySpread(HOSTNAME, 1, selector=LabelSelector({"app": name}))
    pod = PodTraits(namespace="shop", labels={"app": name}, owner="ReplicaSet", spread=(spread,))
    return Binding(
        f"shop/{name}",
        f"uid-of-{name}",
        ObjectRef("apps/v1", "Deployment", name, "shop"),
        PODS,
        Requirements({"cpu": 10}, pod=pod),
    )


def components(name: str) -> Binding:
    parts = tuple(Component(f"part-{n:04}", 1, Requirements({"cpu": 10})) for n in range(PODS))
    return Binding(
        f"shop/{name}",
        f"uid-of-{name}",
        ObjectRef("apps/v1", "Deployment", name, "shop"),
        components=parts,
    )


def a_cluster() -> list[Accepted]:
    names = [f"node-{n:04}" for n in range(NODES)]
    nodes = [
        Node(name, {"cpu": 4000, "memory": 2**34, "pods": 110}, labels={HOSTNAME: name})
        for name in names
    ]
    return [
        accepted(ClusterObserved(Cluster("oslo"))),
        *map(accepted, buckets_for("oslo", nodes, 8)),
    ]


class Placements:
    """What the cluster stages have decided, read as it comes. `placed`: binding or component -> its
    replicas that have a node."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._after: dict[str, int] = {}
        self.placed: Counter[str] = Counter()

    async def total(self) -> int:
        await asyncio.sleep(0.5)  # the services share this loop
        async for row in self._ledger.decisions(DecisionQuery(stream=CLUSTER, after=self._after)):
            data = row.data()
            assert isinstance(data, ReplicasPlaced), data
            self.placed[data.binding] += sum(len(share.ordinals) for share in data.placed)
            self._after[row.stream] = row.seq
        return self.placed.total()


@pytest.mark.parametrize("make", [replicas, components])
async def test_large_workloads_reach_their_nodes(
    make: Make, backend: Backend, database_url: str, topic_prefix: str
) -> None:
    """Every one of 24,000 pods gets a node, in records below the default limit. A record is sent
    twice only where the publisher lost its lock and began again, as it does here on a busy machine;
    then it has the same bytes."""
    if not backend.capabilities.retention:
        pytest.skip("the embedded broker has no limit")
    with capture_logs() as logs:
        await _reach_their_nodes(make, backend, database_url, topic_prefix, logs)


async def _reach_their_nodes(
    make: Make,
    backend: Backend,
    database_url: str,
    topic_prefix: str,
    logs: Sequence[Mapping[str, object]],
) -> None:
    async with all_services(backend, database_url, topic_prefix) as context:
        ledger = context.ledger
        bindings = [accepted(BindingRequested(make(f"large-{n:02}"))) for n in range(WORKLOADS)]
        await submit(ledger, [*a_cluster(), *bindings], await known_facts(ledger))

        placements = Placements(ledger)

        async def all_placed() -> bool:
            return await placements.total() >= WORKLOADS * PODS

        await until(all_placed)
        assert placements.placed.total() == WORKLOADS * PODS
        assert set(placements.placed.values()) == ({PODS} if make is replicas else {1})
        records = await standing_on(context, ASSIGNMENTS)
        values = [record.value for record in records if record.value]
        assert max(map(len, values)) <= RECORD_BYTES_MAX
        begun_again = sum(log["event"] == "publisher.begins_anew" for log in logs)
        sent = Counter(frame_of(value).id for value in values)
        assert max(sent.values()) <= 1 + begun_again
        assert len(set(values)) == len(sent)
        letters = DecisionQuery(stream=INTAKE, types=[LATEST[MessageDeadLettered].type])
        assert [row async for row in ledger.decisions(letters)] == []
        assert await ledger.withheld("publisher", context.life) == {}
