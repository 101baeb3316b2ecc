"""Everything that ends a watch, one after the other at random: connections that break, a server
that is away, a version that is gone (410, as a status and as an event), a compacted storage, a
server that starts again, a right that is revoked. No fact names fewer nodes or pods than there
were, and one break causes at most one list of a kind. `WHARFINGER_TEST_BREAKS` says how many breaks
there are."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.kube.altering import Altering
from tests.kube.breaking import Breaking, compacted
from tests.kube.collecting import assert_never_fewer, collecting, nodes_of, pod
from tests.kube.member import Json, Member
from tests.kube.test_collector import NODES, PODS, agrees, filled
from tests.patience import eventually

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.rights import collector_rules
from wharfinger.runtime.ledger import Ledger

BREAKS = int(os.environ.get("WHARFINGER_TEST_BREAKS", "8"))
SEED = int(os.environ.get("WHARFINGER_TEST_SEED", "23"))
HOME = "watches"
ROLE = "reads-all"
WATCHED = ("/api/v1/nodes", "/api/v1/pods")


def rights() -> tuple[Json, Json]:
    """What the collector may read, and that the user may."""
    group, version = "rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1"
    named = {"name": ROLE}
    role = {"kind": "ClusterRole", "metadata": named, "rules": collector_rules()}
    bound = {
        "kind": "ClusterRoleBinding",
        "metadata": named,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "collector"}],
    }
    return {"apiVersion": version, **role}, {"apiVersion": version, **bound}


@dataclass(frozen=True, slots=True)
class Broken:
    """The ways in which a watch is ended. `door` is in front of `proxy`, that in front of the
    server."""

    member: Member
    proxy: Altering
    door: Breaking

    async def cut(self) -> None:
        self.door.cut()

    async def away(self) -> None:
        self.door.close()
        await asyncio.sleep(1)
        self.door.open()

    async def gone_as_status(self) -> None:
        await self._altered(self.proxy.gone_at_start)

    async def gone_as_event(self) -> None:
        await self._altered(self.proxy.gone_within)

    async def compacted(self) -> None:
        await asyncio.to_thread(compacted, self.member)
        self.door.cut()

    async def restarted(self) -> None:
        self.member.restart("kube-apiserver")

    async def compacted_and_restarted(self) -> None:
        await asyncio.to_thread(compacted, self.member)
        self.member.restart("kube-apiserver")

    async def revoked(self) -> None:
        """Rights are asked when a watch begins."""
        before = Counter(self.proxy.refused)
        self.member.kubectl("delete", "clusterrolebinding", ROLE)

        async def refused() -> bool:
            return all(self.proxy.refused[path] > before[path] for path in WATCHED)

        await self.door.cut_until(refused)
        await asyncio.to_thread(self.member.apply, *rights())

    async def _altered(self, alter: Callable[[], None]) -> None:
        before = Counter(self.proxy.altered)
        alter()

        def seen() -> bool:
            return all(self.proxy.altered[path] > before[path] for path in WATCHED)

        if alter == self.proxy.gone_at_start:
            self.door.cut()
        await eventually(seen)

    def watched(self) -> bool:
        return self.proxy.watched >= set(WATCHED)

    def ways(self) -> list[tuple[Callable[[], Awaitable[None]], set[int]]]:
        """Each with how many lists of a kind it may cause."""
        return [
            (self.cut, {0}),
            (self.away, {0}),
            (self.revoked, {0}),
            (self.compacted, {0}),
            (self.gone_as_status, {1}),
            (self.gone_as_event, {1}),
            (self.restarted, {0, 1}),
            (self.compacted_and_restarted, {0, 1}),
        ]


def changed(member: Member, turn: int, chance: Random) -> None:
    """What stays, stays: another pod comes, one of an earlier turn goes, a node gets a label."""
    on = f"{HOME}-n{chance.randrange(NODES)}"
    member.apply(pod(HOME, f"extra-{turn}", on if chance.random() < 0.7 else ""))
    member.kubectl("label", "node", on, f"turn={turn}", "--overwrite")
    if turn > 1 and chance.random() < 0.5:
        which = f"extra-{chance.randrange(turn - 1)}"
        arguments = ("-n", HOME, "--ignore-not-found", "--grace-period=0", "--force")
        member.kubectl("delete", "pod", which, *arguments)


async def test_no_fact_is_smaller_than_the_truth_however_watches_break(
    member: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    chance = Random(SEED)
    await asyncio.to_thread(filled, member, HOME)
    await asyncio.to_thread(member.apply, *rights())
    stays = set(nodes_of(member)), {f"p{i}" for i in range(PODS)}
    async with (
        Altering(member, "collector") as proxy,
        Breaking(member, access=proxy.access) as door,
        collecting(
            backend, ledger, topic_prefix, tmp_path, member, access=door.access
        ) as collector,
    ):
        broken = Broken(member, proxy, door)
        done: Counter[str] = Counter()
        while done.total() < BREAKS:
            ways = broken.ways()
            chance.shuffle(ways)
            for way, lists in ways[: BREAKS - done.total()]:
                await eventually(lambda: agrees(collector, member))
                await eventually(broken.watched)
                before = Counter(proxy.lists)
                await way()
                await asyncio.to_thread(changed, member, done.total(), chance)
                await eventually(lambda: agrees(collector, member))
                await eventually(broken.watched)
                for path in WATCHED:
                    caused = proxy.lists[path] - before[path]
                    assert caused in lists, f"{way.__name__} caused {caused} lists of {path}"
                done[way.__name__] += 1
        assert max(proxy.lists.values()) <= 1 + BREAKS
    await assert_never_fewer(ledger, *stays)
    print(f"{BREAKS} breaks by seed {SEED}: {dict(done)}, lists {max(proxy.lists.values())}")
    member.kubectl("delete", "clusterrole,clusterrolebinding", ROLE)
    member.kubectl("delete", "namespace", HOME, "--wait=false")
