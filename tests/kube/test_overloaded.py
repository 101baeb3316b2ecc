"""An API server that has too many requests, refuses those of a user by its own quotas (API Priority
and Fairness), or loses its answers: what was decided is done once, no fact is lost, and the server
gets the pause that it asks for. The referee is its audit log."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from tests.apps import running
from tests.kube.acting import WRITER, Audit, a_plane, decide, grant, join_for_writing
from tests.kube.answering import Answering, Fault
from tests.kube.breaking import Breaking
from tests.kube.collecting import assert_never_fewer, collecting, node, pod
from tests.kube.member import Json, Member, namespace
from tests.kube.readers import Reader
from tests.kube.test_collector import agrees, filled
from tests.patience import eventually

from wharfinger.domain.actuation import Verb
from wharfinger.events.assignments import Placed, Released
from wharfinger.events.node_share import NodeShare
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.examination import examine
from wharfinger.runtime.kube.joined import read_joined, store_joined
from wharfinger.runtime.kube.rights import collector_rules
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.tasks import end_tasks
from wharfinger.stages.actuator.pacing import MOST
from wharfinger_actuator.app import ActuatorService

HOME, PODS, HALF = "overloaded", MOST + 70, MOST + 40
PAUSE_S = 3
AROUND = ("publisher", "collector")
NODE = "overloaded-1"
BINDING = f"{HOME}/web-deployment"
BINDS: tuple[Verb, ...] = ("bind",)


def a_node() -> Json:
    """It has room for all pods."""
    made, room = node(NODE), {"cpu": "64", "memory": "256Gi", "pods": "500"}
    made["status"] = {"allocatable": room, "capacity": room}
    return made


def a_pod(number: int) -> Json:
    made = pod(HOME, f"web-{number:03}", app="web")
    made["spec"]["schedulerName"] = "wharfinger"
    return made


def binds(request: web.Request) -> bool:
    return request.path.endswith("/binding")


def evicts(request: web.Request) -> bool:
    return request.path.endswith("/eviction")


def bound(member: Member) -> set[str]:
    found = member.items("pods", "-n", HOME)
    return {one["metadata"]["name"] for one in found if one["spec"].get("nodeName")}


async def test_what_was_decided_is_done_once_before_an_overloaded_server(
    member: Member, backend: Backend, database_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    grant(member, ("bind", "evict"))
    member.apply(namespace(HOME), a_node(), *(a_pod(number) for number in range(PODS)))
    found = sorted(member.items("pods", "-n", HOME), key=lambda one: str(one["metadata"]["name"]))
    names = [str(one["metadata"]["name"]) for one in found]
    uids = [one["metadata"]["uid"] for one in found]

    def share(number: int) -> tuple[NodeShare, ...]:
        return (NodeShare(NODE, (number,), pods=(uids[number],)),)

    def placed(number: int) -> Placed:
        return Placed(number + 1, f"decision-{number}", BINDING, share(number))

    join_for_writing(tmp_path, member, ("bind", "evict"))
    audit = Audit(member)
    async with Answering(member) as reads, Answering(member, WRITER) as writes:
        joined = read_joined(tmp_path / f"{member.name}.yaml")
        store_joined(tmp_path, replace(joined, access=reads.access, write_access=writes.access))
        # Lists, watches, the Lease and what is looked at before a write are refused at first.
        reads.faults = [Fault(lambda _: True, 6, 429, "1")]
        writes.faults = [Fault(lambda _: True, 3, 429, "1"), Fault(binds, 1, 429, str(PAUSE_S))]
        async with (
            a_plane(backend, database_url, topic_prefix, tmp_path, AROUND) as context,
            running(ActuatorService(context)),
        ):
            await decide(context, member, [placed(number) for number in range(HALF)])
            await eventually(lambda: bound(member) == {*names[:HALF]})
            assert _begun_in_the_pause(writes) <= MOST, "only those that were under way arrive"
            # Done, and the answer is lost; done, and the answer is an error; not done.
            writes.faults = [
                Fault(binds, 5, 0, carried_out=True),
                Fault(binds, 5, 500, carried_out=True),
                Fault(binds, 5, 504, carried_out=True),
                Fault(binds, 5, 503, "1"),
                Fault(binds, 5, 0),
            ]
            await decide(context, member, [placed(number) for number in range(HALF, PODS)])
            await eventually(lambda: bound(member) == {*names})
            writes.faults = [Fault(evicts, 1, 0, carried_out=True), Fault(evicts, 1, 429, "1")]
            gone = (3, 4, 5)
            released = [
                Released(PODS + n, f"release-{n}", BINDING, share(n), reason="Preempted")
                for n in gone
            ]
            await decide(context, member, released)
            await eventually(lambda: bound(member) == {*names} - {names[n] for n in gone})
            assert not [fault for fault in writes.faults if fault.count]
    made = Counter(name for _, name, code in audit.writes("pods/binding") if code == 201)
    assert made == dict.fromkeys(names, 1)
    evicted = {name for _, name, code in audit.writes("pods/eviction") if code == 201}
    assert evicted == {names[n] for n in gone}
    assert {code for _, _, code in audit.writes("pods/binding")} <= {201, 409}


def _begun_in_the_pause(proxy: Answering) -> int:
    """Binds that arrived after one was refused and before the time that the server had asked
    for."""
    at = next(at for at, path, _ in proxy.answered if path.endswith("/binding"))
    return sum(
        path.endswith("/binding") and at < arrived_at < at + PAUSE_S
        for arrived_at, path in proxy.arrived
    )


async def test_a_cluster_is_joined_though_it_has_too_many_requests(member: Member) -> None:
    async with Answering(member) as proxy:
        proxy.faults = [Fault(lambda _: True, 3, 429, "1")]
        async with KubeApi(proxy.access) as api:
            with pytest.raises(ApiError) as refused:
                await examine(api)
        assert (refused.value.code, refused.value.retry_after_s) == (429, 1.0)
        async with KubeApi(proxy.access, patient=True) as api:
            proxy.faults = [Fault(lambda _: True, 4, 429, "1")]
            found = await examine(api)
    assert found.version
    assert not found.blocking


# --- the server's own quotas


QUOTA = "wharfinger-test-one"
USES_UP = 4
"""Requests of another user under the same quota, again and again."""


def one_request(*users: str) -> list[Json]:
    """A quota by which the server takes one request of these users at a time. It refuses all others
    with 429 and the pause that it asks for."""
    kind = {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "metadata": {"name": QUOTA}}
    every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    limited = {
        "nominalConcurrencyShares": 0,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    rule = {
        "subjects": [{"kind": "User", "user": {"name": user}} for user in users],
        "resourceRules": [{**every, "clusterScope": True}],
    }
    flow = {
        "priorityLevelConfiguration": {"name": QUOTA},
        "matchingPrecedence": 10,
        "rules": [rule],
    }
    level = {"type": "Limited", "limited": limited}
    return [
        {**kind, "kind": "PriorityLevelConfiguration", "spec": level},
        {**kind, "kind": "FlowSchema", "spec": flow},
    ]


@asynccontextmanager
async def used_up(member: Member, by: str, user: str) -> AsyncIterator[None]:
    """Within, `user` has the quota together with another one, `by`, who uses it up: a list at a
    version that does not come is under way for seconds, and costs nothing."""
    other = Reader(member, QUOTA, by)
    other.give([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]}])
    waits = {"resourceVersion": str(10**15), "resourceVersionMatch": "NotOlderThan"}

    async def use(api: KubeApi) -> None:
        while True:
            with contextlib.suppress(ApiError):
                await api.request("GET", "/api/v1/namespaces", waits)
            await asyncio.sleep(0.02)

    member.apply(*one_request(by, user))
    try:
        async with KubeApi(other.access) as api:
            using = [asyncio.create_task(use(api)) for _ in range(USES_UP)]
            try:
                yield
            finally:
                await end_tasks(using)
    finally:
        member.kubectl("delete", "flowschema,prioritylevelconfiguration", QUOTA)
        other.end()


def refused(calls: Sequence[Json]) -> Counter[str]:
    """Resource -> requests that the server's quota has refused."""
    return Counter(
        call["objectRef"]["resource"]
        for call in calls
        if call.get("responseStatus", {}).get("code") == 429 and "objectRef" in call
    )


