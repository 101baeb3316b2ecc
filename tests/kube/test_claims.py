"""Open claims become NodeClaims of Karpenter, each made once; those that end without a node are
deleted, and NodeClaims of others are left alone."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from tests.apps import a_context, running
from tests.kube.acting import Audit, grant, join_for_writing
from tests.kube.member import Json, Member
from tests.kube.service_process import ServiceProcess, ServiceStart
from tests.kube.test_hub import CRDS
from tests.patience import eventually, until
from tests.told_plane import SECOND, START, ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.actuation import Verb
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.events.intake import compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.history.node_claims import OPEN, requested_claims
from wharfinger.manifests.parse import load_files
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.kubeconfig import read_kubeconfig
from wharfinger.runtime.kube.rights import LEASE, NAMESPACE, actuator_rules, own_rules
from wharfinger_actuator.app import ActuatorService
from wharfinger_actuator.hub import HubWriter
from wharfinger_cli.catalogue_files import read
from wharfinger_cli.catalogue_terms import CatalogueTerms
from wharfinger_cli.instance_types import parts_of

EXAMPLES = Path(__file__).parents[2] / "examples" / "karpenter"
AGGREGATED = a_policy("p", Placement(replicas=ReplicaScheduling("Divided", "Aggregated")))
VERBS: tuple[Verb, ...] = ("claims",)
THEIRS = "made-by-others"
KILLS = int(os.environ.get("WHARFINGER_TEST_CLAIM_KILLS", "17"))
"""Of the actuator, which has a writer for each of three clusters: 51 writers are killed."""
SEED = int(os.environ.get("WHARFINGER_TEST_SEED", "17"))
WORK_S_MAX = 0.4
"""A killed actuator has been ready for at most so long."""


@pytest_asyncio.fixture
async def plane(database_url: str) -> AsyncIterator[ToldPlane]:
    told = await ToldPlane.opened(database_url)
    yield told
    await told.ledger.close()


def claims(member: Member) -> dict[str, Json]:
    found = member.items("nodeclaims.karpenter.sh")
    return {one["metadata"]["name"]: one for one in found}


def a_claim(name: str) -> Json:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "x"},
            "requirements": [],
        },
    }


async def _ask(plane: ToldPlane, cluster: str) -> set[str]:
    """Replicas that fit on no node; the names of the claims for them."""
    await plane.tell(AGGREGATED, *_types(), _pool(), a_cluster(cluster))
    await plane.tell(*nodes(cluster, "n-1", cpu=1000))
    await plane.tell(a_binding("web", 12, AGGREGATED, cpu=3000))
    return await _open(plane, cluster)


def _types() -> list[PolicyApplied]:
    catalogue = read([EXAMPLES / "instance-types.csv"], "auto", CatalogueTerms()).types
    return [PolicyApplied(part) for part in parts_of("default", catalogue)]


def _pool() -> PolicyApplied:
    (found,) = (
        fact.data
        for fact in compile_manifests(load_files([EXAMPLES]).manifests).facts
        if isinstance(fact.data, PolicyApplied) and fact.data.policy.name == "general"
    )
    return found


async def _open(plane: ToldPlane, cluster: str) -> set[str]:
    found = await requested_claims(plane.ledger, cluster)
    return {one.claim.claim for one in found if one.state == OPEN}


def _has_listed(service: ActuatorService) -> bool:
    """It has seen the claims that are there: only then a deletion is one to it."""
    sinks = [
        sink
        for one in service._running.values()
        if isinstance(one.writer, HubWriter)
        for sink in one.writer._mirrors
    ]
    return bool(sinks) and all(sink.listed for sink in sinks)


@pytest.fixture
def _karpenter(member: Member) -> Iterator[None]:
    with with_karpenter([member]):
        yield


@contextmanager
def with_karpenter(members: Sequence[Member]) -> Iterator[None]:
    """The servers have Karpenter's kinds meanwhile."""
    for member in members:
        member.kubectl("apply", "--server-side", "-f", str(CRDS / "karpenter.yaml"))
        member.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    yield
    for member in members:
        member.kubectl("delete", "-f", str(CRDS / "karpenter.yaml"))
    until(lambda: not any("karpenter.sh" in m.kubectl("api-versions") for m in members))


