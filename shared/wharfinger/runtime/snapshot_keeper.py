"""Snapshots of the streams a stage owns, made while it has nothing better to do.

A snapshot is what a restart begins at instead of the first round. Making one means to decide the rounds since the last
one again, which costs as much as it did the first time: so it waits until the stage has rested, goes a round at a time in
a thread beside the loop, stops wherever the stage is wanted, and lets go of its state when it is done. It never stands
in the way of a decision; a stream that is never at rest has no new snapshot, and a longer recovery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Generic, Protocol

import structlog

from wharfinger.kernel.decider import Decider, S
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Ledger, SnapshotFollower, Transient

log = structlog.get_logger()

REST_S = 1.0
"""The stage has been idle for so long: it is at rest."""


class Owner(Protocol):
    """Who owns the streams: a stage loop."""

    def heads(self) -> Mapping[str, Head]:
        """Of the streams owned now."""
        ...

    def idle_s(self) -> float: ...


class SnapshotKeeper(Generic[S]):
    """`of_profile`: the decider of a recorded profile; never the owner's own one, which must not be used from two threads.
    `every_rounds`: a stream is due when it has so many rounds since its last snapshot."""

    def __init__(
        self,
        ledger: Ledger,
        of_profile: Callable[[str], Decider[S]],
        owner: Owner,
        every_rounds: int,
        rest_s: float = REST_S,
    ) -> None:
        self._ledger = ledger
        self._of_profile = of_profile
        self._owner = owner
        self._every_rounds = every_rounds
        self._rest_s = rest_s
        self._reached: dict[str, int] = {}
        self._given_up: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="snapshots")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._rested()
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
        if stream in self._given_up or head.round - self._reached.get(stream, 0) < self._every_rounds:
            return False
        # Asked only now: most streams never have that many rounds.
        latest = await self._ledger.latest_snapshot(stream, names=())
        self._reached[stream] = latest.round if latest is not None else 0
        return head.round - self._reached[stream] >= self._every_rounds

    async def _bring_forward(self, stream: str) -> None:
        follower = SnapshotFollower(self._ledger, self._of_profile, stream, self._every_rounds)
        last = self._owner.heads()[stream].round
        last -= last % self._every_rounds
        made = await follower.catch_up(last, lambda: self._may_go_on(stream))
        if follower.divergence is not None:
            self._given_up.add(stream)
        if made:
            self._reached[stream] = made[-1]
            log.info("snapshot.made", stream=stream, round=made[-1])

    async def _may_go_on(self, stream: str) -> bool:
        await self._rested()
        return stream in self._owner.heads()

    async def _rested(self) -> None:
        while True:
            left_s = self._rest_s - self._owner.idle_s()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)
