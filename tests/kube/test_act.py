"""The whole way in a cluster that may be changed: pods that wait for our scheduler are decided and
bound, each to the node of its decision, and no node gets more than it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.kube.acting import Audit, a_plane, decided, grant, join_for_writing
from tests.kube.collecting import node
from tests.kube.member import Json, Member, namespace
from tests.patience import eventually

from wharfinger.domain.actuation import ANNOTATION, Verb
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger

HOME = "act"
NODES = ("act-1", "act-2", "act-3")
VERBS: tuple[Verb, ...] = ("bind",)
REPLICAS = 24
CPU = 1
"""Each pod requests one of the eight of a node."""


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    ledger = await Ledger.open(database_url, "tests-act")
    yield ledger
    await ledger.close()


def a_deployment(replicas: int) -> Json:
    container = {"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": str(CPU)}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": HOME},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "schedulerName": "wharfinger",
                    "terminationGracePeriodSeconds": 0,
                    "nodeSelector": {"for": HOME},
                    "containers": [container],
                },
            },
        },
    }


def bound(member: Member) -> dict[str, Json]:
    found = member.items("pods", "-n", HOME)
    return {one["metadata"]["name"]: one for one in found if one["spec"].get("nodeName")}


async def test_waiting_pods_are_decided_and_bound_and_no_node_gets_more_than_it_has(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    grant(member, VERBS)
    member.apply(namespace(HOME), *(node(name, **{"for": HOME}) for name in NODES))
    join_for_writing(tmp_path, member, VERBS)
    audit, stream = Audit(member), f"cluster/{member.name}"
    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        member.apply(a_deployment(REPLICAS))
        await eventually(lambda: len(bound(member)) == REPLICAS)
        # Larger than the room: what fits is bound, and the rest waits.
        member.apply(a_deployment(REPLICAS + 3))
        await eventually(lambda: len(member.items("pods", "-n", HOME)) == REPLICAS + 3)
        rows = {str(row.id) for row in await decided(ledger, stream, "placed")}
        for one in bound(member).values():
            assert one["metadata"]["annotations"][f"{ANNOTATION}decision"] in rows
    there = bound(member)
    assert len(there) == REPLICAS
    on = Counter(one["spec"]["nodeName"] for one in there.values())
    assert all(count * CPU <= 8 for count in on.values())
    calls = Counter(name for _, name, code in audit.writes("pods/binding") if code == 201)
    assert calls == dict.fromkeys(there, 1)
