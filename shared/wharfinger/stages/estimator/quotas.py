"""The ResourceQuotas of one cluster, and what is left of them after decided replicas that their
`used` does not include yet.

A member cluster's `used` includes the pods that existed when it was reported. That is what was
observed of a binding by then, because pods and quotas are on one topic, in order. Deducted here is
what the binding holds in total less what was observed then, so each replica counts once. Where no
nodes, and so no pods, are reported, everything assigned before counts as included, as with a
summary.

A quota that a federated quota allots to a cluster is not reported by it; only our bindings use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.binding import whole_of
from wharfinger.domain.node import Pod
from wharfinger.domain.quota import Quota, covers, left_of
from wharfinger.engine.estimators.quotas import asked_of
from wharfinger.engine.nodes.occupancy import HeldBinding, Occupancy
from wharfinger.events.capacity import QuotaRoom
from wharfinger.events.cluster_state import QuotasObserved

Asked = dict[str, int]
"""Resource -> amount, over some replicas."""


@dataclass(frozen=True, slots=True)
class _Reported:
    """Holds the reported quotas of one namespace. `contained`: binding -> requests that the quotas'
    `used` already includes. `adopted`: whether they come from an older estimate, not from a report.
    """

    quotas: tuple[Quota, ...]
    contained: dict[str, Asked]
    adopted: bool = False


@dataclass(slots=True)
class ClusterQuotas:
    """The reported ResourceQuotas of one cluster by namespace, with what their `used` includes.
    `seen`: namespace -> binding -> total requests of its observed pods."""

    reported: dict[str, _Reported] = field(default_factory=dict)
    seen: dict[str, dict[str, Asked]] = field(default_factory=dict)

    def see_pods(self, before: Iterable[Pod], now: Iterable[Pod]) -> None:
        """Updates the totals in `seen` after a change of one node's pods."""
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
        """Stores the reported quotas of one namespace. Also stores, for each binding, which
        requests the `used` amounts of these quotas include: the requests of the binding's pods that
        were observed so far. In a cluster that reports no nodes, these are the requests of all
        replicas assigned so far. A report without quotas removes the namespace. Returns whether the
        stored quotas changed, so that estimates may change."""
        namespace = observed.namespace
        quotas = tuple([quota for quota in observed.quotas if quota.namespace == namespace])
        if not quotas:
            return self.reported.pop(namespace, None) is not None
        if book.bucket_count:
            contained = {
                binding: dict(asked) for binding, asked in self.seen.get(namespace, {}).items()
            }
        else:
            contained = _held_in(book, {namespace}).get(namespace, {})
        reported = _Reported(quotas, contained)
        if self.reported.get(namespace) == reported:
            return False
        self.reported[namespace] = reported
        return True

    def adopt(self, rooms: Iterable[QuotaRoom], book: Occupancy) -> None:
        """Sets the quotas from an older estimate instead of a report. Everything in the occupancy
        now counts as included in them."""
        by_namespace: dict[str, list[Quota]] = {}
        for room in rooms:
            quota = Quota(room.namespace, room.name, room.left, scope=room.scope)
            by_namespace.setdefault(room.namespace, []).append(quota)
        contained = _held_in(book, set(by_namespace))
        for namespace, quotas in by_namespace.items():
            self.reported[namespace] = _Reported(
                tuple(quotas), contained.get(namespace, {}), adopted=True
            )

    def rooms(
        self, book: Occupancy, allotted: Iterable[Quota], priority_classes: Mapping[str, str]
    ) -> tuple[QuotaRoom, ...]:
        """Returns how much is left of each quota of the cluster, in order of namespace and name.

        What is left is the hard limit, minus the reported `used`, minus the requests of assigned
        replicas that `used` does not include yet. Example: limit 10 CPUs, used 4, and 2 new
        replicas with 1 CPU each: 10 - 4 - 2 = 4.

        `allotted`: quotas that federated quotas give to this cluster. Some stored quotas were not
        reported by the cluster but read from an older estimate (`adopt`). An allotted quota
        replaces a stored quota of this kind with the same namespace and name.
        `priority_classes`: binding -> its priority class, to check the scope of a quota. A binding
        without an entry is deducted from quotas of every scope.
        """
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
            _room(quota, contained, holders.get(quota.namespace, {}), priority_classes)
            for quota, contained in quotas
        ]
        return tuple(sorted(rooms, key=lambda room: (room.namespace, room.name)))


def namespace_of(binding: str) -> str:
    """Returns the namespace of a binding name (`namespace/name`); empty if it has none."""
    namespace, slash, _ = binding.partition("/")
    return namespace if slash else ""


def _room(
    quota: Quota,
    contained: Mapping[str, Asked],
    holders: Mapping[str, list[HeldBinding]],
    priority_classes: Mapping[str, str],
) -> QuotaRoom:
    left = left_of(quota)
    for binding, several in holders.items():
        priority_class = priority_classes.get(binding)
        known = contained.get(binding, {})
        asked: Asked = {}
        for held in several:
            if priority_class is None or covers(
                quota.scope, held.cls.requirements.requests, priority_class
            ):
                _add(asked, asked_of(held.cls.requirements), _count(held))
        for name in left:
            left[name] -= max(0, asked.get(name, 0) - known.get(name, 0))
    return QuotaRoom(
        quota.namespace,
        quota.name,
        {name: max(0, amount) for name, amount in sorted(left.items())},
        quota.scope,
    )


def _holders(book: Occupancy, namespaces: set[str]) -> dict[str, dict[str, list[HeldBinding]]]:
    """Returns namespace -> binding -> its assignments in this cluster, one for each component."""
    found: dict[str, dict[str, list[HeldBinding]]] = {}
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


def _count(held: HeldBinding) -> int:
    """Returns the number of replicas that use the quota: the desired or the placed ones, whichever
    are more. Replicas that are being released count until they are gone."""
    return max(held.desired, len(held.placed))


def _add(total: Asked, asked: Mapping[str, int], times: int) -> None:
    for name, amount in asked.items():
        total[name] = total.get(name, 0) + times * amount
