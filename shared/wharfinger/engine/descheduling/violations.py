"""RemovePodsViolatingNodeTaints, NodeAffinity and InterPodAntiAffinity: pods that break a rule
about where they are.

For preferred affinity the descheduler evicts whenever some node is preferred more, even if that
node is cordoned or full, and repeats it on every pass; a violated node selector it finds only
beside required affinity. Without `strict`, the better node must be able to take the pod, and a node
selector is a requirement like required affinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wharfinger.domain.descheduling import (
    InterPodAntiAffinity,
    Namespaces,
    NodeAffinity,
    NodeTaints,
)
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Taint
from wharfinger.engine.descheduling.evictor import EvictionResult, Evictor
from wharfinger.engine.descheduling.fit import Mask, selects
from wharfinger.engine.descheduling.pod_anti_affinity import Neighbours
from wharfinger.engine.descheduling.sorting import least_important_first

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

Why = Callable[[Pod, Node], str]
"""Returns why the pod does not belong on the node; empty if it does."""


def concerned(
    pods: Iterable[Pod], namespaces: Namespaces, selector: LabelSelector | None
) -> list[Pod]:
    return [
        pod
        for pod in pods
        if namespaces.has(pod.requirements.traits.home)
        and (selector is None or selector.matches(pod.requirements.traits.labels))
    ]


def evict_one_by_one(
    evictor: Evictor, pods_on: Callable[[Node], Iterable[Pod]], why: Why
) -> EvictionResult:
    """Evicts the pods for which `why` returns a reason, node by node.

    `pods_on`: returns the pods of a node that are checked.
    `why`: takes a pod and its node; returns the reason as a sentence, or an empty text if the pod
      may stay.

    When the limit of evictions from a node is reached, the loop continues with the next node. When
    the limit of the pass is reached, the loop ends and TOTAL_LIMIT is returned. Otherwise STAYS is
    returned.
    """
    for node in evictor.going.cluster.nodes:
        for pod in pods_on(node):
            if not evictor.may(pod) or not (reason := why(pod, node)) or not evictor.lets_go(pod):
                continue
            answer = evictor.evict(pod, reason)
            if answer is EvictionResult.TOTAL_LIMIT:
                return answer
            if answer is EvictionResult.NODE_LIMIT:
                break
    return EvictionResult.STAYS


# Taints.


def taints(args: NodeTaints, evictor: Evictor) -> None:
    effects = ("NoSchedule", "PreferNoSchedule") if args.prefer else ("NoSchedule",)

    def counts(taint: Taint) -> bool:
        if taint.effect not in effects or _listed(taint, args.excluded):
            return False
        return args.included is None or _listed(taint, args.included)

    def why(pod: Pod, node: Node) -> str:
        for taint in filter(counts, node.taints):
            if not any(t.tolerates(taint) for t in pod.requirements.tolerations):
                return f"taint {_shown(taint)} on {node.name} is not tolerated"
        return ""

    cluster = evictor.going.cluster
    evict_one_by_one(
        evictor, lambda n: concerned(cluster.on(n), args.namespaces, args.label_selector), why
    )


def _listed(taint: Taint, names: tuple[str, ...]) -> bool:
    return taint.key in names or f"{taint.key}={taint.value}" in names


def _shown(taint: Taint) -> str:
    return (
        f"{taint.key}={taint.value}:{taint.effect}"
        if taint.value
        else f"{taint.key}:{taint.effect}"
    )


# Node affinity.


def affinity(args: NodeAffinity, evictor: Evictor) -> None:
    """Runs NodeAffinity: evicts the pods whose node affinity is violated by their node.
    `args.types` names the affinity types to check, required or preferred; unknown types are
    ignored."""
    cluster = evictor.going.cluster
    for said in args.types:
        why = {REQUIRED: _required(evictor), PREFERRED: _preferred(evictor)}.get(said)
        if why is None:
            continue
        on = lambda n: concerned(cluster.on(n), args.namespaces, args.label_selector)  # noqa: E731
        if evict_one_by_one(evictor, on, why) is EvictionResult.TOTAL_LIMIT:
            return


def _required(evictor: Evictor) -> Why:
    going = evictor.going

    def why(pod: Pod, node: Node) -> str:
        asked = pod.requirements
        if not (asked.node_terms or (asked.node_selector and not going.strict)):
            return ""
        if selects(pod, node) or not going.fit.takers(pod).any():
            return ""
        return f"{node.name} is none of the nodes that it requires"

    return why


def _preferred(evictor: Evictor) -> Why:
    """Returns a function that checks the preferred node affinity of one pod. The function takes a
    pod and its node. It returns why the pod should leave the node, or an empty text if the pod
    should stay.

    The value of a node for a pod is the sum of the weights of the pod's preferred terms that the
    node matches. Without `strict`, a pod should leave if one node both would take the pod and has a
    higher value than the pod's present node. With `strict`, as in the descheduler, these may be two
    different nodes: one has a higher value, and another would take the pod.

    Example: the terms "zone a" (weight 10) and "ssd" (weight 5). A node in zone a without ssd has
    the value 10.

    The values are computed once for all pods with equal preferred terms.
    """
    going = evictor.going
    weighed: dict[object, list[int]] = {}

    def why(pod: Pod, node: Node) -> str:
        preferences = pod.requirements.traits.preferences
        if not preferences:
            return ""
        weights = weighed.get(preferences)
        if weights is None:
            nodes = going.cluster.nodes
            weights = weighed[preferences] = [
                sum(p.weight for p in preferences if p.term.matches(n.labels, n.name))
                for n in nodes
            ]
        takers = going.fit.takers(pod)
        mine = weights[going.fit.position[node.name]]
        best = max(weights) if going.strict else _best(weights, takers)
        if best <= mine or not takers.any():
            return ""
        return f"it prefers another node by {best}, {node.name} by {mine}"

    return why


def _best(weights: list[int], takers: Mask) -> int:
    return max((weights[row] for row in takers.nonzero()[0].tolist()), default=0)


# Anti-affinity.


def anti_affinity(args: InterPodAntiAffinity, evictor: Evictor) -> None:
    """Runs InterPodAntiAffinity: evicts each pod that has a required anti-affinity term which
    selects another pod in the same topology domain. The nodes are checked one after another, and on
    a node the pods with the lowest priority first. A pod that this run evicts no longer violates
    the terms of pods that are checked later.

    A violation remains if the pod may not be evicted, or if a limit is reached. The limit of
    evictions from a node ends the loop over that node. The limit of the pass ends the strategy.
    """
    cluster = evictor.going.cluster
    there = {
        node.name: concerned(cluster.on(node), args.namespaces, args.label_selector)
        for node in cluster.nodes
    }
    near = Neighbours(cluster, there)
    for node in cluster.nodes:
        for pod in least_important_first(there[node.name], evictor.going.strict):
            reason = _clash(near, pod, node)
            if not reason or not evictor.may(pod) or not evictor.lets_go(pod):
                continue
            answer = evictor.evict(pod, reason)
            if answer is EvictionResult.EVICTED:
                near.moved(pod, node, None)
            elif answer is EvictionResult.TOTAL_LIMIT:
                return
            elif answer is EvictionResult.NODE_LIMIT:
                break


def _clash(near: Neighbours, pod: Pod, node: Node) -> str:
    """Returns a sentence about the first anti-affinity term of the pod that selects another pod in
    the same domain; empty if no term does."""
    for meant in near.of(pod):
        domain = node.labels.get(meant.term.key)
        others = meant.by_domain.get(domain, {}) if domain is not None else {}
        other = next((other for uid, other in others.items() if uid != pod.uid), None)
        if other is not None:
            return f"it does not bear {other.name}, which is on {other.node} ({meant.term.key})"
    return ""
