"""NoExecute taints of clusters: which bindings have to leave because of them, and when.

Whether the cluster says the taint or a policy gives it by the cluster's condition is all the same.
"""

from __future__ import annotations

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Taint, Toleration, toleration_seconds
from wharfinger.engine.fleet.trigger import ours
from wharfinger.events.proposals import EvictionProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.causes import Cause
from wharfinger.stages.descheduler.facts import SECOND, ClusterFacts, DeschedulerState, Share, Sighting, as_id

_ANYTHING = Toleration(operator="Exists")


def fold_policy(state: DeschedulerState, policy: Policy, sighting: Sighting) -> None:
    """A policy that gives no taints takes back those that its key gave before."""
    if state.tainting.set(policy.key, policy.taints):
        for name in sorted(state.tainting.told):
            _see(state, state.tainting.judge(name), sighting)


def fold_cluster(state: DeschedulerState, observed: Cluster, sighting: Sighting) -> None:
    _see(state, state.tainting.tell(observed), sighting)


def _see(state: DeschedulerState, observed: Cluster, sighting: Sighting) -> None:
    cluster = state.cluster(observed.name)
    taints = {t: cluster.taints.get(t, sighting) for t in observed.taints if t.effect == "NoExecute"}
    if taints != cluster.taints:
        cluster.taints = taints
        for binding in cluster.shares:
            judge(state, observed.name, cluster, binding, sighting.at)


def judge(state: DeschedulerState, name: str, cluster: ClusterFacts, binding: str, at: Micros) -> None:
    """When the binding has to leave the cluster because of its taints, if ever.

    Each taint by itself, since they came at different times. A binding that came after the taint gets its full time: else
    it would be placed, evicted at once, and placed again. A binding whose tolerations are not known here is left alone.
    """
    facts, share = state.bindings.get(binding), cluster.shares[binding]
    tolerations = facts.placement.tolerations if facts is not None else (_ANYTHING,)
    ends: list[tuple[Micros, str, str]] = []
    for taint, sighting in cluster.taints.items():
        seconds = toleration_seconds((taint,), tolerations)
        if seconds is not None:
            ends.append((max(sighting.at, share.since.at) + seconds * SECOND, _text(taint), sighting.by))
    if not ends or another_schedulers(facts):
        state.causes.remove(("eviction", name, binding))
        return
    due, taint_text, by = min(ends)
    stay = share.since.by
    proposal = EvictionProposed(share.stream, binding, name, f"the taint {taint_text} is not tolerated any more")
    state.causes.stand(
        Cause("eviction", name, binding, proposal, f"{taint_text} {by} {stay}", stay, as_id(by), priority(facts, share)),
        due, at,
    )  # fmt: skip


def another_schedulers(facts: Binding | None) -> bool:
    """The fleet stage would refuse whatever is proposed about it."""
    return facts is not None and not ours(facts.scheduler)


def priority(facts: Binding | None, share: Share) -> int:
    return facts.priority if facts is not None else share.priority


def _text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
