"""Snapshots of the streams that a stage owns, made while the stage is idle, and in small slices
where it is never idle.

A restart begins at a whole snapshot instead of the first round. An explanation of a past decision
begins at a delta. To make either, the keeper decides the rounds since the last one again, which
costs as much as the first time. So it waits until the stage is at rest, and the other stages of the
process too, whose interpreter it would take. It works in a thread beside the loop, one round at a
time. It stops as soon as a stage has work, and frees its state when it is done. It never delays a
decision.

In a burst nothing is folded either, until a stream is so far behind that an explanation would take
longer than it may (`BURST`). The stage rests after most bursts, and what the keeper decides again
then makes the same deltas: to fold before would be done for nothing, and in the interpreter that
decides. In a longer burst the newest delta stays that far behind.

A stream that is never at rest gets snapshots too. Its rounds are folded, which costs an eighth of
deciding them again, and deltas are stored as often as on a stream at rest. Only when a whole
snapshot is overdue are they decided again as well. In between the keeper sleeps long enough to take
about one twentieth of a core at most for either. Until the stage rests it keeps its states, where
they are not large, and follows: to begin again costs more than to follow. Under a load that fills
the stage whole snapshots fall further behind. That costs a longer recovery.

After a change of the engine the rounds of the old one are folded and not compared, and the state is
stored at once (`ledger.follower`). Where this engine itself decides otherwise than it did before,
no further snapshot of the stream is made. That is a fault: the log reports it now and every ten
minutes, and so do the metric `wharfinger_divergences`, its alert, and `doctor`. A restart tries
again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from wharfinger.kernel.decider import Decider, S
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import ENGINE
from wharfinger.runtime.ledger import Ledger, SnapshotFollower, Transient
from wharfinger.runtime.ledger.follower import DeltaFollower, SnapshotCadence
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.tasks import end_tasks

log = get_logger()

REST_S = 1.0
"""A stage that has been idle for so long is at rest."""

OVERDUE = 2
"""While its stage is busy, a stream is followed only after this many times the rows after which a
snapshot of the kind is due."""

BURST = 10
"""While a stage of the process has a burst, a stream is folded only so far that the newest delta is
this many times the rows old after which one is due. By default that is 5,000 decisions, with their
inputs some 10,000 rows: an explanation of the newest fleet decision then takes a tenth of a second
of processor time, and with twice as many rows two."""

KEPT_BYTES_MAX = 8 << 20
"""States that are stored in at most so many bytes together are kept while their stage is busy: in
memory they take some five times as much."""

SAY_AGAIN_S = 600.0
"""How often the log repeats that a stream has no snapshots any more."""

SHARE = 0.05
"""The part of a core that folding and deciding again may each take while the stage is busy."""

FOLDED_PART = 4
"""To begin, the keeper folds the rows since the last whole snapshot. It waits until a quarter as
many rows are new."""


class StreamOwner(Protocol):
    """Who owns the streams: a stage loop."""

    def heads(self) -> Mapping[str, Head]:
        """Of the streams owned now."""
        ...

    def idle_s(self) -> float: ...

    def in_burst(self) -> bool: ...


F = TypeVar("F", SnapshotFollower[Any], DeltaFollower[Any])


@dataclass(slots=True)
class _FollowedStreams(Generic[F]):
    """How far the streams are followed in one of the two ways. By stream: `reached`: the head after
    the newest snapshot. `folded`: the rows that were folded to begin. `bytes`: of the state.
    `followers`: of streams that are followed until their stage rests."""

    reached: dict[str, Head] = field(default_factory=dict)
    folded: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    followers: dict[str, F] = field(default_factory=dict)

    def forget(self, stream: str) -> None:
        self.reached.pop(stream, None)
        self.followers.pop(stream, None)

    def least(self, stream: str, rows: int) -> int:
        """After how many rows it is worth to go on, where snapshots are due after `rows`."""
        if stream in self.followers:
            return rows
        return max(rows, self.folded.get(stream, 0) // FOLDED_PART)

    def behind(self, stream: str, head: Head) -> int:
        return _rows_between(self.reached.get(stream), head)

    def kept_bytes(self) -> int:
        return sum(follower.bytes for follower in self.followers.values())


def _rows_between(reached: Head | None, head: Head) -> int:
    """At least so many rows: every round has an input or a decision, and how many decisions there
    are is known. `reached` None: since the first round."""
    if reached is None:
        return head.round + head.seq
    return head.round - reached.round + head.seq - reached.seq


class SnapshotKeeper(Generic[S]):
    """`of_profile`: the decider of a recorded profile; never the owner's own one, which must not be
    used from two threads. `cadence`: when a snapshot is due. `idle_s`: for how long all stages that
    share the interpreter with the owner have been idle. `in_burst`: whether one of them has a
    burst. By default only the owner is asked."""

    def __init__(
        self,
        ledger: Ledger,
        of_profile: Callable[[str], Decider[S]],
        owner: StreamOwner,
        cadence: SnapshotCadence,
        rest_s: float = REST_S,
        idle_s: Callable[[], float] | None = None,
        in_burst: Callable[[], bool] | None = None,
    ) -> None:
        self._idle_s = idle_s or owner.idle_s
        self._in_burst = in_burst or owner.in_burst
        self._ledger = ledger
        self._of_profile = of_profile
        self._owner = owner
        self._cadence = cadence
        self._rest_s = rest_s
        self._replaying = _FollowedStreams[SnapshotFollower[S]]()
        self._folding = _FollowedStreams[DeltaFollower[S]]()
        self._given_up: dict[str, str] = {}
        """Stream -> why."""
        self.divergences = 0
        """Streams, since the start, whose rounds were decided otherwise when a snapshot was
        made."""
        self._said_at = 0.0
        self._engine_known: set[str] = set()
        """Streams of which it is known whether another engine decided their last rounds."""
        self._worked_from = 0.0
        """When the last round was begun to be decided again, by the monotonic clock, in seconds."""
        self._folded_s = 0.0
        """Processor time of the present follower that was slept for."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run(self._keep), name="snapshots")]
        if self._cadence.delta_rows:
            self._tasks.append(asyncio.create_task(self._run(self._keep_deltas), name="deltas"))

    async def stop(self) -> None:
        await end_tasks(self._tasks)

    async def _run(self, keep: Callable[[str], Awaitable[None]]) -> None:
        """Trouble with a snapshot is said and not a reason to stop deciding: without it a restart
        only takes longer."""
        while True:
            for stream in sorted(self._owner.heads()):
                try:
                    await keep(stream)
                except Transient as error:
                    log.warning("snapshot.put_off", stream=stream, why=str(error))
                except Exception as error:
                    self._given_up[stream] = f"{type(error).__name__}: {error}"
                    log.exception("snapshot.failed", stream=stream)
            self._say_stopped()
            await asyncio.sleep(self._rest_s)

    def _say_stopped(self) -> None:
        """Log again, at intervals, which streams get no snapshots: such a stream takes longer to
        recover with every round."""
        now = time.monotonic()
        if not self._given_up or now - self._said_at < SAY_AGAIN_S:
            return
        self._said_at = now
        for stream, why in sorted(self._given_up.items()):
            log.error("snapshots.stopped", stream=stream, why=why)

    async def _keep(self, stream: str) -> None:
        """Decide what was added to the stream again, and store its snapshots, if it is time."""
        following = self._replaying
        if (head := self._owner.heads().get(stream)) is None:
            following.forget(stream)  # its next owner may make a snapshot
        elif await self._due(stream, head):
            await self._bring_forward(stream)
        elif self._rested():
            following.followers.pop(stream, None)

    async def _due(self, stream: str, head: Head) -> bool:
        if stream not in self._engine_known:
            if (
                stream not in self._given_up
                and await self._ledger.other_engine(stream, ENGINE) is not None
            ):
                return True
            self._engine_known.add(stream)
        if stream in self._given_up:
            return False
        following, cadence = self._replaying, self._cadence
        if self._rested():
            rows = min(cadence.delta_rows, cadence.whole_rows)
        else:
            rows = cadence.rows_to_whole(following.bytes.get(stream, 0))
            rows *= 1 if stream in following.followers else OVERDUE
        least = following.least(stream, rows)
        if following.behind(stream, head) < least:
            return False
        if stream not in following.reached:  # most streams never have that many rows
            await self._look(following, stream, await self._ledger.replayed_to(stream))
        return following.behind(stream, head) >= least

    async def _bring_forward(self, stream: str) -> None:
        following = self._replaying
        follower = following.followers.pop(stream, None)
        if follower is None or not await follower.continues():
            follower = SnapshotFollower(
                self._ledger, self._of_profile, stream, cadence=self._cadence
            )
        self._worked_from = time.monotonic()
        made = await follower.catch_up(
            self._owner.heads()[stream].round, lambda: self._may_go_on(stream)
        )
        self._engine_known.add(stream)
        if (found := follower.divergence) is not None:
            self.divergences += 1
            self._given_up[stream] = (
                f"round {found.round}: decided otherwise now, by the same engine: {found.step}"
            )
        else:
            self._kept(following, stream, follower)
        if made:
            await self._look(following, stream, made[-1])
            log.info("snapshot.made", stream=stream, round=made[-1], count=len(made))

    async def _keep_deltas(self, stream: str) -> None:
        """Fold what was added to the stream and store its deltas, if its stage does not rest. At
        rest there is time to decide it again, and `_keep` stores them."""
        following, rows = self._folding, self._cadence.delta_rows
        head = self._owner.heads().get(stream)
        if head is None or stream in self._given_up:
            following.forget(stream)
            return
        if self._rested():
            following.followers.pop(stream, None)
            return
        follows = stream in following.followers
        least = following.least(stream, rows if follows else OVERDUE * rows)
        if self._in_burst():
            least = max(least, self._burst_rows)
        if following.behind(stream, head) < least:
            return
        if not follows:  # others may have stored one since
            newest = await self._ledger.nearest_snapshot(stream, head.round, names=())
            await self._look(following, stream, newest.round if newest is not None else 0)
            if following.behind(stream, head) < least:
                return
        follower = following.followers.pop(stream, None)
        if follower is None or not await follower.continues():
            follower = DeltaFollower(self._ledger, self._of_profile, stream, self._cadence)
        self._folded_s = follower.worked_s
        made = await follower.catch_up(head.round, lambda: self._may_fold(stream, follower))
        self._kept(following, stream, follower)
        if made:
            await self._look(following, stream, made[-1])
            log.info("delta.made", stream=stream, round=made[-1], count=len(made))

    async def _look(self, following: _FollowedStreams[F], stream: str, number: int) -> None:
        """Note that the newest snapshot is of round `number`; 0: there is none."""
        if number:
            following.reached[stream] = await self._ledger.head_at(stream, number)

    def _kept(self, following: _FollowedStreams[F], stream: str, follower: F) -> None:
        """Note what following cost, and go on with the follower while its stage is busy."""
        following.folded[stream] = follower.folded
        following.bytes[stream] = follower.bytes
        if not self._rested() and self._keeps(follower):
            following.followers[stream] = follower

    def _keeps(self, follower: SnapshotFollower[S] | DeltaFollower[S]) -> bool:
        """Whether the follower may be kept, beside those that are."""
        kept_bytes = self._replaying.kept_bytes() + self._folding.kept_bytes()
        return kept_bytes + follower.bytes <= KEPT_BYTES_MAX

    async def _may_go_on(self, stream: str) -> bool:
        """Before each round that is decided again. At rest at once; else after a sleep that keeps
        our share of the core small."""
        await self._pause(time.monotonic() - self._worked_from)
        self._worked_from = time.monotonic()
        return stream in self._owner.heads()

    async def _may_fold(self, stream: str, follower: DeltaFollower[S]) -> bool:
        """Before some rows are folded, after a sleep as long as the rows before are worth. They are
        counted by processor time: a busy machine makes a round take longer, and folding must not
        fall behind there. In a burst it ends where enough is folded, unless it could not go on from
        there and would have to load the state again."""
        worked_s, self._folded_s = follower.worked_s - self._folded_s, follower.worked_s
        await self._pause(worked_s)
        head = self._owner.heads().get(stream)
        if head is None or self._rested():
            return False
        near = _rows_between(follower.head, head) < self._burst_rows
        return not (near and self._in_burst() and self._keeps(follower))

    async def _pause(self, worked_s: float) -> None:
        until = time.monotonic() + worked_s * (1 / SHARE - 1)
        while True:
            left_s = until - time.monotonic()
            if self._rested() or left_s <= 0:
                return
            await asyncio.sleep(min(left_s, self._rest_s))

    def _rested(self) -> bool:
        return self._idle_s() >= self._rest_s

    @property
    def _burst_rows(self) -> int:
        return BURST * self._cadence.delta_rows
