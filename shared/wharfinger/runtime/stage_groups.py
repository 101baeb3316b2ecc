"""The groups of streams that a stage owns: how they are taken over, recovered from the ledger and
let go.

A partition of the consumer group is a *group* of streams with a session lock and an epoch of its
own. Its state lives only while the lock is held:

    expected -> lock -> raise epoch -> recover from the ledger -> owned -> ... -> revoked -> drop,
    release

Messages that come before a group is recovered wait for it here. States are touched on one thread
only (`by_worker`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from wharfinger.domain.open_requests import NONE_OPEN, OpenRequests
from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Decider, Micros, S
from wharfinger.kernel.incarnations import Identifying
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.round import Basis, Head
from wharfinger.runtime.extender_client import ExtenderClient
from wharfinger.runtime.ledger import (
    Ledger,
    LedgerWentBackError,
    PartitionLock,
    Transient,
    WentBack,
)
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.messages import Message, Routing
from wharfinger.stages.extender_calls import CallsExtenders, ExtenderCall
from wharfinger.stages.open_requests import AnswersRequests

log = get_logger()

T = TypeVar("T")

FOLDED_AT_ONCE = 200
"""Recorded rounds folded in one call of the worker."""


@dataclass(slots=True)
class StageStream(Generic[S]):
    head: Head
    state: S
    basis: Basis
    due: Micros | None = None
    asks: Sequence[ExtenderCall] = ()
    requests: OpenRequests = NONE_OPEN
    """Those that the last round left open."""
    snapshot: bytes = b""
    """Digest of the newest one, for the next round to carry."""
    went_back: Sequence[Event[Value]] = ()
    """The events that report that the ledger went back, until the stream has taken them: the first
    inputs of its next round."""
    laid_aside: Event[Value] | None = None
    """The event that names held events which the stream fails on, until it has taken it in: alone,
    because any other input applies what is held."""
    told: Sequence[Event[Value]] = ()
    """The facts from before the stream began that it has not received yet."""
    headed_s: float = field(default_factory=time.monotonic)
    """When the stream reached `head`, by the monotonic clock."""

    @property
    def since_head_us(self) -> int:
        return round((time.monotonic() - self.headed_s) * 1e6)


@dataclass(slots=True)
class StageGroup(Generic[S]):
    number: int
    lock: PartitionLock
    streams: dict[str, StageStream[S]]
    epoch: int
    waiting: deque[Message] = field(default_factory=deque)
    rest_by_s: float | None = None
    """Until when the group waits for the rest of an acceptance, by the monotonic clock."""


class StageGroups(Generic[S]):
    """`standing`: the topics whose facts are for every stream, by the names the ledger has them
    under. `compare`: raises when the ledger has gone back behind what was published; called before
    groups are taken. `wake`: called when a group is owned and may decide. `dropped`: called when
    messages that waited have been dropped.

    `owned`: the groups that may decide, by number. `wanted`: those that are to be owned. `waiting`:
    messages, over all of them. `busy`: held while a turn is under way and while groups change.
    `stopping`: no call is repeated any more.
    """

    def __init__(
        self,
        name: str,
        decider: Decider[S],
        routing: Routing,
        ledger: Ledger,
        incarnations: Mapping[str, int],
        questions: ExtenderClient | None,
        *,
        lock_timeout_s: float,
        standing: Sequence[str],
        compare: Callable[[], Awaitable[None]] | None,
        wake: Callable[[], object],
        dropped: Callable[[], object],
    ) -> None:
        self._name = name
        self._decider = decider
        # asked once: a look at what a protocol names takes as long as a small round
        self._asking = decider if isinstance(decider, CallsExtenders) else None
        self._answering = decider if isinstance(decider, AnswersRequests) else None
        self._routing = routing
        self._ledger = ledger
        self._incarnations = incarnations
        self._questions = questions
        self._lock_timeout_s = lock_timeout_s
        self._standing = standing
        self._compare = compare
        self._wake = wake
        self._dropped = dropped
        self._early: dict[int, deque[Message]] = {}
        self._history: Sequence[WentBack] = ()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"decide-{name}")
        self.owned: dict[int, StageGroup[S]] = {}
        self.wanted: set[int] = set()
        self.waiting = 0
        self.busy = asyncio.Lock()
        self.stopping = False

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)

    # --- what there is ----------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether all that is wanted is owned."""
        return self.wanted == set(self.owned)

    def streams(self) -> dict[str, StageStream[S]]:
        """The streams of all groups owned, by name."""
        return {
            name: stream for group in self.owned.values() for name, stream in group.streams.items()
        }

    def requests(self) -> OpenRequests:
        """Those that are open in the streams of all groups owned. Asked from any thread."""
        found = NONE_OPEN
        for group in list(self.owned.values()):
            for stream in list(group.streams.values()):
                found = found.plus(stream.requests)
        return found

    def heads(self) -> dict[str, Head]:
        return {name: stream.head for name, stream in self.streams().items()}

    def positions(self) -> dict[str, int]:
        """topic/partition -> the lowest next offset over all streams: where a broadcast reader must
        begin."""
        reached = [
            {
                place: offset
                for place, (life, offset) in stream.basis.items()
                if life == self.incarnation(place)
            }
            for stream in self.streams().values()
        ]
        # A stream that has read nothing from a partition, in this incarnation of its topic, must
        # receive it from the beginning.
        return {
            place: min(offsets.get(place, 0) for offsets in reached)
            for place in set().union(*reached)
        }

    def arrivals_s(self) -> list[float]:
        """When the oldest message of each group arrived that waits. Asked from any thread."""
        found = []
        for waiting in [
            *(group.waiting for group in list(self.owned.values())),
            *list(self._early.values()),
        ]:
            try:
                found.append(waiting[0].arrived_s)
            except IndexError:
                continue
        return found

    async def look(self, stream: str, of: Callable[[S], T]) -> T | None:
        """What `of` finds in the state of a stream of ours, asked between two rounds; None: the
        stream is not ours. `of` must not change the state."""
        found = self.streams().get(stream)
        return None if found is None else await self.by_worker(lambda: of(found.state))

    async def by_worker(self, call: Callable[[], T]) -> T:
        """All that touches a state goes this way."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)

    def to_come(self, state: S) -> tuple[Micros | None, Sequence[ExtenderCall], OpenRequests]:
        """When the state is due, what it has to ask, and which requests are open. On the worker."""
        asking, answering = self._asking, self._answering
        asks = () if self._questions is None or asking is None else asking.asks(state)
        requests = NONE_OPEN if answering is None else answering.open_requests(state)
        return self._decider.next_due(state), asks, requests

    def ask(self, streams: Iterable[str]) -> None:
        """Put the questions that these streams of ours have open now."""
        if self._questions is None:
            return
        mine = self.streams()
        for name in streams:
            self._questions.put(name, mine[name].asks)

    def put(self, message: Message) -> bool:
        """Let a message wait for the groups that it is for. Whether there are any."""
        streams = self._routing.addressed(message)
        groups = self.wanted if streams is None else {self._routing.group_of(s) for s in streams}
        mine = [g for g in sorted(groups) if g in self.wanted]
        for number in mine:
            group = self.owned.get(number)
            (group.waiting if group else self._early.setdefault(number, deque())).append(message)
            self.waiting += 1
        return bool(mine)

    def incarnation(self, place: str) -> int:
        return self._incarnations[place.rpartition("/")[0]]

    # --- taking over ------------------------------------------------------------------------------

    def expect(self, numbers: Iterable[int]) -> None:
        """These groups are ours now: their messages are kept until `acquire` has recovered them."""
        self.wanted.update(numbers)

    def forget_early(self, topics: Collection[str]) -> None:
        """What came on these topics for groups that are not recovered yet is read again, from where
        their streams have come to. Kept, it would come before older facts."""
        for number, early in self._early.items():
            kept = deque(message for message in early if message.topic not in topics)
            self.waiting -= len(early) - len(kept)
            self._early[number] = kept
        self._dropped()

    async def acquire(self) -> None:
        """Lock, fence and recover every expected group. Returns when each may decide."""
        if self._compare is not None:
            await self._compare()
        for number in sorted(self.wanted - set(self.owned)):

            async def acquired(number: int = number) -> None:
                async with self.busy:
                    # let go between two attempts: a revocation must not wait for the database
                    if number in self.wanted and number not in self.owned:
                        await self.take(number)

            await self.until_done(acquired)

    async def revoke(self, numbers: Iterable[int]) -> None:
        """Let these groups go: the batch under way is finished, the state is dropped, the locks are
        released."""
        gone = [n for n in numbers if n in self.wanted]
        self.wanted.difference_update(gone)
        async with self.busy:
            for number in gone:
                await self.drop(number)

    async def take(self, number: int) -> None:
        # A former owner has a session's time to finish. After that the epoch excludes it, lock or
        # no lock.
        lock = await self._ledger.partition_lock(f"{self._routing.prefix}{number}")
        try:
            if not await lock.wait(self._lock_timeout_s) and not lock.lost:
                log.warning(
                    "lock.not_released",
                    stage=self._name,
                    group=number,
                    waited_s=self._lock_timeout_s,
                )
            group = await self._recovered(number, lock)
        except BaseException:
            # also when the next rebalance cancels us: the next owner would wait for the lock
            await asyncio.shield(lock.release())
            raise
        if number not in self.wanted:  # taken away again while we recovered
            await lock.release()
            return
        group.waiting = self._early.pop(number, deque())
        self.owned[number] = group
        self.ask(group.streams)
        self._wake()
        log.info(
            "group.ready",
            stage=self._name,
            group=number,
            streams=len(group.streams),
            epoch=group.epoch,
        )

    async def _recovered(self, number: int, lock: PartitionLock) -> StageGroup[S]:
        known = [h.stream for h in await self._ledger.heads(self._routing.prefix)]
        names = [s for s in known if self._routing.group_of(s) == number]
        names += [s for s in self._routing.permanent_streams(number) if s not in names]
        await self._ledger.ensure_streams(names)
        heads = await self._ledger.raise_epoch(names)
        self._history = await self._ledger.went_back()
        streams = {}
        for name in sorted(names):
            streams[name] = await self.recover(name, heads[name])
        epoch = max((h.epoch for h in heads.values()), default=1)
        return StageGroup(number, lock, streams, epoch)

    async def recover(self, name: str, head: Head) -> StageStream[S]:
        began = time.perf_counter()
        decider = self._decider
        snapshot = await self._ledger.latest_snapshot(name, head.round)
        if snapshot is None:
            state, after = await self.by_worker(lambda: decider.initial(name)), 0
        else:
            sections, after = snapshot.sections, snapshot.round
            state = await self.by_worker(lambda: decider.load(name, sections))
        basis: Basis = {}
        if after:
            basis = await self._ledger.basis(name, after)
        rounds: list[RecordedRound] = []

        async def folded() -> None:
            nonlocal state
            batch, before = tuple(rounds), state
            rounds.clear()
            state = await self.by_worker(lambda: recover(decider, before, batch))

        async for recorded in self._ledger.recorded_rounds(
            name, after + 1, head.round, on_trust=True
        ):
            rounds.append(recorded)
            basis = recorded.round.basis
            if len(rounds) == FOLDED_AT_ONCE:
                await folded()
        await folded()
        seconds = time.perf_counter() - began
        if head.round:
            log.info(
                "stream.recovered",
                stream=name,
                rounds=head.round - after,
                seconds=round(seconds, 3),
            )
        to_come = await self.by_worker(lambda: self.to_come(state))
        stream = StageStream(head, state, basis, *to_come, head.snapshot)
        if self._history and isinstance(state, Identifying):
            taken_in = {number for _, number in state.incarnations}
            stream.went_back = [
                one.event for one in self._history if one.data.incarnation not in taken_in
            ]
        if not head.round and name not in self._routing.permanent_streams(
            self._routing.group_of(name)
        ):
            stream.told = [event async for event in self._standing_facts()]
        return stream

    async def _standing_facts(self) -> AsyncIterator[Event[Value]]:
        """What every stream of the stage takes in: for a stream that begins, what came before it
        was there."""
        for topic in self._standing:
            async for fact in self._ledger.facts(topic):
                event = event_of(fact)
                if self._routing.addressed(Message(topic, 0, 0, event)) is None:
                    yield event

    async def begin(self, group: StageGroup[S], name: str) -> StageStream[S]:
        """A stream that was not there before: a cluster's first event."""

        async def begun() -> StageStream[S]:
            await self._ledger.ensure_streams([name])
            return await self.recover(name, (await self._ledger.raise_epoch([name]))[name])

        stream = group.streams[name] = await self.until_done(begun)
        return stream

    # --- letting go -------------------------------------------------------------------------------

    async def drop(self, number: int) -> None:
        group = self.owned.pop(number, None)
        dropped = group.waiting if group else self._early.pop(number, deque())
        self.waiting -= len(dropped)
        self._dropped()
        if group is not None:
            if self._questions is not None:
                for name in group.streams:
                    self._questions.drop(name)
            await group.lock.release()

    async def again(self, number: int, taken: Sequence[Message] = ()) -> None:
        """Drop a group after its lock or head was lost, and take it again if it is still wanted.

        What its streams had not committed waits again, in order: the consumer will not deliver it a
        second time.
        """
        group = self.owned.get(number)
        again = deque(taken)
        if group is not None:
            again.extend(group.waiting)
            group.waiting.clear()
            self.waiting += len(taken)
        former = (
            {} if group is None else {name: stream.head for name, stream in group.streams.items()}
        )
        await self.drop(number)
        if number in self.wanted:
            again.extend(self._early.pop(number, ()))
            self._early[number] = again

            async def acquired() -> None:
                if number in self.wanted:  # a revocation waits for us meanwhile, and says so there
                    await self._not_behind(former)
                    await self.take(number)

            await self.until_done(acquired)
        else:
            self.waiting -= len(again)

    async def _not_behind(self, former: Mapping[str, Head]) -> None:
        """After the lock or a head was lost, which is how a failover of the database looks from
        here. What we have committed must be there, published or not: its inputs were acknowledged.
        LedgerWentBackError: it is not."""
        if self._compare is not None:
            await self._compare()
        now = {head.stream: head for head in await self._ledger.heads(self._routing.prefix)}
        for name, head in former.items():
            found = now.get(name)
            if found is not None and found.round > head.round > 0:
                found = await self._ledger.head_at(name, head.round)
            if found is None or (found.round, found.hash) != (head.round, head.hash):
                raise LedgerWentBackError(
                    f"the ledger went back: round {head.round} of {name}, "
                    "which this process has committed, is not in it"
                )

    async def until_done(self, call: Callable[[], Awaitable[T]]) -> T:
        """The database may be away for a while: the same bytes again until it answers. Fencing and
        bugs go through."""
        pause = 0.05
        while True:
            try:
                return await call()
            except Transient as error:
                if self.stopping:
                    raise
                log.warning("ledger.away", stage=self._name, why=str(error), retry_in_s=pause)
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)


async def while_locked(locks: Iterable[PartitionLock], call: Coroutine[object, object, T]) -> T:
    """The call, unless one of the locks that we still hold is lost meanwhile: a server that answers
    neither the lock's heartbeat nor us may be frozen, and another owner may begin. Transient: it
    was. The same call made again finds out what became of it, and no lock that is already lost ends
    it a second time."""
    under_way = asyncio.ensure_future(call)
    losses = [asyncio.ensure_future(lock.gone.wait()) for lock in locks if not lock.lost]
    try:
        await asyncio.wait([under_way, *losses], return_when=asyncio.FIRST_COMPLETED)
        if under_way.done():
            return under_way.result()
    finally:
        for waiting in (under_way, *losses):
            waiting.cancel()
        await asyncio.gather(under_way, *losses, return_exceptions=True)
    if not under_way.cancelled() and under_way.exception() is None:
        return under_way.result()  # in the same moment
    raise Transient("a lock was lost while the commit was under way")
