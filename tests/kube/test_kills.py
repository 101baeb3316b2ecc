"""kill -9 of the actuator and of the scheduler at random moments, while pods are created, deleted
and fail. `WHARFINGER_TEST_KILLS` says how often.

The referees are kubectl, which watches every change of a pod, and the server's audit log.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.kube.acting import Audit, a_plane, asked_for, decided, grant, join_for_writing, propose
from tests.kube.collecting import node
from tests.kube.member import Json, Member, namespace
from tests.kube.replaying import replayed_without_server
from tests.kube.service_process import ServiceProcess, ServiceStart, services_of
from tests.kube.test_act import a_deployment
from tests.patience import eventually

from wharfinger.domain.actuation import Verb
from wharfinger.events.decisions import PodRemovalDecided, ReplicasPlaced
from wharfinger.events.proposals import DeschedulingProposed, FinishedPod, Unseating
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE
from wharfinger.runtime.ledger import Ledger
from wharfinger_cli.one import BUILDERS

KILLS = int(os.environ.get("WHARFINGER_TEST_KILLS", "10"))
SEED = int(os.environ.get("WHARFINGER_TEST_SEED", "17"))
HOME = "kills"
NODES = ("kills-1", "kills-2", "kills-3")
ROOM = 8
"""Pods that fit on a node."""
VERBS: tuple[Verb, ...] = ("bind", "evict")
KILLED = ("actuator", "scheduler")
AROUND = tuple(
    name
    for name in BUILDERS
    if name not in (*services_of("actuator"), *services_of("scheduler"), "descheduler", "annotator")
)
WORK_S_MAX = 1.5
"""A process is killed at most so long after it became ready; every fourth one before it is."""


@dataclass(slots=True)
class Seen:
    """What a watch by kubectl shows. `bound`: uid -> (name, node, id of the decision). `most`: node
    -> the most pods that were on it at any moment."""

    bound: dict[str, set[tuple[str, str, str]]] = field(default_factory=lambda: defaultdict(set))
    most: Counter[str] = field(default_factory=Counter)
    names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: list[str]) -> Seen:
        seen, on = cls(), dict[str, str]()
        for line in lines:
            what, uid, name, node, phase, decision = line.split("|")
            seen.names[uid] = name
            if node:
                seen.bound[uid].add((name, node, decision))
            if what == "DELETED" or phase in ("Failed", "Succeeded"):
                on.pop(uid, None)
            elif node:
                on[uid] = node
                seen.most[node] = max(seen.most[node], Counter(on.values())[node])
        return seen


COLUMNS = (
    r"{.type}|{.object.metadata.uid}|{.object.metadata.name}|{.object.spec.nodeName}|"
    r"{.object.status.phase}|{.object.metadata.annotations.wharfinger\.io/decision}{'\n'}"
)


@asynccontextmanager
async def watched(member: Member, target: Path) -> AsyncIterator[None]:
    """Every change of a pod, in order, a line each."""
    command = member.command(
        "get", "pods", "-n", HOME, "--watch", "--output-watch-events", f"-o=jsonpath={COLUMNS}"
    )
    with target.open("wb") as output:
        watch = await asyncio.create_subprocess_exec(*command, stdout=output)
    try:
        yield
    finally:
        watch.kill()
        await watch.wait()


def running(member: Member) -> list[Json]:
    return [
        one
        for one in member.items("pods", "-n", HOME)
        if one["spec"].get("nodeName")
        and one["status"]["phase"] not in ("Failed", "Succeeded")
        and "deletionTimestamp" not in one["metadata"]
    ]


async def disturb(member: Member, ledger: Ledger, chance: random.Random) -> int:
    """Another number of replicas, or pods that are deleted or fail. The number of replicas that is
    asked for then; 0: as before."""
    match chance.randrange(4):
        case 0 | 1:
            wanted = chance.randrange(6, ROOM * len(NODES) + 3)
            await asyncio.to_thread(member.apply, a_deployment(wanted, HOME))
            return wanted
        case 2:
            there = [one["metadata"]["name"] for one in await asyncio.to_thread(running, member)]
            goes = chance.sample(there, min(4, len(there)))
            arguments = ("-n", HOME, "--wait=false", "--ignore-not-found")
            if goes:
                await asyncio.to_thread(member.kubectl, "delete", "pod", *goes, *arguments)
        case _:
            there_now = await asyncio.to_thread(running, member)
            if there_now:
                await _fail(member, ledger, chance.choice(there_now))
    return 0


async def _fail(member: Member, ledger: Ledger, one: Json) -> None:
    """The kubelet gives a pod up; it is proposed to remove what is left of it."""
    name, uid, on = one["metadata"]["name"], one["metadata"]["uid"], one["spec"]["nodeName"]
    failed = '{"status":{"phase":"Failed","reason":"Evicted"}}'
    patch = ("-n", HOME, "--subresource=status", "--type=merge", "-p", failed)
    try:
        await asyncio.to_thread(member.kubectl, "patch", "pod", name, *patch)
    except RuntimeError as error:
        if "not found" in str(error):  # it was deleted meanwhile
            return
        raise
    stream = f"cluster/{member.name}"
    finished = Unseating(on, finished=FinishedPod(uid, HOME, name, "Failed"))
    removal = DeschedulingProposed(stream, member.name, "RemoveFailedPods", "tests", (finished,))
    await propose(ledger, removal, stream)


@pytest.mark.timeout(900 + 30 * KILLS)
async def test_killed_at_random_nothing_is_done_that_was_not_decided(
    member: Member, backend: Backend, database_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    grant(member, VERBS)
    rooms = []
    for name in NODES:
        made = node(name, **{"for": HOME})
        made["status"]["allocatable"]["cpu"] = str(ROOM)
        rooms.append(made)
    member.apply(namespace(HOME), *rooms, a_deployment(ROOM, HOME))
    joined = tmp_path / "joined"
    joined.mkdir()
    join_for_writing(joined, member, VERBS)
    audit, lines = Audit(member), tmp_path / "pods"
    ledger = await Ledger.open(database_url, "tests-kills")
    async with a_plane(backend, database_url, topic_prefix, joined, AROUND), watched(member, lines):
        processes = [
            ServiceProcess(
                ServiceStart(
                    name, backend, database_url, topic_prefix, joined, tmp_path / f"{name}.log"
                )
            )
            for name in KILLED
        ]
        try:
            await eventually(lambda: audit.writes("pods/binding"))
            wanted = ROOM
            for _ in range(KILLS):
                wanted = await disturb(member, ledger, chance) or wanted
                victim = chance.choice(processes)
                if chance.random() < 0.75:
                    await eventually(victim.ready, victim.words)
                await asyncio.sleep(chance.uniform(0.0, WORK_S_MAX))
                assert victim.kill(), victim.words()
                victim.skip()
                if victim.name == "actuator":
                    # Its successor would wait for 15 s, and would be killed before it writes.
                    lease = ("lease", LEASE, "-n", NAMESPACE, "--ignore-not-found")
                    await asyncio.to_thread(member.kubectl, "delete", *lease)
                victim.start()
            there = min(wanted, ROOM * len(NODES))
            await eventually(lambda: len(running(member)) == there, lambda: len(running(member)))

            async def nothing_open() -> bool:
                shown = await asyncio.to_thread(
                    asked_for, "effects", database_url, joined, member.name
                )
                return [one for one in shown if one["action"] != "mark-pod"] == []

            await eventually(nothing_open)
        finally:
            for process in processes:
                process.end()
    await _nothing_else(member, ledger, Seen.of(lines.read_text().splitlines()), audit)
    assert replayed_without_server(member, database_url, tmp_path) > 1
    await ledger.close()
    member.kubectl("delete", "namespace", HOME, "--wait=false")
    member.kubectl("delete", "node", *NODES)


async def _nothing_else(member: Member, ledger: Ledger, seen: Seen, audit: Audit) -> None:
    stream = f"cluster/{member.name}"
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for row in await decided(ledger, stream, "placed"):
        data = row.data()
        assert isinstance(data, ReplicasPlaced)
        for share in data.placed:
            for uid in share.pods:
                places[uid][str(row.id)] = share.node
    for uid, how in seen.bound.items():
        assert len(how) == 1, f"{uid} was on several nodes: {how}"
        ((name, on, decision),) = how
        assert places[uid].get(decision) == on, f"{name} is on {on}, decided was {places[uid]}"
    binds = Counter(name for _, name, code in audit.writes("pods/binding") if code == 201)
    assert set(binds.values()) == {1}
    removed = {
        pod.name
        for row in await decided(ledger, stream, "pods-removed")
        if isinstance(data := row.data(), PodRemovalDecided)
        for pod in data.pods
    }
    assert {name for _, name, _ in audit.writes("pods/eviction")} <= removed
    assert [call for call in audit.calls() if call["verb"] == "delete"] == []
    assert max(seen.most.values()) <= ROOM, seen.most
    decisions = sum(len(found) for found in places.values())
    print(
        f"{KILLS} kills by seed {SEED}: {decisions:,} pods placed, {len(seen.bound):,} bound, "
        f"{len(removed):,} finished pods removed, of {len(seen.names):,} pods"
    )
