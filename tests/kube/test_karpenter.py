"""Karpenter's own controllers carry out what is decided about nodes: its KWOK provider creates the
nodes of our NodeClaims, and takes them away when we delete those. The referees are the API server
and its audit log, in which we and Karpenter are two users.

Karpenter has a NodePool here too, so all of its own decisions are at work. They come to nothing:
the pool allows it no new node and no disruption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from infra.kube.cluster import kube_scheduler
from tests.kube.acting import WRITER, Audit, a_plane, decided, grant, join_for_writing, revoke
from tests.kube.karpenter import CLASS, USER, conditions, instance_types, karpenter_in
from tests.kube.member import Json, Member, namespace
from tests.kube.replaying import replayed
from tests.kube.test_claims import claims
from tests.kube.test_pod_placing import deployment
from tests.patience import eventually

from wharfinger.answers.submit import submission
from wharfinger.domain.actuation import Verb
from wharfinger.domain.node_pool import (
    CLAIM_LABEL,
    INITIALIZED_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_LABEL,
    NodeBudget,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.policy import Policy
from wharfinger.events.accepted import accepted
from wharfinger.events.node_rendering import node_pool
from wharfinger.events.policies import PolicyApplied
from wharfinger.history.node_claims import removed_nodes, requested_claims
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.service import ServiceContext
from wharfinger_cli.catalogue_files import read
from wharfinger_cli.catalogue_terms import CatalogueTerms
from wharfinger_cli.doctor_writes import write_states
from wharfinger_cli.instance_types import parts_of

HOME, THEIRS = "karpenter", "karpenter-theirs"
VERBS: tuple[Verb, ...] = ("bind", "evict", "nodes", "claims")
TYPE = "c-4x-amd64-linux"
"""Four cores, of which 3.9 are for pods."""
TEAM = "example.com/team"
POOL = NodePoolPolicy(
    "general",
    0,
    requirements=(
        PoolRequirement(INSTANCE_TYPE_LABEL, "In", (TYPE,)),
        PoolRequirement(TEAM, "In", ("north", "south")),
    ),
    labels={"pool": HOME},
    node_class=f"karpenter.kwok.sh/KWOKNodeClass/{CLASS}",
    expire_after_s=3600,
    consolidation="WhenEmptyOrUnderutilized",
    budgets=(NodeBudget("100%"),),
)


def their_pool(pool: NodePoolPolicy) -> Json:
    """The same for Karpenter, by which it may neither create nodes nor take any away."""
    found = node_pool(pool)
    found["spec"] |= {"limits": {"cpu": "0"}}
    found["spec"]["disruption"] |= {"budgets": [{"nodes": "0"}]}
    return found


async def tell(ledger: Ledger, pool: NodePoolPolicy) -> None:
    """The pool, and the instance types as Karpenter's provider has them."""
    catalogue = read([instance_types()], "auto", CatalogueTerms()).types
    facts = [PolicyApplied(part) for part in parts_of("default", catalogue)]
    facts.append(PolicyApplied(Policy("NodePool", pool.name, node_pool=pool)))
    await ledger.accept([submission(accepted(fact), None) for fact in facts])


@asynccontextmanager
async def a_plane_in(
    member: Member, backend: Backend, database_url: str, prefix: str, directory: Path
) -> AsyncIterator[ServiceContext]:
    """All services, with Karpenter in the member."""
    grant(member, VERBS)
    join_for_writing(directory, member, VERBS)
    try:
        with karpenter_in(member):
            async with a_plane(
                backend,
                database_url,
                prefix,
                directory,
                disruption_validation_s=1,
                disruption_poll_s=1,
            ) as context:
                yield context
    finally:
        revoke(member)


async def doctor_says(context: ServiceContext, database_url: str) -> tuple[str, ...]:
    """Of NodePools by which Karpenter decides too."""
    settings = context.settings.model_copy(update={"database": database_url})
    (written,) = await write_states(settings)
    assert not written.why
    assert not written.missing
    return written.pools


def theirs(cpu: str) -> Json:
    """A Deployment of one pod that kube-scheduler places. Two schedulers that fill one node at the
    same time could put too much on it."""
    found = deployment(1, cpu, THEIRS)
    spec = found["spec"]["template"]["spec"]
    del spec["schedulerName"]
    spec["nodeSelector"] = {"pool": HOME, TEAM: "south"}
    return found


