"""The order in which pods are evicted: lowest priority first, then the lowest QoS class."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node import Pod
from wharfinger.engine.descheduling.evictor import PREFER_NO_EVICTION
from wharfinger.engine.descheduling.view import quality, upkeep


def prefers_to_stay(pod: Pod) -> bool:
    return PREFER_NO_EVICTION in upkeep(pod).annotations


def least_important_first(pods: Iterable[Pod], strict: bool) -> list[Pod]:
    """Sorts pods in the order of eviction, the first to evict first.

    1. Lowest priority first.
    2. At equal priority: BestEffort, then Burstable, then Guaranteed pods.
    3. Then pods without the `prefer-no-eviction` annotation before pods with the annotation.

    Pods that are equal in all three keep their order.

    `strict`: sort like the descheduler. Its comparison has a fault: of two equal pods without the
      annotation, each is said to be less than the other. So equal pods without the annotation come
      in reverse order: the last listed goes first.
    """
    if not strict:
        return sorted(pods, key=lambda pod: (pod.priority, quality(pod), prefers_to_stay(pod)))
    out: list[Pod] = []
    for pod in pods:
        at = len(out)
        while at > 0 and _before(pod, out[at - 1]):
            at -= 1
        out.insert(at, pod)
    return out


def _before(pod: Pod, other: Pod) -> bool:
    """Returns whether `pod`, which is listed after `other`, is sorted before it. Used with `strict`
    only."""
    mine, others = (pod.priority, quality(pod)), (other.priority, quality(other))
    return mine < others or (mine == others and not prefers_to_stay(pod))
