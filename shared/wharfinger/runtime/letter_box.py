"""Writes the dead letters of a reader beside it, so that good records behind bad ones do not wait.

A producer that sends nothing else cannot fill the ledger. Of one producer `LETTERS_PER_MINUTE`
letters carry their payload. One letter counts the others of a batch, or of each `COUNTED_TOGETHER`
offsets of a partition. The records stay on their topic.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from wharfinger.runtime.dead_letters import Letter, lay_aside
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.tasks import end_tasks

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Payload of the letters that are written in one transaction, but for the last of them."""

WAITING_MAX = 500
"""Letters that wait to be written; a reader that has more waits, as where their payload is larger
than one batch."""

LETTERS_PER_MINUTE = 200
COUNTED_TOGETHER = 1000

Ack = Callable[[], object]
Place = tuple[str, int]
"""Topic and partition."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class _Waiting:
    letter: Letter
    life: int
    done: Ack

    @property
    def place(self) -> Place:
        return self.letter.topic, self.letter.partition


class LetterBox:
    """Letters of one reader that are written beside it, in batches, while the records behind them
    are processed. `failed` gets an error of the ledger that is not temporary."""

    def __init__(
        self,
        ledger: Ledger,
        service: str,
        failed: Callable[[Exception], object],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._service = service
        self._failed = failed
        self._clock_s = clock_s
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        """Payload of what waits."""
        self._writing: list[_Waiting] = []
        self._room = asyncio.Event()
        self._room.set()
        self._task: asyncio.Task[None] | None = None
        self._minute = 0
        self._written: Counter[tuple[str, str]] = Counter()
        """Letters with their payload in this minute, by topic and producer."""

    async def add(self, letter: Letter, life: int, done: Ack) -> None:
        """`life`: the incarnation of its topic. `done` is called once it is written. Waits while
        too many wait."""
        await self._room.wait()
        self._waiting.append(_Waiting(letter, life, done))
        self._bytes += len(letter.value)
        if len(self._waiting) >= WAITING_MAX or self._bytes >= BATCH_BYTES_MAX:
            self._room.clear()
        if self._task is None:
            self._task = asyncio.create_task(self._write(), name=f"letters-{self._service}")

    def reached(self, topic: str, partition: int, next_offset: int) -> int:
        """Where a reader must begin to meet every record of the partition whose letter is not
        written yet; `next_offset` where there is none."""
        if self._task is None:
            return next_offset
        offsets = [
            waiting.letter.offset
            for waiting in (*self._writing, *self._waiting)
            if waiting.place == (topic, partition)
        ]
        return min((*offsets, next_offset))

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are read from another place now, where their records come again."""
        gone = set(places)
        self._take([waiting for waiting in self._waiting if waiting.place in gone])

    async def stop(self) -> None:
        """What is not written is read again."""
        self._take(self._waiting)
        if self._task is not None:
            await end_tasks([self._task])

    async def _write(self) -> None:
        try:
            while self._waiting:
                self._writing = self._take(self._waiting)
                await lay_aside(self._ledger, self._service, self._limited(self._writing))
                for waiting in self._writing:
                    waiting.done()
                self._writing = []
        except Exception as error:
            self._failed(error)
        finally:
            self._task = None

    def _take(self, some: Sequence[_Waiting]) -> list[_Waiting]:
        """Those, which do not wait any longer."""
        taken = list(some)
        left = {id(waiting) for waiting in taken}
        self._waiting = [waiting for waiting in self._waiting if id(waiting) not in left]
        self._bytes = sum(len(waiting.letter.value) for waiting in self._waiting)
        self._room.set()
        return taken

    def _limited(self, batch: Sequence[_Waiting]) -> list[Letter]:
        """The letters to write: of a producer above its limit those that count."""
        minute = int(self._clock_s() // 60)
        if minute != self._minute:
            self._minute = minute
            self._written.clear()
        kept: list[Letter] = []
        counted: dict[tuple[Place, int, int], list[Letter]] = {}
        for waiting in batch:
            letter = waiting.letter
            producer = letter.topic, letter.producer
            self._written[producer] += 1
            if self._written[producer] <= LETTERS_PER_MINUTE:
                kept.append(letter)
                continue
            block = letter.offset // COUNTED_TOGETHER
            counted.setdefault((waiting.place, waiting.life, block), []).append(letter)
        log.warning(
            "dead_letters",
            service=self._service,
            letters=len(batch),
            first=f"{batch[0].letter.topic}/{batch[0].letter.partition}/{batch[0].letter.offset}",
            reason=batch[0].letter.reason,
            counted_only=len(batch) - len(kept),
        )
        kept += (Letter.counted(life, letters) for (_, life, _), letters in counted.items())
        return kept
