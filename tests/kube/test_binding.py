"""Placed pods are bound and released pods are evicted, each once, beside others who do the same.

The decisions are written to the topic by the test, so that each is known; the referee is kubectl
and the server's audit log."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.apps import running
from tests.kube.acting import Audit, a_plane, decide, grant, join_for_writing
from tests.kube.collecting import node, pod
from tests.kube.member import Json, Member, namespace
from tests.patience import eventually

from wharfinger.domain.actuation import ANNOTATION
from wharfinger.events.assignments import Placed, Released
from wharfinger.events.node_share import NodeShare
from wharfinger.runtime.backends import Backend
from wharfinger_actuator.app import ActuatorService

HOME = "binding"
NODES = ("binding-1", "binding-2", "binding-3")
BINDING = f"{HOME}/web-deployment"
PODS = 40
BY_HAND, DELETED = range(5), range(5, 8)
"""Pods that somebody binds or deletes between their decision and our request."""
AROUND = ("publisher", "collector")


def a_pod(number: int) -> Json:
    made = pod(HOME, f"web-{number:02}", app="web")
    made["spec"]["schedulerName"] = "wharfinger"
    return made


def pods(member: Member) -> dict[str, Json]:
    found = member.items("pods", "-n", HOME)
    return {one["metadata"]["name"]: one for one in found}


def bind_by_hand(member: Member, name: str, on: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": HOME},
        "target": {"apiVersion": "v1", "kind": "Node", "name": on},
    }
    path = f"/api/v1/namespaces/{HOME}/pods/{name}/binding"
    member.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def placed(seq: int, number: int, uid: str) -> Placed:
    share = NodeShare(NODES[number % 3], (number,), pods=(uid,))
    return Placed(seq, f"decision-{number}", BINDING, (share,))


async def test_each_pod_is_bound_once_and_evicted_only_by_a_decision(
    member: Member, backend: Backend, database_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    grant(member, ("bind", "evict"))
    member.apply(namespace(HOME), *(node(name) for name in NODES))
    member.apply(*(a_pod(number) for number in range(PODS)))
    uids = {name: one["metadata"]["uid"] for name, one in pods(member).items()}
    names = sorted(uids)
    items = [placed(number + 1, number, uids[name]) for number, name in enumerate(names)]
    join_for_writing(tmp_path, member, ("bind", "evict"))
    audit = Audit(member)
    async with a_plane(backend, database_url, topic_prefix, tmp_path, AROUND) as context:
        for number in BY_HAND:
            bind_by_hand(member, names[number], NODES[(number + 1) % 3])
        for number in DELETED:
            member.kubectl("delete", "pod", names[number], "-n", HOME, "--wait=false")
        # It ends in the middle of the binds, and another one begins with nothing.
        actuator = ActuatorService(context)
        async with running(actuator):
            await decide(context, member, items[: PODS // 2])
            await eventually(lambda: audit.writes("pods/binding"))
        await decide(context, member, items[PODS // 2 :])
        ours = [name for number, name in enumerate(names) if number not in (*BY_HAND, *DELETED)]
        async with running(ActuatorService(context)):
            await eventually(lambda: _all_on_nodes(member, ours))
            await _evicted(context, member, audit, uids, names)
    there = pods(member)
    for number, name in enumerate(names):
        if name not in ours or name not in there:
            continue
        one = there[name]
        assert one["spec"]["nodeName"] == NODES[number % 3]
        said = one["metadata"]["annotations"]
        assert said[f"{ANNOTATION}seq"] == f"cluster/{member.name}:{number + 1}"
        assert said[f"{ANNOTATION}ordinal"] == str(number)
    for number in BY_HAND:
        assert there[names[number]]["spec"]["nodeName"] == NODES[(number + 1) % 3]
    bound = Counter(name for _, name, code in audit.writes("pods/binding") if code == 201)
    assert set(bound.values()) == {1}
    assert not {names[number] for number in (*BY_HAND, *DELETED)} & set(bound)
    # Of a request whose sender ended before the answer the log does not say 201. All others do.
    cut = {name for _, name, code in audit.writes("pods/binding") if code not in (201, 404, 409)}
    assert set(ours) - set(bound) <= cut


async def _evicted(context, member, audit, uids, names) -> None:  # type: ignore[no-untyped-def]
    """One is kept by a budget until that goes, one by its workload's controller, one by none."""
    kept, left, goes = names[10], names[11], names[12]
    member.kubectl("label", "pod", kept, "-n", HOME, "guarded=yes")
    member.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard", "namespace": HOME},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"guarded": "yes"}}},
        }
    )
    await eventually(lambda: _budget_counts(member))

    def released(seq: int, name: str, reason: str) -> Released:
        number = names.index(name)
        share = NodeShare(NODES[number % 3], (number,), pods=(uids[name],))
        return Released(seq, f"release-{name}", BINDING, (share,), reason=reason)

    await decide(
        context,
        member,
        [
            released(PODS + 1, kept, "Preempted"),
            released(PODS + 2, left, "ScaledDown"),
            released(PODS + 3, goes, "Preempted"),
        ],
    )
    await eventually(lambda: goes not in pods(member))
    await eventually(lambda: ("create", kept, 429) in audit.writes("pods/eviction"))
    assert kept in pods(member)
    member.kubectl("delete", "pdb", "guard", "-n", HOME)
    await eventually(lambda: kept not in pods(member))
    evicted = {name for _, name, code in audit.writes("pods/eviction") if code == 201}
    assert evicted == {kept, goes}
    assert left in pods(member)


def _all_on_nodes(member: Member, names: list[str]) -> bool:
    there = pods(member)
    return all(there[name]["spec"].get("nodeName") for name in names)


def _budget_counts(member: Member) -> bool:
    (budget,) = member.items("pdb", "-n", HOME)
    return bool(budget.get("status", {}).get("expectedPods"))
