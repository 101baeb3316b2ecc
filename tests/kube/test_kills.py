"""kill -9 of every process of a plane, of its broker and of the API server at random moments, while
pods are created, deleted, fail and are preempted. `WHARFINGER_TEST_KILLS` says how often.

The referees are etcd, which reports every version of a pod that was stored, and the server's audit
log.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.kube.acting import Audit, asked_for, decided, grant, join_for_writing, propose
from tests.kube.collecting import node
from tests.kube.killing import Killed, Where, victims
from tests.kube.member import Json, Member, namespace
from tests.kube.replaying import replayed_without_server
from tests.kube.stored_pods import CORES, Seen, StoredPod, StoredPods
from tests.kube.test_act import a_deployment
from tests.patience import eventually

from wharfinger.domain.actuation import Verb
from wharfinger.events.decisions import (
    PodRemovalDecided,
    PreemptionDecided,
    ReplicasPlaced,
    ReplicasReleased,
)
from wharfinger.events.proposals import DeschedulingProposed, FinishedPod, Unseating
from wharfinger.runtime.kube.api import ApiError, KubeApi, UnreachableError
from wharfinger.runtime.kube.kubeconfig import read_kubeconfig
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE
from wharfinger.runtime.ledger import Ledger

KILLS = int(os.environ.get("WHARFINGER_TEST_KILLS", "200"))
SEED = int(os.environ.get("WHARFINGER_TEST_SEED", "17"))
HOME = "kills"
NODES = tuple(f"kills-{number}" for number in range(1, 17))
ROOM = 20
"""Cores of a node: most pods request one."""
ALL = ROOM * len(NODES)
URGENT_MAX, URGENT_CORES = 4, 10
"""Pods of a higher priority: where no node has as much room left, others are evicted for them."""
VERBS: tuple[Verb, ...] = ("bind", "evict")
AT_ONCE = 16
"""Requests of the test under way."""

PODS = f"/api/v1/namespaces/{HOME}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{HOME}/deployments"
MERGE = "application/merge-patch+json"


def an_urgent_deployment() -> Json:
    found = a_deployment(0, HOME)
    labels = {"app": "urgent", CORES: str(URGENT_CORES)}
    found["metadata"]["name"] = "urgent"
    found["spec"]["selector"]["matchLabels"] = labels
    template = found["spec"]["template"]
    template["metadata"]["labels"] = labels
    template["spec"]["priorityClassName"] = "kills-urgent"
    (container,) = template["spec"]["containers"]
    container["resources"]["requests"]["cpu"] = str(URGENT_CORES)
    return found


URGENT: Json = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "kills-urgent"},
    "value": 1000,
}


@dataclass(slots=True)
class Disturbing:
    """What users and kubelets do meanwhile. `api`: as the administrator."""

    api: KubeApi
    member: Member
    ledger: Ledger
    seen: Seen
    chance: random.Random
    failed: int = 0
    _proposals: int = 0

    async def once(self) -> None:
        """Another number of replicas, or pods that are deleted or fail."""
        match self.chance.randrange(6):
            case 0 | 1:
                await self.scale("web", self.chance.randrange(ALL // 2, ALL + ALL // 4))
            case 2:
                await self.scale("urgent", self.chance.randrange(URGENT_MAX + 1))
            case 3 | 4:
                goes = self._some(self.chance.randrange(1, 3 * ROOM), self._there())
                await self._all(self._delete(pod) for pod in goes)
            case _:
                # Of one that is just beginning, the kubelet would say later that it runs.
                began = [pod for pod in self._there() if pod.phase == "Running"]
                await self._fail(self._some(self.chance.randrange(1, ROOM), began))
        await self.propose_removals()

    async def scale(self, name: str, replicas: int) -> None:
        wanted = {"spec": {"replicas": replicas}}
        await self.ask("PATCH", f"{DEPLOYMENTS}/{name}/scale", wanted)

    async def drop_lease(self) -> None:
        """The successor of a killed actuator would wait for 15 s, and would be killed before it
        writes."""
        await self.ask(
            "DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
        )

    async def ask(self, method: str, path: str, body: Json | None = None) -> bool:
        """False: what it is about is gone. Connections to a server that was killed are gone, and a
        server that has just begun may have nothing to say yet."""
        done = False

        async def answered() -> bool:
            nonlocal done
            try:
                data = None if body is None else json.dumps(body).encode()
                await self.api.request(method, path, body=data, content_type=MERGE)
                done = True
            except ApiError as error:
                return error.code in (404, 409)
            except UnreachableError:
                return False
            return True

        await eventually(answered)
        return done

    def _there(self) -> list[StoredPod]:
        return sorted((pod for pod in [*self.seen.now.values()] if pod.runs), key=lambda p: p.name)

    def _some(self, count: int, of: list[StoredPod]) -> list[StoredPod]:
        return self.chance.sample(of, min(count, len(of)))

    async def _all(self, work: Iterable[object]) -> list[bool]:
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(each: object) -> bool:
            async with limit:
                found: bool = await each  # type: ignore[misc]
                return found

        return await asyncio.gather(*(one(each) for each in work))

    async def _delete(self, pod: StoredPod) -> bool:
        return await self.ask("DELETE", f"{PODS}/{pod.name}")

    async def _fail(self, pods: list[StoredPod]) -> None:
        """The kubelet gives pods up."""
        failed = {"status": {"phase": "Failed", "reason": "Evicted"}}
        done = await self._all(
            self.ask("PATCH", f"{PODS}/{pod.name}/status", failed) for pod in pods
        )
        self.failed += sum(done)

    async def propose_removals(self) -> bool:
        """Of what is left of failed pods. Where a proposal comes before the fact that the pod has
        failed it is refused, so it is repeated. True: nothing is left."""
        left = [pod for pod in [*self.seen.now.values()] if pod.phase == "Failed"]
        if left:
            self._proposals += 1
            stream = f"cluster/{self.member.name}"
            finished = tuple(
                Unseating(pod.node, finished=FinishedPod(pod.uid, HOME, pod.name, pod.phase))
                for pod in left
            )
            why = f"look {self._proposals}"
            await propose(
                self.ledger,
                DeschedulingProposed(
                    stream, self.member.name, "RemoveFailedPods", "tests", finished, why
                ),
                stream,
            )
        return not left


@pytest.mark.timeout(900 + 30 * KILLS)
async def test_killed_at_random_nothing_is_done_that_was_not_decided(
    member: Member, database_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    grant(member, VERBS)
    rooms = []
    for name in NODES:
        made = node(name, **{"for": HOME})
        made["status"]["allocatable"]["cpu"] = str(ROOM)
        rooms.append(made)
    member.apply(namespace(HOME), URGENT, *rooms)
    member.apply(a_deployment(ALL // 2, HOME), an_urgent_deployment())
    joined = tmp_path / "joined"
    joined.mkdir()
    join_for_writing(joined, member, VERBS)
    audit = Audit(member)
    ledger = await Ledger.open(database_url, "tests-kills")
    where = Where(member, database_url, topic_prefix, joined, tmp_path)
    access = read_kubeconfig(member.kubeconfig())
    with StoredPods(member, HOME) as stored, Killed(where) as plane:
        async with KubeApi(access) as api:
            disturbing = Disturbing(api, member, ledger, stored.seen, chance)
            await eventually(lambda: stored.seen.bound, plane.words)
            began = time.monotonic()
            for victim in victims(KILLS, chance):
                await disturbing.once()
                if "actuator" in await plane.kill(victim, chance):
                    await disturbing.drop_lease()
            each_s = (time.monotonic() - began) / KILLS
            # It waits 5 minutes for pods whose creation a killed server did not answer.
            member.restart("kube-controller-manager")
            await disturbing.scale("urgent", 0)
            await disturbing.scale("web", ALL)
            await eventually(lambda: on_nodes(stored.seen) == ALL, lambda: on_nodes(stored.seen))
            await eventually(disturbing.propose_removals)

        async def nothing_open() -> bool:
            shown = await asyncio.to_thread(asked_for, "effects", database_url, joined, member.name)
            return [one for one in shown if one["action"] != "mark-pod"] == []

        await eventually(nothing_open)
        await eventually(stored.complete)
    found = {one["metadata"]["uid"]: one for one in member.items("pods", "-n", HOME)}
    assert {uid: one["spec"].get("nodeName", "") for uid, one in found.items()} == {
        pod.uid: pod.node for pod in stored.seen.now.values()
    }, "etcd is read as kubectl reads it"
    said = await _nothing_else(member, ledger, stored.seen, audit)
    began = time.monotonic()
    decisions = replayed_without_server(member, database_url, tmp_path)
    assert decisions > 1
    await ledger.close()
    print(
        f"{KILLS} kills by seed {SEED}, {each_s:.2f} s each, {plane.unready} of them before the "
        f"process was ready: {dict(sorted(plane.kills.items()))}; {said}; "
        f"{disturbing.failed} pods failed; {decisions:,} decisions replayed in "
        f"{time.monotonic() - began:.0f} s"
    )
    member.kubectl("delete", "namespace", HOME, "--wait=false")
    member.kubectl("delete", "node", *NODES)
    member.kubectl("delete", "priorityclass", URGENT["metadata"]["name"])


def on_nodes(seen: Seen) -> int:
    return sum(pod.runs for pod in [*seen.now.values()])


async def _nothing_else(member: Member, ledger: Ledger, seen: Seen, audit: Audit) -> str:
    """What was done, in words."""
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
    binds = audit.bindings()
    assert set(binds.values()) == {1}
    removed = await _removed(ledger, stream)
    evicted = await _evicted(ledger, stream)
    named = {seen.names[uid] for uid in removed | evicted}
    evictions = [(name, code) for _, name, code in audit.writes("pods/eviction")]
    assert {name for name, _ in evictions} <= named
    assert [call for call in audit.calls() if call["verb"] == "delete"] == []
    assert seen.revived == [], "a pod that has ended never runs again"
    assert max(seen.most.values()) <= ROOM, seen.most
    decisions = sum(len(found) for found in places.values())
    gone = {name for name, code in evictions if code == 201}
    of_running = gone & {seen.names[uid] for uid in evicted}
    return (
        f"{len(seen.names):,} pods, {decisions:,} placed, {len(seen.bound):,} bound, "
        f"{len(gone):,} evicted, of them {len(of_running):,} that ran; "
        f"{len(removed):,} removals of finished pods and {len(evicted):,} evictions decided"
    )


async def _removed(ledger: Ledger, stream: str) -> set[str]:
    """Uids of finished pods."""
    return {
        pod.uid
        for row in await decided(ledger, stream, "pods-removed")
        if isinstance(data := row.data(), PodRemovalDecided)
        for pod in data.pods
    }


async def _evicted(ledger: Ledger, stream: str) -> set[str]:
    """Uids of running pods that are to make room."""
    released = {
        uid
        for row in await decided(ledger, stream, "released")
        if isinstance(data := row.data(), ReplicasReleased)
        for share in data.released
        for uid in share.pods
    }
    return released | {
        victim.uid
        for row in await decided(ledger, stream, "preempting")
        if isinstance(data := row.data(), PreemptionDecided)
        for victim in data.victims
    }
