"""The one table of topics. Topic creation, the docs and the AsyncAPI document are made from it.

*partitioned*: one consumer group a service, partition = murmur2(partition key) mod count, which every writer must use;
topics partitioned by the same thing have equal counts. *broadcast*: every process reads all partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class PartitionBy(StrEnum):
    CLUSTER = "cluster"
    FLEET_SHARD = "fleet shard"
    TARGET = "target stream"
    KEY = "key"
    ONE = "one"


Delivery = Literal["broadcast", "partitioned", "world", "people"]

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Topic:
    """`retention_ms` None: compacted, the latest of each key stays for ever."""

    name: str
    key: str
    partition_by: PartitionBy
    delivery: Delivery
    written_by: tuple[str, ...]
    retention_ms: int | None
    purpose: str


CLUSTERS = Topic(
    "wharfinger.clusters", "cluster", PartitionBy.CLUSTER, "broadcast", ("intake", "collectors"), None,
    "facts of member clusters",
)  # fmt: skip
CLUSTER_STATE = Topic(
    "wharfinger.cluster-state",
    "cluster/nodes/bucket, cluster/pods/node, cluster/quotas/namespace, cluster/objects/kind/namespace, cluster/workloads/binding",
    PartitionBy.CLUSTER, "partitioned", ("intake", "collectors"), None,
    "nodes, pods, quotas and other objects of member clusters, and how bindings fare there",
)  # fmt: skip
NODE_LOAD = Topic(
    "wharfinger.node-load", "cluster/metric", PartitionBy.CLUSTER, "partitioned", ("annotator",), DAY_MS,
    "measured load and hot values of nodes",
)  # fmt: skip
POLICIES = Topic(
    "wharfinger.policies", "kind/namespace/name", PartitionBy.ONE, "broadcast", ("intake",), None,
    "policies that users applied",
)  # fmt: skip
BINDINGS = Topic(
    "wharfinger.bindings", "binding", PartitionBy.FLEET_SHARD, "partitioned", ("intake", "collectors"), None,
    "what is to be placed",
)  # fmt: skip
CAPACITY = Topic(
    "wharfinger.capacity", "cluster", PartitionBy.CLUSTER, "broadcast", ("estimator",), None,
    "what still fits into each cluster",
)  # fmt: skip
PROPOSALS = Topic(
    "wharfinger.proposals", "target stream", PartitionBy.TARGET, "broadcast",
    ("descheduler", "replay", "operators"), 7 * DAY_MS, "changes somebody would like",
)  # fmt: skip
ASSIGNMENTS = Topic(
    "wharfinger.assignments", "cluster", PartitionBy.CLUSTER, "partitioned", ("publisher",), 7 * DAY_MS,
    "every decision that touches a cluster, in stream order",
)  # fmt: skip
OUTCOMES = Topic(
    "wharfinger.outcomes", "fleet shard", PartitionBy.FLEET_SHARD, "partitioned", ("publisher",), 7 * DAY_MS,
    "what became of the fleet's assignments",
)  # fmt: skip
DECISIONS = Topic(
    "wharfinger.decisions", "binding, node or cluster", PartitionBy.KEY, "world", ("publisher",), 30 * DAY_MS,
    "every decision, for the world",
)  # fmt: skip
DEAD_LETTERS = Topic(
    "wharfinger.dead-letters", "source", PartitionBy.ONE, "people", ("publisher",), 30 * DAY_MS,
    "messages nobody could read",
)  # fmt: skip

TOPICS: tuple[Topic, ...] = (
    CLUSTERS, CLUSTER_STATE, NODE_LOAD, POLICIES, BINDINGS, CAPACITY, PROPOSALS, ASSIGNMENTS, OUTCOMES, DECISIONS,
    DEAD_LETTERS,
)  # fmt: skip

BY_NAME = {t.name: t for t in TOPICS}

FLEET = "fleet/"
CLUSTER = "cluster/"
INTAKE = "intake"


def fleet_stream(shard: int) -> str:
    return f"{FLEET}{shard}"


def cluster_stream(cluster: str) -> str:
    return f"{CLUSTER}{cluster}"
