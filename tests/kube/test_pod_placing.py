"""The pods of a Deployment that wait for our scheduler in a real cluster get nodes. Nothing is
written: what is decided is held against what kubectl says of pods and nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from tests.kube.acting import a_plane, grant, join_for_writing
from tests.kube.collecting import node
from tests.kube.member import Json, Member, namespace
from tests.patience import eventually

from wharfinger.domain.actuation import Verb
from wharfinger.events.decisions import ReplicasPlaced, ReplicasReleased
from wharfinger.history.explain import Explained, account
from wharfinger.kernel.audit import Audit
from wharfinger.kernel.step import empty_head
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.joined import JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import read_kubeconfig
from wharfinger.runtime.ledger import DecisionQuery, Ledger
from wharfinger.stages.cluster import ClusterDecider

HOME, BINDS = "pod-placing", "pod-binding"
NODES = ("placing-1", "placing-2")
BIND_NODES = ("binding-on-1", "binding-on-2")
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


async def replayed(ledger: Ledger, stream: str) -> int:
    """How many decisions were taken again; each comes out as recorded."""
    decider = ClusterDecider()
    audit = Audit(decider, decider.initial(stream), empty_head(stream), ClusterDecider.of_profile)
    async for recorded in ledger.recorded_rounds(stream):
        audit.replay(recorded)
    assert audit.result.divergences == []
    return audit.result.decisions


async def test_the_pods_of_a_deployment_get_nodes(
    member: Member, backend: Backend, database_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    member.apply(namespace(HOME), *(node(name, pool=HOME) for name in NODES))
    member.apply(deployment(ROOM - 8, "500m"))
    joined = JoinedCluster(member.name, read_kubeconfig(member.kubeconfig()), "act", lease_s=4)
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
    assert await replayed(ledger, f"cluster/{member.name}") > 1
    await ledger.close()
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
    assert await replayed(ledger, f"cluster/{member.name}") > 1
    await ledger.close()
    member.kubectl("delete", "namespace", BINDS, "--wait=false")
    member.kubectl("delete", "node", *BIND_NODES)
