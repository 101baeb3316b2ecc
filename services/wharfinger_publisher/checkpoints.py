"""Checkpoints that the plane makes by itself: where something has changed it signs where the ledger
stands, and ships that to a place that the database's owner cannot change.

The first of a process has every stream; those after it have what has changed since. So a change is
without a witness for `checkpoint_every_s` at most, while the store answers. Before it signs, the
loop looks whether what it signed last is still there: a history that is rewritten under a running
plane is reported at once. That never stops publishing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wharfinger.events.streams import CHAINS
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Ledger, LedgerError
from wharfinger.runtime.ledger.attestation import hashes_at
from wharfinger.runtime.ledger.marks import MarkedRow, Marks, read_marks
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.observability import METRICS

if TYPE_CHECKING:
    from wharfinger.history.checkpoint import Checkpoint
    from wharfinger.history.checkpoint_store import CheckpointStore

MARKS_MAX = 2000
"""Streams or rows of one checkpoint: 600 KB at most, which a topic takes as one record."""

log = get_logger()


class CheckpointLoop:
    """Runs while its process leads. `key`: read again at every start of the loop."""

    def __init__(
        self,
        ledger: Ledger,
        store: CheckpointStore,
        key: Path,
        every_s: float,
        clock: Callable[[], Micros],
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._key_file = key
        self._every_s = every_s
        self._clock = clock
        self._plane = ""
        self._heads: dict[str, Head] = {}
        self._snapshots: dict[str, int] = {}
        self._rows: dict[tuple[str, str], MarkedRow] = {}
        self._feed = 0
        self._failing = ""
        self._covered = time.monotonic()

    def age_s(self) -> float:
        """Since the ledger was last found to be covered by what was shipped."""
        return time.monotonic() - self._covered

    async def run(self) -> None:
        METRICS.checkpoint_age.set_function(self.age_s)
        try:
            while True:
                await self._turn()
                await asyncio.sleep(self._every_s)
        finally:
            # who does not lead has nothing to ship
            METRICS.checkpoint_age.set_function(lambda: 0.0)
            await self._store.close()

    async def _turn(self) -> None:
        began = time.monotonic()
        try:
            await self.ship()
        except LedgerError as error:
            if self._failing != str(error):
                log.error("checkpoints.not_shipped", why=str(error), to=self._store.shown)
            self._failing = str(error)
            return
        if self._failing:
            log.info("checkpoints.shipped_again", to=self._store.shown)
        self._failing = ""
        self._covered = began

    async def ship(self) -> int:
        """How many checkpoints were shipped: 0 when nothing has changed.

        StoreError, CheckpointError: no place or no key. LedgerError: the database."""
        from wharfinger.history.checkpoint import private_key, signed

        key = private_key(str(self._key_file), await asyncio.to_thread(_read, self._key_file))
        marks = await read_marks(self._ledger.database, self._feed)
        if not self._plane:
            self._plane = await self._of_plane()
        changed = self._changed(marks)
        if not self._plane or not (changed.heads or changed.rows or changed.feed):
            return 0
        await self._compare(changed.heads)
        made_at = self._clock()
        made = list(parts(self._plane, made_at, changed))
        for part in made:
            await self._store.ship(signed(part, key), made_at)
        self._remember(marks)
        METRICS.checkpoints.inc(len(made))
        return len(made)

    async def _of_plane(self) -> str:
        from wharfinger.history.verification import plane_of

        return await plane_of(self._ledger) or ""

    def _changed(self, marks: Marks) -> Marks:
        snapshots = tuple(
            one for one in marks.snapshots if self._snapshots.get(one[0], 0) != one[1]
        )
        streams = {stream for stream, _, _ in snapshots}
        return replace(
            marks,
            heads=tuple(
                head
                for head in marks.heads
                if head.stream in streams
                or (before := self._heads.get(head.stream)) is None
                or (before.round, before.hash) != (head.round, head.hash)
            ),
            snapshots=snapshots,
            rows=tuple(row for row in marks.rows if self._rows.get((row.table, row.key)) != row),
        )

    async def _compare(self, heads: Sequence[Head]) -> None:
        """What was signed last must be a part of what is signed now."""
        before = {head.stream: self._heads[head.stream] for head in heads if self._begun(head)}
        here = await hashes_at(
            self._ledger.database, {name: head.round for name, head in before.items()}
        )
        for name, head in before.items():
            if here.get(name) != head.hash:
                log.error(
                    "checkpoints.history_changed",
                    stream=name,
                    round=head.round,
                    signed=head.hash.hex(),
                    found=here[name].hex() if name in here else "missing",
                )

    def _begun(self, head: Head) -> bool:
        """Access records and row records have no rounds: verify walks them."""
        before = self._heads.get(head.stream)
        return before is not None and before.round > 0 and head.stream not in CHAINS

    def _remember(self, marks: Marks) -> None:
        self._heads = {head.stream: head for head in marks.heads}
        self._snapshots = {stream: number for stream, number, _ in marks.snapshots}
        self._rows = {(row.table, row.key): row for row in marks.rows}
        if marks.feed is not None:
            self._feed = marks.feed.last


def parts(plane: str, made_at: Micros, changed: Marks) -> Iterator[Checkpoint]:
    """One, or several where there are more marks than fit into a record."""
    from wharfinger.history.checkpoint import SHIPPED_VERSION, Checkpoint, FeedMark, RowMark, marks

    streams = marks(changed.heads, changed.snapshots)
    rows = [RowMark(*row) for row in changed.rows]
    feed = changed.feed
    runs = () if feed is None else (FeedMark(feed.first, feed.last, feed.digest.hex()),)
    for first in range(0, max(1, len(streams), len(rows)), MARKS_MAX):
        yield Checkpoint(
            SHIPPED_VERSION,
            plane,
            made_at,
            streams[first : first + MARKS_MAX],
            tuple(rows[first : first + MARKS_MAX]),
            runs if first == 0 else (),
        )


def _read(path: Path) -> bytes:
    from wharfinger.history.checkpoint import CheckpointError

    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
