"""The one producer: acknowledged by all replicas, idempotent, its retries leave one record.

Order within a partition holds over retries because of the idempotence; order across partitions is nobody's promise.
The aiokafka release we pin asks for a producer id in the oldest form of the request only, which the memory broker
does not answer; `teach_producer_id_v3` adds the form that every broker since Kafka 2.5 speaks.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.protocol import transaction
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import CompactString, Int16, Int32, Int64, Schema, TaggedFields

from wharfinger.runtime.backends import Backend

RECORD_BYTES_MAX = 8 * 1024 * 1024
BATCH_BYTES_MAX = 256 * 1024
STOP_PATIENCE_S = 5.0

NO_PRODUCER_ID = -1
NO_EPOCH = -1

log = structlog.get_logger(__name__)


class _InitProducerIdResponseV3(Response):
    API_KEY = 22
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("tags", TaggedFields),
    )


class _InitProducerIdRequestV3(RequestStruct):
    API_KEY = 22
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _InitProducerIdResponseV3
    SCHEMA = Schema(
        ("transactional_id", CompactString("utf-8")),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("tags", TaggedFields),
    )


def teach_producer_id_v3() -> bool:
    """Let aiokafka negotiate version 3 of InitProducerId. True when it can, also when it already could.

    The places we touch are private, so a release that moved them is told in the log and left as it is: brokers that
    answer version 0 still work, the memory broker then refuses the producer at its start.
    """
    request = transaction.InitProducerIdRequest
    try:
        classes = request._CLASSES
        if any(known.API_VERSION >= _InitProducerIdRequestV3.API_VERSION for known in classes):
            return True
        build = request.build

        def build_any(self: transaction.InitProducerIdRequest, version: type[Any]) -> RequestStruct:
            if version is not _InitProducerIdRequestV3:
                return build(self, version)
            asked = (self._transactional_id, self._transaction_timeout_ms)
            return _InitProducerIdRequestV3(*asked, NO_PRODUCER_ID, NO_EPOCH, {})

        setattr(request, "build", build_any)  # noqa: B010
        setattr(request, "_CLASSES", (*classes, _InitProducerIdRequestV3))  # noqa: B010
    except (AttributeError, TypeError) as error:
        log.warning("producer_id_v3_not_taught", reason=str(error))
        return False
    return True


class Producer(AIOKafkaProducer):
    """The driver's own, but for its stop, which waits for ever when records are under way to a broker that is gone."""

    async def stop(self) -> None:
        """Flush and close. What the broker did not acknowledge in time is for the caller's own redelivery."""
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await super().stop()
        except TimeoutError:
            log.warning("producer_not_flushed", client_id=self.client._client_id, waited_s=STOP_PATIENCE_S)
            await self._abandon()

    async def _abandon(self) -> None:
        if self._sender is not None:
            await self._sender.close()
        await self.client.close()


def idempotent_producer(backend: Backend, *, client_id: str, linger_ms: int = 0) -> Producer:
    """A producer that is not started yet; call it in a running loop, `await start()` it, `await stop()` it.

    Writers choose the partition themselves with `topics.partition_for`.
    """
    teach_producer_id_v3()
    return Producer(
        **backend.client_options(),
        client_id=client_id,
        enable_idempotence=backend.capabilities.idempotence,
        acks="all",
        linger_ms=linger_ms,
        max_request_size=RECORD_BYTES_MAX,
        max_batch_size=BATCH_BYTES_MAX,
        metadata_max_age_ms=backend.capabilities.metadata_max_age_ms,
    )
