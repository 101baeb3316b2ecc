"""From ledger rows to Kafka records. Pure: the same rows give the same records.

An intake row goes to its topic as it came. A decision goes to `decisions` as one CloudEvent, and, where a cluster or a fleet
shard must hear of it, into the envelopes of `assignments` and `outcomes`, up to 100 items each, because the cost of a record
is what limits the services that read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.codec import encode, encode_raw
from wharfinger.events.fanout import Fanout, InternalMessage, message_id
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.policies import PolicyRemoved
from wharfinger.events.registry import type_of
from wharfinger.events.streams import ASSIGNMENTS, BY_NAME, DECISIONS, OUTCOMES, PartitionBy
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Accepted, Fact, LedgerRow

ENDINGS = frozenset({type_of(ClusterForgotten("")), type_of(BindingWithdrawn("")), type_of(PolicyRemoved("", ""))})
"""Events that end their key: a null record follows, so that compaction forgets it."""


@dataclass(frozen=True, slots=True)
class Record:
    """One Kafka record. `topic` is the name in the stream table; `id`: of the event in it; empty for
    envelopes and tombstones."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    id: str = ""


@lru_cache(maxsize=64)
def rfc3339(at: Micros) -> str:
    seconds, micros = divmod(at, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


class RecordMaker:
    """`partition_for(key, count)` and the partition counts decide where a record goes."""

    def __init__(self, partitions: Mapping[str, int], partition_for: Callable[[str, int], int]) -> None:
        self.partitions = partitions
        self._partition_for = partition_for

    def records(self, rows: Iterable[LedgerRow]) -> list[Record]:
        """Rows of several streams, each stream's in order of seq."""
        out: list[Record] = []
        fanout = Fanout(self._shard_of)
        for row in rows:
            if row.accepted is not None:
                out.extend(self._accepted(row.accepted))
                continue
            out.append(self._decision(row))
            out += map(self._internal, fanout.add(row.stream, row.seq, str(row.id), row.data()))
        out += map(self._internal, fanout.rest())
        return out

    def facts(self, facts: Iterable[Fact]) -> list[Record]:
        """The latest facts, as if they had been accepted just now. Those of topics that forget are left to their rows."""
        lasting = (f for f in facts if BY_NAME[f.topic].retention_ms is None)
        accepted = (Accepted(f.id, f.type, f.body, f.topic, f.key, f.partition_key) for f in lasting)
        return [record for message in accepted for record in self._accepted(message)]

    def _shard_of(self, binding: str) -> int:
        return self._partition_for(binding, self.partitions[OUTCOMES.name])

    def _accepted(self, accepted: Accepted) -> Iterable[Record]:
        topic = BY_NAME[accepted.topic]
        count = self.partitions[topic.name]
        partition = 0 if topic.partition_by is PartitionBy.ONE else self._partition_for(accepted.partition_key, count)
        key = accepted.key.encode()
        yield Record(topic.name, partition, key, accepted.body, str(accepted.id))
        if accepted.type in ENDINGS:
            yield Record(topic.name, partition, key, None)

    def _decision(self, row: LedgerRow) -> Record:
        id = str(row.id)
        value = encode_raw(
            row.body, row.type, id=id, source=f"/wharfinger/{row.stream}", subject=row.subject, time=rfc3339(row.at),
            causation=str(row.cause) if row.cause else "", sequence=str(row.seq),
        )  # fmt: skip
        partition = self._partition_for(row.subject, self.partitions[DECISIONS.name])
        return Record(DECISIONS.name, partition, row.subject.encode(), value, id)

    def _internal(self, message: InternalMessage) -> Record:
        value = encode(
            message, id=message_id(message), source=f"/wharfinger/{message.stream}", subject=message.cluster
        )  # fmt: skip
        if isinstance(message, OutcomesDecided):
            return Record(OUTCOMES.name, message.shard, str(message.shard).encode(), value)
        partition = self._partition_for(message.cluster, self.partitions[ASSIGNMENTS.name])
        return Record(ASSIGNMENTS.name, partition, message.cluster.encode(), value)
