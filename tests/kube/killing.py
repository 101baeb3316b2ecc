"""A plane whose processes, broker and API server are killed again and again by a seeded choice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from infra.kube import cluster
from tests.kube.member import Member
from tests.kube.service_process import ServiceProcess, ServiceStart
from tests.patience import eventually

from wharfinger.runtime.backends import CAPABILITIES, Backend
from wharfinger.runtime.embedded import BROKER_PROFILE
from wharfinger.runtime.embedded_broker import EmbeddedBroker

SERVICES = ("publisher", "estimator", "scheduler", "collector", "actuator")
BROKER, API_SERVER = "broker", "kube-apiserver"
SELDOM = 25
"""One kill of so many is of the broker, and one of the API server: either of them takes as long as
five of a service."""
READY_FIRST = 0.5
"""This part of the kills waits until the process is ready."""
WORK_S_MAX = 1.2
"""What is killed next works at most so long before."""


def victims(kills: int, chance: random.Random) -> list[str]:
    """In the order in which they are killed; each of `SERVICES` as often as the others."""
    seldom = [BROKER, API_SERVER] * max(1, kills // SELDOM)
    services = [SERVICES[number % len(SERVICES)] for number in range(kills - len(seldom))]
    found = [*services, *seldom]
    chance.shuffle(found)
    return found


@dataclass(frozen=True, slots=True)
class Where:
    """`database_url`: of a database of the test's own. `joined`: the directory of the joined
    clusters."""

    member: Member
    database_url: str
    prefix: str
    joined: Path
    directory: Path


class Killed:
    """A context manager: each service of `SERVICES` in a process of its own, on a broker of their
    own. `kills`: how often each of them was killed; `unready`: how many kills of a service were
    before it was ready."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._broker = EmbeddedBroker(where.directory / "broker", die_with_parent=True)
        self._processes: dict[str, ServiceProcess] = {}
        self.kills: Counter[str] = Counter()
        self.unready = 0

    def __enter__(self) -> Self:
        self._broker.start()
        where = self._where
        backend = self._backend()
        try:
            for name in SERVICES:
                log = where.directory / f"{name}.log"
                self._processes[name] = ServiceProcess(
                    ServiceStart(name, backend, where.database_url, where.prefix, where.joined, log)
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.end()
        self._broker.stop()

    def _backend(self) -> Backend:
        return Backend(
            self._broker.bootstrap,
            self._where.database_url,
            CAPABILITIES[BROKER_PROFILE],
            boot_id=self._broker.boot_id,
        )

    def words(self) -> str:
        return "\n".join(process.words() for process in self._processes.values())

    async def kill(self, victim: str, chance: random.Random) -> tuple[str, ...]:
        """kill -9 after a while of work, and begin again. A server is away for a while; the
        services are stopped and begin again with the next broker, as the supervisor does it. The
        services that have begun again."""
        process = self._processes.get(victim)
        if process is not None and chance.random() < READY_FIRST:
            await eventually(process.ready, process.words)
        await asyncio.sleep(chance.uniform(0.0, WORK_S_MAX))
        self.kills[victim] += 1
        if victim == API_SERVER:
            # Another one is killed while it is away.
            other = self._processes[chance.choice(SERVICES)]
            cluster.restart(
                self._where.member.directory, victim, between=lambda: self._again(other)
            )
            return (other.name,)
        if victim == BROKER:
            await self._another_broker(chance)
            return SERVICES
        assert process is not None, victim
        self._again(process)
        return (victim,)

    def _again(self, process: ServiceProcess) -> None:
        assert process.kill(), process.words()
        self.unready += not process.ready()
        process.skip()
        process.start()

    async def _another_broker(self, chance: random.Random) -> None:
        pid = self._broker.pid
        assert pid is not None, "it runs"
        os.kill(pid, signal.SIGKILL)
        self._broker.abandon()
        await asyncio.sleep(chance.uniform(0.0, WORK_S_MAX))
        for process in self._processes.values():
            process.kill()  # one may have ended without a broker
            process.skip()
        self._broker.start()
        for process in self._processes.values():
            process.start(self._backend())

    async def ready(self) -> None:
        """All of them."""
        await eventually(lambda: all(p.ready() for p in self._processes.values()), self.words)