@pytest.mark.usefixtures("_karpenter")
async def test_a_claim_is_made_once_and_goes_when_it_ends(
    member: Member, backend: Backend, topic_prefix: str, plane: ToldPlane, tmp_path: Path
) -> None:
    grant(member, VERBS)
    member.apply(a_claim(THEIRS))
    join_for_writing(tmp_path, member, VERBS)
    asked = await _ask(plane, member.name)
    assert asked
    audit = Audit(member)
    context = replace(
        await a_context(backend, plane.ledger, topic_prefix, clusters=tmp_path),
        clock=lambda: plane.time.at,
    )
    async with running(ActuatorService(context)):
        await eventually(lambda: audit.writes("nodeclaims"))
    # Ended in between; another one begins with nothing.
    second = ActuatorService(context)
    async with running(second):
        await eventually(lambda: claims(member).keys() == {*asked, THEIRS})
        await eventually(lambda: _has_listed(second))
        one = claims(member)[min(asked)]
        assert one["metadata"]["labels"]["wharfinger.io/node-claim"] == min(asked)
        assert one["spec"]["nodeClassRef"]["kind"] == "KWOKNodeClass"
        # What others delete is not made a second time.
        member.kubectl("delete", "nodeclaims.karpenter.sh", min(asked))
        await asyncio.sleep(1.0)
        assert min(asked) not in claims(member)
        # Nobody makes the nodes.
        await plane.wait(3600)
        # What is asked for instead may be there before these have gone.
        await eventually(lambda: not asked & claims(member).keys())
        assert THEIRS in claims(member)
    # A request that was cut off is sent once more, and the server answers that the claim is there.
    made = [(name, code) for verb, name, code in audit.writes("nodeclaims") if verb == "create"]
    assert {name for name, _ in made} >= asked
    assert max(Counter(name for name, code in made if code == 201).values()) == 1
    deleted = {name for verb, name, _ in audit.writes("nodeclaims") if verb == "delete"}
    assert deleted & {*asked, THEIRS} == asked - {min(asked)}
    assert audit.unused([*actuator_rules(VERBS), *own_rules()]) == []


async def test_a_claim_is_made_once_however_often_its_writer_is_killed(
    members: list[Member],
    backend: Backend,
    database_url: str,
    topic_prefix: str,
    plane: ToldPlane,
    tmp_path: Path,
) -> None:
    """kill -9 of the actuator, which writes the claims of every cluster, at random moments while
    new ones are asked for."""
    chance = random.Random(SEED)
    joined = tmp_path / "joined"
    joined.mkdir()
    # The process has the time of the database.
    await plane.wait(time.time() - START / SECOND)
    await plane.tell(*_types(), _without_limits(_pool()))
    policies = {}
    for member in members:
        grant(member, VERBS)
        join_for_writing(joined, member, VERBS)
        there = Placement((ClusterAffinity(cluster_names=(member.name,)),))
        policies[member.name] = a_policy(member.name, there)
        await plane.tell(policies[member.name], a_cluster(member.name))
        await plane.tell(*nodes(member.name, "n-1", cpu=1000))
    audits = {member.name: Audit(member) for member in members}
    log = tmp_path / "actuator.log"
    with with_karpenter(members):
        process = ServiceProcess(
            ServiceStart("actuator", backend, database_url, topic_prefix, joined, log)
        )
        try:
            for number in range(KILLS):
                if chance.random() < 0.75:
                    await eventually(process.ready, process.words)
                asked = (a_binding(f"{n}-{number}", 1, p, 7000) for n, p in policies.items())
                await plane.tell(*asked, after_s=0.01)
                await asyncio.sleep(chance.uniform(0.0, WORK_S_MAX))
                assert process.kill(), process.words()
                process.skip()
                await asyncio.gather(*(_drop_lease(member) for member in members))
                process.start()
            for member in members:
                wanted = await _open(plane, member.name)
                assert len(wanted) >= KILLS // 2
                await eventually(lambda m=member, w=wanted: claims(m).keys() == w, process.words)
        finally:
            process.end()
    for member in members:
        writes = audits[member.name].writes("nodeclaims")
        made = Counter(name for verb, name, code in writes if (verb, code) == ("create", 201))
        assert max(made.values()) == 1
        assert {verb for verb, _, _ in writes} == {"create"}, "none goes while it is asked for"
    print(f"{KILLS} kills by seed {SEED}: {made.total()} claims made in {members[-1].name}")


def _without_limits(pool: PolicyApplied) -> PolicyApplied:
    assert pool.policy.node_pool is not None
    unlimited = msgspec.structs.replace(pool.policy.node_pool, limits={})
    return PolicyApplied(msgspec.structs.replace(pool.policy, node_pool=unlimited))


async def _drop_lease(member: Member) -> None:
    """The successor of a killed actuator would wait for 15 s."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
    async with KubeApi(read_kubeconfig(member.kubeconfig())) as api:
        try:
            await api.request("DELETE", path)
        except ApiError as error:
            if error.code != 404:
                raise
