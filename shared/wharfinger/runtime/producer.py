"""The one producer: acknowledged by all replicas, idempotent, its retries leave one record.

Order within a partition holds over retries because of the idempotence; order across partitions is
not promised. Where only one process may write, its producer has a fencing id: the broker gives each
producer that starts with the id a higher epoch, and refuses what one of a lower epoch sends to a
partition that has seen a higher one. That is the fencing of Kafka's transactions without
transactions, which would cost each turn two more round trips and markers in every log.

The aiokafka release we pin asks for a producer id in the oldest form of the request only, which the
memory broker does not answer; `teach_producer_id_v3` adds the form that every broker since Kafka
2.5 speaks.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.errors import BrokerResponseError, kafka_errors
from aiokafka.producer.sender import InitPIDHandler
from aiokafka.protocol import transaction
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import CompactString, Int16, Int32, Int64, Schema, TaggedFields
from aiokafka.structs import RecordMetadata

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.logs import get_logger

RECORD_BYTES_MAX = 8 * 1024 * 1024
BATCH_BYTES_MAX = 256 * 1024
STOP_PATIENCE_S = 5.0

FENCING_TIMEOUT_MS = 60_000
"""Of a transaction, which the request has to name though none is ever begun. A broker's upper bound
is 15 minutes."""

NO_PRODUCER_ID = -1
NO_EPOCH = -1

log = get_logger(__name__)


class InvalidRecordError(BrokerResponseError):
    """The broker checked the record and refuses it: no key on a compacted topic, or not what a
    schema asks for."""

    errno = 87
    message = "INVALID_RECORD"
    description = "The broker refuses the record: it failed a check of the topic or the broker"


class NewerProducerError(BrokerResponseError):
    """Another producer has taken over the fencing id."""

    errno = 90
    message = "PRODUCER_FENCED"
    description = "There is a newer producer with the same fencing id"


for _known in (InvalidRecordError, NewerProducerError):
    # the client has no class for these and says UnknownError
    kafka_errors.setdefault(_known.errno, _known)


class SentBatch(NamedTuple):
    """What the broker has acknowledged. `offset`, `end`: of its first record, and behind its last
    one. Partition and offsets are -1 where the broker may have it and has not said so. `records`:
    the batch as the broker keeps it, without compression; empty where that is not known. `at`: when
    it was acknowledged, by the monotonic clock."""

    topic: str
    partition: int = -1
    offset: int = -1
    end: int = -1
    records: bytes = b""
    at: float = 0.0


_OFFSET = struct.Struct(">q")
_CREATE_TIME = 0
"""The type of timestamps that the broker does not replace by its own."""


def _sent_batch(topic: str, done: asyncio.Future[RecordMetadata], batch: Any) -> SentBatch:
    """`batch`: the client's builder, which has what it built; None: `done` is about one record."""
    if done.cancelled() or done.exception() is not None or done.result().offset < 0:
        return SentBatch(topic)
    place = done.result()
    if batch is None:
        return SentBatch(topic, place.partition, place.offset, place.offset + 1)
    records = b""
    if place.timestamp_type == _CREATE_TIME:
        # The broker fills in the first offset, which the checksum of a batch does not cover.
        records = _OFFSET.pack(place.offset) + bytes(batch._build()[_OFFSET.size :])
    end = place.offset + batch.record_count()
    return SentBatch(topic, place.partition, place.offset, end, records, time.monotonic())


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
    """Let aiokafka negotiate version 3 of InitProducerId. True when it can, also when it already
    could.

    The attributes that this changes are private. When a release of aiokafka has moved them, it logs
    a warning and changes nothing: brokers that answer version 0 still work, and the memory broker
    then refuses the producer at its start.
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
    """The driver's own, but for its stop, which waits without end when records are under way to a
    broker that is gone. `sent` is called with each batch that the broker has acknowledged;
    `hands_over`: with its bytes."""

    sent: Callable[[SentBatch], object] | None = None
    hands_over = False

    async def send(self, topic: str, *args: Any, **kwargs: Any) -> asyncio.Future[RecordMetadata]:
        return self._signalled(topic, await super().send(topic, *args, **kwargs))

    async def send_batch(
        self, batch: Any, topic: str, *, partition: int
    ) -> asyncio.Future[RecordMetadata]:
        acknowledged = await super().send_batch(batch, topic, partition=partition)
        return self._signalled(topic, acknowledged, batch)

    def _signalled(
        self, topic: str, acknowledged: asyncio.Future[RecordMetadata], batch: Any = None
    ) -> asyncio.Future[RecordMetadata]:
        if (sent := self.sent) is not None:
            built = batch if self.hands_over else None
            acknowledged.add_done_callback(lambda done: sent(_sent_batch(topic, done, built)))
        return acknowledged

    async def stop(self) -> None:
        """Flush and close. What the broker did not acknowledge in time is for the caller's own
        redelivery."""
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await super().stop()
        except TimeoutError:
            log.warning(
                "producer_not_flushed", client_id=self.client._client_id, waited_s=STOP_PATIENCE_S
            )
            await self._abandon()

    def fence(self, fencing_id: str) -> None:
        """Ask for the producer's id as a transactional producer does, and send as one that only is
        idempotent. The place where the client asks is private: a release that moved it fails here,
        at the start, rather than being unfenced without a word."""
        sender, known = self._sender, self._txn_manager

        async def with_epoch() -> None:
            while not known.has_pid():
                node = await sender._find_coordinator(CoordinationType.TRANSACTION, fencing_id)
                handler = InitPIDHandler(sender)
                request = transaction.InitProducerIdRequest(
                    transactional_id=fencing_id, transaction_timeout_ms=FENCING_TIMEOUT_MS
                )
                setattr(handler, "create_request", lambda request=request: request)  # noqa: B010
                await handler.do(node)

        if not callable(getattr(sender, "_maybe_wait_for_pid", None)):
            raise RuntimeError(
                "aiokafka asks for the producer id elsewhere now: the publisher cannot be fenced"
            )
        setattr(sender, "_maybe_wait_for_pid", with_epoch)  # noqa: B010

    def take_back(self, topic: str, partition: int, records: int) -> None:
        """The broker refused the last batch of the partition: what comes next takes its sequence
        numbers. The client leaves a gap there, and the broker would refuse everything behind it."""
        if self._txn_manager is not None:
            self._txn_manager.increment_sequence_number(TopicPartition(topic, partition), -records)

    async def _abandon(self) -> None:
        if self._sender is not None:
            await self._sender.close()
        await self.client.close()


async def started(producer: Producer) -> Producer:
    """The producer, when it has started. One that cannot start is stopped: it holds connections."""
    try:
        await producer.start()
    except BaseException:
        await producer.stop()
        raise
    return producer


def idempotent_producer(
    backend: Backend,
    *,
    client_id: str,
    linger_ms: int = 0,
    sent: Callable[[SentBatch], object] | None = None,
    fencing_id: str = "",
) -> Producer:
    """A producer that is not started yet; call it in a running loop, `await start()` it, `await
    stop()` it.

    `sent`: see `Producer`; with the bytes of each batch where the broker does not wake its readers
    (`runtime.fetch_pacing`). Writers choose the partition themselves with `topics.partition_for`.
    `fencing_id`: from its start on, producers that were started with the same one before it are
    refused (`NewerProducerError`, `ProducerFenced`).
    """
    teach_producer_id_v3()
    producer = Producer(
        **backend.client_options(),
        client_id=client_id,
        enable_idempotence=backend.capabilities.idempotence,
        acks="all",
        linger_ms=linger_ms,
        max_request_size=RECORD_BYTES_MAX,
        max_batch_size=BATCH_BYTES_MAX,
        metadata_max_age_ms=backend.capabilities.metadata_max_age_ms,
    )
    producer.sent = sent
    producer.hands_over = backend.capabilities.idle_poll_ms > 0
    if fencing_id and backend.capabilities.idempotence:
        producer.fence(fencing_id)
    return producer
