"""The loop that runs a stage: one bounded mailbox, one task.

Readers only put messages in (`offer`). The task takes them, orders them by stream, steps every
stream that got something, commits all the rounds in one transaction, and only then acknowledges.
`stage_groups` is how streams come and go with the consumer group; `stage_failures` is what follows
when a decider raises.

A round that does not reach the ledger takes its state with it: the group is dropped and recovered.

A call to another system (`stages.extender_calls`) is made beside the loop, and its answer is an
input. Streams that share something (`stages.peers`) are stepped one group a turn, and each receives
the events that its peers sent in the turns before. A stream that begins while the loop runs first
receives the facts that all streams received before it began.

States are touched on one thread only, the loop's worker: loading, folding, deciding and looking at
a state (`look`) are calls that it runs one after the other. The event loop, which this loop shares
with readers, heartbeats and other services, goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from wharfinger.domain.open_requests import OpenRequests
from wharfinger.domain.value import Value
from wharfinger.events.envelope import Event
from wharfinger.kernel.decider import Decider, Micros, S
from wharfinger.kernel.round import Basis, Head, Round
from wharfinger.kernel.step import fresh_inputs, step, tick
from wharfinger.runtime.acceptances import REST_S, Acceptances, ReadPlaces, is_read
from wharfinger.runtime.burst_meter import BurstMeter
from wharfinger.runtime.extender_client import ExtenderClient, ExtenderTransport
from wharfinger.runtime.ledger import Ledger, Mark, Transient
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.messages import Message, Routing
from wharfinger.runtime.observability import ServiceMetrics
from wharfinger.runtime.progress import Progress
from wharfinger.runtime.stage_failures import StepFailedError, StepFailures
from wharfinger.runtime.stage_groups import StageGroup, StageGroups, StageStream, while_locked
from wharfinger.runtime.stream_time import due_in_us, stream_time
from wharfinger.stages.extender_calls import CallsExtenders, ExtenderCall
from wharfinger.stages.peers import TellsPeers

log = get_logger()

T = TypeVar("T")

BUSY_AT = 16
"""So many messages in one turn are load."""
GATHER_S = 0.03
"""How long to rest then. It adds as much to the latency under load. A turn of a hundred messages
takes about as long."""
REST_MAX = 1000
"""Messages taken beyond `take_max` at most, so that a turn ends where an acceptance ends: as many
as the intake accepts in one round."""
LOOK_AGAIN_S = 30.0
"""The longest wait for a due time: a change of the wall clock is noticed after so long at most."""


@dataclass(frozen=True, slots=True)
class _Stepped:
    """A round that is not committed yet, and facts of the state after it. `asks`: the extender
    calls that are open then; `requests`: the requests that are. `outdated`: how many inputs were
    older than the state's version of their key. `told`: the events for the peer streams."""

    round: Round
    due: Micros | None
    asks: Sequence[ExtenderCall]
    requests: OpenRequests
    outdated: int = 0
    told: Sequence[Event[Value]] = ()


