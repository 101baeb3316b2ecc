"""The plane under a virtual clock, with a simulated log and a simulated ledger that fail.

The deciders, their routing, `fresh_inputs`, `step`, `recover`, `audit`, the fan-out of decisions
and the observers are those of the services. Simulated are the clock, Kafka and PostgreSQL:

- The log has partitions. A reader takes any number of records of any partition, so partitions
  overtake each other, records are delayed, and turns have any size. Inside a partition the order
  holds, as in Kafka. A restarted reader starts at any place before the acknowledged one.
- The ledger refuses a commit before it happened, or loses the answer after it happened. The stage
  then recovers its streams from the rounds. An acceptance may be repeated with the same id.
- The publisher may end between sending and moving its cursor. It then sends the same rows again,
  cut into other messages.
- The estimator and the descheduler restart empty and read all again.

Each seed is one history. `python -m tests.simulation --seeds 1000` runs many; a seed that fails is
printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding, range_key
from wharfinger.domain.value import Value
from wharfinger.events.accepted import accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.codec import decode, made
from wharfinger.events.envelope import Event, derived_id
from wharfinger.events.fanout import Fanout, message_id
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.promises import plan_answer_id, room_id
from wharfinger.events.registry import LATEST
from wharfinger.events.streams import (
    ASSIGNMENTS,
    BINDINGS,
    CAPACITY,
    CLUSTER_STATE,
    CLUSTERS,
    FLEET,
    OUTCOMES,
    POLICIES,
    PROPOSALS,
    ROOM,
    PartitionBy,
)
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decider, Micros
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.round import Basis, Head, Round
from wharfinger.kernel.step import empty_head, fresh_inputs, step, tick
from wharfinger.runtime.messages import Message, Routing
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.descheduler import DeschedulerObserver
from wharfinger.stages.estimator import EstimatorObserver
from wharfinger.stages.fleet import FleetDecider
from wharfinger.stages.fleet.promised import plan_answers_in, promised_in
from wharfinger_cli.generate import FleetPlan, generate
from wharfinger_scheduler.routing import ClusterRouting, FleetRouting

START = 1_700_000_000_000_000
SECOND = 1_000_000
CLUSTER_PARTITIONS = 3
REST_TURNS = 3_000
"""Turns after the last fault in which a plane must come to rest."""
REST_US = 600 * SECOND
"""What falls due within this time after the last fault is waited for."""
LETS_GO = 0.35
"""Share of changes that withdraw a binding or scale it back."""


class CommitError(Exception):
    """The simulated ledger did not answer a commit."""


class WrongError(AssertionError):
    """The history breaks a promise."""


def partition_of(text: str, count: int) -> int:
    """A partition that does not depend on the process."""
    return sum(text.encode()) % count


@dataclass
class Log:
    """Partitions of topics, each an ordered list of events. Nothing is lost and nothing removed."""

    shards: int
    places: dict[tuple[str, int], list[Event[Value]]] = field(default_factory=dict)

    def append(self, event: Event[Value], partition_key: str) -> None:
        topic = LATEST[type(event.data)].topic
        assert topic is not None, "only what has a topic is sent"
        match topic.partition_by:
            case PartitionBy.ONE:
                partition = 0
            case PartitionBy.FLEET_SHARD:
                partition = int(partition_key)
            case _:
                partition = partition_of(partition_key, CLUSTER_PARTITIONS)
        # Over a wire: readers get what the bytes say.
        self.places.setdefault((topic.name, partition), []).append(decode(event.body))


@dataclass
class Ledger:
    """What is durable: the accepted facts, in order, and the rounds of every stream."""

    random: Random
    faults: float
    accepted: list[Event[Value]] = field(default_factory=list)
    rounds: dict[str, list[RecordedRound]] = field(default_factory=dict)
    known: dict[str, set[UUID]] = field(default_factory=dict)
    refused: int = 0
    unanswered: int = 0

    def accept(self, event: Event[Value]) -> None:
        """Idempotent by id. CommitError: perhaps accepted."""
        self._fail_before()
        if all(event.id != one.id for one in self.accepted):
            self.accepted.append(event)
        self._fail_after()

    def head(self, stream: str) -> Head:
        rounds = self.rounds.get(stream)
        return rounds[-1].round.head() if rounds else empty_head(stream)

    def commit(self, new: Sequence[RecordedRound]) -> None:
        """All rounds or none. CommitError: not committed, or committed without an answer."""
        self._fail_before()
        for one in new:
            stream = one.round.stream
            if one.round.prev_hash != self.head(stream).hash:
                raise WrongError(f"{stream}: round {one.round.number} does not follow the head")
            self.rounds.setdefault(stream, []).append(one)
            self.known.setdefault(stream, set()).update(e.id for e in one.events)
        self._fail_after()

    def _fail_before(self) -> None:
        if self.random.random() < self.faults:
            self.refused += 1
            raise CommitError

    def _fail_after(self) -> None:
        if self.random.random() < self.faults:
            self.unanswered += 1
            raise CommitError


@dataclass
class Reader:
    """How far one process has read each partition of its topics, and what it acknowledged."""

    log: Log
    topics: tuple[str, ...]
    next: dict[tuple[str, int], int] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)

    def _waiting(self) -> list[tuple[str, int]]:
        return [
            place
            for place in sorted(self.log.places)
            if place[0] in self.topics and self.next.get(place, 0) < len(self.log.places[place])
        ]

    def take(self, random: Random, everything: bool) -> list[Message]:
        """Some of what waits, in any order of partitions; of a partition in its order."""
        waiting = self._waiting()
        random.shuffle(waiting)
        if not everything:
            waiting = waiting[: random.randint(0, len(waiting))]
        taken: list[Message] = []
        for place in waiting:
            start, end = self.next.get(place, 0), len(self.log.places[place])
            until = end if everything else min(end, start + random.choice((1, 1, 2, 5, 40)))
            taken += [
                Message(place[0], place[1], offset, self.log.places[place][offset], arrived_s=0)
                for offset in range(start, until)
            ]
            self.next[place] = until
        return taken

    @property
    def done(self) -> bool:
        return not self._waiting()

    def acknowledge(self) -> None:
        self.acknowledged.update(self.next)

    def restart(self, random: Random) -> None:
        """From the acknowledged place or one before it: an acknowledgement may have been lost."""
        self.next = {
            place: max(0, offset - random.choice((0, 0, 1, 3, 20)))
            for place, offset in self.acknowledged.items()
        }


@dataclass
class Running:
    """One stream in memory."""

    state: Any
    head: Head
    basis: Basis
    told: Sequence[Event[Value]] = ()


class Stage:
    """A process that owns all streams of one kind. `turn` does what `runtime.stage_loop` does:
    messages by stream without those below the basis, ticks, known ids, steps, one commit."""

    def __init__(
        self, routing: Routing, decider: Decider[Any], reader: Reader, ledger: Ledger
    ) -> None:
        self.decider = decider
        self.reader = reader
        self._routing = routing
        self._ledger = ledger
        self.streams: dict[str, Running] = {}

    def begin(self, permanent: Iterable[str]) -> None:
        for name in permanent:
            self._begin(name)

    def recovered(self, name: str) -> Running:
        rounds = self._ledger.rounds.get(name, [])
        state = recover(self.decider, self.decider.initial(name), rounds)
        basis = rounds[-1].round.basis if rounds else {}
        told = () if rounds or name.startswith(FLEET) else tuple(self._standing())
        return Running(state, self._ledger.head(name), basis, told)

    def _standing(self) -> Iterator[Event[Value]]:
        """What every stream of the stage receives, for a stream that begins."""
        latest: dict[str, Event[Value]] = {}
        for event in self._ledger.accepted:
            if isinstance(event.data, PolicyApplied):
                latest[event.data.policy.key] = event
        for event in latest.values():
            if self._routing.addressed(Message(POLICIES.name, 0, 0, event)) is None:
                yield event

    def _begin(self, name: str) -> Running:
        found = self.streams[name] = self.recovered(name)
        return found

    def restart(self, random: Random) -> None:
        names = sorted(self.streams)
        self.streams.clear()
        for name in names:
            self._begin(name)
        self.reader.restart(random)

    def next_due(self) -> Micros | None:
        dues = [self.decider.next_due(running.state) for running in self.streams.values()]
        return min((due for due in dues if due is not None), default=None)

    def turn(self, random: Random, at: Micros, everything: bool) -> bool:
        """Whether something was read or decided."""
        taken = self.reader.take(random, everything)
        inputs: dict[str, list[Event[Value]]] = {}
        positions: dict[str, Basis] = {}
        for message in taken:
            addressed = self._routing.addressed(message)
            for name in list(self.streams) if addressed is None else addressed:
                running = self.streams.get(name) or self._begin(name)
                if running.told:
                    inputs.setdefault(name, []).extend(running.told)
                    running.told = ()
                seen = running.basis.get(message.place)
                if seen is not None and message.offset < seen[1]:
                    continue
                positions.setdefault(name, {})[message.place] = (0, message.next_offset)
                inputs.setdefault(name, []).append(message.event)
        for name, running in self.streams.items():
            due = self.decider.next_due(running.state)
            if due is not None and due <= max(at, running.head.at):
                inputs.setdefault(name, []).append(tick(name, due, running.head.round))
        rounds = list(self._rounds(inputs, positions, at))
        try:
            if rounds:
                self._ledger.commit(rounds)
        except CommitError:
            self.restart(random)
            return True
        for one in rounds:
            running = self.streams[one.round.stream]
            running.head, running.basis = one.round.head(), one.round.basis
        self.reader.acknowledge()
        return bool(taken or rounds)

    def _rounds(
        self, inputs: dict[str, list[Event[Value]]], positions: dict[str, Basis], at: Micros
    ) -> Iterator[RecordedRound]:
        for name, events in sorted(inputs.items()):
            running = self.streams[name]
            known = self._ledger.known.get(name, set())
            fresh = fresh_inputs(self.decider, running.state, events, known)
            if fresh:
                basis = {**running.basis, **positions.get(name, {})}
                round_ = step(
                    self.decider,
                    running.state,
                    running.head,
                    fresh,
                    max(at, running.head.at),
                    basis,
                )
                yield RecordedRound(round_, fresh)


class Watcher:
    """A process with one observer. A restarted one is empty, reads all again, and publishes
    nothing before it has reached what was there."""

    def __init__(self, observer: Any, reader: Reader, name: str) -> None:
        self.reader = reader
        self._observer = observer
        self._name = name
        self._published = 0
        self.state = observer.initial()

    def restart(self) -> None:
        self.state = self._observer.initial()
        self.reader.next.clear()

    def next_due(self) -> Micros | None:
        due: Micros | None = self._observer.next_due(self.state)
        return due

    def turn(self, random: Random, at: Micros, everything: bool) -> list[tuple[Event[Value], str]]:
        for message in self.reader.take(random, everything):
            self._observer.fold(self.state, message.event, at)
        if failed := self._observer.failures.take():
            raise WrongError(f"{self._name}: {failed}")
        if not self.reader.done:
            return []
        found: list[tuple[Event[Value], str]] = []
        for one in self._observer.publish(self.state, at):
            self._published += 1
            id = one.id or derived_id("simulation", self._name, self._published)
            event = made(one.data, id=id, source=f"/{self._name}", subject=one.subject)
            found.append((event, one.partition_key))
        return found


class Simulation:
    """One history. `run` makes it; `check` holds it to the promises."""

    def __init__(self, seed: int, shards: int = 0) -> None:
        self.random = random = Random(seed)
        self.at: Micros = START
        self.shards = random.choice((1, 1, 2, 3))
        if shards:
            self.shards = shards
        self.faulty = True
        self.ledger = Ledger(random, random.choice((0.0, 0.02, 0.1)))
        self.log = Log(self.shards)
        self._cursors: dict[str, int] = {}
        self._told = 0
        facts = (CLUSTERS, CAPACITY, POLICIES, PROPOSALS)
        self.fleet = Stage(
            FleetRouting(self.shards),
            FleetDecider(ranges=self.shards),
            self._reader(BINDINGS, OUTCOMES, ROOM, *facts),
            self.ledger,
        )
        self.fleet.begin(f"fleet/{shard}" for shard in range(self.shards))
        self.cluster = Stage(
            ClusterRouting(lambda name: partition_of(name, CLUSTER_PARTITIONS)),
            ClusterDecider(),
            self._reader(CLUSTER_STATE, ASSIGNMENTS, POLICIES, PROPOSALS),
            self.ledger,
        )
        seen = (CLUSTERS, CLUSTER_STATE, BINDINGS, POLICIES, ASSIGNMENTS)
        self.watchers = (
            Watcher(EstimatorObserver(), self._reader(*seen), "estimator"),
            Watcher(
                DeschedulerObserver(self.shard_of, 60),
                self._reader(*seen, CAPACITY, OUTCOMES),
                "descheduler",
            ),
        )

    def _reader(self, *topics: Any) -> Reader:
        return Reader(self.log, tuple(topic.name for topic in topics))

    def shard_of(self, binding: str) -> int:
        return partition_of(range_key(binding), self.shards)

    # --- load

    def submit(self, data: Any) -> None:
        """A client hands a fact in and repeats it, with the same id, until it has an answer."""
        self._told += 1
        event = made(
            data, id=derived_id("client", self._told), source="/client", subject=accepted(data).key
        )
        while True:
            try:
                self.ledger.accept(event)
            except CommitError:
                continue
            return

    def _wanted(self) -> dict[str, Binding]:
        """The bindings as their clients asked for them last."""
        found: dict[str, Binding] = {}
        for event in self.ledger.accepted:
            match event.data:
                case BindingRequested(binding=binding):
                    found[binding.name] = binding
                case BindingWithdrawn(name=name):
                    found.pop(name, None)
                case _:
                    pass
        return found

    def _change(self, fresh: list[BindingRequested]) -> None:
        random, wanted = self.random, self._wanted()
        known = [wanted[name] for name in sorted(wanted)]
        if known and random.random() < LETS_GO:
            one = random.choice(known)
            if one.replicas > 1 and random.random() < 0.5:
                self._scale(one, random.randint(0, one.replicas - 1))
            else:
                self.submit(BindingWithdrawn(one.name))
        elif fresh and random.random() < 0.6:
            self.submit(fresh.pop())
        elif known:
            one = random.choice(known)
            self._scale(one, one.replicas + random.randint(0, 12))

    def _scale(self, one: Binding, replicas: int) -> None:
        self.submit(BindingRequested(msgspec.structs.replace(one, replicas=replicas)))

    # --- the history

    def run(self) -> None:
        random = self.random
        size = FleetPlan(
            random.randint(1, 4),
            random.randint(2, 8),
            random.randint(4, 14),
            random.randrange(10**6),
        )
        facts = [fact.data for fact in generate(size)]
        fresh = [data for data in facts if isinstance(data, BindingRequested)]
        for data in facts:
            if not isinstance(data, BindingRequested):
                self.submit(data)
        for _ in range(random.randint(10, 40)):
            for _ in range(random.choice((0, 1, 1, 2, 6))):
                self._change(fresh)
            self._turn()
            self.at += random.choice((0, 1_000, SECOND, SECOND, 20 * SECOND))
        self.faulty, self.ledger.faults = False, 0.0
        self._come_to_rest()

    def _turn(self, everything: bool = False) -> bool:
        """Every process may do something, in any order. Whether one did."""
        random, busy = self.random, False
        processes = [self.fleet, self.cluster, *self.watchers, None]
        random.shuffle(processes)
        for process in processes:
            if self.faulty and random.random() < 0.3:
                continue
            match process:
                case Stage():
                    if self.faulty and random.random() < 0.03:
                        process.restart(random)
                    busy |= process.turn(random, self.at, everything)
                case Watcher():
                    if self.faulty and random.random() < 0.03:
                        process.restart()
                    unread = not process.reader.done
                    for event, key in process.turn(random, self.at, everything):
                        busy = True
                        self.log.append(event, key)
                    busy |= unread
                case _:
                    busy |= self._publish(everything)
        return busy

    def _come_to_rest(self) -> None:
        until = self.at + REST_US
        for _ in range(REST_TURNS):
            if self._turn(everything=True):
                continue
            dues = [p.next_due() for p in (self.fleet, self.cluster, *self.watchers)]
            due = min((due for due in dues if due is not None and due > self.at), default=None)
            if due is None or due > until:
                return
            self.at = due
        raise WrongError(f"the plane did not come to rest within {REST_TURNS} turns")

    # --- the publisher

    def _publish(self, everything: bool) -> bool:
        """Sends some rows behind each cursor, then moves the cursor, unless it ends before that."""
        random, busy = self.random, False
        sources = ["intake", *sorted(self.ledger.rounds)]
        random.shuffle(sources)
        for source in sources:
            rows: Sequence[Any] = (
                self.ledger.accepted if source == "intake" else self.ledger.rounds[source]
            )
            start = self._cursors.get(source, 0)
            until = len(rows) if everything else min(len(rows), start + random.choice((0, 1, 3, 9)))
            if until == start:
                continue
            busy = True
            if source == "intake":
                self._relay(rows[start:until])
            else:
                self._fan_out([one.round for one in rows[start:until]])
            if not (self.faulty and random.random() < 0.05):
                self._cursors[source] = until
        return busy

    def _relay(self, events: Iterable[Event[Value]]) -> None:
        for event in events:
            key = accepted(event.data).partition_key  # type: ignore[arg-type]
            if isinstance(event.data, BindingRequested | BindingWithdrawn):
                key = str(self.shard_of(event.subject))
            self.log.append(event, key)

    def _fan_out(self, rounds: Iterable[Round]) -> None:
        fanout = Fanout(self.shard_of)
        for round_ in rounds:
            stream = round_.stream
            messages = [
                message
                for d in round_.decisions
                for message in fanout.add(stream, d.seq, str(d.id), d.data)
            ]
            for room in promised_in(round_):
                self._send(room, room_id(room), stream)
            for answer in plan_answers_in(round_):
                self._send(answer, plan_answer_id(answer), stream)
            for message in messages:
                self._send_message(message)
        for message in fanout.rest():
            self._send_message(message)

    def _send_message(self, message: Any) -> None:
        shard = getattr(message, "shard", None)
        key = message.cluster if shard is None else str(shard)
        self._send(message, message_id(message), key)

    def _send(self, data: Value, id: UUID, key: str) -> None:
        self.log.append(made(data, id=id, source="/publisher", subject=key), key)

    # --- the checker: reads the accepted facts and the rounds, nothing of the processes but states

    def check(self) -> Counter[str]:
        """Figures of the history. WrongError: a promise is broken, and which."""
        self._each_once()
        self._replayed()
        effects = self._effects()
        self._settled()
        self._capacity_kept()
        decisions = sum(len(r.round.decisions) for rs in self.ledger.rounds.values() for r in rs)
        return effects + Counter(
            seeds=1,
            accepted=len(self.ledger.accepted),
            decisions=decisions,
            refused_commits=self.ledger.refused,
            unanswered_commits=self.ledger.unanswered,
        )

    def _each_once(self) -> None:
        """Every stream took every input once; every decision has its own id and the next seq."""
        ids: set[UUID] = set()
        for stream, rounds in sorted(self.ledger.rounds.items()):
            inputs = Counter(event.id for one in rounds for event in one.events)
            _require(all(n == 1 for n in inputs.values()), f"{stream}: an input was taken twice")
            seqs = [d.seq for one in rounds for d in one.round.decisions]
            _require(seqs == list(range(1, len(seqs) + 1)), f"{stream}: seqs are not dense")
            new = {d.id for one in rounds for d in one.round.decisions}
            _require(len(new) == len(seqs) and not new & ids, f"{stream}: an id was used twice")
            ids |= new

    def _replayed(self) -> None:
        """Decided again: the same bytes. Recovered: the state of the process."""
        for stage in (self.fleet, self.cluster):
            for name, running in sorted(stage.streams.items()):
                rounds, decider = self.ledger.rounds.get(name, []), stage.decider
                result = audit(decider, decider.initial(name), empty_head(name), rounds)
                _require(not result.divergences, f"{name}: replay differs: {result.divergences}")
                again = decider.dump(stage.recovered(name).state)
                _require(
                    again == decider.dump(running.state), f"{name}: the recovered state differs"
                )

    def _effects(self) -> Counter[str]:
        """Every accepted event of a binding was taken in by its stream, and then either a decision
        about it followed, or it changed nothing, or a later event of the binding took its place
        in the same round."""
        found: Counter[str] = Counter()
        taken: dict[UUID, tuple[str, int]] = {}
        decided: dict[tuple[str, str], list[int]] = {}
        for stream, rounds in self.ledger.rounds.items():
            for one in rounds:
                if stream.startswith(FLEET):
                    taken.update((e.id, (stream, one.round.number)) for e in one.events)
                for decision in one.round.decisions:
                    decided.setdefault((stream, decision.subject), []).append(one.round.number)
        held: dict[str, Binding] = {}
        own = [e for e in self.ledger.accepted if LATEST[type(e.data)].topic is BINDINGS]
        following = {a.id: b for a, b in _pairs(own)}
        for event in own:
            _require(event.id in taken, f"{event.subject}: an accepted event was never taken in")
        for event in own:
            name = event.subject
            stream, number = taken[event.id]
            later = following.get(event.id)
            through = 1 << 62 if later is None else taken[later.id][1]
            before = held.pop(name, None)
            if isinstance(event.data, BindingRequested):
                held[name] = event.data.binding
            if any(number <= n < through for n in decided.get((stream, name), ())):
                found["decided"] += 1
            elif before == held.get(name):
                found["changed nothing"] += 1
            elif later is not None and through == number:
                found["replaced in the same round"] += 1
            else:
                self._has_reason(event, before, held.get(name))
                found["nothing to decide"] += 1
        return found

    def _has_reason(self, event: Event[Value], before: Binding | None, now: Binding | None) -> None:
        """Without a decision about it: what was withdrawn had no replicas, or the binding still
        waits for something that the stage can name."""
        name = event.subject
        state = self.fleet.streams[f"fleet/{self.shard_of(name)}"].state
        record = state.bindings.get(name)
        if now is None:
            _require(
                record is None or not record.targets, f"{name}: withdrawn, and nothing was released"
            )
            return
        _require(False, f"{name}: accepted ({before} -> {now}), and nothing decided")

    def _settled(self) -> None:
        """Fleet and clusters agree on what every binding has, and it is what was asked for last."""
        wanted = self._wanted()
        targets: dict[str, dict[str, int]] = {}
        for running in self.fleet.streams.values():
            for name, record in running.state.bindings.items():
                if record.targets:
                    targets[name] = {c: n for c, n in record.targets.items() if n}
        desired: dict[str, dict[str, int]] = {}
        for running in self.cluster.streams.values():
            book = running.state.book
            for name, held in book.held.items():
                if held.desired:
                    desired.setdefault(name, {})[running.state.cluster] = held.desired
        left = set(targets) - set(wanted)
        _require(not left, f"withdrawn, and still assigned: {sorted(left)}")
        targets = {name: by_cluster for name, by_cluster in targets.items() if by_cluster}
        _require(targets == desired, f"fleet and clusters differ: {targets} and {desired}")

    def _capacity_kept(self) -> None:
        """No node has more than it can hold, and no binding more replicas than are wanted of it."""
        for running in self.cluster.streams.values():
            book = running.state.book
            used: dict[str, Counter[str]] = {}
            for name, held in book.held.items():
                _require(
                    len(held.placed) <= held.desired,
                    f"{name}: {len(held.placed)} replicas are placed, {held.desired} are wanted",
                )
                for replica in held.placed.values():
                    node = used.setdefault(replica.node, Counter())
                    node.update(held.cls.requirements.requests)
                    node["pods"] += 1
            for node_name, amounts in used.items():
                room = book.nodes[node_name].allocatable
                over = {r: n for r, n in amounts.items() if n > room.get(r, 0)}
                _require(not over, f"{node_name}: holds {over} of {room}")


def _pairs(events: Sequence[Event[Value]]) -> Iterator[tuple[Event[Value], Event[Value]]]:
    """Each event of a binding with the next one of the same binding."""
    last: dict[str, Event[Value]] = {}
    for event in events:
        if event.subject in last:
            yield last[event.subject], event
        last[event.subject] = event


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise WrongError(otherwise)


def simulated(seed: int) -> Counter[str]:
    """Figures of the history of this seed. WrongError: what it breaks."""
    simulation = Simulation(seed)
    simulation.run()
    return simulation.check()


def tried(seed: int) -> tuple[int, Counter[str], str]:
    """The seed, its figures, and what failed; empty: nothing."""
    try:
        return seed, simulated(seed), ""
    except Exception as error:  # any failure of a seed is a finding
        return seed, Counter(), f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="the first seed; alone: only this one")
    parser.add_argument("--seeds", type=int, help="how many (1,000 without --seed)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    first = asked.seed or 0
    count = asked.seeds or (1 if asked.seed is not None else 1000)
    if count == 1:
        print(f"seed {first}: {dict(simulated(first))}")
        return 0
    total: Counter[str] = Counter()
    failed = 0
    with ProcessPoolExecutor(asked.jobs) as pool:
        for seed, figures, wrong in pool.map(tried, range(first, first + count), chunksize=8):
            total += figures
            if wrong:
                failed += 1
                print(f"seed {seed}: {wrong}\n  repeat it with: make sim SEED={seed}")
    print(f"{count:,} seeds, {failed} failed; {dict(total)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
