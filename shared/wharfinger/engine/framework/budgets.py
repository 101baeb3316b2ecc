"""Checks PodDisruptionBudgets: which pods can be evicted without violating a budget.

The cluster reports how many disruptions each budget allows. Where it reports no number, this module
computes one from the pods, as the disruption controller does: a percentage is taken of the covered
pods and rounded up, and a terminating pod is not healthy. A budget with an empty selector covers
its whole namespace (as for the API server; for kube-scheduler it covers no pod).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.domain.cluster_objects import DisruptionBudget
from wharfinger.domain.node import Pod

Allowed = Mapping[tuple[str, str], int]
"""(namespace, name) of a budget -> how many more of its pods may be evicted."""


def covers(budget: DisruptionBudget, pod: Pod) -> bool:
    traits = pod.requirements.traits
    return (
        budget.selector is not None
        and budget.namespace == traits.home
        and budget.selector.matches(traits.labels)
    )


def allowed(budgets: Iterable[DisruptionBudget], pods: Iterable[Pod]) -> dict[tuple[str, str], int]:
    """Return how many more pods each budget allows to evict: (namespace, name) of the budget ->
    number of pods. `pods`: all pods on nodes; they are read only where a budget reports no number.
    """
    found = list(budgets)
    there = list(pods) if any(b.allowed is None for b in found) else []
    return {
        (b.namespace, b.name): b.allowed if b.allowed is not None else _computed(b, there)
        for b in found
    }


def _computed(budget: DisruptionBudget, pods: Iterable[Pod]) -> int:
    covered = [pod for pod in pods if covers(budget, pod)]
    healthy = sum(not pod.terminating for pod in covered)
    if budget.max_unavailable:
        least = max(0, len(covered) - _of(budget.max_unavailable, len(covered)))
    elif budget.min_available:
        least = _of(budget.min_available, len(covered))
    else:
        return 0
    return max(0, healthy - least)


def _of(said: str, total: int) -> int:
    """Convert `said`, a number such as "3" or a percentage of `total` such as "50%", to a number of
    pods. A percentage is rounded up: "50%" of 5 pods is 3. The manifest reader has already checked
    the text."""
    if said.endswith("%"):
        return -(-total * int(said[:-1]) // 100)
    return int(said)


def protected(
    pods: Iterable[Pod], budgets: Iterable[DisruptionBudget], left: Allowed
) -> frozenset[str]:
    """Return the uids of the pods whose eviction would violate a PodDisruptionBudget, if all `pods`
    were evicted one after the other in the given order.

    Each eviction uses up one allowed disruption of every budget that covers the pod. If a budget
    that covers the pod has none left, the pod is in the result.

    `left`: (namespace, name) of a budget -> how many disruptions it still allows, with one entry
      for each budget; it is not changed.

    A pod that the budget already records as disrupted (`status.disruptedPods`) uses up no
    disruption.

    Example: a budget with 1 disruption left covers two pods. The first can be evicted; the second
    is in the result.
    """
    remaining = dict(left)
    broken: set[str] = set()
    listed = list(budgets)
    for pod in pods:
        for budget in listed:
            if not covers(budget, pod) or pod.name in budget.disrupted:
                continue
            key = (budget.namespace, budget.name)
            remaining[key] -= 1
            if remaining[key] < 0:
                broken.add(pod.uid)
    return frozenset(broken)
