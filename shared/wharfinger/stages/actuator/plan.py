"""The effects that are open in a cluster: a function of standing decisions, observed state and the
verbs in force.

    effects = open_effects(work, verbs, at)

What is observed to be done is no effect. So the list after a restart is the list before it, and a
request that is repeated or lost changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from wharfinger.domain.actuation import CLOSED_BY, Verb, is_ours
from wharfinger.domain.node import Node
from wharfinger.domain.time import Micros
from wharfinger.stages.actuator.effects import Effect, EffectObject
from wharfinger.stages.actuator.state import ClusterWork


def open_effects(work: ClusterWork, verbs: Collection[Verb], at: Micros) -> list[Effect]:
    """Those of older decisions first; then by object. Ends of decisions come last."""
    found: list[Effect] = []
    if "nodes" in verbs:
        found += _nodes(work)
    if "evict" in verbs:
        found += _removals(work, at)
    return sorted(found, key=_order)


def reopened_by_hand(work: ClusterWork) -> list[str]:
    """Nodes that were cordoned for a decision that stands, and were uncordoned by somebody else.
    They are not cordoned a second time."""
    return sorted(
        node.name
        for node in work.node_facts()
        if node.name in work.closed and not node.unschedulable and closed_by_us(work.name, node)
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
        elif cause is None and ours:
            yield Effect(work.name, "reopen-node", object)


def _removals(work: ClusterWork, at: Micros) -> Iterator[Effect]:
    if not work.removals:
        return
    for pod in work.finished_pods():
        cause = work.removals.get(pod.uid)
        if cause is not None and at < cause.until_us and not pod.terminating:
            namespace = pod.requirements.traits.namespace
            named = EffectObject("Pod", namespace, pod.name, pod.uid)
            yield Effect(work.name, "remove-pod", named, cause)


def _order(effect: Effect) -> tuple[bool, int, EffectObject]:
    cause = effect.cause
    return cause is None, cause.seq if cause is not None else 0, effect.object
