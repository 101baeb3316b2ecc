"""Calls of a stage to HTTP extenders: each call is sent once, and its answer, or the reason why
there is none, is kept until the stage takes it as an input.

The stage does not wait: it goes on with the work that needs no answer. When a stream is handed over
its open calls are dropped, and the next owner sends them again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from wharfinger.domain.value import Value
from wharfinger.events.codec import made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.tasks import end_tasks
from wharfinger.stages.extender_calls import ExtenderCall

log = get_logger()

AT_ONCE_MAX = 64
"""ExtenderClient under way at a time, over all streams of a process."""


class ExtenderTransport(Protocol):
    async def ask(self, ask: ExtenderCall) -> tuple[str, str]:
        """(answer, "") or ("", why there is none). Never raises."""
        ...

    async def close(self) -> None: ...


class ExtenderClient:
    """The calls of one loop's streams that are open, and the answers not taken yet. `asker`: None
    for HTTP. `woken`: called when an answer has come."""

    def __init__(self, asker: ExtenderTransport | None, woken: Callable[[], object]) -> None:
        self._asker = asker
        self._woken = woken
        self._under_way: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._answers: dict[str, deque[Event[Value]]] = {}
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    def put(self, stream: str, asks: Sequence[ExtenderCall]) -> None:
        """Set the open calls of a stream: a new one is sent, and one that is not among `asks` any
        more is cancelled."""
        wanted = {ask.id: ask for ask in asks}
        waiting = {
            event.data.ask
            for event in self._answers.get(stream, ())
            if isinstance(event.data, ExtenderAnswered)
        }
        for of, id in [key for key in self._under_way if key[0] == stream and key[1] not in wanted]:
            self._under_way.pop((of, id)).cancel()
        for id, ask in wanted.items():
            if (stream, id) not in self._under_way and id not in waiting:
                self._under_way[stream, id] = asyncio.create_task(
                    self._ask(stream, ask), name=f"ask-{stream}"
                )

    def take(self, stream: str) -> list[Event[Value]]:
        return list(self._answers.pop(stream, ()))

    def drop(self, stream: str) -> None:
        self.put(stream, ())
        self._answers.pop(stream, None)

    async def close(self) -> None:
        await end_tasks(self._under_way.values())
        self._under_way.clear()
        if self._asker is not None:
            await self._asker.close()

    async def _transport(self) -> ExtenderTransport:
        """Loaded with the first call, in a thread: other streams are decided meanwhile."""
        if self._asker is None:
            loaded = await asyncio.to_thread(_http)
            self._asker = self._asker or loaded  # another call may have been first
        return self._asker

    async def _ask(self, stream: str, ask: ExtenderCall) -> None:
        async with self._places:
            answer, error = await (await self._transport()).ask(ask)
        if error:
            log.warning("extender.no_answer", stream=stream, why=error)
        data = ExtenderAnswered(stream, ask.id, answer, error)
        event = made(
            data,
            id=derived_id("answer", stream, ask.id),
            source=f"/wharfinger/{stream}",
            subject=stream,
        )
        del self._under_way[stream, ask.id]
        self._answers.setdefault(stream, deque()).append(event)
        self._woken()


def _http() -> ExtenderTransport:
    from wharfinger.runtime.extender_http import HttpTransport

    return HttpTransport()
