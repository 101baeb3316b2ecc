"""The one table of topics. Topic creation, the docs and the AsyncAPI document are made from it.

*partitioned*: one consumer group a service, partition = murmur2(partition key) mod count, which
every writer must use; topics partitioned by the same thing have equal counts. *broadcast*: every
process reads all partitions.
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

BATCH_BYTES_MAX = 1_048_588
"""What each topic is made to take (`max.message.bytes`): one batch of records, of one record at
least. Kafka's own default."""

FOLLOWED = "wharfinger-followed"
"""Header of a record that was accepted together with others which follow it in the same partition.
The reader of that partition decides them together."""

TOGETHER = "wharfinger-together"
"""Header of the last record of an acceptance in a partition, where others of the acceptance go to
other topics or partitions, as `Together` writes it."""

TOGETHER_BYTES_MAX = 8192
"""A longer header of that name is not ours."""


@dataclass(frozen=True, slots=True)
class Together:
    """Where the records of one acceptance are. `acceptance`: a name that no other acceptance has.
    `places`: all of them (`topic/partition`)."""

    acceptance: str
    places: tuple[str, ...]

    def header(self) -> bytes:
        return " ".join((self.acceptance, *self.places)).encode()


def together_of(header: bytes | None) -> Together | None:
    """None where the header is not one of ours: its record counts as accepted alone."""
    if not header or len(header) > TOGETHER_BYTES_MAX or not header.isascii():
        return None
    acceptance, *places = header.decode("ascii").split(" ")
    return Together(acceptance, tuple(places)) if acceptance and places else None


TOPICS_INCARNATION = "wharfinger-topics-incarnation"
"""Header of every record that a publisher writes: the incarnation of the topics with which it has
started, in decimal digits."""

INCARNATION_DIGITS_MAX = 18


def written_earlier(header: bytes | None, incarnation: int) -> bool:
    """Whether a publisher wrote this that had started before the topic's present `incarnation`. It
    had not noticed yet that the topic began again, and another one sends all of it again, in order.
    False where the header is not one of ours."""
    return (
        header is not None
        and 0 < len(header) <= INCARNATION_DIGITS_MAX
        and header.isdigit()
        and int(header) < incarnation
    )


RECORD_BYTES_MAX = 1_000_000
"""What is larger is divided before it is sent. The difference is for the key and for what Kafka
writes around a record."""


@dataclass(frozen=True, slots=True)
class Topic:
    """`retention_ms` None: compacted, the latest of each key stays forever. `ended_by`: the type of
    the event that ends a key for good; a null record follows it."""

    name: str
    key: str
    partition_by: PartitionBy
    delivery: Delivery
    written_by: tuple[str, ...]
    retention_ms: int | None
    purpose: str
    ended_by: str = ""


