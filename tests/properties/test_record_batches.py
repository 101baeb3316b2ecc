"""Batches of records through rebalances: what was read before one is never handed over together
with what is read again after it."""

# mypy: allow-untyped-calls
# (the driver ships no types)

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from faust.events import Event
from faust.types import ChannelT
from faust.types.tuples import TP, ConsumerMessage
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.runtime.backends import MEMORY, Backend
from wharfinger.runtime.faust_app import RawStream, Received, ServiceApp, faust_app, take

NOWHERE = Backend("127.0.0.1:1", "postgresql+asyncpg:///nowhere", MEMORY)
TOPIC = "bindings"


@dataclass(frozen=True)
class Arrive:
    """A fetch of so many records comes, and the reader runs for so many turns of the loop."""

    records: int
    turns: int


@dataclass(frozen=True)
class Rebalance:
    """Reading begins again, so many records before the one that would have come next."""

    back: int
    turns: int


STEPS = st.lists(
    st.builds(Arrive, st.integers(1, 8), st.integers(0, 12))
    | st.builds(Rebalance, st.integers(0, 9), st.integers(0, 12)),
    min_size=1,
    max_size=12,
)


class Feed:
    """Plays the consumer for one stream of an app that was never started."""

    def __init__(self, app: ServiceApp) -> None:
        self._app = app
        self.stream: RawStream = app.channel(key_type=bytes, value_type=bytes).stream()
        self._channel = cast(ChannelT[Any], self.stream.channel)
        self.next = 0
        app.consumer_generation_id = 1
        app.flow_control.resume()

    async def arrive(self, count: int) -> None:
        """One fetch of so many records."""
        generation = self._app.consumer_generation_id
        consumer: Any = None  # nothing is acknowledged
        fetch = [
            Received(TOPIC, 0, self.next + i, b"k", b"v", (), generation, consumer)
            for i in range(count)
        ]
        self.next += count
        last = ConsumerMessage(
            TOPIC,
            partition=0,
            offset=self.next - 1,
            timestamp=0.0,
            timestamp_type=0,
            headers=[],
            key=b"k",
            value=b"v",
            checksum=None,
            tp=TP(TOPIC, 0),
            generation_id=generation,
        )
        await self._channel.put(Event(self._app, None, fetch, None, last))

    def rebalance(self, back: int) -> None:
        """As Faust does it: the flow stands still, the buffers are emptied, the group has its next
        generation, partitions are sought back."""
        self._app.flow_control.suspend()
        self._app.flow_control.clear()
        self._app.consumer_generation_id += 1
        self.next = max(0, self.next - back)
        self._app.flow_control.resume()


async def _batches(
    steps: list[Arrive | Rebalance], take_max: int
) -> tuple[list[list[Received]], Feed]:
    app = faust_app("tests", NOWHERE, group="tests")
    feed = Feed(app)
    found: list[list[Received]] = []

    async def read() -> None:
        async for batch in take(feed.stream, take_max):
            found.append(batch)

    reading = asyncio.create_task(read())
    try:
        for step in (*steps, Arrive(1, 0)):
            if isinstance(step, Arrive):
                await feed.arrive(step.records)
            else:
                feed.rebalance(step.back)
            for _ in range(step.turns):
                await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
    return found, feed


@given(steps=STEPS, take_max=st.integers(1, 6))
def test_a_batch_is_of_one_generation_and_what_is_current_is_complete(
    steps: list[Arrive | Rebalance], take_max: int
) -> None:
    batches, feed = asyncio.run(_batches(steps, take_max))
    for batch in batches:
        assert len({record.generation for record in batch}) == 1
        offsets = [record.offset for record in batch]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        assert 0 < len(batch) <= take_max
    last = max(record.generation or 0 for batch in batches for record in batch)
    current = [r.offset for batch in batches for r in batch if r.generation == last]
    assert current == list(range(current[0], feed.next))
