"""A cluster stream with pools, for stories and laws: what can be bought, a provider who brings it,
kubelets who run what is placed, and somebody who proposes what could go.

The provider, the kubelets and the proposals are played by the test, from what was decided only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from tests.cluster_world import CLUSTER, GIB, STREAM, Harness

from wharfinger.domain.cluster_objects import DisruptionBudget, NodeClaimStatus
from wharfinger.domain.instance_types import (
    PRICE_UNIT,
    CapacityType,
    Catalogue,
    InstanceType,
    Offering,
)
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import NodeBudget, NodePoolPolicy
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.policy import Policy
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption import methods
from wharfinger.engine.disruption.cluster_snapshot import Command
from wharfinger.engine.provisioning.simulated_nodes import by_name, delivered
from wharfinger.events.cluster_state import ObjectsObserved, PodsObserved, into_buckets
from wharfinger.events.decisions import NodeClaimRequested, NodeRemovalDecided
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import DeschedulingProposed, DisruptionProposed, NewNode, Unseating
from wharfinger.kernel.decider import Decision
from wharfinger.stages.cluster.cluster_snapshot import scene
from wharfinger.stages.cluster_snapshots import contents_of

DOLLAR = PRICE_UNIT
ALL = (NodeBudget("100%"),)


def a_type(
    name: str,
    cpu: int,
    price: int,
    zones: Sequence[str] = ("a", "b"),
    capacity_type: CapacityType = "on-demand",
) -> InstanceType:
    """`cpu`: cores; four times as many GiB. `price`: thousandths of a dollar an hour."""
    offerings = tuple([Offering(zone, capacity_type, price * DOLLAR // 1000) for zone in zones])
    capacity = {"cpu": cpu * 1000, "memory": 4 * cpu * GIB, "pods": 110}
    return InstanceType(name, capacity, {}, {"kubernetes.io/arch": ("amd64",)}, offerings)


SMALL, BIG = a_type("small", 2, 100), a_type("big", 8, 380)


def a_pool(name: str = "default", **said: object) -> NodePoolPolicy:
    """Consolidated at once, as much as pays."""
    defaults: dict[str, object] = {
        "empty_after_s": 0,
        "consolidation": "WhenEmptyOrUnderutilized",
        "budgets": ALL,
        "digest": f"{name}-1",
    }
    return msgspec.convert(
        {"name": name, **msgspec.to_builtins({**defaults, **said})}, NodePoolPolicy
    )


def pool_policy(pool: NodePoolPolicy) -> PolicyApplied:
    return PolicyApplied(Policy("NodePool", pool.name, node_pool=pool))


def catalogue_policy(types: Sequence[InstanceType], name: str = "default") -> PolicyApplied:
    return PolicyApplied(
        Policy("InstanceTypes", "0", name, catalogue=Catalogue(name, tuple(types)))
    )


def no_pool(name: str) -> PolicyRemoved:
    return PolicyRemoved("NodePool", name)


def wants(cpu: int, app: str = "", **traits: object) -> Requirements:
    """One replica. `app`: its label, by which budgets find it."""
    pod = PodTraits(labels={"app": app} if app else {}, namespace="shop", **traits)  # type: ignore[arg-type]
    return Requirements({"cpu": cpu, "memory": GIB}, pod=pod)


def a_budget(app: str, allowed: int | None = None, max_unavailable: str = "1") -> DisruptionBudget:
    """For the pods of `app`. `allowed`: as the cluster reports it."""
    selector = LabelSelector({"app": app})
    return DisruptionBudget("shop", app, selector, allowed, "", max_unavailable)


@dataclass
class PoolPlane(Harness):
    """`there`: the nodes as they are told. `types`: that can be bought."""

    there: dict[str, Node] = field(default_factory=dict)
    types: tuple[InstanceType, ...] = (SMALL, BIG)
    decided: list[Decision] = field(default_factory=list)

    def feed_events(self, events: Sequence[object], seconds: int = 0) -> list[Decision]:
        made = super().feed_events(events, seconds)  # type: ignore[arg-type]
        self.decided += made
        return made

    # --- what is told

    def pools(self, *pools: NodePoolPolicy) -> PoolPlane:
        """And the catalogue, and a cluster without nodes."""
        self.feed(*[pool_policy(pool) for pool in pools], catalogue_policy(self.types))
        self.tell_nodes()
        return self

    def tell_nodes(self, *more: Value, seconds: int = 0) -> list[Decision]:
        return self.feed(
            *into_buckets(CLUSTER, list(self.there.values()), 2), *more, seconds=seconds
        )

    def add(self, *nodes: Node) -> list[Decision]:
        self.there.update({node.name: node for node in nodes})
        return self.tell_nodes()

    def drop(self, *names: str) -> list[Decision]:
        for name in names:
            self.there.pop(name, None)
        return self.tell_nodes()

    def budgets(self, *budgets: DisruptionBudget) -> list[Decision]:
        return self.feed(ObjectsObserved(CLUSTER, "PodDisruptionBudget", "shop", budgets))

    def claim_status(self, *statuses: NodeClaimStatus) -> list[Decision]:
        return self.feed(ObjectsObserved(CLUSTER, "NodeClaim", "", statuses))

    # --- the provider

    @property
    def claims(self) -> list[NodeClaimRequested]:
        """Those that are open, in the order in which they were asked for."""
        asked = [d.data for d in self.decided if isinstance(d.data, NodeClaimRequested)]
        return [claim for claim in asked if claim.claim in self.state.pools.claims]

    def node_for(self, claim: NodeClaimRequested) -> Node:
        node = delivered(claim, by_name(self.types), self.at)
        assert node is not None
        return node

    def deliver(self, *claims: NodeClaimRequested) -> list[Decision]:
        """All open ones where none are named."""
        return self.add(*[self.node_for(claim) for claim in claims or self.claims])

    def bought(
        self, kind: InstanceType = SMALL, pool: str = "default", number: int = 0, **labels: str
    ) -> Node:
        """A node of a pool that has been there before."""
        claim = NodeClaimRequested(
            CLUSTER,
            f"{kind.name}-{number}",
            pool,
            (),
            (kind.name,),
            {},
            {},
            0,
            0,
            annotations={"karpenter.sh/nodepool-hash": f"{pool}-1"},
        )
        node = delivered(claim, {kind.name: kind}, 1)
        assert node is not None
        own = {**node.labels, **labels}
        own.pop("wharfinger.io/node-claim")
        return msgspec.structs.replace(node, labels=own)

    def take_away(self) -> list[Decision]:
        """What was decided to go goes."""
        gone = {d.data.node for d in self.decided if isinstance(d.data, NodeRemovalDecided)}
        return self.drop(*[name for name in self.there if name in gone])

    # --- the kubelets

    def run_pods(self) -> list[Decision]:
        """Every node runs what is placed on it now."""
        return self.feed(*self.running_pods())

    def running_pods(self, of: Iterable[str] | None = None) -> list[Value]:
        book = self.state.book
        return [
            PodsObserved(
                CLUSTER, name, tuple([self.pod(*key) for key in sorted(book.on_node.get(name, ()))])
            )
            for name in sorted(self.there if of is None else of)
        ]

    def pod(self, binding: str, ordinal: int) -> Pod:
        replica = self.state.book.held[binding].placed[ordinal]
        upkeep = PodUpkeep((Owner("ReplicaSet", binding),))
        return Pod(
            f"{binding}-{ordinal}@{replica.node}",
            f"{binding}-{ordinal}",
            replica.cls.requirements,
            "",
            binding,
            ordinal,
            upkeep=upkeep,
        )

    # --- what could go

    def survey(self) -> list[Command]:
        return list(methods.survey(scene(self.state, self.at)).commands)

    def proposed(self, found: Command, **other: object) -> DisruptionProposed:
        data = DisruptionProposed(
            STREAM,
            CLUSTER,
            found.method,
            found.nodes,
            {name: contents_of(self.state.book, name) for name in found.nodes},
            tuple(
                [
                    NewNode(
                        new.pool,
                        new.requirements,
                        new.instance_types,
                        dict(new.requests),
                        new.price,
                    )
                    for new in found.replacements
                ]
            ),
            found.saving,
            found.disruption,
            found.arithmetic,
        )
        return msgspec.structs.replace(data, **other)

    def disrupt(self, seconds: int = 60) -> list[Decision]:
        """After a while, all that could go is proposed."""
        self.at += seconds * 1_000_000
        self.state.at = self.at
        return self.feed(*[self.proposed(found) for found in self.survey()])

    def unseat(
        self, strategy: str, *seats: tuple[str, str, int], **other: object
    ) -> list[Decision]:
        """(node, binding, ordinal) each."""
        unseatings = tuple([Unseating(node, binding, ordinal) for node, binding, ordinal in seats])
        data = DeschedulingProposed(STREAM, CLUSTER, strategy, "test", unseatings)
        return self.feed(msgspec.structs.replace(data, **other))

    def told_by(self, decisions: Iterable[Decision]) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for decision in decisions:
            counts[decision.outcome] = counts.get(decision.outcome, 0) + 1
        return counts


def words(decisions: Iterable[Decision]) -> list[str]:
    """What was decided, in order, one word each."""
    return [decision.outcome for decision in decisions]
