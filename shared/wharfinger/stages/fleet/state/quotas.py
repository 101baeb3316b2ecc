"""FederatedResourceQuota (Karmada): limits the total requests of a namespace's bindings, enforced
at decision time.

The use of a namespace is the sum over its bindings' decided replicas. Each replica is counted once,
even if replicas of a silent cluster were placed elsewhere too. A decision that would request more
of a limited resource than is left is refused with the numbers, and running replicas stay. A
decision that requests less, or the same elsewhere, always passes, even where a limit was lowered
below the use. A stream decides sequentially, so no two decisions use the same remainder.

A stream sees its own bindings only. With several fleet shards, each shard may use its share of a
limit, so that together they respect it. A namespace that must be able to use its quota completely
needs a single shard.

A binding that was refused because of its quota is evaluated again when requests of its namespace
are released or its quota changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wharfinger.domain.binding import Binding
from wharfinger.domain.policy import Policy
from wharfinger.domain.resources import DEVICE_MILLI, add
from wharfinger.domain.workload import Requirements
from wharfinger.stages.fleet.state.bindings import BindingState

EXCEEDED: Final = "QuotaExceeded"

SHOWN = 3
"""How many resources a refusal names."""


@dataclass(slots=True)
class Quotas:
    """Holds the namespace quotas of a fleet stream, their use, and the bindings that were refused
    because of them. Amounts are in the units of `domain.resources`.

    `policies`: key of the policy -> policy.
    `used`: namespace -> total use; only namespaces with a quota.
    `counts`: binding -> (its namespace, its part of the use).
    `stale`: bindings that must be counted again.
    `waiting`: namespace -> bindings refused because of its quota.
    `freed`: namespaces whose waiting bindings must be evaluated.
    `facts`: version of cluster facts at the last evaluation.
    `share`: (this stream's shard, number of shards).
    All but `policies` and `share` is derived from the bindings.
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
            self.policies.copy(),
            {name: used.copy() for name, used in self.used.items()},
            self.counts.copy(),
            self.stale.copy(),
            {name: names.copy() for name, names in self.waiting.items()},
            self.freed.copy(),
            self.facts,
            self.share,
        )

    # --- policies

    def set(self, key: str, policy: Policy | None, bindings: Mapping[str, BindingState]) -> bool:
        """Add or replace the quota policy with this key, or remove it (`policy` is None or has no
        quota). Return whether a quota changed.
        `bindings`: all bindings of the stream. If a quota changed, the bindings that were refused
        because of a quota of the same namespace are evaluated again. The use of a namespace is
        counted from its first quota until its last quota is removed."""
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
        # the two differ, so one of them is there
        namespace = (policy or before).namespace  # type: ignore[union-attr]
        self._limits.clear()
        self._begin_or_end(namespace, bindings)
        if namespace in self.waiting:
            self.freed[namespace] = None
        return True

    def forget_all(self) -> None:
        """Clear everything derived from bindings. The caller then calls `wait` for the refused
        bindings, and `begin`."""
        for part in (self.used, self.counts, self.stale, self.waiting, self.freed):
            part.clear()

    def begin(self, bindings: Mapping[str, BindingState]) -> None:
        """Mark the bindings of every namespace with a quota for counting. Call this when all
        bindings are known."""
        for namespace in {policy.namespace: None for policy in self.policies.values()}:
            self.used.pop(namespace, None)
            self._begin_or_end(namespace, bindings)

    def _begin_or_end(self, namespace: str, bindings: Mapping[str, BindingState]) -> None:
        """Start or stop counting what the bindings of a namespace use. `bindings`: all bindings of
        the stream.
        If the namespace has its first quota now, all its bindings are marked for counting (`count`
        does it). If its last quota is gone, the counts of the namespace and of its bindings are
        dropped. Otherwise nothing changes."""
        limited = any(policy.namespace == namespace for policy in self.policies.values())
        if limited and namespace not in self.used:
            self.used[namespace] = {}
            there = [
                name
                for name, record in bindings.items()
                if record.spec.resource.namespace == namespace
            ]
            self.stale.update(dict.fromkeys(there))
        elif not limited and namespace in self.used:
            del self.used[namespace]
            self.counts = {
                name: count for name, count in self.counts.items() if count[0] != namespace
            }

    def limits(self, namespace: str) -> dict[str, int]:
        """Return resource -> how much the namespace may use in this stream. A fleet with several
        shards has one stream for each shard; each stream may use an equal share of a quota's limit.
        If several quotas of the namespace limit a resource, the smallest share applies. A negative
        limit counts as 0.
        Example: of a limit of 7, shard 0 of 2 may use 4 and shard 1 may use 3."""
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
        """Count again what the marked bindings (`stale`) use, and correct the use of their
        namespaces by the difference. A binding uses the requests of one replica times the number of
        replicas. Replicas in suspect clusters (silent, or the binding moves away from the cluster)
        are not counted, because their replacements are counted in other clusters.
        If a binding uses less of a resource than before, the bindings of its namespace that wait
        for a quota are evaluated again. Example: a binding with 2 CPUs for each replica goes from 5
        replicas to 3; the use of the namespace falls by 4 CPUs. `bindings`: all bindings of the
        stream."""
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
        """Return the refused bindings that may pass now. After a change of cluster facts these are
        all of them, otherwise those of the namespaces in `freed`. Clears `freed`. `facts`: the
        present version of the facts."""
        if not self.waiting:
            return []
        self.count(bindings)
        freed = self.waiting if self.facts != facts else self.freed
        found = [name for namespace in freed for name in self.waiting.get(namespace, ())]
        self.freed, self.facts = {}, facts
        return found

    def end_round(self, bindings: Mapping[str, BindingState], facts: int, unfinished: bool) -> None:
        self.count(bindings)
        self.freed = dict.fromkeys(self.waiting) if unfinished else {}
        self.facts = facts


def per_unit(spec: Binding) -> Mapping[str, int]:
    """Return resource -> request of one replica or, for a workload of several components, of one
    set. Devices are summed by kind and rounded up to whole devices."""
    if not spec.components:
        return _asked(spec.requirements)
    total: dict[str, int] = {}
    for component in spec.components:
        total = add(total, _asked(component.requirements), component.replicas)
    return total


def units(spec: Binding, targets: Mapping[str, int]) -> int:
    """Return how many times `per_unit` is requested: the number of replicas or, for a workload of
    several components, one set for each target cluster."""
    return len(targets) if spec.components else sum(targets.values())


def _asked(requirements: Requirements) -> Mapping[str, int]:
    if not requirements.devices:
        return requirements.requests
    kinds: dict[str, int] = {}
    for device in requirements.devices:
        kinds[device.kind] = kinds.get(device.kind, 0) + device.count * device.milli
    return add(
        requirements.requests, {kind: -(-milli // DEVICE_MILLI) for kind, milli in kinds.items()}
    )


def _counted(record: BindingState) -> dict[str, int]:
    return {c: n for c, n in record.targets.items() if c not in record.suspect}


def _share(limit: int, share: tuple[int, int]) -> int:
    shard, shards = share
    return limit // shards + (1 if shard < limit % shards else 0)
