"""Hostile records on every topic that services read, in a plane of real processes: none ends,
memory stays, every record is a dead letter or counted by one, and good events go on.

The records are those of `tests.poison`, by a seed, and one of a gigabyte that its producer has
compressed, in each share. After each share a binding must be decided and published. Then the same
load is decided alone and beside one hostile record among a hundred, in turns.

    make poison RECORDS=100000
"""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from aiokafka import AIOKafkaProducer
from benchmarks.plane import PlaneUnderTest, a_plane, service_of
from tests.chaos.campaign import Campaign, Load, persistently
from tests.chaos.outages import BACKENDS, memory_mib
from tests.patience import eventually
from tests.planes import settled
from tests.poison import bomb_command, hostile_record

from wharfinger.events.streams import BINDINGS, TOPICS
from wharfinger.runtime.ledger import Ledger
from wharfinger_cli.dead_letters import letters_of

READ = [topic for topic in TOPICS if topic.delivery in ("broadcast", "partitioned")]
"""Topics that services of the plane read."""
SHARES = 20
"""In each of them a bomb."""
GROWTH_MIB_MAX = 64.0
RATE_MIN = 0.8
TURN = 400
"""Events of a turn."""
POISON_SHARE = 0.01


@dataclass(slots=True)
class Poisoning:
    """`sent`: hostile records by topic. `counted`: of those, topic -> service -> letters. `most`:
    memory of each part at most so far, MiB."""

    campaign: Campaign
    random: Random
    bomb_bytes: int
    sent: Counter[str] = field(default_factory=Counter)
    most: dict[str, float] = field(default_factory=dict)
    counted: dict[str, Counter[str]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def plane(self) -> PlaneUnderTest:
        return self.campaign.plane

    async def run(self, records: int, turns: int, shares: int = SHARES) -> list[str]:
        """What was not kept."""
        await self.campaign.run((), 0)
        await self.campaign.load.run(self.campaign.url, 2 * TURN)  # caches are filled
        await asyncio.to_thread(settled, self.plane)
        processes = self._processes()
        before = await self._memory()
        for number in range(shares):
            await self._share(records // shares)
            await self._answered()
            await self._all_counted()
            await self._memory()
            print(f"{number + 1:4} of {shares}: {self.sent.total():,} hostile records", flush=True)
        ratios = [await self._ratio() for _ in range(turns)]
        await self._all_counted()
        after = await self._memory()
        for gone in sorted(processes.keys() - self._processes().keys()):
            self.broken.append(f"{processes[gone]} has ended")
        self._grown(before, after)
        found = await self.campaign.check()
        print(dict(sorted(found.figures.items())))
        for topic, sent in sorted(self.sent.items()):
            print(f"{topic}: {sent:,} sent, letters {dict(sorted(self.counted[topic].items()))}")
        self._rate(ratios)
        return [*self.broken, *found.broken]

    # --- what is sent

    async def _share(self, count: int) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, max_request_size=4 << 20, linger_ms=20
        )
        await producer.start()
        try:
            for _ in range(count):
                await self._hostile(producer, self.random.choice(READ).name)
            await producer.flush()
        finally:
            await producer.stop()
        if self.bomb_bytes:
            topic = self.random.choice(READ).name
            words = bomb_command(self._bootstrap, topic, "zstd", self.bomb_bytes)
            bomb = await asyncio.create_subprocess_exec(*words)
            if await bomb.wait():
                raise RuntimeError(f"no record of {self.bomb_bytes} bytes could be sent to {topic}")
            self.sent[topic] += 1

    async def _hostile(self, producer: AIOKafkaProducer, topic: str) -> None:
        key, value = hostile_record(self.random, self.sent.total())
        await producer.send(topic, value, key)
        self.sent[topic] += 1

    @property
    def _bootstrap(self) -> str:
        return str(self.plane.plane()["bootstrap"])

    async def _answered(self) -> None:
        """A binding that is accepted now is decided and published."""
        probe = await self.campaign.load.probe(self.campaign.url)
        await persistently(lambda: self.campaign.until_published(probe))

    # --- what became of it

    async def _all_counted(self) -> None:
        """Each record is a letter of the first reader of its topic, or counted by one."""
        counted: dict[str, Counter[str]] = {}
        ledger = await Ledger.open(self.campaign.url, "poisoning")
        try:

            async def all_there() -> bool:
                counted.clear()
                for letter in await letters_of(ledger):
                    of_topic = counted.setdefault(letter.data.topic, Counter())
                    of_topic[letter.data.service] += letter.data.more or 1
                return all(
                    counted.get(topic, Counter()).total() >= sent
                    for topic, sent in self.sent.items()
                )

            await eventually(all_there, lambda: f"{dict(self.sent)} sent, {counted}")
        finally:
            await ledger.close()
        self.counted = counted

    def _processes(self) -> dict[tuple[int, float], str]:
        """Those of services: what identifies them, and their names."""
        found = {}
        for part, process in self.plane.processes():
            if part == "services":
                found[process.pid, process.create_time()] = service_of(part, process)
        return found

    async def _memory(self) -> dict[str, float]:
        read = await asyncio.to_thread(memory_mib, self.plane)
        now = {part: mib for part, mib in read.items() if part not in BACKENDS}
        for part, mib in now.items():
            self.most[part] = max(mib, self.most.get(part, 0.0))
        return now

    def _grown(self, before: dict[str, float], after: dict[str, float]) -> None:
        for part in sorted(before):
            grown = after.get(part, 0.0) - before[part]
            print(
                f"memory of {part}: {before[part]:.0f} MiB before, {self.most[part]:.0f} at most, "
                f"{after.get(part, 0.0):.0f} after"
            )
            if grown > GROWTH_MIB_MAX:
                self.broken.append(f"{part} has grown by {grown:.0f} MiB")

    # --- the rate beside it

    async def _ratio(self) -> float:
        """Of the rate beside hostile records to the rate without, one right after the other."""
        alone = await self._seconds(0)
        return alone / await self._seconds(round(TURN * POISON_SHARE))

    async def _seconds(self, hostile: int) -> float:
        """Until a turn of the load is decided and published."""
        load = self.campaign.load
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, max_request_size=4 << 20)
        await producer.start()
        try:
            began = time.monotonic()
            for _ in range(hostile):
                await self._hostile(producer, BINDINGS.name)
            await producer.flush()
            await load.at_once(self.campaign.url, TURN)
            await self._answered()
            return time.monotonic() - began
        finally:
            await producer.stop()

    def _rate(self, ratios: Sequence[float]) -> None:
        if not ratios:
            return
        middle = statistics.median(ratios)
        print(
            f"rate beside {POISON_SHARE:.0%} of hostile records: {middle:.2f} of the rate without, "
            f"median of {len(ratios)} pairs ({min(ratios):.2f} to {max(ratios):.2f})"
        )
        if middle < RATE_MIN:
            self.broken.append(f"the rate is {middle:.2f} of that without hostile records")


