"""Taint manager for clusters: which bindings have to leave because of NoExecute taints, and when.
Taints reported by the cluster and taints from policies count alike."""

from __future__ import annotations

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Taint, Toleration, toleration_seconds
from wharfinger.domain.time import SECOND
from wharfinger.engine.fleet.trigger import ours
from wharfinger.events.proposals import EvictionProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.descheduler.facts import (
    ClusterFacts,
    DeschedulerState,
    Share,
    Sighting,
    as_id,
)
from wharfinger.stages.descheduler.proposal_causes import ProposalCause

_ANYTHING = Toleration(operator="Exists")


def fold_policy(state: DeschedulerState, policy: Policy, sighting: Sighting) -> None:
    """Folds a policy event: sets the taints that this policy gives to clusters. A policy that gives
    none any more loses the earlier ones."""
    if state.tainting.set(policy.key, policy.taints):
        for name in sorted(state.tainting.told):
            _see(state, state.tainting.judge(name), sighting)


def fold_cluster(state: DeschedulerState, observed: Cluster, sighting: Sighting) -> None:
    _see(state, state.tainting.tell(observed), sighting)


def _see(state: DeschedulerState, observed: Cluster, sighting: Sighting) -> None:
    cluster = state.cluster(observed.name)
    taints = {
        t: cluster.taints.get(t, sighting) for t in observed.taints if t.effect == "NoExecute"
    }
    if taints != cluster.taints:
        cluster.taints = taints
        for binding in cluster.shares:
            judge(state, observed.name, cluster, binding, sighting.at)


def judge(
    state: DeschedulerState, name: str, cluster: ClusterFacts, binding: str, at: Micros
) -> None:
    """Schedules the eviction of a binding from cluster `name` for the time at which the binding
    stops tolerating a NoExecute taint of the cluster (taint-based eviction). Clears a scheduled
    eviction that is not needed any more.

    For each taint, `tolerationSeconds` are counted from the later of two times: when the taint was
    added, and when the binding came to the cluster. The earliest end decides. Example: taint at
    10:00, binding at 10:02, 300 seconds: eviction at 10:07. If the arrival were ignored, a new
    binding would be evicted at once.

    Nothing is proposed if all taints are tolerated without limit, if another scheduler owns the
    binding, or if the tolerations of the binding are not known.
    """
    facts, share = state.bindings.get(binding), cluster.shares[binding]
    tolerations = facts.placement.tolerations if facts is not None else (_ANYTHING,)
    ends: list[tuple[Micros, str, str]] = []
    for taint, sighting in cluster.taints.items():
        seconds = toleration_seconds((taint,), tolerations)
        if seconds is not None:
            ends.append(
                (max(sighting.at, share.since.at) + seconds * SECOND, _text(taint), sighting.by)
            )
    if not ends or another_schedulers(facts):
        state.causes.remove(("eviction", name, binding))
        return
    due, taint_text, by = min(ends)
    stay = share.since.by
    proposal = EvictionProposed(
        share.stream, binding, name, f"the taint {taint_text} is not tolerated any more"
    )
    state.causes.stand(
        ProposalCause(
            "eviction",
            name,
            binding,
            proposal,
            f"{taint_text} {by} {stay}",
            stay,
            as_id(by),
            priority(facts, share),
        ),
        due,
        at,
    )


def another_schedulers(facts: Binding | None) -> bool:
    """Returns whether another scheduler owns the binding. The fleet stage would refuse any proposal
    for it."""
    return facts is not None and not ours(facts.scheduler)


def priority(facts: Binding | None, share: Share) -> int:
    return facts.priority if facts is not None else share.priority


def _text(taint: Taint) -> str:
    return (
        f"{taint.key}={taint.value}:{taint.effect}"
        if taint.value
        else f"{taint.key}:{taint.effect}"
    )
