"""From accepted to published, one binding at a time at a steady rate.

Open loop: a binding is due every 1/rate seconds whether or not the plane has kept up, so that a
stall is seen by all who waited behind it. Accepted is when the intake's transaction has returned;
published is when a subscriber has the record.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from benchmarks.subscriber import Subscriber
from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.node import Node
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import into_buckets
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import BINDINGS, CLUSTER_STATE, CLUSTERS
from wharfinger.runtime.ledger import Ledger, Submission

SOURCE = "/benchmarks/latency"
CLUSTERS_N = 8
NODES_A_CLUSTER = 100
WARM_UP = 50


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds."""

    p50: float
    p99: float
    worst: float


@dataclass(frozen=True, slots=True)
class Latency:
    fleet: Percentiles
    node: Percentiles
    bindings: int
    rate: float


def percentiles(seconds: list[float]) -> Percentiles:
    ordered = sorted(s * 1000 for s in seconds)

    def at(q: float) -> float:
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]

    return Percentiles(at(0.50), at(0.99), ordered[-1])


async def latency(
    bootstrap: str, database_url: str, rate: float = 50.0, bindings: int = 1000
) -> Latency:
    ledger = await Ledger.open(database_url, "wharfinger-bench")
    accepted: dict[str, float] = {}
    try:
        await ledger.accept(a_fleet())
        await asyncio.sleep(1.5)
        async with Subscriber(bootstrap) as subscriber:
            began = time.time()
            for i in range(bindings + WARM_UP):
                await asyncio.sleep(max(0.0, began + i / rate - time.time()))
                name = f"latency/b{i:05d}"
                await ledger.accept([a_binding(name)])
                if i >= WARM_UP:
                    accepted[name] = time.time()
            everything = set(accepted)
            if not await subscriber.until(
                lambda s: everything <= s.first_node.keys(), timeout_s=30.0
            ):
                missing = len(everything - subscriber.seen.first_node.keys())
                raise RuntimeError(
                    f"{missing} of {bindings} bindings had no node decision after 30 s"
                )
            seen = subscriber.seen
    finally:
        await ledger.close()
    return Latency(
        percentiles([seen.first_fleet[name] - at for name, at in accepted.items()]),
        percentiles([seen.first_node[name] - at for name, at in accepted.items()]),
        bindings,
        rate,
    )


def a_fleet(clusters: int = CLUSTERS_N, nodes: int = NODES_A_CLUSTER) -> list[Submission]:
    """`nodes`: of each cluster."""
    submissions = []
    for c in range(clusters):
        name = f"lat-{c}"
        submissions.append(submission(ClusterObserved(Cluster(name)), CLUSTERS.name, name, name))
        found = [
            Node(f"{name}-n{i:03d}", {"cpu": 64_000, "memory": 256 * 2**30, "pods": 250})
            for i in range(nodes)
        ]
        for bucket in into_buckets(name, found, 2):
            key = f"{name}/nodes/{bucket.bucket}"
            submissions.append(submission(bucket, CLUSTER_STATE.name, key, name))
    return submissions


def a_binding(name: str, replicas: int = 1, change: int = 0) -> Submission:
    """`name`: `namespace/name`. `change`: which change of the binding it is; 0: none, it is new."""
    namespace, _, workload = name.partition("/")
    binding = Binding(
        name,
        uid=name,
        resource=ObjectRef("apps/v1", "Deployment", workload, namespace),
        replicas=replicas,
        requirements=Requirements({"cpu": 500, "memory": 2**30, "pods": 1}),
        placement=Placement(replicas=ReplicaScheduling("Divided", "Weighted", dynamic=True)),
    )
    return submission(BindingRequested(binding), BINDINGS.name, name, name, change)


def submission(
    data: Value, topic: str, key: str, partition_key: str, change: int = 0
) -> Submission:
    """`change`: of what is under the key; each is an event of its own."""
    source = f"{SOURCE}/{change}" if change else SOURCE
    event = made(data, id=derived_id(source, key), source=SOURCE, subject=key)
    return Submission(event, topic, key, partition_key)
