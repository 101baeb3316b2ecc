"""Scenes for tests of disruption: machines at round prices, nodes and pods in one line each, and a
cluster that obeys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from tests.pools import GIB, ZONES, a_type, offered

from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INITIALIZED_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
    NodeBudget,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption.cluster_snapshot import (
    ClusterSnapshot,
    Command,
    ConsolidationResult,
    DisruptionVerdict,
)
from wharfinger.engine.provisioning.problem import InFlight
from wharfinger.engine.provisioning.requirements import LabelSet

HOUR = 3600 * 1_000_000
AT = 1_000_000 * HOUR
SMALL = a_type("m5.large", 2, 8, offered(0.096, 0.04))
MIDDLE = a_type("m5.xlarge", 4, 16, offered(0.192, 0.08))
LARGE = a_type("m5.2xlarge", 8, 32, offered(0.384, 0.16))
TYPES: tuple[InstanceType, ...] = (SMALL, MIDDLE, LARGE)
UPKEEP = PodUpkeep(owners=(Owner("ReplicaSet", "rs"),))
FREELY = (NodeBudget("100%"),)
ON_DEMAND = (PoolRequirement(CAPACITY_TYPE_LABEL, "In", ("on-demand",)),)


def a_pool(name: str = "general", **said: Any) -> NodePoolPolicy:
    """Bought on demand, consolidated at once and without limits, where nothing else is said."""
    said = {
        "requirements": ON_DEMAND,
        "empty_after_s": 0,
        "consolidation": "WhenEmptyOrUnderutilized",
        "budgets": FREELY,
        **said,
    }
    return NodePoolPolicy(name, **said)


def a_node(
    name: str,
    kind: InstanceType = MIDDLE,
    zone: str = ZONES[0],
    bought: str = "on-demand",
    pool: str = "general",
    **said: Any,
) -> Node:
    labels = {
        POOL_LABEL: pool,
        INSTANCE_TYPE_LABEL: kind.name,
        ZONE_LABEL: zone,
        CAPACITY_TYPE_LABEL: bought,
        INITIALIZED_LABEL: "true",
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        **said.pop("labels", {}),
    }
    return Node(
        name, dict(kind.allocatable), labels=labels, **{"created_us": AT - 24 * HOUR, **said}
    )


def a_pod(
    name: str,
    node: str,
    cpu: float = 1.0,
    gib: float = 1.0,
    traits: PodTraits | None = None,
    **said: Any,
) -> Pod:
    """Of a ReplicaSet. `cpu` in cores."""
    traits = traits or PodTraits(labels={"app": name.rpartition("-")[0] or name})
    needs = {key: said.pop(key) for key in ("node_selector", "tolerations") if key in said}
    requirements = Requirements(
        {"cpu": round(cpu * 1000), "memory": round(gib * GIB)}, pod=traits, **needs
    )
    return Pod(f"uid-{name}", name, requirements, node, **{"upkeep": UPKEEP, **said})


def a_scene(
    nodes: Sequence[Node], pods: Iterable[Pod] = (), *pools: NodePoolPolicy, **said: Any
) -> ClusterSnapshot:
    return ClusterSnapshot(AT, nodes, tuple(pods), pools or (a_pool(),), {"default": TYPES}, **said)


def verdict_on(found: ConsolidationResult, node: str) -> DisruptionVerdict:
    return next(verdict for verdict in found.verdicts if verdict.node == node)


def going(found: ConsolidationResult) -> list[str]:
    """The nodes that go, in the order of their commands."""
    return [name for command in found.commands for name in command.nodes]


# --- a cluster that does what it is told


def new_node(
    name: str, command: Command, number: int, types: Iterable[InstanceType] = TYPES
) -> Node:
    """What becomes of a replacement: its cheapest type, where and as it is cheapest."""
    claim = command.replacements[number]
    allowed = LabelSet.of_pool(claim.requirements)
    kind = next(t for t in types if t.name == claim.instance_types[0])
    offers = [
        o
        for o in kind.offerings
        if allowed.of(ZONE_LABEL).allows(o.zone)
        and allowed.of(CAPACITY_TYPE_LABEL).allows(o.capacity_type)
    ]
    taken = min(offers, key=lambda o: (o.price, o.zone))
    said = {
        key: value
        for key in allowed
        if (value := allowed.of(key).only) is not None and key != "kubernetes.io/hostname"
    }
    return a_node(
        name, kind, taken.zone, taken.capacity_type, claim.pool, labels=said, created_us=AT
    )


def applied(
    scene: ClusterSnapshot, commands: Iterable[Command], at: int = AT + HOUR
) -> ClusterSnapshot:
    """All of them done: nodes gone, replacements there, pods where they were to go."""
    nodes = {node.name: node for node in scene.nodes}
    pods = {pod.uid: pod for pod in scene.pods}
    for command in commands:
        new = [f"new-{at // HOUR}-{command.nodes[0]}-{i}" for i in range(len(command.replacements))]
        for number, name in enumerate(new):
            nodes[name] = new_node(name, command, number)
        for move in command.moves:
            assert pods[move.pod].node == move.source
            target = new[int(move.target[4:])] if move.target.startswith("new:") else move.target
            assert target in nodes, f"{move} goes to a node that is there"
            pods[move.pod] = msgspec.structs.replace(pods[move.pod], node=target)
        for name in command.nodes:
            del nodes[name]
    left = [pod for pod in pods.values() if pod.node in nodes]
    return replace(scene, at=at, nodes=list(nodes.values()), pods=left)


def begun(scene: ClusterSnapshot, command: Command) -> ClusterSnapshot:
    """Decided and not done yet: its nodes are about to go, and what it moves has its place
    promised."""
    pods = {pod.uid: pod for pod in scene.pods}
    reserved = [
        msgspec.structs.replace(pods[move.pod], node=move.target)
        for move in command.moves
        if not move.target.startswith("new:")
    ]
    flying = [
        InFlight(
            f"claim-{command.nodes[0]}-{i}",
            claim.pool,
            claim.requirements,
            claim.instance_types,
            tuple(
                (pods[move.pod].requirements, 1)
                for move in command.moves
                if move.target == f"new:{i}"
            ),
        )
        for i, claim in enumerate(command.replacements)
    ]
    return replace(
        scene,
        disrupting={**scene.disrupting, **dict.fromkeys(command.nodes, "Underutilized")},
        reserved=(*scene.reserved, *reserved),
        in_flight=(*scene.in_flight, *flying),
    )


def price_of(scene: ClusterSnapshot) -> int:
    kinds = {kind.name: kind for kind in TYPES}
    total = 0
    for node in scene.nodes:
        labels = node.labels
        total += next(
            o.price
            for o in kinds[labels[INSTANCE_TYPE_LABEL]].offerings
            if o.zone == labels[ZONE_LABEL] and o.capacity_type == labels[CAPACITY_TYPE_LABEL]
        )
    return total
