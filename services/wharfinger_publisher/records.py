"""From ledger rows to Kafka records. Pure: the same rows give the same records.

An intake row goes to its topic as it came. A decision goes to `decisions` as one CloudEvent. If it
concerns a cluster or a fleet shard, it also goes into the envelopes of `assignments` and
`outcomes`, up to 100 items each, because the services that read them are limited by the number of
records. No record is larger than the limit of its topic: an envelope is closed by bytes as well as
by items, and one decision that is still too large is divided into parts (`events.parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from wharfinger.domain.binding import range_key
from wharfinger.events.envelope import derived_id
from wharfinger.events.fanout import Fanout, InternalMessage, message_id
from wharfinger.events.ledger import StreamPublished
from wharfinger.events.ledger_codec import encode
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.promises import (
    Promises,
    plan_answer,
    plan_answer_body,
    plan_answer_id,
    room_body,
    room_id,
)
from wharfinger.events.room import PlanAnswered, RoomTaken
from wharfinger.events.streams import (
    ASSIGNMENTS,
    BY_NAME,
    DECISIONS,
    OUTCOMES,
    ROOM,
    TIMELINE,
    PartitionBy,
    Together,
)
from wharfinger.kernel.incarnations import incarnation_at
from wharfinger.runtime.decision_event import decision_event, incarnation_text
from wharfinger.runtime.ledger import Fact, FeedPlaces, IntakeRow, LedgerRow, WentBack
from wharfinger.runtime.ledger.incarnations import of_stream
from wharfinger.runtime.sending import Dividing, OutgoingRecord, Place

FRAME_BYTES = 2048
"""What the frame of an envelope takes at most beside its items: ids, and the names of its stream
and cluster."""


class RecordMaker:
    """`partition_for(key, count)` and the partition counts decide where a record goes. `limits`:
    topic -> how many bytes a record's value may have there; may be changed, for records made
    afterwards. `went_back`: when the ledger did; its incarnation is in the envelope of every
    decision made since."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        partition_for: Callable[[str, int], int],
        limits: Mapping[str, int] | None = None,
        went_back: Sequence[WentBack] = (),
    ) -> None:
        self._went_back = went_back
        self.partitions = partitions
        self.dividing = Dividing(limits)
        self._partition_for = partition_for

    def records(self, rows: Sequence[LedgerRow], places: FeedPlaces) -> list[OutgoingRecord]:
        """Rows of several streams, each stream's in order of seq. `places`: theirs in the feed."""
        out: list[OutgoingRecord] = []
        topics = {row.seq: self._place(row.accepted) for row in rows if row.accepted is not None}
        followed, together = _followed(rows, topics), _together(rows, topics)
        limits = self.dividing.limits
        fanout = Fanout(
            self._shard_of, min(limits[ASSIGNMENTS.name], limits[OUTCOMES.name]) - FRAME_BYTES
        )
        # with only one fleet shard there is no other that must know what it promises
        promises, several = Promises(), self.partitions[OUTCOMES.name] > 1
        for row in rows:
            if row.accepted is not None:
                more = row.seq in followed
                header = b"" if more else together.get(row.round, b"")
                out += self._accepted(row.accepted, topics[row.seq], followed=more, together=header)
                continue
            out += self.dividing.fitting(self._decision(row, places))
            for message in fanout.add(row.stream, row.seq, str(row.id), row.data()):
                out += self.dividing.fitting(self._internal(message))
            if several:
                for taken in promises.add(row.stream, row.round, row.seq, row.data()):
                    out += self.dividing.fitting(self._room(taken))
                answer = plan_answer(row.stream, row.seq, row.data())
                if answer is not None:
                    out += self.dividing.fitting(self._plan_answer(answer))
        for message in fanout.rest():
            out += self.dividing.fitting(self._internal(message))
        for taken in promises.rest():
            out += self.dividing.fitting(self._room(taken))
        return out

    def facts(self, facts: Iterable[Fact]) -> list[OutgoingRecord]:
        """The latest facts, as if they had been accepted just now. Those of topics that forget are
        left to their rows."""
        lasting = (f for f in facts if BY_NAME[f.topic].retention_ms is None)
        accepted = (
            IntakeRow(f.id, f.type, f.body, f.topic, f.key, f.partition_key) for f in lasting
        )
        return [
            record
            for message in accepted
            for record in self._accepted(message, self._place(message))
        ]

    def timeline(self, published: Iterable[StreamPublished]) -> list[OutgoingRecord]:
        """How far streams will have been published."""
        return [
            OutgoingRecord(
                TIMELINE.name,
                0,
                one.stream.encode(),
                encode(
                    one,
                    id=derived_id(
                        "published", one.stream, one.incarnation, one.round, one.seq, one.hash
                    ),
                    source=f"/wharfinger/{one.stream}",
                    subject=one.stream,
                    incarnation=incarnation_text(one.incarnation),
                ),
            )
            for one in published
        ]

    def _incarnation(self, stream: str, seq: int) -> str:
        return (
            incarnation_text(incarnation_at(of_stream(self._went_back, stream), seq))
            if self._went_back
            else ""
        )

    def _shard_of(self, binding: str) -> int:
        return self._partition_for(range_key(binding), self.partitions[OUTCOMES.name])

    def _place(self, accepted: IntakeRow) -> Place:
        topic = BY_NAME[accepted.topic]
        if topic.partition_by is PartitionBy.ONE:
            return topic.name, 0
        return topic.name, self._partition_for(accepted.partition_key, self.partitions[topic.name])

    def _accepted(
        self, accepted: IntakeRow, place: Place, *, followed: bool = False, together: bytes = b""
    ) -> Iterable[OutgoingRecord]:
        topic, partition = place
        key = accepted.key.encode()
        yield from self.dividing.fitting(
            OutgoingRecord(
                topic,
                partition,
                key,
                accepted.body,
                str(accepted.id),
                followed=followed,
                together=together,
            )
        )
        if accepted.type == BY_NAME[topic].ended_by:
            # so that compaction forgets the key
            yield OutgoingRecord(topic, partition, key, None)

    def _decision(self, row: LedgerRow, places: FeedPlaces) -> OutgoingRecord:
        place = places.of(row.stream, row.seq)
        assert place is not None, "what has no position is not sent"
        value = decision_event(row, *place, self._incarnation(row.stream, row.seq))
        partition = self._partition_for(row.subject, self.partitions[DECISIONS.name])
        return OutgoingRecord(DECISIONS.name, partition, row.subject.encode(), value, str(row.id))

    def _internal(self, message: InternalMessage) -> OutgoingRecord:
        stream, first = message.stream, message.items[0].seq
        incarnation = self._incarnation(stream, message.through)
        id = message_id(message, incarnation)
        value = encode(
            message,
            id=id,
            source=f"/wharfinger/{stream}",
            subject=message.cluster,
            incarnation=incarnation,
        )
        if isinstance(message, OutcomesDecided):
            return OutgoingRecord(
                OUTCOMES.name,
                message.shard,
                str(message.shard).encode(),
                value,
                str(id),
                stream,
                first,
            )
        partition = self._partition_for(message.cluster, self.partitions[ASSIGNMENTS.name])
        return OutgoingRecord(
            ASSIGNMENTS.name, partition, message.cluster.encode(), value, str(id), stream, first
        )

    def _room(self, taken: RoomTaken) -> OutgoingRecord:
        """Belongs to no chain of records: a reader that misses one gets the same from the
        estimator's next capacity of the cluster."""
        incarnation = self._incarnation(taken.stream, taken.through)
        id = str(room_id(taken, incarnation))
        return OutgoingRecord(
            ROOM.name, 0, taken.stream.encode(), room_body(taken, incarnation), id
        )

    def _plan_answer(self, answer: PlanAnswered) -> OutgoingRecord:
        incarnation = self._incarnation(answer.stream, answer.through)
        return OutgoingRecord(
            ROOM.name,
            0,
            answer.stream.encode(),
            plan_answer_body(answer, incarnation),
            str(plan_answer_id(answer, incarnation)),
        )


def _followed(rows: Sequence[LedgerRow], places: Mapping[int, Place]) -> set[int]:
    """The intake's seqs of rows behind which another of the same round goes to the same place.
    `places`: where the rows of the intake go, by seq."""
    found, behind = set[int](), set[tuple[int, Place]]()
    for row in reversed(rows):
        if row.accepted is not None:
            at = row.round, places[row.seq]
            if at in behind:
                found.add(row.seq)
            behind.add(at)
    return found


def _together(rows: Sequence[LedgerRow], places: Mapping[int, Place]) -> dict[int, bytes]:
    """By round of the intake whose rows go to several places: the header of its last record at each
    place. It has the id of the round's first event, because the number of a round may come again
    after a restore. `places`: where the rows of the intake go, by seq."""
    first: dict[int, str] = {}
    found: dict[int, dict[str, None]] = {}
    for row in rows:
        if row.accepted is not None:
            first.setdefault(row.round, row.accepted.id.hex)
            topic, partition = places[row.seq]
            found.setdefault(row.round, {})[f"{topic}/{partition}"] = None
    return {
        round_: Together(first[round_], tuple(at)).header()
        for round_, at in found.items()
        if len(at) > 1
    }
