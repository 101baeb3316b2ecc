"""All inputs of one decision about a binding, as one value: the argument of `decide`.

Nothing else reaches a decision. So a stage, an explanation, a plan and a what-if with equal
questions get equal answers. For a counterfactual, replace a field and call again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.engine.fleet.feasible import Feasible
from wharfinger.engine.fleet.webster import Array
from wharfinger.rules.clusters.rule import ClusterQuery

Estimates = Sequence[int] | Array
"""How many more replicas fit, by cluster. An array, int64[clusters], in a large fleet."""


class Detail(Enum):
    """How many intermediate results a decision returns. `BRIEF`: only those computed anyway.
    `FULL`: also all refusals of every cluster, the ranking and the groups, at a cost that grows
    with the number of clusters."""

    BRIEF = 1
    FULL = 2


class NewNodes(msgspec.Struct, frozen=True):
    """How many replicas would fit on nodes that one cluster's pools could make. `price`: of a
    replica, billionths of a dollar an hour; None: not known."""

    cluster: str
    count: int
    price: int | None


class Term(msgspec.Struct, frozen=True):
    """One affinity term of the placement, with the clusters it admits.

    `affinity`: the term as it is in force.
    `feasible`: what the filters left. Clusters that hold replicas were asked as existing ones.
    `estimates`: how many more replicas, or whole sets of components, fit into each of `feasible`.
    `asked`: what the filters were asked, and of which clusters. Only a full answer calls it.
    """

    affinity: ClusterAffinity
    feasible: Feasible
    estimates: Estimates
    asked: Callable[[], tuple[ClusterQuery, Sequence[Cluster]]]


class Terms(Protocol):
    """The affinity terms of a placement, in order. A term is filtered and estimated only when it is
    accessed."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> Term: ...


class Question(msgspec.Struct, frozen=True):
    """One binding, what it holds, and the clusters it may go to. Valid until the state changes.

    `replicas`: wanted. `held`: cluster -> replicas, the present assignment. `terms`: affinity terms
    of the placement, with their feasible clusters. `observed`: name of the active term. `uid`: of
    the workload; breaks ties. `problem`: error of the placement itself, or empty. `counted` False:
    an object without replicas. `sets`: a workload of several components; one target is a whole set.
    `fresh`: decide as if nothing were held. `retry`: exclude clusters that have just refused.
    `empties`: also list selected clusters that got nothing. `silent`: clusters whose heartbeat is
    missing. `new_nodes`: what pools could create, in order of cluster; called only where existing
    capacity is not enough. None: no pools. `beyond`: how many more replicas a cluster may get than
    its count allows; called where a strategy that ignores capacity wants more. None: none.
    `unknown`: the same without preemption, so only where the cluster has not reported its capacity.
    `uncounted`: the only clusters for which `unknown` may be more than 0. None: any cluster.
    """

    placement: Placement
    replicas: int
    held: Mapping[str, int]
    terms: Terms
    observed: str = ""
    uid: str = ""
    problem: str = ""
    counted: bool = True
    sets: bool = False
    fresh: bool = False
    retry: bool = False
    empties: bool = False
    silent: Collection[str] = ()
    new_nodes: Callable[[], Sequence[NewNodes]] | None = None
    beyond: Callable[[str], int] | None = None
    unknown: Callable[[str], int] | None = None
    uncounted: Collection[str] | None = None
