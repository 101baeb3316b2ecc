"""The loop that runs a stage: one bounded mailbox, one task.

Whoever reads a topic only puts messages in (`offer`). The task drains them, orders them by stream, steps every stream that
got something, commits all the rounds in one transaction, and only then acks. Partitions come and go with the consumer group;
each is a *group* of streams with a session lock and an epoch of its own, and its state lives only while we hold the lock:

    expected -> lock -> raise epoch -> recover from the ledger -> ready -> ... -> revoked -> finish or abandon -> release

A round that does not reach the ledger takes its state with it: the group is dropped and recovered, never mended.

An event that a decider fails on must not stop what has nothing to do with it, nor come back for ever. When a step fails, its
messages are taken again one at a time, and the one that fails alone, in a stream that works without it, is laid aside as a
dead letter. A stream that fails without any message has a bug that nothing can be laid aside for: that ends the process.

What a decider asks of somebody outside (`kernel.decider.Ask`) is asked beside the loop, and the answer taken in as an input.
A stream that begins while the loop runs is told first what all streams were told before it was there.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import structlog

from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.ticks import Ticked
from wharfinger.kernel.decider import Asking, Decider, Micros, S
from wharfinger.kernel.recover import recover
from wharfinger.kernel.round import Basis, Head, Round
from wharfinger.kernel.step import step, tick
from wharfinger.runtime.asking import Asker, HttpAsker, Questions
from wharfinger.runtime.dead_letters import lay_aside
from wharfinger.runtime.ledger import Ledger, PartitionLock, Transient
from wharfinger.runtime.observability import ServiceMetrics

log = structlog.get_logger()

T = TypeVar("T")

BUSY_AT = 16
"""So many messages in one turn are load."""
GATHER_S = 0.03
"""How long to rest then: what it adds to the latency under load, and about what a turn of a hundred messages takes."""


@dataclass(frozen=True, slots=True)
class Message:
    """One decoded record. `ack` tells the consumer that it is done with; None where nobody waits for it."""

    topic: str
    partition: int
    offset: int
    event: Event[Value]
    ack: Callable[[], object] | None = None

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}"


class Routing(Protocol):
    """Which streams of a group an event is for."""

    @property
    def prefix(self) -> str:
        """All streams of the stage begin with it."""
        ...

    def group_of(self, stream: str) -> int: ...

    def standing(self, group: int) -> Sequence[str]:
        """Streams that a group always has."""
        ...

    def addressed(self, message: Message) -> Sequence[str] | None:
        """The streams that the message is for; None: all streams of all groups we hold."""
        ...


class _StepFailedError(Exception):
    """The decider raised in this stream's step."""

    def __init__(self, stream: str, error: Exception) -> None:
        super().__init__(stream)
        self.stream = stream
        self.error = error


@dataclass(slots=True)
class _Stream(Generic[S]):
    head: Head
    state: S
    basis: Basis
    due: Micros | None = None
    snapshot: bytes = b""
    """Digest of the newest one, for the next round to carry."""
    told: Sequence[Event[Value]] = ()
    """What it has still to be told of the time before it began."""


@dataclass(slots=True)
class _Group(Generic[S]):
    number: int
    lock: PartitionLock
    streams: dict[str, _Stream[S]]
    epoch: int
    waiting: deque[Message] = field(default_factory=deque)


