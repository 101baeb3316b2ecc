"""What API servers answered last about what is open, read from the topic of actuators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from wharfinger.events.codec import decode
from wharfinger.events.effects import EffectAnswer, EffectsObserved
from wharfinger.events.streams import EFFECTS
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.broadcast import BroadcastConsumer
from wharfinger.stages.actuator.copies import CopyWrite
from wharfinger.stages.actuator.effects import Effect

AnswerKey = tuple[str, str, str, str, str, str]
"""Cluster, action, kind, namespace, name and uid of the object."""


def key_of(cluster: str, effect: Effect | CopyWrite) -> AnswerKey:
    named = effect.object
    return cluster, effect.action, named.kind, named.namespace, named.name, named.uid


async def latest_answers(
    backend: Backend, topic: str = EFFECTS.name
) -> Mapping[AnswerKey, EffectAnswer]:
    """The last answer about each object, of those that the topic keeps (7 days). `topic`: its name
    on the broker. BackendError: the broker cannot be reached."""
    found: dict[AnswerKey, EffectAnswer] = {}
    async with BroadcastConsumer(backend, [topic], client_id="wharfinger-effects") as consumer:
        reading = asyncio.create_task(_read(consumer, found))
        caught_up = asyncio.create_task(consumer.caught_up.wait())
        try:
            done, _ = await asyncio.wait({reading, caught_up}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (reading, caught_up):
                task.cancel()
            await asyncio.gather(reading, caught_up, return_exceptions=True)
    return found


async def _read(consumer: BroadcastConsumer, found: dict[AnswerKey, EffectAnswer]) -> None:
    async for batch in consumer.batches():
        for record in batch:
            data = None if record.value is None else decode(record.value).data
            if isinstance(data, EffectsObserved):
                for item in data.items:
                    named = item.kind, item.namespace, item.name, item.uid
                    found[(data.cluster, item.action, *named)] = item
