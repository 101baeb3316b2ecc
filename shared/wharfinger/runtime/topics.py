"""We create the topics ourselves, with the partition counts that the code relies on, and never use
a broker's defaults.

The counts are part of the contract: in every writer `partition_for` gives the same partition for a
key, and a join of two topics needs the same partitioning in both. So a topic that exists with
another count is an error.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code
from aiokafka.partitioner import murmur2

from wharfinger.domain.binding import range_key
from wharfinger.domain.text import one_line
from wharfinger.events.streams import BATCH_BYTES_MAX, RECORD_BYTES_MAX, TOPICS
from wharfinger.runtime.backends import Backend, BackendError

PUBLISHER = "publisher"
Cleanup = Literal["compact", "delete"]
BROKER_DEFAULT = -1  # replication as the broker's administrator chose it
ADMIN_TIMEOUT_MS = 30_000
AROUND_BYTES = 4096
"""What a batch of one record takes beside the record's value, at most: its key, and what Kafka
writes around them."""
METADATA_PATIENCE_S = 10.0
METADATA_POLL_S = 0.05
MESSAGE_BYTES = "max.message.bytes"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as it must be. `retention_ms` is for `delete` topics; None leaves it to the
    broker."""

    name: str
    partitions: int
    cleanup: Cleanup
    retention_ms: int | None = None

    def configuration(self) -> dict[str, str]:
        settings: dict[str, str] = {
            "cleanup.policy": self.cleanup,
            MESSAGE_BYTES: str(BATCH_BYTES_MAX),
        }
        if self.retention_ms is not None:
            settings["retention.ms"] = str(self.retention_ms)
        return settings


def partition_for(key: str, partitions: int) -> int:
    """Where a key lies: murmur2 of its UTF-8 bytes without the sign bit, modulo the count, as
    Kafka's own default."""
    return _hash_of(key) % partitions


def shard_for(binding: str, shards: int) -> int:
    """The fleet shard of a binding, or of a component of it: that of its namespace."""
    return partition_for(range_key(binding), shards)


@lru_cache(maxsize=65_536)
def _hash_of(key: str) -> int:
    """Kept, because the hash is plain Python and a fleet's keys come again and again."""
    return int(murmur2(key.encode())) & 0x7FFF_FFFF


async def ensure_topics(
    backend: Backend, specs: Sequence[TopicSpec], prefix: str = ""
) -> dict[str, bool]:
    """Make what is missing. By full name: whether it was really created, which is what ends a
    topic's old incarnation.

    Raises BackendError when an existing topic has another number of partitions, or the broker
    refuses.
    """
    wanted = {prefix + spec.name: spec for spec in specs}
    admin = AIOKafkaAdminClient(**backend.client_options(), request_timeout_ms=ADMIN_TIMEOUT_MS)
    try:
        await admin.start()
        # All topics at once and never by name: some brokers create a topic when they are asked
        # about it.
        existing = await _partition_counts(admin)
        missing = {name: spec for name, spec in wanted.items() if name not in existing}
        created = await _create(admin, missing)
        counts = await _counts_with(admin, created) if missing else existing
    except (KafkaError, OSError) as error:
        raise BackendError(f"broker {backend.bootstrap}: topics: {one_line(error)}") from error
    finally:
        await admin.close()
    _check_counts(wanted, counts)
    return {name: name in created for name in wanted}


async def topic_names(backend: Backend) -> list[str]:
    """Every topic of the broker, in order of name."""
    return sorted(await partition_counts(backend))


async def partition_counts(backend: Backend) -> dict[str, int]:
    """Every topic of the broker and how many partitions it has. KafkaError or OSError when the
    broker does not answer."""
    admin = AIOKafkaAdminClient(**backend.client_options(), request_timeout_ms=ADMIN_TIMEOUT_MS)
    try:
        await admin.start()
        return await _partition_counts(admin)
    finally:
        await admin.close()


async def check_topics(backend: Backend, specs: Sequence[TopicSpec], prefix: str = "") -> None:
    """Look and change nothing. BackendError names every topic that is missing, has another number
    of partitions, or takes smaller records than we send."""
    wanted = {prefix + spec.name: spec for spec in specs}
    try:
        _check_counts(wanted, await partition_counts(backend))
        takes = await configured(backend, wanted, MESSAGE_BYTES)
    except (KafkaError, OSError) as error:
        raise BackendError(f"broker {backend.bootstrap}: topics: {one_line(error)}") from error
    small = [
        f"{name} has {MESSAGE_BYTES} {takes[name]}, at least {BATCH_BYTES_MAX} expected"
        for name in wanted
        if int(takes.get(name, BATCH_BYTES_MAX)) < BATCH_BYTES_MAX
    ]
    if small:
        raise BackendError(
            f"topics: {'; '.join(small)}: large events are divided further, "
            "and the smallest may be refused"
        )


