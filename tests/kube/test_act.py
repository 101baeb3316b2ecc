"""The whole way in a cluster that may be changed: pods that wait for our scheduler are decided and
bound, each to the node of its decision, and no node gets more than it has. What fits nowhere says
so to `kubectl`."""

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
from wharfinger.events.decisions import PodsUnplaced
from wharfinger.history.explain import Explained, account
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.rights import actuator_rules, own_rules
from wharfinger.runtime.ledger import Ledger
from wharfinger.stages.actuator.pod_events import REPORTER

HOME = "act"
NODES = ("act-1", "act-2", "act-3")
VERBS: tuple[Verb, ...] = ("bind",)
REPLICAS = 24
WAITING = 3
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
        member.apply(a_deployment(REPLICAS + WAITING))
        await eventually(lambda: len(member.items("pods", "-n", HOME)) == REPLICAS + WAITING)
        waits = await _waits_are_seen(member, ledger)
        rows = {str(row.id) for row in await decided(ledger, stream, "placed")}
        for one in bound(member).values():
            assert one["metadata"]["annotations"][f"{ANNOTATION}decision"] in rows
    # Another process begins: it finds what was written, and says it once more as the same Event.
    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        await eventually(lambda: all(_said_again(member, name) for name in waits))
    there = bound(member)
    assert len(there) == REPLICAS
    on = Counter(one["spec"]["nodeName"] for one in there.values())
    assert all(count * CPU <= 8 for count in on.values())
    calls = Counter(name for _, name, code in audit.writes("pods/binding") if code == 201)
    assert calls == dict.fromkeys(there, 1)
    assert _marks(audit) == dict.fromkeys(waits, 1), "only when there is something new to say"
    assert audit.unused([*actuator_rules(VERBS), *own_rules()]) == []
    assert [call for call in audit.calls() if call["responseStatus"]["code"] == 403] == []


async def _waits_are_seen(member: Member, ledger: Ledger) -> set[str]:
    """What `kubectl` shows of the pods that fit nowhere is what explain says."""

    def marked() -> dict[str, Json]:
        found = {one["metadata"]["name"]: one for one in member.items("pods", "-n", HOME)}
        return {name: said for name, one in found.items() if (said := _unscheduled(one))}

    await eventually(lambda: len(marked()) == WAITING)
    shown = await account(ledger, f"{HOME}/web-deployment@{member.name}")
    assert isinstance(shown, Explained)
    assert shown.decision.again.same
    assert isinstance(shown.decision.data, PodsUnplaced)
    sentence = shown.decision.data.message
    assert "Insufficient cpu" in sentence
    assert {(said["reason"], said["message"]) for said in marked().values()} == {
        ("Unschedulable", sentence)
    }
    waits = set(marked())
    await eventually(lambda: set(_events(member, "FailedScheduling")) == waits)
    assert {one["note"] for one in _events(member, "FailedScheduling").values()} == {sentence}
    await eventually(lambda: set(_events(member, "Scheduled")) == set(bound(member)))
    for name, event in _events(member, "Scheduled").items():
        on = bound(member)[name]["spec"]["nodeName"]
        assert f"Successfully assigned {HOME}/{name} to {on} by cluster/" in event["note"]
    return waits


def _unscheduled(one: Json) -> Json | None:
    """Its condition PodScheduled while that is false."""
    said = one["status"].get("conditions", [])
    found = [c for c in said if c["type"] == "PodScheduled" and c["status"] == "False"]
    return found[0] if found else None


def _events(member: Member, reason: str) -> dict[str, Json]:
    """Name of the pod -> the Event about it."""
    found = member.items("events.events.k8s.io", "-n", HOME)
    ours = [one for one in found if one.get("reportingController") == REPORTER]
    return {one["regarding"]["name"]: one for one in ours if one["reason"] == reason}


def _said_again(member: Member, name: str) -> bool:
    event = _events(member, "FailedScheduling")[name]
    return bool(event.get("series", {}).get("count", 0) >= 2)


def _marks(audit: Audit) -> dict[str, int]:
    return Counter(name for _, name, code in audit.writes("pods/status") if code == 200)
