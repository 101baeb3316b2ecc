"""The quotas of one cluster, and what they leave to replicas that are decided but not yet in what is said to be used.

What a member cluster says is used holds the pods that were there when it said so. Of a binding's replicas that is what was seen of
them by then: pods and quotas come on one topic, in order. The rest is deducted here, each replica once, however far it has come
since: as what the binding holds in all, less what was seen of it then. Where no nodes are reported, and therefore no pods,
everything assigned before is taken to be in it, as with a summary.

A quota that a federated quota allots to a cluster is nobody's report: nothing is used of it but what our bindings hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.binding import whole_of
from wharfinger.domain.node import Pod
from wharfinger.domain.quota import Quota, covers, left_of
from wharfinger.engine.estimators.quotas import asked_of
from wharfinger.engine.nodes.occupancy import Held, Occupancy
from wharfinger.events.capacity import QuotaRoom
from wharfinger.events.cluster_state import QuotasObserved

Asked = dict[str, int]
"""Resource -> amount, over some replicas."""


@dataclass(frozen=True, slots=True)
class _Reported:
    """`contained`: binding -> what of it is in the quotas' `used`. `adopted`: taken from an older count, not from a report."""

    quotas: tuple[Quota, ...]
    contained: dict[str, Asked]
    adopted: bool = False


@dataclass(slots=True)
class ClusterQuotas:
    """`seen`: namespace -> binding -> what its pods ask for together."""

    reported: dict[str, _Reported] = field(default_factory=dict)
    seen: dict[str, dict[str, Asked]] = field(default_factory=dict)

    def see_pods(self, before: Iterable[Pod], now: Iterable[Pod]) -> None:
        """The pods of one node were these and are those."""
        for pods, sign in ((before, -1), (now, 1)):
            for pod in pods:
                if pod.binding:
                    self._see(pod, sign)

    def _see(self, pod: Pod, sign: int) -> None:
        binding = whole_of(pod.binding)
        of_bindings = self.seen.setdefault(namespace_of(binding), {})
        total = of_bindings.setdefault(binding, {})
        for name, amount in asked_of(pod.requirements).items():
            total[name] = total.get(name, 0) + sign * amount
        if not any(total.values()):
            del of_bindings[binding]

    def observe(self, observed: QuotasObserved, book: Occupancy) -> bool:
        """Take the quotas of a namespace; True: something may be otherwise now."""
        namespace = observed.namespace
        quotas = tuple([quota for quota in observed.quotas if quota.namespace == namespace])
        if not quotas:
            return self.reported.pop(namespace, None) is not None
        if book.bucket_count:
            contained = {binding: dict(asked) for binding, asked in self.seen.get(namespace, {}).items()}
        else:
            contained = _held_in(book, {namespace}).get(namespace, {})
        reported = _Reported(quotas, contained)
        if self.reported.get(namespace) == reported:
            return False
        self.reported[namespace] = reported
        return True

    def adopt(self, rooms: Iterable[QuotaRoom], book: Occupancy) -> None:
        """Begin with what was left when all that is in the book was accounted for."""
        by_namespace: dict[str, list[Quota]] = {}
        for room in rooms:
            quota = Quota(room.namespace, room.name, room.left, scope=room.scope)
            by_namespace.setdefault(room.namespace, []).append(quota)
        contained = _held_in(book, set(by_namespace))
        for namespace, quotas in by_namespace.items():
            self.reported[namespace] = _Reported(tuple(quotas), contained.get(namespace, {}), adopted=True)

    def rooms(
        self, book: Occupancy, allotted: Iterable[Quota], priority_classes: Mapping[str, str]
    ) -> tuple[QuotaRoom, ...]:
        """What each quota leaves, in order of namespace and name. `priority_classes`: of the known bindings; one that is not known
        (any more) counts under every scope."""
        quotas: list[tuple[Quota, Mapping[str, Asked]]] = [(quota, {}) for quota in allotted]
        anew = {(quota.namespace, quota.name) for quota, _ in quotas}
        for reported in self.reported.values():
            for quota in reported.quotas:
                if not (reported.adopted and (quota.namespace, quota.name) in anew):
                    quotas.append((quota, reported.contained))
        if not quotas:
            return ()
        holders = _holders(book, {quota.namespace for quota, _ in quotas})
        rooms = [
            _room(quota, contained, holders.get(quota.namespace, {}), priority_classes) for quota, contained in quotas
        ]
        return tuple(sorted(rooms, key=lambda room: (room.namespace, room.name)))


def namespace_of(binding: str) -> str:
    """A binding is called by namespace and name; empty: it has no namespace."""
    namespace, slash, _ = binding.partition("/")
    return namespace if slash else ""


def _room(
    quota: Quota,
    contained: Mapping[str, Asked],
    holders: Mapping[str, list[Held]],
    priority_classes: Mapping[str, str],
) -> QuotaRoom:
    left = left_of(quota)
    for binding, several in holders.items():
        priority_class = priority_classes.get(binding)
        known = contained.get(binding, {})
        asked: Asked = {}
        for held in several:
            if priority_class is None or covers(quota.scope, held.cls.requirements.requests, priority_class):
                _add(asked, asked_of(held.cls.requirements), _count(held))
        for name in left:
            left[name] -= max(0, asked.get(name, 0) - known.get(name, 0))
    return QuotaRoom(
        quota.namespace, quota.name, {name: max(0, amount) for name, amount in sorted(left.items())}, quota.scope
    )


def _holders(book: Occupancy, namespaces: set[str]) -> dict[str, dict[str, list[Held]]]:
    """Namespace -> binding -> what is held of it, or of its components."""
    found: dict[str, dict[str, list[Held]]] = {}
    for name, held in book.held.items():
        namespace = namespace_of(name)
        if namespace in namespaces:
            found.setdefault(namespace, {}).setdefault(whole_of(name), []).append(held)
    return found


def _held_in(book: Occupancy, namespaces: set[str]) -> dict[str, dict[str, Asked]]:
    out: dict[str, dict[str, Asked]] = {}
    for namespace, holders in _holders(book, namespaces).items():
        for binding, several in holders.items():
            asked = out.setdefault(namespace, {}).setdefault(binding, {})
            for held in several:
                _add(asked, asked_of(held.cls.requirements), _count(held))
    return out


def _count(held: Held) -> int:
    """What is being let go counts until it is gone."""
    return max(held.desired, len(held.placed))


def _add(total: Asked, asked: Mapping[str, int], times: int) -> None:
    for name, amount in asked.items():
        total[name] = total.get(name, 0) + times * amount
