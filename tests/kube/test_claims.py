"""Open claims become NodeClaims of Karpenter, each made once; those that end without a node are
deleted, and NodeClaims of others are left alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from tests.apps import a_context, running
from tests.kube.acting import Audit, grant, join_for_writing
from tests.kube.member import Json, Member
from tests.kube.test_hub import CRDS
from tests.patience import eventually, until
from tests.told_plane import ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.actuation import Verb
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.events.intake import compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.history.node_claims import OPEN, requested_claims
from wharfinger.manifests.parse import load_files
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.rights import actuator_rules, own_rules
from wharfinger_actuator.app import ActuatorService
from wharfinger_actuator.hub import HubWriter
from wharfinger_cli.catalogue_files import read
from wharfinger_cli.catalogue_terms import CatalogueTerms
from wharfinger_cli.instance_types import parts_of

EXAMPLES = Path(__file__).parents[2] / "examples" / "karpenter"
AGGREGATED = a_policy("p", Placement(replicas=ReplicaScheduling("Divided", "Aggregated")))
VERBS: tuple[Verb, ...] = ("claims",)
THEIRS = "made-by-others"


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
    catalogue = read([EXAMPLES / "instance-types.csv"], "auto", CatalogueTerms()).types
    facts = compile_manifests(load_files([EXAMPLES]).manifests).facts
    pools = [
        fact.data
        for fact in facts
        if isinstance(fact.data, PolicyApplied) and fact.data.policy.name == "general"
    ]
    types = [PolicyApplied(part) for part in parts_of("default", catalogue)]
    await plane.tell(AGGREGATED, *types, *pools, a_cluster(cluster))
    await plane.tell(*nodes(cluster, "n-1", cpu=1000))
    await plane.tell(a_binding("web", 12, AGGREGATED, cpu=3000))
    found = await requested_claims(plane.ledger)
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
    """The server has Karpenter's kinds while the test runs."""
    member.kubectl("apply", "--server-side", "-f", str(CRDS / "karpenter.yaml"))
    member.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    yield
    member.kubectl("delete", "-f", str(CRDS / "karpenter.yaml"))
    until(lambda: "karpenter.sh" not in member.kubectl("api-versions"))


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
