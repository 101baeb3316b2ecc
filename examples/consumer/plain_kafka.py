"""Keep every decision in a database of your own, with aiokafka and SQLite alone.

    python examples/consumer/plain_kafka.py --bootstrap 127.0.0.1:9092 --database decided.db

The offsets are in the same database and move in the same transaction, so the consumer group's own
offsets are not used. A record that the publisher sent twice has the id of the first.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sqlite3
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

TOPIC = "wharfinger.decisions"
PART = "io.wharfinger.event.part.v1"

Parts = dict[str, tuple[int, list[bytes]]]
"""Event -> the offset of its first part, and what has come of it."""


def whole(parts: Parts, offset: int, event: dict[str, Any]) -> dict[str, Any] | None:
    """An event above 1 MB comes in parts. None: its last part is still to come."""
    if event["type"] != PART:
        return event
    part = event["data"]
    if part["part"] == 1:
        parts[part["event"]] = (offset, [])
    _, payloads = parts.get(part["event"], (0, []))
    if len(payloads) + 1 != part["part"]:
        return None
    payloads.append(base64.b64decode(part["payload"]))
    if part["part"] < part["parts"]:
        return None
    del parts[part["event"]]
    found: dict[str, Any] = json.loads(b"".join(payloads))
    return found


async def partitions(bootstrap: str) -> list[TopicPartition]:
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        (topic,) = await admin.describe_topics([TOPIC])
    finally:
        await admin.close()
    if not topic["partitions"]:
        raise SystemExit(f"{bootstrap} has no topic {TOPIC}")
    return [TopicPartition(TOPIC, n) for n in sorted(p["partition"] for p in topic["partitions"])]


async def run(args: argparse.Namespace) -> None:
    own = sqlite3.connect(args.database, isolation_level=None)
    own.execute("create table if not exists decided (id text primary key, type text, subject text)")
    own.execute("create table if not exists offsets (partition integer primary key, next integer)")
    assigned = await partitions(args.bootstrap)
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=args.bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign(assigned)
        known = dict(own.execute("select partition, next from offsets"))
        for partition, earliest in (await consumer.beginning_offsets(assigned)).items():
            following = known.get(partition.partition, earliest)
            if following < earliest:
                raise SystemExit(f"{partition}: records were removed before they were read")
            consumer.seek(partition, following)
        parts: dict[int, Parts] = {partition.partition: {} for partition in assigned}
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                own.execute("begin immediate")
                held = parts[partition.partition]
                for record in records:
                    event = whole(held, record.offset, json.loads(record.value))
                    if event is not None:
                        own.execute(
                            "insert or ignore into decided values (?, ?, ?)",
                            (event["id"], event["type"], event.get("subject", "")),
                        )
                following = min([records[-1].offset + 1, *(first for first, _ in held.values())])
                own.execute(
                    "insert or replace into offsets values (?, ?)", (partition.partition, following)
                )
                own.execute("commit")
    finally:
        await consumer.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--database", required=True)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
