"""The one who writes a stream's snapshots: it decides the stream again, so a snapshot is also a proof.

It works beside the writer, from the ledger alone, and in a thread: a round may take longer to decide than the heartbeats
of the services on this loop can wait. A state that has parted from history is never stored: the follower then
stands still and says where it parted.

When a snapshot is due is counted in rows (inputs and decisions), because that is what a reader has to fold. A whole one costs as
much as the state is large, so its distance grows with the state; a delta costs as much as changed, so its distance stays. A
stage that cannot say what changed has its whole state in a delta, too, at the distance of a whole one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic

import structlog

from wharfinger.kernel.audit import Audit, Divergence
from wharfinger.kernel.decider import Decider, Incremental, S
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.runtime.ledger.ledger import Ledger
from wharfinger.runtime.ledger.snapshots import Snapshot

_BATCH_ROWS = 500
"""Small, because a follower shares its loop with services whose heartbeats must not wait for a large batch."""

BYTES_A_ROW = 256
"""A whole snapshot of so many bytes is worth one row less to fold. Dumping and packing take about 10 ns a byte, deciding a row
again some 40 µs: at this price snapshots add at most about a fifteenth to what following costs."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Cadence:
    """After how many rows a snapshot is due; a whole one later where the state is large. `every_rounds` instead: whole ones of
    the rounds whose number it divides, and no deltas."""

    whole_rows: int = 0
    delta_rows: int = 0
    every_rounds: int = 0


class SnapshotFollower(Generic[S]):
    """Of one stream. `of_profile`: the decider of a recorded profile, used by nobody else meanwhile."""

    def __init__(
        self,
        ledger: Ledger,
        of_profile: Callable[[str], Decider[S]],
        stream: str,
        every_rounds: int = 0,
        cadence: Cadence | None = None,
    ) -> None:
        self._ledger = ledger
        self._of_profile = of_profile
        self._stream = stream
        self._cadence = cadence or Cadence(every_rounds=every_rounds)
        self._audit: Audit[S] | None = None
        self._since_whole = 0
        self._since_delta = 0
        self._bytes = 0
        self._owing = False
        self.folded = 0
        """How many rows were only folded, to begin where the last delta ends."""

    @property
    def divergence(self) -> Divergence | None:
        """Where history and replay part; while it is None the snapshots are sound."""
        found = self._audit.result.divergences if self._audit else []
        return found[0] if found else None

    async def catch_up(
        self, to_round: int | None = None, may_go_on: Callable[[], Awaitable[bool]] | None = None
    ) -> list[int]:
        """Replay what was committed since the last time, with a snapshot wherever one is due. Returns the rounds of which
        one was made. `may_go_on` is awaited before each round, and may take its time."""
        audit = self._audit = self._audit or await self._begin()
        written: list[int] = []
        if audit.result.divergences:
            return written
        first = audit.head.round + 1
        async for recorded in self._ledger.recorded_rounds(self._stream, first, to_round, _BATCH_ROWS, first):
            if may_go_on is not None and not await may_go_on():
                break
            await asyncio.to_thread(audit.replay, recorded)
            if audit.result.divergences:
                parted = audit.result.divergences[0]
                log.error("snapshot_follower.diverged", stream=self._stream, round=parted.round, step=parted.step)
                break
            self._since_whole += _rows(recorded)
            self._since_delta += _rows(recorded)
            if await self._kept(audit, recorded.round.number):
                written.append(recorded.round.number)
        return written

    async def _kept(self, audit: Audit[S], number: int) -> bool:
        """A delta follows a whole one at once: whoever goes on from the whole one knows all that changed from there on."""
        if self._whole_is_due(number):
            sections = await asyncio.to_thread(audit.decider.dump, audit.state)
            await self._ledger.write_snapshot(self._stream, number, sections)
            self._bytes, self._since_whole = sum(map(len, sections.values())), 0
            self._owing = bool(self._cadence.delta_rows) and isinstance(audit.decider, Incremental)
            return True
        if self._owing or self._delta_is_due(audit.decider):
            sections, names = await asyncio.to_thread(_changes, audit.decider, audit.state)
            await self._ledger.write_snapshot(self._stream, number, sections, names)
            if not isinstance(audit.decider, Incremental):
                self._bytes = sum(map(len, sections.values()))
            self._owing, self._since_delta = False, 0
            return True
        return False

    def _whole_is_due(self, number: int) -> bool:
        if self._cadence.every_rounds:
            return number % self._cadence.every_rounds == 0
        return self._since_whole >= max(self._cadence.whole_rows, self._bytes // BYTES_A_ROW)

    def _delta_is_due(self, decider: Decider[S]) -> bool:
        if not self._cadence.delta_rows:
            return False
        price = 0 if isinstance(decider, Incremental) else self._bytes // BYTES_A_ROW
        return self._since_delta >= max(self._cadence.delta_rows, price)

    async def _begin(self) -> Audit[S]:
        """At the last delta: what changed since can only be told from there on. At the newest whole one where there is no delta;
        the next delta then has everything."""
        delta = await self._ledger.latest_delta(self._stream) if self._cadence.delta_rows else 0
        snapshot = await self._ledger.latest_snapshot(self._stream, delta) if delta else None
        complete = True
        if snapshot is None and not delta:
            snapshot = await self._ledger.latest_snapshot(self._stream)
            complete = snapshot is None
        audit = await self._loaded(snapshot)
        if delta:
            await self._fold(audit, delta)
        if isinstance(audit.decider, Incremental):
            audit.decider.note_changes(audit.state, everything=not complete)
        return audit

    async def _loaded(self, snapshot: Snapshot | None) -> Audit[S]:
        decider = self._of_profile("")
        if snapshot is None:
            state, number = decider.initial(self._stream), 0
        else:
            state, number = await asyncio.to_thread(decider.load, self._stream, snapshot.sections), snapshot.round
            self._bytes = sum(map(len, snapshot.sections.values()))
        return Audit(decider, state, await self._ledger.head_at(self._stream, number), self._of_profile)

    async def _fold(self, audit: Audit[S], to_round: int) -> None:
        """What a follower before has judged is not judged again."""
        async for recorded in self._ledger.recorded_rounds(self._stream, audit.head.round + 1, to_round, _BATCH_ROWS):
            await asyncio.to_thread(recover, audit.decider, audit.state, (recorded,))
            audit.head = recorded.round.head()
            self.folded += _rows(recorded)
        self._since_whole = self.folded


def _rows(recorded: RecordedRound) -> int:
    return len(recorded.events) + len(recorded.round.decisions)


def _changes(decider: Decider[S], state: S) -> tuple[dict[str, bytes], dict[str, list[int]]]:
    if isinstance(decider, Incremental):
        return decider.changes(state)
    return decider.dump(state), {}
