"""Holds a plane's history to its promises by SQL and by the raw topic alone.

Nothing of the product reads here: the rows come by asyncpg, the records by aiokafka, and bodies are
JSON. `wharfinger audit verify` and `wharfinger replay` are asked beside it, by `campaign`.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import zstandard
from aiokafka import AIOKafkaConsumer, TopicPartition

QUIET = 5
FLEET_TYPES = ("schedule.decided", "schedule.refused", "binding.released")


class Accepted(NamedTuple):
    """An event of a binding that was accepted. `replicas` None: it was withdrawn."""

    id: UUID
    binding: str
    uid: str
    replicas: int | None


class Decided(NamedTuple):
    """A decision as the database has it. `data`: without what explains it; `digest`: of all."""

    id: UUID
    stream: str
    seq: int
    round: int
    type: str
    subject: str
    data: dict[str, Any]
    digest: bytes


@dataclass(slots=True)
class Findings:
    """`broken`: what breaks a promise, one line each. `figures`: how many were looked at."""

    broken: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)

    def wrong(self, line: str) -> None:
        self.figures["broken"] += 1
        if len(self.broken) < 20:
            self.broken.append(line)


@dataclass(frozen=True, slots=True)
class History:
    """`taken`: event -> the fleet streams and rounds that took it in. `decisions`: in order of
    stream and seq."""

    taken: dict[UUID, list[tuple[str, int]]]
    decisions: list[Decided]


def _type(full: str) -> str:
    return full.removeprefix("io.wharfinger.").rsplit(".v", 1)[0]


def _plain(encoding: int, body: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(body) if encoding else body


def _data(body: bytes) -> tuple[dict[str, Any], bytes]:
    data = json.loads(body)
    digest = _digest(data)
    data.pop("explanation", None)
    data.pop("requirements", None)
    return data, digest


def _digest(data: object) -> bytes:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).digest()


async def read_history(url: str) -> History:
    connection = await asyncpg.connect(url)
    try:
        taken: dict[UUID, list[tuple[str, int]]] = defaultdict(list)
        for event, stream, number in await connection.fetch(
            "select i.event, s.name, i.round from input i join stream s on s.id = i.stream "
            "where starts_with(s.name, 'fleet/')"
        ):
            taken[event].append((stream, number))
        rows = await connection.fetch(
            "select d.id, s.name, d.seq, d.round, d.type, d.subject, d.encoding, d.body "
            "from decision d join stream s on s.id = d.stream where s.name <> 'intake' "
            "order by s.name, d.seq"
        )
    finally:
        await connection.close()
    return History(
        dict(taken),
        [
            Decided(id, stream, seq, number, _type(kind), subject, *_data(_plain(enc, body)))
            for id, stream, seq, number, kind, subject, enc, body in rows
        ],
    )


def check_effects(found: Findings, history: History, events: Sequence[Accepted]) -> None:
    """Every accepted event was taken in once, and has an effect or a reason: a decision about its
    binding follows before the next event of the binding is taken in; or that next event took its
    place; or what it asks for was decided already. The last event of a binding has no next one, so
    what was said last holds."""
    decided: dict[str, list[Decided]] = defaultdict(list)
    for one in history.decisions:
        if one.type in FLEET_TYPES:
            decided[one.subject].append(one)
    by_binding: dict[str, list[Accepted]] = defaultdict(list)
    for event in events:
        found.figures["accepted events"] += 1
        by_binding[event.binding].append(event)
        places = history.taken.get(event.id, [])
        if len(places) != 1:
            found.wrong(f"{event.binding}: event {event.id} was taken in {len(places)} times")
    for binding, own in by_binding.items():
        if any(len(history.taken.get(event.id, [])) != 1 for event in own):
            continue
        rounds = [history.taken[event.id][0][1] for event in own]
        for event, number, through in zip(own, rounds, (*rounds[1:], 1 << 62), strict=True):
            what = _effect(event, number, through, decided[binding])
            found.figures[what or "without effect or reason"] += 1
            if not what:
                said = [(one.round, one.type, one.data.get("replicas")) for one in decided[binding]]
                found.wrong(
                    f"{binding}: event {event.id} (uid {event.uid}, replicas {event.replicas}, "
                    f"round {number}) has neither an effect nor a reason: "
                    f"{said}"
                )
        _check_last(found, own[-1], decided[binding])


def _effect(event: Accepted, number: int, through: int, decided: Sequence[Decided]) -> str:
    """Of an event that was taken in in round `number`, the next one of its binding in `through`.
    Empty: it has none."""
    if any(number <= one.round < through for one in decided):
        return "decided"
    standing = next((one for one in reversed(decided) if one.round < number), None)
    if standing is None or standing.type == "binding.released":
        if event.replicas is None:
            return "nothing to release"
    elif standing.data["replicas"] == event.replicas:  # placed or refused already
        return "changed nothing"
    elif event.replicas is None and not standing.data.get("targets"):
        return "nothing to release"
    return "replaced before it was decided" if through < 1 << 62 else ""


def _check_last(found: Findings, last: Accepted, decided: Sequence[Decided]) -> None:
    said = decided[-1] if decided else None
    if last.replicas is None:
        if said is not None and said.type == "schedule.decided":
            found.wrong(f"{last.binding}: withdrawn, and still assigned")
    elif said is None or said.type == "binding.released":
        found.wrong(f"{last.binding}: wanted, and no decision says what became of it")
    elif said.type == "schedule.decided" and said.data["replicas"] != last.replicas:
        decided_, wanted = said.data["replicas"], last.replicas
        found.wrong(f"{last.binding}: {decided_} replicas were decided, {wanted} are wanted")


def check_places(found: Findings, history: History) -> None:
    """Seqs are dense, and clusters place what they were assigned and no replica twice."""
    seqs: Counter[str] = Counter()
    targets: dict[tuple[str, str], int] = {}
    placed: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for one in history.decisions:
        seqs[one.stream] += 1
        found.figures["decisions"] += 1
        if one.seq != seqs[one.stream]:
            found.wrong(f"{one.stream}: seq {one.seq} instead of {seqs[one.stream]}")
        if one.stream.startswith("fleet/") and one.type in FLEET_TYPES:
            for key in [key for key in targets if key[0] == one.subject]:
                del targets[key]
            for target in one.data.get("targets", ()):  # a refused binding may keep a part
                targets[one.subject, target["cluster"]] = target["replicas"]
        elif one.type in ("replicas.placed", "replicas.released"):
            _move(found, placed[one.data["binding"], one.data["cluster"]], one)
    for (binding, cluster), replicas in placed.items():
        if len(replicas) > (wanted := targets.get((binding, cluster), 0)):
            found.wrong(f"{binding} at {cluster}: {len(replicas)} placed, {wanted} assigned")
    found.figures["placed replicas"] = sum(map(len, placed.values()))
    found.figures["assigned replicas"] = sum(targets.values())


def _move(found: Findings, held: dict[int, str], one: Decided) -> None:
    placing = one.type == "replicas.placed"
    for share in one.data["placed" if placing else "released"]:
        for ordinal in share["ordinals"]:
            if placing == (ordinal in held):
                what = "placed" if placing else "released"
                found.wrong(f"{one.subject} at {one.stream}: replica {ordinal} {what} twice")
            if placing:
                held[ordinal] = share["node"]
            else:
                held.pop(ordinal, None)


async def check_topic(
    found: Findings, history: History, bootstrap: str, topic: str, *, deleted: bool = False
) -> None:
    """Each decision is on the topic: the same bytes however often, with the data of its row, and no
    other one. In each partition the seqs of a stream rise. `deleted`: the topic was, meanwhile. The
    embedded broker keeps what is written to a deleted topic, so there the last record of each id
    counts: all of them are sent again."""
    expected = {str(one.id): one for one in history.decisions}
    seen: dict[str, bytes] = {}  # id -> hash of the record
    last: dict[tuple[int, str], int] = {}
    latest: dict[str, int] = {}  # id -> partition, in order of the last record of each
    async for partition, _, value in raw_records(bootstrap, topic):
        event = json.loads(value)
        id = event["id"]
        found.figures["records"] += 1
        one = expected.get(id)
        if one is None:
            if not event["type"].startswith("io.wharfinger.message."):  # of the intake
                found.figures["records of other streams"] += 1
            continue
        latest.pop(id, None)
        latest[id] = partition
        if id in seen:
            found.figures["records that came again"] += 1
            if seen[id] != hashlib.sha256(value).digest():
                found.wrong(f"{id}: two records with different bytes")
            continue
        seen[id] = hashlib.sha256(value).digest()
        if _digest(event.get("data")) != one.digest:
            found.wrong(f"{id}: the record has other data than the row")
        if not deleted:
            _check_order(found, last, partition, one)
    for id, partition in latest.items() if deleted else ():
        _check_order(found, last, partition, expected[id])
    for id in expected.keys() - seen.keys():
        found.wrong(f"{expected[id].stream}: decision {expected[id].seq} is not on the topic")


def _check_order(
    found: Findings, last: dict[tuple[int, str], int], partition: int, one: Decided
) -> None:
    """`last`: (partition, stream) -> seq of the record before."""
    if one.seq <= last.get((partition, one.stream), 0):
        found.wrong(f"{one.stream}: seq {one.seq} behind {last[partition, one.stream]}")
    last[partition, one.stream] = one.seq


class RawRecord(NamedTuple):
    partition: int
    offset: int
    value: bytes


async def partitions_of(consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    """Once the broker knows them."""
    while True:
        metadata = await consumer._client.fetch_all_metadata()
        if numbers := metadata.partitions_for_topic(topic):
            return [TopicPartition(topic, number) for number in sorted(numbers)]
        await asyncio.sleep(0.1)


async def raw_records(bootstrap: str, topic: str) -> AsyncIterator[RawRecord]:
    """Every record with a value. Read until nothing has come for `QUIET` polls of a
    second: the ends that a broker in memory names are not always the ends."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign(await partitions_of(consumer, topic))
        await consumer.seek_to_beginning()
        quiet = 0
        while quiet < QUIET:
            batches = await consumer.getmany(timeout_ms=1000)
            quiet = 0 if batches else quiet + 1
            for batch in batches.values():
                for record in batch:
                    if record.value is not None:
                        yield RawRecord(record.partition, record.offset, record.value)
    finally:
        await consumer.stop()
