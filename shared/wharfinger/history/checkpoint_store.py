"""Where a plane ships its checkpoints to, and where `audit verify` reads them from: a file with one
checkpoint a line, a topic, or an object store.

Nothing that was shipped is ever changed or removed here. Who may change the database must not be
able to change the store: that is what makes it a witness. A URL of an object store goes through
fsspec, which is loaded for no other.
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from wharfinger.history.checkpoint import CheckpointError
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.backends import Backend, BackendError

TOPIC_SCHEME = "kafka"
KEPT_FOR_EVER_MS = -1
SUFFIX = ".json"
READ_TIMEOUT_S = 60.0


class StoreError(CheckpointError):
    """The store cannot be read or written; one line that names it."""


class CheckpointStore(Protocol):
    """`shown`: its address, for people."""

    shown: str

    async def ship(self, body: bytes, made_at: Micros) -> None:
        """Returns when the store has it for good. StoreError."""

    async def shipped(self) -> list[tuple[str, bytes]]:
        """(name, bytes) of all, in the order in which they came. StoreError."""

    async def close(self) -> None: ...


def store_at(where: str, backend: Callable[[], Backend]) -> CheckpointStore:
    """`where`: a path, `kafka://TOPIC`, or a URL that fsspec knows. `backend`: asked for a topic
    only."""
    scheme, separator, rest = where.partition("://")
    if not separator:
        return FileStore(Path(where))
    if scheme == TOPIC_SCHEME:
        return TopicStore(rest, backend())
    return ObjectStore(where)


class FileStore:
    """One checkpoint a line, only ever appended to."""

    def __init__(self, path: Path) -> None:
        self.shown = str(path)
        self._path = path

    async def ship(self, body: bytes, made_at: Micros) -> None:
        await asyncio.to_thread(self._append, body)

    async def shipped(self) -> list[tuple[str, bytes]]:
        return await asyncio.to_thread(self._lines)

    async def close(self) -> None: ...

    def _append(self, body: bytes) -> None:
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            with os.fdopen(handle, "r+b", buffering=0) as file:
                # a line that a full disk has cut is ended first, and the next one stays whole
                size = os.fstat(handle).st_size
                cut = size and os.pread(handle, 1, size - 1) != b"\n"
                line = (b"\n" if cut else b"") + body
                if file.write(line) != len(line):
                    raise OSError(None, "not all of a checkpoint was written")
                os.fsync(handle)
        except OSError as error:
            raise StoreError(f"{self.shown}: {error.strerror or error}") from None

    def _lines(self) -> list[tuple[str, bytes]]:
        """Without lines that were cut: they were never reported as shipped."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError as error:
            raise StoreError(f"{self.shown}: {error.strerror or error}") from None
        return [
            (f"{self.shown}:{number}", line)
            for number, line in enumerate(lines, start=1)
            if line.endswith(b"}")
        ]


class ObjectStore:
    """One object a checkpoint, named by when it was made and by its bytes."""

    def __init__(self, url: str) -> None:
        self.shown = url.rstrip("/")

    async def ship(self, body: bytes, made_at: Micros) -> None:
        name = f"{made_at:020d}-{hashlib.sha256(body).hexdigest()[:12]}{SUFFIX}"
        await asyncio.to_thread(self._put, name, body)

    async def shipped(self) -> list[tuple[str, bytes]]:
        return await asyncio.to_thread(self._all)

    async def close(self) -> None: ...

    def _opened(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]
        except ImportError:
            raise StoreError(
                f"{self.shown}: object stores need fsspec: install wharfinger[object-store]"
            ) from None
        try:
            found: tuple[Any, str] = url_to_fs(self.shown)
        except Exception as error:  # each store's driver has errors of its own
            raise StoreError(f"{self.shown}: {_line(error)}") from None
        return found

    def _put(self, name: str, body: bytes) -> None:
        system, root = self._opened()
        try:
            system.makedirs(root, exist_ok=True)
            system.pipe_file(f"{root}/{name}", body)
        except Exception as error:  # as above
            raise StoreError(f"{self.shown}: {_line(error)}") from None

    def _all(self) -> list[tuple[str, bytes]]:
        system, root = self._opened()
        try:
            system.invalidate_cache()
            paths = sorted(path for path in system.find(root) if path.endswith(SUFFIX))
            if not paths and not system.exists(root):
                raise StoreError(f"{self.shown}: No such file or directory")
            return [(f"{self.shown}/{path.rsplit('/', 1)[-1]}", system.cat(path)) for path in paths]
        except StoreError:
            raise
        except Exception as error:  # as above
            raise StoreError(f"{self.shown}: {_line(error)}") from None


class TopicStore:
    """One record a checkpoint, on a topic of one partition that keeps all its records."""

    def __init__(self, topic: str, backend: Backend) -> None:
        self.shown = f"{TOPIC_SCHEME}://{topic}"
        self._topic = topic
        self._backend = backend
        self._producer: Any = None

    async def ship(self, body: bytes, made_at: Micros) -> None:
        from aiokafka.errors import KafkaError

        try:
            producer = await self._started()
            await producer.send_and_wait(self._topic, body, partition=0)
        except (KafkaError, OSError, BackendError) as error:
            await self.close()
            raise StoreError(f"{self.shown}: {_line(error)}") from None

    async def _started(self) -> Any:
        if self._producer is None:
            from wharfinger.runtime.producer import idempotent_producer, started
            from wharfinger.runtime.topics import TopicSpec, ensure_topics

            await ensure_topics(
                self._backend, [TopicSpec(self._topic, 1, "delete", KEPT_FOR_EVER_MS)]
            )
            self._producer = await started(
                idempotent_producer(self._backend, client_id="wharfinger-checkpoints")
            )
        return self._producer

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def shipped(self) -> list[tuple[str, bytes]]:
        from aiokafka import AIOKafkaConsumer, TopicPartition
        from aiokafka.errors import KafkaError

        from wharfinger.runtime.broadcast import ends_of, stop_consumer
        from wharfinger.runtime.topics import partition_counts

        place = TopicPartition(self._topic, 0)
        consumer = AIOKafkaConsumer(
            **self._backend.client_options(),
            client_id="wharfinger-audit",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            if self._topic not in await partition_counts(self._backend):
                raise StoreError(f"{self.shown}: no such topic")
            async with asyncio.timeout(READ_TIMEOUT_S):
                await consumer.start()
                consumer.assign([place])
                end = (await ends_of(consumer, [place]))[place]
                await consumer.seek_to_beginning(place)
                found: list[tuple[str, bytes]] = []
                while await consumer.position(place) < end:
                    for record in (await consumer.getmany(place, timeout_ms=200)).get(place, ()):
                        if record.value is not None and record.offset < end:
                            found.append((f"{self.shown}@{record.offset}", record.value))
                return found
        except (KafkaError, OSError) as error:
            raise StoreError(f"{self.shown}: {_line(error)}") from None
        finally:
            await stop_consumer(consumer)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
