"""The one who writes a stream's snapshots: it decides the stream again, so a snapshot is also a proof.

It works beside the writer, from the ledger alone. A state that has parted from history is never stored: the follower then
stands still and says where it parted.
"""

from __future__ import annotations

import asyncio
from typing import Generic

import structlog

from wharfinger.kernel.audit import Audit, Divergence
from wharfinger.kernel.decider import Decider, S
from wharfinger.runtime.ledger.ledger import Ledger

_BATCH_ROWS = 500
"""Small, because a follower shares its loop with services whose heartbeats must not wait for a large batch."""

log = structlog.get_logger(__name__)


class SnapshotFollower(Generic[S]):
    """Of one stream. `every_rounds`: snapshots are made of the rounds whose number it divides, whoever makes them."""

    def __init__(self, ledger: Ledger, decider: Decider[S], stream: str, every_rounds: int) -> None:
        self._ledger = ledger
        self._decider = decider
        self._stream = stream
        self._every_rounds = every_rounds
        self._audit: Audit[S] | None = None

    @property
    def divergence(self) -> Divergence | None:
        """Where history and replay part; while it is None the snapshots are sound."""
        found = self._audit.result.divergences if self._audit else []
        return found[0] if found else None

    async def catch_up(self) -> int:
        """Replay what was committed since the last time, with a snapshot wherever one is due. Returns how many were made."""
        audit = self._audit = self._audit or await self._begin()
        written = 0
        if audit.result.divergences:
            return written
        async for recorded in self._ledger.recorded_rounds(self._stream, audit.head.round + 1, batch_rows=_BATCH_ROWS):
            audit.replay(recorded)
            await asyncio.sleep(0)
            if audit.result.divergences:
                first = audit.result.divergences[0]
                log.error("snapshot_follower.diverged", stream=self._stream, round=first.round, what=first.what)
                break
            if recorded.round.number % self._every_rounds == 0:
                sections = self._decider.dump(audit.state)
                await self._ledger.write_snapshot(self._stream, recorded.round.number, sections)
                written += 1
        return written

    async def _begin(self) -> Audit[S]:
        snapshot = await self._ledger.latest_snapshot(self._stream)
        if snapshot is None:
            state, number = self._decider.initial(self._stream), 0
        else:
            state, number = self._decider.load(self._stream, snapshot.sections), snapshot.round
        return Audit(self._decider, state, await self._ledger.head_at(self._stream, number))
