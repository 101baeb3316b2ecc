"""Facts that a ledger has lost and the topics still have: they are accepted again.

After a restore or a failover the intake ends earlier than it did. What was accepted after that
point and published is on the topics, under ids that the ledger does not know. It is accepted again
with the same bytes and ids, in the order of each partition, so that it holds for streams that begin
later, too, and is there when the topics have to be filled again. What was accepted and not yet
published is in neither place and is lost; so is what compaction has removed, which a later fact
replaced.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import ConsumerRecord

from wharfinger.events.codec import UndecodableError, decode, frame_of
from wharfinger.events.event_part import EventPart
from wharfinger.events.origin import AS_IT_CAME
from wharfinger.events.parts import Assembler, part_key
from wharfinger.events.streams import (
    BINDINGS,
    CLUSTER_STATE,
    CLUSTERS,
    INTAKE,
    POLICIES,
    PROPOSALS,
    PartitionBy,
    Topic,
)
from wharfinger.runtime.believed_sources import ALL_BELIEVED, BelievedSources
from wharfinger.runtime.broadcast import ends_of, stop_consumer
from wharfinger.runtime.ledger import Ledger, Submission, WentBack
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.topics import partition_for

log = get_logger()

ACCEPTED = (CLUSTERS, POLICIES, BINDINGS, CLUSTER_STATE, PROPOSALS)
"""The topics of what is accepted from outside; clusters and policies first, as when they were
brought."""

OUR_OWN = frozenset({"/wharfinger/descheduler", "/wharfinger/estimator", "/wharfinger/annotator"})
"""What these services publish never passed the intake."""

BATCH_MAX = 500


class TakingBack:
    """`wire(topic)`: a topic's name on this broker. `partitions`: topic -> how many it has."""

    def __init__(
        self,
        ledger: Ledger,
        reader: Callable[[], AIOKafkaConsumer],
        wire: Callable[[str], str],
        partitions: Mapping[str, int],
        went_back: Sequence[WentBack],
        believed: BelievedSources = ALL_BELIEVED,
    ) -> None:
        self._ledger = ledger
        self._reader = reader
        self._wire = wire
        self._partitions = partitions
        self._went_back = went_back
        self._believed = believed
        self._parts = Assembler()

    async def __call__(self, positions: Mapping[str, int]) -> None:
        """Accept the records after `positions` that the ledger does not have. `positions`: place ->
        the end of the topic as the restored database last recorded it. A key that has received
        another fact since the ledger went back keeps that fact."""
        kept = self._went_back[-1].data.kept.get(INTAKE, 0)
        newer = {(fact.topic, fact.key) async for fact in self._ledger.facts() if fact.seq > kept}
        taken = 0
        for topic in ACCEPTED:
            async for batch in self._read(topic, positions):
                found = [
                    one for record in batch if (one := self._submission(topic, record)) is not None
                ]
                wanted = [one for one in found if (one.topic, one.key) not in newer]
                apart, _ = await self._ledger.told_apart({INTAKE: [one.event for one in wanted]})
                wanted = [
                    replace(one, event=event)
                    for one, event in zip(wanted, apart[INTAKE], strict=True)
                ]
                taken += len((await self._ledger.accept(wanted, AS_IT_CAME)).new) if wanted else 0
        log.warning("facts.taken_back", accepted=taken, since=self._went_back[-1].data.incarnation)

    def _submission(self, topic: Topic, record: ConsumerRecord[bytes, bytes]) -> Submission | None:
        if record.value is None:
            return None  # it ends a key whose last event came before it
        name = record.key or b""
        try:
            event = decode(record.value)
            if isinstance(part := event.data, EventPart):
                name = name.removesuffix(part_key(b"", part.part))
                joined = self._parts.add(
                    (record.topic, record.partition), record.offset, event, part, None
                )
                if joined is None:
                    return None
                event = decode(joined.body)
            frame = frame_of(event.body)
        except UndecodableError:
            return None  # the readers have made a dead letter of it
        if event.source in OUR_OWN or self._believed.refusal(topic.name, event):
            return None
        key = frame.partitionkey or event.subject
        one = topic.partition_by is PartitionBy.ONE
        if not one and partition_for(key, self._partitions[topic.name]) != record.partition:
            log.warning(
                "fact.not_taken_back",
                topic=topic.name,
                event_id=str(event.id),
                why="no partition key fits",
            )
            return None
        return Submission(event, topic.name, name.decode(errors="replace"), key)

    async def _read(
        self, topic: Topic, positions: Mapping[str, int]
    ) -> AsyncIterator[Sequence[ConsumerRecord[bytes, bytes]]]:
        parts = [
            TopicPartition(self._wire(topic.name), n) for n in range(self._partitions[topic.name])
        ]
        async with self._reading() as reader:
            reader.assign(parts)
            ends, begins = await ends_of(reader, parts), await reader.beginning_offsets(parts)
            behind = set()
            for part in parts:
                start = max(begins[part], positions.get(f"{topic.name}/{part.partition}", 0))
                reader.seek(part, start)
                if start < ends[part]:
                    behind.add(part)
            while behind:
                for batch in (
                    await reader.getmany(*behind, timeout_ms=200, max_records=BATCH_MAX)
                ).values():
                    yield batch
                behind = {part for part in behind if await reader.position(part) < ends[part]}

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AIOKafkaConsumer]:
        reader = self._reader()
        await reader.start()
        # Only those who read: the publisher seldom does.
        from wharfinger.runtime.unpacking import bound

        bound(reader)
        try:
            yield reader
        finally:
            await stop_consumer(reader)