CLUSTERS = Topic(
    "wharfinger.clusters",
    "cluster",
    PartitionBy.CLUSTER,
    "broadcast",
    ("intake", "collectors"),
    None,
    "facts of member clusters",
    ended_by="io.wharfinger.cluster.forgotten.v1",
)
CLUSTER_STATE = Topic(
    "wharfinger.cluster-state",
    "cluster/nodes/bucket, cluster/images/bucket, cluster/pods/node, cluster/quotas/namespace, "
    "cluster/objects/kind/namespace, cluster/workloads/binding",
    PartitionBy.CLUSTER,
    "partitioned",
    ("intake", "collectors"),
    None,
    "nodes, pods, quotas and other objects of member clusters, and how bindings fare there",
)
NODE_LOAD = Topic(
    "wharfinger.node-load",
    "cluster/metric",
    PartitionBy.CLUSTER,
    "partitioned",
    ("annotator", "collectors"),
    DAY_MS,
    "measured load and hot values of nodes",
)
POLICIES = Topic(
    "wharfinger.policies",
    "kind/namespace/name",
    PartitionBy.ONE,
    "broadcast",
    ("intake",),
    None,
    "policies that users applied",
    ended_by="io.wharfinger.policy.removed.v1",
)
BINDINGS = Topic(
    "wharfinger.bindings",
    "binding",
    PartitionBy.FLEET_SHARD,
    "partitioned",
    ("intake", "collectors"),
    None,
    "what is to be placed",
    ended_by="io.wharfinger.binding.withdrawn.v1",
)
CAPACITY = Topic(
    "wharfinger.capacity",
    "cluster",
    PartitionBy.CLUSTER,
    "broadcast",
    ("estimator",),
    None,
    "what still fits into each cluster",
)
PROPOSALS = Topic(
    "wharfinger.proposals",
    "target stream",
    PartitionBy.TARGET,
    "broadcast",
    ("descheduler", "replay", "operators"),
    7 * DAY_MS,
    "changes somebody would like",
)
ASSIGNMENTS = Topic(
    "wharfinger.assignments",
    "cluster",
    PartitionBy.CLUSTER,
    "partitioned",
    ("publisher",),
    7 * DAY_MS,
    "every decision that touches a cluster, in stream order",
)
EFFECTS = Topic(
    "wharfinger.effects",
    "cluster",
    PartitionBy.CLUSTER,
    "partitioned",
    ("actuator",),
    7 * DAY_MS,
    "what API servers answered to the writes of actuators",
)
ROOM = Topic(
    "wharfinger.room",
    "fleet stream",
    PartitionBy.ONE,
    "broadcast",
    ("publisher",),
    DAY_MS,
    "what fleet shards tell each other: room just promised, and their parts of plans",
)
OUTCOMES = Topic(
    "wharfinger.outcomes",
    "fleet shard",
    PartitionBy.FLEET_SHARD,
    "partitioned",
    ("publisher",),
    7 * DAY_MS,
    "what became of the fleet's assignments",
)
DECISIONS = Topic(
    "wharfinger.decisions",
    "binding, node or cluster",
    PartitionBy.KEY,
    "world",
    ("publisher",),
    30 * DAY_MS,
    "every decision, for the world",
)
DEAD_LETTERS = Topic(
    "wharfinger.dead-letters",
    "source",
    PartitionBy.ONE,
    "people",
    ("publisher",),
    30 * DAY_MS,
    "messages that could not be read",
)
TIMELINE = Topic(
    "wharfinger.timeline",
    "stream",
    PartitionBy.ONE,
    "people",
    ("publisher",),
    None,
    "how far each stream was published: by it a database that goes back is noticed",
)

TOPICS: tuple[Topic, ...] = (
    CLUSTERS,
    CLUSTER_STATE,
    NODE_LOAD,
    POLICIES,
    BINDINGS,
    CAPACITY,
    PROPOSALS,
    ASSIGNMENTS,
    EFFECTS,
    ROOM,
    OUTCOMES,
    DECISIONS,
    DEAD_LETTERS,
    TIMELINE,
)

BY_NAME = {t.name: t for t in TOPICS}

FLEET = "fleet/"
CLUSTER = "cluster/"
INTAKE = "intake"
LEDGER = "ledger"
"""The stream in which the ledger records that it went back; there is none before that."""
ACCESS = "access"
"""Of who wrote, was refused or read what belongs to others. It has a table and a chain of its own
(`runtime.ledger.access`): it is no stream of rounds, is not published and has no part in the feed.
Checkpoints and `audit verify` name it so, and no stream of decisions has this name."""
ROWS = "rows"
"""Of rows that belong to no stream: plans, tokens, subscriptions. Like `ACCESS`, it is a chain of
its own (`runtime.ledger.row_records`)."""
CHAINS = (ACCESS, ROWS)
"""What checkpoints name beside the streams."""


def fleet_stream(shard: int) -> str:
    return f"{FLEET}{shard}"


def cluster_stream(cluster: str) -> str:
    return f"{CLUSTER}{cluster}"
