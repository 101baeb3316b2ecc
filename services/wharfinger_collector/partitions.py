"""Which clusters are this process's: a membership in a consumer group that reads nothing.

Clusters are shared out among the collectors as they are among the other services: by the partitions
of the topics that are keyed by cluster. The partitions are paused, so no record is fetched.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from wharfinger.events.streams import ASSIGNMENTS
from wharfinger.runtime.broadcast import stop_consumer
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.service import ServiceContext

AGAIN_S = 1.0

log = get_logger(__name__)


class Partitions(ConsumerRebalanceListener):
    """`changed` is called with the partitions that are ours from now on. `mine`: None while the
    group is being joined."""

    def __init__(
        self, name: str, context: ServiceContext, changed: Callable[[frozenset[int]], None]
    ) -> None:
        self._name = name
        self._context = context
        self._changed = changed
        self._consumer: AIOKafkaConsumer | None = None
        self.mine: frozenset[int] | None = None

    async def run(self) -> None:
        """Until cancelled. A broker that is away takes no cluster: facts go to the ledger."""
        while True:
            try:
                await self._join()
            except (KafkaError, OSError) as error:
                log.warning("broker.away", service=self._name, why=f"{type(error).__name__}")
            await asyncio.sleep(AGAIN_S)

    async def _join(self) -> None:
        capabilities = self._context.backend.capabilities
        self._consumer = consumer = AIOKafkaConsumer(
            **self._context.backend.client_options(),
            client_id=f"wharfinger-{self._name}",
            group_id=self._context.group(self._name),
            enable_auto_commit=False,
            auto_offset_reset="latest",
            session_timeout_ms=int(capabilities.session_s * 1000),
            heartbeat_interval_ms=int(capabilities.heartbeat_s * 1000),
            rebalance_timeout_ms=int(capabilities.rebalance_s * 1000),
        )
        consumer.subscribe([self._context.wire(ASSIGNMENTS.name)], listener=self)
        try:
            await consumer.start()
            while True:
                # A member that waits for records is alive to the group; of paused partitions none
                # come.
                await consumer.getone()
        finally:
            await stop_consumer(consumer)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """They are kept until others are assigned: a rebalance ends in a moment, and every list
        that it would cost takes longer."""

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        assert self._consumer is not None
        self._consumer.pause(*assigned)
        self.mine = frozenset(tp.partition for tp in assigned)
        self._changed(self.mine)
