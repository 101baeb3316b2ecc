"""Quotas: how much the pods of one namespace may ask for together in one cluster (Kubernetes'
ResourceQuota).

A quota limits some resources of some pods: those of its namespace that its scope covers. What it
leaves is hard less used. A quota that is over-used leaves zero, not a negative amount, because no
pod is evicted for it.

A workload's limits are not known here, so quotas on limits bound nothing; objects that are counted
(`count/...`) are not replicas, except pods.
"""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.domain.ids import Bounded, NamespaceName, PolicyName
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.value import Value

PRIORITY_CLASS = "PriorityClass"

_PODS = ("pods", "count/pods")
_REQUESTS = "requests."
_STANDARD = ("cpu", "memory", "ephemeral-storage")


class Quota(Value, frozen=True):
    """`hard`, `used`: by the names Kubernetes gives them (`cpu`, `requests.memory`,
    `requests.nvidia.com/gpu`, `pods`), in the units of `domain.resources`: cpu by whichever name in
    milli-cores. `scope`: all of it must hold; the key is the scope's name. Of a bare scope
    (`scopes`) the operator is Exists."""

    namespace: Bounded[NamespaceName]
    name: Bounded[PolicyName]
    hard: dict[str, int]
    used: dict[str, int] = {}
    scope: tuple[Requirement, ...] = ()


def in_milli(limit: str) -> bool:
    """Whether amounts under this name of a quota are milli-cores."""
    return limit in ("cpu", "requests.cpu", "limits.cpu")


def limited_resource(limit: str) -> str:
    """The resource whose requests a name of a quota limits (`requests.cpu` and `cpu` both limit
    cpu); empty: no requests."""
    if limit in _PODS:
        return "pods"
    if limit in _STANDARD:
        return limit
    return (
        limit.removeprefix(_REQUESTS)
        if limit.startswith(_REQUESTS) and limit != "requests.storage"
        else ""
    )


def left_of(quota: Quota) -> dict[str, int]:
    """Resource -> what pods may still ask for. Of two names for one resource the tighter counts."""
    left: dict[str, int] = {}
    for limit, hard in sorted(quota.hard.items()):
        resource = limited_resource(limit)
        if resource:
            free = max(0, hard - quota.used.get(limit, 0))
            left[resource] = min(left.get(resource, free), free)
    return left


def covers(
    scope: tuple[Requirement, ...], requests: Mapping[str, int], priority_class: str
) -> bool:
    """Whether pods that request this and are of this priority class (empty: none) are under a quota
    of this scope.

    Replicas here have no deadline and no affinity to pods of other namespaces, so
    they are never Terminating and never CrossNamespacePodAffinity. A scope this does not know
    covers nothing.
    """
    return all(_in_scope(part, requests, priority_class) for part in scope)


def _in_scope(part: Requirement, requests: Mapping[str, int], priority_class: str) -> bool:
    match part.key:
        case "PriorityClass":
            return part.holds({PRIORITY_CLASS: priority_class} if priority_class else {})
        case "BestEffort":
            return _best_effort(requests)
        case "NotBestEffort":
            return not _best_effort(requests)
        case "NotTerminating":
            return True
        case _:
            return False


def _best_effort(requests: Mapping[str, int]) -> bool:
    """Only cpu and memory make a pod more than best effort."""
    return requests.get("cpu", 0) <= 0 and requests.get("memory", 0) <= 0
