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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wharfinger.domain.binding import Binding
from wharfinger.domain.policy import Policy
from wharfinger.domain.resources import DEVICE_MILLI, add
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
    binding -> what of that is its own. `stale`: bindings that were touched since they were counted. `waiting`: namespace ->
    bindings refused for its quota. `freed`: namespaces whose waiting bindings are to be asked again. `facts`: under which facts
    of clusters the waiting ones were last asked. `share`: this stream's shard and how many there are.

    All but `policies` follows from the bindings.
    """

    policies: dict[str, Policy] = field(default_factory=dict)
    used: dict[str, dict[str, int]] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
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

    def set(self, key: str, policy: Policy | None, bindings: Iterable[str]) -> bool:
        """A policy came, changed or (None) went. Whether that is anything new. `bindings`: all names."""
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

    def _begin_or_end(self, namespace: str, bindings: Iterable[str]) -> None:
        """A namespace is counted from its first quota on, and no more after its last."""
        limited = any(policy.namespace == namespace for policy in self.policies.values())
        if limited and namespace not in self.used:
            self.used[namespace] = {}
            self.stale.update(dict.fromkeys(name for name in bindings if namespace_of(name) == namespace))
        elif not limited and namespace in self.used:
            del self.used[namespace]
            for name in [name for name in self.counts if namespace_of(name) == namespace]:
                del self.counts[name]

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
        if self.used and namespace_of(name) in self.used:
            self.stale[name] = None

    def use(self, namespace: str, bindings: Mapping[str, BindingState]) -> dict[str, int]:
        self.count(bindings)
        return self.used.get(namespace, {})

    def count(self, bindings: Mapping[str, BindingState]) -> None:
        """Count anew what was touched."""
        for name in self.stale:
            namespace = namespace_of(name)
            used = self.used.get(namespace)
            if used is None:
                continue
            before, record = self.counts.pop(name, {}), bindings.get(name)
            now = {} if record is None else add({}, record.applied_requests, units(record.spec, _counted(record)))
            if now:
                self.counts[name] = now
            for resource in {**before, **now}:
                more = now.get(resource, 0) - before.get(resource, 0)
                used[resource] = used.get(resource, 0) + more
                if more < 0 and namespace in self.waiting:
                    self.freed[namespace] = None
        self.stale.clear()

    # --- who waits

    def wait(self, name: str) -> None:
        self.waiting.setdefault(namespace_of(name), {})[name] = None

    def stop_waiting(self, name: str) -> None:
        namespace = namespace_of(name)
        names = self.waiting.get(namespace)
        if names is not None and name in names:
            del names[name]
            if not names:
                del self.waiting[namespace]

    def ask_again(self, name: str) -> None:
        self.freed[namespace_of(name)] = None

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
    namespace = namespace_of(record.spec.name)
    limits = quotas.limits(namespace)
    if not limits:
        return verdict
    used, own = quotas.use(namespace, state.bindings), quotas.counts.get(record.spec.name, {})
    wanted = add({}, per_unit(record.spec), units(record.spec, verdict.targets))
    over: list[str] = []
    for resource, limit in sorted(limits.items()):
        more = wanted.get(resource, 0) - own.get(resource, 0)
        if more > 0 and used.get(resource, 0) + more > limit:
            over.append(f"{resource} {more:,} more, {max(0, limit - used.get(resource, 0)):,} of {limit:,} left")
    if not over:
        return verdict
    note = f"over the quota of {namespace or 'the cluster scope'}: {'; '.join(over[:SHOWN])}"
    found = verdict.explanation
    return type(verdict)(
        dict(held), record.affinity,
        bounded(Explanation(found.candidates, found.feasible, found.refused, note=note)), EXCEEDED,
    )  # fmt: skip


def namespace_of(binding: str) -> str:
    """Bindings are named `namespace/name`; those without a namespace have none."""
    return binding.rpartition("/")[0]


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
