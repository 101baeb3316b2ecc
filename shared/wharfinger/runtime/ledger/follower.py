"""Two followers of a stream, which write its snapshots from the ledger alone, beside the writer.

`SnapshotFollower` decides the stream again, so its snapshots are also a proof: a state that differs
from history is never stored. It then stops and says where the two differ. `DeltaFollower` only
folds what was recorded, as a recovery does, which costs an eighth. Its deltas serve explanations
beside a load that leaves no time for more. They are marked as not replayed, and the other follower
decides their rounds again before it stores the next whole snapshot.

Both work in a thread: a round may take longer than the heartbeats of the services on this loop can
wait.

What another engine decided is not judged: this one may decide it otherwise, and that is no fault.
Such rounds are folded as a recovery folds them, and the state after the last of them is stored
whole. The engine is part of each round's hash, and the digest of that snapshot is part of the next
one's: so the history itself says when the engine changed, and from which state the new one went on.

When a snapshot is due is counted in rows (inputs and decisions), because that is what a reader has
to fold. A whole one costs as much as the state is large, so its distance grows with the state; a
delta costs as much as changed, so its distance stays. A stage that cannot say what changed has its
whole state in a delta, too, at the distance of a whole one.

A delta holds what changed since its writer's last one. The two writers may write at different
rounds. That is no fault: each delta then holds more than what changed since the one before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

from wharfinger.kernel.audit import Audit, Divergence
from wharfinger.kernel.decider import Decider, Incremental, S
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import ENGINE
from wharfinger.runtime.ledger.errors import LedgerError, Transient
from wharfinger.runtime.ledger.ledger import Ledger
from wharfinger.runtime.ledger.snapshots import StoredSnapshot
from wharfinger.runtime.logs import get_logger

_BATCH_ROWS = 500
"""Small, because a follower shares its loop with services whose heartbeats must not wait for a
large batch."""

_FOLDED_AT_ONCE = 100
"""Rows: enough that the change of threads does not count, and few milliseconds."""

BYTES_A_ROW = 256
"""A whole snapshot of so many bytes is worth one row less to fold. Dumping and packing take about
10 ns a byte, deciding a row again some 40 µs: at this price snapshots add at most about a fifteenth
to what following costs."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotCadence:
    """After how many rows a snapshot is due; a whole one later where the state is large.
    `every_rounds` instead: whole ones of the rounds whose number it divides, and no deltas."""

    whole_rows: int = 0
    delta_rows: int = 0
    every_rounds: int = 0

    def rows_to_whole(self, state_bytes: int) -> int:
        """After how many rows a whole snapshot of a state of that size is due."""
        return max(self.whole_rows, state_bytes // BYTES_A_ROW)


class _SnapshotWriter(Generic[S]):
    """What both followers share. `of_profile`: returns the decider of a recorded profile; nothing
    else may use that decider meanwhile."""

    def __init__(
        self,
        ledger: Ledger,
        of_profile: Callable[[str], Decider[S]],
        stream: str,
        cadence: SnapshotCadence,
    ) -> None:
        self._ledger = ledger
        self._of_profile = of_profile
        self._stream = stream
        self._cadence = cadence
        self._audit: Audit[S] | None = None
        self._since_delta = 0
        self._owing = False
        self._bytes = 0
        self.folded = 0
        """How many rows were only folded, to begin where the last follower ended."""

    @property
    def bytes(self) -> int:
        """Of the state, when it was loaded or stored last."""
        return self._bytes

    @property
    def head(self) -> Head | None:
        """After the last round that was followed; None: nothing was."""
        return None if self._audit is None else self._audit.head

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
        async for recorded in self._ledger.recorded_rounds(
            self._stream, audit.head.round + 1, to_round, _BATCH_ROWS
        ):
            await asyncio.to_thread(audit.fold, recorded)
            self.folded += _rows(recorded)

    def _delta_is_due(self, decider: Decider[S]) -> bool:
        if not self._cadence.delta_rows:
            return False
        price = 0 if isinstance(decider, Incremental) else self._bytes // BYTES_A_ROW
        return self._owing or self._since_delta >= max(self._cadence.delta_rows, price)

    async def _write_delta(self, audit: Audit[S], number: int, replayed: bool) -> bool:
        """Returns False if the round has another snapshot. The next round's delta then has the
        whole state: a whole snapshot may be thrown away before the deltas beside it."""
        sections, names = await asyncio.to_thread(_changes, audit.decider, audit.state)
        written = await self._ledger.write_snapshot(
            self._stream, number, sections, names, replayed=replayed
        )
        if not isinstance(audit.decider, Incremental):
            self._bytes = sum(map(len, sections.values()))
        elif written is None:
            audit.decider.note_changes(audit.state, everything=True)
        self._since_delta, self._owing = 0, written is None
        return written is not None


class DeltaFollower(_SnapshotWriter[S]):
    """Follows one stream by folding and stores deltas, as often as `cadence` says."""

    worked_s = 0.0
    """Processor time that folding has taken, in seconds."""

    async def catch_up(
        self, to_round: int, may_go_on: Callable[[], Awaitable[bool]] | None = None
    ) -> list[int]:
        """Fold what was committed since the last time, with a delta wherever one is due. Returns
        their rounds. `may_go_on` is awaited before some hundred rows each, and may take its
        time."""
        audit = self._audit = self._audit or await self._begin()
        written: list[int] = []
        some: list[RecordedRound] = []
        rows = 0
        async for recorded in self._ledger.recorded_rounds(
            self._stream, audit.head.round + 1, to_round, _BATCH_ROWS, on_trust=True
        ):
            if not some and may_go_on is not None and not await may_go_on():
                return written
            some.append(recorded)
            rows += _rows(recorded)
            if rows >= min(_FOLDED_AT_ONCE, self._cadence.delta_rows - self._since_delta):
                await self._fold_some(audit, some, rows, written)
                some, rows = [], 0
        await self._fold_some(audit, some, rows, written)
        return written

    async def _fold_some(
        self, audit: Audit[S], some: Sequence[RecordedRound], rows: int, written: list[int]
    ) -> None:
        """`rows` of the rounds `some`. A delta that is stored after them is added to `written`."""
        if not some:
            return
        self.worked_s += await asyncio.to_thread(_folded, audit, some)
        self._since_delta += rows
        number = audit.head.round
        if self._delta_is_due(audit.decider) and await self._write_delta(audit, number, False):
            written.append(number)

    async def _begin(self) -> Audit[S]:
        """At the newest delta: what changed since is noted from there on. Where there is none, at
        the newest whole snapshot; the first delta then has everything."""
        delta = await self._ledger.latest_delta(self._stream)
        snapshot = await self._ledger.latest_snapshot(self._stream, delta or None)
        audit = await self._loaded(snapshot)
        if delta:
            await self._fold(audit, delta)
        if isinstance(audit.decider, Incremental):
            audit.decider.note_changes(audit.state, everything=not delta and snapshot is not None)
        return audit


class SnapshotFollower(_SnapshotWriter[S]):
    """Follows one stream by deciding it again and stores its snapshots."""

    def __init__(
        self,
        ledger: Ledger,
        of_profile: Callable[[str], Decider[S]],
        stream: str,
        every_rounds: int = 0,
        cadence: SnapshotCadence | None = None,
    ) -> None:
        super().__init__(
            ledger, of_profile, stream, cadence or SnapshotCadence(every_rounds=every_rounds)
        )
        self._since_whole = 0
        self._deltas_to = 0
        """Up to this round others have stored deltas."""

    @property
    def divergence(self) -> Divergence | None:
        """Where history and replay part; while it is None the snapshots are sound."""
        found = self._audit.result.divergences if self._audit else []
        return found[0] if found else None

    async def catch_up(
        self, to_round: int | None = None, may_go_on: Callable[[], Awaitable[bool]] | None = None
    ) -> list[int]:
        """Replay what was committed since the last time, with a snapshot wherever one is due.
        Returns the rounds of which one was made. `may_go_on` is awaited before each round, and may
        take its time."""
        if self._cadence.delta_rows:
            self._deltas_to = await self._ledger.latest_delta(self._stream)
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
                return written
            self._since_whole += _rows(recorded)
            self._since_delta += _rows(recorded)
            if await self._kept(audit, recorded.round.number):
                written.append(recorded.round.number)
        if self._deltas_to:
            await self._ledger.mark_replayed(self._stream, audit.head.round)
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
            self._pass_delta(audit, recorded.round.number)
        stored = await self._store_whole(audit, number)
        log.info(
            "engine.changed",
            stream=self._stream,
            round=number,
            before=engine,
            now=ENGINE,
            folded=number - first + 1,
            stored=stored,
        )
        return number if stored else None

    async def _kept(self, audit: Audit[S], number: int) -> bool:
        """Stores a snapshot if one is due, and returns whether it did."""
        if self._pass_delta(audit, number):
            return False
        if self._whole_is_due(number):
            return await self._store_whole(audit, number)
        if number > self._deltas_to and self._delta_is_due(audit.decider):
            return await self._write_delta(audit, number, True)
        return False

    def _pass_delta(self, audit: Audit[S], number: int) -> bool:
        """Whether the newest delta is of this round. The next one need not repeat what it holds."""
        if number != self._deltas_to:
            return False
        if isinstance(audit.decider, Incremental):
            audit.decider.note_changes(audit.state, everything=False)
        self._since_delta, self._owing = 0, False
        return True

    async def _store_whole(self, audit: Audit[S], number: int) -> bool:
        """Returns False if a delta is stored for that round: the next one will do. The first delta
        follows a whole snapshot at once, so a reader that starts from the whole one finds all later
        changes in the deltas."""
        sections = await asyncio.to_thread(audit.decider.dump, audit.state)
        if await self._ledger.write_snapshot(self._stream, number, sections) is None:
            return False
        self._bytes, self._since_whole = sum(map(len, sections.values())), 0
        self._owing = bool(self._cadence.delta_rows) and isinstance(audit.decider, Incremental)
        return True

    def _whole_is_due(self, number: int) -> bool:
        if self._cadence.every_rounds:
            return number % self._cadence.every_rounds == 0
        return self._since_whole >= self._cadence.rows_to_whole(self._bytes)

    async def _begin(self) -> Audit[S]:
        """Where a follower before has ended: what it decided again is not decided once more. It
        begins no later than the newest delta, because what changed since can only be noted from
        there on. Where there is no delta it begins at the newest whole snapshot, and the next delta
        has everything."""
        newest = self._deltas_to
        snapshot = await self._ledger.latest_snapshot(self._stream, newest or None)
        audit = await self._loaded(snapshot)
        replayed = await self._ledger.latest_delta(self._stream, replayed=True) if newest else 0
        if replayed > audit.head.round:
            await self._fold(audit, replayed)
        self._since_whole = self.folded
        if isinstance(audit.decider, Incremental):
            audit.decider.note_changes(audit.state, everything=not newest and snapshot is not None)
        return audit


def _folded(audit: Audit[S], rounds: Iterable[RecordedRound]) -> float:
    """Folds them, and returns the processor time of this thread that it took."""
    began = time.thread_time()
    for recorded in rounds:
        audit.fold(recorded)
    return time.thread_time() - began


def _rows(recorded: RecordedRound) -> int:
    return len(recorded.events) + len(recorded.round.decisions)


def _changes(decider: Decider[S], state: S) -> tuple[dict[str, bytes], dict[str, list[int]]]:
    if isinstance(decider, Incremental):
        return decider.changes(state)
    return decider.dump(state), {}
