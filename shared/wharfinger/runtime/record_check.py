"""Whether the records that were read or written are still at their offsets.

A partition that lost its end and has grown past our offsets again has the right id and the right
length. What differs are its records (`ledger.marks` has which one was at which offset) and the end
that it gives for an earlier leader epoch (`leader_epochs`). A record that compaction or retention
has removed proves nothing; the epoch then does.

A busy reader makes a mark a second at each place. Where the leader has not changed since a mark was
found in its epoch, nothing was truncated, and the marks in between are not read (`to_compare`).
Read one by one they took longer than it takes to make them: each check had more to read than the
one before.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from aiokafka import AIOKafkaConsumer, TopicPartition

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.leader_epochs import LeaderEpochs, leader_epochs
from wharfinger.runtime.ledger import Ledger, Mark
from wharfinger.runtime.ledger.record_marks import NO_EPOCH

POLL_MS = 100
READ_S = 10.0
"""For so long one record of each partition is waited for; one that has not come by then is taken
for removed."""

At = tuple[TopicPartition, int]
"""A partition and an offset."""


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A partition that has another record at an offset that was read or written in this incarnation
    of its topic."""

    topic: str
    partition: int
    offset: int
    why: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} was truncated: {self.why}"


async def overwritten(
    ledger: Ledger,
    backend: Backend,
    consumer: AIOKafkaConsumer,
    incarnations: Mapping[str, int],
    prefix: str = "",
    known: Collection[str] = (),
) -> list[Overwritten]:
    """The first such record of each partition that is not. What was found unchanged is noted in the
    ledger.

    `consumer`: of no group, with no partitions that are still wanted. `known`: places
    (topic/partition) that are not looked at. BackendError, KafkaError: the broker cannot be asked.
    """
    before = [mark for mark in await ledger.marks(incarnations) if mark.place not in known]
    if not before:
        return []
    asked: dict[TopicPartition, set[int]] = defaultdict(set)
    for mark in before:
        asked[_partition(mark, prefix)] |= {mark.epoch} - {NO_EPOCH}
    # The epochs first: of a record that is found afterwards it is then certain that none of them is
    # too new for it.
    epochs = await leader_epochs(backend, asked)
    marks = [mark for mark in await ledger.marks(incarnations) if mark.place not in known]
    places = {mark: _partition(mark, prefix) for mark in marks}
    current = {m: epochs.current.get(part) for m, part in places.items()}
    compared = to_compare(marks, before, current, backend.capabilities.durable_restart)
    found = await _values(consumer, {(places[mark], mark.offset) for mark in compared})
    wrong: dict[TopicPartition, Overwritten] = {}
    good: list[Mark] = []
    for mark in compared:
        part = places[mark]
        why = differs(mark, part, found.get((part, mark.offset)), epochs)
        if why:
            wrong.setdefault(
                part, Overwritten(mark.place.rpartition("/")[0], part.partition, mark.offset, why)
            )
        elif (part, mark.offset) in found:
            good.append(mark)
    await _settle(
        ledger,
        marks,
        good,
        [m for m in marks if places[m] not in wrong],
        epochs,
        places,
        incarnations,
    )
    return sorted(wrong.values(), key=lambda one: (one.topic, one.partition))


def to_compare(
    marks: Sequence[Mark],
    before: Collection[Mark],
    current: Mapping[Mark, int | None],
    durable: bool,
) -> list[Mark]:
    """Which of the marks have to be compared with the topic; the others stand between two of these
    and prove nothing more. `marks`: in order of reader, place and offset. `before`: those that were
    there before the broker was asked for its leader epochs. `current`: the epoch that it gave for
    the partition of each; None: none. `durable`: the broker keeps its records when it ends.

    A partition is truncated when its leader changes, and that begins another epoch. So of a reader
    and place with a mark that an earlier check found in the current epoch, these are compared:

    - that mark, since a broker whose whole disk went back counts the same epochs again;
    - marks that came since the broker was asked, because the epoch may be another one by then;
    - the first and the last one.

    A broker that does not keep its records cannot lose the end of a partition alone. Where it has
    no epochs, the first and the last mark are enough. Everywhere else all are compared.
    """
    earlier = set(before)
    found: list[Mark] = []
    for _, of_place in groupby(marks, lambda mark: (mark.reader, mark.place)):
        group = list(of_place)
        epoch = current[group[0]]
        if durable if epoch is None else all(mark.epoch != epoch for mark in group):
            found += group
            continue
        ends = {group[0], group[-1]}
        found += [m for m in group if m in ends or m not in earlier or m.epoch == epoch]
    return found


