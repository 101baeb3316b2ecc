"""What must be there before a service starts: the schema, the topics, and the incarnation each topic is in.

Laid again after every loss of the broker; laying it twice changes nothing. As a program it is the supervisor's short-lived
child (`children.GroundworkProcess`): the migration tools are heavy, and the supervisor stays for as long as the plane does.
It loads them at once, waits for one line on standard input that says where broker and database are, and answers with one
line on standard output.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from wharfinger.events.streams import TOPICS, PartitionBy, Topic
from wharfinger.runtime.backends import Backend, BackendError, probe
from wharfinger.runtime.ledger import Ledger, LedgerError, migrate
from wharfinger.runtime.settings import Settings, SettingsError, load_settings
from wharfinger.runtime.topics import TopicSpec, ensure_topics

DECISION_PARTITIONS = 4  # for the world: no service of ours is joined with it


@dataclass(frozen=True, slots=True)
class Groundwork:
    """`incarnations`: by topic. `created`: the topics that were really made now."""

    incarnations: Mapping[str, int]
    created: frozenset[str]


async def lay(settings: Settings) -> Groundwork:
    """Schema, topics, incarnations. BackendError or LedgerError: one line that names what could not be done."""
    backend = settings.backend()
    await probe(backend)
    await migrate(backend.database_url, settings.ledger_partition_days)
    made = await ensure_topics(backend, topic_specs(settings))
    created = {name for name, new in made.items() if new}
    incarnations = await _incarnations(backend, created)
    return Groundwork(incarnations, frozenset(created))


def topic_specs(settings: Settings) -> list[TopicSpec]:
    """The table of topics with this plane's partition counts. Topics partitioned by the same thing get the same count."""
    return [
        TopicSpec(
            topic.name,
            partitions(topic, settings),
            "compact" if topic.retention_ms is None else "delete",
            topic.retention_ms,
        )
        for topic in TOPICS
    ]


def partitions(topic: Topic, settings: Settings) -> int:
    match topic.partition_by:
        case PartitionBy.CLUSTER | PartitionBy.TARGET:
            return settings.cluster_partitions
        case PartitionBy.FLEET_SHARD:
            return settings.fleet_shards
        case PartitionBy.KEY:
            return DECISION_PARTITIONS
        case PartitionBy.ONE:
            return 1


async def _incarnations(backend: Backend, created: set[str]) -> Mapping[str, int]:
    ledger = await Ledger.open(backend.database_url, "wharfinger-groundwork")
    try:
        return await ledger.incarnation([topic.name for topic in TOPICS], created, backend.boot_id)
    finally:
        await ledger.close()


def main() -> int:
    """The program: where things are comes as one JSON line of settings, the incarnations or an error go out as another."""
    said = sys.stdin.readline()
    if not said:
        return 1  # the supervisor died before it knew
    try:
        laid = asyncio.run(lay(load_settings(json.loads(said))))
    except (BackendError, LedgerError, SettingsError) as error:
        print(json.dumps({"error": " ".join(str(error).split())}))
        return 2
    print(json.dumps({"incarnations": dict(laid.incarnations)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
