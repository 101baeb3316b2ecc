"""The pods of a Deployment that wait for our scheduler in a real cluster get nodes. Nothing is
written: what is decided is held against what kubectl says of pods and nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from tests.kube.acting import Audit as Calls
from tests.kube.acting import a_plane, decided, grant, join_for_writing
from tests.kube.collecting import node
from tests.kube.member import Json, Member, namespace
from tests.kube.replaying import replayed, replayed_without_server
from tests.patience import eventually

from wharfinger.domain.actuation import Verb
from wharfinger.events.decisions import (
    PodsUnplaced,
    PreemptionDecided,
    ReplicasPlaced,
    ReplicasReleased,
)
from wharfinger.history.explain import Explained, account
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.joined import JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import read_kubeconfig
from wharfinger.runtime.ledger import DecisionQuery, Ledger

HOME, BINDS, PREEMPTS = "pod-placing", "pod-binding", "pod-preempting"
NODES = ("placing-1", "placing-2")
BIND_NODES = ("binding-on-1", "binding-on-2")
GUARDED_NODE, CHEAP_NODE = "preempting-1", "preempting-2"
ROOM = 32
"""Pods of half a core that fit on two nodes of eight."""


def deployment(replicas: int, cpu: str, home: str = HOME) -> Json:
    labels = {"app": "web"}
    container = {
        "name": "main",
        "image": "registry.example/web:1",
        "resources": {"requests": {"cpu": cpu}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": home},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "schedulerName": "wharfinger",
                    "nodeSelector": {"pool": home},
                    "containers": [container],
                },
            },
        },
    }


def waiting(member: Member) -> set[str]:
    return {pod["metadata"]["uid"] for pod in member.items("pods", "-n", HOME)}


async def placed(ledger: Ledger, member: Member, home: str = HOME) -> dict[str, str]:
    """uid -> node, of the decisions that hold: a released replica is no longer among them."""
    replicas: dict[tuple[str, int], tuple[str, str]] = {}
    wanted = f"{home}/web-deployment@{member.name}"
    async for row in ledger.decisions(DecisionQuery(stream=f"cluster/{member.name}")):
        match row.data():
            case ReplicasPlaced(binding=binding, placed=shares) if binding == wanted:
                for share in shares:
                    for ordinal, uid in zip(share.ordinals, share.pods, strict=True):
                        replicas[binding, ordinal] = uid, share.node
            case ReplicasReleased(binding=binding, released=shares) if binding == wanted:
                for share in shares:
                    for ordinal in share.ordinals:
                        del replicas[binding, ordinal]
            case _:
                pass
    return dict(replicas.values())


async def test_the_pods_of_a_deployment_get_nodes(
    member: Member, backend: Backend, database_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    member.apply(namespace(HOME), *(node(name, pool=HOME) for name in NODES))
    member.apply(deployment(ROOM - 8, "500m"))
    joined = JoinedCluster(member.name, read_kubeconfig(member.kubeconfig()), "act", lease_s=16)
    store_joined(tmp_path, joined)
    ledger = await Ledger.open(database_url, "tests-pod-placing")

    async def is_placed(count: int) -> bool:
        there = await asyncio.to_thread(waiting, member)
        return len(there) == count and set(await placed(ledger, member)) == there

    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        await eventually(lambda: is_placed(ROOM - 8))

        async def is_full() -> bool:
            there = await asyncio.to_thread(waiting, member)
            return len(there) == ROOM + 8 and len(await placed(ledger, member)) == ROOM

        member.apply(deployment(ROOM + 8, "500m"))
        await eventually(is_full)
        chosen = await placed(ledger, member)
        assert Counter(chosen.values()) == dict.fromkeys(NODES, ROOM // 2)
        # those that no node has room for wait, until others go
        goes = sorted(chosen)[0]
        (name,) = [
            pod["metadata"]["name"]
            for pod in member.items("pods", "-n", HOME)
            if pod["metadata"]["uid"] == goes
        ]
        member.kubectl("delete", "pod", name, "-n", HOME, "--wait=false")

        async def is_replaced() -> bool:
            now = await placed(ledger, member)
            return goes not in now and len(now) == ROOM

        await eventually(is_replaced)
        now = await placed(ledger, member)
        assert {uid: now[uid] for uid in chosen if uid != goes} == {
            uid: at for uid, at in chosen.items() if uid != goes
        }, "no pod was moved for it"
    shown = await account(ledger, f"{HOME}/web-deployment@{member.name}")
    assert isinstance(shown, Explained)
    assert shown.decision.again.same
    await ledger.close()
    assert replayed(database_url, tmp_path) > 1
    member.kubectl("delete", "namespace", HOME, "--wait=false")
    member.kubectl("delete", "node", *NODES)


def _bound(member: Member) -> dict[str, str]:
    """uid -> node, as kubectl says."""
    return {
        pod["metadata"]["uid"]: pod["spec"].get("nodeName", "")
        for pod in member.items("pods", "-n", BINDS)
        if "deletionTimestamp" not in pod["metadata"]
    }


async def test_what_is_placed_is_bound_and_a_rollout_in_a_full_cluster_completes(
    member: Member, backend: Backend, database_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """The whole way: pods wait, are placed, bound, seen on their nodes and replaced by those of a
    new template. One node has room for one more pod only."""
    verbs: tuple[Verb, ...] = ("bind",)
    grant(member, verbs)
    member.apply(namespace(BINDS), *(node(name, pool=BINDS) for name in BIND_NODES))
    member.apply(deployment(ROOM - 1, "500m", BINDS))
    join_for_writing(tmp_path, member, verbs)
    ledger = await Ledger.open(database_url, "tests-pod-placing")
    async with a_plane(backend, database_url, topic_prefix, tmp_path):

        async def settled() -> bool:
            bound = await asyncio.to_thread(_bound, member)
            return len(bound) == ROOM - 1 and bound == await placed(ledger, member, BINDS)

        await eventually(settled)
        old = set(_bound(member))
        changed = deployment(ROOM - 1, "500m", BINDS)
        changed["spec"]["template"]["metadata"]["annotations"] = {"release": "2"}
        member.apply(changed)

        async def rolled_out() -> bool:
            return await settled() and not old & set(await asyncio.to_thread(_bound, member))

        await eventually(rolled_out)
        rows = [row async for row in ledger.decisions(DecisionQuery(outcomes=("refused",)))]
        assert rows == [], "no replica was given back"
    await ledger.close()
    assert replayed_without_server(member, database_url, tmp_path) > 1
    member.kubectl("delete", "namespace", BINDS, "--wait=false")
    member.kubectl("delete", "node", *BIND_NODES)


def _a_pod(name: str, cpu: str, on: str = "", **spec: object) -> Json:
    """On a node from the beginning, as if others had bound it; or it waits for us."""
    container = {"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": cpu}}}
    place: Json = {"nodeName": on} if on else {"schedulerName": "wharfinger"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": PREEMPTS, "labels": {"app": name}},
        "spec": {
            "nodeSelector": {"pool": PREEMPTS},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **place,
            **spec,
        },
    }


def _priority(name: str, value: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _pods(member: Member) -> dict[str, str]:
    """Name -> node, of the pods that are not being deleted."""
    return {
        pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
        for pod in member.items("pods", "-n", PREEMPTS)
        if "deletionTimestamp" not in pod["metadata"]
    }


async def test_a_pod_of_higher_priority_takes_the_place_of_one_that_others_bound(
    member: Member, backend: Backend, database_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Both nodes are full. The pod of the lowest priority is kept by a budget; of those on the
    other node one is enough."""
    verbs: tuple[Verb, ...] = ("bind", "evict")
    grant(member, verbs)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": PREEMPTS},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    member.apply(
        namespace(PREEMPTS),
        _priority("preempting-low", 10),
        _priority("preempting-high", 1000),
        *(node(name, pool=PREEMPTS) for name in (GUARDED_NODE, CHEAP_NODE)),
        budget,
    )
    member.await_nodes((GUARDED_NODE, CHEAP_NODE))
    low = {"priorityClassName": "preempting-low"}
    member.apply(
        _a_pod("guarded", "7500m", GUARDED_NODE),
        _a_pod("cheap-1", "3500m", CHEAP_NODE, **low),
        _a_pod("cheap-2", "3500m", CHEAP_NODE, **low),
    )

    def guarded() -> bool:
        (found,) = member.items("pdb", "-n", PREEMPTS)
        status = found.get("status", {})
        return bool(status.get("currentHealthy") == 1 and status.get("disruptionsAllowed") == 0)

    await eventually(guarded)
    join_for_writing(tmp_path, member, verbs)
    ledger, calls = await Ledger.open(database_url, "tests-pod-placing"), Calls(member)
    stream = f"cluster/{member.name}"
    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        member.apply(_a_pod("urgent", "3", priorityClassName="preempting-high"))
        await eventually(lambda: _pods(member).get("urgent") == CHEAP_NODE)
        (row,) = await decided(ledger, stream, "preempting")
        decision = row.data()
        assert isinstance(decision, PreemptionDecided)
        (victim,) = decision.victims
        assert decision.node == CHEAP_NODE
        assert victim.name in ("cheap-1", "cheap-2")
        assert (victim.priority, decision.priority) == (10, 1000)
        assert set(_pods(member)) == {"guarded", "cheap-1", "cheap-2", "urgent"} - {victim.name}
        # No room can be made for this one: it waits, and kubectl shows why.
        member.apply(_a_pod("large", "7", priorityClassName="preempting-high"))

        async def said() -> bool:
            rows = [row.data() for row in await decided(ledger, stream, "unplaced")]
            return any("large" in d.binding for d in rows if isinstance(d, PodsUnplaced))

        await eventually(said)
        assert len(await decided(ledger, stream, "preempting")) == 1
    evicted = [name for _, name, code in calls.writes("pods/eviction") if code == 201]
    assert evicted == [victim.name]
    assert replayed(database_url, tmp_path) > 1
    await ledger.close()
    member.kubectl("delete", "namespace", PREEMPTS, "--wait=false")
    member.kubectl("delete", "node", GUARDED_NODE, CHEAP_NODE)
    member.kubectl("delete", "priorityclass", "preempting-low", "preempting-high")
