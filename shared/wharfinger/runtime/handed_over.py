"""Batches that go from the producers of a process to its readers without a fetch.

A producer has the bytes of a batch, and the broker's answer says at which offsets they are kept. A
reader whose position is there needs nothing else: a fetch would give the same bytes. So they are
handed over in memory, and the client's fetcher reads them as it reads a response.

They are what a fetch right after the acknowledgement would have given. A reader that was sought
somewhere since then may be in another partition: the topic was made again, or the broker has lost
its records. So a batch counts only where the reader's position has been moved by reading alone
since the batch was acknowledged. All else is fetched.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer import subscription_state

from wharfinger.runtime.producer import SentBatch
from wharfinger.runtime.send_signals import HANDED_OVER_BYTES_MAX


class HandedOver:
    """Batches that producers of this process have sent, for one reader; at most
    `HANDED_OVER_BYTES_MAX` of them."""

    def __init__(self) -> None:
        self._batches: dict[TopicPartition, deque[SentBatch]] = {}
        self._bytes = 0

    def add(self, tp: TopicPartition, batch: SentBatch) -> None:
        if self._bytes + len(batch.records) <= HANDED_OVER_BYTES_MAX:
            self._batches.setdefault(tp, deque()).append(batch)
            self._bytes += len(batch.records)

    def take(self, tp: TopicPartition, offset: int, since: float) -> tuple[bytes, int] | None:
        """Batches that follow each other from the one with that offset on, and where they end; None
        where that one is not here. What ends before it, or was acknowledged before `since`, is
        dropped."""
        waiting = self._batches.get(tp)
        found: list[bytes] = []
        while waiting:
            batch = waiting[0]
            if batch.end > offset and batch.at > since:
                if batch.offset > offset:
                    break
                found.append(batch.records)
                offset = batch.end
            self._bytes -= len(waiting.popleft().records)
        return (b"".join(found), offset) if found else None

    def drop(self, tp: TopicPartition, offset: int) -> None:
        """What ends there or before: it was read otherwise, before it was handed over."""
        waiting = self._batches.get(tp)
        while waiting and waiting[0].end <= offset:
            self._bytes -= len(waiting.popleft().records)

    def clear(self) -> None:
        self._batches.clear()
        self._bytes = 0


class AnsweredFetch:
    """In the place of a request to a broker: its answer is here already. The client's fetcher reads
    `topics` as it reads those of a request."""

    def __init__(self, answers: Iterable[tuple[TopicPartition, int, int, bytes]]) -> None:
        """`answers`: partition, offset that is asked for, the partition's end, and batches without
        compression."""
        asked: dict[str, list[tuple[int, int, int]]] = {}
        given: dict[str, list[tuple[Any, ...]]] = {}
        for tp, offset, end, records in answers:
            asked.setdefault(tp.topic, []).append((tp.partition, offset, len(records)))
            given.setdefault(tp.topic, []).append((tp.partition, 0, end, end, [], records))
        self.topics: list[Any] = list(asked.items())
        self.answer = _Answer(list(given.items()))


class _Answer:
    """As a response to a fetch of version 4."""

    API_VERSION = 4

    def __init__(self, topics: list[Any]) -> None:
        self.topics = topics


_PartitionState = subscription_state.TopicPartitionState


class SoughtState(_PartitionState):
    """A partition's state that knows when its position was last set otherwise than by reading, by
    the monotonic clock."""

    sought_at = math.inf

    def seek(self, position: int) -> None:
        self.sought_at = time.monotonic()
        super().seek(position)

    def reset_to(self, position: int) -> None:
        self.sought_at = time.monotonic()
        super().reset_to(position)


def note_seeks() -> None:
    """In all assignments that are made from now on. It replaces a class of the client's module; a
    test notices when that moves."""
    subscription_state.TopicPartitionState = SoughtState  # type: ignore[misc]


def sought_at(state: Any) -> float:
    """Never reached where the state was made before `note_seeks`."""
    return float(getattr(state, "sought_at", math.inf))
