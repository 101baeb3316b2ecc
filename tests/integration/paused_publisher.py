"""A publisher in a process of its own that can stop itself (SIGSTOP) right before it sends. Says
`leads`, then `sent` or `refused` of the batch before which it was stopped."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from tests.apps import until

from wharfinger.events.streams import TOPICS
from wharfinger.runtime.backends import CAPABILITIES, Backend
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.producer import Producer
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.settings import Settings
from wharfinger.runtime.topic_setup import partitions
from wharfinger_publisher.app import PublisherService


def stop_before_the_first_batch(service: PublisherService) -> None:
    sends = Producer.send_batch
    stopped = False

    async def send_batch(producer: Producer, batch: Any, topic: str, *, partition: int) -> Any:
        nonlocal stopped
        if stopped:
            return await sends(producer, batch, topic, partition=partition)
        stopped = True
        print("leads", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            future = await sends(producer, batch, topic, partition=partition)
        except BaseException:  # it may also notice first that it has lost its lock, and stop
            print("refused", flush=True)
            raise
        future.add_done_callback(
            lambda done: print("refused" if done.exception() else "sent", flush=True)
        )
        return future

    Producer.send_batch = send_batch  # type: ignore[assignment, method-assign]


async def main(where: dict[str, Any]) -> None:
    capabilities = CAPABILITIES["durable" if where["durable"] else "memory"]
    backend = Backend(where["bootstrap"], where["database_url"], capabilities, where["boot_id"])
    ledger = await Ledger.open(where["database_url"], "paused" if where["pause"] else "successor")
    settings = Settings(fleet_shards=1)
    counts = {t.name: partitions(t, settings) for t in TOPICS}
    context = ServiceContext(
        settings, backend, ledger, {t.name: 1 for t in TOPICS}, counts, where["prefix"]
    )
    service = PublisherService(context)
    if where["pause"]:
        stop_before_the_first_batch(service)
    await service.start()
    if not where["pause"]:
        await until(service.ready)
        print("leads", flush=True)
    await asyncio.Event().wait()  # until it is killed


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
