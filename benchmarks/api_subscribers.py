"""Many subscribers of the event stream in a process of their own, over raw connections.

An HTTP library would take more of the machine than the API does, so most subscribers only count
frames in the bytes. A few parse every event, which says how old it is. Some never read at all.
Parts of the answer are whole frames, so the headers of HTTP chunks lie between them.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from multiprocessing.connection import Connection
from typing import cast

import msgspec

AT_ONCE = 50
"""Connections that are opened at the same time."""
BUFFER = 256 * 1024
DEAF_BUFFER = 4096
"""Bytes that the kernel takes for a subscriber that does not read: the server has to wait soon."""

EVENT = b"\nevent: "
OPENED = EVENT + b"opened\n"
BOOKMARK = EVENT + b"bookmark\n"
KEPT = max(len(OPENED), len(BOOKMARK)) - 1


class FrameCount:
    """Counts frames in a stream that comes in chunks.

    Each chunk is read into a buffer behind the last `KEPT` bytes of the chunk before. A pattern of
    n bytes is looked for from n - 1 bytes before the chunk, so one that lies in two chunks is
    counted once."""

    def __init__(self) -> None:
        self._tail = bytes(KEPT)
        self._all = self._opened = self._bookmarks = 0

    @property
    def opened(self) -> bool:
        return self._opened > 0

    @property
    def events(self) -> int:
        return self._all - self._opened - self._bookmarks

    def before(self, buffer: bytearray) -> None:
        """The chunk is to be read into `buffer` from `KEPT` on."""
        buffer[:KEPT] = self._tail

    def after(self, buffer: bytearray, size: int) -> None:
        """The chunk has so many bytes."""
        end = KEPT + size
        self._all += buffer.count(EVENT, KEPT + 1 - len(EVENT), end)
        self._bookmarks += buffer.count(BOOKMARK, KEPT + 1 - len(BOOKMARK), end)
        if not self._opened:
            self._opened += buffer.count(OPENED, KEPT + 1 - len(OPENED), end)
        self._tail = bytes(buffer[size:end])


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """How many of each kind one process has: that count, that parse (`samples`), and that never
    read (`deaf`). The `tokens` are used in turn."""

    port: int
    path: str
    tokens: tuple[str, ...]
    counting: int = 0
    samples: int = 0
    deaf: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """`frames`: events of each subscriber that reads. `repeated`: events that those that parse have
    once more. `seconds`: from the first connection to the last byte. `delays`: seconds from the
    time in each event until it was seen, where they were asked for."""

    opened: int
    closed: int
    frames: tuple[int, ...]
    repeated: int
    size: int
    seconds: float
    delays: tuple[float, ...] = ()


def subscribe(pipe: Connection, wanted: Subscriptions) -> None:
    """Answers each bool with a `Report`, with delays where it is true."""
    asyncio.run(_Clients(wanted).run(pipe))


@dataclass(slots=True)
class _Shared:
    """By all clients of the process: there is one thread, and a chunk is counted before the next
    one is read."""

    buffer: bytearray = field(default_factory=lambda: bytearray(KEPT + BUFFER))
    size: int = 0
    closed: int = 0
    last_at: float = 0.0

    def took(self, size: int) -> None:
        self.size += size
        self.last_at = time.perf_counter()


class _Counting(asyncio.BufferedProtocol):
    def __init__(self, request: bytes, shared: _Shared) -> None:
        self._request = request
        self._shared = shared
        self._room = memoryview(shared.buffer)[KEPT:]
        self._count = FrameCount()

    @property
    def opened(self) -> bool:
        return self._count.opened

    @property
    def events(self) -> int:
        return self._count.events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._count.before(self._shared.buffer)
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._count.after(self._shared.buffer, nbytes)
        self._shared.took(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.closed += 1


class _Event(msgspec.Struct):
    """What is read of a CloudEvent; `opened` and `bookmark` have no id."""

    id: str = ""
    time: str = ""


_decode = msgspec.json.Decoder(_Event).decode


class _Sample(asyncio.Protocol):
    def __init__(self, request: bytes, shared: _Shared) -> None:
        self._request = request
        self._shared = shared
        self._rest = b""
        self.opened = False
        self.ids: Counter[str] = Counter()
        self.delays: list[float] = []

    @property
    def events(self) -> int:
        return self.ids.total()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self._shared.took(len(data))
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                event = _decode(line[6:])
                if event.id:
                    self.ids[event.id] += 1
                    self.delays.append(now - datetime.fromisoformat(event.time).timestamp())
            elif line == b"event: opened":
                self.opened = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.closed += 1


class _Deaf(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = cast(asyncio.Transport, transport)
        connected.pause_reading()
        connected.write(self._request)
        # The loop keeps no transport that waits for nothing: it would be collected, and closed.
        self._transport = connected


class _Clients:
    """All subscribers of the process."""

    def __init__(self, wanted: Subscriptions) -> None:
        self._wanted = wanted
        self._shared = _Shared()
        self._counting: list[_Counting] = []
        self._samples: list[_Sample] = []
        self._deaf: list[_Deaf] = []
        self._began = time.perf_counter()

    async def run(self, pipe: Connection) -> None:
        """Until the pipe ends."""
        ended = asyncio.Event()

        def answer() -> None:
            try:
                pipe.send(self._report(pipe.recv()))
            except (EOFError, OSError):
                loop.remove_reader(pipe.fileno())
                ended.set()

        loop = asyncio.get_running_loop()
        loop.add_reader(pipe.fileno(), answer)
        await self._connect()
        await ended.wait()

    async def _connect(self) -> None:
        wanted = self._wanted
        requests = [_request(wanted.path, token) for token in wanted.tokens]

        def of(number: int) -> bytes:
            return requests[number % len(requests)]

        self._counting = [_Counting(of(n), self._shared) for n in range(wanted.counting)]
        self._samples = [_Sample(of(n), self._shared) for n in range(wanted.samples)]
        self._deaf = [_Deaf(of(n)) for n in range(wanted.deaf)]
        self._began = time.perf_counter()
        await self._open([*self._counting, *self._samples], None)
        await self._open(self._deaf, DEAF_BUFFER)

    async def _open(self, clients: Sequence[asyncio.BaseProtocol], buffer: int | None) -> None:
        for start in range(0, len(clients), AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                for one in clients[start : start + AT_ONCE]:
                    tasks.create_task(_connected(self._wanted.port, one, buffer))

    def _report(self, with_delays: bool) -> Report:
        shared = self._shared
        readers: list[_Counting | _Sample] = [*self._counting, *self._samples]
        return Report(
            opened=sum(one.opened for one in readers),
            closed=shared.closed,
            frames=tuple(one.events for one in readers),
            repeated=sum(one.ids.total() - len(one.ids) for one in self._samples),
            size=shared.size,
            seconds=shared.last_at - self._began,
            delays=tuple(delay for one in self._samples for delay in one.delays)
            if with_delays
            else (),
        )


async def _connected(port: int, client: asyncio.BaseProtocol, buffer: int | None) -> None:
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    try:
        connection.setblocking(False)
        if buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        await loop.sock_connect(connection, ("127.0.0.1", port))
    except BaseException:
        connection.close()
        raise
    await loop.create_connection(lambda: client, sock=connection)


def _request(path: str, token: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    ).encode()
