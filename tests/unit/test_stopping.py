"""Readers and services end although a library waits for itself, or loses a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from wharfinger.runtime import broadcast
from wharfinger.runtime import tasks as runtime_tasks
from wharfinger.runtime.broadcast import stop_consumer
from wharfinger.runtime.tasks import end_tasks


class Hanging:
    """As the client stops: it waits for its own task, and takes a cancellation to be that task's.
    `tasks`: how many it waits for, one after the other."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self.waits = asyncio.Event()
        self.over = asyncio.Event()

    async def stop(self) -> None:
        for _ in range(self._tasks):
            self.waits.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        self.over.set()


async def test_a_consumer_that_does_not_stop_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "STOP_PATIENCE_S", 0.01)
    consumer: Any = Hanging(1)
    await stop_consumer(consumer)
    await consumer.over.wait()


async def test_a_cancellation_reaches_whoever_stops_a_consumer() -> None:
    consumer: Any = Hanging(1)
    stopping = asyncio.create_task(stop_consumer(consumer))
    await consumer.waits.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await consumer.over.wait()


async def test_an_error_of_the_client_is_told() -> None:
    class Failing:
        async def stop(self) -> None:
            raise OSError("the broker is gone")

    consumer: Any = Failing()
    with pytest.raises(OSError, match="the broker is gone"):
        await stop_consumer(consumer)


async def test_a_task_that_lost_its_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_tasks, "CANCEL_AGAIN_S", 0.01)
    losing, failing = Hanging(3), Hanging(1)

    async def fails() -> None:
        await failing.stop()
        raise OSError("the database is away")

    tasks = [asyncio.create_task(losing.stop()), asyncio.create_task(fails())]
    await losing.waits.wait()
    await failing.waits.wait()
    await end_tasks(tasks)
    assert losing.over.is_set()
    assert failing.over.is_set()
    await end_tasks([])
