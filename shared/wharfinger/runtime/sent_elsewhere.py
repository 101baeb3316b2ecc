"""What producers of one process of a plane have sent, for the readers of its other processes on the
same machine.

The memory broker does not wake its readers (`runtime.fetch_pacing`). Each process has a datagram
socket in the plane's `run` directory. A datagram names the topics that its sender reads, and the
batches that the broker has acknowledged to its producers, of topics that the receiver reads. Small
batches go with their bytes: a reader takes them without a fetch (`runtime.handed_over`).

Where a process has too many datagrams waiting, its next one has what it missed. A datagram that is
lost costs a pause of a reader and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from wharfinger.domain.value import reading_types
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.producer import SentBatch
from wharfinger.runtime.send_signals import SendSignals

SUFFIX = ".sent"
PATH_BYTES_MAX = 100
"""Operating systems take addresses of 104 bytes and more."""

OWNER_ONLY = 0o600
"""What comes by the socket is read as records of the broker."""

LOOK_S = 1.0
"""How often it is looked for processes that have started or ended."""

AGAIN_S = 0.005
"""When a process is tried again that has too many datagrams waiting."""

FRESH_S = 60.0
"""Others that have sent a datagram within this time are taken to signal all that they send."""

GREET_S = FRESH_S / 4
"""After so long without one, a process sends a datagram without batches."""

DATAGRAM_BYTES_MAX = 1 << 16

RECORDS_BYTES_MAX = 3 * DATAGRAM_BYTES_MAX // 4
"""Of the batches that wait for one process. What is more, its readers fetch."""

WAITING_BYTES_MAX = 7 * DATAGRAM_BYTES_MAX // 8
"""Of all that waits for one process. What is more, its readers look for in all partitions of its
topic. The rest of a datagram is for the topics that are read here."""

BATCH_BYTES = 64
"""What a batch takes beside its topic and its records, at most."""

log = get_logger()


class Datagram(NamedTuple):
    """`sender`: the name of its process. `reads`: the topics that are read there."""

    sender: str
    reads: Sequence[str]
    batches: Sequence[SentBatch]


_encode = msgspec.msgpack.Encoder().encode
with reading_types:
    _decode = msgspec.msgpack.Decoder(Datagram).decode


class UnsentBatches:
    """Batches that wait to be sent, of which a bounded number of bytes is kept."""

    def __init__(self) -> None:
        self._batches: list[SentBatch] = []
        self._ranges: dict[tuple[str, int], tuple[int, int]] = {}
        """From where and how far (topic, partition) was sent to without bytes that are kept;
        partition -1: somewhere on the topic."""
        self._batches_bytes = self._ranges_bytes = 0
        """What each of both takes in a datagram, at most."""

    def add(self, batch: SentBatch) -> None:
        size = BATCH_BYTES + len(batch.topic.encode())
        with_records = self._batches_bytes + size + len(batch.records)
        if batch.records and with_records <= RECORDS_BYTES_MAX:
            self._batches.append(batch)
            self._batches_bytes = with_records
            return
        full = self._batches_bytes + self._ranges_bytes + size > WAITING_BYTES_MAX
        if full and (batch.topic, batch.partition) not in self._ranges:
            batch = SentBatch(batch.topic)
        place = batch.topic, batch.partition
        if place not in self._ranges:
            self._ranges_bytes += size
        offset, end = self._ranges.get(place, (batch.offset, batch.end))
        self._ranges[place] = min(offset, batch.offset), max(end, batch.end)

    def all(self) -> list[SentBatch]:
        return [
            *self._batches,
            *(SentBatch(*place, *offsets) for place, offsets in self._ranges.items()),
        ]


class Neighbour:
    """Another process, and what waits to be sent to it."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        """Of its own: what one process does not take fills the buffer that it was sent from."""
        self.socket.setblocking(False)
        self.reads: frozenset[str] | None = None
        """Its topics; None: not known."""
        self.waiting = UnsentBatches()
        self.told: Sequence[str] = ()
        self.told_at = -FRESH_S
        """What it was last sent as the topics that are read here, and when."""

    def add(self, batches: Iterable[SentBatch]) -> None:
        for batch in batches:
            if self.reads is None or batch.topic in self.reads:
                self.waiting.add(batch)

    def sent(self, reads: Sequence[str]) -> None:
        """All that waited."""
        self.waiting, self.told, self.told_at = UnsentBatches(), reads, time.monotonic()


class SentElsewhere:
    """`directory`: where the sockets of all processes of the plane are. `name`: of this process,
    which no other one there has. `signals`: of this process."""

    def __init__(self, directory: Path, name: str, signals: SendSignals) -> None:
        self._path = directory / f"{name}{SUFFIX}"
        self._name = name
        self._signals = signals
        self._lock = threading.Lock()
        self._news = UnsentBatches()
        self._scheduled = self._again = False
        self._others: dict[str, Neighbour] = {}
        self._heard_at = -FRESH_S

    @property
    def fresh(self) -> bool:
        """Whether other processes signal what they send."""
        return time.monotonic() - self._heard_at < FRESH_S

    async def run(self) -> None:
        """Until it is cancelled."""
        if len(str(self._path).encode()) > PATH_BYTES_MAX:
            log.info("sent_elsewhere.off", why=f"{self._path}: too long for a socket")
            return
        self._loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as self._socket:
            self._socket.setblocking(False)
            try:
                self._path.unlink(missing_ok=True)  # of a process that was killed
                with suppress(OSError):  # Linux alone takes it before the socket has a path
                    os.fchmod(self._socket.fileno(), OWNER_ONLY)
                self._socket.bind(str(self._path))
                self._path.chmod(OWNER_ONLY)
            except OSError as error:
                log.warning("sent_elsewhere.off", why=str(error))
                return
            self._loop.add_reader(self._socket, self._received)
            self._signals.tell_others(self._tell)
            try:
                while True:
                    self._look()
                    await asyncio.sleep(LOOK_S)
            finally:
                self._signals.tell_others(None)
                self._loop.remove_reader(self._socket)
                self._forget(self._others)
                self._path.unlink(missing_ok=True)

    def _look(self) -> None:
        found = sorted(path.stem for path in self._path.parent.glob(f"*{SUFFIX}"))
        self._forget(self._others.keys() - set(found))
        for name in found:
            if name != self._name and name not in self._others:
                self._others[name] = Neighbour()
        now = time.monotonic()
        for name, other in list(self._others.items()):
            if other.told != self._signals.topics or now - other.told_at >= GREET_S:
                self._send_to(name, other, other.waiting.all())

    def _forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._others.pop(name).socket.close()

    def _tell(self, batch: SentBatch) -> None:
        """From any thread."""
        with self._lock:
            self._news.add(batch)
            if self._scheduled:
                return
            self._scheduled = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._send)

    def _send(self) -> None:
        with self._lock:
            news, self._news, self._scheduled = self._news.all(), UnsentBatches(), False
        for name, other in list(self._others.items()):
            other.add(news)
            if waiting := other.waiting.all():
                self._send_to(name, other, waiting)

    def _send_to(self, name: str, other: Neighbour, batches: Sequence[SentBatch]) -> None:
        datagram = Datagram(self._name, self._signals.topics, batches)
        try:
            other.socket.sendto(_encode(datagram), str(self._path.with_name(name + SUFFIX)))
            other.sent(datagram.reads)
        except BlockingIOError:
            if not self._again:
                self._again = True
                self._loop.call_later(AGAIN_S, self._send_again)
        except OSError:  # it has ended
            self._forget([name])

    def _send_again(self) -> None:
        self._again = False
        if self._socket.fileno() >= 0:
            self._send()

    def _received(self) -> None:
        while True:
            try:
                received = self._socket.recv(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            try:
                sender, reads, batches = _decode(received)
            except (msgspec.MsgspecError, UnicodeDecodeError):  # of something else on this machine
                continue
            self._heard_at = time.monotonic()
            if (other := self._others.get(sender)) is not None:
                other.reads = frozenset(reads)
            self._signals.hear(batches)
