"""Which topic a name stands for: the id that Kafka gives a topic when it is made, and no other
topic ever has.

The aiokafka release we pin asks for metadata in a form that has no ids. Version 10 of the request
has them; the broker must have it (Kafka since 2.8, and the embedded broker). One that has not is
not asked, and a topic without an id is known by the broker's boot id alone.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from io import BytesIO
from typing import Any
from uuid import UUID

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from wharfinger.domain.text import one_line
from wharfinger.runtime.backends import Backend, BackendError

TIMEOUT_MS = 30_000
NO_ID = UUID(int=0)
ID = "id:"
"""Before a topic id, where the ledger stores by what it knows a topic; a boot id stands there
without it."""
METADATA = 3
WITH_IDS = 10


class _Uuid(AbstractType[UUID]):
    @classmethod
    def encode(cls, value: UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> UUID:
        return UUID(bytes=data.read(16))


_TEXT = CompactString("utf-8")

_PARTITION = (
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", CompactArray(Int32)),
    ("isr", CompactArray(Int32)),
    ("offline_replicas", CompactArray(Int32)),
    ("tags", TaggedFields),
)


class _MetadataResponseV10(Response):
    API_KEY = METADATA
    API_VERSION = WITH_IDS
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node", Int32),
                ("host", _TEXT),
                ("port", Int32),
                ("rack", _TEXT),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", _TEXT),
        ("controller", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", _TEXT),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                ("partitions", CompactArray(*_PARTITION)),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _MetadataRequestV10(RequestStruct):
    API_KEY = METADATA
    API_VERSION = WITH_IDS
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponseV10
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("name", _TEXT), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class AllTopics(Request[_MetadataRequestV10]):
    """Every topic, and never by name: some brokers create a topic when they are asked about it."""

    API_KEY = METADATA

    def build(self, request_struct_class: type[_MetadataRequestV10]) -> _MetadataRequestV10:
        return request_struct_class(None, False, False, False, {})


class TopicIds:
    """The ids of the topics of a broker that is asked repeatedly: over one client, which takes
    several times as long to start as to answer. After a failure the next question starts another
    one."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._admin: Any = None

    async def now(self) -> dict[str, UUID] | None:
        """As `topic_ids`."""
        try:
            answer = await self._answer()
        except BaseException as error:
            await self.aclose()
            if isinstance(error, IncompatibleBrokerVersion | NotImplementedError):
                return None
            if isinstance(error, KafkaError | OSError):
                raise BackendError(
                    f"broker {self._backend.bootstrap}: topics: {one_line(error)}"
                ) from error
            raise
        topics = [topic for topic in answer.to_object()["topics"] if topic["error_code"] == 0]
        if any(topic["topic_id"] == NO_ID for topic in topics):
            return None
        return {topic["topic"]: topic["topic_id"] for topic in topics}

    async def _answer(self) -> Any:
        if self._admin is None:
            options = self._backend.client_options()
            self._admin = AIOKafkaAdminClient(**options, request_timeout_ms=TIMEOUT_MS)
            await self._admin.start()
        return await self._admin._send_request(AllTopics())

    async def aclose(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()


async def topic_ids(backend: Backend) -> dict[str, UUID] | None:
    """The id of every topic of the broker, by its name there; None: the broker gives no ids.
    BackendError: no answer."""
    async with aclosing(TopicIds(backend)) as ids:
        return await ids.now()


def identity(topic: str, ids: Mapping[str, UUID] | None, boot_id: str) -> str:
    """By which a topic is known to be the one that was read and written before. `topic`: its name
    on the broker."""
    return boot_id if ids is None or topic not in ids else f"{ID}{ids[topic]}"
