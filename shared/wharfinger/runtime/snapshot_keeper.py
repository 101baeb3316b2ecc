"""Snapshots of the streams that a stage owns, made while the stage is idle, and in small slices
where it is never idle.

A restart begins at a whole snapshot instead of the first round. An explanation of a past decision
begins at a delta. To make either, the keeper decides the rounds since the last one again, which
costs as much as the first time. So it waits until the stage is at rest, and the other stages of the
process too, whose interpreter it would take. It works in a thread beside the loop, one round at a
time. It stops as soon as a stage has work, and frees its state when it is done. It never delays a
decision.

A stream that is never at rest gets snapshots too, once it is far behind: after each round the
keeper sleeps long enough to take one twentieth of a core at most. Until the stage rests it keeps
its state, where that is not large, and follows: to begin again costs more than to follow. Under a
load that fills the stage it falls further behind. That costs a longer recovery and slower
explanations of the latest decisions.

After a change of the engine the rounds of the old one are folded and not compared, and the state is
stored at once (`ledger.follower`). Where this engine itself decides otherwise than it did before,
no further snapshot of the stream is made. That is a fault: the log reports it now and every ten
minutes, and so do the metric `wharfinger_divergences`, its alert, and `doctor`. A restart tries
again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Generic, Protocol

import structlog

from wharfinger.kernel.decider import Decider, S
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import ENGINE
from wharfinger.runtime.ledger import Ledger, SnapshotFollower, Transient
from wharfinger.runtime.ledger.follower import SnapshotCadence
from wharfinger.runtime.service import end_tasks

log = structlog.get_logger()

REST_S = 1.0
"""A stage that has been idle for so long is at rest."""

OVERDUE = 2
"""While its stage is busy, a stream is followed only after this many times the rows after which a
delta is due."""

KEPT_BYTES_MAX = 8 << 20
"""States that are stored in at most so many bytes together are kept while their stage is busy: in
memory they take some five times as much."""

SAY_AGAIN_S = 600.0
"""How often the log repeats that a stream has no snapshots any more."""

SHARE = 0.05
"""The part of a core that the keeper may take while the stage is busy."""

FOLDED_PART = 4
"""To begin, the keeper folds the rows since the last whole snapshot. It waits until a quarter as
many rows are to be decided."""


class StreamOwner(Protocol):
    """Who owns the streams: a stage loop."""

    def heads(self) -> Mapping[str, Head]:
        """Of the streams owned now."""
        ...

    def idle_s(self) -> float: ...


class SnapshotKeeper(Generic[S]):
    """`of_profile`: the decider of a recorded profile; never the owner's own one, which must not be
    used from two threads. `cadence`: when a snapshot is due. `idle_s`: for how long all stages that
    share the interpreter with the owner have been idle; by default only the owner is asked."""

    def __init__(
        self,
        ledger: Ledger,
        of_profile: Callable[[str], Decider[S]],
        owner: StreamOwner,
        cadence: SnapshotCadence,
        rest_s: float = REST_S,
        idle_s: Callable[[], float] | None = None,
    ) -> None:
        self._idle_s = idle_s or owner.idle_s
        self._ledger = ledger
        self._of_profile = of_profile
        self._owner = owner
        self._cadence = cadence
        self._rest_s = rest_s
        self._reached: dict[str, Head] = {}
        self._folded: dict[str, int] = {}
        self._followers: dict[str, SnapshotFollower[S]] = {}
        """Of streams that are followed until their stage rests."""
        self._given_up: dict[str, str] = {}
        """Stream -> why."""
        self.divergences = 0
        """Streams, since the start, whose rounds were decided otherwise when a snapshot was
        made."""
        self._said_at = 0.0
        self._engine_known: set[str] = set()
        """Streams of which it is known whether another engine decided their last rounds."""
        self._worked_from = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="snapshots")

    async def stop(self) -> None:
        if self._task is not None:
            await end_tasks([self._task])

    async def _run(self) -> None:
        while True:
            for stream in sorted(self._owner.heads()):
                await self._keep(stream)
            self._say_stopped()
            await asyncio.sleep(self._rest_s)

    async def _keep(self, stream: str) -> None:
        """Trouble with a snapshot is said and not a reason to stop deciding: without it a restart
        only takes longer."""
        try:
            if await self._due(stream):
                await self._bring_forward(stream)
            elif self._rested():
                self._followers.pop(stream, None)
        except Transient as error:
            log.warning("snapshot.put_off", stream=stream, why=str(error))
        except Exception as error:
            self._given_up[stream] = f"{type(error).__name__}: {error}"
            log.exception("snapshot.failed", stream=stream)

    def _say_stopped(self) -> None:
        """Log again, at intervals, which streams get no snapshots: such a stream takes longer to
        recover with every round."""
        now = time.monotonic()
        if not self._given_up or now - self._said_at < SAY_AGAIN_S:
            return
        self._said_at = now
        for stream, why in sorted(self._given_up.items()):
            log.error("snapshots.stopped", stream=stream, why=why)

    async def _due(self, stream: str) -> bool:
        head = self._owner.heads().get(stream)
        if head is None:
            self._reached.pop(stream, None)  # its next owner may make a snapshot
            self._followers.pop(stream, None)
            return False
        if stream not in self._engine_known:
            if (
                stream not in self._given_up
                and await self._ledger.other_engine(stream, ENGINE) is not None
            ):
                return True
            self._engine_known.add(stream)
        rows = min(self._cadence.delta_rows, self._cadence.whole_rows)
        follows = stream in self._followers
        if not follows:
            rows = max(rows, self._folded.get(stream, 0) // FOLDED_PART)
        if stream in self._given_up or _rows_behind(head, self._reached.get(stream)) < rows:
            return False
        if stream not in self._reached:  # queried only now: most streams never have that many rows
            latest = await self._ledger.nearest_snapshot(stream, head.round, names=())
            if latest is not None:
                self._reached[stream] = await self._ledger.head_at(stream, latest.round)
        behind = _rows_behind(head, self._reached.get(stream))
        return behind >= rows and (follows or self._rested() or behind >= OVERDUE * rows)

    async def _bring_forward(self, stream: str) -> None:
        follower = self._followers.pop(stream, None)
        if follower is None or not await follower.continues():
            follower = SnapshotFollower(
                self._ledger, self._of_profile, stream, cadence=self._cadence
            )
        self._worked_from = time.monotonic()
        made = await follower.catch_up(
            self._owner.heads()[stream].round, lambda: self._may_go_on(stream)
        )
        self._folded[stream] = follower.folded
        self._engine_known.add(stream)
        if (found := follower.divergence) is not None:
            self.divergences += 1
            self._given_up[stream] = (
                f"round {found.round}: decided otherwise now, by the same engine: {found.step}"
            )
        elif not self._rested() and follower.bytes + self._kept_bytes() <= KEPT_BYTES_MAX:
            self._followers[stream] = follower
        if made:
            self._reached[stream] = await self._ledger.head_at(stream, made[-1])
            log.info("snapshot.made", stream=stream, round=made[-1], count=len(made))

    def _kept_bytes(self) -> int:
        return sum(follower.bytes for follower in self._followers.values())

    async def _may_go_on(self, stream: str) -> bool:
        """Before each round. At rest at once; else after a sleep that keeps our share of the core
        small."""
        pause_s = (time.monotonic() - self._worked_from) * (1 / SHARE - 1)
        until = time.monotonic() + pause_s
        while True:
            left_s = until - time.monotonic()
            if self._rested() or left_s <= 0:
                break
            await asyncio.sleep(min(left_s, self._rest_s))
        self._worked_from = time.monotonic()
        return stream in self._owner.heads()

    def _rested(self) -> bool:
        return self._idle_s() >= self._rest_s


def _rows_behind(head: Head, reached: Head | None) -> int:
    """At least so many rows: every round has an input or a decision, and how many decisions there
    are is known."""
    if reached is None:
        return head.round + head.seq
    return head.round - reached.round + head.seq - reached.seq
