"""Failover proposals for bindings in silent clusters.

A silent cluster may still run, so the fleet stage adds replicas elsewhere and releases nothing. It
is proposed until the binding has as many replicas in live clusters as it had in all.
"""

from __future__ import annotations

from wharfinger.events.proposals import FailoverProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.facts import ClusterFacts, DeschedulerState, as_id
from wharfinger.stages.descheduler.proposal_causes import ProposalCause
from wharfinger.stages.descheduler.taints import another_schedulers, priority


def changed(
    state: DeschedulerState, name: str, cluster: ClusterFacts, stream: str, at: Micros
) -> None:
    """Judges the bindings of the fleet stream `stream` in the cluster, after that stream marked the
    cluster silent or reachable. Bindings of other streams are not concerned, because each stream
    decides that for its own bindings."""
    for binding, share in cluster.shares.items():
        if share.stream == stream:
            judge(state, name, cluster, binding, at)


def judge(
    state: DeschedulerState, name: str, cluster: ClusterFacts, binding: str, at: Micros
) -> None:
    share, spread = cluster.shares[binding], state.spreads[binding]
    decision = cluster.silenced.get(share.stream)
    if share.live != (decision is None):
        share.live = decision is None
        spread.live += share.replicas if share.live else -share.replicas
    standing = state.causes.active.get(("failover", name, binding))
    if decision is None or another_schedulers(state.bindings.get(binding)):
        state.causes.remove(("failover", name, binding))
    elif standing is None or standing.by != as_id(decision):
        # a cause that stands knows what there was before it
        proposal = FailoverProposed(share.stream, binding, name, f"cluster {name} is silent")
        origin, wanted = f"{decision} {share.since.by}", spread.live + share.replicas
        important = priority(state.bindings.get(binding), share)
        cause = ProposalCause(
            "failover", name, binding, proposal, origin, origin, as_id(decision), important, wanted
        )
        state.causes.stand(cause, at, at)


def made_up_for(state: DeschedulerState, cause: ProposalCause) -> bool:
    """Returns whether the lost replicas are replaced: live clusters hold as many replicas of the
    binding as before the silence, or as many as a divided binding requests now."""
    wanted, facts = cause.live_wanted, state.bindings.get(cause.target)
    if facts is not None and facts.placement.replicas.type == "Divided" and not facts.components:
        wanted = min(wanted, facts.replicas)
    return state.spreads[cause.target].live >= wanted
