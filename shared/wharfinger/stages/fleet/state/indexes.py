"""Indexes over clusters and bindings, derived from their records. `rebuild` computes an index from
scratch; the other methods update it for one record.

Some methods must be called before the record changes; their docstrings say so.
`ClusterIndex.changed` and `forget` are idempotent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.binding import Binding
from wharfinger.rules.clusters.workload_affinity import peers
from wharfinger.stages.due_times import Agenda
from wharfinger.stages.fleet.groups import Groups
from wharfinger.stages.fleet.state.bindings import NOTHING, BindingState
from wharfinger.stages.fleet.state.clusters import ClusterState

Names = dict[str, None]


@dataclass(slots=True)
class ClusterIndex:
    """Indexes the clusters by state: being deleted, silent, with a lease, not counted yet, with
    node pools that can add nodes, and with resource quotas by namespace. It also has the time when
    each lease ends."""

    clusters: Mapping[str, ClusterState]
    deleting: Names = field(default_factory=dict)
    silent: Names = field(default_factory=dict)
    """Clusters that a decision declared silent, because their heartbeats are missing."""
    leased: Names = field(default_factory=dict)
    """Clusters with a lease, which their heartbeats renew."""
    leases: Agenda[tuple[str]] = field(default_factory=Agenda)
    """Cluster -> the next time to check its lease. That is the end of the lease. For a silent
    cluster it is the time when its heartbeat returned, or when it lost its lease."""
    uncounted: Names = field(default_factory=dict)
    """Clusters that have not reported their capacity."""
    provisioning: Names = field(default_factory=dict)
    """Clusters whose pools could add nodes for some class by the last count; in order of name."""
    quoted: dict[str, Names] = field(default_factory=dict)
    """Namespace -> the clusters that have quotas in it."""
    _quoted_by: dict[str, Names] = field(default_factory=dict)

    def changed(self, cluster: ClusterState) -> list[str]:
        """Update the index after the facts, the silence or the capacity of one cluster changed. The
        index lists the clusters that are being deleted, are silent, have a lease, are not counted
        yet, can add nodes, or have quotas. The time when the lease ends is not updated here;
        `heard` does that. Return the namespaces that now have a quota in some cluster and had none
        before, or the reverse."""
        name = cluster.name
        _put(self.deleting, name, cluster.deleting)
        _put(self.silent, name, cluster.silent_since is not None)
        _put(self.leased, name, cluster.lease_us is not None)
        capacity = cluster.capacity
        self.counted(cluster)
        provisions = capacity is not None and bool(capacity.provisionable)
        if provisions and name not in self.provisioning:
            self.provisioning = dict.fromkeys(sorted((*self.provisioning, name)))
        elif not provisions:
            self.provisioning.pop(name, None)
        return self._quote(
            name, {} if capacity is None else {quota.namespace: None for quota in capacity.quotas}
        )

    def counted(self, cluster: ClusterState) -> None:
        """Update the index after the first count of a cluster, by an estimator or by itself."""
        summary = None if cluster.facts is None else cluster.facts.summary
        _put(self.uncounted, cluster.name, cluster.capacity is None and summary is None)

    def heard(self, cluster: ClusterState) -> None:
        """Set the time at which the cluster's lease must be checked next. Call this after a
        heartbeat, and after a decision that the cluster is silent or has recovered.
        - Cluster with a lease, not silent: the end of the lease, which is the last heartbeat plus
          the lease.
        - Silent cluster with a new heartbeat, or silent cluster without a lease now: at once,
          because it has recovered.
        - Otherwise: never."""
        key, lease = (cluster.name,), cluster.lease_us
        if lease is None:
            if cluster.silent_since is not None:
                self.leases.set(key, cluster.heard_at)  # without a lease it is not silent any more
            else:
                self.leases.discard(key)
        elif cluster.silent_since is None:
            self.leases.set(key, cluster.heard_at + lease)
        elif cluster.heard_at > cluster.silent_since:
            self.leases.set(key, cluster.heard_at)
        else:
            self.leases.discard(key)

    def forget(self, name: str) -> list[str]:
        """Remove a cluster from the index. Return the namespaces that lost their last quota."""
        for names in (self.deleting, self.silent, self.leased, self.uncounted, self.provisioning):
            names.pop(name, None)
        self.leases.discard((name,))
        return self._quote(name, {})

    def rebuild(self) -> None:
        for part in (
            self.deleting,
            self.silent,
            self.leased,
            self.uncounted,
            self.provisioning,
            self.quoted,
            self._quoted_by,
        ):
            part.clear()
        self.leases = Agenda()
        for name in sorted(self.clusters):
            self.changed(self.clusters[name])
            self.heard(self.clusters[name])

    def fork(self, clusters: Mapping[str, ClusterState]) -> ClusterIndex:
        return ClusterIndex(
            clusters,
            self.deleting.copy(),
            self.silent.copy(),
            self.leased.copy(),
            self.leases.copy(),
            self.uncounted.copy(),
            self.provisioning.copy(),
            _copied(self.quoted),
            _copied(self._quoted_by),
        )

    def _quote(self, name: str, now: Names) -> list[str]:
        before = self._quoted_by.get(name, {})
        if before.keys() == now.keys():
            return []
        found = [
            namespace
            for namespace in before
            if namespace not in now and _remove(self.quoted, namespace, name)
        ]
        found += [
            namespace
            for namespace in now
            if namespace not in before and _add(self.quoted, namespace, name)
        ]
        self._quoted_by[name] = now
        if not now:
            del self._quoted_by[name]
        return found


@dataclass(slots=True)
class BindingIndex:
    """Indexes the bindings by cluster (as a target, as a suspect, or as a copy that leaves because
    of a taint) and by affinity or anti-affinity group."""

    bindings: Mapping[str, BindingState]
    groups: Groups = field(default_factory=Groups)
    """The members of the affinity and anti-affinity groups."""
    priorities: Counter[int] = field(default_factory=Counter)
    """Priority -> number of bindings."""
    suspected: dict[str, Names] = field(default_factory=dict)
    """Cluster -> bindings that have it as a suspect."""
    outgoing: dict[str, Names] = field(default_factory=dict)
    """Cluster with a taint -> bindings that leave it because of the taint."""
    _by_cluster: dict[str, Names] = field(default_factory=dict)
    _behind: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """Binding whose targets differ from `_by_cluster` -> its targets as they are in `_by_cluster`.
    A decision over thousands of clusters is indexed only on the next read of `by_cluster`, which is
    rare; of several such decisions only the last one is indexed."""

    @property
    def by_cluster(self) -> dict[str, Names]:
        """Return cluster -> the bindings that have targets in it. The read applies pending changes,
        so it must come before targets are changed in place."""
        if self._behind:
            self._catch_up()
        return self._by_cluster

    def _catch_up(self) -> None:
        by_cluster = self._by_cluster
        for name, before in self._behind.items():
            record = self.bindings.get(name)
            now = {} if record is None else record.targets
            for cluster in now:
                if cluster not in before:
                    by_cluster.setdefault(cluster, {})[name] = None
            for cluster in before:
                if cluster not in now:
                    by_cluster[cluster].pop(name, None)
        self._behind.clear()

    def join(self, spec: Binding) -> None:
        """Add the request of a binding."""
        self.groups.join(spec)
        self.priorities[spec.priority] += 1

    def leave_as(self, spec: Binding) -> None:
        """Remove the request of a binding, before it is replaced or the binding is released."""
        self.groups.leave(spec)
        self.priorities[spec.priority] -= 1
        if not self.priorities[spec.priority]:
            del self.priorities[spec.priority]

    def any_below(self, priority: int) -> bool:
        """Return whether some binding has a lower priority."""
        return any(other < priority for other in self.priorities)

    def targets_change(self, record: BindingState) -> None:
        """Note that the binding's dict of targets will be replaced by another dict. Call this
        before the replacement. The old dict must not be changed."""
        self._behind.setdefault(record.spec.name, record.targets)

    def takes_over(self, record: BindingState) -> None:
        """Add a binding whose targets are not in the index yet, because they were loaded or taken
        over and not decided."""
        self._behind.setdefault(record.spec.name, NOTHING)

    def leave(self, record: BindingState, cluster: str) -> None:
        """Remove the binding from the entry of one cluster. Call this before its targets change."""
        self.by_cluster[cluster].pop(record.spec.name, None)

    def leave_all(self, cluster: str) -> Names:
        """Remove the entry of a cluster. Return the bindings that had targets in it. Call this
        before their targets change."""
        return self.by_cluster.pop(cluster, {})

    def suspect(self, record: BindingState, suspect: tuple[str, ...]) -> None:
        """Replace the binding's suspects in the index by `suspect`. Call this while
        `record.suspect` still has the old ones."""
        for index in (self.suspected, self.outgoing):
            for cluster in record.suspect:
                _remove(index, cluster, record.spec.name)
        self._add_suspects(record, suspect)

    def _add_suspects(self, record: BindingState, suspect: tuple[str, ...]) -> None:
        for cluster in suspect:
            leaving = record.leaving.get(cluster)
            if leaving is None:
                _add(self.suspected, cluster, record.spec.name)
            elif leaving.cause == "taint":
                _add(self.outgoing, cluster, record.spec.name)

    def forget(self, record: BindingState) -> None:
        """Remove a released binding from the index. Its record may still exist or be deleted."""
        self.targets_change(record)
        self.suspect(record, ())
        self.leave_as(record.spec)

    def rebuild(self) -> None:
        self.groups, self.suspected, self.outgoing = Groups(), {}, {}
        self.priorities.clear()
        self._by_cluster, self._behind = {}, {}
        for record in self.bindings.values():
            self.join(record.spec)
            if record.targets:
                self.takes_over(record)
            self._add_suspects(record, record.suspect)

    def together(self, spec: Binding) -> set[str] | None:
        """Return the clusters that all other members of the binding's affinity group have targets
        in. None: there are no other members, or none is placed."""
        return peers(self.bindings[name].targets for name in self.groups.with_(spec))

    def apart(self, spec: Binding) -> set[str]:
        """Return the clusters that some other member of the binding's anti-affinity group has
        targets in."""
        return {c for name in self.groups.against(spec) for c in self.bindings[name].targets}

    def fork(self, bindings: Mapping[str, BindingState]) -> BindingIndex:
        return BindingIndex(
            bindings,
            self.groups.copy(),
            self.priorities.copy(),
            _copied(self.suspected),
            _copied(self.outgoing),
            _copied(self.by_cluster),
        )


def _put(names: Names, name: str, there: bool) -> None:
    if there:
        names[name] = None
    else:
        names.pop(name, None)


def _add(index: dict[str, Names], key: str, name: str) -> bool:
    """Add a name under a key. Return whether it is the first name under this key."""
    names = index.get(key)
    if names is None:
        index[key] = {name: None}
        return True
    names[name] = None
    return False


def _remove(index: dict[str, Names], key: str, name: str) -> bool:
    """Remove a name under a key. If it was the last name, remove the key too. Return whether the
    key was removed."""
    names = index.get(key)
    if names is None:
        return False
    names.pop(name, None)
    if not names:
        del index[key]
    return not names


def _copied(index: Mapping[str, Iterable[str]]) -> dict[str, Names]:
    return {key: dict.fromkeys(names) for key, names in index.items()}
