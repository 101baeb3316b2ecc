"""What the quotas of one cluster leave to the bindings of a namespace, as a fleet stream sees it.

A capacity event says what was left when its decisions were accounted for; what the stream decided since is taken off here, like
everything else that fits into a cluster. A quota bounds what one namespace may ask for, not what a cluster can hold, so it is no
part of a class's count: bindings of one class lie in many namespaces.
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
    """Under which quotas a binding falls: by its namespace and its priority class (empty: it has none)."""

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
    """`by_namespace`: below zero where more was decided than is left."""

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
        """`times` replicas more (negative: less) are taken."""
        for quota in self.by_namespace.get(claim.namespace, ()):
            if covers(quota.scope, dict(demand.amounts), claim.priority_class):
                for name, amount in asked_by(demand).items():
                    if name in quota.left:
                        quota.left[name] -= times * amount

    def fits(self, claim: Claim, demand: Demand, most: int) -> int:
        """How many more are within every quota that covers them, at most `most`."""
        for quota in self.by_namespace.get(claim.namespace, ()):
            if covers(quota.scope, dict(demand.amounts), claim.priority_class):
                fits = fits_within(quota.left, asked_by(demand))
                if fits is not None and fits < most:
                    most = fits
        return most

    def short_of(self, claim: Claim, demand: Demand) -> list[tuple[str, str, int]]:
        """Quota, resource, and how much more would have to be left for one more."""
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
        found.by_namespace.setdefault(room.namespace, []).append(_Quota(room.name, room.scope, dict(room.left)))
    return found


def rooms_left(by_shard: Iterable[tuple[Sequence[QuotaRoom], QuotasLeft]]) -> list[QuotaRoom]:
    """What one cluster's quotas leave, less what any shard decided since: of each shard what it was told, and what is left by its
    own account."""
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
        QuotaRoom(room.namespace, room.name, {name: max(0, n) for name, n in room.left.items()}, room.scope)
        for _, room in sorted(found.items())
    ]


def asked_by(demand: Demand) -> Mapping[str, int]:
    """What it takes out of a quota: its amounts, its devices by number, and its pods."""
    asked = dict(demand.amounts)
    for device in demand.devices:
        kind = device.pool[0]
        asked[kind] = asked.get(kind, 0) + device.count
    if demand.is_pod:
        asked[PODS] = demand.pods
    return asked
