"""Silent clusters: failover of each binding that a stream holds for lost with them.

Silent is not dead, so the fleet stage adds elsewhere and releases nothing. It is proposed until the binding has as much in
live clusters as it had.
"""

from __future__ import annotations

from wharfinger.events.proposals import FailoverProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.causes import Cause
from wharfinger.stages.descheduler.facts import ClusterFacts, DeschedulerState, as_id
from wharfinger.stages.descheduler.taints import another_schedulers, priority


def changed(state: DeschedulerState, name: str, cluster: ClusterFacts, stream: str, at: Micros) -> None:
    """`stream` silenced the cluster or heard from it again. That concerns the bindings it owns: no other stream may decide
    on them, and each stream finds out for itself."""
    for binding, share in cluster.shares.items():
        if share.stream == stream:
            judge(state, name, cluster, binding, at)


def judge(state: DeschedulerState, name: str, cluster: ClusterFacts, binding: str, at: Micros) -> None:
    share, spread = cluster.shares[binding], state.spreads[binding]
    decision = cluster.silenced.get(share.stream)
    if share.live != (decision is None):
        share.live = decision is None
        spread.live += share.replicas if share.live else -share.replicas
    standing = state.causes.standing.get(("failover", name, binding))
    if decision is None or another_schedulers(state.bindings.get(binding)):
        state.causes.remove(("failover", name, binding))
    elif standing is None or standing.by != as_id(decision):  # a cause that stands knows what there was before it
        proposal = FailoverProposed(share.stream, binding, name, f"cluster {name} is silent")
        origin, wanted = f"{decision} {share.since.by}", spread.live + share.replicas
        important = priority(state.bindings.get(binding), share)
        cause = Cause("failover", name, binding, proposal, origin, origin, as_id(decision), important, wanted)
        state.causes.stand(cause, at, at)


def made_up_for(state: DeschedulerState, cause: Cause) -> bool:
    """The binding has as many replicas in live clusters as before the silence, or as many as it asks for now."""
    wanted, facts = cause.live_wanted, state.bindings.get(cause.target)
    if facts is not None and facts.placement.replicas.type == "Divided" and not facts.components:
        wanted = min(wanted, facts.replicas)
    return state.spreads[cause.target].live >= wanted
