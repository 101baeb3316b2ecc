"""Leader epochs: how often a partition has had a new leader, and up to which offset the records of
each epoch go.

A record is written in one leader epoch, and every new leader begins the next one. A log that was
truncated and has grown again has its new records in a later epoch, and the end that it gives for
the earlier one is before the records that were lost. This holds even where the records themselves
were removed by compaction or retention. It does not hold where a cluster was restored with its
metadata, since it then counts the same epochs a second time; `record_check` therefore compares
records first.

The request `OffsetForLeaderEpoch` is not in the aiokafka release we pin. The embedded broker has
none: it has no elections.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

from wharfinger.domain.text import one_line
from wharfinger.runtime.backends import Backend, BackendError
from wharfinger.runtime.topic_ids import TIMEOUT_MS, AllTopics

API_KEY = 23
VERSION = 3
"""Since Kafka 2.3; the first one for which the right to describe the topic is enough."""
CONSUMER = -1
NOT_KNOWN = -1


class _ResponseV3(Response):
    API_KEY = API_KEY
    API_VERSION = VERSION
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader_epoch", Int32),
                        ("end_offset", Int64),
                    ),
                ),
            ),
        ),
    )


class _RequestV3(RequestStruct):
    API_KEY = API_KEY
    API_VERSION = VERSION
    RESPONSE_TYPE = _ResponseV3
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("leader_epoch", Int32),
                    ),
                ),
            ),
        ),
    )


class _EpochEnds(Request[_RequestV3]):
    API_KEY = API_KEY

    def __init__(self, epochs: Mapping[TopicPartition, int]) -> None:
        by_topic: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for part, epoch in epochs.items():
            by_topic[part.topic].append((part.partition, NOT_KNOWN, epoch))
        self._topics = list(by_topic.items())

    def build(self, request_struct_class: type[_RequestV3]) -> _RequestV3:
        return request_struct_class(CONSUMER, self._topics)


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """`current`: of each partition. `ends`: (partition, epoch) -> offset behind its last record
    that is not of a later epoch. What the broker did not say is missing."""

    current: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[tuple[TopicPartition, int], int] = field(default_factory=dict)


async def leader_epochs(
    backend: Backend, asked: Mapping[TopicPartition, Collection[int]]
) -> LeaderEpochs:
    """Of these partitions, by their names on the broker, with the ends of the epochs named and of
    the current one. Empty: the broker has no such request. BackendError: no answer."""
    admin = AIOKafkaAdminClient(**backend.client_options(), request_timeout_ms=TIMEOUT_MS)
    try:
        await admin.start()
        metadata: Any = await admin._send_request(AllTopics())
        leaders: dict[TopicPartition, int] = {}
        current: dict[TopicPartition, int] = {}
        for topic in metadata.to_object()["topics"]:
            for found in topic["partitions"]:
                part = TopicPartition(topic["topic"], found["partition"])
                if part in asked and found["error_code"] == 0 and found["leader_epoch"] >= 0:
                    leaders[part], current[part] = found["leader"], found["leader_epoch"]
        wanted = {part: sorted({*asked[part], current[part]}) for part in current}
        ends: dict[tuple[TopicPartition, int], int] = {}
        while wanted:  # one epoch of a partition in one request
            for leader in sorted({leaders[part] for part in wanted}):
                epochs = {part: left[0] for part, left in wanted.items() if leaders[part] == leader}
                answer: Any = await admin._send_request_to_node(leader, _EpochEnds(epochs))
                for topic in answer.to_object()["topics"]:
                    for found in topic["partitions"]:
                        part = TopicPartition(topic["topic"], found["partition"])
                        if found["error_code"] == 0 and found["end_offset"] >= 0:
                            ends[part, epochs[part]] = found["end_offset"]
            wanted = {part: left[1:] for part, left in wanted.items() if left[1:]}
    except (IncompatibleBrokerVersion, NotImplementedError):
        return LeaderEpochs()
    except (KafkaError, OSError, TimeoutError) as error:
        raise BackendError(
            f"broker {backend.bootstrap}: leader epochs: {one_line(error)}"
        ) from error
    finally:
        await admin.close()
    return LeaderEpochs(current, ends)
