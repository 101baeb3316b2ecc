"""Second copies of services on a plane, and the search for late writes.

A late write is one that a process does after another took its place: a row of the ledger under an
epoch that had ended, or a record behind those of its successor. Each time before frozen processes
go on, a mark notes what their successors have done by then (`mark_of`). After the run the ledger is
searched by SQL and the topics by their raw records.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import psutil
from aiokafka import AIOKafkaConsumer
from benchmarks.plane import PlaneUnderTest
from tests.chaos.checker import Accepted, Findings, RawRecord, partitions_of, raw_records
from tests.patience import until

from wharfinger.runtime.process_status import ProcessCard, process_cards, read_record

COPIED = ("scheduler", "publisher")
STOP_S = 30.0


@dataclass(slots=True)
class Copies:
    """A second process of each service in `COPIED`, with the environment of the first and a data
    directory of its own, as on another machine."""

    plane: PlaneUnderTest
    directory: Path
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def of(cls, plane: PlaneUnderTest) -> Iterator[Copies]:
        with tempfile.TemporaryDirectory(prefix="wharfinger-copies-") as directory:
            copies = cls(plane, Path(directory))
            try:
                yield copies
            finally:
                copies.stop()

    def start(self) -> None:
        """They are there when each has its card. One that ends before is started again, as a
        process manager does."""

        def there() -> bool:
            for name in COPIED:
                child = self._running.get(name)
                if child is None or child.poll() is not None:
                    self._running[name] = self._begun(name)
            return all(self._card(self.directory, name) for name in COPIED)

        until(there, self._ends_of_logs, every_s=0.5)

    def _begun(self, name: str) -> subprocess.Popen[bytes]:
        environment = psutil.Process(self._first(name)).environ()
        environment["WHARFINGER_DATA_DIR"] = str(self.directory)
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"wharfinger_{name}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def stop(self) -> None:
        for child in self._running.values():
            with suppress(ProcessLookupError):
                child.terminate()
        for child in self._running.values():
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._running = {}

    def ended(self) -> Iterator[str]:
        for name, child in self._running.items():
            if (code := child.poll()) is not None:
                yield f"the copy of {name} ended with {code}: {self._ends_of_logs()[name]}"

    def choose(self, name: str, random: Random) -> int:
        """The process that works: of publishers the one that is ready, since it leads. Of
        schedulers both work, each on its partitions: one by chance."""
        ready: list[int] = []

        def one_is() -> bool:
            cards = [self._card(where, name) for where in (self.plane.data_dir, self.directory)]
            ready[:] = [card.pid for card in cards if card is not None and _ready(card)]
            return bool(ready)

        until(one_is, lambda: f"no {name} is ready", every_s=0.5)
        return random.choice(ready)

    def _first(self, name: str) -> int:
        record = read_record(self.plane.data_dir)
        assert record is not None, "the plane is up"
        return record.children[name][0]

    def _ends_of_logs(self) -> dict[str, str]:
        return {
            name: (self.directory / f"{name}.log").read_text(errors="replace")[-400:]
            for name in COPIED
        }

    @staticmethod
    def _card(directory: Path, name: str) -> ProcessCard | None:
        return next((card for path, card in process_cards(directory) if path.stem == name), None)


def _ready(card: ProcessCard) -> bool:
    readiness = card.readiness()
    return readiness is not None and readiness.ready


@dataclass(frozen=True, slots=True)
class Mark:
    """What there was at one moment. `heads`: stream -> epoch and round; `cursors`: of the
    publisher, stream -> seq; `feed`: epoch and position of its head; `ends`: of the partitions of a
    topic."""

    heads: Mapping[str, tuple[int, int]]
    cursors: Mapping[tuple[str, int], int]
    feed: tuple[int, int]
    ends: Mapping[int, int]


async def mark_of(url: str, bootstrap: str, topic: str) -> Mark:
    ends = await _ends(bootstrap, topic)
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            heads = await connection.fetch("select name, epoch, round from stream")
            cursors = await connection.fetch(_CURSORS)
            feed = await connection.fetchrow("select epoch, position from feed_head")
    finally:
        await connection.close()
    return Mark(
        {row["name"]: (row["epoch"], row["round"]) for row in heads},
        {(row["stream"], row["incarnation"]): row["seq"] for row in cursors},
        (feed["epoch"], feed["position"]),
        ends,
    )


_CURSORS = "select stream, incarnation, seq from cursor where consumer = 'publisher'"


async def _ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        ends = await consumer.end_offsets(await partitions_of(consumer, topic))
        return {place.partition: end for place, end in ends.items()}
    finally:
        await consumer.stop()


async def check_late_rows(found: Findings, url: str, marks: Sequence[tuple[Mark, Mark]]) -> None:
    """Rounds: epochs of a stream rise, and no round behind a mark has an epoch before that of the
    mark. Positions of the feed: each once. Cursors of the publisher never go back."""
    connection = await asyncpg.connect(url)
    try:
        rounds = await connection.fetch(
            "select s.name, r.number, r.epoch from round r join stream s on s.id = r.stream "
            "order by s.name, r.number"
        )
        feed = await connection.fetch(
            "select first_position, stream, first_seq, count from feed order by first_position"
        )
        cursors = {
            (row["stream"], row["incarnation"]): row["seq"]
            for row in await connection.fetch(_CURSORS)
        }
    finally:
        await connection.close()
    check_rounds(found, [tuple(row) for row in rounds], marks)
    for before, mark in marks:
        found.figures["freezes with a mark"] += 1
        for key, seq in mark.cursors.items():
            if cursors.get(key, 0) < seq:
                found.wrong(f"late write: cursor of {key[0]} went back from {seq}")
        found.figures["publishers that were replaced"] += mark.feed[0] > before.feed[0]
        found.figures["schedulers that were replaced"] += any(
            epoch > before.heads.get(name, (epoch, 0))[0] for name, (epoch, _) in mark.heads.items()
        )
    check_feed(found, [tuple(row) for row in feed])


def check_rounds(
    found: Findings, rounds: Sequence[tuple[str, int, int]], marks: Sequence[tuple[Mark, Mark]]
) -> None:
    """`rounds`: stream, number and epoch, in order."""
    highest: dict[str, int] = {}
    for name, number, epoch in rounds:
        found.figures["rounds"] += 1
        if epoch < highest.get(name, 0):
            found.wrong(f"late write: {name} round {number} under epoch {epoch}")
        elif name in highest and epoch > highest[name]:
            found.figures["rounds that began an epoch"] += 1
        highest[name] = max(epoch, highest.get(name, 0))
        for _, mark in marks:
            newest, at = mark.heads.get(name, (0, 0))
            if number > at and epoch < newest:
                found.wrong(f"late write: {name} round {number} under epoch {epoch} < {newest}")


def check_feed(found: Findings, feed: Sequence[tuple[int, int, int, int]]) -> None:
    """`feed`: first position, stream, first seq and count of each run, in order."""
    position = 1
    seqs: dict[int, int] = {}
    for first, stream, first_seq, count in feed:
        if first != position or first_seq != seqs.get(stream, 0) + 1:
            found.wrong(f"feed: position {first} of stream {stream} where {position} follows")
        position, seqs[stream] = first + count, first_seq + count - 1


async def check_late_records(
    found: Findings,
    bootstrap: str,
    topic: str,
    facts: str,
    marks: Sequence[tuple[Mark, Mark]],
    accepted: Sequence[Accepted],
) -> None:
    """On `topic` no record behind a mark is one from before it. On `facts` the last record under
    each key is the last that was accepted of it, as a compacted topic ends."""
    check_repeated(found, [record async for record in raw_records(bootstrap, topic)], marks)
    ours = {str(event.id): event.binding for event in accepted}
    newest = {event.binding: str(event.id) for event in accepted}
    last: dict[str, str] = {}
    async for record in raw_records(bootstrap, facts):
        id = _id(record.value)
        if id in ours:
            last[ours[id]] = id
    for binding, id in newest.items():
        found.figures["last facts"] += 1
        if last.get(binding) != id:
            found.wrong(f"{binding}: {facts} ends with {last.get(binding)}, accepted last is {id}")


def check_repeated(
    found: Findings, records: Sequence[RawRecord], marks: Sequence[tuple[Mark, Mark]]
) -> None:
    """No record behind a mark has the id of one before it."""
    first: dict[str, int] = {}
    for record in records:
        ends = [end for _, mark in marks if (end := mark.ends.get(record.partition, 0))]
        id = _id(record.value)
        if not id:
            continue
        if id in first and any(first[id] < end <= record.offset for end in ends):
            found.wrong(f"late write: {id} was sent again in partition {record.partition}")
        first.setdefault(id, record.offset)


def _id(value: bytes) -> str:
    """Empty: it is no event."""
    try:
        event: Any = json.loads(value)
    except (ValueError, RecursionError):
        return ""
    return str(event.get("id", "")) if isinstance(event, dict) else ""
