"""What the ledger knows of a cluster is what `kubectl get` says, field by field, and after random
changes again: nodes, pods, disruption budgets, quotas and volumes. Heartbeats of nodes are no
facts. `WHARFINGER_TEST_FACTS_NODES`, `_PODS` and `_CHANGES` say how large the cluster is and how
much of it changes, `WHARFINGER_TEST_FACTS_QUIET_S` how long only heartbeats come."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

from tests.kube.collecting import Collecting, collecting, created, node, pod
from tests.kube.member import Json, Member, namespace
from tests.kube.test_collector import agrees
from tests.kube.test_heartbeats import intake, quiet
from tests.patience import eventually, until

from wharfinger.domain.cluster_objects import ClusterObject
from wharfinger.domain.quota import Quota
from wharfinger.manifests.kinds import BY_NAME
from wharfinger.manifests.live_objects import read_object
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger

NODES = int(os.environ.get("WHARFINGER_TEST_FACTS_NODES", "60"))
PODS = int(os.environ.get("WHARFINGER_TEST_FACTS_PODS", 5 * NODES))
CHANGES = int(os.environ.get("WHARFINGER_TEST_FACTS_CHANGES", max(40, 3 * NODES // 10)))
QUIET_S = float(os.environ.get("WHARFINGER_TEST_FACTS_QUIET_S", "3"))
SEED = int(os.environ.get("WHARFINGER_TEST_SEED", "31"))
HOMES = tuple(f"facts-{i}" for i in range(4))
OBJECTS = NODES // 10
"""So many disruption budgets, volumes and claims each."""

KINDS = {
    "PodDisruptionBudget": "policy/v1",
    "ResourceQuota": "v1",
    "PersistentVolume": "v1",
    "PersistentVolumeClaim": "v1",
}


# --- the cluster


def home_of(number: int) -> str:
    return HOMES[number % len(HOMES)]


def node_of(number: int) -> str:
    return f"facts-n{number % NODES}"


def objects() -> list[Json]:
    found: list[Json] = []
    for home in HOMES:
        hard = {"requests.cpu": "900", "requests.memory": "2Ti", "pods": "10000"}
        found.append(_object("v1", "ResourceQuota", home, "limits", {"hard": hard}))
    for i in range(OBJECTS):
        selector = {"matchLabels": {"app": f"a{i % 20}"}}
        budget = {"maxUnavailable": 1, "selector": selector}
        found.append(_object("policy/v1", "PodDisruptionBudget", home_of(i), f"b{i}", budget))
        disk = {
            "capacity": {"storage": f"{i + 1}Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "manual",
            "csi": {"driver": "disk.example", "volumeHandle": f"disk-{i}"},
        }
        found.append(_object("v1", "PersistentVolume", "", f"facts-v{i}", disk))
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "manual",
            "volumeName": f"facts-v{i}",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        found.append(_object("v1", "PersistentVolumeClaim", home_of(i), f"c{i}", claim))
    return found


def _object(api_version: str, kind: str, home: str, name: str, spec: Json) -> Json:
    metadata = {"name": name} | ({"namespace": home} if home else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


async def filled(member: Member) -> None:
    member.empty()
    member.apply(*map(namespace, HOMES))
    for home in HOMES:
        # The controller manager makes it; pods are refused before.
        until(partial(member.items, "serviceaccounts", "-n", home))
    nodes = [node(node_of(i), zone=f"z{i % 3}", pool=f"p{i % 7}") for i in range(NODES)]
    pods = [
        pod(home_of(i), f"p{i}", "" if i % 50 == 0 else node_of(i), app=f"a{i % 20}")
        for i in range(PODS)
    ]
    await created(member, nodes)
    await created(member, pods)
    member.apply(*objects())


def changed(member: Member, number: int, chance: Random) -> str:
    """One change of a random kind, which it names."""
    on, which = node_of(chance.randrange(NODES)), chance.randrange(PODS)
    at, name = ("-n", home_of(which)), f"p{which}"
    match kind := chance.choice(CHANGE_KINDS):
        case "label":
            member.kubectl("label", "node", on, f"round={number}", "--overwrite")
        case "taint":
            member.kubectl("taint", "node", on, f"key={number}:NoSchedule", "--overwrite")
        case "cordon":
            member.kubectl("cordon", on)
        case "uncordon":
            member.kubectl("uncordon", on)
        case "capacity":
            room = json.dumps({"status": {"allocatable": {"cpu": f"{chance.randrange(4, 9)}"}}})
            member.kubectl("patch", "node", on, "--subresource=status", "--type=merge", "-p", room)
        case "delete":
            gone = ("--ignore-not-found", "--force", "--grace-period=0")
            member.kubectl("delete", "pod", name, *at, *gone)
        case "finish":
            _patched(member, name, at, "status", {"status": {"phase": "Succeeded"}})
        case "resize":
            wanted = {"requests": {"cpu": f"{chance.randrange(150, 400)}m", "memory": "64Mi"}}
            spec = {"spec": {"containers": [{"name": "main", "resources": wanted}]}}
            _patched(member, name, at, "resize", spec)
        case "label-pod":
            _labelled(member, name, at, number)
        case "create":
            member.apply(pod(home_of(number), f"x{number}", on if number % 3 else ""))
        case _:
            _change_object(member, number, chance)
    return kind


CHANGE_KINDS = (
    "label",
    "taint",
    "cordon",
    "uncordon",
    "capacity",
    "delete",
    "finish",
    "resize",
    "label-pod",
    "create",
    "object",
)


def _patched(member: Member, name: str, at: Sequence[str], subresource: str, patch: Json) -> None:
    arguments = (f"--subresource={subresource}", "--type=strategic", "-p", json.dumps(patch))
    _unless_gone(member, "patch", "pod", name, *at, *arguments)


def _labelled(member: Member, name: str, at: Sequence[str], number: int) -> None:
    _unless_gone(member, "label", "pod", name, *at, f"round={number}", "--overwrite")


def _unless_gone(member: Member, *arguments: str) -> None:
    """An earlier change may have deleted or finished the pod."""
    try:
        member.kubectl(*arguments)
    except RuntimeError as error:
        if not any(words in str(error) for words in ("not found", "Succeeded", "resize")):
            raise


def _change_object(member: Member, number: int, chance: Random) -> None:
    i = chance.randrange(OBJECTS)
    match number % 3:
        case 0:
            spec = {"maxUnavailable": number, "selector": {"matchLabels": {"app": "a1"}}}
            name = f"b{i}"
            member.apply(_object("policy/v1", "PodDisruptionBudget", home_of(i), name, spec))
        case 1:
            hard = {"requests.cpu": str(900 + number), "pods": "10000"}
            member.apply(_object("v1", "ResourceQuota", home_of(i), "limits", {"hard": hard}))
        case _:
            gone = ("--ignore-not-found", "--wait=false")
            member.kubectl("delete", "pdb", f"b{i}", "-n", home_of(i), *gone)


# --- what is held against what


def _known_objects(member: Member, kind: str) -> dict[str, ClusterObject | Quota]:
    reading = BY_NAME[KINDS[kind], kind]
    found = member.items(kind, "--all-namespaces")
    return {f"{_home(one)}/{one['metadata']['name']}": read_object(reading, one) for one in found}


def _home(one: Json) -> str:
    return str(one["metadata"].get("namespace", ""))


async def objects_agree(collector: Collecting, member: Member) -> bool:
    facts = await collector.facts()
    quotas = {
        f"{quota.namespace}/{quota.name}": quota
        for found in facts.quotas.values()
        for quota in found
    }
    if quotas != await asyncio.to_thread(_known_objects, member, "ResourceQuota"):
        return False
    for kind in KINDS.keys() - {"ResourceQuota"}:
        known = {
            f"{home}/{found.name}": found
            for (_, of_kind, home), several in facts.objects.items()
            if of_kind == kind
            for found in several
        }
        if known != await asyncio.to_thread(_known_objects, member, kind):
            return False
    return True


def _uids(member: Member) -> set[str]:
    """The pods of this file's namespaces."""
    pods = member.items("pods", "--all-namespaces")
    return {str(one["metadata"]["uid"]) for one in pods if _home(one) in HOMES}


