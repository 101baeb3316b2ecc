"""Which policy applies to a workload, by Karmada's rules.

For a workload that no policy has claimed, the order is: a policy of its own namespace before a
cluster-wide one; then the higher priority; then how closely the policy names it (by name, by
labels, by kind alone); then the name of the policy.

A workload that a policy has claimed stays with it as long as that policy exists and selects it,
even if another policy would come first. Only a policy that preempts takes it over: from a policy of
the same scope with lower priority, and, if it is of the workload's namespace, from any cluster-wide
policy. A cluster-wide policy never preempts one of the namespace.

Works on domain values only, so a policy known from an earlier apply and one from today's files
compete alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from wharfinger.domain.policy import Policy, ResourceSelector
from wharfinger.domain.workload import ObjectRef

Rank = tuple[bool, int, int, str]


class Closeness(IntEnum):
    """How closely a selector names a workload; Karmada's implicit priority."""

    NOT = 0
    KIND = 1
    LABELS = 2
    NAME = 3


def policy_for(
    resource: ObjectRef, labels: Mapping[str, str], policies: Iterable[Policy], claimed: str = ""
) -> Policy | None:
    """The policy that `resource` falls under; None where none selects it. `claimed`: the key of the
    policy that has it now."""
    best: tuple[Rank, Policy] | None = None
    holder: Policy | None = None
    preempting: list[tuple[Rank, Policy]] = []
    for policy in policies:
        closeness = _closest(policy, resource, labels)
        if policy.propagation is None or closeness is Closeness.NOT:
            continue
        if claimed and policy.key == claimed:
            holder = policy
        ranked = (
            (not policy.namespace, -policy.propagation.priority, -closeness, policy.name),
            policy,
        )
        if best is None or ranked[0] < best[0]:
            best = ranked
        if policy.propagation.preempts:
            preempting.append(ranked)
    if holder is None:
        return best[1] if best is not None else None
    return _takes_over(preempting, holder) or holder


def _takes_over(preempting: Iterable[tuple[Rank, Policy]], holder: Policy) -> Policy | None:
    stronger = [(rank, policy) for rank, policy in preempting if _preempts(policy, holder)]
    return min(stronger, key=lambda entry: entry[0])[1] if stronger else None


def _preempts(policy: Policy, holder: Policy) -> bool:
    assert policy.propagation is not None, "a policy that preempts propagates"
    assert holder.propagation is not None, "a policy that holds a workload propagates"
    if bool(policy.namespace) != bool(holder.namespace):
        return bool(policy.namespace)
    return policy.propagation.priority > holder.propagation.priority


def _closest(policy: Policy, resource: ObjectRef, labels: Mapping[str, str]) -> Closeness:
    if policy.propagation is None or policy.namespace not in ("", resource.namespace):
        return Closeness.NOT
    return max(
        (closeness(s, resource, labels) for s in policy.propagation.selectors),
        default=Closeness.NOT,
    )


def closeness(
    selector: ResourceSelector, resource: ObjectRef, labels: Mapping[str, str]
) -> Closeness:
    """A selector with a name looks at nothing else; labels are looked at only where no name is
    given."""
    if (selector.api_version, selector.kind) != (resource.api_version, resource.kind):
        return Closeness.NOT
    if selector.namespace and selector.namespace != resource.namespace:
        return Closeness.NOT
    if selector.name:
        return Closeness.NAME if selector.name == resource.name else Closeness.NOT
    if selector.labels is not None:
        return Closeness.LABELS if selector.labels.matches(labels) else Closeness.NOT
    return Closeness.KIND
