"""The rights of the collector on real API servers: all of them are used, none is missing, and one
that is taken away is shown before the watch ends."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pytest
from tests.kube.breaking import Breaking
from tests.kube.collecting import Collecting, collecting, node, pod
from tests.kube.member import Json, Member, namespace
from tests.kube.readers import Reader
from tests.kube.test_hub import CRDS
from tests.kube.test_joining import wharfinger
from tests.kube.test_metrics_api import DEFINITION as METRICS
from tests.patience import eventually

from wharfinger.domain.cluster import Cluster, kinds_not_readable
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.examination import refused_kinds
from wharfinger.runtime.kube.rights import collector_rules
from wharfinger.runtime.kube.watched import WATCHED
from wharfinger.runtime.ledger import Ledger
from wharfinger_collector.member import Member as ReadMember

REVIEW_S = 0.5
"""A watch is open for at least 240 s."""

ABSENT = ("karpenter.sh", "metrics.k8s.io")
"""Groups that the servers of these tests do not have."""

SERVED = tuple(kind for kind in WATCHED if kind.group not in ABSENT)


@pytest.fixture
def reader(member: Member) -> Iterator[Reader]:
    found = Reader(member, "reads-rights")
    found.give(collector_rules(SERVED))
    yield found
    found.end()


def get_clusters(database_url: str, tmp_path: Path) -> str:
    """What the command prints."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WHARFINGER_")}
    return subprocess.run(
        [sys.executable, "-m", "wharfinger_cli", "get", "clusters"],
        cwd=tmp_path,
        env=clean | {"WHARFINGER_DATABASE": database_url, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def read_by(collector: Collecting) -> ReadMember:
    (running,) = collector.service.members()
    assert isinstance(running.member, ReadMember)
    return running.member


def refused_watches(collector: Collecting) -> list[str]:
    return [kind for kind, why in read_by(collector).broken.items() if why.startswith("403 ")]


async def shown(collector: Collecting) -> list[str] | None:
    """Kinds that the ledger knows as refused; None: it does not know the cluster."""
    clusters: list[Cluster] = await collector.clusters()
    return kinds_not_readable(clusters[0]) if clusters else None


async def shows(collector: Collecting, kinds: Sequence[str]) -> None:
    async def same() -> bool:
        return await shown(collector) == sorted(kinds)

    await eventually(same, lambda: kinds)


async def services(collector: Collecting, place: str) -> set[str]:
    facts = await collector.facts()
    return {found.name for found in facts.objects.get((collector.name, "Service", place), ())}


def service(place: str, name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": place},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    }


# --- all rights are used


@pytest.fixture
def whole(member: Member) -> Iterator[Member]:
    """The server has all kinds that are read of a member cluster."""
    member.apply(METRICS)
    member.kubectl("apply", "--server-side", "-f", str(CRDS / "karpenter.yaml"))
    member.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    yield member
    member.kubectl("delete", "crd", "nodes.metrics.k8s.io")
    member.kubectl("delete", "-f", str(CRDS / "karpenter.yaml"))


async def test_each_right_is_used_by_joining_and_collecting_and_nothing_is_refused(
    whole: Member,
    reader: Reader,
    backend: Backend,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    rules = collector_rules()
    reader.give(rules)
    async with KubeApi(reader.access) as api:
        await eventually(lambda: _may_all(api))
    before = len(whole.audit("collector"))
    config = str(whole.kubeconfig("collector"))
    await asyncio.to_thread(
        wharfinger, tmp_path, "join", "oslo", "--kubeconfig", config, "--dry-run"
    )
    async with collecting(
        backend, ledger, topic_prefix, tmp_path / "clusters", whole, access=reader.access
    ) as collector:
        await shows(collector, [])

        def unused() -> list[str]:
            return unused_rights(rules, whole.audit("collector")[before:])

        await eventually(lambda: not unused(), unused)
    calls = whole.audit("collector")[before:]
    refused = [call["requestURI"] for call in calls if call["responseStatus"]["code"] == 403]
    assert refused == []


async def _may_all(api: KubeApi) -> bool:
    return not await refused_kinds(api, WATCHED)


def unused_rights(rules: Sequence[Json], calls: Sequence[Json]) -> list[str]:
    """Resources and paths of rules that no call needed."""
    used: set[tuple[str, str, str]] = set()
    paths: set[str] = set()
    for call in calls:
        if (named := call.get("objectRef")) is None:
            paths.add(urlsplit(call["requestURI"]).path)
        else:
            used.add((named.get("apiGroup", ""), named["resource"], call["verb"]))
    found: list[str] = []
    for rule in rules:
        for group, resource in product(rule.get("apiGroups", ()), rule.get("resources", ())):
            if not any((group, resource, verb) in used for verb in rule["verbs"]):
                found.append(f"{resource}.{group}")
        for pattern in rule.get("nonResourceURLs", ()):
            if not fnmatch.filter(paths, pattern):
                found.append(pattern)
    return found


def test_a_right_that_no_call_needed_is_named() -> None:
    rules: list[Json] = [
        {"apiGroups": [""], "resources": ["nodes", "secrets"], "verbs": ["list", "watch"]},
        {"nonResourceURLs": ["/readyz", "/apis/*"], "verbs": ["get"]},
    ]
    calls: list[Json] = [
        {"verb": "watch", "objectRef": {"resource": "nodes"}, "requestURI": "/api/v1/nodes?watch"},
        {"verb": "get", "objectRef": {"resource": "secrets"}, "requestURI": "/api/v1/secrets/a"},
        {"verb": "get", "requestURI": "/apis/apps/v1?timeout=32s"},
    ]
    assert unused_rights(rules, calls) == ["secrets.", "/readyz"]


# --- a right is missing


async def test_a_right_that_is_taken_away_is_shown_while_the_watch_is_open_and_all_else_goes_on(
    member: Member,
    reader: Reader,
    backend: Backend,
    ledger: Ledger,
    database_url: str,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    """After the watch has broken, too; and when the right is given back, the objects that came
    meanwhile are read."""
    place = "one-right"
    member.apply(namespace(place), node(f"{place}-n"), service(place, "first"))
    async with (
        Breaking(member, "collector") as door,
        collecting(
            backend,
            ledger,
            topic_prefix,
            tmp_path / "clusters",
            member,
            access=door.access,
            settings={"rights_review_s": REVIEW_S},
            lease_s=2,
        ) as collector,
    ):
        await shows(collector, [])
        await eventually(lambda: _has(collector, place, {"first"}))
        reader.give(collector_rules(k for k in SERVED if k.kind != "Service"))
        await shows(collector, ["Service"])
        broken = [kind for kind, why in read_by(collector).broken.items() if why]
        assert broken == [], "the review has noticed it, and not the end of a watch"
        said = await asyncio.to_thread(get_clusters, database_url, tmp_path)
        assert "may not read Service" in said
        door.cut()
        member.apply(pod(place, "later", f"{place}-n"), service(place, "second"))

        async def pod_is_known() -> bool:
            return "later" in {found.name for found in (await collector.pods()).values()}

        await eventually(pod_is_known)
        await eventually(lambda: refused_watches(collector) == ["Service"])
        assert await services(collector, place) == {"first"}, "what was known stays"
        reader.give(collector_rules(SERVED))
        await shows(collector, [])
        await eventually(lambda: _has(collector, place, {"first", "second"}))
        said = await asyncio.to_thread(get_clusters, database_url, tmp_path)
        assert member.name in said
        assert "may not read" not in said


async def _has(collector: Collecting, place: str, names: set[str]) -> bool:
    return await services(collector, place) == names


async def test_each_rule_that_is_taken_away_is_shown_with_all_its_kinds(
    member: Member,
    reader: Reader,
    backend: Backend,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    rules = collector_rules(SERVED)
    async with collecting(
        backend,
        ledger,
        topic_prefix,
        tmp_path,
        member,
        access=reader.access,
        settings={"rights_review_s": REVIEW_S},
    ) as collector:
        await shows(collector, [])
        for rule in rules:
            reader.give([other for other in rules if other is not rule])
            groups = cast("list[str]", rule.get("apiGroups", []))
            await shows(collector, sorted({k.kind for k in SERVED if k.group in groups}))
        reader.give(rules)
        await shows(collector, [])
        assert not any(read_by(collector).broken.values())


@pytest.mark.parametrize("missing", ["Node", "Namespace"])
async def test_a_cluster_that_was_refused_from_the_start_says_so_and_is_read_once_it_may_be(
    missing: str,
    member: Member,
    reader: Reader,
    backend: Backend,
    ledger: Ledger,
    database_url: str,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    """Without the right to read namespaces it is not even known which cluster it is."""
    member.apply(node("refused-n"))
    reader.give(collector_rules(k for k in SERVED if k.kind != missing))
    async with collecting(
        backend,
        ledger,
        topic_prefix,
        tmp_path / "clusters",
        member,
        access=reader.access,
        settings={"rights_review_s": REVIEW_S},
    ) as collector:
        await shows(collector, [missing])
        (cluster,) = await collector.clusters()
        assert [taint.key for taint in cluster.taints] == ["wharfinger.io/not-read"]
        assert await collector.nodes() == {}
        said = await asyncio.to_thread(get_clusters, database_url, tmp_path)
        assert f"may not read {missing}" in said
        reader.give(collector_rules(SERVED))

        async def read() -> bool:
            (cluster,) = await collector.clusters()
            return not cluster.taints and "refused-n" in await collector.nodes()

        await eventually(read)
        await shows(collector, [])
