"""PodDisruptionBudgets: which pods may go without breaking one.

How many may go is what the cluster reports; where it has not, it follows from the pods that are there, as the disruption
controller counts it: percentages are of those pods and rounded up, and a pod that is about to end is gone already. A budget
with an empty selector covers its whole namespace (kube-scheduler takes it to cover nobody, the API server does not).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.domain.cluster_objects import DisruptionBudget
from wharfinger.domain.node import Pod

Allowed = Mapping[tuple[str, str], int]
"""Namespace and name of a budget -> how many more of its pods may go."""


def covers(budget: DisruptionBudget, pod: Pod) -> bool:
    traits = pod.requirements.traits
    return budget.selector is not None and budget.namespace == traits.home and budget.selector.matches(traits.labels)


def allowed(budgets: Iterable[DisruptionBudget], pods: Iterable[Pod]) -> dict[tuple[str, str], int]:
    """`pods`: all of the cluster that are on nodes; only looked at where a budget is without a report."""
    found = list(budgets)
    there = list(pods) if any(b.allowed is None for b in found) else []
    return {(b.namespace, b.name): b.allowed if b.allowed is not None else _computed(b, there) for b in found}


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
    """A number, or a percentage of `total`, rounded up. Both were checked where they were read."""
    if said.endswith("%"):
        return -(-total * int(said[:-1]) // 100)
    return int(said)


def protected(pods: Iterable[Pod], budgets: Iterable[DisruptionBudget], left: Allowed) -> frozenset[str]:
    """Uids of those among `pods` whose going would break a budget if all of them went, in that order. A pod whose disruption the
    budget has let through already breaks nothing."""
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
