"""Signals between the processes of a plane on one machine: what the broker has acknowledged to the
producers of one of them.

The memory broker does not wake its readers (`runtime.fetch_pacing`). Each process has a datagram
socket in the plane's `run` directory, and sends to those of the others how far each partition goes.
Where a process has too many datagrams waiting, its next one has the newest of what it missed. A
signal that is lost costs a pause of a reader and nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from wharfinger.domain.value import json_decoder
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.producer import SentBatch
from wharfinger.runtime.send_signals import SendSignals

SUFFIX = ".sent"
PATH_BYTES_MAX = 100
"""Operating systems take addresses of 104 bytes and more."""

LOOK_S = 1.0
"""How often it is looked for processes that have started or ended."""

AGAIN_S = 0.005
"""When a process is tried again that has too many datagrams waiting."""

FRESH_S = 60.0
"""Others that have signalled within this time are taken to signal all that they send."""

DATAGRAM_BYTES_MAX = 1 << 16

Ends = dict[tuple[str, int], int]
"""(topic, partition) -> the offset behind its last record; partition -1: somewhere on the topic."""

log = get_logger()

_decode = json_decoder(list[tuple[str, int, int]]).decode


class SentElsewhere:
    """`directory`: where the sockets of all processes of the plane are. `name`: of this process,
    which no other one there has. `signals`: of this process."""

    def __init__(self, directory: Path, name: str, signals: SendSignals) -> None:
        self._path = directory / f"{name}{SUFFIX}"
        self._signals = signals
        self._lock = threading.Lock()
        self._news: Ends = {}
        self._scheduled = self._again = False
        self._others: dict[Path, Ends] = {}
        """What each of the others has not been sent yet."""
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
                self._socket.bind(str(self._path))
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
                self._path.unlink(missing_ok=True)

    def _look(self) -> None:
        found = sorted(self._path.parent.glob(f"*{SUFFIX}"))
        self._others = {path: self._others.get(path, {}) for path in found if path != self._path}

    def _tell(self, batch: SentBatch) -> None:
        """From any thread."""
        place = batch.topic, batch.partition
        with self._lock:
            self._news[place] = max(self._news.get(place, -1), batch.end)
            if self._scheduled:
                return
            self._scheduled = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._send)

    def _send(self) -> None:
        with self._lock:
            news, self._news, self._scheduled = self._news, {}, False
        for path, missed in list(self._others.items()):
            missed.update(news)
            if not missed:
                continue
            try:
                self._socket.sendto(_encoded(missed), str(path))
                missed.clear()
            except BlockingIOError:
                if not self._again:
                    self._again = True
                    self._loop.call_later(AGAIN_S, self._send_again)
            except OSError:  # it has ended
                del self._others[path]

    def _send_again(self) -> None:
        self._again = False
        if self._socket.fileno() >= 0:
            self._send()

    def _received(self) -> None:
        while True:
            try:
                datagram = self._socket.recv(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            self._heard_at = time.monotonic()
            with suppress(msgspec.MsgspecError):  # of something else on this machine
                self._signals.hear(_batches(_decode(datagram)))


def _encoded(ends: Ends) -> bytes:
    return msgspec.json.encode([(*place, end) for place, end in ends.items()])


def _batches(ends: Iterable[tuple[str, int, int]]) -> list[SentBatch]:
    return [
        SentBatch(topic) if partition < 0 or end < 1 else SentBatch(topic, partition, end - 1, end)
        for topic, partition, end in ends
    ]
