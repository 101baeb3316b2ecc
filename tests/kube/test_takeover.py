"""Two collector processes for one cluster: one reads it, the other takes over when the first one is
killed or frozen. The facts stay complete, none of an older session is taken after one of a newer,
none is missing and none is there twice. `WHARFINGER_TEST_TAKEOVERS` says how often."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.apps import a_context
from tests.kube.breaking import Breaking
from tests.kube.collecting import Known, assert_never_fewer, nodes_of, pod
from tests.kube.member import Member
from tests.kube.service_process import ServiceProcess, ServiceStart
from tests.kube.test_collector import NODES, PODS, agrees, changed, filled
from tests.patience import eventually

from wharfinger.domain.value import digest
from wharfinger.events.acceptance import MessageAccepted
from wharfinger.events.codec import decode
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.joined import JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.runtime.ledger import Ledger

TAKEOVERS = int(os.environ.get("WHARFINGER_TEST_TAKEOVERS", "4"))
SEED = int(os.environ.get("WHARFINGER_TEST_SEED", "41"))
LEASE_S = 2


@dataclass(frozen=True, slots=True)
class Collectors:
    """Two processes, each with a way of its own to the cluster."""

    member: Member
    processes: tuple[ServiceProcess, ServiceProcess]

    async def reading(self) -> tuple[ServiceProcess, ServiceProcess]:
        """The process that began last with the cluster, and the other one."""
        found: list[int] = []

        async def one_began() -> bool:
            found[:] = [self.begun(process) for process in self.processes]
            return max(found) > 0

        await eventually(one_began, self.words)
        first, second = self.processes
        return (first, second) if found[0] > found[1] else (second, first)

    def begun(self, process: ServiceProcess) -> int:
        """The epoch of its newest session with the cluster; 0: it had none."""
        pattern = rf"cluster\.begun\b.*cluster={self.member.name}\b.*epoch=(\d+)"
        plain = re.sub(r"\x1b\[[0-9;]*m", "", process.log())
        return max(map(int, re.findall(pattern, plain)), default=0)

    def words(self) -> str:
        return "\n".join(process.words() for process in self.processes)


@asynccontextmanager
async def two_collectors(
    backend: Backend,
    database_url: str,
    prefix: str,
    directory: Path,
    member: Member,
    ways: tuple[Access, Access],
) -> AsyncIterator[Collectors]:
    ledger = await Ledger.open(database_url, "tests-takeover")
    await a_context(backend, ledger, prefix)
    await ledger.close()
    processes: list[ServiceProcess] = []
    try:
        for number, access in enumerate(ways):
            joined = directory / f"joined-{number}"
            joined.mkdir()
            store_joined(joined, JoinedCluster(member.name, access, lease_s=LEASE_S))
            log = directory / f"collector-{number}.log"
            start = ServiceStart("collector", backend, database_url, prefix, joined, log)
            processes.append(ServiceProcess(start))
        first, second = processes
        collectors = Collectors(member, (first, second))
        await eventually(lambda: first.ready() and second.ready(), collectors.words)
        yield collectors
    finally:
        for process in processes:
            process.thaw()
            process.end()


async def assert_sessions_in_order(ledger: Ledger, cluster: str) -> int:
    """No fact of an older session after one of a newer, and no session says the same of a key twice
    in succession. How many sessions there were."""
    newest = 0
    epochs: set[int] = set()
    last: dict[str, tuple[int, str]] = {}
    for row in await ledger.rows_after({"intake": 0}, 1_000_000):
        assert row.accepted is not None
        accepted, data = row.data(), decode(row.accepted.body).data
        assert isinstance(accepted, MessageAccepted)
        if accepted.partition_key != cluster:
            continue
        epoch = accepted.version[0]
        assert epoch >= newest, f"{accepted.key}: session {epoch} after session {newest}"
        newest = epoch
        epochs.add(epoch)
        said = (epoch, digest(data, 64))
        assert last.get(accepted.key) != said, f"{accepted.key} is there twice"
        last[accepted.key] = said
    return len(epochs)


async def test_the_other_collector_takes_over_from_one_that_is_killed_or_frozen(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    chance, home = Random(SEED), "takeover"
    await asyncio.to_thread(filled, member, home)
    # Pods of `changed` come and go; these stay.
    stays = {f"stays-{i}" for i in range(10)}
    await asyncio.to_thread(
        member.apply, *(pod(home, name, f"{home}-n{i}") for i, name in enumerate(sorted(stays)))
    )
    nodes = set(nodes_of(member))
    known = Known(ledger, member.name)
    async with (
        Breaking(member) as one,
        Breaking(member) as two,
        two_collectors(
            backend, database_url, topic_prefix, tmp_path, member, (one.access, two.access)
        ) as collectors,
    ):

        async def agree() -> None:
            await eventually(lambda: agrees(known, member), collectors.words)

        await agree()
        for turn in range(TAKEOVERS):
            old, new = await collectors.reading()
            before = collectors.begun(old)
            changing = asyncio.create_task(
                asyncio.to_thread(changed, member, home, Random(f"{SEED}/{turn}"), 12)
            )
            await asyncio.sleep(chance.uniform(0.0, 1.5))
            if turn % 2:
                old.freeze()
            else:
                assert old.kill(), old.words()
            await changing
            await eventually(lambda: collectors.begun(new) > before, collectors.words)  # noqa: B023
            await agree()
            if turn % 2:
                old.thaw()
            else:
                old.skip()
                old.start()
                await eventually(old.ready, old.words)
            await asyncio.to_thread(changed, member, home, chance, 4)
            await agree()
        assert sorted(await known.pods_in_facts()) == sorted((await known.pods()).keys())
    await assert_never_fewer(ledger, nodes, stays)
    sessions = await assert_sessions_in_order(ledger, member.name)
    assert sessions > TAKEOVERS
    print(f"{TAKEOVERS} takeovers by seed {SEED}: {sessions} sessions, {NODES} nodes, {PODS} pods")
    member.kubectl("delete", "namespace", home, "--wait=false")


async def test_a_frozen_collector_adds_nothing_when_it_goes_on(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    """It wakes with news of a pod that the other one never saw, on a node that had none: no newer
    fact of that node is there which would make its own an older one."""
    home = "frozen"
    await asyncio.to_thread(filled, member, home, 6, 4)
    empty = f"{home}-n5"
    known = Known(ledger, member.name)
    async with (
        Breaking(member) as one,
        Breaking(member) as two,
        two_collectors(
            backend, database_url, topic_prefix, tmp_path, member, (one.access, two.access)
        ) as collectors,
    ):
        await eventually(lambda: agrees(known, member), collectors.words)
        old, new = await collectors.reading()
        door = one if old is collectors.processes[0] else two
        before = collectors.begun(old)
        old.freeze()
        await asyncio.to_thread(member.apply, pod(home, "brief", empty))
        await asyncio.sleep(0.5)  # its watch has it, and nothing that comes after
        door.hold()
        gone = ("-n", home, "--grace-period=0", "--force")
        await asyncio.to_thread(member.kubectl, "delete", "pod", "brief", *gone)
        await eventually(lambda: collectors.begun(new) > before, collectors.words)
        await eventually(lambda: agrees(known, member), collectors.words)
        old.thaw()
        await asyncio.sleep(1.5)
        door.pass_on()
        await asyncio.to_thread(member.apply, pod(home, "later", f"{home}-n1"))
        await eventually(lambda: agrees(known, member), collectors.words)
    await assert_sessions_in_order(ledger, member.name)
    assert not await _ever_known(ledger, "brief")
    member.kubectl("delete", "namespace", home, "--wait=false")


async def _ever_known(ledger: Ledger, name: str) -> bool:
    rows = await ledger.rows_after({"intake": 0}, 1_000_000)
    return any(row.accepted and f'"{name}"'.encode() in row.accepted.body for row in rows)
