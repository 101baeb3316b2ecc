"""The effects that are open in a cluster: a function of standing decisions, observed state and the
verbs in force.

    effects = open_effects(work, verbs, at)

What is observed to be done is no effect. So the list after a restart is the list before it, and a
request that is repeated or lost changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from wharfinger.domain.actuation import CLOSED_BY, Verb, is_ours
from wharfinger.domain.ids import PodUid
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.scheduler import same_scheduler
from wharfinger.domain.time import Micros
from wharfinger.stages.actuator.effects import Effect, EffectObject
from wharfinger.stages.actuator.state import EVICTED_US, ClusterWork, PlacedPod, PreemptedPods

GATED = "SchedulingGated"
"""Reason of the condition PodScheduled while a pod has scheduling gates: it cannot be bound."""


UNSCHEDULABLE = "Unschedulable"
"""Reason of the condition PodScheduled of a pod that fits nowhere. Those who make nodes for pods
(cluster-autoscaler, Karpenter) react to it."""

WAITING_FOR_NODE = "WaitingForNode"
"""The same where nodes are claimed by us: others would make nodes for the same pods."""


def open_effects(work: ClusterWork, verbs: Collection[Verb], at: Micros) -> list[Effect]:
    """Those of a higher priority first, then those of older decisions; then by object. Ends of
    decisions come last."""
    found: list[Effect] = []
    if "bind" in verbs:
        found += _binds(work)
        found += [mark for pod, mark in _marks(work, verbs) if pod.condition != mark.reason]
    if "nodes" in verbs:
        found += _nodes(work)
    if "evict" in verbs:
        found += _removals(work, at)
        found += _evictions(work, at)
        found += _preemptions(work, at)
    return sorted(found, key=_order)


def undecided_pods(work: ClusterWork, scheduler: str) -> int:
    """How many pods wait for a first decision of `scheduler`."""
    return sum(
        same_scheduler(pod.requirements.traits.scheduler, scheduler)
        and pod.condition != GATED
        and pod.uid not in work.placements
        and pod.uid not in work.unplaced
        for pod in work.waiting_pods()
    )


def on_fresh_facts(work: ClusterWork, effects: Iterable[Effect]) -> list[Effect]:
    """Those that no broken watch is in the way of. That of services keeps no pod from being
    bound."""
    return [effect for effect in effects if not effect.needs & work.stale]


def decided_at(work: ClusterWork, effect: Effect) -> Micros:
    """When the decision that asks for the effect was taken; 0: that is not known."""
    uid = effect.object.uid
    if effect.action == "bind-pod":
        placed = work.placements.get(uid)
        return 0 if placed is None else placed.at
    if effect.preemptor:
        preempted = work.preempted.get(effect.preemptor)
        return 0 if preempted is None else preempted.at
    if effect.action == "evict-pod" and effect.cause is not None:
        return effect.cause.until_us - EVICTED_US
    return 0


def reopened_by_hand(work: ClusterWork) -> list[str]:
    """Nodes that were cordoned for a decision that stands, and were uncordoned by somebody else.
    They are not cordoned a second time."""
    return sorted(
        node.name
        for node in work.node_facts()
        if node.name in work.closed and not node.unschedulable and closed_by_us(work.name, node)
    )


def closed_by_another_ledger(work: ClusterWork) -> list[Node]:
    """Nodes with the annotation of this cluster that no decision of this ledger has closed: those
    of a plane that was here before. They are left as they are."""
    return sorted(
        (
            node
            for node in work.node_facts()
            if closed_by_us(work.name, node)
            and node.name not in work.closed
            and node.name not in work.ours
        ),
        key=lambda node: node.name,
    )


def closed_by_us(cluster: str, node: Node) -> bool:
    """Whether it was cordoned for a decision about this cluster, by its annotation."""
    return is_ours(node.annotations.get(CLOSED_BY, ""), cluster)


def _nodes(work: ClusterWork) -> Iterator[Effect]:
    for node in work.node_facts():
        object = EffectObject("Node", "", node.name, created_us=node.created_us)
        cause, ours = work.closed.get(node.name), closed_by_us(work.name, node)
        if cause is not None and not node.unschedulable and not ours:
            yield Effect(work.name, "close-node", object, cause)
        elif cause is None and ours and node.name in work.ours:
            yield Effect(work.name, "reopen-node", object)


def _binds(work: ClusterWork) -> Iterator[Effect]:
    """Never to a node that is not known: the server does not check whether it is there."""
    if not work.placements:
        return
    nodes = work.nodes.nodes
    for pod in work.waiting_pods():
        placed = work.placements.get(pod.uid)
        if placed is None or placed.node not in nodes or pod.condition == GATED:
            continue
        if work.on_node(pod.uid, placed.node):  # the fact that it waits is an older one
            continue
        yield Effect(
            work.name,
            "bind-pod",
            _pod(pod),
            placed.cause,
            target=placed.node,
            binding=placed.binding,
            ordinal=placed.ordinal,
            priority=pod.priority,
        )


def changed_marks(
    work: ClusterWork, verbs: Collection[Verb], marked: Mapping[PodUid, str]
) -> list[Effect]:
    """Pods that are marked already, with another sentence than is to be said now. Facts do not hold
    the sentence. `marked`: uid -> the sentence that was written last, as far as is known."""
    if "bind" not in verbs:
        return []
    return [
        mark
        for pod, mark in _marks(work, verbs)
        if pod.condition == mark.reason and marked.get(pod.uid) != mark.message
    ]


def _marks(work: ClusterWork, verbs: Collection[Verb]) -> Iterator[tuple[WaitingPod, Effect]]:
    """Of pods that fit nowhere. The server itself says of one with gates why it waits."""
    if not work.unplaced:
        return
    reason = WAITING_FOR_NODE if "claims" in verbs else UNSCHEDULABLE
    for pod in work.waiting_pods():
        said = work.unplaced.get(pod.uid)
        if said is None or pod.uid in work.placements or pod.condition == GATED:
            continue
        yield (
            pod,
            Effect(
                work.name,
                "mark-pod",
                _pod(pod),
                said.cause,
                priority=pod.priority,
                reason=reason,
                message=said.message,
            ),
        )


def _evictions(work: ClusterWork, at: Micros) -> Iterator[Effect]:
    """A pod that was placed again meanwhile stays."""
    if not work.evictions:
        return
    for pod in work.running_pods():
        cause = work.evictions.get(pod.uid)
        if cause is None or at >= cause.until_us or pod.terminating or pod.uid in work.placements:
            continue
        workload = workload_of(pod)
        yield Effect(work.name, "evict-pod", _pod(pod), cause, workload=workload)


def _preemptions(work: ClusterWork, at: Micros) -> Iterator[Effect]:
    """Of pods that make room for another one, as long as that one waits without a place. They may
    be replicas that stand. One that is to be evicted for another reason as well is evicted once."""
    if not work.preempted:
        return
    waiting = {pod.uid: pod for pod in work.waiting_pods()}
    found: dict[str, tuple[WaitingPod, PreemptedPods]] = {}
    for uid, preempted in sorted(work.preempted.items()):
        if uid in waiting and uid not in work.placements and at < preempted.cause.until_us:
            found.update(dict.fromkeys(preempted.victims, (waiting[uid], preempted)))
    for pod in work.running_pods():
        if pod.uid not in found or pod.terminating:
            continue
        preemptor, preempted = found[pod.uid]
        if pod.uid in work.evictions and pod.uid not in work.placements:
            continue
        yield Effect(
            work.name,
            "evict-pod",
            _pod(pod),
            preempted.cause,
            priority=preemptor.priority,
            workload=workload_of(pod),
            preemptor=preemptor.uid,
        )


def evicted_workloads(work: ClusterWork) -> set[str]:
    """Those of which a pod that was to be evicted is terminating."""
    victims = {uid for preempted in work.preempted.values() for uid in preempted.victims}
    if not victims and not work.evictions:
        return set()
    return {
        workload_of(pod)
        for pod in work.running_pods()
        if pod.terminating and (pod.uid in work.evictions or pod.uid in victims)
    }


def workload_of(pod: Pod) -> str:
    """Its first owner, else its binding, else the pod alone."""
    owners = pod.upkeep.owners if pod.upkeep is not None else ()
    return owners[0].uid if owners and owners[0].uid else pod.binding or pod.uid


def misplaced(work: ClusterWork) -> list[tuple[Pod, PlacedPod]]:
    """Pods that are on another node than they were placed on: somebody else has bound them. They
    are never evicted for that."""
    found = [
        (pod, placed)
        for pod in work.running_pods()
        if (placed := work.placements.get(pod.uid)) is not None and placed.node != pod.node
    ]
    return sorted(found, key=lambda one: one[0].name)


def _pod(pod: Pod | WaitingPod) -> EffectObject:
    return EffectObject("Pod", pod.requirements.traits.namespace, pod.name, pod.uid)


def _removals(work: ClusterWork, at: Micros) -> Iterator[Effect]:
    if not work.removals:
        return
    for pod in work.finished_pods():
        cause = work.removals.get(pod.uid)
        if cause is not None and at < cause.until_us and not pod.terminating:
            yield Effect(work.name, "remove-pod", _pod(pod), cause)


def _order(effect: Effect) -> tuple[bool, int, int, EffectObject]:
    cause = effect.cause
    seq = cause.seq if cause is not None else 0
    return cause is None, -effect.priority, seq, effect.object