def any_team(found: Json) -> Json:
    """Its pods require a node that says its team."""
    term = {"matchExpressions": [{"key": TEAM, "operator": "Exists"}]}
    found["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
    return found


def on_nodes(member: Member, home: str = HOME) -> Counter[str]:
    """Node -> running pods; "" -> those that do not run."""
    return Counter(
        pod["spec"].get("nodeName", "") if pod["status"]["phase"] == "Running" else ""
        for pod in member.items("pods", "-n", home)
        if "deletionTimestamp" not in pod["metadata"]
    )


def nodes_of_claims(member: Member) -> dict[str, Json]:
    """Name of a claim -> the node that has it as its label."""
    return {
        label: node
        for node in member.items("nodes")
        if (label := node["metadata"].get("labels", {}).get(CLAIM_LABEL))
    }


class Writes:
    """What we and Karpenter have written since this was made, and the server accepted."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._before = {user: len(member.audit(user)) for user in (WRITER, USER)}

    def of(self, resource: str, verb: str) -> list[tuple[str, str]]:
        """(user, name), in order."""
        calls = [
            call
            for user, before in self._before.items()
            for call in self._member.audit(user)[before:]
            if call["verb"] == verb and call["responseStatus"]["code"] < 300
        ]
        return [
            (call["user"]["username"], of.get("name", ""))
            for call in sorted(calls, key=lambda call: str(call["requestReceivedTimestamp"]))
            if (of := call.get("objectRef", {})).get("resource") == resource
        ]


async def test_karpenter_creates_and_removes_the_nodes_that_are_decided(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    member.apply(namespace(HOME), namespace(THEIRS))
    audit, writes = Audit(member), Writes(member)
    async with a_plane_in(member, backend, database_url, topic_prefix, tmp_path) as context:
        member.apply(their_pool(POOL))
        await tell(ledger, POOL)
        with kube_scheduler(member.directory):
            # Ours, and one of kube-scheduler that Karpenter would make a node for.
            member.apply(any_team(deployment(6, "1", HOME)), theirs("3"))
            await eventually(lambda: _runs(member, HOME, [3, 3]), lambda: _seen(member))
            await eventually(lambda: _runs(member, THEIRS, [1]), lambda: _seen(member))
            await eventually(lambda: _are_whole(member, 3), lambda: _seen(member))
            made = claims(member)
            teams = sorted(claim["metadata"]["labels"][TEAM] for claim in made.values())
            assert teams == ["north", "north", "south"]
            assert await doctor_says(context, database_url) == ()
            member.kubectl("scale", "deployment", "web", "-n", HOME, "--replicas=3")
            await eventually(lambda: _runs(member, HOME, [3]), lambda: _seen(member))
            await eventually(lambda: _are_made(member, 2), lambda: _seen(member))
            member.kubectl("delete", "deployment", "web", "-n", HOME)
            await eventually(lambda: _are_made(member, 1), lambda: _seen(member))
            assert _runs(member, THEIRS, [1])
            asked = {one.claim.claim for one in await requested_claims(ledger, member.name)}
            removed = await removed_nodes(ledger, member.name, 0)
            gone = {name for name, claim in made.items() if claim["status"]["nodeName"] in removed}
            created, deleted = writes.of("nodeclaims", "create"), writes.of("nodeclaims", "delete")
            assert sorted(created) == [(WRITER, name) for name in sorted(asked)]
            assert asked == made.keys()
            first = {name: user for user, name in reversed(deleted)}
            assert first == dict.fromkeys(gone, WRITER), "Karpenter deletes what is deleted already"
            assert Counter(user for user, _ in deleted)[WRITER] == len(gone) == 2
            assert {name for _, name in writes.of("nodes", "delete")} == removed.keys()
        member.kubectl("delete", "deployment", "web", "-n", THEIRS)
    assert set(audit.bindings().values()) == {1}
    assert [
        call for call in audit.calls() if call["responseStatus"]["code"] in (400, 403, 422)
    ] == []
    assert await decided(ledger, f"cluster/{member.name}", "failed") == []
    assert replayed(database_url, tmp_path) > 6


def _runs(member: Member, home: str, pods: list[int]) -> bool:
    found = on_nodes(member, home)
    return sorted(found.values()) == pods and "" not in found


def _are_made(member: Member, number: int) -> bool:
    """So many claims and as many nodes of claims."""
    nodes = nodes_of_claims(member)
    return claims(member).keys() == nodes.keys() and len(nodes) == number


def _are_whole(member: Member, number: int) -> bool:
    made, nodes = claims(member), nodes_of_claims(member)
    same = made.keys() == nodes.keys() and len(nodes) == number
    return same and all(_is_whole(made[name], node) for name, node in nodes.items())


def _is_whole(claim: Json, node: Json) -> bool:
    """All that Karpenter does for a node of its own has been done for this one."""
    labels, spec = node["metadata"]["labels"], node["spec"]
    return (
        {"Launched", "Registered", "Initialized"} <= conditions(claim)
        and "Drifted" not in conditions(claim)
        and claim["spec"]["expireAfter"] == "Never"
        and claim["status"]["nodeName"] == node["metadata"]["name"]
        and claim["status"]["providerID"] == spec["providerID"]
        and labels[POOL_LABEL] == POOL.name
        and labels[INSTANCE_TYPE_LABEL] == TYPE
        and labels[INITIALIZED_LABEL] == "true"
        and labels[TEAM] == claim["metadata"]["labels"][TEAM]
        and not spec.get("taints")
    )


def _seen(member: Member) -> object:
    said = {name: conditions(one) for name, one in claims(member).items()}
    return on_nodes(member, HOME), on_nodes(member, THEIRS), said, sorted(nodes_of_claims(member))


async def test_a_node_that_karpenter_cannot_create_is_given_up_at_once(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    """Karpenter deletes a claim for which its provider has no capacity. So it does without a node
    class of that name."""
    member.apply(namespace(HOME))
    writes = Writes(member)
    async with a_plane_in(member, backend, database_url, topic_prefix, tmp_path) as context:
        member.kubectl("delete", "kwoknodeclasses", CLASS)
        await tell(ledger, POOL)
        member.apply(deployment(1, "1", HOME))
        stream = f"cluster/{member.name}"
        await eventually(lambda: decided(ledger, stream, "failed"))
        (gone,) = await decided(ledger, stream, "failed")
        await eventually(lambda: not claims(member), lambda: _seen(member))
        (missing,) = await doctor_says(context, database_url)
        assert missing.startswith(f"there is no NodePool {POOL.name}: create it")
        member.apply(node_pool(POOL))
        (creates,) = await doctor_says(context, database_url)
        assert creates.startswith(f"Karpenter creates nodes of NodePool {POOL.name}: ")
        member.kubectl("delete", "deployment", "web", "-n", HOME)
    assert writes.of("nodeclaims", "create") == [(WRITER, gone.subject)]
    assert replayed(database_url, tmp_path) > 1