class StageLoop(Generic[S]):
    """`take_max`: messages of one batch at most, unless the rest of an acceptance follows.
    `mailbox_max`: how many may wait before readers are held back. `standing`: the topics whose
    facts are for every stream, by the names the ledger has them under. `broadcast`: the
    topics that are read whole. `partitioned`: those of which each group reads the partition of its
    number. `asker`: who puts a decider's questions. `compare`: raises when the ledger has gone back
    behind what was published; called before groups are taken.
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
        broadcast: Collection[str] = (),
        partitioned: Collection[str] = (),
        asker: ExtenderTransport | None = None,
        compare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self._decider = decider
        self._routing = routing
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._take_max = take_max
        self._mailbox_max = mailbox_max
        self._work = asyncio.Event()
        self._questions = (
            ExtenderClient(asker, self._work.set) if isinstance(decider, CallsExtenders) else None
        )
        self._room = asyncio.Event()
        self._room.set()
        self._groups: StageGroups[S] = StageGroups(
            name,
            decider,
            routing,
            ledger,
            incarnations,
            self._questions,
            lock_timeout_s=lock_timeout_s,
            standing=standing,
            compare=compare,
            wake=self._work.set,
            dropped=self._dropped,
        )
        self._failures = StepFailures(name, decider, routing, ledger, self._groups, clock, metrics)
        self._peers = decider if isinstance(decider, TellsPeers) and decider.has_peers else None
        self._told: dict[str, list[Event[Value]]] = {}
        """By stream: the events that its peers in this process sent since its last round."""
        self._broadcast, self._partitioned = frozenset(broadcast), frozenset(partitioned)
        self._read = ReadPlaces()
        self._last_group = -1
        self._held = False
        self._task: asyncio.Task[None] | None = None
        self._worked_at = self._turned_at = time.monotonic()
        self._bursts = BurstMeter(self._turned_at)
        self._due_s: float | None = None
        """When the next tick is due, by the monotonic clock."""
        self._taken_from: float | None = None
        """When the oldest message of the turn under way arrived."""
        self.progress = Progress()
        self.fatal = ""

    # --- for the readers --------------------------------------------------------------------------

    async def offer(self, messages: Iterable[Message]) -> None:
        """Put messages in; waits while the mailbox is full. Messages of a partition come in offset
        order."""
        self._put(messages)
        await self._room.wait()

    async def offer_facts(self, messages: Iterable[Message]) -> None:
        """As `offer`, for what the loop is held for: while it is held nothing leaves the mailbox,
        so who waited for room in it would wait for himself."""
        self._put(messages)
        if not self._held:
            await self._room.wait()

    def _put(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._read.add(message)
            # For no stream here. Where the partition is not ours any more, its next owner must get
            # the message.
            if not self._groups.put(message) and message.partition in self._groups.wanted:
                message.acknowledge()
        if self._groups.waiting:
            self.progress.begin()
            self._work.set()
        if self._groups.waiting >= self._mailbox_max:
            self._room.clear()

    def hold(self, held: bool) -> None:
        """While held nothing is decided: the broadcast facts have not been read to the end seen at
        the start."""
        self._held = held
        self._work.set()

    # --- the group's life -------------------------------------------------------------------------

    def expect(self, numbers: Iterable[int]) -> None:
        """These groups are ours now: their messages are kept until `acquire` has recovered them."""
        self._groups.expect(numbers)

    def forget_early(self, topics: Collection[str]) -> None:
        """Drop what came on these topics for expected groups: they are read again, from
        `positions`."""
        self._groups.forget_early(topics)

    async def acquire(self) -> None:
        """Lock, fence and recover every expected group. Returns when each may decide."""
        await self._groups.acquire()

    async def revoke(self, numbers: Iterable[int]) -> None:
        """Let these groups go: the batch under way is finished, the state is dropped, the locks are
        released."""
        await self._groups.revoke(numbers)

    def owned(self) -> list[int]:
        return sorted(self._groups.owned)

    def ready(self) -> bool:
        return not self.fatal and not self._held and self._groups.complete

    def stalled_s(self) -> float:
        """For how long no turn was completed although messages wait or a due time has passed. Asked
        from any thread."""
        now_s, due_s = time.monotonic(), self._due_s
        overdue_s = 0.0 if due_s is None else max(0.0, min(now_s - due_s, now_s - self._turned_at))
        return max(self.progress.stalled_s(), overdue_s)

    def oldest_s(self) -> float:
        """Age of the oldest message that is not decided yet; 0 while there is none. Asked from any
        thread."""
        arrived = self._groups.arrivals_s()
        if self._taken_from is not None:
            arrived.append(self._taken_from)
        return max(0.0, time.monotonic() - min(arrived)) if arrived else 0.0

    def open_requests(self) -> OpenRequests:
        """The requests that the last rounds of our streams left open. Asked from any thread."""
        return self._groups.requests()

    def idle_s(self) -> float:
        """For how long nothing has been taken or decided; 0 while something waits or is under
        way."""
        busy = self._held or self._groups.waiting or self._groups.busy.locked()
        return 0.0 if busy else time.monotonic() - self._worked_at

    def in_burst(self) -> bool:
        """Whether much more is decided a second than under a steady load."""
        return self._bursts.in_burst(time.monotonic())

    def backlog(self) -> int:
        return self._groups.waiting

    def positions(self) -> dict[str, int]:
        """topic/partition -> the lowest next offset over all streams: where a broadcast reader must
        begin."""
        return self._groups.positions()

    async def look(self, stream: str, of: Callable[[S], T]) -> T | None:
        """What `of` finds in the state of a stream of ours, asked between two rounds; None: the
        stream is not ours. `of` must not change the state."""
        return await self._groups.look(stream, of)

    def heads(self) -> dict[str, Head]:
        return self._groups.heads()

    # --- the task ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"stage-{self.name}")

    async def stop(self) -> None:
        self._groups.stopping = True
        self._work.set()
        self._room.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self.revoke(list(self._groups.wanted))
        if self._questions is not None:
            await self._questions.close()
        self._groups.close()

    async def _run(self) -> None:
        try:
            while not self._groups.stopping:
                await self._wait()
                if self._held or self._groups.stopping:
                    continue
                async with self._groups.busy:
                    # Held since we looked: groups may have come meanwhile, without their facts.
                    if self._held:
                        continue
                    self.progress.begin()
                    taken = await self._turn()
                    self._taken_from = None
                    self._turned_at = time.monotonic()
                    self.progress.moved(more=self._groups.waiting > 0)
                # A commit costs the same for one message and for a hundred: under load a short rest
                # gathers more of them. The rest is also when the consumers' heartbeats, which share
                # this loop, get their turn.
                rest = taken >= BUSY_AT and (self._peers is None or not self._groups.waiting)
                await asyncio.sleep(GATHER_S if rest else 0)
        except Transient as error:
            # Asked to stop while the database is away: the ledger has the last committed round.
            log.warning("stage.abandoned", stage=self.name, why=str(error))
        # a bug in a decider must not loop quietly: say it and let the supervisor restart us
        except Exception as error:
            self.fatal = f"{type(error).__name__}: {error}"
            log.exception("stage.failed", stage=self.name)

    async def _wait(self) -> None:
        """Until a message has come or the earliest tick is due."""
        timeout = None
        due_in_s = None if self._held else self._due_in_s()
        self._due_s = None if due_in_s is None else time.monotonic() + due_in_s
        if due_in_s is not None:
            timeout = min(LOOK_AGAIN_S, due_in_s)
        try:
            async with asyncio.timeout(timeout):
                await self._work.wait()
        except TimeoutError:
            pass
        self._work.clear()

    def _due_in_s(self) -> float | None:
        """Until the earliest tick of any stream, or until a group has waited long enough for the
        rest of an acceptance; None: neither is to come."""
        now, streams = self._clock(), self._groups.streams().values()
        left = [
            due_in_us(s.due, now, s.head.at, s.since_head_us) / 1e6
            for s in streams
            if s.due is not None
        ]
        left += [
            max(0.0, group.rest_by_s - time.monotonic())
            for group in self._groups.owned.values()
            if group.rest_by_s is not None
        ]
        return min(left) if left else None

    def _time_of(self, stream: StageStream[S]) -> Micros:
        return stream_time(self._clock(), stream.head.at, stream.since_head_us)

    async def _turn(self) -> int:
        """One transaction for all that waits. Returns how many messages were taken."""
        for group in list(self._groups.owned.values()):
            if group.lock.lost:
                log.warning("group.lost", stage=self.name, group=group.number)
                await self._groups.again(group.number)
        taken: list[tuple[int, Message]] = []
        inputs: dict[str, list[Event[Value]]] = {}
        positions: dict[str, Basis] = {}
        for group in self._groups_of_turn():
            if self._lay_aside(group, inputs):
                continue
            if not self._awaits_rest(group):
                await self._drain(group, taken, inputs, positions)
            for name, stream in group.streams.items():
                if stream.due is not None and stream.due <= self._time_of(stream):
                    inputs.setdefault(name, []).append(tick(name, stream.due, stream.head.round))
                if self._questions is not None and (answers := self._questions.take(name)):
                    inputs.setdefault(name, []).extend(answers)
                if stream.went_back:
                    inputs[name] = [*stream.went_back, *inputs.get(name, ())]
                    stream.went_back = ()
                if name in inputs:
                    inputs[name] = [*inputs[name], *self._told.pop(name, ())]
        if any(g.waiting and g.rest_by_s is None for g in self._groups.owned.values()):
            self._work.set()
        if taken:
            self._taken_from = min(message.arrived_s for _, message in taken)
        await self._skip_known(inputs)
        try:
            fenced = await self._commit(inputs, positions, self._marks(taken)) if inputs else set()
        except StepFailedError as failed:
            await self._failures.isolate(failed, taken, inputs)
            self._work.set()
            return len(taken)
        for number, message in taken:
            if number not in fenced:
                message.acknowledge()
        for number in sorted(fenced):
            log.warning("group.fenced", stage=self.name, group=number)
            await self._groups.again(number, [m for n, m in taken if n == number])
        self._make_room()
        if taken or inputs:
            self._worked_at = time.monotonic()
        return len(taken)

    def _lay_aside(self, group: StageGroup[S], inputs: dict[str, list[Event[Value]]]) -> bool:
        """Move into `inputs` what lays held events of the group aside. Whether there was any: then
        the group takes nothing else in this turn."""
        for name, stream in group.streams.items():
            if stream.laid_aside is not None:
                inputs[name] = [stream.laid_aside]
                stream.laid_aside = None
                self._work.set()
        return any(name in inputs for name in group.streams)

    def _groups_of_turn(self) -> list[StageGroup[S]]:
        """All that we hold; where streams share something, the next one that has work to do."""
        groups = list(self._groups.owned.values())
        if self._peers is None:
            return groups
        ready = sorted([g for g in groups if self._has_work(g)], key=lambda g: g.number)
        if not ready:
            return []
        if len(ready) > 1:
            self._work.set()
        chosen = next((g for g in ready if g.number > self._last_group), ready[0])
        self._last_group = chosen.number
        return [chosen]

    def _has_work(self, group: StageGroup[S]) -> bool:
        return (bool(group.waiting) and not self._awaits_rest(group)) or any(
            stream.went_back
            or stream.laid_aside is not None
            or (stream.due is not None and stream.due <= self._time_of(stream))
            for stream in group.streams.values()
        )

    def _awaits_rest(self, group: StageGroup[S]) -> bool:
        """Whether the group takes nothing yet, because the rest of an acceptance is still to come:
        what was accepted together is decided together, however its records arrive. It waits for
        `REST_S` at most, and not while more waits than one turn takes."""
        if (
            len(group.waiting) >= self._take_max + REST_MAX
            or self._groups.waiting >= self._mailbox_max
            or not self._incomplete(group)
        ):
            group.rest_by_s = None
            return False
        now_s = time.monotonic()
        if group.rest_by_s is None:
            group.rest_by_s = now_s + REST_S
        return now_s < group.rest_by_s

    def _incomplete(self, group: StageGroup[S]) -> bool:
        """Whether records that were accepted with what waits have not been read yet."""
        waiting = Acceptances(self._reads_of(group), self._read)
        for message in group.waiting:
            waiting.add(message)
        return waiting.incomplete()

    def _reads_of(self, group: StageGroup[S]) -> Callable[[str], bool]:
        own = (group.number,)
        return lambda place: is_read(place, self._broadcast, self._partitioned, own)

    async def _drain(
        self,
        group: StageGroup[S],
        taken: list[tuple[int, Message]],
        inputs: dict[str, list[Event[Value]]],
        positions: dict[str, Basis],
    ) -> None:
        """Move up to `take_max` messages into `inputs`, by stream, and the rest of an acceptance
        that begins among them; without those that a stream's basis says it has had."""
        limit = self._failures.take_max(group.number, self._take_max)
        most = limit + (REST_MAX if limit == self._take_max else 0)
        begun = Acceptances(self._reads_of(group))
        group.rest_by_s = None
        for count in range(min(len(group.waiting), most)):
            if count >= limit and not begun.incomplete():
                break
            message = group.waiting.popleft()
            self._groups.waiting -= 1
            begun.add(message)
            taken.append((group.number, message))
            addressed = self._routing.addressed(message)
            names = (
                list(group.streams)
                if addressed is None
                else [s for s in addressed if self._routing.group_of(s) == group.number]
            )
            incarnation = self._groups.incarnation(message.place)
            for name in names:
                stream = group.streams.get(name) or await self._groups.begin(group, name)
                if stream.told:
                    inputs.setdefault(name, []).extend(stream.told)
                    stream.told = ()
                seen = stream.basis.get(message.place)
                if seen is not None and seen[0] == incarnation and message.offset < seen[1]:
                    self._metrics.duplicates.inc()
                    continue
                positions.setdefault(name, {})[message.place] = (incarnation, message.next_offset)
                if self._failures.fails_on(name, message.event):
                    continue
                inputs.setdefault(name, []).append(message.event)

    async def _skip_known(self, inputs: dict[str, list[Event[Value]]]) -> None:
        """Drop redelivered events: taken in before under another offset, or more than once in this
        batch. An id that another source has used does not make an event a redelivered one."""
        apart, known = await self._groups.until_done(lambda: self._ledger.told_apart(inputs))
        streams = self._groups.streams()
        for name, events in apart.items():
            if renamed := sum(e.id != was.id for e, was in zip(events, inputs[name], strict=True)):
                log.warning("ids.used_before", stream=name, events=renamed)
            kept = fresh_inputs(self._decider, streams[name].state, events, known.get(name, ()))
            self._metrics.duplicates.inc(len(events) - len(kept))
            if kept:
                inputs[name] = kept
            else:
                del inputs[name]

    def _marks(self, taken: Sequence[tuple[int, Message]]) -> dict[object, list[Mark]]:
        """By group: which record was the last of each place."""
        last = {(number, message.place): message for number, message in taken}
        found: dict[object, list[Mark]] = {}
        for (number, place), message in last.items():
            reader, digest = (
                f"{self._routing.prefix}{number}",
                message.sha256 or message.event.sha256,
            )
            mark = Mark(reader, place, self._groups.incarnation(place), message.offset, digest)
            found.setdefault(number, []).append(mark)
        return found

    async def _commit(
        self,
        inputs: Mapping[str, Sequence[Event[Value]]],
        positions: Mapping[str, Basis],
        marks: Mapping[object, Sequence[Mark]],
    ) -> set[int]:
        """Step and commit. Returns the groups whose streams another process has advanced: our
        states of them are out of date."""
        streams = self._groups.streams()
        began = time.perf_counter()
        # After the last input came: what caused a round is never later than the round.
        times = {name: self._time_of(streams[name]) for name in inputs}
        stepped = await self._groups.by_worker(
            lambda: self._stepped(streams, inputs, positions, times)
        )
        rounds = [found.round for found in stepped]
        decided = time.perf_counter()
        events = {(e.id, e.sha256): e for batch in inputs.values() for e in batch}
        locks = [group.lock for group in self._groups.owned.values()]
        result = await self._groups.until_done(
            lambda: while_locked(
                locks, self._ledger.commit(rounds, events, self._routing.group_of, marks)
            )
        )
        fenced = result.fenced
        if result.ahead:
            log.error(
                "clock.ahead", stage=self.name, streams=sorted(result.ahead), database_us=result.now
            )
            await self._groups.until_done(self._ledger.read_clock)
        self._metrics.decide_seconds.observe(decided - began)
        self._metrics.commit_seconds.observe(time.perf_counter() - decided)
        for found in stepped:
            round_ = found.round
            if round_.stream in fenced:
                continue
            stream = streams[round_.stream]
            stream.head, stream.headed_s = round_.head(), time.monotonic()
            stream.basis = round_.basis
            stream.snapshot = result.snapshots[round_.stream]
            stream.due, stream.asks, stream.requests = found.due, found.asks, found.requests
            self._tell_peers(round_.stream, found.told)
            self._metrics.rounds.inc()
            self._metrics.events.inc(len(round_.inputs))
            self._metrics.decisions.inc(len(round_.decisions))
            if found.outdated:
                self._metrics.outdated.inc(found.outdated)
                log.warning("facts.outdated", stream=round_.stream, refused=found.outdated)
        self._bursts.decided(sum(len(found.round.decisions) for found in stepped), time.monotonic())
        self._groups.ask(
            found.round.stream for found in stepped if found.round.stream not in fenced
        )
        return {self._routing.group_of(name) for name in fenced}

    def _stepped(
        self,
        streams: Mapping[str, StageStream[S]],
        inputs: Mapping[str, Sequence[Event[Value]]],
        positions: Mapping[str, Basis],
        times: Mapping[str, Micros],
    ) -> list[_Stepped]:
        """One round for each stream that has inputs, stamped with `times`. On the worker."""
        stepped: list[_Stepped] = []
        for name in sorted(inputs):
            stream = streams[name]
            basis = {**stream.basis, **positions.get(name, {})}
            at = times[name]
            try:
                outdated = self._decider.outdated(stream.state)
                made = step(
                    self._decider,
                    stream.state,
                    stream.head,
                    inputs[name],
                    at,
                    basis,
                    stream.snapshot,
                )
                outdated = self._decider.outdated(stream.state) - outdated
                told = () if self._peers is None else self._peers.peer_events(stream.state, made)
                stepped.append(_Stepped(made, *self._groups.to_come(stream.state), outdated, told))
            except Exception as error:
                raise StepFailedError(name, error) from None
        return stepped

    def _tell_peers(self, stream: str, told: Sequence[Event[Value]]) -> None:
        """Pass the events to the other streams of this process at once: these need not wait for the
        topic that carries them."""
        if told:
            for other in self._groups.streams():
                if other != stream:
                    self._told.setdefault(other, []).extend(told)

    def _make_room(self) -> None:
        if self._groups.waiting < self._mailbox_max:
            self._room.set()

    def _dropped(self) -> None:
        """Messages that waited are gone."""
        if not self._groups.waiting:
            self.progress.moved(more=False)
        self._make_room()
