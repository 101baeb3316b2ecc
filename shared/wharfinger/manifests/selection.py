"""Which policy a workload falls under, by Karmada's order of precedence.

A policy of the workload's own namespace goes before a cluster-wide one; then the higher priority; then how closely the
policy names it (by name, by labels, by kind alone); then the name of the policy. Works on domain values only, so a policy
known from an earlier apply and one from today's files compete alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from wharfinger.domain.policy import Policy, ResourceSelector
from wharfinger.domain.workload import ObjectRef


class Closeness(IntEnum):
    """How closely a selector names a workload; Karmada's implicit priority."""

    NOT = 0
    KIND = 1
    LABELS = 2
    NAME = 3


def policy_for(resource: ObjectRef, labels: Mapping[str, str], policies: Iterable[Policy]) -> Policy | None:
    """The policy that `resource` falls under; None where none selects it."""
    best: tuple[bool, int, int, str] | None = None
    chosen: Policy | None = None
    for policy in policies:
        closeness = _closest(policy, resource, labels)
        if policy.propagation is None or closeness is Closeness.NOT:
            continue
        rank = (not policy.namespace, -policy.propagation.priority, -closeness, policy.name)
        if best is None or rank < best:
            best, chosen = rank, policy
    return chosen


def _closest(policy: Policy, resource: ObjectRef, labels: Mapping[str, str]) -> Closeness:
    if policy.propagation is None or policy.namespace not in ("", resource.namespace):
        return Closeness.NOT
    return max((closeness(s, resource, labels) for s in policy.propagation.selectors), default=Closeness.NOT)


def closeness(selector: ResourceSelector, resource: ObjectRef, labels: Mapping[str, str]) -> Closeness:
    """A selector with a name looks at nothing else; labels are looked at only where no name is given."""
    if (selector.api_version, selector.kind) != (resource.api_version, resource.kind):
        return Closeness.NOT
    if selector.namespace and selector.namespace != resource.namespace:
        return Closeness.NOT
    if selector.name:
        return Closeness.NAME if selector.name == resource.name else Closeness.NOT
    if selector.labels is not None:
        return Closeness.LABELS if selector.labels.matches(labels) else Closeness.NOT
    return Closeness.KIND
