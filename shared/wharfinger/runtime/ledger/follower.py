"""The one who writes a stream's snapshots: it decides the stream again, so a snapshot is also a proof.

It works beside the writer, from the ledger alone, and in a thread: a round may take longer to decide than the heartbeats
of the services on this loop can wait. A state that has parted from history is never stored: the follower then
stands still and says where it parted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic

import structlog

from wharfinger.kernel.audit import Audit, Divergence
from wharfinger.kernel.decider import Decider, S
from wharfinger.runtime.ledger.ledger import Ledger

_BATCH_ROWS = 500
"""Small, because a follower shares its loop with services whose heartbeats must not wait for a large batch."""

log = structlog.get_logger(__name__)


class SnapshotFollower(Generic[S]):
    """Of one stream. `of_profile`: the decider of a recorded profile, used by nobody else meanwhile. `every_rounds`: snapshots
    are made of the rounds whose number it divides, whoever makes them."""

    def __init__(self, ledger: Ledger, of_profile: Callable[[str], Decider[S]], stream: str, every_rounds: int) -> None:
        self._ledger = ledger
        self._of_profile = of_profile
        self._stream = stream
        self._every_rounds = every_rounds
        self._audit: Audit[S] | None = None

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
            number = recorded.round.number
            if number % self._every_rounds == 0:
                sections = await asyncio.to_thread(audit.decider.dump, audit.state)
                await self._ledger.write_snapshot(self._stream, number, sections)
                written.append(number)
        return written

    async def _begin(self) -> Audit[S]:
        snapshot = await self._ledger.latest_snapshot(self._stream)
        decider = self._of_profile("")
        if snapshot is None:
            state, number = decider.initial(self._stream), 0
        else:
            state, number = await asyncio.to_thread(decider.load, self._stream, snapshot.sections), snapshot.round
        return Audit(decider, state, await self._ledger.head_at(self._stream, number), self._of_profile)
