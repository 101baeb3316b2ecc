"""Computes what the quotas of one cluster leave to a namespace, as a fleet stream sees it.

A capacity event reports the remaining amounts at the time of the count. What the stream decided
since is deducted here. A quota limits one namespace, not the cluster, so it is not part of a
class's count, because bindings of one class are in many namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.binding import Binding
from wharfinger.domain.quota import covers
from wharfinger.domain.selectors import Requirement
from wharfinger.engine.estimators.quotas import fits_within
from wharfinger.engine.fleet.estimate import PODS, Demand
from wharfinger.events.capacity import QuotaRoom


@dataclass(frozen=True, slots=True)
class Claim:
    """The namespace and priority class of a binding (empty: none). They determine which quotas
    apply to it."""

    namespace: str = ""
    priority_class: str = ""


def claim_of(binding: Binding) -> Claim:
    return Claim(binding.resource.namespace, binding.priority_class)


@dataclass(slots=True)
class _Quota:
    name: str
    scope: tuple[Requirement, ...]
    left: dict[str, int]


@dataclass(slots=True)
class QuotasLeft:
    """Holds the remaining amounts of one cluster's resource quotas, by namespace. An amount is
    negative where more was decided than is left."""

    by_namespace: dict[str, list[_Quota]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_namespace)

    def copy(self) -> QuotasLeft:
        return QuotasLeft(
            {
                namespace: [_Quota(q.name, q.scope, q.left.copy()) for q in quotas]
                for namespace, quotas in self.by_namespace.items()
            }
        )

    def take(self, claim: Claim, demand: Demand, times: int) -> None:
        """Deduct `times` replicas from every quota that covers them. A negative number adds them
        back. `claim`: namespace and priority class of the binding. `demand`: what one replica
        takes."""
        for quota in self.by_namespace.get(claim.namespace, ()):
            if covers(quota.scope, dict(demand.amounts), claim.priority_class):
                for name, amount in asked_by(demand).items():
                    if name in quota.left:
                        quota.left[name] -= times * amount

    def fits(self, claim: Claim, demand: Demand, most: int) -> int:
        """Return how many replicas fit in every quota that covers them, at most `most`. Zero or a
        negative number: none fits. `claim`: namespace and priority class of the binding. `demand`:
        what one replica takes."""
        for quota in self.by_namespace.get(claim.namespace, ()):
            if covers(quota.scope, dict(demand.amounts), claim.priority_class):
                fits = fits_within(quota.left, asked_by(demand))
                if fits is not None and fits < most:
                    most = fits
        return most

    def short_of(self, claim: Claim, demand: Demand) -> list[tuple[str, str, int]]:
        """Return (quota, resource, missing amount) for each resource of which one replica needs
        more than its quota has left."""
        short: list[tuple[str, str, int]] = []
        for quota in self.by_namespace.get(claim.namespace, ()):
            if covers(quota.scope, dict(demand.amounts), claim.priority_class):
                for name, amount in asked_by(demand).items():
                    if name in quota.left and quota.left[name] < amount:
                        short.append((quota.name, name, amount - quota.left[name]))
        return short


def quotas_left(rooms: Iterable[QuotaRoom]) -> QuotasLeft:
    found = QuotasLeft()
    for room in rooms:
        found.by_namespace.setdefault(room.namespace, []).append(
            _Quota(room.name, room.scope, dict(room.left))
        )
    return found


def rooms_left(by_shard: Iterable[tuple[Sequence[QuotaRoom], QuotasLeft]]) -> list[QuotaRoom]:
    """Compute, for each ResourceQuota of one cluster, the unused amounts after the decisions of all
    shards. An amount is the unused amount in the capacity report, minus what each shard decided
    after the report that it read; at least 0. The result is sorted by namespace and name of the
    quota.
    `by_shard`: for each shard, a pair: the unused amounts in the report that the shard read, and
    the unused amounts after the shard's own decisions.
    Example: the report says that 10 CPUs of a quota are unused. After it, one shard decided 3 CPUs
    and another 2: 5 are unused."""
    found: dict[tuple[str, str], QuotaRoom] = {}
    for told, left in by_shard:
        for room in told:
            mine = next(q for q in left.by_namespace[room.namespace] if q.name == room.name)
            before = found.setdefault((room.namespace, room.name), room).left
            now = {
                name: amount - (room.left[name] - mine.left[name])
                for name, amount in before.items()
                if name in mine.left
            }
            found[room.namespace, room.name] = QuotaRoom(room.namespace, room.name, now, room.scope)
    return [
        QuotaRoom(
            room.namespace,
            room.name,
            {name: max(0, n) for name, n in room.left.items()},
            room.scope,
        )
        for _, room in sorted(found.items())
    ]


def asked_by(demand: Demand) -> Mapping[str, int]:
    """Return what one replica takes from a quota: resource -> amount, including the number of its
    devices and of its pods."""
    asked = dict(demand.amounts)
    for device in demand.devices:
        kind = device.pool[0]
        asked[kind] = asked.get(kind, 0) + device.count
    if demand.is_pod:
        asked[PODS] = demand.pods
    return asked