def differs(mark: Mark, part: TopicPartition, sha256: bytes | None, epochs: LeaderEpochs) -> str:
    """Why this record is not there any more; empty: it is, or was removed for a good reason.
    `sha256`: of what is at its offset."""
    if sha256 is not None and sha256 != mark.sha256:
        return f"at offset {mark.offset} is another record than {mark.reader} knows"
    end = epochs.ends.get((part, mark.epoch))
    if end is not None and end <= mark.offset:
        return (
            f"leader epoch {mark.epoch} ends at offset {end}; {mark.reader} knows a record of it "
            f"at {mark.offset}"
        )
    return ""


async def _settle(
    ledger: Ledger,
    marks: Sequence[Mark],
    good: Collection[Mark],
    kept: Iterable[Mark],
    epochs: LeaderEpochs,
    places: Mapping[Mark, TopicPartition],
    incarnations: Mapping[str, int],
) -> None:
    """Of each reader and place the last mark stays, and the last one with a known epoch. Nothing is
    written if nothing changed."""
    confirmed: dict[tuple[str, str], Mark] = {}
    last: dict[tuple[str, str], Mark] = {}
    for mark in kept:
        last[mark.reader, mark.place] = mark
        part = places[mark]
        current = epochs.current.get(part)
        if (
            mark in good
            and current is not None
            and epochs.ends.get((part, current), 0) > mark.offset
        ):
            confirmed[mark.reader, mark.place] = mark._replace(epoch=current)
        elif mark.epoch != NO_EPOCH:
            confirmed[mark.reader, mark.place] = mark
    known = set(marks)
    needed = {(m.reader, m.place, m.offset) for m in (*last.values(), *confirmed.values())}
    done = [m for m in kept if (m.reader, m.place, m.offset) not in needed]
    changed = [m for m in confirmed.values() if m not in known]
    if done or changed:
        await ledger.settle_marks(changed, done, incarnations)


async def _values(consumer: AIOKafkaConsumer, wanted: Collection[At]) -> dict[At, bytes]:
    """The SHA-256 of the value of each record; one that is not there (any more, or yet) is
    missing."""
    by_part: dict[TopicPartition, list[int]] = defaultdict(list)
    for part, offset in sorted(wanted):
        by_part[part].append(offset)
    consumer.assign(list(by_part))
    begins = await consumer.beginning_offsets(list(by_part))
    left = {part: [o for o in offsets if o >= begins[part]] for part, offsets in by_part.items()}
    found: dict[At, bytes] = {}
    while pending := {part: offsets[0] for part, offsets in left.items() if offsets}:
        for part, offset in pending.items():
            consumer.seek(part, offset)
        consumer.pause(*(part for part in by_part if part not in pending))
        consumer.resume(*pending)
        deadline_s = time.monotonic() + READ_S
        while pending and time.monotonic() < deadline_s:
            # All that was fetched, which is little (`FETCH_BYTES`), also of what is paused: while
            # the client holds records that were not taken, it pauses for 100 ms before a fetch.
            got = await consumer.getmany(timeout_ms=POLL_MS)
            for part, records in got.items():
                for record in records:
                    if (part, record.offset) in wanted:
                        found[part, record.offset] = hashlib.sha256(record.value or b"").digest()
            passed = [
                part for part, offset in pending.items() if await consumer.position(part) > offset
            ]
            consumer.pause(*passed)
            pending = {part: offset for part, offset in pending.items() if part not in passed}
        left = {
            part: [o for o in offsets[1:] if (part, o) not in found]
            for part, offsets in left.items()
        }
    return found


def _partition(mark: Mark, prefix: str) -> TopicPartition:
    topic, _, number = mark.place.rpartition("/")
    return TopicPartition(prefix + topic, int(number))