async def test_a_quota_of_the_server_delays_writes_and_nothing_is_done_twice(
    member: Member, backend: Backend, database_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    home, on = "by-quota", "by-quota-1"
    grant(member, BINDS)
    names = [f"web-{number:02}" for number in range(40)]
    member.apply(namespace(home), node(on), *(_waiting(home, name) for name in names))
    uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in _of(member, home)}

    def placed(number: int) -> Placed:
        share = NodeShare(on, (number,), pods=(uids[names[number]],))
        return Placed(number + 1, f"decision-{number}", f"{home}/web-deployment", (share,))

    join_for_writing(tmp_path, member, BINDS)
    audit = Audit(member)
    async with (
        a_plane(backend, database_url, topic_prefix, tmp_path, AROUND) as context,
        running(ActuatorService(context)),
    ):
        await decide(context, member, [placed(0)])
        await eventually(lambda: _bound(member, home) == {names[0]})
        async with used_up(member, "collector", WRITER):
            await eventually(lambda: refused(audit.calls()))
            await decide(context, member, [placed(number) for number in range(1, len(names))])
            await eventually(lambda: refused(audit.calls()).total() >= 5)
        await eventually(lambda: _bound(member, home) == {*names})
    made = Counter(name for _, name, code in audit.writes("pods/binding") if code == 201)
    assert made == dict.fromkeys(names, 1)
    print(f"refused by the quota: {dict(refused(audit.calls()))}")
    member.kubectl("delete", "namespace", home, "--wait=false")
    member.kubectl("delete", "node", on)


async def test_a_quota_of_the_server_for_reads_makes_no_fact_smaller(
    member: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """Watches that break while the quota is used up are begun again."""
    home = "read-quota"
    await asyncio.to_thread(filled, member, home, 10, 30)
    stays = {f"{home}-n{i}" for i in range(10)}, {f"p{i}" for i in range(30)}
    reader = Reader(member, home)
    reader.give(collector_rules())
    before = len(member.audit("collector"))
    async with (
        Breaking(member, access=reader.access) as door,
        collecting(backend, ledger, topic_prefix, tmp_path, member, access=door.access) as found,
    ):
        await eventually(lambda: agrees(found, member))
        async with used_up(member, WRITER, "collector"):
            door.cut()
            await asyncio.to_thread(
                member.apply, pod(home, "later", f"{home}-n0"), node(f"{home}-later")
            )
            await eventually(lambda: refused(member.audit("collector")[before:]).total() >= 5)
        await eventually(lambda: agrees(found, member))
    print(f"refused by the quota: {dict(refused(member.audit('collector')[before:]))}")
    await assert_never_fewer(ledger, *stays)
    reader.end()
    member.kubectl("delete", "namespace", home, "--wait=false")


def _waiting(home: str, name: str) -> Json:
    made = pod(home, name, app="web")
    made["spec"]["schedulerName"] = "wharfinger"
    return made


def _of(member: Member, home: str) -> list[Json]:
    return member.items("pods", "-n", home)


def _bound(member: Member, home: str) -> set[str]:
    found = _of(member, home)
    return {one["metadata"]["name"] for one in found if one["spec"].get("nodeName")}
