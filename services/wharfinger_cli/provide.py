"""`provide`: stand in for the provider that creates nodes, as Karpenter's KWOK provider does.
Claims become nodes, and removed nodes disappear.

It follows the ledger, so it may be stopped and started at any time: it reads what was decided
meanwhile, and does nothing twice. It submits only node facts to the plane, as a collector would.
It creates no real machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from rich.text import Text

from wharfinger.answers.submit import submit
from wharfinger.domain.instance_types import InstanceType
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import CLAIM_LABEL, POOL_LABEL
from wharfinger.domain.value import stable_hash
from wharfinger.engine.provisioning.simulated_nodes import by_name, delivered
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.decisions import (
    BindingEnd,
    DisruptionCommand,
    DisruptionResult,
    HeartbeatEnd,
    NodeClaim,
    NodeClaimResult,
    NodeRemoval,
    PlanEnd,
    ProposalEnd,
    ReplicaChange,
    SelectionEnd,
    SelectionPart,
    TimeCorrection,
    effect_of,
    kinds_about,
)
from wharfinger.events.registry import types_of
from wharfinger.events.streams import CLUSTER
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import DecisionQuery, Ledger, wall_clock
from wharfinger.stages.pools import PoolPolicies
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.facts import LatestFacts, known_facts
from wharfinger_cli.output import DARK, GOOD, WARN, count, messages
from wharfinger_cli.request import Request

POLL_S = 0.25
_TYPES = types_of(*kinds_about("claim", "node"))


def provide(request: Request, delay_s: float, *, once: bool) -> None:
    run(_provide(request, delay_s, once=once))


async def _provide(request: Request, delay_s: float, *, once: bool) -> None:
    async with opened_ledger(reached(request)) as ledger:
        provider = LedgerProvider(ledger, delay_s)
        while True:
            for line in await provider.turn():
                messages().print(line)
            if once and not provider.waiting:
                return
            await asyncio.sleep(POLL_S)


@dataclass(slots=True)
class _Due:
    claim: NodeClaim
    at: Micros


@dataclass(slots=True)
class LedgerProvider:
    """`delay_s`: from claim to node. `waiting`: claims whose node has not come yet, by cluster and
    claim."""

    ledger: Ledger
    delay_s: float = 0.0
    waiting: dict[tuple[str, str], _Due] = field(default_factory=dict)
    _after: dict[str, int] = field(default_factory=dict)

    async def turn(self) -> list[Text]:
        """Do what is due, and say it."""
        gone = await self._read()
        now = wall_clock()
        due = [key for key, due in self.waiting.items() if due.at <= now]
        if not gone and not due:
            return []
        known = await known_facts(self.ledger)
        said: list[Text] = []
        facts: list[Accepted] = []
        for cluster, name in gone:
            facts += _without(known, cluster, name)
            said.append(Text(f"{cluster}: {name} is gone", DARK))
        await submit(self.ledger, facts, known)
        for key in due:
            said.append(await self._make(known, self.waiting.pop(key).claim, now))
        return said

    async def _read(self) -> list[tuple[str, str]]:
        """Take in what was decided; the nodes that go."""
        gone: list[tuple[str, str]] = []
        async for row in self.ledger.decisions(
            DecisionQuery(CLUSTER, types=_TYPES, after=self._after)
        ):
            self._after[row.stream] = row.seq
            match effect_of(row.data()):
                case NodeClaim() as claim:
                    self.waiting[(claim.cluster, claim.claim)] = _Due(
                        claim, row.at + int(self.delay_s * 1e6)
                    )
                case NodeClaimResult() as ended:
                    self.waiting.pop((ended.cluster, ended.claim), None)
                    if ended.outcome != "registered":
                        gone.append((ended.cluster, ended.claim))  # if it was made all the same
                case NodeRemoval() as removed:
                    gone.append((removed.cluster, removed.node))
                case (
                    BindingEnd()
                    | HeartbeatEnd()
                    | ReplicaChange()
                    | DisruptionCommand()
                    | DisruptionResult()
                    | SelectionPart()
                    | SelectionEnd()
                    | ProposalEnd()
                    | PlanEnd()
                    | TimeCorrection()
                    | None
                ):
                    pass  # not about machines
                case other:
                    assert_never(other)
        return gone

    async def _make(self, known: LatestFacts, claim: NodeClaim, now: Micros) -> Text:
        if any(
            node.labels.get(CLAIM_LABEL) == claim.claim
            for node in known.nodes.get(claim.cluster, ())
        ):
            return Text(f"{claim.cluster}: {claim.claim} is there already", DARK)
        node = delivered(claim, _types(known, claim), now)
        if node is None:
            return Text(
                f"{claim.cluster}: {claim.claim}: none of its instance types is to be had", WARN
            )
        await submit(self.ledger, [_with(known, claim.cluster, node)], known)
        kind = node.labels["node.kubernetes.io/instance-type"]
        held = count(sum(claim.replicas.values()), "replica")
        return Text(
            f"{claim.cluster}: {node.name} is ready, {kind} of pool {claim.pool} for {held}", GOOD
        )


def _types(known: LatestFacts, claim: NodeClaim) -> dict[str, InstanceType]:
    """Of the catalogue of the claim's pool; none where that is not there any more."""
    policies = PoolPolicies()
    for policy in known.policies:
        policies.applied(policy.key, policy)
    pool = policies.of(claim.cluster).get(claim.pool)
    return by_name(policies.types.get(pool.catalogue, ())) if pool is not None else {}


def _with(known: LatestFacts, cluster: str, node: Node) -> Accepted:
    buckets = known.buckets.get(cluster, 1)
    bucket = stable_hash(node.name) % buckets
    nodes = {there.name: there for there in _of_bucket(known, cluster, bucket)} | {node.name: node}
    return accepted(
        NodesObserved(cluster, bucket, buckets, tuple([nodes[name] for name in sorted(nodes)]))
    )


def _without(known: LatestFacts, cluster: str, name: str) -> Iterator[Accepted]:
    """Facts without the node, if it is there and of a pool, and without the pods that were seen on
    it."""
    for observed in list(known.of(NodesObserved)):
        going = next((node for node in observed.nodes if node.name == name), None)
        if observed.cluster == cluster and going is not None and POOL_LABEL in going.labels:
            rest = tuple([node for node in observed.nodes if node.name != name])
            yield accepted(NodesObserved(cluster, observed.bucket, observed.buckets, rest))
            if known.pods.get((cluster, name)):
                yield accepted(PodsObserved(cluster, name, ()))


def _of_bucket(known: LatestFacts, cluster: str, bucket: int) -> tuple[Node, ...]:
    for observed in known.of(NodesObserved):
        if observed.cluster == cluster and observed.bucket == bucket:
            return observed.nodes
    return ()
