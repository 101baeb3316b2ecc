"""The Events of one cluster are sent beside its effects and never hold them up: one at a time,
after a burst of effects, and at most so many a second that they take little of an API server that
is busy."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from wharfinger.domain.time import SECOND, Micros
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.pausing import paused
from wharfinger.runtime.logs import get_logger
from wharfinger.stages.actuator.answers import ApiAnswer
from wharfinger.stages.actuator.attempts import FORBIDDEN_S
from wharfinger.stages.actuator.effects import Effect
from wharfinger.stages.actuator.pod_events import (
    BURST,
    EventBudget,
    PodEvent,
    event_of,
    event_request,
    series_request,
)
from wharfinger_actuator.sending import answered

WAITING_MAX = 1_000
"""Events that wait to be sent. Later ones are left out."""

COUNTED_MAX = 10_000
"""Events of which it is remembered how often they were said."""

HELD_S = 5.0
"""So long Events wait for a burst of effects at most. Of a longer one they are sent beside it."""

log = get_logger(__name__)


class PodEvents:
    """`instance`: the name of this process. `dropped`: how many were left out so far."""

    def __init__(self, cluster: str, instance: str, clock: Callable[[], Micros]) -> None:
        self._cluster = cluster
        self._instance = instance
        self._clock = clock
        self._waiting: asyncio.Queue[tuple[PodEvent, Micros]] = asyncio.Queue(WAITING_MAX)
        self._budget = EventBudget()
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._stopped_until: Micros = 0
        self._free = asyncio.Event()
        self._free.set()
        self._held_until: Micros = 0
        self.dropped = 0

    def offer(self, effect: Effect) -> None:
        """Called when the effect was carried out."""
        event = event_of(effect)
        if event is None:
            return
        at = self._clock()
        if self._waiting.full() or at < self._stopped_until:
            self.dropped += 1
            return
        self._waiting.put_nowait((event, at))

    def hold(self) -> None:
        """A burst of effects begins. Events wait until `free`, for `HELD_S` at most."""
        self._free.clear()
        self._held_until = self._clock() + int(HELD_S * SECOND)

    def free(self) -> None:
        self._free.set()

    async def _until_free(self) -> None:
        left = (self._held_until - self._clock()) / SECOND
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left)):
                await self._free.wait()

    async def run(self, api: KubeApi) -> None:
        """Until cancelled."""
        dropped = 0
        while True:
            events = [await self._waiting.get()]
            while len(events) < BURST and not self._waiting.empty():
                events.append(self._waiting.get_nowait())
            if not await paused(api):
                for event, at in events:
                    await self._until_free()
                    await asyncio.sleep(self._budget.take(self._clock()) / SECOND)
                    await self._send(api, event, at)
            if self.dropped > dropped:
                log.info("events.dropped", cluster=self._cluster, count=self.dropped - dropped)
                dropped = self.dropped

    async def _send(self, api: KubeApi, event: PodEvent, at: Micros) -> None:
        """`at`: when it was carried out."""
        answer = await answered(api, event_request(event, self._instance, at))
        count = 1
        if answer.code == 409:
            count = self._counts.get(event.name, 1) + 1
            answer = await answered(api, series_request(event, count, at))
        self._counts[event.name] = count
        self._counts.move_to_end(event.name)
        if len(self._counts) > COUNTED_MAX:
            self._counts.popitem(last=False)
        self._note(event, answer, self._clock())

    def _note(self, event: PodEvent, answer: ApiAnswer, at: Micros) -> None:
        if 200 <= answer.code < 300:
            return
        if answer.code in (401, 403):
            self._stopped_until = at + int(FORBIDDEN_S * SECOND)
        log.info(
            "event.not_sent",
            cluster=self._cluster,
            object=str(event.pod),
            reason=event.reason,
            code=answer.code,
            why=answer.message,
        )
