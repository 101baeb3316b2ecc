"""Capacity left by the ResourceQuotas of a namespace. Without a matching quota, or without a
limited resource, there is no bound.

`strict` considers what Karmada's quota plugin does: cpu, memory and extended resources, the longer
of two names of a resource, and no scope but the priority class. Anything else, such as the number
of pods, would be refused later by the member's API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from wharfinger.domain.quota import PRIORITY_CLASS, Quota, covers, left_of
from wharfinger.domain.selectors import Requirement
from wharfinger.domain.workload import Requirements

PODS = "pods"


@dataclass(frozen=True, slots=True)
class QuotaPart:
    """Pods of one kind that are checked against quotas: `replicas` pods with the same requirements
    and priority class."""

    requirements: Requirements
    replicas: int = 1
    priority_class: str = ""


def sets_under(
    quotas: Iterable[Quota], namespace: str, parts: Sequence[QuotaPart], *, strict: bool = False
) -> int | None:
    """Returns how many times all of `parts` together fit into every quota of the namespace; None:
    no quota limits them."""
    bounds = [
        fitting
        for quota in quotas
        if quota.namespace == namespace
        if (fitting := _fitting(_left_of(quota, strict), quota.scope, parts, strict)) is not None
    ]
    return min(bounds, default=None)


def replicas_under(
    quotas: Iterable[Quota],
    namespace: str,
    requirements: Requirements,
    priority_class: str,
    *,
    strict: bool = False,
) -> int | None:
    return sets_under(
        quotas, namespace, [QuotaPart(requirements, 1, priority_class)], strict=strict
    )


def asked_of(requirements: Requirements) -> dict[str, int]:
    """Returns what one replica takes out of a quota: its requested amounts, its number of devices
    by kind, and one pod."""
    asked = {name: amount for name, amount in requirements.requests.items() if amount > 0}
    for device in requirements.devices:
        if device.count > 0 and device.milli > 0:
            asked[device.kind] = asked.get(device.kind, 0) + device.count
    asked.setdefault(PODS, 1)
    return asked


def fits_within(left: Mapping[str, int], asked: Mapping[str, int]) -> int | None:
    """Returns how many times `asked` fits into `left`, at least 0; None: none of it is limited."""
    fits = [
        max(0, left[name]) // amount
        for name, amount in asked.items()
        if name in left and amount > 0
    ]
    return min(fits, default=None)


def _fitting(
    left: Mapping[str, int],
    scope: tuple[Requirement, ...],
    parts: Sequence[QuotaPart],
    strict: bool,
) -> int | None:
    asked: dict[str, int] = {}
    if strict and any(part.key != PRIORITY_CLASS for part in scope):
        return None
    for part in parts:
        if covers(scope, part.requirements.requests, part.priority_class):
            for name, amount in asked_of(part.requirements).items():
                asked[name] = asked.get(name, 0) + max(0, part.replicas) * amount
    return fits_within(left, asked)


def _left_of(quota: Quota, strict: bool) -> Mapping[str, int]:
    """Returns how much more the pods of a namespace may request under a ResourceQuota: resource ->
    limit less used amount, at least 0.

    `strict` False: all resources. If the quota limits one resource under two names, such as `cpu`
      and `requests.cpu`, the smaller remainder is returned.
    `strict` True: only what Karmada's quota plugin considers: cpu, memory and extended resources
      (names with a domain, such as `nvidia.com/gpu`). If the quota limits one resource under two
      names, the limit under the name without `requests.` is ignored.

    Example: limits of 10 CPUs and 5 pods, 4 CPUs and 2 pods used. The result is 6 CPUs and 3 pods;
    with `strict` it is 6 CPUs.
    """
    if not strict:
        return left_of(quota)
    hard = {
        limit: amount
        for limit, amount in quota.hard.items()
        if f"requests.{limit}" not in quota.hard
    }
    left = left_of(msgspec.structs.replace(quota, hard=hard))
    return {
        name: amount for name, amount in left.items() if name in ("cpu", "memory") or "/" in name
    }
