"""A node of a real cluster goes: the pods that the plane has bound there are evicted within their
budget, and their successors are bound elsewhere. The referees are kubectl and the audit log."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from tests.kube.acting import Audit, a_plane, decided, grant, join_for_writing
from tests.kube.collecting import node
from tests.kube.member import Json, Member, namespace
from tests.kube.replaying import replayed
from tests.kube.test_pod_placing import deployment
from tests.patience import eventually

from wharfinger.answers.submit import submission
from wharfinger.domain.actuation import Verb
from wharfinger.domain.instance_types import Catalogue, InstanceType, Offering
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INITIALIZED_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_LABEL,
    NodeBudget,
    NodePoolPolicy,
)
from wharfinger.domain.policy import Policy
from wharfinger.events.accepted import accepted
from wharfinger.events.policies import PolicyApplied
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger

HOME, PODS = "draining", 4
NODES = ("draining-1", "draining-2")
VERBS: tuple[Verb, ...] = ("bind", "evict", "nodes")
LARGE = InstanceType(
    "large",
    {"cpu": 8000, "memory": 32 << 30, "pods": 110},
    offerings=(Offering("z1", "on-demand", 400_000_000),),
)
POOL = NodePoolPolicy(
    "general", 0, consolidation="WhenEmptyOrUnderutilized", budgets=(NodeBudget("100%"),)
)
BUDGET: Json = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web", "namespace": HOME},
    "spec": {"minAvailable": PODS - 1, "selector": {"matchLabels": {"app": "web"}}},
}


def a_node(name: str) -> Json:
    return node(
        name,
        pool=HOME,
        **{
            POOL_LABEL: POOL.name,
            INSTANCE_TYPE_LABEL: LARGE.name,
            CAPACITY_TYPE_LABEL: "on-demand",
            INITIALIZED_LABEL: "true",
        },
    )


def on_nodes(member: Member) -> Counter[str]:
    """Node -> ready pods; "" -> those that are not."""
    return Counter(
        pod["spec"].get("nodeName", "") if _ready(pod) else ""
        for pod in member.items("pods", "-n", HOME)
    )


def _ready(pod: Json) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


async def test_a_node_that_goes_is_emptied_within_the_budget(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    grant(member, VERBS)
    member.apply(namespace(HOME), BUDGET, *(a_node(name) for name in NODES))
    join_for_writing(tmp_path, member, VERBS)
    audit = Audit(member)
    async with a_plane(
        backend,
        database_url,
        topic_prefix,
        tmp_path,
        disruption_validation_s=1,
        disruption_poll_s=1,
    ):
        member.apply(deployment(PODS, "500m", HOME))
        await eventually(lambda: on_nodes(member) == dict.fromkeys(NODES, PODS // 2))
        bound = len(audit.writes("pods/binding"))
        pool = PolicyApplied(Policy("NodePool", POOL.name, node_pool=POOL))
        types = PolicyApplied(
            Policy("InstanceTypes", "0", "default", catalogue=Catalogue("default", (LARGE,)))
        )
        await ledger.accept([submission(accepted(fact), None) for fact in (pool, types)])

        async def together() -> bool:
            there = await asyncio.to_thread(on_nodes, member)
            return sorted(there.values()) == [PODS] and "" not in there

        await eventually(together, lambda: on_nodes(member))
        await eventually(lambda: decided(ledger, f"cluster/{member.name}", "done"))
    (left,) = on_nodes(member)
    (gone,) = {*NODES} - {left}
    evicted = [name for _, name, code in audit.writes("pods/eviction") if code == 201]
    assert len(evicted) == len({*evicted}) == PODS // 2
    again = [name for _, name, code in audit.writes("pods/binding")[bound:] if code == 201]
    assert len(again) == PODS // 2
    assert ("patch", gone, 200) in audit.writes("nodes"), "it is cordoned first"
    assert replayed(database_url, tmp_path) > PODS
    member.kubectl("delete", "deployment", "web", "-n", HOME)
    member.kubectl("delete", "node", *NODES)
