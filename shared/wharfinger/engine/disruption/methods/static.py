"""*Static pools* have a fixed number of nodes: drifted nodes are replaced one for one, and surplus
nodes are removed, the lowest disruption cost first. [Karpenter]"""

from __future__ import annotations

from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.engine.disruption.candidates import CandidateNode
from wharfinger.engine.disruption.cluster_snapshot import DisruptionVerdict
from wharfinger.engine.disruption.consolidation_pass import ConsolidationPass
from wharfinger.engine.disruption.methods.drift import oldest_first
from wharfinger.engine.disruption.methods.forced import replace_at_any_price


def find(run: ConsolidationPass) -> None:
    drifted = [looked for looked in run.open("static-drift") if looked.drifted]
    for looked in sorted(drifted, key=oldest_first):
        replace_at_any_price(run, looked, "static-drift")
    for pool in run.scene.pools:
        if pool.replicas is not None:
            _scale_down(run, pool, pool.replicas)


def _scale_down(run: ConsolidationPass, pool: NodePoolPolicy, replicas: int) -> None:
    there = [n for n in run.review.nodes.values() if n.pool is pool and not run.leaves(n)]
    on_their_way = sum(claim.pool == pool.name for claim in run.scene.in_flight)
    too_many = len(there) + on_their_way - replicas
    candidates = [n for n in run.open("static-scale-down") if n.pool is pool]
    for looked in sorted(candidates, key=lambda n: (n.cost, n.name)):
        if too_many <= 0:
            return
        too_many -= replace_at_any_price(run, looked, "static-scale-down")


def not_too_many(run: ConsolidationPass, looked: CandidateNode) -> DisruptionVerdict | None:
    there = [n for n in run.review.nodes.values() if n.pool is looked.pool and not run.leaves(n)]
    if len(there) <= (looked.pool.replicas or 0):
        return DisruptionVerdict(
            looked.name, "Needed", f"pool {looked.pool.name} has no node too many"
        )
    return None
