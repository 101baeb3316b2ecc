"""Preemption for waiting pods: running pods of lower priority are evicted from one node, so that a
pod which fits on no node fits there.

It takes place where waiting pods are placed and running pods may be evicted (`NodesObserved`). The
node and the victims are found by kube-scheduler's rules (`engine.framework.preemption`). Victims
are pods of others and replicas of this plane alike. Nodes where a disruption budget would be
violated are left out: the server would refuse the eviction.

The decision names the victims by uid. Until its end the node keeps room for the waiting pod, by its
uid, so that no pod of the same or a lower priority takes what the first victim leaves. It is done
when the pod is placed, on this node or on another one. It has failed when an eviction is refused,
when the time is over, when the node is gone, and when all victims are gone and the pod still does
not fit. Then nothing else is preempted for the pod for `RETRY_US`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

import msgspec

from wharfinger.domain.ids import BindingName, PodUid
from wharfinger.domain.node import Pod, WaitingPod
from wharfinger.domain.text import as_clock, count
from wharfinger.engine.framework import preemption
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.events.decisions import NodeShare, PreemptedPod, PreemptionDecided, PreemptionEnded
from wharfinger.events.effects import EffectAnswer, EffectsObserved
from wharfinger.events.envelope import uuid_of
from wharfinger.kernel.decider import Draft, Micros
from wharfinger.stages.cluster.explain import cut
from wharfinger.stages.cluster.framework_view import pictured
from wharfinger.stages.cluster.node_search import profile_name
from wharfinger.stages.cluster.preemption import KEPT_US, PREEMPTING
from wharfinger.stages.cluster.state import (
    ClusterStageState,
    FailedPreemption,
    RefusedEviction,
    RunningPreemption,
)
from wharfinger.stages.cluster_snapshots import replica_pod
from wharfinger.stages.pools import goes_with_node

RETRY_US: Micros = 300 * 1_000_000
"""After a preemption that failed nothing else is preempted for the pod for this time."""

SEARCH_US: Micros = 60 * 1_000_000
"""For a pod that waits on, victims are searched again after this time."""

SEARCHES_MAX = 16
"""Maximum number of searches in a round: each looks at all nodes and their pods."""

WORDS_BYTES = 400
"""Of what the server said: it may be of any length."""

_SEARCHES = ""
"""The entry of `ClusterStageState.tries` for waiting pods: no binding has this name."""


# --- facts


def take_refused_evictions(state: ClusterStageState, told: EffectsObserved, id: UUID) -> None:
    """Folds answers: that a victim is not evicted is decided about in this round."""
    for item in told.items:
        running = state.preempting.get(item.preemptor)
        if item.against_preemption and running is not None and item.uid in running.victims:
            refused = RefusedEviction(str(id), _words(item))
            state.refused_evictions.setdefault(item.preemptor, refused)


def _words(item: EffectAnswer) -> str:
    said = ": ".join([part for part in (item.reason, item.message) if part])
    return cut(f"{item.name} is not evicted ({said or item.outcome})", WORDS_BYTES)


# --- decisions


def end_preemptions(state: ClusterStageState, at: Micros) -> Iterator[Draft]:
    """Ends the preemptions that have failed."""
    for uid, running in sorted(state.preempting.items()):
        pod = state.book.waiting.pods.get(uid)
        if pod is None or uid in state.book.replica_of:
            continue  # it is forgotten at the end of the round
        refused = state.refused_evictions.get(uid)
        left = _still_there(state, running)
        if not state.book.evicts:
            yield _ended(state, pod, running, at, "NotAllowed", "no pod may be evicted any more")
        elif running.node not in state.book.nodes:
            yield _ended(state, pod, running, at, "NodeGone", "the node is gone")
        elif refused is not None and left:
            cause = uuid_of(refused.event)
            yield _ended(state, pod, running, at, "NotEvicted", refused.message, cause)
        elif running.until <= at:
            why = f"{count(left, 'pod')} of {len(running.victims)} did not go in time"
            yield _ended(state, pod, running, at, "Expired", why)


def preempt(
    state: ClusterStageState, binding: BindingName, cls: PodClass, pod: WaitingPod, at: Micros
) -> Iterator[Draft]:
    """Drafts a preemption for the pod, which has just found no node; nothing where there is no node
    for that. `cls`: by which nodes are searched for it. Of a pod for which room was made, and which
    still does not fit, the preemption has failed."""
    running = state.preempting.get(pod.uid)
    if running is not None:
        if not _still_there(state, running):
            why = "the room was taken by another pod"
            yield _ended(state, pod, running, at, "RoomTaken", why)
        return
    if not may_preempt(state, pod, at) or state.tries.get(_SEARCHES, 0) >= SEARCHES_MAX:
        return
    state.tries[_SEARCHES] = state.tries.get(_SEARCHES, 0) + 1
    found = _search(state, binding, cls, pod)
    if found is None:
        return
    victims = tuple([_named(victim) for victim in found.victims])
    data = PreemptionDecided(
        state.cluster, binding, pod.uid, pod.name, pod.priority, found.node, victims, at + KEPT_US
    )
    held = state.book.held.get(binding)
    yield Draft(data, binding, "preempting", uuid_of("" if held is None else held.assignment))


def may_preempt(state: ClusterStageState, pod: WaitingPod, at: Micros) -> bool:
    """Returns whether victims are searched for the pod in this round."""
    failed, said = state.in_vain.get(pod.uid), state.said.get(pod.uid)
    if pod.requirements.traits.never_preempts or (failed is not None and failed.retry > at):
        return False
    return said is None or at >= said.looked_us + SEARCH_US


def _search(
    state: ClusterStageState, binding: BindingName, cls: PodClass, pod: WaitingPod
) -> preemption.PreemptionCandidate | None:
    """Returns the node with its victims; None: there is none, or room is being made already."""
    framework = state.profiles.framework(profile_name(state, pod.requirements.traits.scheduler))
    if all(plugin.name != PREEMPTING for plugin in framework.at("postFilter")):
        return None  # the profile has switched it off
    present = list(_present(state))
    if all(other.priority >= pod.priority for other in present):
        return None
    snapshot = pictured(state, binding, [pod], present)
    preemptor = msgspec.structs.replace(pod.on(""), requirements=cls.requirements)
    outcome = framework.run(snapshot, preemptor)
    if outcome.feasible:
        return None
    arguments = msgspec.structs.replace(framework.profile.arguments.preemption, whole_groups=True)
    found = preemption.find(
        outcome.cycle,
        preemptor,
        framework.refused(outcome),
        arguments,
        may_go=lambda other: _may_go(state, other),
    ).candidates
    return min(
        (c for c in found if not c.violations and c.node not in state.book.closed),
        key=preemption.cost,
        default=None,
    )


def _present(state: ClusterStageState) -> Iterator[Pod]:
    """Yields the pods on nodes as they are observed, with their own uid and priority, and the
    replicas whose pods are not there yet. Left out are those that are evicted already for another
    pod: the room that it needs is kept for it."""
    book = state.book
    leaving = {uid for running in state.preempting.values() for uid in running.victims}
    for name in sorted(book.nodes):
        seen: set[PodUid] = set()
        placed = book.on_node.get(name, {})
        for pod in book.pods.get(name, ()):
            seen.add(pod.uid)
            if pod.uid in leaving:
                continue
            replica = placed.get((pod.binding, pod.ordinal))
            devices = pod.devices or (replica.devices if replica is not None else ())
            yield msgspec.structs.replace(pod, node=name, devices=tuple(devices))
        for (binding, ordinal), replica in sorted(placed.items(), key=lambda item: item[0]):
            if replica.pod in seen:
                continue
            waits = book.waiting.pods.get(replica.pod)
            priority = book.held[binding].priority if waits is None else waits.priority
            yield replica_pod(priority, binding, ordinal, replica)


def _may_go(state: ClusterStageState, pod: Pod) -> bool:
    """Returns whether the pod may be a victim: it is observed on its node, and its node would not
    get it again."""
    return state.book.node_of.get(pod.uid) == pod.node and not goes_with_node(pod)


def _named(victim: Pod) -> PreemptedPod:
    namespace = victim.requirements.traits.namespace
    return PreemptedPod(victim.uid, namespace, victim.name, victim.priority, victim.binding)


def _still_there(state: ClusterStageState, running: RunningPreemption) -> int:
    """Returns how many of the victims are still observed. A victim may be on another node: the
    members of a gang are evicted together."""
    return sum(uid in state.book.node_of for uid in running.victims)


def _ended(
    state: ClusterStageState,
    pod: WaitingPod,
    running: RunningPreemption,
    at: Micros,
    reason: str,
    message: str,
    cause: UUID | None = None,
) -> Draft:
    data = PreemptionEnded(
        state.cluster,
        running.binding,
        pod.uid,
        pod.name,
        running.node,
        reason,
        message,
        at + RETRY_US,
    )
    return Draft(data, running.binding, "not-preempted", cause)


# --- what follows


def fold_preemption(state: ClusterStageState, data: PreemptionDecided) -> None:
    victims = tuple([victim.uid for victim in data.victims])
    state.preempting[data.pod] = RunningPreemption(data.binding, data.node, victims, data.until_us)
    state.in_vain.pop(data.pod, None)


def fold_preemption_ended(state: ClusterStageState, data: PreemptionEnded) -> None:
    """What was said of the pod is not true any more, so it is said again in this round."""
    state.preempting.pop(data.pod, None)
    state.in_vain[data.pod] = FailedPreemption(f"{data.node}: {data.message}", data.retry_us)
    state.said.pop(data.pod, None)


def not_awaited(state: ClusterStageState, placed: Iterable[NodeShare]) -> None:
    """Ends the preemptions for pods that have a place now."""
    if state.preempting or state.in_vain:
        for share in placed:
            for uid in share.pods:
                state.preempting.pop(uid, None)
                state.in_vain.pop(uid, None)


def follow_preemptions(state: ClusterStageState) -> None:
    """At the end of a round: forgets the answers, which were decided about, and the preemptions for
    pods that do not wait any more."""
    state.refused_evictions.clear()
    waiting, placed = state.book.waiting.pods, state.book.replica_of
    state.preempting = {
        uid: running
        for uid, running in state.preempting.items()
        if uid in waiting and uid not in placed
    }
    state.in_vain = {
        uid: failed
        for uid, failed in state.in_vain.items()
        if uid in waiting and uid not in placed and failed.retry > state.at
    }


def preemptions_due(state: ClusterStageState) -> Micros | None:
    """Returns when the next preemption ends or is tried again; None: not without news. For a pod
    that an earlier round looked at, and this one did not, victims are searched again."""
    dues = [running.until for running in state.preempting.values()]
    dues += [failed.retry for failed in state.in_vain.values()]
    if state.book.evicts:
        dues += [
            said.looked_us + SEARCH_US
            for uid, said in state.said.items()
            if said.looked_us < state.at
            and uid not in state.preempting
            and uid not in state.in_vain
        ]
    return min((due for due in dues if due > state.at), default=None)


def said_of_preemption(state: ClusterStageState, uid: PodUid) -> str:
    """Returns a sentence about what is done, or was tried, to make room for the pod, or ""."""
    running, failed = state.preempting.get(uid), state.in_vain.get(uid)
    if running is not None:
        victims = count(len(running.victims), "pod")
        until = as_clock(running.until)
        return f"Preemption: {victims} of {running.node} are evicted for it, until {until}."
    return "" if failed is None else f"Preemption failed: {failed.message}."
