"""A plane of real processes under load and seeded faults, and afterwards an independent check.

The load is events of bindings, 35 % of them withdrawals and scale-backs, accepted in turns of
random sizes. Each fault comes into the middle of its share of the load. A probe after it tells how
long it takes until something new is decided and published. The seed decides load and faults, but
not which process does what first.

    make chaos SEED=7 ARGS="--events 5000 --kills 2"
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple, TypeVar
from uuid import UUID

import asyncpg
import psutil
from aiokafka import AIOKafkaProducer
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.chaos.checker import (
    Accepted,
    Findings,
    check_effects,
    check_places,
    check_topic,
    read_history,
)
from tests.chaos.copies import COPIED, Copies, Mark, check_late_records, check_late_rows, mark_of
from tests.chaos.outages import (
    OUTAGES,
    NoDiskError,
    Outage,
    Watched,
    memory_mib,
    outage_of,
    watched,
)
from tests.chaos.restores import Backup, delete_topic
from tests.patience import PATIENCE_S, eventually
from tests.planes import kill, settled
from tests.poison import hostile_record

from wharfinger.domain.binding import Binding
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import ASSIGNMENTS, BINDINGS, DECISIONS
from wharfinger.runtime.backends import plain_database_url
from wharfinger.runtime.ledger import Ledger, LedgerError, Submission
from wharfinger.runtime.ledger.errors import DATABASE_ERRORS

SERVICES = ("scheduler", "publisher", "estimator", "descheduler", "annotator")
BACKENDS = ("broker", "database")
AT_REST = ("outage", "put back")
"""Faults that begin when the plane is at rest."""
DELETED = (BINDINGS.name, DECISIONS.name, ASSIGNMENTS.name)
NAMES = 400
LESS = 0.35
"""Share of events that withdraw a binding or ask for fewer replicas."""
TURN_MAX = 120
"""Events that are accepted at once at most."""
RECORDS = 200
"""Hostile records of one fault."""
LOST = 150
"""Events between a backup and the moment when it is put back."""
AGAIN_S_MAX = 2.0
COMMAND_S = 3600.0
"""A long history is replayed for minutes."""

T = TypeVar("T")


class Fault(NamedTuple):
    """`victim`: a service, a backend, an outage, or a topic (that hostile records come to, or that
    is deleted). Several services at once: with `+` between them. `seconds`: how long processes are
    frozen or a backend is away."""

    kind: str
    victim: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.victim}"


KILL_BROKER = Fault("kill", "broker")


@dataclass(slots=True)
class Load:
    """Events of bindings by a seed. `accepted`: all that were answered, in order. `patience_s`: how
    long a turn is repeated. `refused`: how often the ledger did not take one, by the error."""

    random: Random
    patience_s: float = PATIENCE_S
    refused: Counter[str] = field(default_factory=Counter)
    accepted: list[Accepted] = field(default_factory=list)
    _held: dict[str, tuple[str, int]] = field(default_factory=dict)
    _made: int = 0

    async def run(self, url: str, count: int) -> None:
        """Accept so many events. A turn that fails is repeated with the same ids, as a client
        does."""
        done = 0
        while done < count:
            turn = [self._next() for _ in range(self.random.randint(1, TURN_MAX))][: count - done]
            await self._accept(url, turn)
            done += len(turn)
            await asyncio.sleep(self.random.random() * 0.3)

    async def at_once(self, url: str, count: int) -> None:
        """Accept so many events in one turn."""
        await self._accept(url, [self._next() for _ in range(count)])

    async def steadily(
        self, url: str, rate: float, seconds: float, more: Callable[[], bool] = lambda: False
    ) -> None:
        """Accept `rate` events a second, each second a turn, for `seconds` and while `more()`."""
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds or more():
            due = int(rate * passed) - done
            turn = [self._next() for _ in range(min(due, max(TURN_MAX, int(rate))))]
            if turn:
                await self._accept(url, turn)
                done += len(turn)
            await asyncio.sleep(max(0.05, 1 - (time.monotonic() - began) % 1))

    async def probe(self, url: str) -> Accepted:
        """A binding of its own, accepted."""
        self._made += 1
        event, submission = self._request(f"lab/probe-{self._made}", f"uid-{self._made}", 1)
        await self._accept(url, [(event, submission)])
        return event

    async def _accept(self, url: str, turn: Sequence[tuple[Accepted, Submission]]) -> None:
        await persistently(lambda: self._submit(url, turn), self.patience_s, self.refused)
        self.accepted += [event for event, _ in turn]

    async def _submit(self, url: str, turn: Sequence[tuple[Accepted, Submission]]) -> None:
        ledger = await Ledger.open(url, "chaos-load")
        try:
            await ledger.accept([submission for _, submission in turn])
        finally:
            await ledger.close()

    def _next(self) -> tuple[Accepted, Submission]:
        self._made += 1
        name = f"shop/web-{self.random.randrange(NAMES)}"
        uid, replicas = self._held.get(name, ("", 0))
        if uid and self.random.random() < LESS * 2:  # about half of the names are held
            if replicas > 1 and self.random.random() < 0.5:
                self._held[name] = uid, replicas = uid, self.random.randrange(1, replicas)
                return self._request(name, uid, replicas)
            del self._held[name]
            return self._withdraw(name, uid)
        uid = uid or f"uid-{self._made}"
        replicas = self.random.randint(1, 6)
        self._held[name] = uid, replicas
        return self._request(name, uid, replicas)

    def _request(self, name: str, uid: str, replicas: int) -> tuple[Accepted, Submission]:
        namespace, short = name.split("/")
        binding = Binding(
            name,
            uid,
            ObjectRef("apps/v1", "Deployment", short, namespace),
            replicas,
            Requirements({"cpu": 100, "memory": 64 << 20}),
        )
        return self._told(Accepted(self._id(), name, uid, replicas), BindingRequested(binding))

    def _withdraw(self, name: str, uid: str) -> tuple[Accepted, Submission]:
        return self._told(Accepted(self._id(), name, uid, None), BindingWithdrawn(name))

    def _id(self) -> UUID:
        return derived_id("chaos", self._made)

    @staticmethod
    def _told(
        event: Accepted, data: BindingRequested | BindingWithdrawn
    ) -> tuple[Accepted, Submission]:
        name = event.binding
        told = made(data, id=event.id, source="/chaos", subject=name)
        return event, Submission(told, BINDINGS.name, name, name)


async def persistently(
    call: Callable[[], Awaitable[T]],
    patience_s: float = PATIENCE_S,
    errors: Counter[str] | None = None,
) -> T:
    """Its result, repeated while the database is away. The last error when patience ends. `errors`
    counts the others."""
    end, pause_s = time.monotonic() + patience_s, 0.1
    while True:
        try:
            return await call()
        except (LedgerError, OSError, *DATABASE_ERRORS) as error:
            if errors is not None:
                errors[f"{type(error).__name__}: {str(error)[:80]}"] += 1
            if time.monotonic() > end:
                raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)


@dataclass(slots=True)
class Campaign:
    """One run. `recovered`: fault -> seconds until a new binding was decided and published.
    `rate`: events a second during an outage. `minutes`: no fault begins later; 0: no bound.
    `suffered`: how many faults there were."""

    plane: PlaneUnderTest
    seed: int
    load: Load
    rate: float = 5.0
    minutes: float = 0.0
    suffered: Counter[str] = field(default_factory=Counter)
    copies: Copies | None = None
    outages: dict[str, Outage] = field(default_factory=dict)
    watched: list[Watched] = field(default_factory=list)
    marks: list[tuple[Mark, Mark]] = field(default_factory=list)
    recovered: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    memory: dict[str, float] = field(default_factory=dict)
    poisoned: int = 0

    @property
    def url(self) -> str:
        return str(self.plane.plane()["database_url"])

    async def run(self, faults: Sequence[Fault], events: int) -> None:
        await asyncio.to_thread(self.plane.up, "--processes", "each")
        fleet = ("--clusters", "6", "--nodes", "90", "--bindings", "1", "--seed", str(self.seed))
        await asyncio.to_thread(self.plane.command, "generate", "fleet", *fleet, "--apply")
        if self.copies is not None:
            await asyncio.to_thread(self.copies.start)
        self.memory = await asyncio.to_thread(self.plane.memory_mb)
        share = max(1, events // max(1, len(faults)))
        began = time.monotonic()
        for number, fault in enumerate(faults, 1):
            if self.minutes and time.monotonic() - began > self.minutes * 60:
                print(f"{len(faults) - number + 1} faults are left out: the time is over")
                return
            running = asyncio.create_task(self.load.run(self.url, share))
            await asyncio.sleep(self.load.random.random())
            if fault.kind in AT_REST:  # it has a load of its own
                await running
            took = await self._suffered(fault)
            await running
            self.recovered[str(fault)].append(took)
            self.suffered[f"faults: {fault}"] += 1
            print(f"{number:4} of {len(faults)}: {fault}, {took:.1f} s", flush=True)
        await self.load.run(self.url, events - share * len(faults))

    async def _suffered(self, fault: Fault) -> float:
        """Seconds from the fault (a frozen process: from its end) to a new published decision."""
        match fault.kind:
            case "kill":
                began = await kill_one(self.plane, fault.victim)
            case "freeze":
                began = await self._freeze(fault)
            case "outage":
                began = await self._outage(fault)
            case "poison":
                began = time.monotonic()
                await self._poison(fault.victim)
            case "put back":
                began = await self._put_back()
            case "delete":
                began = await self._delete(fault.victim)
            case other:
                raise ValueError(f"unknown fault {other!r}")
        probe = await self.load.probe(self.url)
        await persistently(lambda: self.until_published(probe))
        took = time.monotonic() - began
        if fault.kind == "outage":
            await asyncio.to_thread(settled, self.plane)
            self.watched[-1].after = await asyncio.to_thread(memory_mib, self.plane)
            for line in self.watched[-1].report():
                print(line, flush=True)
        return took

    async def _freeze(self, fault: Fault) -> float:
        """When it ended. What the successors had done by then is marked first: what the frozen
        processes write from there on is late. A frozen publisher goes on only when another one has
        taken over."""
        victims = fault.victim.split("+")
        frozen = [psutil.Process(await self._one_of(victim)) for victim in victims]
        before = await self._mark() if self.copies is not None else None
        for process in frozen:
            process.suspend()
        try:
            await asyncio.sleep(fault.seconds)
            if before is not None:
                if "publisher" in victims:
                    await eventually(partial(self._took_over, before), lambda: str(fault))
                self.marks.append((before, await self._mark()))
        finally:
            for process in frozen:
                process.resume()
        return time.monotonic()

    async def _took_over(self, before: Mark) -> bool:
        return (await self._mark()).feed[0] > before.feed[0]

    async def _one_of(self, victim: str) -> int:
        if self.copies is None:
            return await pid_of(self.plane, victim)
        return await asyncio.to_thread(self.copies.choose, victim, self.load.random)

    async def _mark(self) -> Mark:
        return await mark_of(
            plain_database_url(self.url), self.plane.plane()["bootstrap"], DECISIONS.name
        )

    async def _outage(self, fault: Fault) -> float:
        """When it ended."""
        await asyncio.to_thread(settled, self.plane)
        self.load.patience_s = PATIENCE_S + fault.seconds
        before, refused = len(self.load.accepted), self.load.refused.total()
        outage = self.outages[fault.victim]
        until = time.monotonic() + fault.seconds + PATIENCE_S

        def unnoticed() -> bool:
            noticed = not outage.refuses or self.load.refused.total() > refused
            return not noticed and time.monotonic() < until

        loading = asyncio.create_task(
            self.load.steadily(self.url, self.rate, fault.seconds, unnoticed)
        )
        try:
            found = await watched(self.plane, outage, fault.victim, fault.seconds, unnoticed)
            found.accepted = len(self.load.accepted) - before
            ended = time.monotonic()
        finally:
            await loading
        self.watched.append(found)
        return ended

    async def _put_back(self) -> float:
        """The database loses what was accepted and decided since a backup. All of that is published
        by then, so the topics still have it."""
        backup = Backup(self.plane)
        await asyncio.to_thread(settled, self.plane)
        await asyncio.to_thread(backup.take)
        await self.load.run(self.url, LOST)
        await asyncio.to_thread(settled, self.plane)
        began = time.monotonic()
        await asyncio.to_thread(backup.put_back)
        return began

    async def _delete(self, topic: str) -> float:
        """It ends when the topic has begun again: each process looks for that twice a minute."""
        before = await persistently(lambda: self._incarnation(topic))
        began = time.monotonic()
        await delete_topic(self.plane, topic)

        async def began_again() -> bool:
            return await self._incarnation(topic) > before

        await persistently(lambda: eventually(began_again, lambda: f"{topic} was deleted"))
        return began

    async def _incarnation(self, topic: str) -> int:
        async with self._database() as connection:
            found = await connection.fetchval(
                "select counter from incarnation where topic = $1", topic
            )
        return int(found or 0)

    async def until_published(self, probe: Accepted) -> None:
        async with self._database() as connection:
            await eventually(
                lambda: connection.fetchval(_PUBLISHED, probe.binding), lambda: probe.binding
            )

    @asynccontextmanager
    async def _database(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(plain_database_url(self.url))
        try:
            yield connection
        finally:
            await connection.close()

    async def _poison(self, topic: str) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.plane.plane()["bootstrap"], max_request_size=4 << 20
        )
        await producer.start()
        try:
            for _ in range(RECORDS):
                self.poisoned += 1
                key, value = hostile_record(self.load.random, self.poisoned)
                await producer.send(topic, value, key)
            await producer.flush()
        finally:
            await producer.stop()

    async def check(self) -> Findings:
        """After everything has come to rest."""
        found = Findings()
        if self.copies is not None:
            for line in self.copies.ended():
                found.wrong(line)
            await asyncio.to_thread(self.copies.stop)  # what waits to take over is not ready
        await asyncio.to_thread(settled, self.plane)
        found.figures.update(self.suffered)
        for name, count in self.load.refused.items():
            found.figures[f"answers to the load: {name}"] = count
        history = await read_history(plain_database_url(self.url))
        check_effects(found, history, self.load.accepted)
        check_places(found, history)
        bootstrap = self.plane.plane()["bootstrap"]
        deleted = bool(self.suffered[f"faults: {Fault('delete', DECISIONS.name)}"])
        await check_topic(found, history, bootstrap, DECISIONS.name, deleted=deleted)
        await check_late_rows(found, plain_database_url(self.url), self.marks)
        await check_late_records(
            found, bootstrap, DECISIONS.name, BINDINGS.name, self.marks, self.load.accepted
        )
        for one in self.watched:
            for line in one.broken():
                found.wrong(line)
        verified = await asyncio.to_thread(
            partial(self.plane.json, "audit", "verify", timeout_s=COMMAND_S)
        )
        if not verified["ok"]:
            found.wrong(f"audit verify: {verified['first_bad']}")
        replayed = await asyncio.to_thread(partial(self.plane.json, "replay", timeout_s=COMMAND_S))
        if replayed["divergences"]:
            found.wrong(f"replay: {replayed['divergences']} decisions differ")
        return found

    async def report(self) -> None:
        for fault, times in sorted(self.recovered.items()):
            ordered = sorted(times)
            print(
                f"{fault}: {len(times)} times, published again after "
                f"{ordered[len(ordered) // 2]:.1f} s in the median, {ordered[-1]:.1f} s at most"
            )
        now = await asyncio.to_thread(self.plane.memory_mb)
        for part in sorted(self.memory):
            print(f"memory of {part}: {self.memory[part]:.0f} MB before, {now[part]:.0f} after")


_PUBLISHED = """
select exists (
    select from decision d join stream s on s.id = d.stream
    join cursor c on c.stream = s.name and c.consumer = 'publisher' and c.seq >= d.seq
    where d.subject = $1 and starts_with(s.name, 'fleet/')
        and c.incarnation = (select max(incarnation) from cursor where consumer = 'publisher')
)
"""


async def pid_of(plane: PlaneUnderTest, victim: str) -> int:
    """Of a service or a backend, once it runs."""
    found: list[int] = []

    def look() -> bool:
        for part, process in plane.processes():
            with suppress(psutil.Error):
                if _is(victim, part, process):
                    found.append(process.pid)
        return bool(found)

    await eventually(lambda: asyncio.to_thread(look), lambda: victim)
    return found[0]


async def kill_one(plane: PlaneUnderTest, victim: str) -> float:
    """A service or a backend, once it runs; when that was, by the monotonic clock. One that ends by
    itself at the same moment, as after a fault before, is waited for again."""
    while True:
        pid = await pid_of(plane, victim)
        began = time.monotonic()
        try:
            await asyncio.to_thread(kill, pid)
        except ProcessLookupError:
            continue
        return began


def _is(victim: str, part: str, process: psutil.Process) -> bool:
    words = process.cmdline()
    match victim:
        case "broker":
            return part == "broker"
        case "database":
            parent = process.parent()
            return part == "postgres" and (parent is None or "postgres" not in parent.name())
        case _:
            return f"wharfinger_{victim}" in words


def faults_of(
    random: Random,
    kills: int = 0,
    backend_kills: int = 0,
    freezes: int = 0,
    freeze_s: float = 20.0,
    poison: int = 0,
    together: bool = False,
    put_backs: int = 0,
    deletions: int = 0,
) -> list[Fault]:
    """In random order: `kills` of each service, `backend_kills` of each backend, `freezes` of
    scheduler and publisher in turns (`together`: of both at the same time, which are two), so many
    times hostile records, `put_backs` of the database, and `deletions` of topics in turns."""
    found = [Fault("kill", victim) for victim in SERVICES for _ in range(kills)]
    found += [Fault("kill", victim) for victim in BACKENDS for _ in range(backend_kills)]
    if together:
        found += [Fault("freeze", "+".join(COPIED), freeze_s) for _ in range((freezes + 1) // 2)]
    else:
        found += [Fault("freeze", COPIED[n % 2], freeze_s) for n in range(freezes)]
    found += [Fault("poison", BINDINGS.name) for _ in range(poison)]
    found += [Fault("put back", "database") for _ in range(put_backs)]
    found += [Fault("delete", DELETED[n % len(DELETED)]) for n in range(deletions)]
    random.shuffle(found)
    return found


def outages_of(victims: Sequence[str], seconds: float) -> list[Fault]:
    return [Fault("outage", victim, seconds) for victim in victims]


async def campaign(
    plane: PlaneUnderTest,
    seed: int,
    faults: Sequence[Fault],
    events: int,
    rate: float = 5.0,
    copies: bool = False,
    minutes: float = 0.0,
) -> Findings:
    """What was found, printed too."""
    one = Campaign(plane, seed, Load(Random(f"load {seed}")), rate, minutes)
    with ExitStack() as stack:
        for fault in faults:
            if fault.kind == "outage" and fault.victim not in one.outages:
                one.outages[fault.victim] = outage = outage_of(fault.victim)
                one.plane = stack.enter_context(outage.prepared(one.plane))
        if copies:
            one.copies = stack.enter_context(Copies.of(one.plane))
        await one.run(faults, events)
        found = await one.check()
        await one.report()
    print(dict(sorted(found.figures.items())))
    for line in found.broken:
        print(f"broken: {line}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=2, help="of each service")
    parser.add_argument("--backend-kills", type=int, default=2, help="of broker and database")
    parser.add_argument("--freezes", type=int, default=2)
    parser.add_argument("--freeze-s", type=float, default=20.0)
    parser.add_argument(
        "--together", action="store_true", help="freeze scheduler and publisher at the same time"
    )
    parser.add_argument(
        "--copies", type=int, choices=(1, 2), default=1, help="of scheduler and publisher"
    )
    parser.add_argument("--poison", type=int, default=2, help=f"times {RECORDS} hostile records")
    parser.add_argument("--put-backs", type=int, default=0, help="of the database to a backup")
    parser.add_argument("--deletions", type=int, default=0, help="of topics")
    parser.add_argument(
        "--outage", action="append", choices=OUTAGES, default=[], help="may be given several times"
    )
    parser.add_argument("--outage-s", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=5.0, help="events a second in an outage")
    parser.add_argument("--minutes", type=float, default=0.0, help="no fault begins later")
    asked = parser.parse_args()
    kafka = os.environ.get("WHARFINGER_KAFKA", "")
    if asked.deletions and not kafka:
        parser.error(
            "--deletions: expected WHARFINGER_KAFKA: the embedded broker gives offsets twice"
        )
    random = Random(asked.seed)
    faults = faults_of(
        random,
        asked.kills,
        asked.backend_kills,
        asked.freezes,
        asked.freeze_s,
        asked.poison,
        asked.together,
        asked.put_backs,
        asked.deletions,
    )
    if kafka and any(fault == KILL_BROKER for fault in faults):
        print(f"the broker at {kafka} is not ours, and is not killed")
        faults = [fault for fault in faults if fault != KILL_BROKER]
    faults += outages_of(asked.outage, asked.outage_s)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the plane is stopped too
    try:
        with a_plane() as plane:
            run = campaign(
                plane,
                asked.seed,
                faults,
                asked.events,
                asked.rate,
                asked.copies == 2,
                asked.minutes,
            )
            kept = not asyncio.run(run).broken
    except NoDiskError as error:
        print(f"not run: {error}", file=sys.stderr)
        return 2
    print(f"seed {asked.seed}: {'kept' if kept else 'BROKEN'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
