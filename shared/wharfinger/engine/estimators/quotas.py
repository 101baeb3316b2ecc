"""How much fits into what the quotas of a namespace leave. Nothing covers it, or nothing that is asked for is limited: no bound.

`strict` looks at what Karmada's quota plugin looks at: cpu, memory and extended resources, of two names for one the longer, and no
scope but the priority class. What it does not look at, the number of pods before all, the member's API server refuses later.
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
class Part:
    """`replicas` pods of one kind: all of what is asked about, or one kind of a set."""

    requirements: Requirements
    replicas: int = 1
    priority_class: str = ""


def sets_under(quotas: Iterable[Quota], namespace: str, parts: Sequence[Part], *, strict: bool = False) -> int | None:
    """How often all of `parts` fit into every quota of the namespace; None: nothing bounds it."""
    bounds = [
        fitting
        for quota in quotas
        if quota.namespace == namespace
        if (fitting := _fitting(_left_of(quota, strict), quota.scope, parts, strict)) is not None
    ]
    return min(bounds, default=None)


def replicas_under(
    quotas: Iterable[Quota], namespace: str, requirements: Requirements, priority_class: str, *, strict: bool = False
) -> int | None:
    return sets_under(quotas, namespace, [Part(requirements, 1, priority_class)], strict=strict)


def asked_of(requirements: Requirements) -> dict[str, int]:
    """What one replica takes out of a quota: its requests, its devices by number, and one pod."""
    asked = {name: amount for name, amount in requirements.requests.items() if amount > 0}
    for device in requirements.devices:
        if device.count > 0 and device.milli > 0:
            asked[device.kind] = asked.get(device.kind, 0) + device.count
    asked.setdefault(PODS, 1)
    return asked


def fits_within(left: Mapping[str, int], asked: Mapping[str, int]) -> int | None:
    """How often `asked` fits into `left`; None: none of it is limited. What is over-used leaves nothing."""
    fits = [max(0, left[name]) // amount for name, amount in asked.items() if name in left and amount > 0]
    return min(fits, default=None)


def _fitting(
    left: Mapping[str, int], scope: tuple[Requirement, ...], parts: Sequence[Part], strict: bool
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
    """Extended resources have a domain in their name."""
    if not strict:
        return left_of(quota)
    hard = {limit: amount for limit, amount in quota.hard.items() if f"requests.{limit}" not in quota.hard}
    left = left_of(msgspec.structs.replace(quota, hard=hard))
    return {name: amount for name, amount in left.items() if name in ("cpu", "memory") or "/" in name}