async def configured(backend: Backend, names: Collection[str], setting: str) -> dict[str, str]:
    """The value of one setting for each of these topics, as far as the broker reports it.
    KafkaError or OSError when it does not answer."""
    if not backend.capabilities.retention:
        # topics of the embedded broker have no settings, and it ends the connection when it is
        # asked
        return {}
    admin = AIOKafkaAdminClient(**backend.client_options(), request_timeout_ms=ADMIN_TIMEOUT_MS)
    try:
        await admin.start()
        asked = [ConfigResource(ConfigResourceType.TOPIC, name, {setting: ""}) for name in names]
        answers = await admin.describe_configs(asked)
    finally:
        await admin.close()
    found: dict[str, str] = {}
    for answer in answers:
        for entry in _entries(answer, "resources"):
            for config in entry["config_entries"]:
                if config["config_names"] == setting and config["config_value"] is not None:
                    found[entry["resource_name"]] = config["config_value"]
    return found


async def largest_records(backend: Backend, prefix: str = "") -> dict[str, int]:
    """How many bytes a record's value may have, by topic of the stream table: our limit, or the
    broker's if it is lower."""
    names = {prefix + topic.name: topic.name for topic in TOPICS}
    found = await configured(backend, names, MESSAGE_BYTES)
    takes = {topic: int(found.get(name, BATCH_BYTES_MAX)) for name, topic in names.items()}
    return {
        topic: min(RECORD_BYTES_MAX, max(size - AROUND_BYTES, size // 2))
        for topic, size in takes.items()
    }


async def delete_topics(backend: Backend, names: Sequence[str]) -> None:
    """Forget topics and free their memory. Names that do not exist are passed over."""
    admin = AIOKafkaAdminClient(**backend.client_options(), request_timeout_ms=ADMIN_TIMEOUT_MS)
    try:
        await admin.start()
        existing = await _partition_counts(admin)
        if doomed := [name for name in names if name in existing]:
            await admin.delete_topics(doomed)
    finally:
        await admin.close()


async def _create(admin: AIOKafkaAdminClient, specs: Mapping[str, TopicSpec]) -> set[str]:
    """The names that were really made; one that another process made in the meantime is not among
    them."""
    if not specs:
        return set()
    response = await admin.create_topics(
        [
            # The empty assignment is how the client lets the replication be the broker's default.
            NewTopic(
                name,
                spec.partitions,
                BROKER_DEFAULT,
                replica_assignments={},
                topic_configs=spec.configuration(),
            )
            for name, spec in specs.items()
        ]
    )
    answers: list[tuple[str, int, str | None]] = [
        (entry["topic"], entry["error_code"], entry.get("error_message"))
        for entry in _entries(response, "topic_errors")
    ]
    created = set()
    for name, code, message in answers:
        if code == 0:
            created.add(name)
        elif code != TopicAlreadyExistsError.errno:
            raise BackendError(f"topic {name}: not created: {message or for_code(code).__name__}")
    return created


async def _counts_with(admin: AIOKafkaAdminClient, names: Set[str]) -> dict[str, int]:
    """As `_partition_counts`, once the broker reports `names` too: it does so a moment after it has
    created them."""
    counts = await _partition_counts(admin)
    patience = METADATA_PATIENCE_S
    while patience > 0 and not all(counts.get(name) for name in names):
        await asyncio.sleep(METADATA_POLL_S)
        patience -= METADATA_POLL_S
        counts = await _partition_counts(admin)
    return counts


async def _partition_counts(admin: AIOKafkaAdminClient) -> dict[str, int]:
    return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}


def _entries(response: Any, field: str) -> list[dict[str, Any]]:
    """The admin client gives protocol structures; this is where they become plain values."""
    entries: list[dict[str, Any]] = response.to_object()[field]
    return entries


def _check_counts(wanted: Mapping[str, TopicSpec], counts: Mapping[str, int]) -> None:
    wrong = [
        f"{name} has {counts.get(name, 0)} partitions, {spec.partitions} expected"
        for name, spec in wanted.items()
        if counts.get(name) != spec.partitions
    ]
    if wrong:
        raise BackendError(f"topics: {'; '.join(wrong)}: counts are fixed for life")


def publisher_lock(prefix: str) -> str:
    """The name of the lock of the one process that writes to the topics: the publisher that leads,
    or one that makes a topic again."""
    return f"{PUBLISHER}/{prefix}"
