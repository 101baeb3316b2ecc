"""Computes what is missing for one more replica in a cluster: smaller requests, more free
resources, more quota, or a higher count."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.estimate import Demand, demand_of, scattered
from wharfinger.rules.changes import Change, ChangeSet, left_more, less_asked, more, smallest
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.fleet.state import BindingState
from wharfinger.stages.fleet.state.clusters import ClusterState


def ways_to_room(record: BindingState, demand: Demand, cluster: ClusterState) -> list[ChangeSet]:
    """Return alternative sets of changes. Each set alone would make one more replica of the binding
    fit in the cluster. Empty: no such set was found. `record`: the binding. `demand`: the resources
    that one replica takes.

    The cases are checked in this order, and only the first that applies gives the result:

    - The cluster has just refused replicas of this binding, and the free capacity suffices: decide
      the binding again.
    - The cluster has reported no capacity: the estimator must report it.
    - The estimate would suffice, but a quota of the namespace in the cluster is used up: raise the
      quota.
    - The free totals suffice, but the estimator counted too few replicas of this class: a higher
      number of replicas in its report.
    - Otherwise: smaller requests of the replicas, or more free resources in the cluster.
    """
    asked = record.spec.requirements
    if (
        record.shrunk
        and cluster.name in record.before
        and room_for(cluster, asked, record.claim) > 0
    ):
        change = Change(
            "state",
            cluster.name,
            "asking it again: what it has just refused waits for the next decision",
        )
        return [(change,)]
    if cluster.room is None:
        return [(Change("count", cluster.name, "a count of what is free there: nothing is known"),)]
    key, claim = record.class_key, record.claim
    if claim is not None and cluster.estimate(key, demand) > 0:
        return _more_quota(cluster, claim, demand)
    if cluster.estimated_by(key) in ("class", "refused") and _by_totals(cluster, asked) > 0:
        counted = _more_counted(record, demand, cluster)
        return [(counted,)] if counted is not None else []
    ways = less_asked(asked, lambda other: _by_totals(cluster, other) > 0)
    extra = _more_free(cluster, demand)
    return [*ways, extra] if extra else ways


def room_for(cluster: ClusterState, asked: Requirements, claim: Claim | None) -> int:
    """Return how many replicas with these requirements fit in the cluster. `claim`: the namespace
    and priority class whose quotas apply; None: none."""
    return cluster.estimate(asked.class_key, demand_of(asked), claim)


def _more_quota(cluster: ClusterState, claim: Claim, demand: Demand) -> list[ChangeSet]:
    """Return the increases of the namespace's quotas with which one replica fits, for a cluster
    that has the capacity itself."""
    short = cluster.quotas.short_of(claim, demand)
    return [
        tuple(
            left_more(f"{claim.namespace}/{quota}", name, amount) for quota, name, amount in short
        )
    ]


def _by_totals(cluster: ClusterState, asked: Requirements) -> int:
    """Estimate how many replicas fit, from the cluster's free totals and node grades, as for a
    class that the estimator has not counted."""
    assert cluster.room is not None, "asked of known room only"
    demand = demand_of(asked)
    return scattered(cluster.grades, demand, cluster.room.fits(demand))


def _more_counted(record: BindingState, demand: Demand, cluster: ClusterState) -> Change | None:
    """Return one change: the smallest number of replicas that the estimator would have to report
    for the class of the binding, so that one more replica fits in the cluster. None: no number is
    enough. Example: the estimator reported room for 3 replicas, and 3 replicas were decided after
    that report; a report of 4 is needed.

    The function is for two kinds of clusters: a cluster whose free resources suffice in total but
    are scattered over its nodes, and a cluster that refused the class. `demand`: the resources that
    one replica takes.
    """
    key = record.class_key
    doubted = cluster.closed.get(key)
    least = smallest(1, 2**31, lambda n: _recounted(record, demand, cluster, n) > 0)
    if least is None:
        return None
    if doubted is not None:
        text = (
            f"a count after its refusal (number {doubted:,}) that shows room for {least:,} or more"
        )
    else:
        counted = 0 if cluster.capacity is None else cluster.capacity.classes.get(key, 0)
        text = (
            f"a count of {least:,} instead of {counted:,}: what is free lies scattered over its "
            "nodes, or is taken already"
        )
    return Change("count", cluster.name, text, least)


def _recounted(record: BindingState, demand: Demand, cluster: ClusterState, count: int) -> int:
    """Return how many more replicas of the binding would fit in the cluster if the estimator
    reported the number `count` for the class of the binding. If the cluster refused replicas of the
    class before, `count` must be high enough to end the effect of this refusal; otherwise no more
    replicas fit. `demand`: the resources that one replica takes. The function computes on a copy;
    the cluster is not changed."""
    assert cluster.capacity is not None, "classes are counted by estimators only"
    key = record.class_key
    capacity = msgspec.structs.replace(
        cluster.capacity, classes={**cluster.capacity.classes, key: count}
    )
    other = replace(
        cluster,
        capacity=capacity,
        _room=cluster.room,
        _taken=cluster.taken,
        _deducted=len(cluster.pending),
        closed={
            k: seq
            for k, seq in cluster.closed.items()
            if k != key or count <= cluster.doubt.get(k, 0)
        },
    )
    return other.estimate(key, demand, record.claim)


def _more_free(cluster: ClusterState, demand: Demand) -> ChangeSet:
    """Return one set of changes: for every resource that is short, the smallest additional free
    amount with which one more replica fits. Empty: no resource is short, or more free resources
    would not suffice, because they are scattered over the nodes. `demand`: the resources that one
    replica takes. Example: a replica requests 2 CPUs and 1.5 CPUs are free: 0.5 more CPU is needed.
    """
    assert cluster.room is not None, "asked of known room only"
    room, changes = cluster.room, []
    added = replace(room, left=dict(room.left))
    for name, amount in (
        *demand.amounts,
        *((("pods", 1),) if demand.is_pod and "pods" in room.left else ()),
    ):
        left = room.left.get(name, 0)

        def holds(extra: int, name: str = name, left: int = left, amount: int = amount) -> bool:
            return (left + extra) // amount >= 1

        extra = smallest(0, amount - min(0, left), holds)
        if extra:
            changes.append(more(name, extra))
            added.left[name] = left + extra
    return (
        tuple(changes)
        if changes and scattered(cluster.grades, demand, added.fits(demand)) > 0
        else ()
    )
