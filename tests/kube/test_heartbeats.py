"""Heartbeats of real clusters: one message for all, which does not depend on their facts."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.kube.breaking import Breaking
from tests.kube.collecting import Collecting, collecting
from tests.kube.member import Member, namespace
from tests.patience import eventually

from wharfinger.domain.cluster import stale_kinds
from wharfinger.domain.value import Value
from wharfinger.events.clusters import FleetHeard
from wharfinger.events.codec import decode
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.joined import JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import read_kubeconfig
from wharfinger.runtime.kube.rights import collector_rules
from wharfinger.runtime.kube.watched import WATCHED
from wharfinger.runtime.ledger import Ledger
from wharfinger_collector import member as member_module


async def intake(ledger: Ledger) -> list[Value]:
    rows = await ledger.rows_after({"intake": 0}, 100_000)
    return [decode(row.accepted.body).data for row in rows if row.accepted is not None]


async def heartbeats(ledger: Ledger) -> list[FleetHeard]:
    return [data for data in await intake(ledger) if isinstance(data, FleetHeard)]


async def test_heartbeats_of_all_clusters_are_one_message_and_no_other_fact(
    members: list[Member], backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """Also while their nodes send heartbeats: nothing in the ledger but these messages. What other
    tests have left may still be deleted by the clusters' controllers, and is a fact each time."""
    first, *others = members
    for other in others:
        store_joined(
            tmp_path, JoinedCluster(other.name, read_kubeconfig(other.kubeconfig()), lease_s=2)
        )
    everyone = tuple(sorted(member.name for member in members))
    async with collecting(backend, ledger, topic_prefix, tmp_path, first, lease_s=2) as collector:
        await eventually(lambda: _named(ledger, everyone))
        await eventually(collector.service.ready)
        await quiet(ledger)

        async def only_heartbeats() -> bool:
            before = Counter(type(data).__name__ for data in await intake(ledger))
            for _ in range(4):
                await _next(ledger)
            after = Counter(type(data).__name__ for data in await intake(ledger))
            return set(after - before) == {"FleetHeard"}

        await eventually(only_heartbeats)
        assert {beat.collector for beat in await heartbeats(ledger)} == {"collector-0"}


async def test_a_cluster_that_is_away_is_not_named_and_is_when_it_returns(
    member: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    async with (
        Breaking(member) as door,
        collecting(backend, ledger, topic_prefix, tmp_path, member, access=door.access, lease_s=2),
    ):
        await eventually(lambda: _named(ledger, (member.name,)))
        door.close()
        await quiet(ledger)
        before = len(await heartbeats(ledger))
        await asyncio.sleep(2)
        assert len(await heartbeats(ledger)) == before
        door.open()
        await _next(ledger)


async def test_a_cluster_whose_watch_is_broken_is_heard_and_not_fresh(
    member: Member,
    backend: Backend,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The right to read pods is taken away while the server answers, and given back."""
    monkeypatch.setattr(member_module, "STALE_S", 0.5)
    whole = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reads-some"},
        "rules": collector_rules(),
    }
    role = {**whole, "rules": collector_rules(kind for kind in WATCHED if kind.resource != "pods")}
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    bound = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reads-some"},
        "roleRef": {**group, "kind": "ClusterRole", "name": "reads-some"},
        "subjects": [{**group, "kind": "User", "name": "collector"}],
    }
    member.apply(namespace("fresh"), whole, bound)
    async with (
        Breaking(member, "collector") as door,
        collecting(
            backend, ledger, topic_prefix, tmp_path, member, access=door.access, lease_s=2
        ) as collector,
    ):
        await eventually(lambda: _named(ledger, (member.name,)))
        await eventually(lambda: _fresh(collector))
        member.apply(role)

        async def not_fresh() -> bool:
            return not await _fresh(collector)

        await door.cut_until(not_fresh)  # rights are asked when a watch begins
        for _ in range(2):
            await _next(ledger)
        assert not await _fresh(collector)
        member.apply(whole)
        await eventually(lambda: _fresh(collector))
        # A kind that no write is about is named, and the facts of nodes and pods are fresh.
        left = (kind for kind in WATCHED if kind.resource != "services")
        member.apply({**whole, "rules": collector_rules(left)})

        door.cut()

        async def services_stale() -> bool:
            (cluster,) = await collector.clusters()
            return stale_kinds(cluster) == {"Service"}

        await eventually(services_stale)
        assert await _fresh(collector)
    member.kubectl("delete", "clusterrole,clusterrolebinding", "reads-some")


async def _fresh(collector: Collecting) -> bool:
    (cluster,) = await collector.clusters()
    return "FactsFresh" not in cluster.conditions


async def _named(ledger: Ledger, names: tuple[str, ...]) -> bool:
    found = await heartbeats(ledger)
    return bool(found) and found[-1].heard == names


async def _next(ledger: Ledger) -> None:
    before = len(await heartbeats(ledger))

    async def more() -> bool:
        return len(await heartbeats(ledger)) > before

    await eventually(more)


async def quiet(ledger: Ledger) -> None:
    """Nothing but heartbeats for a second and a half: longer than any fact of nodes waits."""
    while True:
        before = [data for data in await intake(ledger) if not isinstance(data, FleetHeard)]
        await asyncio.sleep(1.5)
        if before == [data for data in await intake(ledger) if not isinstance(data, FleetHeard)]:
            return
