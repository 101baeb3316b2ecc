"""Snapshots of the streams a stage owns, made while it has nothing better to do, and in small slices where it never has not.

A whole snapshot is what a restart begins at instead of the first round; a delta is what somebody begins at who asks why a binding
was placed. Making either means to decide the rounds since the last one again, which costs as much as it did the first time: so
it waits until the stage has rested, goes a round at a time in a thread beside the loop, stops wherever the stage is
wanted, and lets go of its state when it is done. It never stands in the way of a decision.

A stream that is never at rest is followed too once it is far behind: after each round the keeper sleeps so much longer than it
worked that it takes one twentieth of a core at most. Under a load that fills the stage it falls behind for good, and catches
up at the next rest; what that costs is a longer recovery and slower explanations of the latest decisions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Generic, Protocol

import structlog

from wharfinger.kernel.decider import Decider, S
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Ledger, SnapshotFollower, Transient
from wharfinger.runtime.ledger.follower import Cadence

log = structlog.get_logger()

REST_S = 1.0
"""The stage has been idle for so long: it is at rest."""

OVERDUE = 10
"""So many times the rows after which a delta is due, and a stream is followed though its stage is busy."""

SHARE = 0.05
"""Of a core, while the stage is busy."""

FOLDED_PART = 4
"""Beginning costs folding from the last whole snapshot on: it waits until there is a quarter as much to decide."""


class Owner(Protocol):
    """Who owns the streams: a stage loop."""

    def heads(self) -> Mapping[str, Head]:
        """Of the streams owned now."""
        ...

    def idle_s(self) -> float: ...


class SnapshotKeeper(Generic[S]):
    """`of_profile`: the decider of a recorded profile; never the owner's own one, which must not be used from two threads.
    `cadence`: when a snapshot is due."""

    def __init__(
        self,
        ledger: Ledger,
        of_profile: Callable[[str], Decider[S]],
        owner: Owner,
        cadence: Cadence,
        rest_s: float = REST_S,
    ) -> None:
        self._ledger = ledger
        self._of_profile = of_profile
        self._owner = owner
        self._cadence = cadence
        self._rest_s = rest_s
        self._reached: dict[str, Head] = {}
        self._folded: dict[str, int] = {}
        self._given_up: set[str] = set()
        self._worked_from = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="snapshots")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            for stream in sorted(self._owner.heads()):
                await self._keep(stream)
            await asyncio.sleep(self._rest_s)

    async def _keep(self, stream: str) -> None:
        """Trouble with a snapshot is said and not a reason to stop deciding: without it a restart only takes longer."""
        try:
            if await self._due(stream):
                await self._bring_forward(stream)
        except Transient as error:
            log.warning("snapshot.put_off", stream=stream, why=str(error))
        except Exception:
            self._given_up.add(stream)
            log.exception("snapshot.failed", stream=stream)

    async def _due(self, stream: str) -> bool:
        head = self._owner.heads().get(stream)
        if head is None:
            self._reached.pop(stream, None)  # whoever owns it meanwhile may make one
            return False
        rows = max(min(self._cadence.delta_rows, self._cadence.whole_rows), self._folded.get(stream, 0) // FOLDED_PART)
        if stream in self._given_up or _rows_behind(head, self._reached.get(stream)) < rows:
            return False
        if stream not in self._reached:  # asked only now: most streams never have that many rows
            latest = await self._ledger.nearest_snapshot(stream, head.round, names=())
            if latest is not None:
                self._reached[stream] = await self._ledger.head_at(stream, latest.round)
        behind = _rows_behind(head, self._reached.get(stream))
        return behind >= rows and (self._rested() or behind >= OVERDUE * rows)

    async def _bring_forward(self, stream: str) -> None:
        follower = SnapshotFollower(self._ledger, self._of_profile, stream, cadence=self._cadence)
        self._worked_from = time.monotonic()
        made = await follower.catch_up(self._owner.heads()[stream].round, lambda: self._may_go_on(stream))
        self._folded[stream] = follower.folded
        if follower.divergence is not None:
            self._given_up.add(stream)
        if made:
            self._reached[stream] = await self._ledger.head_at(stream, made[-1])
            log.info("snapshot.made", stream=stream, round=made[-1], count=len(made))

    async def _may_go_on(self, stream: str) -> bool:
        """Before each round. At rest at once; else after a sleep that keeps our share of the core small."""
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
        return self._owner.idle_s() >= self._rest_s


def _rows_behind(head: Head, reached: Head | None) -> int:
    """At least so many rows: every round has an input or a decision, and how many decisions there are is known."""
    if reached is None:
        return head.round + head.seq
    return head.round - reached.round + head.seq - reached.seq