async def test_the_ledger_knows_a_large_cluster_as_kubectl_shows_it(
    member: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    chance = Random(SEED)
    await filled(member)
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    async with collecting(backend, ledger, topic_prefix, tmp_path, member, lease_s=2) as collector:
        # Ready: all that was listed is in the ledger. The process does nothing else until then.
        first_s, first_cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s

        async def whole() -> bool:
            return await agrees(collector, member) and await objects_agree(collector, member)

        await eventually(whole)
        # Controllers may still make pods in the namespaces of other tests, which are known as well.
        assert {node_of(i) for i in range(NODES)} <= (await collector.nodes()).keys()
        ours = await asyncio.to_thread(_uids, member)
        assert len(ours) == PODS
        assert ours <= (await collector.pods()).keys()
        done = Counter(
            [await asyncio.to_thread(changed, member, i, chance) for i in range(CHANGES)]
        )
        await eventually(whole)
        await quiet(ledger)
        before = Counter(type(data).__name__ for data in await intake(ledger))
        await asyncio.sleep(QUIET_S)
        after = Counter(type(data).__name__ for data in await intake(ledger))
        assert set(after - before) == {"FleetHeard"}, "heartbeats of nodes are no facts"
    print(
        f"{NODES:,} nodes, {PODS:,} pods, {4 + 3 * OBJECTS} objects;"
        f" {CHANGES} changes by seed {SEED}: {dict(done)}; {sum(after.values()):,} facts in all,"
        f" none of them in {QUIET_S:g} s of heartbeats; first facts in the ledger after"
        f" {first_s:.1f} s, {first_cpu_s:.2f} s of CPU, {first_cpu_s / PODS * 1e6:.0f} us a pod"
    )
    member.kubectl("delete", "namespace", *HOMES, "--wait=false")
    member.kubectl("delete", "pv", "-l", "!other", "--wait=false")
    member.kubectl("delete", "nodes", "--all")
