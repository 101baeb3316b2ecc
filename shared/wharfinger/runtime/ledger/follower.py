"""Writes a stream's snapshots: it decides the stream again, so a snapshot is also a proof.

It works beside the writer, from the ledger alone, and in a thread: a round may take longer to
decide than the heartbeats of the services on this loop can wait. A state that differs from history
is never stored: the follower then stops and says where the two differ.

What another engine decided is not judged: this one may decide it otherwise, and that is no fault.
Such rounds are folded as a recovery folds them, and the state after the last of them is stored
whole. The engine is part of each round's hash, and the digest of that snapshot is part of the next
one's: so the history itself says when the engine changed, and from which state the new one went on.

When a snapshot is due is counted in rows (inputs and decisions), because that is what a reader has
to fold. A whole one costs as much as the state is large, so its distance grows with the state; a
delta costs as much as changed, so its distance stays. A stage that cannot say what changed has its
whole state in a delta, too, at the distance of a whole one.
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
from wharfinger.kernel.step import ENGINE
from wharfinger.runtime.ledger.errors import LedgerError, Transient
from wharfinger.runtime.ledger.ledger import Ledger
from wharfinger.runtime.ledger.snapshots import StoredSnapshot

_BATCH_ROWS = 500
"""Small, because a follower shares its loop with services whose heartbeats must not wait for a
large batch."""

BYTES_A_ROW = 256
"""A whole snapshot of so many bytes is worth one row less to fold. Dumping and packing take about
10 ns a byte, deciding a row again some 40 µs: at this price snapshots add at most about a fifteenth
to what following costs."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotCadence:
    """After how many rows a snapshot is due; a whole one later where the state is large.
    `every_rounds` instead: whole ones of the rounds whose number it divides, and no deltas."""

    whole_rows: int = 0
    delta_rows: int = 0
    every_rounds: int = 0


class SnapshotFollower(Generic[S]):
    """Follows one stream and stores its snapshots. `of_profile`: returns the decider of a recorded
    profile; nothing else may use that decider meanwhile."""

    def __init__(
        self,
        ledger: Ledger,
        of_profile: Callable[[str], Decider[S]],
        stream: str,
        every_rounds: int = 0,
        cadence: SnapshotCadence | None = None,
    ) -> None:
        self._ledger = ledger
        self._of_profile = of_profile
        self._stream = stream
        self._cadence = cadence or SnapshotCadence(every_rounds=every_rounds)
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

    @property
    def bytes(self) -> int:
        """Of the state, when it was loaded or stored last."""
        return self._bytes

    async def continues(self) -> bool:
        """Whether the ledger still has the history that was followed: it has another one after a
        backup was put back."""
        if self._audit is None:
            return True
        head = self._audit.head
        try:
            return (await self._ledger.head_at(self._stream, head.round)).hash == head.hash
        except Transient:
            raise
        except LedgerError:  # it does not have that round
            return False

    async def catch_up(
        self, to_round: int | None = None, may_go_on: Callable[[], Awaitable[bool]] | None = None
    ) -> list[int]:
        """Replay what was committed since the last time, with a snapshot wherever one is due.
        Returns the rounds of which one was made. `may_go_on` is awaited before each round, and may
        take its time."""
        audit = self._audit = self._audit or await self._begin()
        written: list[int] = []
        if audit.result.divergences:
            return written
        if (number := await self._fold_other_engine(audit, to_round, may_go_on)) is not None:
            written.append(number)
        first = audit.head.round + 1
        async for recorded in self._ledger.recorded_rounds(
            self._stream, first, to_round, _BATCH_ROWS, first
        ):
            if may_go_on is not None and not await may_go_on():
                break
            await asyncio.to_thread(audit.replay, recorded)
            if audit.result.divergences:
                parted = audit.result.divergences[0]
                log.error(
                    "snapshot_follower.diverged",
                    stream=self._stream,
                    round=parted.round,
                    step=parted.step,
                )
                break
            self._since_whole += _rows(recorded)
            self._since_delta += _rows(recorded)
            if await self._kept(audit, recorded.round.number):
                written.append(recorded.round.number)
        return written

    async def _fold_other_engine(
        self, audit: Audit[S], to_round: int | None, may_go_on: Callable[[], Awaitable[bool]] | None
    ) -> int | None:
        """Bring the state to the last round that another engine decided, and store it whole.
        Returns that round; None: there is none, or it is beyond what was asked for, or we were not
        to go on."""
        other = await self._ledger.other_engine(self._stream, ENGINE)
        if (
            other is None
            or other[0] <= audit.head.round
            or (to_round is not None and other[0] > to_round)
        ):
            return None
        number, engine = other
        first = audit.head.round + 1
        async for recorded in self._ledger.recorded_rounds(
            self._stream, first, number, _BATCH_ROWS
        ):
            if may_go_on is not None and not await may_go_on():
                return None
            await asyncio.to_thread(audit.fold, recorded)
            self.folded += _rows(recorded)
        sections = await asyncio.to_thread(audit.decider.dump, audit.state)
        digest = await self._ledger.write_snapshot(self._stream, number, sections)
        self._bytes, self._since_whole, self._since_delta = sum(map(len, sections.values())), 0, 0
        self._owing = bool(self._cadence.delta_rows) and isinstance(audit.decider, Incremental)
        log.info(
            "engine.changed",
            stream=self._stream,
            round=number,
            before=engine,
            now=ENGINE,
            folded=number - first + 1,
            snapshot=digest.hex()[:16],
        )
        return number

    async def _kept(self, audit: Audit[S], number: int) -> bool:
        """Stores a snapshot if one is due, and returns whether it did. The first delta follows a
        whole snapshot at once, so a reader that starts from the whole one finds all later changes
        in the deltas."""
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
        """At the last delta: what changed since can only be told from there on. At the newest whole
        one where there is no delta; the next delta then has everything."""
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

    async def _loaded(self, snapshot: StoredSnapshot | None) -> Audit[S]:
        decider = self._of_profile("")
        if snapshot is None:
            state, number = decider.initial(self._stream), 0
        else:
            state, number = (
                await asyncio.to_thread(decider.load, self._stream, snapshot.sections),
                snapshot.round,
            )
            self._bytes = sum(map(len, snapshot.sections.values()))
        return Audit(
            decider, state, await self._ledger.head_at(self._stream, number), self._of_profile
        )

    async def _fold(self, audit: Audit[S], to_round: int) -> None:
        """What a follower before has judged is not judged again."""
        async for recorded in self._ledger.recorded_rounds(
            self._stream, audit.head.round + 1, to_round, _BATCH_ROWS
        ):
            audit.state = await asyncio.to_thread(recover, audit.decider, audit.state, (recorded,))
            audit.head = recorded.round.head()
            self.folded += _rows(recorded)
        self._since_whole = self.folded


def _rows(recorded: RecordedRound) -> int:
    return len(recorded.events) + len(recorded.round.decisions)


def _changes(decider: Decider[S], state: S) -> tuple[dict[str, bytes], dict[str, list[int]]]:
    if isinstance(decider, Incremental):
        return decider.changes(state)
    return decider.dump(state), {}