class StageLoop(Generic[S]):
    """`take_max`: messages of one batch at most; `mailbox_max`: how many may wait before readers are held back. `standing`: the
    topics whose facts are for every stream, by the names the ledger has them under. `asker`: who puts a decider's questions.
    """

    def __init__(
        self,
        name: str,
        decider: Decider[S],
        routing: Routing,
        ledger: Ledger,
        incarnations: Mapping[str, int],
        clock: Callable[[], Micros],
        metrics: ServiceMetrics,
        *,
        take_max: int = 500,
        mailbox_max: int = 4000,
        lock_timeout_s: float = 15.0,
        standing: Sequence[str] = (),
        asker: Asker | None = None,
    ) -> None:
        self.name = name
        self._decider = decider
        self._routing = routing
        self._ledger = ledger
        self._incarnations = incarnations
        self._clock = clock
        self._metrics = metrics
        self._take_max = take_max
        self._mailbox_max = mailbox_max
        self._lock_timeout_s = lock_timeout_s
        self._standing = standing
        self._groups: dict[int, _Group[S]] = {}
        self._wanted: set[int] = set()
        self._early: dict[int, deque[Message]] = {}
        self._one_by_one: dict[int, int] = {}
        """Group -> how many messages are still to be taken one at a time."""
        self._laid_aside: set[tuple[str, UUID]] = set()
        """Stream and event, of events that are known to make its step fail."""
        self._work = asyncio.Event()
        self._questions = Questions(asker or HttpAsker(), self._work.set) if isinstance(decider, Asking) else None
        self._room = asyncio.Event()
        self._room.set()
        self._waiting = 0
        self._held = False
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._busy = asyncio.Lock()
        self._worked_at = time.monotonic()
        self.fatal = ""

    # --- for the readers -------------------------------------------------------------------------------------------------

    async def offer(self, messages: Iterable[Message]) -> None:
        """Put messages in; waits while the mailbox is full. Messages of a partition come in offset order."""
        self._put(messages)
        await self._room.wait()

    async def offer_facts(self, messages: Iterable[Message]) -> None:
        """As `offer`, for what the loop is held for: while it is held nothing leaves the mailbox, so who waited for room
        in it would wait for himself."""
        self._put(messages)
        if not self._held:
            await self._room.wait()

    def _put(self, messages: Iterable[Message]) -> None:
        for message in messages:
            streams = self._routing.addressed(message)
            groups = self._wanted if streams is None else {self._routing.group_of(s) for s in streams}
            mine = [g for g in sorted(groups) if g in self._wanted]
            if not mine:
                # For nobody here. When the partition is not ours (any more) it is for its next owner, who must be given it.
                if message.partition in self._wanted:
                    _ack(message)
                continue
            for number in mine:
                group = self._groups.get(number)
                (group.waiting if group else self._early.setdefault(number, deque())).append(message)
                self._waiting += 1
        if self._waiting:
            self._work.set()
        if self._waiting >= self._mailbox_max:
            self._room.clear()

    def hold(self, held: bool) -> None:
        """While held nothing is decided: the broadcast facts have not been read to the end seen at the start."""
        self._held = held
        self._work.set()

    # --- the group's life ------------------------------------------------------------------------------------------------

    def expect(self, numbers: Iterable[int]) -> None:
        """These groups are ours now: their messages are kept until `acquire` has recovered them."""
        self._wanted.update(numbers)

    async def acquire(self) -> None:
        """Lock, fence and recover every expected group. Returns when each may decide."""
        for number in sorted(self._wanted - set(self._groups)):

            async def acquired(number: int = number) -> None:
                async with self._busy:  # let go between two attempts: a revocation must not wait for the database
                    if number in self._wanted and number not in self._groups:
                        await self._acquire(number)

            await self._until_done(acquired)

    async def revoke(self, numbers: Iterable[int]) -> None:
        """Let these groups go: the batch under way is finished, the state is dropped, the locks are released."""
        gone = [n for n in numbers if n in self._wanted]
        self._wanted.difference_update(gone)
        async with self._busy:
            for number in gone:
                await self._drop(number)

    def owned(self) -> list[int]:
        return sorted(self._groups)

    def ready(self) -> bool:
        return not self.fatal and not self._held and self._wanted == set(self._groups)

    def idle_s(self) -> float:
        """For how long nothing has been taken or decided; 0 while something waits or is under way."""
        return 0.0 if self._held or self._waiting or self._busy.locked() else time.monotonic() - self._worked_at

    def backlog(self) -> int:
        return self._waiting

    def positions(self) -> dict[str, int]:
        """topic/partition -> the lowest next offset over all streams: where a broadcast reader must begin."""
        reached = [
            {place: offset for place, (life, offset) in stream.basis.items() if life == self._incarnation(place)}
            for group in self._groups.values()
            for stream in group.streams.values()
        ]
        # A stream that has read nothing of a place, in this incarnation of it, must be told from the beginning.
        return {place: min(offsets.get(place, 0) for offsets in reached) for place in set().union(*reached)}

    def state(self, stream: str) -> S | None:
        """What is known of a stream of ours, to be looked at before the next await and never changed; None: it is not ours."""
        group = self._groups.get(self._routing.group_of(stream))
        found = group.streams.get(stream) if group is not None else None
        return found.state if found is not None else None

    def heads(self) -> dict[str, Head]:
        return {name: s.head for g in self._groups.values() for name, s in g.streams.items()}

    async def _acquire(self, number: int) -> None:
        # Whoever held it has a session's time to finish; after that the epoch shuts him out, lock or no lock.
        lock = await self._ledger.partition_lock(f"{self._routing.prefix}{number}")
        try:
            if not await lock.wait(self._lock_timeout_s) and not lock.lost:
                log.warning("lock.not_released", stage=self.name, group=number, waited_s=self._lock_timeout_s)
            group = await self._recovered(number, lock)
        except BaseException:  # also when the next rebalance cancels us: a lock nobody knows of would be waited for
            await asyncio.shield(lock.release())
            raise
        if number not in self._wanted:  # taken away again while we recovered
            await lock.release()
            return
        group.waiting = self._early.pop(number, deque())
        self._groups[number] = group
        self._ask(group.streams)
        self._work.set()
        log.info("group.ready", stage=self.name, group=number, streams=len(group.streams), epoch=group.epoch)

    async def _recovered(self, number: int, lock: PartitionLock) -> _Group[S]:
        known = [h.stream for h in await self._ledger.heads(self._routing.prefix)]
        names = [s for s in known if self._routing.group_of(s) == number]
        names += [s for s in self._routing.standing(number) if s not in names]
        await self._ledger.ensure_streams(names)
        heads = await self._ledger.raise_epoch(names)
        streams = {}
        for name in sorted(names):
            streams[name] = await self._recover(name, heads[name])
        epoch = max((h.epoch for h in heads.values()), default=1)
        return _Group(number, lock, streams, epoch)

    async def _recover(self, name: str, head: Head) -> _Stream[S]:
        began = time.perf_counter()
        snapshot = await self._ledger.latest_snapshot(name, head.round)
        if snapshot is None:
            state, after = self._decider.initial(name), 0
        else:
            state, after = self._decider.load(name, snapshot.sections), snapshot.round
        basis: Basis = {}
        if after:
            basis = await self._ledger.basis(name, after)
        async for recorded in self._ledger.recorded_rounds(name, after + 1, head.round, on_trust=True):
            recover(self._decider, state, (recorded,))
            basis = recorded.round.basis
        seconds = time.perf_counter() - began
        if head.round:
            log.info("stream.recovered", stream=name, rounds=head.round - after, seconds=round(seconds, 3))
        stream = _Stream(head, state, basis, self._decider.next_due(state), head.snapshot)
        if not head.round and name not in self._routing.standing(self._routing.group_of(name)):
            stream.told = [fact.event() for topic in self._standing async for fact in self._ledger.facts(topic)]
        return stream

    async def _drop(self, number: int) -> None:
        group = self._groups.pop(number, None)
        dropped = group.waiting if group else self._early.pop(number, deque())
        self._waiting -= len(dropped)
        self._make_room()
        if group is not None:
            if self._questions is not None:
                for name in group.streams:
                    self._questions.drop(name)
            await group.lock.release()

    def _ask(self, streams: Iterable[str]) -> None:
        """Put the questions that these streams of ours have open now."""
        if self._questions is None or not isinstance(self._decider, Asking):
            return
        by_name = {name: s for g in self._groups.values() for name, s in g.streams.items()}
        for name in streams:
            self._questions.put(name, self._decider.asks(by_name[name].state))

    # --- the task --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"stage-{self.name}")

    async def stop(self) -> None:
        self._stopping = True
        self._work.set()
        self._room.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self.revoke(list(self._wanted))
        if self._questions is not None:
            await self._questions.close()

    async def _run(self) -> None:
        try:
            while not self._stopping:
                await self._wait()
                if self._held or self._stopping:
                    continue
                async with self._busy:
                    # Held since we looked: whoever waited before us may have brought groups without their facts.
                    if self._held:
                        continue
                    taken = await self._turn()
                # A commit costs the same for one message and for a hundred: under load a short rest gathers more of them.
                # The rest is also when the consumers' heartbeats, which share this loop, get their turn.
                await asyncio.sleep(GATHER_S if taken >= BUSY_AT else 0)
        except Transient as error:  # told to stop while the database is away: the ledger knows how far we came
            log.warning("stage.abandoned", stage=self.name, why=str(error))
        except Exception as error:  # a bug in a decider must not loop quietly: say it and let the supervisor restart us
            self.fatal = f"{type(error).__name__}: {error}"
            log.exception("stage.failed", stage=self.name)

    async def _wait(self) -> None:
        """Until a message has come or the earliest tick is due."""
        timeout = None
        if not self._held and (due := self._earliest_due()) is not None:
            timeout = max(0.0, (due - self._clock()) / 1e6)
        try:
            async with asyncio.timeout(timeout):
                await self._work.wait()
        except TimeoutError:
            pass
        self._work.clear()

    def _earliest_due(self) -> Micros | None:
        dues = [s.due for g in self._groups.values() for s in g.streams.values() if s.due is not None]
        return min(dues, default=None)

    async def _turn(self) -> int:
        """One transaction for all that waits. Returns how many messages were taken."""
        for group in list(self._groups.values()):
            if group.lock.lost:
                log.warning("group.lost", stage=self.name, group=group.number)
                await self._again(group.number)
        now = self._clock()
        taken: list[tuple[int, Message]] = []
        inputs: dict[str, list[Event[Value]]] = {}
        positions: dict[str, Basis] = {}
        for group in self._groups.values():
            await self._drain(group, taken, inputs, positions)
            for name, stream in group.streams.items():
                if stream.due is not None and stream.due <= now:
                    inputs.setdefault(name, []).append(tick(name, stream.due, stream.head.round))
                if self._questions is not None and (answers := self._questions.take(name)):
                    inputs.setdefault(name, []).extend(answers)
        if self._waiting:
            self._work.set()
        await self._skip_known(inputs)
        try:
            fenced = await self._commit(inputs, positions) if inputs else set()
        except _StepFailedError as failed:
            await self._isolate(failed, taken, inputs)
            return len(taken)
        for number, message in taken:
            if number not in fenced:
                _ack(message)
        for number in sorted(fenced):
            log.warning("group.fenced", stage=self.name, group=number)
            await self._again(number, [m for n, m in taken if n == number])
        self._make_room()
        if taken or inputs:
            self._worked_at = time.monotonic()
        return len(taken)

    async def _drain(
        self,
        group: _Group[S],
        taken: list[tuple[int, Message]],
        inputs: dict[str, list[Event[Value]]],
        positions: dict[str, Basis],
    ) -> None:
        """Move up to `take_max` messages into `inputs`, by stream, without those that a stream's basis says it has had."""
        careful = self._one_by_one.pop(group.number, 0)
        if careful > 1 and group.waiting:
            self._one_by_one[group.number] = careful - 1
        for _ in range(min(len(group.waiting), 1 if careful else self._take_max)):
            message = group.waiting.popleft()
            self._waiting -= 1
            taken.append((group.number, message))
            addressed = self._routing.addressed(message)
            names = (
                list(group.streams)
                if addressed is None
                else [s for s in addressed if self._routing.group_of(s) == group.number]
            )
            incarnation = self._incarnation(message.place)
            for name in names:
                stream = group.streams.get(name) or await self._begin(group, name)
                if stream.told:
                    inputs.setdefault(name, []).extend(stream.told)
                    stream.told = ()
                seen = stream.basis.get(message.place)
                if seen is not None and seen[0] == incarnation and message.offset < seen[1]:
                    self._metrics.duplicates.inc()
                    continue
                positions.setdefault(name, {})[message.place] = (incarnation, message.offset + 1)
                if self._laid_aside and (name, message.event.id) in self._laid_aside:
                    continue
                if self._decider.is_news(stream.state, message.event):
                    inputs.setdefault(name, []).append(message.event)

    async def _begin(self, group: _Group[S], name: str) -> _Stream[S]:
        """A stream that was not there before: a cluster's first event."""

        async def begun() -> _Stream[S]:
            await self._ledger.ensure_streams([name])
            return await self._recover(name, (await self._ledger.raise_epoch([name]))[name])

        stream = group.streams[name] = await self._until_done(begun)
        return stream

    async def _skip_known(self, inputs: dict[str, list[Event[Value]]]) -> None:
        """Drop events that the stream has taken in before, under whatever offset; and repetitions within the batch."""
        known = await self._until_done(
            lambda: self._ledger.known({name: [e.id for e in events] for name, events in inputs.items()})
        )
        for name in list(inputs):
            seen = set(known.get(name, ()))
            kept = []
            for event in inputs[name]:
                if event.id in seen:
                    self._metrics.duplicates.inc()
                else:
                    seen.add(event.id)
                    kept.append(event)
            if kept:
                inputs[name] = kept
            else:
                del inputs[name]

    async def _commit(self, inputs: Mapping[str, Sequence[Event[Value]]], positions: Mapping[str, Basis]) -> set[int]:
        """Step and commit. Returns the groups of streams that somebody else has moved on: their states are worthless."""
        rounds: list[Round] = []
        by_name = {name: s for g in self._groups.values() for name, s in g.streams.items()}
        began = time.perf_counter()
        now = self._clock()  # after the last input came: what caused a round is never later than the round
        for name in sorted(inputs):
            stream = by_name[name]
            basis = {**stream.basis, **positions.get(name, {})}
            at = max(stream.head.at, now)
            try:
                rounds.append(step(self._decider, stream.state, stream.head, inputs[name], at, basis, stream.snapshot))
            except Exception as error:
                raise _StepFailedError(name, error) from None
        decided = time.perf_counter()
        events = {e.id: e for batch in inputs.values() for e in batch}
        result = await self._until_done(lambda: self._ledger.commit(rounds, events))
        fenced = result.fenced
        self._metrics.decide_seconds.observe(decided - began)
        self._metrics.commit_seconds.observe(time.perf_counter() - decided)
        for round_ in rounds:
            if round_.stream in fenced:
                continue
            stream = by_name[round_.stream]
            stream.head = round_.head()
            stream.basis = round_.basis
            stream.snapshot = result.snapshots[round_.stream]
            stream.due = self._decider.next_due(stream.state)
            self._ask((round_.stream,))
            self._metrics.rounds.inc()
            self._metrics.events.inc(len(round_.inputs))
            self._metrics.decisions.inc(len(round_.decisions))
        return {self._routing.group_of(name) for name in fenced}

    async def _isolate(
        self,
        failed: _StepFailedError,
        taken: Sequence[tuple[int, Message]],
        inputs: Mapping[str, Sequence[Event[Value]]],
    ) -> None:
        """After a step that failed: find the message that it failed on and lay it aside, or take them one at a time to find it.
        Whatever was stepped in this turn is recovered, and what was taken for it waits again. Raises what the decider raised where
        no message is to blame."""
        number = self._routing.group_of(failed.stream)
        told = [event for event in inputs[failed.stream] if not isinstance(event.data, (Ticked, ExtenderAnswered))]
        if not told:
            raise failed.error from None  # it stands for itself
        mine = [m for n, m in taken if n == number]
        if len(told) > 1:
            self._one_by_one[number] = len(mine)
            log.warning("step.failed", stream=failed.stream, messages=len(told), why=repr(failed.error))
        else:
            if not await self._works_without(failed.stream):
                raise failed.error from None
            await self._lay_aside(failed, next(m for m in mine if m.event.id == told[0].id))
        stepped = {self._routing.group_of(stream) for stream in inputs}
        for n, message in taken:
            if n not in stepped:
                _ack(message)
        for n in sorted(stepped):
            await self._again(n, [m for k, m in taken if k == n])
        self._work.set()

    async def _works_without(self, name: str) -> bool:
        """Whether the stream, as the ledger has it, can take a step that no message is in."""
        group = self._groups[self._routing.group_of(name)]
        head = group.streams[name].head
        fresh = await self._until_done(lambda: self._recover(name, head))
        try:
            step(self._decider, fresh.state, head, (), max(head.at, self._clock()), fresh.basis, fresh.snapshot)
        except Exception as error:
            log.error("step.failed_without_messages", stream=name, why=repr(error))
            return False
        return True

    async def _lay_aside(self, failed: _StepFailedError, message: Message) -> None:
        log.error(
            "event.laid_aside", stream=failed.stream, event_id=str(message.event.id), why=repr(failed.error),
            where="".join(traceback.format_tb(failed.error.__traceback__)[-3:]),
        )  # fmt: skip
        reason = f"{failed.stream} cannot take it in: {type(failed.error).__name__}: {failed.error}"
        await lay_aside(
            self._ledger, self.name, message.topic, self._incarnation(message.place), message.partition,
            message.offset, message.event.subject.encode(), message.event.body, reason.replace("\n", " ")[:500],
        )  # fmt: skip
        self._metrics.dead_letters.inc()
        self._laid_aside.add((failed.stream, message.event.id))

    async def _again(self, number: int, taken: Sequence[Message] = ()) -> None:
        """Drop a group whose lock or head we no longer hold, and take it anew if it is still meant to be ours.

        What its streams had not committed waits again, in order: the consumer will not deliver it a second time.
        """
        group = self._groups.get(number)
        again = deque(taken)
        if group is not None:
            again.extend(group.waiting)
            group.waiting.clear()
            self._waiting += len(taken)
        await self._drop(number)
        if number in self._wanted:
            again.extend(self._early.pop(number, ()))
            self._early[number] = again

            async def acquired() -> None:
                if number in self._wanted:  # a revocation waits for us meanwhile, and says so there
                    await self._acquire(number)

            await self._until_done(acquired)
        else:
            self._waiting -= len(again)

    async def _until_done(self, call: Callable[[], Awaitable[T]]) -> T:
        """The database may be away for a while: the same bytes again until it answers. Fencing and bugs go through."""
        pause = 0.05
        while True:
            try:
                return await call()
            except Transient as error:
                if self._stopping:
                    raise
                log.warning("ledger.away", stage=self.name, why=str(error), retry_in_s=pause)
                await asyncio.sleep(pause)
                pause = min(2.0, pause * 2)

    def _make_room(self) -> None:
        if self._waiting < self._mailbox_max:
            self._room.set()

    def _incarnation(self, place: str) -> int:
        return self._incarnations[place.rpartition("/")[0]]


def _ack(message: Message) -> None:
    if message.ack is not None:
        message.ack()
