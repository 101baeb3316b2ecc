"""Which of several pods goes first: the least important, then the one that was promised least."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.node import Pod
from wharfinger.engine.descheduling.evictor import PREFER_NO_EVICTION
from wharfinger.engine.descheduling.view import quality, upkeep


def prefers_to_stay(pod: Pod) -> bool:
    return PREFER_NO_EVICTION in upkeep(pod).annotations


def least_important_first(pods: Iterable[Pod], strict: bool) -> list[Pod]:
    """By priority, then best-effort before burstable before guaranteed, then those that would rather stay. Of equals the first
    listed goes first.

    `strict`: of equals the last listed, which is what the descheduler's sort makes of a comparison that says "less" of both."""
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
    """Whether `pod`, which was listed later, is put before `other`."""
    mine, others = (pod.priority, quality(pod)), (other.priority, quality(other))
    return mine < others or (mine == others and not prefers_to_stay(pod))
