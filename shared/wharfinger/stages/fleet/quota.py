"""What the bindings of a namespace may ask for together: Karmada's FederatedResourceQuota, kept to when a decision is made.

The use of a namespace is summed over what its bindings were decided to have, each replica once: what a silent cluster holds and
was placed elsewhere too counts once. A decision that would ask for more of a limited resource than is left is refused with the
numbers, and what runs goes on running; one that asks for less, or for as much elsewhere, always passes, even where a limit was
lowered below what is used. Since a stream decides one thing after another, nothing is counted late or twice, and no two
decisions can take the same remainder.

A stream sees its own bindings only. Where there are several fleet shards, each may use its share of a limit, so that all together
keep to it; a namespace that must be able to use up its quota to the last needs one shard.

Waiting bindings are asked again when something of their namespace is given back or its quota changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wharfinger.domain.binding import Binding
from wharfinger.domain.policy import Policy
from wharfinger.domain.resources import DEVICE_MILLI, add, quantity_of
from wharfinger.domain.workload import Requirements
from wharfinger.events.decisions import Explanation
from wharfinger.stages.fleet.explain import bounded

if TYPE_CHECKING:
    from wharfinger.stages.fleet.places import Verdict
    from wharfinger.stages.fleet.state import BindingState, FleetState

EXCEEDED = "QuotaExceeded"

SHOWN = 3
"""How many resources a refusal names."""


@dataclass(slots=True)
class Quotas:
    """`policies`: by policy key. `used`: namespace -> what its bindings have together; only of namespaces with a quota. `counts`:
    binding -> its namespace and what of that is its own. `stale`: bindings that were touched since they were counted. `waiting`:
    namespace -> bindings refused for its quota. `freed`: namespaces whose waiting bindings are to be asked again. `facts`: under
    which facts of clusters the waiting ones were last asked. `share`: this stream's shard and how many there are.

    All but `policies` follows from the bindings.
    """

    policies: dict[str, Policy] = field(default_factory=dict)
    used: dict[str, dict[str, int]] = field(default_factory=dict)
    counts: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)
    stale: dict[str, None] = field(default_factory=dict)
    waiting: dict[str, dict[str, None]] = field(default_factory=dict)
    freed: dict[str, None] = field(default_factory=dict)
    facts: int = -1
    share: tuple[int, int] = (0, 1)
    _limits: dict[str, dict[str, int]] = field(default_factory=dict)

    def copy(self) -> Quotas:
        return Quotas(
            self.policies.copy(), {name: used.copy() for name, used in self.used.items()}, self.counts.copy(),
            self.stale.copy(), {name: names.copy() for name, names in self.waiting.items()}, self.freed.copy(), self.facts,
            self.share,
        )  # fmt: skip

    # --- policies

    def set(self, key: str, policy: Policy | None, bindings: Mapping[str, BindingState]) -> bool:
        """A policy came, changed or (None) went. Whether that is anything new. `bindings`: all there are."""
        before = self.policies.get(key)
        if policy is not None and policy.quota is None:
            policy = None
        if (before and before.quota) == (policy and policy.quota):
            return False
        if policy is None:
            del self.policies[key]
        else:
            self.policies[key] = policy
            self.policies = dict(sorted(self.policies.items()))
        namespace = (policy or before).namespace  # type: ignore[union-attr]  # they differ, so one of them is there
        self._limits.clear()
        self._begin_or_end(namespace, bindings)
        if namespace in self.waiting:
            self.freed[namespace] = None
        return True

    def begin(self, bindings: Mapping[str, BindingState]) -> None:
        """Count everything, once the bindings are known."""
        for namespace in {policy.namespace: None for policy in self.policies.values()}:
            self.used.pop(namespace, None)
            self._begin_or_end(namespace, bindings)

    def _begin_or_end(self, namespace: str, bindings: Mapping[str, BindingState]) -> None:
        """A namespace is counted from its first quota on, and no more after its last."""
        limited = any(policy.namespace == namespace for policy in self.policies.values())
        if limited and namespace not in self.used:
            self.used[namespace] = {}
            there = [name for name, record in bindings.items() if record.spec.resource.namespace == namespace]
            self.stale.update(dict.fromkeys(there))
        elif not limited and namespace in self.used:
            del self.used[namespace]
            self.counts = {name: count for name, count in self.counts.items() if count[0] != namespace}

    def limits(self, namespace: str) -> dict[str, int]:
        """What the namespace may use here: of several quotas the least for each resource, of several shards this one's share.
        A negative limit is none at all."""
        found = self._limits.get(namespace)
        if found is None:
            found = self._limits[namespace] = {}
            for policy in self.policies.values():
                if policy.namespace == namespace and policy.quota is not None:
                    for resource, amount in policy.quota.overall.items():
                        mine = _share(max(0, amount), self.share)
                        found[resource] = min(mine, found.get(resource, mine))
        return found

    def share_with(self, shard: int, shards: int) -> None:
        if self.share != (shard, shards):
            self.share = (shard, shards)
            self._limits.clear()

    # --- use

    def touch(self, name: str) -> None:
        if self.used:
            self.stale[name] = None

    def use(self, namespace: str, bindings: Mapping[str, BindingState]) -> dict[str, int]:
        self.count(bindings)
        return self.used.get(namespace, {})

    def count(self, bindings: Mapping[str, BindingState]) -> None:
        """Count anew what was touched."""
        for name in self.stale:
            namespace, amounts = self.counts.pop(name, ("", {}))
            before = dict(amounts)
            self._add(namespace, before, -1)
            record = bindings.get(name)
            if record is not None and record.spec.resource.namespace in self.used:
                namespace = record.spec.resource.namespace
                now = add({}, record.applied_requests, units(record.spec, _counted(record)))
                self.counts[name] = (namespace, now)
                self._add(namespace, now, 1)
                before = {resource: n for resource, n in before.items() if n > now.get(resource, 0)}
            if any(before.values()) and namespace in self.waiting:
                self.freed[namespace] = None
        self.stale.clear()

    def _add(self, namespace: str, amounts: Mapping[str, int], times: int) -> None:
        used = self.used.get(namespace)
        if used is not None:
            for resource, n in amounts.items():
                used[resource] = used.get(resource, 0) + times * n

    # --- who waits

    def wait(self, spec: Binding) -> None:
        self.waiting.setdefault(spec.resource.namespace, {})[spec.name] = None

    def stop_waiting(self, spec: Binding) -> None:
        namespace = spec.resource.namespace
        names = self.waiting.get(namespace)
        if names is not None and spec.name in names:
            del names[spec.name]
            if not names:
                del self.waiting[namespace]

    def ask_again(self, spec: Binding) -> None:
        self.freed[spec.resource.namespace] = None

    def ripe(self, bindings: Mapping[str, BindingState], facts: int) -> list[str]:
        """The waiting bindings that may be answered otherwise now."""
        if not self.waiting:
            return []
        self.count(bindings)
        freed = self.waiting if self.facts != facts else self.freed
        found = [name for namespace in freed for name in self.waiting.get(namespace, ())]
        self.freed, self.facts = {}, facts
        return found

    def come_to_rest(self, bindings: Mapping[str, BindingState], facts: int, unfinished: bool) -> None:
        self.count(bindings)
        self.freed = dict.fromkeys(self.waiting) if unfinished else {}
        self.facts = facts


def within_quota(state: FleetState, record: BindingState, held: Mapping[str, int], verdict: Verdict) -> Verdict:
    """The verdict; or, where it asks for more than is left, what the binding holds and the reason why it gets no more."""
    quotas = state.quotas
    if not quotas.policies:
        return verdict
    namespace = record.spec.resource.namespace
    limits = quotas.limits(namespace)
    if not limits:
        return verdict
    used = quotas.use(namespace, state.bindings)
    own = quotas.counts[record.spec.name][1] if record.spec.name in quotas.counts else {}
    wanted = add({}, per_unit(record.spec), units(record.spec, verdict.targets))
    over: list[str] = []
    for resource, limit in sorted(limits.items()):
        more = wanted.get(resource, 0) - own.get(resource, 0)
        if more > 0 and used.get(resource, 0) + more > limit:
            left = quantity_of(resource, max(0, limit - used.get(resource, 0)))
            over.append(f"{resource} {quantity_of(resource, more)} more, {left} of {quantity_of(resource, limit)} left")
    if not over:
        return verdict
    note = f"over the quota of {namespace}: {'; '.join(over[:SHOWN])}"
    found = verdict.explanation
    return type(verdict)(
        dict(held), record.affinity,
        bounded(Explanation(found.candidates, found.feasible, found.refused, note=note)), EXCEEDED,
    )  # fmt: skip


def per_unit(spec: Binding) -> Mapping[str, int]:
    """What one replica asks for, or one set of a workload of several components. Devices count by kind, rounded up."""
    if not spec.components:
        return _asked(spec.requirements)
    total: dict[str, int] = {}
    for component in spec.components:
        total = add(total, _asked(component.requirements), component.replicas)
    return total


def units(spec: Binding, targets: Mapping[str, int]) -> int:
    """How many times `per_unit` is asked for: the replicas; of a workload of several components one set a cluster."""
    return len(targets) if spec.components else sum(targets.values())


def _asked(requirements: Requirements) -> Mapping[str, int]:
    if not requirements.devices:
        return requirements.requests
    kinds: dict[str, int] = {}
    for device in requirements.devices:
        kinds[device.kind] = kinds.get(device.kind, 0) + device.count * device.milli
    return add(requirements.requests, {kind: -(-milli // DEVICE_MILLI) for kind, milli in kinds.items()})


def _counted(record: BindingState) -> dict[str, int]:
    return {c: n for c, n in record.targets.items() if c not in record.suspect}


def _share(limit: int, share: tuple[int, int]) -> int:
    shard, shards = share
    return limit // shards + (1 if shard < limit % shards else 0)
