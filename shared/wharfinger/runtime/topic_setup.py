"""What must be there before a service starts: the schema, the topics, and the incarnation each
topic is in.

Laid again after every loss of the broker; laying it twice changes nothing. As a program it is the
supervisor's short-lived child (`children.TopicSetupProcess`): the migration tools are heavy, and
the supervisor stays for as long as the plane does. It loads them at once, waits for one line on
standard input that says where broker and database are, and answers with one line on standard
output.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from wharfinger.events.streams import TOPICS, PartitionBy, Topic
from wharfinger.runtime.backends import BackendError, probe
from wharfinger.runtime.extras import require
from wharfinger.runtime.fleet_shards import with_fleet_shards
from wharfinger.runtime.ledger import Ledger, LedgerError, migrate
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.settings import Settings, SettingsError, load_settings
from wharfinger.runtime.topic_ids import identity, topic_ids
from wharfinger.runtime.topics import TopicSpec, ensure_topics

# a server that is down refuses at once; one that is slow to answer is busy, as at a cold start
PROBE_TIMEOUT_S = 30.0
DECISION_PARTITIONS = 4  # for the world: no service of ours is joined with it


@dataclass(frozen=True, slots=True)
class TopicSetup:
    """`incarnations`: by topic. `created`: the topics that were really made now. `database`: the
    identity of the database."""

    incarnations: Mapping[str, int]
    created: frozenset[str]
    database: str


async def lay(settings: Settings, *, logins: bool = False) -> TopicSetup:
    """Schema, topics, incarnations; `logins`: also the logins of the plane's processes, with their
    rights. BackendError or LedgerError: one line that names what could not be done.
    MissingExtraError: what migrates is not installed."""
    require("migrate", "alembic", "migrating the database")
    backend = settings.backend()
    await probe(backend, PROBE_TIMEOUT_S)
    await migrate(backend.database_url, settings.ledger_partition_days)
    ledger = await Ledger.open(backend.database_url, "wharfinger-topic-setup")
    try:
        if logins:
            await make_own_logins(ledger.database)
        settings = await with_fleet_shards(ledger, settings, begin=True)
        made = await ensure_topics(backend, topic_specs(settings))
        created = {name for name, new in made.items() if new}
        ids = await topic_ids(backend)
        known = {topic.name: identity(topic.name, ids, backend.boot_id) for topic in TOPICS}
        incarnations = await ledger.incarnation(
            [topic.name for topic in TOPICS], created, backend.boot_id, known
        )
        return TopicSetup(incarnations, frozenset(created), ledger.database.identity)
    finally:
        await ledger.close()


async def make_own_logins(database: Database) -> None:
    """Those of `database_logins`. The user must be the owner of the tables, and may make roles."""
    # services load this module and need neither
    from wharfinger.runtime.database_logins import LOGINS
    from wharfinger.runtime.ledger.roles import DatabaseLogin, make_logins, make_roles

    await make_roles(database)
    await make_logins(database, [DatabaseLogin(name, roles) for name, roles in LOGINS.items()])


def topic_specs(settings: Settings) -> list[TopicSpec]:
    """The table of topics with this plane's partition counts. Topics partitioned by the same thing
    get the same count."""
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
            return settings.shards
        case PartitionBy.KEY:
            return DECISION_PARTITIONS
        case PartitionBy.ONE:
            return 1


def main() -> int:
    """The program: where things are comes as one JSON line with settings, the incarnations or an
    error go out as another."""
    said = sys.stdin.readline()
    if not said:
        return 1  # the supervisor died before it knew
    try:
        wanted = json.loads(said)
        laid = asyncio.run(lay(load_settings(wanted["settings"]), logins=wanted["logins"]))
    except (BackendError, LedgerError, SettingsError) as error:
        print(json.dumps({"error": " ".join(str(error).split())}))
        return 2
    print(json.dumps({"incarnations": dict(laid.incarnations), "database": laid.database}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
