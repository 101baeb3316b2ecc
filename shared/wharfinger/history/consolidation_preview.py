"""Which nodes consolidation could remove now, and why it keeps the others: a consolidation pass
over every cluster, under its present policies or under others.

The pass runs the same engine that proposes and checks disruptions, on a copy of each stream's
state. It writes nothing to the plane. A linear programme adds a lower bound of the cost of the same
pods; no decision uses that bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import POOL_LABEL, NodePoolPolicy
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Effect, first_untolerated
from wharfinger.engine.disruption.cluster_snapshot import ClusterSnapshot, ConsolidationResult
from wharfinger.engine.disruption.methods import survey
from wharfinger.engine.disruption.prices import NodePrices
from wharfinger.engine.provisioning.bound import PriceBounds, lower_bound
from wharfinger.engine.provisioning.problem import Problem, WantedPods
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.streams import CLUSTER, cluster_stream
from wharfinger.history.names import UnknownNameError
from wharfinger.history.states import state_at
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Ledger
from wharfinger.stages.cluster.cluster_snapshot import scene
from wharfinger.stages.cluster.inputs import take_policy
from wharfinger.stages.cluster.state import ClusterStageState
from wharfinger.stages.pools import goes_with_node


@dataclass(frozen=True, slots=True)
class ConsolidationPreview:
    """Of one cluster. `nodes`: of pools; `cost`: of those whose price is known, billionths of a
    dollar an hour; `unpriced`: how many others there are. `bound`: for how little all that is on
    them could be held at best; None where some price is not known."""

    cluster: str
    nodes: int
    cost: int
    unpriced: int
    survey: ConsolidationResult
    bound: PriceBounds | None = None

    @property
    def saving(self) -> int:
        return sum(command.saving for command in self.survey.commands)

    @property
    def after(self) -> int:
        """The cost when all that was found is done."""
        return self.cost - self.saving


async def outlooks(
    ledger: Ledger,
    at: Micros,
    cluster: str = "",
    policies: Sequence[Policy] = (),
    *,
    bounds: bool = True,
) -> list[ConsolidationPreview]:
    """Of one cluster or of all that have pools, in order of name. `policies`: as if they had just
    been applied.

    UnknownNameError: no such cluster."""
    streams = streams_asked(
        [head.stream for head in await ledger.heads() if head.stream.startswith(CLUSTER)], cluster
    )
    found: list[ConsolidationPreview] = []
    for stream in streams:
        stood = await state_at(ledger, stream)
        state = stood.state
        assert isinstance(state, ClusterStageState), "streams of clusters have such a state"
        for policy in policies:
            take_policy(state, PolicyApplied(policy))
        state.at = max(at, stood.head.at)
        seen = outlook(state.cluster, scene(state, state.at), bounds=bounds)
        if seen.nodes:
            found.append(seen)
    return found


def streams_asked(streams: Collection[str], cluster: str) -> list[str]:
    """Of the streams of clusters that of `cluster`, or all of them in order of name where it is
    empty. UnknownNameError: no such cluster."""
    if not cluster:
        return sorted(streams)
    if cluster_stream(cluster) not in streams:
        raise UnknownNameError(f"no cluster is called {cluster}")
    return [cluster_stream(cluster)]


def outlook(cluster: str, seen: ClusterSnapshot, *, bounds: bool = True) -> ConsolidationPreview:
    """What one scene comes to."""
    pools = {pool.name: pool for pool in seen.pools}
    cost = pool_cost(seen.nodes, pools, NodePrices.of(seen))
    priced = cost.nodes > cost.unpriced == 0
    bound = lower_bound(_held_anew(seen)) if bounds and priced else None
    return ConsolidationPreview(cluster, cost.nodes, cost.price, cost.unpriced, survey(seen), bound)


@dataclass(frozen=True, slots=True)
class PoolCost:
    """Of the nodes of all pools of a cluster: how many, what those of known price cost (billionths
    of a dollar an hour), and how many others there are."""

    nodes: int = 0
    price: int = 0
    unpriced: int = 0


def pool_cost(
    nodes: Iterable[Node], pools: Mapping[str, NodePoolPolicy], prices: NodePrices
) -> PoolCost:
    """`nodes`: of one cluster; those of no pool do not count. `pools`: by name."""
    bought = [
        prices.bought(node, pools[node.labels[POOL_LABEL]]).price
        for node in nodes
        if node.labels.get(POOL_LABEL, "") in pools
    ]
    known = [price for price in bought if price is not None]
    return PoolCost(len(bought), sum(known), len(bought) - len(known))


def _held_anew(seen: ClusterSnapshot) -> Problem:
    """All that nodes of pools hold, to be held by new nodes of the same pools; nodes of no pool
    stay as they are."""
    pools = {pool.name for pool in seen.pools}
    others = [node for node in seen.nodes if node.labels.get(POOL_LABEL, "") not in pools]
    names = {node.name for node in others}
    moving = [pod for pod in seen.pods if pod.node not in names and not goes_with_node(pod)]
    alike: dict[str, list[int]] = {}
    for place, pod in enumerate(moving):
        alike.setdefault(pod.requirements.pod_key, []).append(place)
    wanted = [
        WantedPods(key, moving[places[0]].requirements, len(places))
        for key, places in sorted(alike.items())
    ]
    kept = [node for node in others if _bears(node, wanted)]
    there = tuple([pod for pod in seen.pods if pod.node in names])
    return Problem(
        (*wanted, *seen.waiting),
        seen.pools,
        seen.types,
        seen.overlays,
        tuple(kept),
        there,
        seen.objects,
        sold_out=seen.sold_out,
        options=seen.options,
    )


def _bears(node: Node, wanted: Sequence[WantedPods]) -> bool:
    """Whether any of the pods could go there for all that its taints say: to the programme room is
    room."""
    hard: tuple[Effect, ...] = ("NoSchedule", "NoExecute")
    return not node.unschedulable and any(
        first_untolerated(node.taints, one.requirements.tolerations, hard) is None for one in wanted
    )
