"""Sends what API servers answered to the topic `wharfinger.effects`.

The broker is not waited for: what was answered is kept until it is acknowledged. It is lost with
the process; what is still open is then sent and answered again.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

from aiokafka.errors import KafkaError

from wharfinger.events.codec import encode
from wharfinger.events.effects import ITEMS_MAX, EffectAnswer, EffectsObserved
from wharfinger.events.streams import EFFECTS
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.producer import Producer, idempotent_producer, started
from wharfinger.runtime.service import ServiceContext

SEND_S = 0.5
"""For so long answers are gathered."""

AWAY_S = 5.0
"""After this it is sent again to a broker that was away."""

WAITING_MAX = 10_000
"""Answers that are kept while the broker is away. Beyond it those are left out that no stage
decides about, the oldest first."""

log = get_logger(__name__)

_Waiting = dict[str, list[EffectAnswer]]
"""Cluster -> answers."""


class EffectSender:
    """`instance`: the name of this process. `dropped`: how many answers were left out so far."""

    def __init__(self, context: ServiceContext, instance: str) -> None:
        self._context = context
        self._source = f"/wharfinger/actuator/{instance}"
        self._deciding: _Waiting = {}
        self._others: _Waiting = {}
        self._kept: list[tuple[EffectsObserved, bytes]] = []
        self._producer: Producer | None = None
        self._wake = asyncio.Event()
        self.dropped = 0

    def offer(self, cluster: str, answer: EffectAnswer) -> None:
        waiting = self._deciding if answer.against_decision else self._others
        of_cluster = waiting.setdefault(cluster, [])
        of_cluster.append(answer)
        if waiting is self._others and len(of_cluster) > WAITING_MAX:
            del of_cluster[0]
            self.dropped += 1
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(SEND_S)
                self._wake.clear()
                if not await self._sent():
                    await asyncio.sleep(AWAY_S)
                    self._wake.set()
        finally:
            producer, self._producer = self._producer, None
            if producer is not None:
                await producer.stop()

    async def _sent(self) -> bool:
        """Whether everything is acknowledged that was to be sent. What a stage decides about goes
        in messages of its own: the others are no inputs."""
        if not self._kept:
            self._kept = [
                (message, encode_answers(message, self._source))
                for waiting in (self._deciding, self._others)
                for message in taken(waiting)
            ]
        try:
            producer = await self._started()
            while self._kept:
                message, body = self._kept[0]
                cluster = message.cluster
                acknowledged = await producer.send(
                    self._context.wire(EFFECTS.name),
                    body,
                    key=cluster.encode(),
                    partition=self._context.cluster_partition(cluster),
                )
                await acknowledged
                self._kept.pop(0)
        except (KafkaError, OSError) as error:
            log.warning("broker.away", service="actuator", why=f"{type(error).__name__}: {error}")
            return False
        return not (self._deciding or self._others)

    async def _started(self) -> Producer:
        if self._producer is None:
            self._producer = await started(
                idempotent_producer(
                    self._context.backend,
                    client_id="wharfinger-actuator",
                    sent=self._context.signals.sent,
                )
            )
        return self._producer


def taken(waiting: _Waiting) -> list[EffectsObserved]:
    """The answers that wait, as messages; none waits after that."""
    found = [
        EffectsObserved(cluster, tuple(answers[start : start + ITEMS_MAX]))
        for cluster, answers in sorted(waiting.items())
        for start in range(0, len(answers), ITEMS_MAX)
    ]
    waiting.clear()
    return found


def encode_answers(message: EffectsObserved, source: str) -> bytes:
    cluster = message.cluster
    return encode(message, id=uuid4(), source=source, subject=cluster, key=cluster)
