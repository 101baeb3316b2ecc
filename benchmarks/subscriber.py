"""A subscriber to `wharfinger.decisions`: what the world sees, and when."""

# mypy: allow-untyped-calls
# (the driver ships no types)

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, TopicPartition

from wharfinger.events.codec import frame_of
from wharfinger.events.streams import DECISIONS

FLEET = ("io.wharfinger.schedule.decided.v1", "io.wharfinger.schedule.refused.v1")
NODE = ("io.wharfinger.replicas.placed.v1", "io.wharfinger.replicas.refused.v1")


@dataclass(slots=True)
class Seen:
    """`first_fleet`, `first_node`: binding -> when its first decision of the kind was seen
    (seconds, wall clock). `ids`: how often each id came. `last_at`: when the last record came."""

    first_fleet: dict[str, float] = field(default_factory=dict)
    first_node: dict[str, float] = field(default_factory=dict)
    ids: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    last_at: float = 0.0


class Subscriber:
    """Reads every partition from where it begins, until told to stop."""

    def __init__(self, bootstrap: str, fetch_wait_ms: int = 10) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=fetch_wait_ms,
        )
        self.seen = Seen()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Subscriber:
        await self._consumer.start()
        brokers = await self._consumer._client.fetch_all_metadata()
        partitions = sorted(brokers.partitions_for_topic(DECISIONS.name) or ())
        self._consumer.assign([TopicPartition(DECISIONS.name, p) for p in partitions])
        await self._consumer.seek_to_beginning()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._consumer.stop()

    async def until(
        self, done: Callable[[Seen], bool], timeout_s: float, quiet_s: float = 0.0
    ) -> bool:
        """Wait until `done`, then until nothing has come for `quiet_s`. False when the time is over
        first."""
        end = time.time() + timeout_s
        while time.time() < end:
            if done(self.seen) and time.time() - self.seen.last_at >= quiet_s:
                return True
            await asyncio.sleep(0.02)
        return False

    async def _read(self) -> None:
        while True:
            batches = await self._consumer.getmany(timeout_ms=200, max_records=2000)
            now = time.time()
            for messages in batches.values():
                for message in messages:
                    if message.value is None:
                        continue
                    frame = frame_of(message.value)
                    self.seen.ids[frame.id] += 1
                    self.seen.types[frame.type] += 1
                    self.seen.last_at = now
                    if frame.type in FLEET:
                        self.seen.first_fleet.setdefault(frame.subject, now)
                    elif frame.type in NODE:
                        self.seen.first_node.setdefault(frame.subject, now)
