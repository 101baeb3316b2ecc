"""The raw limits under the plane, in the same run: the broker alone, the database alone, no Faust
and no engine."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from wharfinger.runtime.backends import plain_database_url

TOPIC = "bench-raw"
RECORDS = 50_000
RECORD_BYTES = 400
ROWS = 50_000
ROWS_A_COMMIT = 1000


@dataclass(frozen=True, slots=True)
class RawLimits:
    """Records and rows a second; a row is 400 bytes, a thousand of them a durable transaction."""

    produce: float
    consume: float
    copy_rows: float


async def raw_limits(bootstrap: str, database_url: str) -> RawLimits:
    produce, consume = await _broker(bootstrap)
    return RawLimits(produce, consume, await _copy(database_url))


async def _broker(bootstrap: str) -> tuple[float, float]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 1, 1)])
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=2, max_batch_size=256 * 1024)
    await producer.start()
    body = os.urandom(RECORD_BYTES)
    began = time.perf_counter()
    futures = []
    builder = producer.create_batch()
    for _ in range(RECORDS):
        if builder.append(key=None, value=body, timestamp=None) is None:
            futures.append(await producer.send_batch(builder, TOPIC, partition=0))
            builder = producer.create_batch()
            builder.append(key=None, value=body, timestamp=None)
    futures.append(await producer.send_batch(builder, TOPIC, partition=0))
    for future in futures:
        await future
    produced = RECORDS / (time.perf_counter() - began)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=10
    )
    await consumer.start()
    place = TopicPartition(TOPIC, 0)
    consumer.assign([place])
    await consumer.seek_to_beginning(place)
    began, seen = time.perf_counter(), 0
    while seen < RECORDS:
        seen += sum(len(m) for m in (await consumer.getmany(timeout_ms=1000)).values())
    consumed = RECORDS / (time.perf_counter() - began)
    await consumer.stop()
    await admin.delete_topics([TOPIC])
    await admin.close()
    return produced, consumed


async def _copy(database_url: str) -> float:
    connection = await asyncpg.connect(plain_database_url(database_url))
    try:
        await connection.execute(
            "create table if not exists bench_raw (seq bigint primary key, body bytea not null)"
        )
        await connection.execute("truncate bench_raw")
        body = os.urandom(RECORD_BYTES)
        began = time.perf_counter()
        for start in range(0, ROWS, ROWS_A_COMMIT):
            rows = [(seq, body) for seq in range(start, start + ROWS_A_COMMIT)]
            await connection.copy_records_to_table(
                "bench_raw", records=rows, columns=("seq", "body")
            )
        rate = ROWS / (time.perf_counter() - began)
        await connection.execute("drop table bench_raw")
        return rate
    finally:
        await connection.close()
