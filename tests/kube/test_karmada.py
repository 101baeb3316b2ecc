"""Karmada's own controllers carry out what is decided: a policy and a Deployment on a hub become a
binding, we write its clusters, and from there to the members and back all is done by Karmada.

Its webhooks admit each write. What is decided about nodes is bound by us in one member, and the
other is known from Karmada's Cluster alone.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.kube.acting import Audit, a_plane, grant, join_for_writing, join_hub, revoke
from tests.kube.collecting import node
from tests.kube.karmada import karmada_hub, registered
from tests.kube.member import Json, Member, namespace
from tests.kube.replaying import replayed
from tests.kube.test_copying import found
from tests.kube.test_hub_writing import PLACE, scheduled, targets, the_binding
from tests.kube.test_pod_placing import deployment
from tests.patience import eventually

from wharfinger.domain.actuation import Verb
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.rights import NAMESPACE

OF_HUB: tuple[Verb, ...] = ("karmada",)
OF_MEMBER: tuple[Verb, ...] = ("bind",)


@pytest.fixture(scope="module")
def hub(members: list[Member], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """Two members are registered in it."""
    with ExitStack() as running:
        for member in members[:2]:
            member.empty()
            running.callback(_leave, member)
            member.apply(*(node(f"{member.name}-{i}", pool=PLACE) for i in range(2)))
        hub = running.enter_context(karmada_hub(tmp_path_factory.mktemp("karmada") / "hub"))
        for member in members[:2]:
            running.enter_context(registered(hub, member))
        yield hub


def _leave(member: Member) -> None:
    revoke(member)
    member.kubectl("delete", "namespace", PLACE, "--ignore-not-found", "--wait=false")
    member.empty()


def policy(**weights: int) -> Json:
    """Name of a cluster -> its weight; others get nothing."""
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "web", "namespace": PLACE},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "schedulerName": "wharfinger",
            "placement": {
                "clusterAffinity": {"clusterNames": sorted(weights)},
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Weighted",
                    "weightPreference": {
                        "staticWeightList": [
                            {"targetCluster": {"clusterNames": [name]}, "weight": weight}
                            for name, weight in weights.items()
                        ]
                    },
                },
            },
        },
    }


def replicas(member: Member) -> int | None:
    """None: no Deployment is there."""
    one = found(member, "deployment", "web", PLACE)
    return int(one["spec"]["replicas"]) if one else None


def ready_of_template(hub: Member) -> tuple[int, int]:
    """How many pods there are of the Deployment of the hub, and how many of them run."""
    status = found(hub, "deployment", "web", PLACE).get("status", {})
    return status.get("replicas", 0), status.get("readyReplicas", 0)


def objects(hub: Member, member: Member, kind: str) -> list[str]:
    """Names of what Karmada has to make in a member."""
    return [
        manifest["metadata"]["name"]
        for work in hub.items("works.work.karmada.io", "-n", f"karmada-es-{member.name}")
        for manifest in work["spec"]["workload"]["manifests"]
        if manifest["kind"] == kind
    ]


def collected(hub: Member) -> dict[str, tuple[bool, int]]:
    """Cluster -> whether all of it is applied there and how many pods run, as the binding says."""
    status = the_binding(hub, "web").get("status", {})
    return {
        one["clusterName"]: (
            one.get("applied", False),
            one.get("status", {}).get("readyReplicas", 0),
        )
        for one in status.get("aggregatedStatus", ())
    }


@contextmanager
def every_version(hub: Member, written: Path) -> Iterator[list[Json]]:
    """All that a watch of bindings shows inside of it; known at its end."""
    seen: list[Json] = []
    command = hub.command("get", "resourcebindings", "-n", PLACE, "--watch", "-o", "json")
    with written.open("wb") as out:
        watch = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
    try:
        yield seen
    finally:
        watch.terminate()
        watch.wait()
    text, decode = written.read_text(), json.JSONDecoder().raw_decode
    while text.strip():
        one, end = decode(text := text.lstrip())
        text = text[end:]
        seen.append(one)


async def test_what_is_decided_on_a_hub_reaches_the_members_and_comes_back(
    hub: Member,
    members: list[Member],
    backend: Backend,
    database_url: str,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    bound, waits = members[:2]
    grant(bound, OF_MEMBER)
    join_for_writing(tmp_path, bound, OF_MEMBER)
    grant(hub, OF_HUB)
    join_hub(tmp_path, hub, OF_HUB)
    audit = Audit(hub)

    async def settled(on_bound: int, on_waiting: int) -> None:
        """Bindings, members and what is collected of them agree."""
        wanted = {bound.name: on_bound, waits.name: on_waiting}
        decided = {name: count for name, count in wanted.items() if count}
        await eventually(lambda: targets(hub, "web") == decided, lambda: the_binding(hub, "web"))
        await eventually(lambda: scheduled(hub, "web"), lambda: the_binding(hub, "web"))
        for member in (bound, waits):
            count = wanted[member.name] or None
            await eventually(lambda m=member, c=count: replicas(m) == c)
            works = ["web"] if count else []
            await eventually(lambda m=member, w=works: objects(hub, m, "Deployment") == w)
        run = {bound.name: (True, on_bound), waits.name: (True, 0)}
        expected = {name: run[name] for name in decided}
        await eventually(lambda: collected(hub) == expected, lambda: the_binding(hub, "web"))

    hub.apply(namespace(PLACE))
    async with AsyncExitStack() as running:
        versions = running.enter_context(every_version(hub, tmp_path / "bindings.json"))
        await running.enter_async_context(a_plane(backend, database_url, topic_prefix, tmp_path))
        hub.apply(deployment(6, "500m", PLACE))
        hub.apply(policy(**{bound.name: 2, waits.name: 1}))
        await eventually(lambda: found(hub, "resourcebinding", "web-deployment", PLACE))
        await settled(4, 2)
        await eventually(lambda: ready_of_template(hub) == (6, 4))
        hub.kubectl("scale", "deployment", "web", "-n", PLACE, "--replicas=9")
        await settled(6, 3)
        # One of the two clusters is taken away.
        hub.apply(policy(**{waits.name: 1}))
        await settled(0, 9)
        # And comes back.
        hub.apply(policy(**{bound.name: 1, waits.name: 1}))
        await eventually(lambda: bound.name in targets(hub, "web"))
        await settled(*(targets(hub, "web").get(member.name, 0) for member in (bound, waits)))
        hub.kubectl("delete", "deployment", "web", "-n", PLACE)
        for member in (bound, waits):
            await eventually(lambda m=member: replicas(m) is None)
        await eventually(lambda: not found(hub, "resourcebinding", "web-deployment", PLACE))
        for member in (bound, waits):
            assert objects(hub, member, "Namespace") == [PLACE], f"and not {NAMESPACE}"
    # A generation is named once it is decided: Karmada ends evictions by that.
    named = [
        one["spec"]
        for one in versions
        if one.get("status", {}).get("schedulerObservedGeneration") == one["metadata"]["generation"]
    ]
    assert {spec["replicas"] for spec in named} == {6, 9}
    for spec in named:
        assert sum(target["replicas"] for target in spec.get("clusters", ())) == spec["replicas"]
    # Writes come to an end beside those of the controllers, and none is refused.
    assert Counter(audit.writes())["patch", "web-deployment", 200] <= 24
    refused = [call for call in audit.calls() if call["responseStatus"]["code"] in (403, 422, 400)]
    assert refused == []
    assert replayed(database_url, tmp_path) > 1