async def poisoned(
    plane: PlaneUnderTest,
    seed: int,
    records: int,
    bomb_bytes: int,
    turns: int,
    shares: int = SHARES,
) -> list[str]:
    """What was not kept; printed too."""
    asked = {
        "WHARFINGER_FLEET_SHARDS": "2",  # with one nothing reads `wharfinger.room`
        # the broker keeps every record; it must not be replaced while some are not counted yet
        "WHARFINGER_BROKER_RSS_MB_MAX": "16384",
    }
    plane = replace(plane, environment={**plane.environment, **asked})
    campaign = Campaign(plane, seed, Load(Random(f"load {seed}")))
    one = Poisoning(campaign, Random(f"poison {seed}"), bomb_bytes)
    broken = await one.run(records, turns, shares)
    for line in broken:
        print(f"broken: {line}")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="make poison", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument(
        "--bomb-bytes", type=int, default=10**9, help="of one record a share; 0: none"
    )
    parser.add_argument("--turns", type=int, default=15, help="pairs of turns; 0: no rate")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the plane is stopped too
    with a_plane() as plane:
        broken = asyncio.run(
            poisoned(plane, asked.seed, asked.records, asked.bomb_bytes, asked.turns)
        )
    print(f"seed {asked.seed}: {asked.records:,} records: {'BROKEN' if broken else 'kept'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
