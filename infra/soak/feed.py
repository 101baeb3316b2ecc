"""`make feed-soak`: subscribers of every way over a plane whose processes are killed.

Afterwards what each of them has in its own database is compared with the feed. The plane is one of
`wharfinger up --processes each` with its embedded broker and database. A load of events of bindings
makes it decide. Each service, the broker, the database and the processes of the
subscribers are killed by SIGKILL at moments that the seed decides. Subscribers share a few
processes; each has a database of its own, is ended and begun again by itself, and some of its
connections are cut. When all have read to the end, gaps, repetitions and order are compared. The
seed decides load, kills and lives, but not which process does what first.

    make feed-soak SEED=3 ARGS="--decisions 50000 --subscribers 100 --kills 20"
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import asyncpg
import msgspec
import psutil
from benchmarks.plane import PlaneUnderTest, a_plane
from infra.soak.feed_process import Member, Share
from tests.chaos.campaign import BACKENDS, Load, kill_one, persistently
from tests.patience import PATIENCE_S, eventually
from tests.planes import settled
from tests.storing_receiver import came_again
from tests.subscribers import ALL_WAYS, Difference, Row, Subscriber, api_port, difference, rows_for
from tests.subscribers import whole_feed as feed_of

from wharfinger.events.streams import INTAKE
from wharfinger.runtime.backends import plain_database_url
from wharfinger.runtime.children import EACH
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.tokens import make_token
from wharfinger.runtime.processes import free_port
from wharfinger_client import AsyncClient, Event, WharfingerError, api

ROOT = Path(__file__).resolve().parents[2]
READERS = "subscribers"
"""The victim that is one of the processes of subscribers."""
VICTIMS = (*EACH, *BACKENDS, READERS)
TOKEN_S = 7 * 86_400
UNANSWERED_MAX = 600
"""So many events are accepted at most while nothing new is decided."""
AFTERWARDS_S = 5.0
"""For so long it is waited whether more comes after all have read to the end."""
SAMPLE_S = 4.0
PROGRESS_S = 60.0


class SoakError(Exception):
    """It cannot go on; in one line."""


class Wanted(msgspec.Struct, frozen=True):
    """What is run. `kills`: of each of `victims`. `processes`: of the subscribers."""

    decisions: int
    subscribers: int
    kills: int
    processes: int
    seed: int
    life_s: float
    cut: float
    bindings: int
    victims: Sequence[str] = VICTIMS


@dataclass(slots=True)
class Found:
    """`differences`: of each subscriber, by its number. `ledger`: what is wrong between feed and
    ledger. `again`: deliveries of webhooks that came again and were dropped."""

    decisions: int
    ways: dict[str, int]
    kills: dict[str, int]
    differences: dict[int, tuple[str, Difference]]
    ledger: list[str]
    again: int
    wall_s: float
    processor_s: dict[str, float]
    memory_mb: dict[str, float]

    @property
    def broken(self) -> list[str]:
        """One line for each subscriber with a difference."""
        return self.ledger + [
            f"subscriber {number} ({way}): {seen.gaps} gaps, {seen.repeated} repetitions, "
            f"{seen.foreign} not of the feed, {seen.disordered} out of order; first {seen.first}"
            for number, (way, seen) in sorted(self.differences.items())
            if seen.first
        ]

    def closing(self, wanted: Wanted) -> str:
        every = [seen for _, seen in self.differences.values()]
        ways = ", ".join(f"{count} {way}" for way, count in sorted(self.ways.items()))
        kills = ", ".join(f"{name} {count}" for name, count in self.kills.items())
        return (
            f"feed-soak: seed {wanted.seed}: {self.decisions} decisions to {len(every)} "
            f"subscribers ({ways}) in {wanted.processes} processes; killed: {kills or 'nothing'}; "
            f"{sum(one.gaps for one in every)} gaps, {sum(one.repeated for one in every)} "
            f"repetitions, {sum(one.foreign for one in every)} not of the feed, "
            f"{sum(one.disordered for one in every)} out of order, {len(self.ledger)} between feed "
            f"and ledger; {self.again} deliveries of webhooks came again and were dropped; "
            f"{self.wall_s:.0f} s, processor seconds {_parts(self.processor_s)}, "
            f"MB at most {_parts(self.memory_mb)}"
        )


def _parts(of: dict[str, float]) -> str:
    parts = ", ".join(f"{name} {figure:.0f}" for name, figure in sorted(of.items()))
    return f"{sum(of.values()):.0f} ({parts})"


@dataclass(slots=True)
class Meter:
    """Looks every `SAMPLE_S` seconds. What a process used between the last look and its end is not
    counted. `memory_mb`: by part, at the moment when all parts together had most."""

    plane: PlaneUnderTest
    readers: list[subprocess.Popen[bytes]]
    memory_mb: dict[str, float] = field(default_factory=dict)
    _used: dict[tuple[str, int, float], float] = field(default_factory=dict)

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(SAMPLE_S)

    def look(self) -> None:
        now: dict[str, float] = defaultdict(float)
        found = [(READERS, one.pid) for one in self.readers]
        found += [(part, process.pid) for part, process in self.plane.processes()]
        for part, pid in found:
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                times = process.cpu_times()
                self._used[part, pid, process.create_time()] = times.user + times.system
                now[part] += process.memory_full_info().pss / 1e6
        if sum(now.values()) > sum(self.memory_mb.values()):
            self.memory_mb = dict(now)

    def processor_s(self) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for (part, *_), seconds in self._used.items():
            found[part] += seconds
        return dict(found)


@dataclass(slots=True)
class Readers:
    """The processes of the subscribers. `shares`: what each runs, and where that is written."""

    directory: Path
    shares: list[Share]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _lives: int = 0

    def start(self) -> None:
        self.processes += [self._started(number) for number in range(len(self.shares))]

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        self._lives += 1
        share = msgspec.structs.replace(self.shares[number], seed=f"{self._lives}/{number}")
        path = self.directory / f"share-{number}.json"
        path.write_bytes(msgspec.json.encode(share))
        with self._log(number).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "infra.soak.feed_process", str(path)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _log(self, number: int) -> Path:
        return self.directory / f"share-{number}.log"

    def kill_one(self, random: Random) -> None:
        """And start it again."""
        number = random.randrange(len(self.processes))
        self.check()
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._started(number)

    def check(self) -> None:
        """SoakError: one has ended by itself."""
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                lines = self._log(number).read_text(errors="replace").strip().splitlines()
                sys.stderr.write("\n".join(lines[-60:]) + "\n")
                raise SoakError(
                    f"a process of subscribers ended by itself with {process.returncode}: "
                    f"{lines[-1] if lines else 'nothing was printed'}"
                )

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@dataclass(slots=True)
class Soak:
    """One run over a plane that is not started yet."""

    plane: PlaneUnderTest
    wanted: Wanted
    kills: Counter[str] = field(default_factory=Counter)

    @property
    def url(self) -> str:
        return str(self.plane.plane()["database_url"])

    @property
    def directory(self) -> Path:
        return self.plane.data_dir.parent / "subscribers"

    async def run(self) -> Found:
        began = time.monotonic()
        await asyncio.to_thread(self.plane.up, "--processes", "each")
        wanted = self.wanted
        fleet = ("--clusters", "6", "--nodes", "90", "--bindings", str(wanted.bindings))
        await asyncio.to_thread(
            self.plane.command, "generate", "fleet", *fleet, "--seed", str(wanted.seed), "--apply"
        )
        self.directory.mkdir()
        members = await self._members()
        readers = Readers(self.directory, self._shares(members))
        readers.shares = await self._with_webhooks(readers.shares)
        members = [member for share in readers.shares for member in share.members]
        meter = Meter(self.plane, readers.processes)
        measuring = asyncio.create_task(meter.run())
        try:
            readers.start()
            await self._begun(readers, members)
            await self._killed_under_load(readers)
            print("feed-soak: no more load and no more kills", flush=True)
            await asyncio.to_thread(settled, self.plane)
            feed = await self._feed(members[0].secret)
            await self._until_read(readers, members, feed)
        finally:
            measuring.cancel()
            await asyncio.gather(measuring, return_exceptions=True)
            await asyncio.to_thread(meter.look)
            readers.stop()
        return Found(
            len(feed),
            dict(Counter(member.way for member in members)),
            dict(self.kills),
            self._differences(members, feed),
            await self._against_the_ledger(feed),
            sum(came_again(self._path(one)) for one in members if one.way == "webhook"),
            time.monotonic() - began,
            meter.processor_s(),
            meter.memory_mb,
        )

    def _path(self, member: Member) -> Path:
        return member.database(self.directory)

    async def _members(self) -> list[Member]:
        """With a token each: the limit of requests is for a token."""
        ledger = await Ledger.open(self.url, "feed-soak")
        try:
            found = []
            for number in range(self.wanted.subscribers):
                name = f"reader-{number}"
                secret, _ = await make_token(
                    ledger.database, name, ["viewer"], "feed-soak", lifetime_s=TOKEN_S
                )
                found.append(Member(number, ALL_WAYS[number % len(ALL_WAYS)], secret))
            return found
        finally:
            await ledger.close()

    def _shares(self, members: Sequence[Member]) -> list[Share]:
        """Every process gets subscribers of every way."""
        count = self.wanted.processes
        parts: list[list[Member]] = [[] for _ in range(count)]
        for way in ALL_WAYS:
            for member in (one for one in members if one.way == way):
                min(parts, key=len).append(member)
        common = partial(
            Share, str(self.plane.data_dir.resolve()), str(self.directory), str(self.wanted.seed)
        )
        return [
            common(free_port(), self.wanted.life_s, self.wanted.cut, part) for part in parts if part
        ]

    async def _with_webhooks(self, shares: Sequence[Share]) -> list[Share]:
        found = []
        for share in shares:
            members = [
                await self._subscribed(one, share.port) if one.way == "webhook" else one
                for one in share.members
            ]
            found.append(msgspec.structs.replace(share, members=members))
        return found

    async def _subscribed(self, one: Member, port: int) -> Member:
        async with AsyncClient(self._api(), one.secret) as client:
            made = await client(
                api.new_webhook(
                    f"reader-{one.number}",
                    f"http://127.0.0.1:{port}/{self._path(one).stem}",
                    after="earliest",
                )
            )
        return msgspec.structs.replace(one, signed_with=made["secret"])

    def _api(self) -> str:
        return f"http://127.0.0.1:{api_port(self.plane.data_dir)}"

    async def _begun(self, readers: Readers, members: Sequence[Member]) -> None:
        """Every subscriber has read something: a new cursor wants a plane that is there."""

        def begun() -> bool:
            readers.check()
            return all(_rows(self._path(one)) for one in members)

        await eventually(lambda: asyncio.to_thread(begun), lambda: "not all subscribers have begun")

    async def _killed_under_load(self, readers: Readers) -> None:
        """The load is divided: one share for each kill, and one more. A kill comes into the middle
        of its share, and the next one when the share has been decided."""
        random = Random(f"kills {self.wanted.seed}")
        victims = [name for name in self.wanted.victims for _ in range(self.wanted.kills)]
        random.shuffle(victims)
        load = Load(Random(f"load {self.wanted.seed}"))
        for number, victim in enumerate(victims, 1):
            through = self.wanted.decisions * number // (len(victims) + 1)
            running = asyncio.create_task(self._decide(load, through))
            await asyncio.sleep(random.random())
            began = time.monotonic()
            if victim == READERS:
                await asyncio.to_thread(readers.kill_one, random)
            else:
                await kill_one(self.plane, victim)
            self.kills[victim] += 1
            decided = await running
            readers.check()
            print(
                f"feed-soak: {number} of {len(victims)}: killed {victim}, {decided} decisions "
                f"after {time.monotonic() - began:.1f} s",
                flush=True,
            )
        await self._decide(load, self.wanted.decisions)

    async def _decide(self, load: Load, through: int) -> int:
        """Accept events until there are so many decisions. How many there are."""
        before, answered, since = -1, len(load.accepted), time.monotonic()
        while (decided := await persistently(self._decided)) < through:
            if decided != before:
                before, answered, since = decided, len(load.accepted), time.monotonic()
            if len(load.accepted) - answered < UNANSWERED_MAX:
                await load.run(self.url, 50)
            elif time.monotonic() - since > PATIENCE_S:
                raise SoakError(f"nothing was decided for {PATIENCE_S:g} s, {decided} before")
            else:
                await asyncio.sleep(0.1)
        return decided

    async def _decided(self) -> int:
        ledger = await Ledger.open(self.url, "feed-soak")
        try:
            return sum(head.seq for head in await ledger.heads() if head.stream != INTAKE)
        finally:
            await ledger.close()

    async def _feed(self, secret: str) -> list[Event]:
        return await feed_of(self._api(), secret)

    async def _until_read(
        self, readers: Readers, members: Sequence[Member], feed: Sequence[Event]
    ) -> None:
        """Every subscriber has as many rows as it must, or no row has come for `PATIENCE_S`."""
        counts = {
            one.number: len(rows_for(_subscriber(one, self.directory), feed)) for one in members
        }
        have: dict[int, int] = {}
        since = told = time.monotonic()
        while time.monotonic() - since < PATIENCE_S:
            readers.check()
            now = {one.number: _rows(self._path(one)) for one in members}
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                read, all_ = sum(now.values()), sum(counts.values())
                print(f"feed-soak: {read:,} of {all_:,} events are read", flush=True)
            if all(now[number] >= count for number, count in counts.items()):
                await asyncio.sleep(AFTERWARDS_S)
                return
            if now != have:
                have, since = now, time.monotonic()
            await asyncio.sleep(1.0)
        print(f"feed-soak: no row has come for {PATIENCE_S:g} s", flush=True)

    def _differences(
        self, members: Sequence[Member], feed: Sequence[Event]
    ) -> dict[int, tuple[str, Difference]]:
        found = {}
        for member in members:
            one = _subscriber(member, self.directory)
            stored: list[Row] = one.stored() if one.path.exists() else []
            found[member.number] = (one.way, difference(one.way, stored, rows_for(one, feed)))
        return found

    async def _against_the_ledger(self, feed: Sequence[Event]) -> list[str]:
        """The feed is every decision once, in order of position."""
        connection = await asyncpg.connect(plain_database_url(self.url))
        try:
            rows = await connection.fetch(_DECISIONS, INTAKE)
        finally:
            await connection.close()
        decided = {str(row["id"]): row["name"] for row in rows}
        fed = Counter(event.id for event in feed)
        wrong = [
            f"{decided[id_]}: decision {id_} is not in the feed" for id_ in decided.keys() - fed
        ]
        wrong += [f"the feed has {id_}, the ledger has not" for id_ in fed.keys() - decided.keys()]
        wrong += [f"the feed has {id_} {count} times" for id_, count in fed.items() if count > 1]
        positions = [event.position for event in feed]
        if positions != sorted(positions):
            wrong.append("the feed is not in order of position")
        return sorted(wrong)


_DECISIONS = (
    "select d.id, s.name from decision d join stream s on s.id = d.stream where s.name <> $1"
)


def _subscriber(member: Member, directory: Path) -> Subscriber:
    return Subscriber(member.way, member.database(directory), member.secret, Random(0))


def _rows(path: Path) -> int:
    """No row is ever removed, so the last one's number is how many there are."""
    if not path.exists():
        return 0
    own = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=PATIENCE_S)
    try:
        return int(own.execute("select coalesce(max(rowid), 0) from own").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # it has not begun
    finally:
        own.close()


async def soak(plane: PlaneUnderTest, wanted: Wanted) -> Found:
    """What was found, printed too."""
    # receivers of webhooks are on this machine
    os.environ["WHARFINGER_API_WEBHOOK_NETWORKS"] = "127.0.0.0/8"
    found = await Soak(plane, wanted).run()
    for line in found.broken:
        print(f"feed-soak: broken: {line}")
    print(found.closing(wanted), flush=True)
    return found


_ALL = f"what is killed; without it all of {', '.join(VICTIMS)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make feed-soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decisions", type=_positive, default=2000, help="at least so many")
    parser.add_argument("--subscribers", type=_positive, default=20, help="of all ways in turns")
    parser.add_argument("--kills", type=_count, default=2, help="of each of the victims")
    parser.add_argument(
        "--victims", nargs="+", choices=VICTIMS, default=VICTIMS, metavar="NAME", help=_ALL
    )
    parser.add_argument("--processes", type=_positive, default=4, help="that subscribers share")
    parser.add_argument(
        "--life-s", type=float, default=60.0, help="a subscriber is ended after at most so long"
    )
    parser.add_argument("--cut", type=float, default=0.1, help="share of connections that are cut")
    parser.add_argument("--bindings", type=_positive, default=200, help="of the fleet at the start")
    wanted = Wanted(**vars(parser.parse_args()))
    try:
        with a_plane() as plane:
            return 1 if asyncio.run(soak(plane, wanted)).broken else 0
    except (SoakError, WharfingerError, AssertionError, RuntimeError) as error:
        print(f"feed-soak: seed {wanted.seed}: {error}", file=sys.stderr)
        return 2


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
