"""Readers of a broker that does not wake them, and how often they have asked it."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.patience import eventually

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.fetch_pacing import Pace, PacedFetches
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.send_signals import SendSignals


@asynccontextmanager
async def reading(
    backend: Backend,
    topic: str,
    pace: Pace,
    signals: SendSignals | None,
    name: str,
    silence_s: float = 1e6,
    also: str = "",
) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer of all four partitions, at their ends, for which nothing has come for a long
    time. `also`: another topic of four."""
    consumer = AIOKafkaConsumer(
        **backend.client_options(),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        topics = [topic, also] if also else [topic]
        fetches = PacedFetches(consumer, name, topics, pace, signals)
        partitions = [TopicPartition(one, p) for one in topics for p in range(4)]
        consumer.assign(partitions)
        await eventually(lambda: empty(name) > 2)
        fetches._silent_since -= silence_s
        yield consumer
        fetches.close()
    finally:
        await consumer.stop()


def empty(name: str) -> float:
    return float(METRICS.of(name).empty_fetches._value.get())


def fetched(name: str) -> float:
    return float(METRICS.of(name).fetches._value.get())


async def paused(name: str) -> None:
    """Until no fetch has been answered for a while: the reader is in its long pause."""
    while True:
        before = empty(name)
        await asyncio.sleep(0.5)
        if empty(name) == before:
            return
