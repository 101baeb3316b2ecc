"""Defines the interface of a cluster filter, and the query on which it is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import Change


@dataclass(frozen=True, slots=True)
class ClusterQuery:
    """Holds the inputs of all filters, for one binding under one affinity term.

    `affinity`: the term.
    `gvk`: the kind (group, version, kind) that the cluster must serve.
    `silent`: clusters whose heartbeat is missing.
    `evicted`: clusters that the binding was just evicted from, or that this decision excludes.
    `together`: clusters that hold all other bindings of its affinity group; None: there are no
    others, or they have no clusters yet.
    `apart`: clusters that hold another binding of its anti-affinity group.
    """

    placement: Placement
    affinity: ClusterAffinity
    gvk: str
    silent: Collection[str] = ()
    evicted: Collection[str] = ()
    together: Collection[str] | None = None
    apart: Collection[str] = ()


ClusterTest = Callable[[Cluster], bool]


class PropertyCondition(msgspec.Struct, frozen=True):
    """A condition on one property of a cluster. Few clusters of a fleet differ in a property, so
    `holds` is called once for each value and not once for each cluster.

    `key`: names the property; conditions with equal keys read the same.
    `read`: returns the value of the property.
    `holds`: returns whether the condition holds for a value.
    `shared`: clusters with equal values share one object (`FleetState.sharing_kinds`), so values
    are compared by identity. For values that take long to compare otherwise.
    """

    key: tuple[str, ...]
    read: Callable[[Cluster], Hashable]
    holds: Callable[[Any], bool]
    shared: bool = False


class NameCondition(msgspec.Struct, frozen=True):
    """A condition on the name of a cluster: `names` has it (`listed`), or does not have it."""

    names: Collection[str]
    listed: bool


Condition = PropertyCondition | NameCondition

Undone = tuple[Change, ClusterQuery, Cluster]
"""A change, and the query and the cluster after this change and the changes before it."""


class ClusterFilter(Protocol):
    """A filter of member clusters: a predicate over one cluster with its reason, message and undo.
    All methods are pure functions of their arguments.

    `existing`: the cluster already holds replicas of the binding. A condition that only excludes
    new replicas must pass such a cluster; failover and eviction decide whether running replicas
    leave.
    """

    reason: FleetReason
    """The typed reason of a refusal, as it is recorded and counted."""

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool: ...

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        """Return `passes` as conditions, for clusters that hold no replicas of the binding: a
        cluster passes if all of them hold. They are created once for a query and evaluated for
        all clusters of the fleet together. Empty: every cluster passes. None: the filter cannot be
        expressed in this way, so `passes` is called for each cluster."""

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        """Return the message for a refused cluster, in Karmada's words where Karmada has the
        filter."""

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        """Yield the changes with which a refused cluster passes, as few as possible. All of them
        are needed together; they are not alternatives. Empty: no change helps."""
