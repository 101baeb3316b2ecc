"""Others work on the same nodes between our decisions and their bindings: kube-scheduler places
pods of its own, a person binds pods of ours elsewhere, deletes some and cordons nodes. Meanwhile
the actuator is stopped by the ConfigMap. When it goes on, it overcommits no node, binds to no
cordoned one, and each pod of ours runs or says why it does not. The referees are kubectl and the
server's audit log. `WHARFINGER_TEST_SEED` chooses which pods and nodes it meets."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
from infra.kube.cluster import kube_scheduler
from tests.kube.acting import Audit, a_plane, asked_for, decided, grant, join_for_writing
from tests.kube.collecting import Known, node
from tests.kube.member import Json, Member, config_map, namespace
from tests.kube.replaying import replayed_without_server
from tests.kube.test_act import a_deployment
from tests.kube.test_brownfield import placed
from tests.patience import eventually

from wharfinger.domain.actuation import Verb
from wharfinger.events.decisions import ReplicasReleased
from wharfinger.history.states import state_at
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.kubeconfig import read_kubeconfig
from wharfinger.runtime.kube.rights import NAMESPACE, PAUSE
from wharfinger.runtime.ledger import Ledger

SEED = int(os.environ.get("WHARFINGER_TEST_SEED", "17"))
HOME, THEIRS = "others", "others-theirs"
VERBS: tuple[Verb, ...] = ("bind",)
NODES = tuple(f"others-{number:02}" for number in range(30))
CORES = 8
"""Of a node. Each pod requests one."""
OUR_PODS, THEIR_PODS = 160, 110
"""With five nodes cordoned there is room for 200, and for those that were bound there by hand."""
BY_HAND, DELETED, CORDONED = 50, 50, 5
AT_ONCE = 8


async def test_others_work_on_the_same_nodes(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    chance, stream = Random(SEED), f"cluster/{member.name}"
    member.empty()
    member.apply(namespace(HOME), namespace(THEIRS))
    member.apply(*(node(name, **{"for": HOME}) for name in NODES))
    member.await_nodes(NODES)
    grant(member, VERBS)
    member.apply(config_map(NAMESPACE, PAUSE))
    join_for_writing(tmp_path, member, VERBS)
    audit, known = Audit(member), Known(ledger, member.name)
    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        await asyncio.to_thread(member.apply, a_deployment(OUR_PODS, HOME))

        async def all_decided() -> bool:
            return len(await placed(ledger, stream)) == OUR_PODS

        await eventually(all_decided)
        first = await placed(ledger, stream)
        cordoned = sorted(chance.sample(NODES, CORDONED))
        by_hand = await _disturbed(member, chance, first, cordoned)
        with kube_scheduler(member.directory):
            await asyncio.to_thread(member.apply, _theirs())
            await eventually(lambda: len(_on_nodes(member, THEIRS)) == THEIR_PODS)
            await eventually(lambda: _replaced(member))
            truth = await asyncio.to_thread(_everywhere, member)

            async def facts_are_fresh() -> bool:
                found = (await known.pods()).items()
                return {uid: getattr(one, "node", "") for uid, one in found} == truth

            await eventually(facts_are_fresh)
            assert audit.writes() == [], "it is paused"
            await asyncio.to_thread(member.kubectl, "delete", "configmap", PAUSE, "-n", NAMESPACE)
            await eventually(lambda: asyncio.to_thread(_runs_or_says_why, member))

            async def nothing_is_open() -> bool:
                found = await asyncio.to_thread(
                    asked_for, "effects", database_url, tmp_path, member.name
                )
                return found == []

            await eventually(nothing_is_open)
        rows = [row.data() for row in await decided(ledger, stream, "released")]
    ours = {one["metadata"]["uid"]: one for one in member.items("pods", "-n", HOME)}
    assert len(ours) == OUR_PODS
    running = {uid: on for uid, one in ours.items() if (on := one["spec"].get("nodeName", ""))}
    assert _overcommitted(member) == {}
    assert {uid for uid, on in running.items() if on in cordoned} <= set(by_hand)
    assert {uid: running[uid] for uid in by_hand} == by_hand, "nothing of theirs is moved"
    # Others have taken so much that some of ours have no room: the case is the one that is meant.
    assert 0 < len(running) < OUR_PODS
    reasons = {data.reason for data in rows if isinstance(data, ReplicasReleased)}
    assert reasons >= {"InsufficientResources", "Unschedulable", "BoundElsewhere", "PodGone"}
    book = (await state_at(ledger, stream)).state.book
    replicas = {uid: book.held[b].placed[o].node for uid, (b, o) in book.replica_of.items()}
    assert replicas == running, "adopted, or placed"
    bound = audit.bindings()
    assert set(bound.values()) == {1}
    assert bound.keys() == running.keys() - by_hand.keys()
    assert {verb for verb, _, _ in audit.writes()} <= {"create", "patch"}
    assert audit.writes("pods/eviction") == audit.writes("nodes") == []
    decisions = replayed_without_server(member, database_url, tmp_path)
    print(
        f"{len(running)} of {OUR_PODS} run, {len(by_hand)} bound by hand, {len(bound)} by us;"
        f" {len(rows)} releases; {decisions:,} decisions replayed"
    )
    member.empty()


def _theirs() -> Json:
    found = a_deployment(THEIR_PODS, THEIRS)
    spec = found["spec"]["template"]["spec"]
    del spec["schedulerName"]
    spec["nodeSelector"] = {"for": HOME}
    return found


async def _disturbed(
    member: Member, chance: Random, decided_for: dict[str, str], cordoned: Sequence[str]
) -> dict[str, str]:
    """What a person does, all at the same time. Returns uid -> node, of the pods that were bound:
    most on another node than was decided, at most two on one node."""
    pods = sorted(await asyncio.to_thread(member.items, "pods", "-n", HOME), key=_name)
    chance.shuffle(pods)
    binds, deletes = pods[:BY_HAND], pods[BY_HAND : BY_HAND + DELETED]
    targets = [NODES[number % len(NODES)] for number in range(BY_HAND)]
    chance.shuffle(targets)
    limit = asyncio.Semaphore(AT_ONCE)
    async with KubeApi(read_kubeconfig(member.kubeconfig())) as api:

        async def ask(method: str, path: str, body: Json | None = None) -> None:
            async with limit:
                sent = None if body is None else msgspec.json.encode(body)
                await api.request(method, f"/api/v1/namespaces/{HOME}/pods/{path}", body=sent)

        await asyncio.gather(
            *(
                ask("POST", f"{_name(one)}/binding", _binding(_name(one), on))
                for one, on in zip(binds, targets, strict=True)
            ),
            *(ask("DELETE", _name(one)) for one in deletes),
            *(asyncio.to_thread(member.kubectl, "cordon", name) for name in cordoned),
        )
    found = {one["metadata"]["uid"]: on for one, on in zip(binds, targets, strict=True)}
    assert any(decided_for[uid] != on for uid, on in found.items())
    return found


def _binding(name: str, on: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": on},
    }


def _name(pod: Json) -> str:
    name: str = pod["metadata"]["name"]
    return name


def _on_nodes(member: Member, home: str) -> list[Json]:
    return [one for one in member.items("pods", "-n", home) if one["spec"].get("nodeName")]


def _everywhere(member: Member) -> dict[str, str]:
    """uid -> node; "": it waits."""
    pods = member.items("pods", "--all-namespaces")
    return {one["metadata"]["uid"]: one["spec"].get("nodeName", "") for one in pods}


def _replaced(member: Member) -> bool:
    """The deleted pods are gone, and their controller has made others."""
    pods = member.items("pods", "-n", HOME)
    return len(pods) == OUR_PODS and not any("deletionTimestamp" in p["metadata"] for p in pods)


def _runs_or_says_why(member: Member) -> bool:
    return all(
        one["spec"].get("nodeName")
        or any(
            said["type"] == "PodScheduled" and said["status"] == "False" and said.get("reason")
            for said in one["status"].get("conditions", ())
        )
        for one in member.items("pods", "-n", HOME)
    )


def _overcommitted(member: Member) -> dict[str, int]:
    """Node -> cores that its pods request, where those are more than it has. Each requests one."""
    pods = [*member.items("pods", "-n", HOME), *member.items("pods", "-n", THEIRS)]
    used = Counter(on for one in pods if (on := one["spec"].get("nodeName")))
    return {name: cores for name, cores in used.items() if cores > CORES}
