"""An API server that has too many requests, or loses its answers: what was decided is done once,
and the server gets the pause that it asks for. The referee is its audit log."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from tests.apps import running
from tests.kube.acting import WRITER, Audit, a_plane, decide, grant, join_for_writing
from tests.kube.answering import Answering, Fault
from tests.kube.collecting import node, pod
from tests.kube.member import Json, Member, namespace
from tests.patience import eventually

from wharfinger.events.assignments import Placed, Released
from wharfinger.events.node_share import NodeShare
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.examination import examine
from wharfinger.runtime.kube.joined import read_joined, store_joined
from wharfinger.stages.actuator.pacing import FIRST
from wharfinger_actuator.app import ActuatorService

HOME, PODS, HALF = "overloaded", 100, 60
PAUSE_S = 3
AROUND = ("publisher", "collector")
NODE = "overloaded-1"
BINDING = f"{HOME}/web-deployment"


def a_pod(number: int) -> Json:
    made = pod(HOME, f"web-{number:02}", app="web")
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
    member.apply(namespace(HOME), node(NODE), *(a_pod(number) for number in range(PODS)))
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
            assert _begun_in_the_pause(writes) < FIRST, "only those that were under way arrive"
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
